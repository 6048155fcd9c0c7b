package app

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"time"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/compat"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/eventstore/overlay"
	"understudy/eventstore/readmodel"
	"understudy/graph/agent"
	"understudy/id"
	"understudy/internal/app/backend"
	"understudy/internal/app/doctor"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
	"understudy/internal/encryption"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/run/service"
	"understudy/run/spans"
	"understudy/run/usage"
	"understudy/run/webhook"
	"understudy/server"
	"understudy/store"
	"understudy/thread"
	"understudy/thread/changes"
	"understudy/thread/search"
)

// assemble makes the parts and ties them together.
func (s *Server) assemble(ctx context.Context, c Config) error {
	if err := s.openStorage(ctx); err != nil {
		return err
	}
	streams, err := s.openStreams()
	if err != nil {
		return err
	}
	if err := s.addGraphs(c.Tools); err != nil {
		return err
	}
	s.items = store.NewService(s.rows.Items(), s.now)
	s.items.Log, s.items.Retention = s.log, store.Retention(s.cfg.ItemTTL)
	if err := s.useIndex(ctx); err != nil {
		return err
	}
	s.assistants = assistant.NewService(s.rows.Assistants(), s.graphs, s.now)
	if s.deerflow, err = s.openDeerFlow(ctx, c.Program); err != nil {
		return err
	}
	if s.deerflow != nil {
		s.files, s.left = s.followFiles(), make(chan leftFiles, 256)
		s.clients = &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	}
	if err := s.protect(ctx); err != nil {
		return err
	}
	if s.ratings, err = s.sealer(ctx, "feedback"); err != nil {
		return err
	}
	instance := string(id.NewRun())
	s.addServices(instance, streams)
	s.fleet = s.keeper(c.Version, instance)
	if c.Source != nil {
		s.examiner = &examiner{source: *c.Source, loaded: s.imports, serves: s.serves, examine: doctor.Examine}
	}
	if s.listener != nil {
		s.addComponents()
		s.http = server.New(s.httpOptions(c.Version))
	}
	return nil
}

// openStorage opens the database, and makes what follows the database.
func (s *Server) openStorage(ctx context.Context) (err error) {
	cfg := s.cfg
	s.changes, s.indexer = changes.NewHub(s.log), search.NewIndexer(s.log)
	var handlers encryption.Handlers
	if s.encryption, err = graphs.StartEncryption(ctx, cfg, s.log); err != nil {
		return err
	} else if s.encryption != nil {
		handlers = s.encryption
	}
	s.rows, err = backend.Open(ctx, cfg, backend.Options{
		Handlers: handlers, Log: s.log, Registry: s.registry, Now: s.now, Changed: s.followers.changed, Changes: s.changes, Saved: s.indexer.Saved,
	})
	if err != nil {
		return err
	}
	if err := backend.Saves(ctx, cfg, s.rows); err != nil {
		return err
	}
	s.changes.Rows = s.rows.Threads()
	indexed := s.useSearch(ctx)
	s.search = search.NewService(s.rows, indexed)
	s.searches = indexed == nil
	s.models = readmodel.NewLoop(s.rows, s.followers.add(), s.log)
	s.counts = usage.NewLoop(s.rows, s.followers.add(), s.now, s.log)
	s.usage = &usage.Service{Store: s.rows, Now: s.now, Log: s.log}
	if cfg.History.JSONL != "" {
		s.mirror = mirror.New(mirror.Options{
			Dir: cfg.History.JSONL, Store: s.rows, Changes: s.followers.add(), Encode: compat.AppendEvent, Log: s.log,
		})
	}
	return nil
}

// openStreams opens the bridge of live streams, and returns their limits.
func (s *Server) openStreams() (limits bridge.Options, err error) {
	limits = backend.StreamLimits(s.cfg, s.log, s.registry)
	limits.Now = s.now
	s.bridge, err = backend.OpenBridge(s.cfg, limits, s.log, s.registry)
	return limits, err
}

// addGraphs makes the graphs of langgraph.json available: Python, remote and declared ones.
func (s *Server) addGraphs(tools []agent.Tool) error {
	s.addGate()
	if err := s.addPython(); err != nil {
		return err
	}
	if err := s.addRemote(); err != nil {
		return err
	}
	return s.addDeclared(tools)
}

// addServices makes the services of runs and threads.
func (s *Server) addServices(instance string, streams bridge.Options) {
	cfg := s.cfg
	snapshots := checkpointer.NewSnapshots(s.rows.Threads(), thread.Explainer{Store: s.rows.Threads(), Graphs: s.graphs, Items: s.items})
	snapshots.Log = s.log
	backfill := eventstore.NewBackfiller(s.rows)
	backfill.Log = s.log
	shown := overlay.New(backfill.Reader(s.rows), backend.OverlayConfig(cfg.History))
	backfill.Keys = shown.Key
	retention := retentionOf(cfg.ThreadTTL)
	s.runs = service.New(service.Options{
		Instance: instance,
		Store:    s.rows.Runs(), Bridge: s.bridge, Streams: streams, Graphs: s.graphs, Snapshots: snapshots, Items: s.items, Backfill: backfill, Overlay: shown, Wire: wire{},
		Webhooks: s.webhookPolicy(),
		Local:    cfg.Storage.DatabaseURL != "" && cfg.Streams.RedisURL == "", Lease: cfg.Storage.Lease,
		Jobs: cmp.Or(cfg.Runs(), -1), Limits: cfg.Workers.GraphConcurrency, PerIdentity: cfg.Limits.ConcurrentRuns,
		Timeout: cfg.Workers.RunTimeout, Grace: cfg.Server.Grace, ResumableTTL: cfg.Streams.ResumableTTL, ThreadTTL: retention.Default,
		Inside: s.inside, Admit: s.admitCron(), Gone: s.runGone, Tasks: s.taskRules(), Elsewhere: s.elsewhere, Others: s.others,
		ServerVersion: APIVersion, URL: s.apiURL(), Logger: s.log, Registry: s.registry, Tracer: s.tracer,
		Spans: spans.Policy{Level: cfg.Traces.Level, Bytes: int(cfg.Traces.Bytes), Keep: cfg.Traces.Age, Langfuse: s.langfuse()},
	})
	s.threads = thread.NewService(thread.Options{
		Store: s.rows.Threads(), Graphs: s.graphs, Snapshots: snapshots, Items: s.items, Backfill: backfill, Overlay: shown, Deleted: s.threadDeleted,
		Changed:   func(state *checkpointer.Snapshot) { s.runs.PublishState(state.Thread, state.ID, stateUpdate(state)) },
		Retention: retention, Log: s.log, Now: s.now,
	})
	s.assistants.Threads = s.threads
	s.events = thread.NewLog(s.rows, backfill)
}

// webhookPolicy says where webhooks may go: the section webhooks of langgraph.json.
func (s *Server) webhookPolicy() *webhook.Policy {
	c := s.cfg.Webhooks
	return &webhook.Policy{
		AllowLoopback:  !c.URL.DisableLoopback,
		RequireHTTPS:   c.URL.RequireHTTPS,
		RefusePrivate:  c.URL.DisablePrivateIPs,
		AllowedDomains: c.URL.AllowedDomains,
		AllowedPorts:   c.URL.AllowedPorts,
		MaxURLLength:   c.URL.MaxURLLength,
		AllowedFields:  c.AllowedFields,
		Headers:        c.Headers,
		Disabled:       s.cfg.HTTP.Disable.Webhooks,
		Own:            s.ownRoutes(),
	}
}

// now is the time that all servers of the database agree on.
func (s *Server) now() time.Time {
	if s.runs == nil { // while the parts are made
		return time.Now()
	}
	return s.runs.Now()
}

// httpOptions says how the API is served. A worker shows its health and metrics.
func (s *Server) httpOptions(version string) server.Options {
	cfg := s.cfg
	if cfg.Mode == config.Worker {
		return server.Options{
			CheckDB: s.rows.Ping, Checks: s.checks(), Logger: s.log, Registry: s.registry, Version: version, APIVersion: APIVersion, LangGraphVersion: s.langGraphVersion,
			Disable: server.Disable{Assistants: true, Threads: true, Runs: true, Store: true, MCP: true, A2A: true, OpenAI: true, UI: true, Webhooks: true},
		}
	}
	o := server.Options{
		Assistants: s.assistants, Threads: s.threads, Events: s.events, Runs: s.runs, Crons: s.runs.Crons(), Tasks: s.runs.Crons(), Items: s.items, Changes: s.changes, Search: s.search, ReadModels: &readmodel.Service{Store: s.rows}, Usage: s.usage, Fleet: s.fleet,
		CheckDB: s.rows.Ping, Checks: s.checks(), Drain: cfg.Server.Drain, Grace: cfg.Server.Grace, Truncate: s.truncation(),
		Logger: s.log, LogReasons: cfg.Mode == config.Dev, Registry: s.registry, Tracer: s.tracer, Version: version, APIVersion: APIVersion, LangGraphVersion: s.langGraphVersion,
		CORS:         corsOf(cfg.HTTP.CORS),
		Disable:      server.Disable(cfg.HTTP.Disable),
		MountPrefix:  cfg.HTTP.MountPrefix,
		TLS:          cfg.Server.TLSCert != "",
		AuthOpenAPI:  cfg.Auth.OpenAPI,
		Configurable: cfg.HTTP.ConfigurableHeaders, Logged: cfg.HTTP.LoggingHeaders,
		MaxBody: int64(cfg.Server.MaxBody), MaxBodies: int64(cfg.Server.MaxBodies),
		DeerFlow: s.deerflow, Ratings: &server.Ratings{Store: s.rows, Tokens: s.ratings, Now: s.now},
		Studio: cfg.Server.Studio, ExampleGraph: s.exampleGraph,

		CheckHost: cfg.ChecksHost() && s.guard == nil, AllowedHosts: cfg.Server.AllowedHosts, TrustedProxies: cfg.Server.TrustedProxies,
	}
	if s.examiner != nil {
		o.Doctor = s.examiner
	}
	if s.deerflow != nil && !cfg.HTTP.CORS.Given {
		o.CORS = server.CORS{NoOrigins: len(s.deerflow.Origins) == 0, AllowOrigins: s.deerflow.Origins, AllowMethods: []string{"*"}, AllowHeaders: []string{"*"}, AllowCredentials: true}
	}
	if s.gate != nil {
		o.Loaded = s.gate.Ready
	}
	if s.gate != nil && cfg.HTTP.App.IsSet() {
		o.App, o.AuthFirst, o.GuardRoutes = s.gate, cfg.HTTP.AuthFirst, cfg.HTTP.GuardRoutes
	}
	if s.components != nil {
		o.Components = s.components
	}
	if s.encryption != nil {
		o.Encryption = s.encryption
	}
	if s.guard != nil {
		o.Authenticator, o.Inside, o.Audit, o.SignIn = s.auth, s.inside, s.audit, s.signIn
		o.Cursors = s.cursors
		s.guard.Wrap(&o)
	}
	return o
}

// corsOf is the section http.cors as package server has it.
func corsOf(c config.CORS) server.CORS {
	out := server.CORS{
		AllowOrigins: c.AllowOrigins, AllowMethods: c.AllowMethods, AllowHeaders: c.AllowHeaders, AllowCredentials: c.AllowCredentials,
		ExposeHeaders: c.ExposeHeaders, MaxAge: c.MaxAge,
	}
	if c.AllowOriginRegex != "" {
		out.AllowOriginRegex = regexp.MustCompile(c.AllowOriginRegex) // Settings are validated
	}
	return out
}

// retentionOf is checkpointer.ttl as package thread has it.
func retentionOf(c config.ThreadTTL) thread.Retention {
	r := thread.Retention{Every: c.Every, Limit: c.Limit}
	if c.Default != nil {
		r.Default = &thread.TTL{Strategy: thread.Strategy(c.Strategy), After: *c.Default}
	}
	return r
}

// stateUpdate is the event that followers of a thread get when a client has written its state.
func stateUpdate(state *checkpointer.Snapshot) json.RawMessage {
	data := append(compat.AppendState([]byte(`{"state":`), state, compat.StateParts{}), `,"thread_id":"`...)
	return append(append(data, state.Thread...), `"}`...)
}

// wire encodes records of runs for readers, in the formats of package compat.
type wire struct{}

// Run is a run in a webhook. It leaves out who created it: what authentication returned, tokens among it, is not for the owner of the webhook.
func (wire) Run(r *run.Run) json.RawMessage {
	shown := *r
	config := jsonobj.Of(r.Kwargs.Config)
	if configurable := config.Get("configurable"); configurable != nil {
		c := jsonobj.Of(configurable)
		c.Delete("langgraph_auth_user")
		config.Set("configurable", c.JSON())
		shown.Kwargs.Config = config.JSON()
	}
	return compat.AppendRun(nil, &shown, nil)
}

func (wire) Request(payload json.RawMessage, stateless bool) (run.Request, error) {
	return compat.NewRun(payload, compat.RunForm{Stateless: stateless})
}

// exampleGraph is the first graph of langgraph.json, or of those that the program has; "": there is none.
func (s *Server) exampleGraph() string {
	if len(s.cfg.Graphs) > 0 {
		return s.cfg.Graphs[0].ID
	}
	if names := s.graphs.Names(); len(names) > 0 {
		return names[0]
	}
	return ""
}

// Package understudy is a server that speaks the LangGraph Server API: assistants, threads, runs, state, history and streams, kept in an
// embedded database, for Python graphs of a langgraph.json and graphs written in Go.
//
// A program that embeds it makes a Server, registers its graphs and runs it:
//
//	srv, err := understudy.New(understudy.Config{Settings: settings})
//	…
//	err = srv.Register("echo", "", myGraph)
//	…
//	err = srv.Run(ctx)
package understudy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/compat"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/python"
	"understudy/graph/remote"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/logctx"
	"understudy/run"
	"understudy/run/webhook"
	"understudy/server"
	"understudy/store"
	"understudy/thread"
)

// Settings are what flags, environment and langgraph.json say.
type Settings = config.Config

// Config is what a Server is made of.
type Config struct {
	Settings *Settings    // required
	Log      *slog.Logger // nil: nothing is logged
	// Tracing makes spans of requests, runs and saves; nil: there are none. It stays the caller's, who shuts it down after Run.
	Tracing trace.TracerProvider
	Version string       // of the program, for /info
	Tools   []agent.Tool // that agents declared in langgraph.json may name, beside the built-in ones
	// GraphLoaded is called once for each graph when it can be used, or, with an error, when it does not import. Errors of Python graphs are
	// *graph.Failure with the traceback in Detail. It must not block. nil: no calls.
	GraphLoaded func(name string, err error, took time.Duration)
}

// APIVersion is the version of LangGraph Server whose answers are given.
const APIVersion = "0.16.7"

// Server is a whole server: listening since New, working while Run.
type Server struct {
	cfg      *Settings
	log      *slog.Logger
	registry *prometheus.Registry
	tracer   trace.Tracer // nil: there are no spans
	listener net.Listener // nil for a worker without a port
	graphs   *graph.Registry
	pool     *python.Pool // nil when no graph needs one
	declared declaredAgents
	loaded   func(name string, err error, took time.Duration)
	rows     database
	mirror   *mirror.Mirror // nil when there is none
	bridge   liveBridge

	assistants *assistant.Service
	threads    *thread.Service
	events     *thread.Log
	runs       *run.Service
	items      *store.Service
	http       *server.Server // nil without a listener
}

// startingAfter is how long a start may take before the port answers health and 503 on its own.
const startingAfter = time.Second

// New opens the port and the data folder. Whoever gets no error calls Run or Close.
func New(c Config) (*Server, error) {
	if c.Settings == nil {
		return nil, errors.New("understudy: Config.Settings is required")
	}
	cfg := c.Settings
	s := &Server{cfg: cfg, log: c.Log, registry: prometheus.NewRegistry(), graphs: graph.NewRegistry(), loaded: c.GraphLoaded}
	if s.loaded == nil {
		s.loaded = func(string, error, time.Duration) {}
	}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = slog.New(logctx.Handler(s.log.Handler()))
	if c.Tracing != nil {
		s.tracer = c.Tracing.Tracer("understudy")
	}
	var err error
	if cfg.Port >= 0 {
		if s.listener, err = net.Listen("tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))); err != nil {
			return nil, err
		}
	}
	if tcp, ok := s.listener.(*net.TCPListener); ok {
		defer server.Starting(tcp, startingAfter)()
	}
	if err := s.assemble(c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// assemble makes the parts and ties them together.
func (s *Server) assemble(c Config) error {
	cfg := s.cfg
	var err error
	var changes *eventstore.Changes
	var changed func([]id.Thread)
	if cfg.History.JSONL != "" {
		changes = eventstore.NewChanges()
		changed = changes.Add
	}
	if s.rows, err = openDatabase(context.Background(), cfg, s.log, s.registry, s.now, changed); err != nil {
		return err
	}
	if changes != nil {
		s.mirror = mirror.New(mirror.Options{
			Dir: cfg.History.JSONL, Store: s.rows, Changes: changes, Encode: compat.AppendEvent, Log: s.log,
		})
	}
	limits := streamLimits(cfg, s.log, s.registry)
	limits.Now = s.now
	if s.bridge, err = openBridge(cfg, limits, s.log, s.registry); err != nil {
		return err
	}
	if err := s.addPython(); err != nil {
		return err
	}
	if err := s.addRemote(); err != nil {
		return err
	}
	if err := s.addDeclared(c.Tools); err != nil {
		return err
	}

	s.items = store.NewService(s.rows.Items(), s.now)
	s.items.Log, s.items.Retention = s.log, store.Retention(cfg.ItemTTL)
	s.assistants = assistant.NewService(s.rows.Assistants(), s.graphs, s.now)
	snapshots := checkpointer.NewSnapshots(s.rows.Threads(), thread.Explainer{Store: s.rows.Threads(), Graphs: s.graphs, Items: s.items})
	snapshots.Log = s.log
	backfill := eventstore.NewBackfiller(s.rows)
	backfill.Log = s.log
	shown := overlay.New(backfill.Reader(s.rows), overlayConfig(cfg.History))
	backfill.Keys = shown.Key
	retention := retentionOf(cfg.ThreadTTL)
	s.runs = run.NewService(run.Options{
		Store: s.rows.Runs(), Bridge: s.bridge, Streams: limits, Graphs: s.graphs, Snapshots: snapshots, Items: s.items, Backfill: backfill, Overlay: shown, Wire: wire{},
		Webhooks: &webhook.Policy{
			AllowLoopback:  !cfg.Webhooks.URL.DisableLoopback,
			RequireHTTPS:   cfg.Webhooks.URL.RequireHTTPS,
			RefusePrivate:  cfg.Webhooks.URL.DisablePrivateIPs,
			AllowedDomains: cfg.Webhooks.URL.AllowedDomains,
			AllowedPorts:   cfg.Webhooks.URL.AllowedPorts,
			MaxURLLength:   cfg.Webhooks.URL.MaxURLLength,
			AllowedFields:  cfg.Webhooks.AllowedFields,
			Headers:        cfg.Webhooks.Headers,
			Disabled:       cfg.HTTP.Disable.Webhooks,
		},
		Local: cfg.DatabaseURL != "" && cfg.RedisURL == "", Jobs: cmp.Or(cfg.Runs(), -1), Limits: cfg.GraphConcurrency, Lease: cfg.Lease, Timeout: cfg.RunTimeout, Grace: cfg.Grace, ResumableTTL: cfg.ResumableTTL,
		ThreadTTL:     retention.Default,
		ServerVersion: APIVersion, URL: s.url(), Logger: s.log, Registry: s.registry, Tracer: s.tracer,
	})
	s.threads = thread.NewService(thread.Options{
		Store: s.rows.Threads(), Graphs: s.graphs, Snapshots: snapshots, Items: s.items, Backfill: backfill, Overlay: shown, Deleted: s.runs.ThreadDeleted,
		Changed:   func(state *checkpointer.Snapshot) { s.runs.PublishState(state.Thread, state.ID, stateUpdate(state)) },
		Retention: retention, Log: s.log, Now: s.now,
	})
	s.assistants.Threads = s.threads
	s.events = thread.NewLog(s.rows, backfill)
	if s.listener != nil {
		s.http = server.New(s.httpOptions(c.Version))
	}
	return nil
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
			CheckDB: s.rows.Ping, Checks: s.checks(), Logger: s.log, Registry: s.registry, Version: version, LangGraphVersion: APIVersion,
			Disable: server.Disable{Assistants: true, Threads: true, Runs: true, Store: true, MCP: true, A2A: true, UI: true, Webhooks: true},
		}
	}
	return server.Options{
		Assistants: s.assistants, Threads: s.threads, Events: s.events, Runs: s.runs, Crons: s.runs, Items: s.items,
		CheckDB: s.rows.Ping, Checks: s.checks(), Drain: cfg.Drain, Truncate: s.truncation(),
		Logger: s.log, Registry: s.registry, Tracer: s.tracer, Version: version, LangGraphVersion: APIVersion,
		CORS:         corsOf(cfg.HTTP.CORS),
		Disable:      server.Disable(cfg.HTTP.Disable),
		MountPrefix:  cfg.HTTP.MountPrefix,
		Configurable: cfg.HTTP.ConfigurableHeaders, Logged: cfg.HTTP.LoggingHeaders,
		MaxBody: int64(cfg.MaxBody), MaxBodies: int64(cfg.MaxBodies),
	}
}

// checks are what makes the server ready.
func (s *Server) checks() map[string]server.Check {
	all := map[string]server.Check{"database": s.rows.Ping}
	if s.pool != nil {
		all["workers"] = func(context.Context) error { return s.pool.Up() }
		if !s.cfg.AllowBrokenGraphs {
			all["graphs"] = func(context.Context) error { return broken(s.pool.Problems()) }
		}
	}
	return all
}

// broken names graphs that do not import; nil when there are none.
func broken(problems map[string]error) error {
	if len(problems) == 0 {
		return nil
	}
	text := "graphs do not import:"
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		text += fmt.Sprintf(" %s (%v)", name, problems[name])
	}
	return errors.New(text)
}

// ErrNoGraphs ends a server of which no graph loads, unless Settings.AllowBrokenGraphs.
var ErrNoGraphs = errors.New("no graph loads")

// hopeless is how long workers must have failed to start before the server ends.
const hopeless = 10 * time.Second

// watchGraphs returns an ErrNoGraphs when no graph of the server can be used: the only ones are Python graphs, and none of them imports, or no
// worker has ever started.
func (s *Server) watchGraphs(ctx context.Context) error {
	if s.pool == nil || s.cfg.AllowBrokenGraphs {
		return nil
	}
	for _, name := range s.graphs.Names() {
		if !slices.ContainsFunc(s.cfg.Graphs, func(g config.Graph) bool { return g.ID == name && g.IsPython() }) {
			return nil
		}
	}
	for tick := time.NewTicker(time.Second / 4); ; {
		if err := s.pool.Never(hopeless); err != nil {
			return fmt.Errorf("%w: %w", ErrNoGraphs, err)
		}
		if langgraph, _ := s.pool.Versions(); langgraph != "" {
			tick.Stop()
			if problems := s.pool.Problems(); len(problems) == len(s.graphs.Names()) {
				return fmt.Errorf("%w: %w", ErrNoGraphs, broken(problems))
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return nil
		}
	}
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

// overlayConfig is the history section as package overlay has it.
func overlayConfig(h config.History) overlay.Config {
	settings := func(o config.Overlay) overlay.Settings {
		return overlay.Settings{
			State: o.State, History: o.History, Threads: o.Threads, Wait: o.Wait, Stream: o.Stream, Updates: o.Updates, Markers: overlay.Markers(o.Markers), Key: o.Key,
			Partial: o.Partial, FullThreads: o.FullThreads, MaxBytes: int64(o.MaxBytes),
		}
	}
	c := overlay.Config{Settings: settings(h.Overlay), Graphs: make(map[string]overlay.Settings, len(h.Graphs))}
	for name, o := range h.Graphs {
		c.Graphs[name] = settings(o)
	}
	return c
}

// addPython makes the workers of the graphs that langgraph.json names.
func (s *Server) addPython() error {
	opts, err := pythonOptions(s.cfg)
	if err != nil || len(opts.Graphs) == 0 {
		return err
	}
	opts.Logger, opts.Registry, opts.Loaded = s.log, s.registry, s.loaded
	s.pool = python.New(opts)
	for _, g := range s.cfg.Graphs {
		if !g.IsPython() {
			continue
		}
		if err := s.graphs.Add(g.ID, g.Description, s.pool.Graph(g.ID)); err != nil {
			return err
		}
	}
	return nil
}

// pythonOptions says what workers load.
func pythonOptions(cfg *Settings) (python.Options, error) {
	specs := make(map[string]python.Spec, len(cfg.Graphs))
	for _, g := range cfg.Graphs {
		if !g.IsPython() {
			continue
		}
		file := g.Path
		if file == "" {
			file = g.Module
		}
		specs[g.ID] = python.Spec{Path: file + ":" + g.Attr}
	}
	env := os.Environ()
	for k, v := range cfg.Env {
		env = append(env, k+"="+v)
	}
	serde, err := serdeJSON(cfg.Serde)
	return python.Options{
		Python: cfg.Python, PythonVersion: cfg.PythonVersion, Workers: cfg.Workers, Dir: cfg.Dir, Paths: cfg.PythonPath, Env: env, Graphs: specs, Serde: serde,
		JobsPerWorker: max(1, cfg.JobsPerWorker), MemoryLimit: int64(cfg.WorkerMemory), MaxRuns: cfg.WorkerMaxRuns, LogBlocking: cfg.Mode == config.Dev,
	}, err
}

// ErrCannotReload: what changed needs a new start.
var ErrCannotReload = errors.New("this change takes effect with the next start")

// Reload takes over the declared agents and Python graphs of settings that were read anew, their environment and sys.path, while Run goes on.
// Declared agents that have changed are built first: an error, config.Mistakes, leaves all as it is. New workers import the Python graphs, and only when that worked do they take the runs that come. Those that run end where they began, or are handed back after
// Grace and go on in the new workers. Everything else in the settings stays as it was. An error leaves all as it is; a
// *python.ReloadError says which graphs do not import. Call it from one goroutine at a time.
func (s *Server) Reload(ctx context.Context, settings *Settings) error {
	opts, err := pythonOptions(settings)
	if err != nil {
		return err
	}
	if s.pool == nil && len(opts.Graphs) > 0 {
		return fmt.Errorf("%w: there were no Python graphs", ErrCannotReload)
	}
	agents, err := s.declared.rebuild(settings, s.log)
	if err != nil {
		return err
	}
	opts.Logger = s.log
	if s.pool != nil {
		if err := s.pool.Reload(ctx, opts, s.cfg.Grace); err != nil {
			return errors.Join(err, agents.discard())
		}
	}
	for _, g := range s.cfg.Graphs {
		stays := slices.ContainsFunc(settings.Graphs, func(other config.Graph) bool { return other.ID == g.ID })
		if g.Remote == nil && !stays {
			s.graphs.Remove(g.ID)
		}
	}
	s.declared.replace(agents, s.graphs, s.cfg.Grace, s.log)
	for _, g := range settings.Graphs {
		if g.IsPython() {
			s.graphs.Put(g.ID, g.Description, s.pool.Graph(g.ID))
		}
	}
	// Remote graphs stay as they are.
	graphs := slices.DeleteFunc(slices.Clone(settings.Graphs), func(g config.Graph) bool { return g.Remote != nil })
	for _, g := range s.cfg.Graphs {
		if g.Remote != nil {
			graphs = append(graphs, g)
		}
	}
	s.cfg.Graphs = graphs
	return s.assistants.EnsureDefaults(ctx, s.cfg.GraphConfigs)
}

// GraphProblems tells which Python graphs do not import, and why; empty before they have been loaded.
func (s *Server) GraphProblems() map[string]error {
	if s.pool == nil {
		return nil
	}
	return s.pool.Problems()
}

// addRemote adds the graphs that langgraph.json names by the URL of their server.
func (s *Server) addRemote() error {
	for _, g := range s.cfg.Graphs {
		if g.Remote == nil {
			continue
		}
		upstream, err := remote.New(remote.Options{ID: g.ID, URL: g.Remote.URL, GraphID: g.Remote.GraphID, Headers: g.Remote.Headers, Logger: s.log})
		if err != nil {
			return err
		}
		if err := s.graphs.Add(g.ID, g.Description, upstream); err != nil {
			return err
		}
	}
	return nil
}

// serdeJSON spells checkpointer.serde as langgraph.json does.
func serdeJSON(c config.Serde) (json.RawMessage, error) {
	out := map[string]any{"pickle_fallback": c.PickleFallback}
	add := func(key string, m *config.Modules) {
		switch {
		case m == nil:
		case m.All:
			out[key] = true
		default:
			out[key] = m.List
		}
	}
	add("allowed_json_modules", c.AllowedJSONModules)
	add("allowed_msgpack_modules", c.AllowedMsgpackModules)
	return json.Marshal(out)
}

// Register adds a graph written in Go. Call it before Run.
func (s *Server) Register(name, description string, g graph.Graph) error {
	return s.graphs.Add(name, description, g)
}

// Addr is where the server listens; nil for a worker without a port.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// url is where the server is, for metadata of runs; "" for a worker.
func (s *Server) url() string {
	if s.cfg.Mode == config.Worker {
		return ""
	}
	return "http://" + s.listener.Addr().String()
}

// Run serves until ctx ends: then streams end with an id to resume from, nothing more is claimed, running runs get the grace period, and
// what is left is handed back. It closes the Server.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	// Workers, bridge and storage live until the last run has ended. Workers start before the takeover, which may ask a graph about a head.
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var lower errgroup.Group
	if s.pool != nil {
		lower.Go(func() error { return notCanceled(s.pool.Run(below)) })
	}
	for _, name := range s.graphs.Names() {
		if !slices.ContainsFunc(s.cfg.Graphs, func(g config.Graph) bool { return g.ID == name && g.IsPython() }) {
			s.loaded(name, nil, 0)
		}
	}
	lower.Go(func() error { return notCanceled(s.bridge.Run(below)) })
	if s.mirror != nil {
		lower.Go(func() error { return s.mirror.Run(below) })
	}
	if err := s.prepare(ctx); err != nil {
		stop()
		return errors.Join(err, lower.Wait())
	}

	upper, uctx := errgroup.WithContext(ctx)
	if s.http != nil {
		upper.Go(func() error { return s.http.Serve(uctx, s.listener) })
	}
	upper.Go(func() error { return s.runs.Run(uctx) })
	upper.Go(func() error { return s.watchGraphs(uctx) })
	upper.Go(func() error { return notCanceled(s.threads.Sweep(uctx)) })
	upper.Go(func() error { return notCanceled(s.items.Sweep(uctx)) })
	err = upper.Wait()
	stop()
	return errors.Join(notCanceled(err), lower.Wait())
}

// prepare takes over what the last server on this data left.
func (s *Server) prepare(ctx context.Context) error {
	if err := s.assistants.EnsureDefaults(ctx, s.cfg.GraphConfigs); err != nil {
		return err
	}
	// With a limit an index answers, and the time that searches of clients may take does not count.
	rows, err := s.rows.Threads().Threads(ctx, thread.Query{Status: thread.Busy, Limit: math.MaxInt32})
	if err != nil {
		return fmt.Errorf("busy threads: %w", err)
	}
	busy := make([]id.Thread, len(rows))
	for i, t := range rows {
		busy[i] = t.ID
	}
	return s.runs.Recover(ctx, busy)
}

func notCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Close gives port and data folder back. Run does it too; it may be called twice.
func (s *Server) Close() error {
	errs := []error{}
	if s.listener != nil {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.bridge != nil {
		errs = append(errs, s.bridge.Close())
	}
	errs = append(errs, s.declared.close())
	if s.rows != nil {
		errs = append(errs, s.rows.Close())
	}
	return errors.Join(errs...)
}

// stateUpdate is what those who follow a thread see of a state that a client has written.
func stateUpdate(state *checkpointer.Snapshot) json.RawMessage {
	data := append(compat.AppendState([]byte(`{"state":`), state, compat.StateParts{}), `,"thread_id":"`...)
	return append(append(data, state.Thread...), `"}`...)
}

// wire encodes for those who read runs, as package compat has it.
type wire struct{}

func (wire) Run(r *run.Run) json.RawMessage { return compat.AppendRun(nil, r, nil) }
func (wire) Request(payload json.RawMessage, stateless bool) (run.Request, error) {
	return compat.NewRun(payload, compat.RunForm{Stateless: stateless})
}

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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/compat"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/graph"
	"understudy/graph/python"
	"understudy/id"
	"understudy/internal/config"
	"understudy/run"
	"understudy/server"
	"understudy/storage/sqlite"
	"understudy/store"
	"understudy/thread"
	"understudy/thread/overlay"
)

// Settings are what flags, environment and langgraph.json say.
type Settings = config.Config

// Config is what a Server is made of.
type Config struct {
	Settings *Settings    // required
	Log      *slog.Logger // nil: nothing is logged
	Version  string       // of the program, for /info
}

// APIVersion is the version of LangGraph Server whose answers are given.
const APIVersion = "0.16.7"

// Server is a whole server: listening since New, working while Run.
type Server struct {
	cfg      *Settings
	log      *slog.Logger
	listener net.Listener
	graphs   *graph.Registry
	pool     *python.Pool // nil when no graph needs one
	rows     *sqlite.Store
	mirror   *mirror.Mirror // nil when there is none
	bridge   *bridge.Memory

	assistants *assistant.Service
	threads    *thread.Service
	events     *thread.Log
	runs       *run.Service
	items      *store.Service
	http       *server.Server
}

// New opens the port and the data folder. Whoever gets no error calls Run or Close.
func New(c Config) (*Server, error) {
	if c.Settings == nil {
		return nil, errors.New("understudy: Config.Settings is required")
	}
	cfg := c.Settings
	s := &Server{cfg: cfg, log: c.Log, graphs: graph.NewRegistry()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.listener, err = net.Listen("tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))); err != nil {
		return nil, err
	}
	if err := s.assemble(c.Version); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// assemble makes the parts and ties them together.
func (s *Server) assemble(version string) error {
	cfg := s.cfg
	var err error
	rows := sqlite.Options{Dir: cfg.Data, Synchronous: string(cfg.Synchronous), Logger: s.log}
	var changes *eventstore.Changes
	if cfg.History.JSONL != "" {
		changes = eventstore.NewChanges()
		rows.Changed = changes.Add
	}
	s.rows, err = sqlite.Open(context.Background(), rows)
	if err != nil {
		return err
	}
	if changes != nil {
		s.mirror = mirror.New(mirror.Options{
			Dir: cfg.History.JSONL, Store: s.rows, Changes: changes, Encode: compat.AppendEvent, Log: s.log,
		})
	}
	s.bridge = bridge.NewMemory(bridge.Options{TTL: cfg.ResumableTTL})
	if err := s.addPython(); err != nil {
		return err
	}

	s.items = store.NewService(s.rows.Items(), nil)
	s.assistants = assistant.NewService(s.rows.Assistants(), s.graphs, nil)
	snapshots := checkpointer.NewSnapshots(s.rows.Threads(), thread.Explainer{Store: s.rows.Threads(), Graphs: s.graphs, Items: s.items})
	snapshots.Log = s.log
	backfill := eventstore.NewBackfiller(s.rows)
	backfill.Log = s.log
	shown := overlay.New(backfill.Reader(s.rows), overlayConfig(cfg.History))
	backfill.Keys = shown.Key
	s.runs = run.NewService(run.Options{
		Store: s.rows.Runs(), Bridge: s.bridge, Graphs: s.graphs, Snapshots: snapshots, Items: s.items, Backfill: backfill, Overlay: shown, Wire: wire{},
		Webhooks: &run.Webhooks{
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
		Jobs: cfg.Workers * cfg.JobsPerWorker, Timeout: cfg.RunTimeout, Grace: cfg.Grace, ResumableTTL: cfg.ResumableTTL,
		ServerVersion: APIVersion, URL: "http://" + s.listener.Addr().String(), Logger: s.log,
	})
	s.threads = thread.NewService(thread.Options{
		Store: s.rows.Threads(), Graphs: s.graphs, Snapshots: snapshots, Items: s.items, Backfill: backfill, Overlay: shown, Deleted: s.runs.ThreadDeleted,
		Changed: func(state *checkpointer.Snapshot) { s.runs.PublishState(state.Thread, state.ID, stateUpdate(state)) },
	})
	s.events = thread.NewLog(s.rows, backfill)
	s.http = server.New(s.httpOptions(version))
	return nil
}

// httpOptions says how the API is served.
func (s *Server) httpOptions(version string) server.Options {
	cfg := s.cfg
	var origins *regexp.Regexp
	if re := cfg.HTTP.CORS.AllowOriginRegex; re != "" {
		origins = regexp.MustCompile(re) // Settings are validated
	}
	return server.Options{
		Assistants: s.assistants, Threads: s.threads, Events: s.events, Runs: s.runs, Crons: s.runs, Items: s.items,
		CheckDB: func(ctx context.Context) error { _, _, err := s.runs.Counts(ctx); return err },
		Logger:  s.log, Version: version, LangGraphVersion: APIVersion,
		CORS: server.CORS{
			AllowOrigins: cfg.HTTP.CORS.AllowOrigins, AllowOriginRegex: origins, AllowMethods: cfg.HTTP.CORS.AllowMethods,
			AllowHeaders: cfg.HTTP.CORS.AllowHeaders, AllowCredentials: cfg.HTTP.CORS.AllowCredentials,
			ExposeHeaders: cfg.HTTP.CORS.ExposeHeaders, MaxAge: cfg.HTTP.CORS.MaxAge,
		},
		Disable:      server.Disable(cfg.HTTP.Disable),
		MountPrefix:  cfg.HTTP.MountPrefix,
		Configurable: server.Headers{Include: cfg.HTTP.ConfigurableHeaders.Includes, Exclude: cfg.HTTP.ConfigurableHeaders.Excludes},
		MaxBody:      int64(cfg.MaxBody), MaxBodies: int64(cfg.MaxBodies),
	}
}

// overlayConfig is the history section as package overlay has it.
func overlayConfig(h config.History) overlay.Config {
	settings := func(o config.Overlay) overlay.Settings {
		return overlay.Settings{
			State: o.State, History: o.History, Threads: o.Threads, Wait: o.Wait, Stream: o.Stream, Markers: overlay.Markers(o.Markers), Key: o.Key,
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
	cfg := s.cfg
	if len(cfg.Graphs) == 0 {
		return nil
	}
	specs := make(map[string]python.Spec, len(cfg.Graphs))
	for _, g := range cfg.Graphs {
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
	if err != nil {
		return err
	}
	s.pool = python.New(python.Options{
		Python: cfg.Python, Workers: cfg.Workers, Dir: cfg.Dir, Paths: cfg.PythonPath, Env: env, Graphs: specs, Serde: serde,
		JobsPerWorker: cfg.JobsPerWorker, Logger: s.log,
	})
	for _, g := range cfg.Graphs {
		if err := s.graphs.Add(g.ID, g.Description, s.pool.Graph(g.ID)); err != nil {
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

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends: then streams end with an id to resume from, nothing more is claimed, running runs get the grace period, and
// what is left is handed back. It closes the Server.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	// Workers, bridge and storage live until the last run has ended.
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var lower errgroup.Group
	if s.pool != nil {
		lower.Go(func() error { return notCanceled(s.pool.Run(below)) })
	}
	lower.Go(func() error { return notCanceled(s.bridge.Run(below)) })
	if s.mirror != nil {
		lower.Go(func() error { return s.mirror.Run(below) })
	}

	upper, uctx := errgroup.WithContext(ctx)
	upper.Go(func() error { return s.http.Serve(uctx, s.listener) })
	upper.Go(func() error { return s.runs.Run(uctx) })
	upper.Go(func() error { return notCanceled(s.items.Sweep(uctx, time.Minute)) })
	err = upper.Wait()
	stop()
	return errors.Join(notCanceled(err), lower.Wait())
}

// prepare takes over what the last server on this data left.
func (s *Server) prepare(ctx context.Context) error {
	if err := s.assistants.EnsureDefaults(ctx); err != nil {
		return err
	}
	rows, err := s.rows.Threads().Threads(ctx, thread.Query{Status: thread.Busy})
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
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		errs = append(errs, err)
	}
	if s.bridge != nil {
		errs = append(errs, s.bridge.Close())
	}
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

func (wire) Frame(event string, data []byte) []byte { return compat.AppendFrame(nil, event, data) }
func (wire) Run(r *run.Run) json.RawMessage         { return compat.AppendRun(nil, r, nil) }
func (wire) Request(payload json.RawMessage, stateless bool) (run.Request, error) {
	return compat.NewRun(payload, compat.RunForm{Stateless: stateless})
}

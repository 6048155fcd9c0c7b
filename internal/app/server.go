// Package app puts the parts of the server together: it opens what a configuration names, makes the services, and serves them, or a proxy
// in front of another server. Package understudy is its face for programs that embed a server, cmd/understudy that for people.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"understudy/access"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/id"
	"understudy/internal/app/backend"
	"understudy/internal/components"
	"understudy/internal/config"
	"understudy/internal/diskspace"
	"understudy/internal/fleet"
	"understudy/internal/logctx"
	"understudy/internal/logs"
	"understudy/server"
	"understudy/thread"
	"understudy/thread/changes"
)

// Config is what a Server is made of.
type Config struct {
	Settings *config.Config // required
	// Source is where Settings were read, for the checks that POST /understudy/doctor makes. nil: there is no such route.
	Source *config.Source
	Log    *slog.Logger // nil: nothing is logged
	// Tracing creates spans of requests, runs and saves; nil for none. The caller shuts it down after
	// Run.
	Tracing trace.TracerProvider
	Version string // of the program, for /info
	// Program is the path of understudy, for work in processes of their own (package deerflow/markdown); "": there is none.
	Program string
	Tools   []agent.Tool // that agents declared in langgraph.json may name, in addition to the built-in ones
	Auth    Auth         // authenticates requests and decides what they may do; nil: as langgraph.json says
	// GraphLoaded is called once for each graph when it can be used, or, with an error, when it does not import. Errors of Python graphs are
	// *graph.Failure with the traceback in Detail; an earlier *python.StartError means that no worker starts yet. It must not block. nil: no calls.
	GraphLoaded func(name string, err error, took time.Duration)
}

// Auth authenticates requests and decides what their actors may do.
type Auth interface {
	access.Authenticator
	access.Policy
}

// APIVersion is the version of LangGraph Server whose answers are given.
const APIVersion = "0.16.7"

// Server is a whole server: listening since New, working while Run.
type Server struct {
	cfg      *config.Config
	log      *slog.Logger
	lines    *logs.Ring // the last ones of the log
	registry *prometheus.Registry
	tracer   trace.Tracer // nil: there are no spans

	beginning sync.Mutex // of Run, which what Register and Observe add is not to miss
	ran       bool
	closed    bool // guarded by beginning

	protection
	execution
	rows   backend.Database
	bridge backend.Bridge
	logFollowers
	services
	deerflowParts

	listener   net.Listener // nil for a worker without a port
	certs      port
	http       *server.Server  // nil without a listener
	components *components.Set // nil when no graph has any
	fleet      *fleet.Keeper
	// notReloaded is why the last reload changed nothing; nil: it did, or there was none.
	notReloaded atomic.Pointer[[]fleet.Problem]
	examiner    *examiner // nil: none
}

// startingAfter is how long a start may take before the port answers health and 503 on its own.
const startingAfter = time.Second

// New opens the port and the data folder. After a nil error call Run or Close. The end of ctx gives up a start that waits, and has no effect afterwards.
func New(ctx context.Context, c Config) (*Server, error) {
	if c.Settings == nil {
		return nil, errors.New("app: Config.Settings is required")
	}
	cfg := c.Settings
	s := &Server{
		cfg: cfg, log: c.Log, registry: prometheus.NewRegistry(),
		execution: execution{graphs: graph.NewRegistry(), loaded: c.GraphLoaded}, protection: protection{auth: c.Auth},
	}
	if s.loaded == nil {
		s.loaded = func(string, error, time.Duration) {}
	}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.lines = logs.NewRing()
	s.log = slog.New(logctx.Handler(s.lines.Handler(s.log.Handler())))
	if c.Tracing != nil {
		s.tracer = c.Tracing.Tracer("understudy")
	}
	var err error
	if cfg.Server.Port >= 0 {
		if s.listener, err = net.Listen("tcp", net.JoinHostPort(cfg.Server.Host, strconv.Itoa(cfg.Server.Port))); err != nil {
			return nil, err
		}
	}
	if s.certs, err = certificates(cfg, s.log, nil); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if tcp, ok := s.listener.(*net.TCPListener); ok {
		defer server.Starting(tcp, s.certs.wrap(), startingAfter)()
	}
	if err := s.assemble(ctx, c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Register adds a graph written in Go. Call it before Run.
func (s *Server) Register(name, description string, g graph.Graph) error {
	s.beginning.Lock()
	defer s.beginning.Unlock()
	if s.ran {
		return fmt.Errorf("register graph %q: the server runs, or has run; call Register before Run", name)
	}
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
	return scheme(s.cfg) + s.listener.Addr().String()
}

// apiURL is the address at which code of graphs calls the API of this server; "": there is none.
func (s *Server) apiURL() string {
	if at := s.url(); at != "" {
		return at + s.cfg.HTTP.MountPrefix
	}
	return ""
}

// Run serves until ctx ends: then streams end with an id to resume from, nothing more is claimed, running runs get the grace period, and
// what is left is handed back. It closes the Server.
func (s *Server) Run(ctx context.Context) (err error) {
	s.beginning.Lock()
	again, closed := s.ran, s.closed
	s.ran = again || !closed
	s.beginning.Unlock()
	began := time.Now()
	if again {
		return errors.New("Run was called before, and has closed this server: make another one with New")
	}
	if closed {
		return errors.New("Close was called before Run: make another server with New")
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// Workers, bridge and storage live until the last run has ended. Workers start before the takeover, which may ask a graph about a head.
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var lower errgroup.Group
	for _, run := range s.lower() {
		lower.Go(func() error { return run(below) })
	}
	defer context.AfterFunc(ctx, s.fleet.Drain)()
	s.showGraphs(ctx)
	if err := s.prepare(ctx); err != nil {
		stop()
		return errors.Join(err, lower.Wait())
	}
	upper, uctx := errgroup.WithContext(ctx)
	upper.Go(func() error { return s.announce(uctx, began) })
	for _, run := range s.upper() {
		upper.Go(func() error { return run(uctx) })
	}
	err = upper.Wait()
	stop()
	return errors.Join(notCanceled(err), lower.Wait())
}

// showGraphs reports the graphs that need no worker, and that there are none at all.
func (s *Server) showGraphs(ctx context.Context) {
	names := s.graphs.Names()
	if len(names) == 0 && s.cfg.Mode != config.Proxy {
		s.log.WarnContext(ctx, "there are no graphs: runs get 422", "fix", "name some in graphs of langgraph.json, or call Register before Run")
	}
	for _, name := range names {
		if !slices.ContainsFunc(s.cfg.Graphs, func(g config.Graph) bool { return g.ID == name && g.IsPython() }) {
			s.loaded(name, nil, 0)
		}
	}
}

// followChanges passes changes of threads to the clients that watch them, and to other servers of the database.
func (s *Server) followChanges(ctx context.Context) error {
	if others, ok := s.rows.(interface {
		SendChanges(ctx context.Context, list []changes.Change) error
	}); ok {
		return s.changes.Run(ctx, others.SendChanges)
	}
	return s.changes.Run(ctx, nil)
}

// prepare takes over what the last server on this data left.
func (s *Server) prepare(ctx context.Context) error {
	ctx = diskspace.WithReserve(ctx) // on a full disk the server must start, because only it can delete
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

// awaitGate returns when the Python parts that are not graphs are loaded, or ctx has ended; only what keeps them from loading is an error.
func (s *Server) awaitGate(ctx context.Context) error {
	err := s.gate.Ready(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func notCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Close releases the port and the data folder. Run does it too; Close may be called twice.
func (s *Server) Close() error {
	s.beginning.Lock()
	s.closed = true
	s.beginning.Unlock()
	errs := []error{}
	if s.listener != nil {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.bridge != nil {
		errs = append(errs, s.bridge.Close())
	}
	if s.lead != nil {
		errs = append(errs, s.lead.Close())
	}
	if s.python != nil {
		errs = append(errs, s.python.close())
	}
	if s.clients != nil {
		s.clients.CloseIdleConnections()
	}
	if s.sandbox != nil {
		s.sandbox.Close()
	}
	errs = append(errs, s.declared.Close())
	if s.rows != nil {
		errs = append(errs, s.rows.Close())
	}
	return errors.Join(errs...)
}

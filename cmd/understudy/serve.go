package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/app"
	"understudy/internal/app/advice"
	"understudy/internal/config"
	"understudy/internal/logctx"
	"understudy/internal/memlimit"
	"understudy/studio"
)

// serve runs a server until it is stopped. source is where the configuration was read, and is read again. It returns nil after an orderly stop.
func serve(ctx context.Context, cfg *config.Config, source config.Source, log *slog.Logger, stdout io.Writer) error {
	log.Info("starting", cfg.Used(version())...)
	if err := checkSpace(log); err != nil {
		return err
	}
	if p := advice.FileLimit(cfg); p != nil {
		return p
	}
	limitMemory(cfg, log)
	ctx, stop := serveUntilSignal(ctx, log, cfg.Mode != config.Dev && !isTerminal(os.Stderr))
	defer stop()

	traces, flush := startTraces(ctx, log, cfg)
	defer flush()
	list := newLister(cfg, log, stdout)
	srv, err := open(ctx, cfg, source, log, traces, list.loaded)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // stopped before it listened
	case err != nil:
		return explain(err, cfg)
	}
	addr := srv.Addr()
	if exposed(cfg.Mode, addr) && !cfg.Authenticates() {
		log.Warn("NO AUTHENTICATION: anyone who reaches this address can read, change and delete every conversation. "+
			`Use --host 127.0.0.1, or write {"auth": {"api_keys": true}} in langgraph.json, or put a proxy that authenticates in front and block direct access.`, "address", addr.String())
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watch, unwatch := context.WithCancel(ctx)
	defer unwatch()
	switch {
	case cfg.Mode == config.Worker && addr != nil:
		fmt.Fprintf(stdout, "understudy worker executes up to %d runs; health and metrics on %s\n", cfg.Runs(), baseURL(cfg, addr))
	case cfg.Mode == config.Worker:
		fmt.Fprintf(stdout, "understudy worker executes up to %d runs\n", cfg.Runs())
	default:
		url := baseURL(cfg, addr)
		fmt.Fprintln(stdout, "understudy listening on "+url)
		if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
			fmt.Fprintf(stdout, "  and on every other address of this machine (--host %s, port %d)\n", cfg.Server.Host, tcp.Port)
		}
		switch {
		case !cfg.Server.Studio || cfg.HTTP.Disable.UI:
		case studio.Built:
			fmt.Fprintf(stdout, "  in the browser: %s%s/studio/\n", url, cfg.HTTP.MountPrefix)
		default:
			fmt.Fprintln(stdout, "  without the studio: this program was built with the tag nostudio")
		}
		if srv, ok := srv.(*app.Server); ok && cfg.Mode == config.Serve {
			list.whole = func(graphs []string) {
				watching.Go(func() { list.tryFactories(watch, graphs, srv.BuildGraph) })
			}
		}
		if cfg.Mode == config.Dev {
			fmt.Fprint(stdout, loadingGraphs(cfg.Graphs))
			if srv, ok := srv.(*app.Server); ok {
				list.whole = func(graphs []string) {
					watching.Go(func() {
						list.tryFactories(watch, graphs, srv.BuildGraph)
						tryNext(watch, stdout, url+cfg.HTTP.MountPrefix, credentialsFor(cfg), graphs, srv.InputSchema)
					})
				}
			}
		}
	}
	if srv, ok := srv.(*app.Server); ok && cfg.Workers.Reload {
		r := &reloader{log: log, cfg: cfg, load: func() (*config.Config, []config.Warning, error) { return config.Load(source) }, reload: srv.Reload, bundle: srv.ReloadComponents, problems: srv.GraphProblems, loaded: srv.Loaded, onEnd: srv.NoteReload, rested: settle, patience: firstPatience}
		watching.Go(func() { _ = r.Run(watch) }) // it logs what it meets
	}
	return explain(srv.Run(ctx), cfg)
}

// checkSpace refuses an address space in which the server would end with a trace of the Go runtime sooner or later.
func checkSpace(log *slog.Logger) error {
	limit := memlimit.AddressSpace()
	switch {
	case limit == 0:
		return nil
	case limit < memlimit.LeastSpace:
		return fmt.Errorf("the address space is limited to %s (ulimit -v, RLIMIT_AS), and %s are needed, most of which is never touched: raise or remove this limit, "+
			"and limit memory by the container or cgroup", config.ByteSize(limit), config.ByteSize(memlimit.LeastSpace))
	}
	log.Warn("the address space is limited (ulimit -v, RLIMIT_AS): when it is used up the server ends with a trace of the Go runtime; limit memory by the container or cgroup instead",
		"limit", config.ByteSize(limit).String())
	return nil
}

// limitMemory keeps Go within the memory of the container, and leaves room for the workers in it.
func limitMemory(cfg *config.Config, log *slog.Logger) {
	var r memlimit.Reserve
	if slices.ContainsFunc(cfg.Graphs, config.Graph.IsPython) {
		r = memlimit.Reserve{Workers: cfg.Workers.Processes, WorkerBytes: int64(cfg.Workers.Memory)}
	}
	if container, set := memlimit.Set(r); set > 0 {
		if needed, fits := r.Fits(container); !fits {
			log.Warn("the memory limit of the container is small: the kernel may end the server or its workers without a word; raise it or lower --workers",
				"limit", config.ByteSize(container).String(), "needed", config.ByteSize(needed).String())
		}
		log.Info("memory limit of the container found", "limit", config.ByteSize(container).String(), "go_memory_limit", config.ByteSize(set).String())
	}
}

// exposed reports whether the API is served to other machines. The proxy leaves authentication
// to its upstream, and a worker serves health and metrics alone.
func exposed(mode config.Mode, addr net.Addr) bool {
	if mode != config.Serve && mode != config.Dev {
		return false
	}
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// server is a server or a proxy.
type server interface {
	Addr() net.Addr
	Run(ctx context.Context) error
}

func open(ctx context.Context, cfg *config.Config, source config.Source, log *slog.Logger, traces trace.TracerProvider, loaded func(string, error, time.Duration)) (server, error) {
	if cfg.Mode == config.Proxy {
		return app.NewProxy(ctx, app.ProxyConfig{Settings: cfg, Log: log, Version: version()})
	}
	program, err := os.Executable()
	if err != nil {
		log.Warn("the program does not find itself; documents are not converted to Markdown", "error", err)
	}
	return app.New(ctx, app.Config{Settings: cfg, Source: &source, Log: log, Program: program, Version: version(), Tracing: traces, GraphLoaded: loaded})
}

// lister reports each graph when it is loaded: in a list for a developer, else in the log.
type lister struct {
	r     *reloader
	log   *slog.Logger
	out   io.Writer
	whole func(graphs []string) // called once all were reported, with those that work in the order of the file; nil: not. Set before Run

	mu    sync.Mutex // guards all below
	works map[string]bool
	fix   string // the last advice
	same  string // the last failure, as it was printed
	first string // the first graph that it is of
}

func newLister(cfg *config.Config, log *slog.Logger, out io.Writer) *lister {
	return &lister{r: &reloader{cfg: cfg}, log: log, out: out, works: map[string]bool{}}
}

func (l *lister) loaded(name string, err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cfg, at := l.r.cfg, ""
	if err != nil {
		at = l.r.placeOf(err)
	}
	p := colorsOf(l.out)
	switch {
	case cfg.Mode != config.Dev && err == nil:
		l.log.Info("graph loaded", "graph", name, logctx.Took(took))
	case cfg.Mode != config.Dev:
		attrs := []any{"graph", name, "at", at, "error", problemOf(err)}
		if fix := fixOf(err); fix != "" {
			attrs = append(attrs, "fix", fix)
		}
		l.log.Error("graph does not import", attrs...)
	case err == nil && took >= 50*time.Millisecond:
		fmt.Fprintf(l.out, "  %s %s (%.1f s)\n", p.paint(green, "✓"), name, took.Seconds())
	case err == nil:
		fmt.Fprintf(l.out, "  %s %s\n", p.paint(green, "✓"), name)
	case l.same == at+problemOf(err):
		fmt.Fprintf(l.out, "  %s %s: the same as %s\n", p.paint(red, "✗"), name, l.first)
	default:
		l.same, l.first = at+problemOf(err), name
		fmt.Fprintf(l.out, "  %s %s: %s\n", p.paint(red, "✗"), name, problemOf(err))
		if at != "" {
			fmt.Fprintf(l.out, "      at %s\n", at)
		}
		start := errors.As(err, new(*python.StartError)) // the same for all graphs
		if fix := fixOf(err); fix != "" && (!start || fix != l.fix) {
			fmt.Fprintf(l.out, "      fix: %s\n", fix)
			l.fix = fix
		}
		if cfg.Workers.Reload && !start {
			fmt.Fprintln(l.out, "      it is loaded again when you save a file")
		}
	}
	l.works[name] = err == nil
	if len(l.works) < len(cfg.Graphs) || l.whole == nil {
		return
	}
	var works []string
	for _, g := range cfg.Graphs {
		if l.works[g.ID] {
			works = append(works, g.ID)
		}
	}
	if len(works) > 0 {
		l.whole(works)
		l.whole = nil // else a graph may work later
	}
}

// tryFactories reports graphs that import and cannot be built: their factory fails with an empty configuration, or makes no graph.
func (l *lister) tryFactories(ctx context.Context, graphs []string, build func(context.Context, string) error) {
	for _, name := range graphs {
		cfg := l.r.cfg
		if !slices.ContainsFunc(cfg.Graphs, func(g config.Graph) bool { return g.ID == name && g.IsPython() }) {
			continue
		}
		err := build(ctx, name)
		if err == nil || ctx.Err() != nil {
			continue
		}
		p := colorsOf(l.out)
		fix, always := python.FixFactory(err)
		if cfg.Mode != config.Dev {
			if f := (*graph.Failure)(nil); !errors.As(err, &f) {
				continue // no answer of the graph: its worker ended, or is busy
			}
			what := "graph cannot be built with an empty configuration: requests without one fail"
			if always {
				what = "a factory makes no graph: requests for it fail"
			}
			l.log.Warn(what, "graph", name, "at", l.r.placeOf(err), "error", problemOf(err), "fix", fix)
			continue
		}
		if always {
			fmt.Fprintf(l.out, "  %s %s: it makes no graph: %s\n", p.paint(red, "✗"), name, problemOf(err))
		} else {
			fmt.Fprintf(l.out, "  %s %s: it cannot be built with an empty configuration: %s\n", p.paint(yellow, "!"), name, problemOf(err))
			if at := l.r.placeOf(err); at != "" {
				fmt.Fprintf(l.out, "      at %s\n", at)
			}
		}
		fmt.Fprintf(l.out, "      fix: %s\n", fix)
	}
}

// problemOf is the error of a graph in one line.
func problemOf(err error) string {
	var start *python.StartError
	if errors.As(err, &start) {
		return "no worker starts: " + start.Reason
	}
	return python.Plain(err)
}

// fixOf returns the advice that the failure of a graph has; "" if there is none.
func fixOf(err error) string {
	var f *graph.Failure
	var start *python.StartError
	switch {
	case errors.As(err, &start):
		return start.Fix
	case errors.As(err, &f):
		return f.Fix
	}
	return ""
}

// explain puts what a person can do into errors that they meet at the start.
func explain(err error, cfg *config.Config) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	if p := advice.From(err); p != nil {
		return p // without what was closed afterwards
	}
	if p := advice.Port(cfg, err); p != nil {
		return p
	}
	if p := advice.Files(err); p != nil {
		return p
	}
	return err
}

// baseURL is where a client on this machine reaches addr.
func baseURL(cfg *config.Config, addr net.Addr) string {
	scheme := "http://"
	if cfg.Server.TLSCert != "" {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + addr.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, port)
}

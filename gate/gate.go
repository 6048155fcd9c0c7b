// Package gate runs the Python parts of a deployment that are not graphs: the handlers of auth.path, the application of http.app, the
// function of store.index.embed, the handlers of encryption.path, and tools for agents in Go.
//
// Handlers of encryption have a process of their own, and so have tools; the others share one. No graph runs in it, so logins do not wait for graphs. A process is
// supervised like a worker of graphs: it is started again when it ends or does not answer, and replaced when its files change. If it cannot answer, no request is
// let in: a handler that takes too long, a full queue and a missing process are 503. The Python half is in python/understudy_gate, embedded and sent over the socket.
//
// docs/auth.md explains it to users.
package gate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/access"
	"understudy/internal/fault"
	"understudy/internal/loop"
)

// Options configure a Gate.
type Options struct {
	Python string   // interpreter
	Dir    string   // folder of the langgraph.json: working directory, first on sys.path
	Paths  []string // more folders for sys.path
	Env    []string // complete environment of the process

	Auth  string // "./auth.py:auth"; "": none
	App   string // "./app.py:app"; "": none
	Embed string // "./embed.py:embed" or "provider:model"; "": none
	// Encryption is "./encryption.py:encryption", for StartEncryption; "": none.
	Encryption string
	// Tools are tools of LangChain, such as "package.module:name", for StartTools.
	Tools []string

	// Studio lets requests of LangGraph Studio from this machine pass authenticate as StudioUser. Handlers are asked all the same.
	Studio bool
	// Prefix is the mount prefix, below which the application is.
	Prefix string
	// GuardRoutes makes routes of the application ask who sent a request (http.enable_custom_route_auth).
	GuardRoutes bool

	// Remember keeps what authenticate returned.
	Remember Remembering
	// Timeout is how long a handler may take; 0: 30 s. Then the request is 503.
	Timeout time.Duration
	// MaxCalls is how many questions may be with handlers at a time; 0: 1000. More are 503.
	MaxCalls int
	Logger   *slog.Logger          // nil: none
	Registry prometheus.Registerer // registers metrics; nil: not exported

	// API answers requests that the application makes to its own server; see Passage for on whose behalf. nil: there is none.
	API func(r *http.Request, as Passage) (*http.Response, error)
	// Authenticator finds out who sent a request to a route of the application; nil: the Gate itself.
	Authenticator access.Authenticator

	unstarted bool // the application is loaded only, for Check
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = 1000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// None reports whether nothing needs a gate.
func (o Options) None() bool {
	return o.Auth == "" && o.App == "" && o.Embed == "" && o.Encryption == "" && len(o.Tools) == 0
}

// Errors of a gate that cannot answer. The client sees their text.
var (
	errFull    = fault.New(fault.Unavailable, "Too many requests are being authenticated at the moment, try again")
	errSlow    = fault.New(fault.Unavailable, "Authentication takes too long at the moment, try again")
	errDown    = fault.New(fault.Unavailable, "Authentication is not available at the moment, try again")
	errStopped = errors.New("the gate has stopped")
)

// Gate is the process with the Python parts. Its methods are safe for concurrent use, and work while Run does.
type Gate struct {
	opts    Options
	metrics *metrics
	slots   chan struct{} // one for each question

	// Times. Fields, so that tests need not wait.
	pingEvery, silence        time.Duration // between pings, and without an answer until the process is killed
	startWithin               time.Duration // until the parts are loaded
	slowStart, repeatStart    time.Duration // until a process that loads them is logged, and until the next time, also of slowAnswer
	slowAnswer                time.Duration // until a handler that has not answered is logged
	blockedFor, stalled       time.Duration // until code that blocks the event loop is logged, and until a process is that cannot say where it is
	patience                  time.Duration // of a request for a process that is starting
	grace                     time.Duration // for open requests of a process that is replaced
	lifespan                  time.Duration // for the end of the application's lifespan
	firstBackoff, lastBackoff time.Duration

	actors        actors
	hanging       hanging
	remembered    *remembered // nil: authenticate is called for each request
	administrator sync.Once   // for the warning about routes that act as administrator

	mu      sync.Mutex
	program Options // what the next process loads
	current *process
	waiting bool          // a process is starting, and worth waiting for
	change  chan struct{} // closed and replaced when current or waiting changes
	ready   chan struct{} // closed when the first process is ready or has failed
	failure error         // why the first process failed
	stopped bool
	known   *application // of the last process in service

	wanted chan *process // started by Reload, run by Run
}

// New returns a gate without starting its process, which Run does.
func New(o Options) *Gate {
	o = o.withDefaults()
	g := &Gate{
		opts: o, program: o, slots: make(chan struct{}, o.MaxCalls),
		pingEvery: 500 * time.Millisecond, silence: o.Timeout + 5*time.Second, startWithin: 2 * time.Minute,
		slowStart: 1500 * time.Millisecond, repeatStart: 2500 * time.Millisecond, slowAnswer: 2 * time.Second, blockedFor: time.Second, stalled: 1900 * time.Millisecond, patience: 5 * time.Second, grace: 10 * time.Second, lifespan: 10 * time.Second,
		firstBackoff: 100 * time.Millisecond, lastBackoff: 10 * time.Second,
		waiting: true, change: make(chan struct{}), ready: make(chan struct{}), wanted: make(chan *process),
	}
	g.remembered = newRemembered(o.Remember)
	g.metrics = newMetrics(o.Registry, g)
	return g
}

// Run keeps a process until ctx ends, and returns when all have ended. If the first cannot load the parts, it returns a *StartError at once.
func (g *Gate) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer g.shut()
	begin := func(p *process) {
		all.Go(func() { p.run(ctx) })
	}
	backoff := loop.NewBackoff(g.firstBackoff, g.lastBackoff)
	p := g.newProcess()
	begin(p)
	for {
		change := g.changes()
		if served := g.replacement(p); served != nil { // by a reload
			p = served
			backoff.Reset()
		}
		select {
		case <-ctx.Done():
			return nil
		case next := <-g.wanted:
			begin(next) // Reload puts it into service
			continue
		case <-change:
			continue
		case <-p.exited:
		}
		if ctx.Err() != nil {
			return nil
		}
		if g.replacement(p) != nil { // by a reload, just now
			continue
		}
		if !p.wasReady() {
			if g.neverReady(p.startErr) {
				return p.startErr
			}
			g.setWaiting(false)
			pause := backoff.Next()
			g.opts.Logger.Error("the process of Python handlers does not start; requests that need it are refused with 503",
				"error", p.startErr, "again_in", pause.String())
			if !loop.Sleep(ctx, pause) {
				return nil
			}
		} else {
			if time.Since(p.readyAt) > g.lastBackoff {
				backoff.Reset()
			}
			g.metrics.restarts.Inc()
			g.opts.Logger.Warn("the process of Python handlers died and is started again", "pid", p.pid, "cause", p.cause)
			if !loop.Sleep(ctx, backoff.Next()/10) {
				return nil
			}
		}
		g.setWaiting(true)
		p = g.newProcess()
		begin(p)
	}
}

// Ready waits until the parts are loaded. The error is a *StartError when they cannot be.
func (g *Gate) Ready(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.ready:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failure
}

// Up returns nil when the process answers, else why not.
func (g *Gate) Up() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != nil {
		return nil
	}
	select {
	case <-g.ready:
		return fault.New(fault.Unavailable, "the process of "+g.program.keys()+" does not answer; see the log")
	default:
		return fault.New(fault.Unavailable, "still loading "+g.program.keys())
	}
}

// neverReady notes why the first process failed. It reports whether none has been ready.
func (g *Gate) neverReady(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.ready:
		return g.failure != nil
	default:
	}
	g.failure = err
	close(g.ready)
	return true
}

// serve puts a process that is ready into service, and returns the one before. It reports false when the process has ended meanwhile, or a reload has put a
// newer one into service.
func (g *Gate) serve(p *process) (before *process, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.retired || !p.reload && g.current != nil {
		return nil, false
	}
	if p.reload {
		g.program = p.program
	}
	before, g.current, g.waiting = g.current, p, false
	select {
	case <-g.ready:
	default:
		close(g.ready)
	}
	g.changed()
	return before, true
}

// leave takes a process out of service, for good.
func (g *Gate) leave(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.retired = true
	if g.current == p {
		g.current, g.waiting = nil, true // Run starts another one, or says that it is not worth waiting
		g.changed()
	}
}

// replacement is the process in service, if it is another one than p.
func (g *Gate) replacement(p *process) *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == p {
		return nil
	}
	return g.current
}

// changes returns a channel that is closed at the next change.
func (g *Gate) changes() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.change
}

func (g *Gate) setWaiting(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = on
	g.changed()
}

func (g *Gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped, g.current, g.waiting = true, nil, false
	g.changed()
}

// changed wakes those who wait for a process. The caller holds mu.
func (g *Gate) changed() {
	close(g.change)
	g.change = make(chan struct{})
}

// process returns the process in service. It waits a moment for one that is starting.
func (g *Gate) process(ctx context.Context) (*process, error) {
	var timeout <-chan time.Time
	for {
		g.mu.Lock()
		p, waiting, change := g.current, g.waiting, g.change
		g.mu.Unlock()
		switch {
		case p != nil:
			return p, nil
		case !waiting:
			return nil, errDown
		}
		if timeout == nil {
			timer := time.NewTimer(g.patience)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-change:
		case <-timeout:
			return nil, errDown
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Reload starts a process with other options, and when it is ready lets it take over: requests that are open end with the one before. An error, a
// *StartError when the parts do not load, leaves all as it is. Call it from one goroutine at a time.
func (g *Gate) Reload(ctx context.Context, o Options) error {
	g.mu.Lock()
	program := g.program
	program.Python, program.Dir, program.Paths, program.Env = o.Python, o.Dir, o.Paths, o.Env
	program.Auth, program.App, program.Embed, program.Encryption, program.Tools = o.Auth, o.App, o.Embed, o.Encryption, o.Tools
	g.mu.Unlock()
	p := g.newProcess()
	p.program, p.reload = program, true
	select {
	case g.wanted <- p:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-p.ready:
	case <-p.exited:
	case <-ctx.Done():
		p.kill("its reload was given up")
		return context.Cause(ctx)
	}
	before, serves := g.serve(p)
	if !serves {
		<-p.exited
		switch {
		case p.startErr != nil:
			return p.startErr
		case p.cause != "":
			return &StartError{Reason: "the process ended when it had just loaded them: " + p.cause, Interpreter: program.Python, Trace: p.tail.String()}
		}
		return errStopped
	}
	if before != nil {
		before.retire()
	}
	return nil
}

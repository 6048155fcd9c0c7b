package gate

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"understudy/graph/python"
	"understudy/internal/child"
	"understudy/internal/loop"
)

//go:embed python/understudy_gate/*.py
var files embed.FS

var code = sync.OnceValue(func() []byte { return child.Modules(files, "python/understudy_gate") })

// process is one process. Its goroutines are: run (owner), read, write, one per pipe, and one per request of the application to the API; run waits for
// all of them.
type process struct {
	gate    *Gate
	program Options
	reload  bool // Reload puts it into service
	pid     int
	child   *child.Process
	tail    child.Tail
	said    *child.Valve

	ready    chan struct{} // closed when the parts are loaded
	readyAt  time.Time
	exited   chan struct{} // closed when everything has ended
	retiring chan struct{} // closed when another one has taken over
	stopping chan struct{} // closed when the lifespan has ended
	lost     chan struct{} // closed when it must be killed
	idle     chan struct{} // something arrives when nothing is open any more
	once     struct{ retire, lose, stopped sync.Once }
	retired  bool   // it is not put into service any more. gate.mu guards it
	startErr error  // why it was never ready. After exited
	cause    string // why it died. After exited

	out outbox

	mu     sync.Mutex
	hello  *hello
	fatal  *problem
	why    string // it is killed
	calls  map[uint32]*call
	open   map[uint32]*stream
	next   uint32
	closed bool
	left   bool      // it takes no new calls or streams
	pingAt time.Time // of the unanswered ping; zero: none
	holdup *holdup   // what keeps the loop from answering; nil: nothing is known
	prober child.Prober
	within loading // what it loads, when that takes long
	serves sync.WaitGroup
}

// hello is what a process says when it has loaded the parts.
type hello struct {
	Python string       `json:"python"`
	Gaps   []string     `json:"gaps"`
	App    *application `json:"app"`

	Encryption *encryptionHandlers `json:"encryption"`
	Tools      []foundTool         `json:"tools"`
	Problem    *problem            `json:"problem"`
}

func (g *Gate) newProcess() *process {
	g.mu.Lock()
	program := g.program
	g.mu.Unlock()
	return &process{
		gate: g, program: program, said: child.NewValve(), ready: make(chan struct{}), exited: make(chan struct{}), retiring: make(chan struct{}),
		stopping: make(chan struct{}), lost: make(chan struct{}), idle: make(chan struct{}, 1), out: outbox{child.NewOutbox()}, calls: map[uint32]*call{}, open: map[uint32]*stream{},
	}
}

func (p *process) wasReady() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// retire ends the process when its open requests have ended, or after the grace period.
func (p *process) retire() { p.once.retire.Do(func() { close(p.retiring) }) }

func (p *process) kill(why string) {
	p.once.lose.Do(func() {
		p.mu.Lock()
		p.why = why
		p.mu.Unlock()
		close(p.lost)
	})
}

func (p *process) setup(server *child.Address) string {
	o := &p.program
	text, err := json.Marshal(map[string]any{
		"dir": o.Dir, "paths": o.Paths, "server": server, "auth": o.Auth, "app": o.App, "embed": o.Embed, "encryption": o.Encryption, "tools": o.Tools, "slow": p.gate.slowStart.Seconds(), "again": p.gate.repeatStart.Seconds(), "answer": p.gate.slowAnswer.Seconds(), "blocked": p.gate.blockedFor.Seconds(), "limit": p.gate.opts.Timeout.Seconds(), "http": map[string]any{"prefix": o.Prefix, "guarded": o.GuardRoutes, "unstarted": o.unstarted},
	})
	if err != nil {
		panic("gate: setup: " + err.Error()) // only texts
	}
	return string(text)
}

// run starts the process and returns when it and all its goroutines have ended.
func (p *process) run(ctx context.Context) {
	defer close(p.exited)
	defer p.gate.leave(p)
	began := time.Now()
	var err error
	p.child, err = child.Start(child.Program{Python: p.program.Python, Package: "understudy_gate", Dir: p.program.Dir, Env: p.program.Env, Setup: p.setup})
	if err != nil {
		p.startErr = &StartError{Reason: err.Error(), Interpreter: p.program.Python, Fix: "name an interpreter that has the packages of the deployment with --python"}
		return
	}
	defer p.child.Close()
	p.pid = p.child.PID
	_ = p.out.Add(func(b []byte) []byte { return append(b, code()...) })

	var pipes sync.WaitGroup
	print := func(stream string) func(string) {
		return func(text string) {
			p.gate.opts.Logger.Info("output of Python handlers", "line", text, "source", stream, "pid", p.pid)
		}
	}
	pipes.Go(func() { child.Lines(p.child.Stdout, p.said, nil, nil, print("stdout")) })
	pipes.Go(func() { child.Lines(p.child.Stderr, p.said, &p.tail, p.reports, print("stderr")) })
	p.child.Attach(p.out.Outbox, func(frames *bufio.Reader) error {
		err := p.read(ctx, frames)
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			p.kill(err.Error())
		}
		return err
	})

	p.supervise(ctx, began)
	p.gate.leave(p)
	if !p.orderly(ctx) {
		p.leave(true)
	}
	p.stop(ctx)
	p.child.End()
	pipes.Wait()
	p.end()
	p.serves.Wait()
	if lines, bytes := p.said.Left(time.Time{}); lines > 0 {
		p.gate.opts.Logger.Warn("output was left out of the log: it came too fast", "pid", p.pid, "lines", lines, "bytes", bytes)
	}
	p.conclude(p.child.WaitErr)
}

// supervise returns when the process must end or has ended.
func (p *process) supervise(ctx context.Context, began time.Time) {
	ticker := time.NewTicker(p.gate.pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.retiring:
			return
		case <-p.lost:
			return
		case <-p.child.Gone:
			return
		case <-p.child.Left:
			return
		case <-ticker.C:
		}
		now := time.Now()
		if !p.wasReady() {
			if took := now.Sub(began); took > p.gate.startWithin {
				p.kill(fmt.Sprintf("it did not load within %v", p.gate.startWithin))
			} else {
				p.logLoading(now, took)
			}
			continue
		}
		p.mu.Lock()
		quiet := time.Duration(0)
		ping := p.pingAt.IsZero()
		if ping {
			p.pingAt = now
		} else {
			quiet = now.Sub(p.pingAt)
		}
		p.mu.Unlock()
		if ping {
			_ = p.out.send(toPing, 0, nil)
		}
		p.probe(quiet)
		if quiet > p.gate.silence {
			p.kill(p.silent(quiet))
		}
	}
}

// stop lets a process that is in order end its open requests and its lifespan.
func (p *process) stop(ctx context.Context) {
	if !p.orderly(ctx) || !p.wasReady() {
		return
	}
	defer p.leave(true) // else calls go to a process that answers no more, however the loop ends
	timer := time.NewTimer(p.gate.grace)
	defer timer.Stop()
	for !p.leave(ctx.Err() != nil) { // of a server that ends, answers are no longer awaited
		select {
		case <-ctx.Done():
		case <-p.lost:
			return
		case <-p.child.Gone:
			return
		case <-p.child.Left:
			return
		case <-timer.C:
			p.gate.opts.Logger.Warn("requests of the process before the reload did not end in time and are broken off", "pid", p.pid)
			return
		case <-p.idle:
		}
	}
	_ = p.out.send(toStop, 0, nil)
	timer.Reset(p.gate.lifespan)
	select {
	case <-p.stopping:
	case <-p.lost:
	case <-p.child.Gone:
	case <-p.child.Left:
	case <-timer.C:
		p.gate.opts.Logger.Warn("the lifespan of the application did not end in time", "pid", p.pid, "waited", p.gate.lifespan.String())
	}
}

// freed notes that a call or a stream is not open any more. The caller holds mu.
func (p *process) freed() {
	if len(p.calls) > 0 || len(p.open) > 0 {
		return
	}
	loop.Poke(p.idle)
}

// leave lets the process take no more calls and streams, once none are open, or at once. It reports whether it takes none. The process is not in service.
func (p *process) leave(atOnce bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = p.left || atOnce || len(p.calls) == 0 && len(p.open) == 0
	return p.left
}

// orderly reports whether the process ends because it is to, and not by itself.
func (p *process) orderly(ctx context.Context) bool {
	select {
	case <-p.retiring:
		return true
	default:
		return ctx.Err() != nil
	}
}

// end fails what is still open.
func (p *process) end() {
	p.mu.Lock()
	p.closed = true
	calls, open := p.calls, p.open
	p.calls, p.open = map[uint32]*call{}, map[uint32]*stream{}
	p.mu.Unlock()
	for _, c := range calls {
		close(c.result)
	}
	for _, s := range open {
		s.broke(errDown)
	}
}

// conclude says why the process ended.
func (p *process) conclude(waitErr error) {
	p.mu.Lock()
	why, fatal := p.why, p.fatal
	p.mu.Unlock()
	p.cause = why
	if p.cause == "" {
		p.cause = "it left"
		if waitErr != nil {
			p.cause = waitErr.Error()
		}
		if last := lastLine(p.tail.String()); last != "" {
			p.cause += ": " + last
		}
	}
	if p.wasReady() {
		return
	}
	switch {
	case fatal != nil:
		p.startErr = fatal.explain(&p.program)
	default:
		e := &StartError{Reason: p.cause, Interpreter: p.program.Python, Trace: p.tail.String()}
		if why == "" && p.hello == nil {
			e.Fix = python.FixStart(p.cause)
		}
		if why != "" && p.within.name != "" { // it was killed because it took too long
			e.Part, e.Spec, e.Place, e.Fix = p.within.name, p.within.spec, p.within.place, p.within.fix()
		}
		var exit *exec.ExitError
		if errors.As(waitErr, &exit) && why == "" && e.Trace == "" {
			e.Reason = "the process ended while it loaded them: " + waitErr.Error()
		}
		p.startErr = e
	}
}

func lastLine(text string) string {
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// read handles the frames of the process until its connection ends.
func (p *process) read(ctx context.Context, frames *bufio.Reader) error {
	for {
		body, err := child.ReadFrame(frames)
		if err != nil {
			return err
		}
		kind, number, payload, err := parse(body)
		if err != nil {
			return err
		}
		switch kind {
		case fromHello:
			var h hello
			if err := json.Unmarshal(payload, &h); err != nil {
				return fmt.Errorf("greeting: %w", err)
			}
			if h.Problem != nil {
				p.mu.Lock()
				p.fatal = h.Problem
				p.mu.Unlock()
				return io.EOF
			}
			p.greet(&h)
		case fromResult:
			p.mu.Lock()
			c := p.calls[number]
			delete(p.calls, number)
			p.freed()
			p.mu.Unlock()
			if c != nil {
				c.result <- payload // it has room for one
			}
		case fromPong:
			p.mu.Lock()
			p.pingAt, p.holdup = time.Time{}, nil
			p.mu.Unlock()
		case fromLog:
			p.log(payload)
		case fromStopped:
			p.once.stopped.Do(func() { close(p.stopping) })
			var answer struct{ Problem string }
			if json.Unmarshal(payload, &answer) == nil && answer.Problem != "" {
				p.gate.opts.Logger.Error("the lifespan of the application failed at its end", "traceback", answer.Problem)
			}
		case bothOpen:
			p.opened(ctx, number, payload)
		default:
			if s := p.stream(number); s != nil {
				s.arrived(kind, payload)
			}
		}
	}
}

func (p *process) greet(h *hello) {
	if h.App != nil {
		if err := h.App.compile(p.program.Prefix); err != nil {
			p.gate.opts.Logger.Warn("a route of the application cannot be known outside of Python: requests are passed on to find out", "error", err)
		}
	}
	p.mu.Lock()
	p.hello = h
	p.mu.Unlock()
	p.readyAt = time.Now()
	late := false
	if !p.reload {
		_, serves := p.gate.serve(p)
		late = !serves
	}
	close(p.ready)
	if late {
		p.retire()
	}
	if len(h.Gaps) > 0 {
		p.gate.opts.Logger.Warn("no handler of auth answers these questions: they are allowed to every authenticated user", "actions", strings.Join(h.Gaps, " "),
			"fix", "add @auth.on handlers for them, or one for everything else: @auth.on async def deny(ctx, value): return False")
	}
}

func (p *process) log(payload []byte) {
	var line struct {
		Level             int
		Logger, Text, Fix string
	}
	if json.Unmarshal(payload, &line) != nil {
		return
	}
	if now := time.Now(); !p.said.Lets(now, len(line.Text)) {
		p.said.LeaveOut(now, 1, len(line.Text))
		return
	}
	level := slog.LevelError
	switch {
	case line.Level < 20:
		level = slog.LevelDebug
	case line.Level < 30:
		level = slog.LevelInfo
	case line.Level < 40:
		level = slog.LevelWarn
	}
	attrs := []any{"line", line.Text, "source", line.Logger, "pid", p.pid}
	if line.Fix != "" {
		attrs = append(attrs, "fix", line.Fix)
	}
	p.gate.opts.Logger.Log(context.Background(), level, "output of Python handlers", attrs...)
}

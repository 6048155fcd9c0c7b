package python

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"understudy/graph"
	"understudy/internal/child"
)

// worker is one process. Its goroutines are: run (owner of the process), read, write, and one per pipe; run waits for the others.
type worker struct {
	pool     *Pool
	gen      *generation
	pid      int
	child    *child.Process
	number   uint64 // in the order of creation
	isolated bool
	began    time.Time // time of creation
	standby  bool      // of a reload: takes no runs until admitted. Guarded by the pool's mutex
	// startErr is why it died before it was ready, and why the same for operators; read them after exited is closed.
	startErr error
	why      *StartError
	// cause and fix are what is known of its death; "" when it was stopped in order. Set by run.
	cause, fix string

	ready   chan struct{} // closed by the greeting
	retired chan struct{} // closed when it takes no more runs
	worn    chan struct{} // closed when it has executed its share of runs
	lost    chan struct{} // closed when it has been silent for Pool.lost
	exited  chan struct{} // closed when the process and all goroutines have ended
	tail    child.Tail    // end of what it wrote to stderr
	said    *child.Valve  // limits its output in the log
	reading sync.WaitGroup

	out *child.Outbox // grows with the input of runs; runs are limited elsewhere

	mu       sync.Mutex
	calls    map[uint64]*call
	next     uint64
	greeting hello
	begun    bool      // the interpreter runs the worker's code, which may still import langgraph
	spoke    bool      // it has sent a message: langgraph is imported
	imported bool      // it has imported a graph, or tried to, and did not die of it
	held     []logLine // what it wrote before
	state    state
	exit     exit
	runs     int           // number of runs it received
	share    int           // maximum number of runs; 0: any
	since    time.Time     // when it was started, or began to import a graph
	graph    string        // being imported; "" before the first and after the last
	at, code string        // where that import is, and the line there; "" in its first second
	resting  chan struct{} // closed while silent
	pingAt   time.Time     // time of the unanswered ping; zero: none
	pings    uint64        // number of the last ping
	answered uint64        // number of the last ping that was answered
	heard    time.Time     // last report of code that blocks the loop, or of where an import is
	holdup   string        // what keeps the loop from answering, for anyone who asks; "" nothing that is known
	stall    child.Why     // the same as the kernel has it

	prober child.Prober
}

func (p *Pool) newWorker(isolated bool) *worker {
	p.findPython()
	p.mu.Lock()
	gen := p.gen
	p.mu.Unlock()
	return p.workerOf(gen, isolated)
}

func (p *Pool) workerOf(gen *generation, isolated bool) *worker {
	w := &worker{
		pool: p, gen: gen, isolated: isolated, number: p.made.Add(1), resting: make(chan struct{}),
		ready: make(chan struct{}), retired: make(chan struct{}), worn: make(chan struct{}), lost: make(chan struct{}), exited: make(chan struct{}),
		out: child.NewOutbox(), calls: make(map[uint64]*call), said: child.NewValve(), began: time.Now(),
	}
	w.since = w.began
	if n := p.opts.MaxRuns; n > 0 && !isolated {
		w.share = n - rand.IntN(n/10+1) // workers are not replaced all at once
	}
	return w
}

// stuckOn is called for a call that does not end although it was cancelled.
func (w *worker) stuckOn(c *call) {
	why := reason{
		text: fmt.Sprintf("run %s, which was cancelled, did not stop", c.backend.run),
		fix:  "let its node await or return when it is cancelled: one that blocks, or catches asyncio.CancelledError, does not stop",
	}
	w.retire(exit{reason: why, deadline: time.Now().Add(w.pool.killGrace)})
	w.forget(c)
}

func (w *worker) forget(c *call) {
	w.mu.Lock()
	delete(w.calls, c.number)
	last := len(w.calls) == 0 && w.isolated
	w.mu.Unlock()
	if last {
		w.retire(exit{})
	}
}

// starts reports whether the worker is about to become ready: it has come further than those that cannot be started.
func (w *worker) starts() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.imported && w.state == starting
}

// takes reports whether the worker takes runs. The caller holds mu.
func (w *worker) takes() bool { return w.state == serving || w.state == silent }

// add registers a call; false when the worker is out of service.
func (w *worker) add(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.takes() {
		return false
	}
	w.next++
	c.worker, c.number = w, w.next
	w.calls[c.number] = c
	if c.backend.run != "" {
		if w.runs++; w.runs == w.share {
			close(w.worn)
		}
	}
	return true
}

// load reports whether the worker takes runs, how many it has, and whether its loop answers.
func (w *worker) load(now time.Time) (takes bool, runs int, answers bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takes(), len(w.calls), w.state != silent && (w.pingAt.IsZero() || now.Sub(w.pingAt) < w.pool.answerWithin)
}

// --- writing ---------------------------------------------------------------------------

// send queues one message as a frame. It never blocks. It returns an error when the message is too large.
func (w *worker) send(encode func([]byte) []byte) error { return w.out.Add(encode) }

func cancelMessage(number uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		return msgp.AppendUint64(msgp.AppendInt(msgp.AppendArrayHeader(b, 2), toCancel), number)
	}
}

// ping requests a sign of life, unless one is outstanding, and returns the number of the last. A message sent afterwards is unread until that is answered.
func (w *worker) ping() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != starting && w.pingAt.IsZero() {
		w.pingAt = time.Now()
		w.pings++
		_ = w.send(pingMessage(w.pings)) // under the lock: no message may come between
	}
	return w.pings
}

func pingMessage(number uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		return msgp.AppendUint64(msgp.AppendInt(msgp.AppendArrayHeader(b, 2), toPing), number)
	}
}

func goMessage(number uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		return msgp.AppendUint64(msgp.AppendInt(msgp.AppendArrayHeader(b, 2), toGo), number)
	}
}

func pauseMessage(number uint64, on bool) func([]byte) []byte {
	return func(b []byte) []byte {
		return msgp.AppendBool(msgp.AppendUint64(msgp.AppendInt(msgp.AppendArrayHeader(b, 3), toPause), number), on)
	}
}

func refusedMessage(number uint64, why error) func([]byte) []byte {
	return func(b []byte) []byte {
		b = msgp.AppendUint64(msgp.AppendInt(msgp.AppendArrayHeader(b, 3), toRefuse), number)
		return msgp.AppendString(b, strings.ToValidUTF8(why.Error(), "?"))
	}
}

// --- reading ---------------------------------------------------------------------------

func (w *worker) read(frames *bufio.Reader) error {
	spoke := false
	for {
		body, err := child.ReadFrame(frames)
		if err != nil {
			return err
		}
		if len(body) == 0 {
			w.begins()
			continue
		}
		if !spoke {
			spoke = true
			w.speaks()
		}
		if err := decode(body, w); err != nil {
			return err
		}
	}
}

func (w *worker) call(number uint64) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[number]
}

func (w *worker) hello(m hello) {
	for name, why := range m.problems {
		m.problems[name] = w.importFailure(name, why)
	}
	w.pool.greeted(w, m) // before a run can come, which asks the pool whether its graph has loaded
	w.mu.Lock()
	w.greeting = m
	if w.state == starting {
		w.state = serving
	}
	w.mu.Unlock()
	close(w.ready)
	w.pool.changed()
}

// loading is called before a graph is imported, and with "" after the last.
func (w *worker) loading(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.graph, w.since, w.at, w.code = name, time.Now(), "", ""
}

// loaded is called after the import of a graph; why is nil when it worked.
func (w *worker) loaded(name string, why *graph.Failure) {
	w.mu.Lock()
	took := time.Since(w.since)
	w.imported = true
	w.mu.Unlock()
	if why != nil {
		why = w.importFailure(name, why)
	}
	w.pool.loaded(w, name, why, took)
}

// importFailure returns the failure of an import that a worker reports, with advice.
func (w *worker) importFailure(name string, why *graph.Failure) *graph.Failure {
	f := w.failureOf(why.Type, why.Message, why.Detail)
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	if killed := w.gen.skip[name]; killed != nil { // the worker only repeats what it was given
		f.Fix = killed.Fix
	}
	return f
}

// imports reports whether the worker has the graph. It must be ready.
func (w *worker) imports(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.greeting.problems[name] == nil
}

func (w *worker) pong(number uint64) {
	w.mu.Lock()
	quiet := time.Since(w.pingAt)
	w.pingAt, w.answered, w.holdup, w.stall = time.Time{}, number, "", child.Unknown
	back := w.state == silent
	if back {
		w.state, w.resting = serving, make(chan struct{})
	}
	for _, c := range w.calls {
		if c.behind == number {
			c.wake()
		}
	}
	w.mu.Unlock()
	if back {
		w.pool.readmit(w, quiet)
	}
	if quiet > w.pool.answerWithin {
		w.pool.changed()
	}
}

func (w *worker) event(m event) {
	if c := w.call(m.call); c != nil && c.push(m) {
		_ = w.send(pauseMessage(m.call, true))
	}
}

func (w *worker) called(call uint64, m graph.ModelCall) {
	if c := w.call(call); c != nil && c.backend.called != nil {
		c.backend.called(m)
	}
}

func (w *worker) begin(call uint64, s graph.SpanBegin) {
	if c := w.call(call); c != nil && c.backend.tracing != nil {
		c.backend.tracing.Begin(s)
	}
}

func (w *worker) end(call uint64, s graph.SpanEnd) {
	if c := w.call(call); c != nil && c.backend.tracing != nil {
		c.backend.tracing.End(s)
	}
}

func (w *worker) node(call uint64, name string, began bool) {
	if c := w.call(call); c != nil {
		c.node(name, began)
	}
}

func (w *worker) done(m done) {
	c := w.call(m.call)
	if c == nil {
		return
	}
	c.finish(m, nil)
}

func (w *worker) ask(m ask) {
	c := w.call(m.call)
	if c != nil && c.asked(&m) {
		return
	}
	// The call has ended: its run no longer belongs to the worker.
	if m.number != 0 {
		w.answer(m.number, nil, graph.ErrFenced)
	} else {
		_ = w.send(refusedMessage(m.call, graph.ErrFenced))
	}
}

func (w *worker) answer(number uint64, value []byte, err error) {
	encode := func(b []byte) []byte {
		b = msgp.AppendArrayHeader(b, 4)
		b = msgp.AppendInt(b, toAnswer)
		b = msgp.AppendUint64(b, number)
		b = msgp.AppendBool(b, err == nil)
		if err != nil {
			return msgp.AppendString(b, strings.ToValidUTF8(err.Error(), "?"))
		}
		return append(b, value...)
	}
	if tooLarge := w.send(encode); tooLarge != nil {
		err = tooLarge
		_ = w.send(encode)
	}
}

func (w *worker) log(m logLine) {
	if now := time.Now(); w.said.Lets(now, len(m.text)) {
		w.pool.line(w.pid, m)
	} else {
		w.said.LeaveOut(now, 1, len(m.text))
	}
}

package python

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tinylib/msgp/msgp"

	"understudy/graph"
)

// worker is one process. Its goroutines are: run (owner of the process), read, write, and one per pipe; run waits for the others.
type worker struct {
	pool     *Pool
	pid      int
	isolated bool

	ready   chan struct{} // closed with the greeting
	retired chan struct{} // closed when it takes no new runs any more
	exited  chan struct{} // closed when the process and all goroutines are gone
	tail    tail          // end of what it wrote to stderr
	reading sync.WaitGroup

	outReady chan struct{} // has room for one
	outMu    sync.Mutex
	out      []byte // frames to write. Grows with what runs are given; runs are limited elsewhere
	closed   bool

	mu       sync.Mutex
	calls    map[uint64]*call
	next     uint64
	greeting hello
	isReady  bool
	out0     bool // out of service
	why      error
	pingAt   time.Time // when the ping that has no answer yet was sent; zero: none
	killAt   time.Time // when to kill it even though runs are left; zero: not
	killWhen bool      // kill it as soon as no run is left
	doomed   bool
}

func newWorker(p *Pool, isolated bool) *worker {
	return &worker{
		pool: p, isolated: isolated,
		ready: make(chan struct{}), retired: make(chan struct{}), exited: make(chan struct{}), outReady: make(chan struct{}, 1),
		calls: make(map[uint64]*call),
	}
}

// run starts the process and returns when it and everything about it has ended.
func (w *worker) run(ctx context.Context) (err error) {
	defer close(w.exited)
	// The kernel kills the child when the thread that started it ends, so the thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	ours, theirs, err := socketpair()
	if err != nil {
		return fmt.Errorf("socket for a worker: %w", err)
	}
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		return fmt.Errorf("socket for a worker: %w", err)
	}
	defer conn.Close()
	stdout, outEnd, err := os.Pipe()
	if err != nil {
		theirs.Close()
		return fmt.Errorf("pipe for a worker: %w", err)
	}
	defer stdout.Close()
	stderr, errEnd, err := os.Pipe()
	if err != nil {
		theirs.Close()
		outEnd.Close()
		return fmt.Errorf("pipe for a worker: %w", err)
	}
	defer stderr.Close()

	cmd := exec.Command(w.pool.opts.Python, "-c", command(w.pool.code)) //nolint:noctx // ended in order, below
	cmd.Dir = w.pool.opts.Dir
	cmd.Env = append(append([]string{}, w.pool.opts.Env...), "UNDERSTUDY_WORKER="+w.pool.setup)
	cmd.Stdout, cmd.Stderr = outEnd, errEnd
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = processAttributes()
	err = cmd.Start()
	theirs.Close()
	outEnd.Close()
	errEnd.Close()
	if err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	w.pid = cmd.Process.Pid
	log := w.pool.opts.Logger.With("pid", w.pid)
	log.Debug("worker started")

	var pipes, wires sync.WaitGroup
	pipes.Go(func() { w.pipe(stdout, "stdout", false) })
	pipes.Go(func() { w.pipe(stderr, "stderr", true) })
	gone := make(chan struct{})
	var readErr error
	wires.Go(func() { defer close(gone); readErr = w.read(conn) })
	wires.Go(func() { w.write(conn) })

	w.supervise(ctx, gone)

	// The worker leaves when its socket closes. Whatever it started dies with its process group.
	w.outOfService(graph.ErrWorkerDied)
	w.stopWriting()
	conn.Close()
	waited := make(chan error, 1)
	wires.Go(func() { waited <- cmd.Wait() })
	timer := time.NewTimer(time.Second)
	var waitErr error
	select {
	case waitErr = <-waited:
	case <-timer.C:
		killGroup(w.pid)
		waitErr = <-waited
	}
	timer.Stop()
	killGroup(w.pid)
	wires.Wait()
	// Lines that are still in the pipes are worth a moment; a stray grandchild may hold them open for ever.
	deadline := time.Now().Add(200 * time.Millisecond)
	_ = stdout.SetReadDeadline(deadline)
	_ = stderr.SetReadDeadline(deadline)
	pipes.Wait()

	w.mu.Lock()
	why := w.why
	calls := make([]*call, 0, len(w.calls))
	for _, c := range w.calls {
		calls = append(calls, c)
	}
	w.mu.Unlock()
	if ctx.Err() != nil && !w.isDoomed() {
		why = graph.ErrReloading
	} else if why == nil {
		why = graph.ErrWorkerDied
	}
	for _, c := range calls {
		c.finish(done{}, why)
	}
	w.reading.Wait()
	log.Debug("worker ended", "status", fmt.Sprint(waitErr))
	if waitErr == nil && readErr != nil && !errors.Is(readErr, io.EOF) && !errors.Is(readErr, net.ErrClosed) {
		return readErr // what it sent made no sense, and it was sent away
	}
	return waitErr
}

// supervise returns when the worker has to end or has ended.
func (w *worker) supervise(ctx context.Context, gone <-chan struct{}) {
	ticker := time.NewTicker(w.pool.pingEvery)
	defer ticker.Stop()
	var number uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-gone:
			return
		case <-ticker.C:
		}
		if w.tick(time.Now()) {
			return
		}
		w.mu.Lock()
		ping := w.isReady && w.pingAt.IsZero()
		if ping {
			w.pingAt = time.Now()
		}
		w.mu.Unlock()
		if ping {
			number++
			_ = w.send(pingMessage(number))
		}
	}
}

// tick reports whether the worker has to be killed now.
func (w *worker) tick(now time.Time) bool {
	w.mu.Lock()
	silent := !w.pingAt.IsZero() && now.Sub(w.pingAt) > w.pool.silence
	stuck := w.killWhen && !w.pingAt.IsZero() && now.Sub(w.pingAt) > w.pool.answerWithin
	kill := w.killWhen && len(w.calls) == 0 || !w.killAt.IsZero() && now.After(w.killAt) || stuck && !w.killAt.IsZero()
	if kill {
		w.doomed = true
	}
	w.mu.Unlock()
	if kill {
		killGroup(w.pid)
		return true
	}
	if silent {
		// Its runs may yet end well; others go elsewhere.
		w.retire(false)
	}
	return false
}

func (w *worker) isDoomed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doomed
}

// outOfService ends taking runs, because of why.
func (w *worker) outOfService(why error) {
	w.mu.Lock()
	w.why = why
	w.mu.Unlock()
	w.retire(false)
}

// retire takes the worker out of service; it is ended when its runs have ended. soon: after killGrace at the latest, at once when its
// loop does not answer.
func (w *worker) retire(soon bool) {
	w.mu.Lock()
	first := !w.out0
	w.out0, w.killWhen = true, true
	if soon && w.killAt.IsZero() {
		w.killAt = time.Now().Add(w.pool.killGrace)
	}
	w.mu.Unlock()
	if first {
		close(w.retired)
	}
	w.pool.changed()
}

// stuckOn is called for a call that does not end although it was cancelled.
func (w *worker) stuckOn(c *call) {
	w.retire(true)
	w.forget(c)
}

func (w *worker) forget(c *call) {
	w.mu.Lock()
	delete(w.calls, c.number)
	last := len(w.calls) == 0 && w.isolated
	w.mu.Unlock()
	if last {
		w.retire(false)
	}
}

// add registers a call; false when the worker has gone out of service meanwhile.
func (w *worker) add(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out0 || !w.isReady {
		return false
	}
	w.next++
	c.worker, c.number = w, w.next
	w.calls[c.number] = c
	return true
}

// load tells whether the worker takes runs, how many it has, and whether its loop answers.
func (w *worker) load(now time.Time) (takes bool, runs int, answers bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isReady && !w.out0, len(w.calls), w.pingAt.IsZero() || now.Sub(w.pingAt) < w.pool.answerWithin
}

// --- writing ---------------------------------------------------------------------------

// send queues one message as a frame. It never blocks. An error says that the message is too large.
func (w *worker) send(encode func([]byte) []byte) error {
	w.outMu.Lock()
	defer w.outMu.Unlock()
	if w.closed {
		return nil
	}
	b, at := openFrame(w.out)
	b, err := closeFrame(encode(b), at)
	w.out = b
	if err != nil {
		return err
	}
	select {
	case w.outReady <- struct{}{}:
	default:
	}
	return nil
}

func (w *worker) stopWriting() {
	w.outMu.Lock()
	defer w.outMu.Unlock()
	w.closed = true
	w.out = nil
	close(w.outReady)
}

func (w *worker) write(conn net.Conn) {
	var spare []byte
	for range w.outReady {
		w.outMu.Lock()
		b := w.out
		w.out, spare = spare[:0], nil
		w.outMu.Unlock()
		if len(b) == 0 {
			continue
		}
		if _, err := conn.Write(b); err != nil {
			continue // the reader sees that too
		}
		if cap(b) <= 1<<20 {
			spare = b
		}
	}
}

func cancelMessage(number uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		return msgp.AppendUint64(msgp.AppendInt(msgp.AppendArrayHeader(b, 2), toCancel), number)
	}
}

func pingMessage(number uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		return msgp.AppendUint64(msgp.AppendInt(msgp.AppendArrayHeader(b, 2), toPing), number)
	}
}

func pauseMessage(number uint64, on bool) func([]byte) []byte {
	return func(b []byte) []byte {
		return msgp.AppendBool(msgp.AppendUint64(msgp.AppendInt(msgp.AppendArrayHeader(b, 3), toPause), number), on)
	}
}

// --- reading ---------------------------------------------------------------------------

func (w *worker) read(conn net.Conn) error {
	r := bufio.NewReaderSize(conn, 64<<10)
	for {
		body, err := readFrame(r)
		if err != nil {
			return err
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
	w.mu.Lock()
	w.greeting, w.isReady = m, true
	w.mu.Unlock()
	close(w.ready)
	w.pool.greeted(m)
}

func (w *worker) pong(uint64) {
	w.mu.Lock()
	late := time.Since(w.pingAt) > w.pool.answerWithin
	w.pingAt = time.Time{}
	w.mu.Unlock()
	if late {
		w.pool.changed()
	}
}

func (w *worker) event(m event) {
	if c := w.call(m.call); c != nil && c.push(m) {
		_ = w.send(pauseMessage(m.call, true))
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
	if c == nil || !c.begin() {
		// Nobody is there to decide: the run is not the worker's any more.
		w.answer(m.number, nil, graph.ErrFenced)
		return
	}
	root, at := rootPut(&m)
	if root {
		c.announced(at)
	}
	w.reading.Go(func() {
		value, err := c.answer(&m)
		if root && err == nil {
			c.saved(at)
		}
		w.answer(m.number, value, err)
		c.end(errors.Is(err, graph.ErrFenced))
	})
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
	w.pool.line(w.pid, m)
}

// --- what it prints --------------------------------------------------------------------

const maxLine = 32 << 10

func (w *worker) pipe(r io.Reader, name string, keep bool) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			if keep {
				w.tail.add(line)
			}
			if text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "?"); text != "" {
				w.pool.line(w.pid, logLine{level: 20, source: name, text: text})
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// tail keeps the end of a text.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, line...)
	if over := len(t.text) - 8<<10; over > 0 {
		t.text = t.text[over:]
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.text)), "?")
}

func socketpair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
		// Larger than the default, so that a burst of events is one write.
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1<<20)
	}
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "server"), nil
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

package pregel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// workers bound how many tasks execute concurrently. The first task of a step never waits for a worker, so a run that waits for
// tasks of nested graphs always makes progress, at any depth.
type workers struct {
	free    atomic.Int64 // of the run
	process *atomic.Int64
}

// processWorkers is how many tasks of all runs may execute concurrently, in addition to the first of each step.
const processWorkers = 8192

var processFree = func() *atomic.Int64 {
	var n atomic.Int64
	n.Store(processWorkers)
	return &n
}()

func newWorkers(limit int) *workers {
	w := &workers{process: processFree}
	w.free.Store(int64(limit - 1))
	return w
}

func (w *workers) take() bool {
	if w.free.Add(-1) < 0 {
		w.free.Add(1)
		return false
	}
	if w.process.Add(-1) < 0 {
		w.process.Add(1)
		w.free.Add(1)
		return false
	}
	return true
}

func (w *workers) give() {
	w.free.Add(1)
	w.process.Add(1)
}

// runner executes the tasks of one step. It belongs to the goroutine of its loop; tasks send it messages.
type runner struct {
	l       *loop
	ctx     context.Context //nolint:containedctx // of the step: it ends when a task fails
	cancel  context.CancelCauseFunc
	events  chan runnerEvent
	over    chan struct{} // closed when the runner stops receiving
	waiting []*task
	running []*task // started and not ended
}

// runnerEvent is a task that ended, or a task that calls another.
type runnerEvent struct {
	t     *task
	err   error
	extra bool // it occupied a worker
	call  *callRequest
}

// slowToEnd is when the log names nodes that a cancelled run waits for.
const slowToEnd = time.Second

// defaultGrace is how long a run that is cancelled waits for nodes that ignore their context.
const defaultGrace = 5 * time.Second

func stack() []byte { return debug.Stack() }

var errSibling = errors.New("another task of the step failed")

// runTasks executes the tasks that have not finished yet.
func (l *loop) runTasks() error {
	r := &runner{l: l, events: make(chan runnerEvent, 4), over: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(l.ctx)
	defer r.cancel(nil)
	defer close(r.over)
	for _, t := range l.tasks {
		if len(t.writes) > 0 {
			continue
		}
		if l.fromCache(t) {
			if err := l.putWrites(t.id, t.writes, true); err != nil {
				return err
			}
			continue
		}
		if t.name == START && len(l.tasks) == 1 && !slices.ContainsFunc(t.node.writers, func(w writer) bool { return w.branch != nil }) {
			// This cannot take long.
			err := l.attempt(l.ctx, r, t, 1)
			return errors.Join(err, r.commit(t, err))
		}
		r.waiting = append(r.waiting, t)
	}
	return r.run()
}

func (r *runner) run() error {
	var fatal, above error
	asked := map[*task][]interrupt{}
	for {
		if fatal == nil && r.l.ctx.Err() == nil {
			r.start()
		} else {
			r.waiting = nil
		}
		if len(r.running) == 0 {
			break
		}
		var e runnerEvent
		select {
		case e = <-r.events:
		case <-r.l.ctx.Done():
			r.cancel(context.Cause(r.l.ctx))
			return r.abandon(context.Cause(r.l.ctx))
		}
		if e.call != nil {
			r.accept(e.call)
			continue
		}
		r.end(e)
		if fatal != nil { // cancelled; its earlier writes count
			if err := r.late(e.t, e.err); err != nil {
				return err
			}
			continue
		}
		var gi *GraphInterrupt
		var pc *parentCommand
		err := e.err
		if err2 := r.commit(e.t, err); err2 != nil {
			err, e.err = err2, err2
		}
		r.ended(e.t, err)
		switch {
		case err == nil:
		case e.t.call != nil: // its caller gets the error
		case errors.As(err, &gi):
			if len(gi.interrupts) > 0 {
				asked[e.t] = gi.interrupts
			}
			if len(gi.interrupts) == 0 && above == nil {
				above = gi
			}
		case errors.As(err, &pc):
			above = err
		default:
			fatal = err
			r.cancel(errSibling)
		}
	}
	switch {
	case r.l.ctx.Err() != nil && fatal == nil:
		return context.Cause(r.l.ctx)
	case fatal != nil:
		return fatal
	case len(asked) > 0 && (above == nil || isInterrupt(above)):
		var all []interrupt
		for _, t := range r.l.tasks { // the first task that asked
			all = append(all, asked[t]...)
		}
		return &GraphInterrupt{all}
	}
	return above
}

func isInterrupt(err error) bool {
	var gi *GraphInterrupt
	return errors.As(err, &gi)
}

// end records that a started task has ended.
func (r *runner) end(e runnerEvent) {
	i := slices.Index(r.running, e.t)
	r.running = slices.Delete(r.running, i, i+1)
	if e.extra {
		r.l.x.workers.give()
	}
}

// abandon waits until the tasks of a cancelled run have ended, for at most the grace period. Its error is the cause, with the nodes that it stopped.
func (r *runner) abandon(cause error) error {
	var stopped []string
	for _, t := range r.running {
		stopped = append(stopped, t.place())
	}
	patience := r.l.x.patience()
	timer, early := time.NewTimer(patience), time.NewTimer(slowToEnd)
	defer timer.Stop()
	defer early.Stop()
	for len(r.running) > 0 {
		select {
		case <-early.C:
			r.l.x.log.Warn("waiting for nodes of a cancelled run; return from them when their context is done", "nodes", r.places(), "at_most", (patience - slowToEnd).Round(time.Millisecond).String())
		case e := <-r.events:
			if e.call != nil {
				e.call.reply <- callReply{err: cause}
				continue
			}
			r.end(e)
			var inner *located
			if i := slices.Index(stopped, e.t.place()); i >= 0 && errors.As(e.err, &inner) {
				stopped[i] = inner.node
			}
		case <-timer.C:
			r.l.x.log.Warn("nodes still running after their run was cancelled; they ignore their context", "nodes", r.places())
			return &located{someOf(stopped), cause}
		}
	}
	return &located{someOf(stopped), cause}
}

// places names the nodes that run.
func (r *runner) places() string {
	var nodes []string
	for _, t := range r.running {
		nodes = append(nodes, t.place())
	}
	return someOf(nodes)
}

// start starts waiting tasks while there are free workers.
func (r *runner) start() {
	for len(r.waiting) > 0 {
		extra := len(r.running) > 0
		if extra && !r.l.x.workers.take() {
			return
		}
		t := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.running = append(r.running, t)
		r.l.x.begin()
		go r.work(t, extra)
	}
}

// work runs in its own goroutine until the task has ended, and then notifies the runner.
func (r *runner) work(t *task, extra bool) {
	defer r.l.x.end()
	err := inNode(t, r.l.execute(r.ctx, r, t))
	select {
	case r.events <- runnerEvent{t: t, err: err, extra: extra}:
	case <-r.over:
		if extra {
			r.l.x.workers.give()
		}
	}
}

// commit records the outcome of a task.
func (r *runner) commit(t *task, err error) error {
	var gi *GraphInterrupt
	var pc *parentCommand
	r.l.blame(t, err)
	switch {
	case err == nil:
		if !slices.ContainsFunc(t.writes, func(w write) bool { return !controlWrite(w.channel) }) {
			t.writes = append(t.writes, write{writeNone, null})
		}
		r.l.toCache(t)
		return r.l.putWrites(t.id, t.writes, false)
	case errors.As(err, &gi):
		if len(gi.interrupts) == 0 {
			return nil
		}
		items := make([]*value, len(gi.interrupts))
		for i, q := range gi.interrupts {
			items[i] = &value{kind: ofGo, goVal: q}
		}
		writes := []write{{writeInterrupt, fromItems(items)}}
		for _, w := range t.writes {
			if w.channel == writeResume {
				writes = append(writes, w)
			}
		}
		t.writes = nil
		return r.l.putWrites(t.id, writes, false)
	case errors.As(err, &pc):
		return nil
	}
	t.writes = append(t.writes, write{writeError, &value{kind: ofGo, goVal: failed{err}}})
	return r.l.putWrites(t.id, t.writes, false)
}

// late records the outcome of a task that was cancelled because another one failed. No event shows it. With durability exit the
// checkpoint was saved before the tasks were cancelled, so it does not include the outcome.
func (r *runner) late(t *task, err error) error {
	switch {
	case errors.Is(err, errSibling) && r.l.x.durability == durabilityExit:
		r.ended(t, err)
	case errors.Is(err, errSibling):
		t.writes = append(t.writes, write{writeError, &value{kind: ofGo, goVal: failed{errCancelled}}})
		r.ended(t, err)
		return r.l.record(t.id, t.writes)
	case err == nil:
		if !slices.ContainsFunc(t.writes, func(w write) bool { return !controlWrite(w.channel) }) {
			t.writes = append(t.writes, write{writeNone, null})
		}
		r.ended(t, nil)
		return r.l.record(t.id, t.writes)
	}
	r.ended(t, err)
	return nil
}

// errCancelled has the name of Python's exception for cancelled tasks.
var errCancelled = &Error{Name: "CancelledError"}

// execute runs a task with its retries.
func (l *loop) execute(ctx context.Context, r *runner, t *task) error {
	policies := t.policies(l.g)
	for attempt := 1; ; attempt++ {
		t.mu.Lock()
		t.writes = nil
		t.mu.Unlock()
		err := l.attempt(ctx, r, t, attempt)
		if err == nil {
			return nil
		}
		var pc *parentCommand
		if errors.As(err, &pc) {
			if done, err := l.handleCommand(ctx, t, pc); done {
				return err
			}
			return pc
		}
		if bubbles(err) || ctx.Err() != nil {
			var at *located
			if cause := context.Cause(ctx); cause != nil && !bubbles(err) && (!errors.As(err, &at) || !errors.Is(err, cause)) {
				return cause
			}
			return err
		}
		i := slices.IndexFunc(policies, func(p RetryPolicy) bool { return p.RetryOn(err) })
		if i < 0 || attempt >= policies[i].MaxAttempts {
			return err
		}
		p := policies[i]
		pause := time.Duration(math.Min(float64(p.MaxInterval), float64(p.InitialInterval)*math.Pow(p.BackoffFactor, float64(attempt-1))))
		if !p.NoJitter {
			pause += rand.N(time.Second)
		}
		l.x.log.Info("task failed; retrying", "node", t.name, "task_id", t.id, "attempt", attempt, "pause", pause, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		t.scratch.mu.Lock()
		t.scratch.interrupts = 0
		t.scratch.mu.Unlock()
	}
}

func (t *task) policies(g *Graph) []RetryPolicy {
	if t.call != nil && t.call.fn.retry != nil {
		return t.call.fn.retry
	}
	if t.node != nil && t.node.retry != nil {
		return t.node.retry
	}
	return g.retry
}

// handleCommand applies a Command that a graph within the task returned for the graph of the task. It returns false when
// the Command is for a graph further up.
func (l *loop) handleCommand(ctx context.Context, t *task, pc *parentCommand) (bool, error) {
	if pc.ns == Parent {
		pc.ns = parentNS(t.ns)
		return false, nil
	}
	if pc.ns != t.ns && pc.ns != withoutTaskIDs(t.ns) && pc.ns != t.name {
		return false, nil
	}
	cmd := *pc.cmd
	cmd.Graph = ""
	writes, err := l.writesOf(ctx, t.node, &cmd, nil)
	t.mu.Lock()
	t.writes = append(t.writes, writes...)
	t.mu.Unlock()
	return true, err
}

// attempt runs a task once.
func (l *loop) attempt(ctx context.Context, r *runner, t *task, attempt int) error {
	tc := &taskContext{l: l, r: r, t: t, attempt: attempt}
	ctx = context.WithValue(ctx, taskKey{}, tc)
	return tc.traced(ctx, func(ctx context.Context) error { return l.once(ctx, tc) })
}

// once runs a task within its timeout.
func (l *loop) once(ctx context.Context, tc *taskContext) error {
	t := tc.t
	timeout := t.timeout
	if timeout <= 0 {
		return l.guarded(ctx, tc)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done := make(chan error, 1)
	l.x.begin()
	go func() {
		defer l.x.end()
		done <- l.guarded(ctx, tc)
	}()
	late := func() error {
		return Errorf(nameTimeout, "Node '%s' exceeded its run timeout of %gs", t.name, timeout.Seconds())
	}
	select {
	case err := <-done:
		if err != nil && errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return late()
		}
		return err
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// The run, or the step, was cancelled: the canceller waits for the node.
			return <-done
		}
		tc.closed.Store(true)
		return late()
	}
}

// guarded runs a task, and turns a panic into an error.
func (l *loop) guarded(ctx context.Context, tc *taskContext) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicked{value: r, stack: debug.Stack(), node: tc.t.name}
		}
		if err != nil {
			l.x.messages.flush(tc)
		}
	}()
	t := tc.t
	if t.call != nil {
		out, err := t.call.fn.run(ctx, t.call.input)
		if err == nil {
			err = tc.unreturned()
		}
		if err != nil {
			return err
		}
		v := fromGo(out)
		if err := v.check(); err != nil {
			return Errorf("TypeError", "result of task %s: %w", t.name, err)
		}
		return tc.write(write{writeReturn, v})
	}
	n := t.node
	var out any
	tc.startSpan()
	switch {
	case n.name == START:
		out = t.input
		if c, ok := startCommand(t.input); ok {
			out = c.asCommand()
		}
	case n.sub != nil:
		l.x.messages.begin(tc)
		v, err := l.subgraph(ctx, tc, n.sub, t.input)
		if err != nil {
			return err
		}
		out = v
	default:
		l.x.messages.begin(tc)
		if out, err = n.call(ctx, t.input); err == nil {
			err = tc.unreturned()
		}
		if err != nil {
			return err
		}
	}
	writes, err := l.writesOf(ctx, n, out, nil)
	if werr := tc.write(writes...); werr != nil {
		return werr
	}
	if err != nil {
		return err
	}
	l.x.messages.end(tc, writes)
	tc.endSpan(writes)
	return nil
}

// unreturned returns an error for a node that ended as if it had an answer, although Interrupt returned none.
func (tc *taskContext) unreturned() error {
	if !tc.asked.Load() {
		return nil
	}
	return Errorf("RuntimeError", "node '%s' asked a question, but did not return the error of Interrupt: return it unchanged, so that the run waits for the answer", tc.t.name)
}

// subgraph runs a graph within a task.
func (l *loop) subgraph(ctx context.Context, tc *taskContext, g *Graph, in *value) (*value, error) {
	t := tc.t
	ns := t.ns
	t.scratch.mu.Lock()
	n := t.scratch.subgraphs
	t.scratch.subgraphs++
	t.scratch.mu.Unlock()
	if n > 0 {
		ns += fmt.Sprintf("|%d", n)
	}
	if g.mode == Always {
		ns = withoutIDs(ns)
	}
	sub := &loop{resuming: l.resuming, scope: scope{
		g: g, x: l.x, ctx: ctx, ns: ns, nested: true, keeps: l.x.saver != nil && g.mode != Never, outKeys: g.result,
		above: setField(l.above, l.ns, l.cp.id), before: g.before, after: g.after, limit: cmp.Or(g.steps, l.limit),
		task: t, taskStep: l.step, scratch: t.scratch, under: spanOf(ctx), inherited: l.inherited,
	}}
	if t.node != nil && len(t.node.metadata) > 0 {
		inherited := fieldSet{list: slices.Clone(l.inherited)}
		for _, f := range t.node.metadata {
			inherited.set(f.name, f.v)
		}
		sub.inherited = inherited.list
	}
	if tc.attempt > 1 {
		yes := true
		sub.resuming = &yes
	}
	for _, f := range l.above {
		if f.name == ns {
			sub.addressed, _ = f.v.text()
		}
	}
	if err := sub.run(input{given: !in.isNull(), v: in}); err != nil {
		return nil, err
	}
	if !sub.hadValues {
		return null, nil
	}
	return sub.values(), nil
}

// setField returns a copy of fields with one of them set.
func setField(fields []field, name, text string) []field {
	out := make([]field, 0, len(fields)+1)
	out = append(out, fields...)
	for i := range out {
		if out[i].name == name {
			out[i].v = fromString(text)
			return out
		}
	}
	return append(out, field{name, fromString(text)})
}

// failed is the error of a task in its writes: streams show it as an object, checkpoints hold its repr.
type failed struct{ err error }

func (f failed) appendJSON(b []byte) []byte {
	b = append(b, `{"error":`...)
	b = appendQuoted(b, errorName(f.err))
	b = append(b, `,"message":`...)
	return append(appendQuoted(b, errorText(f.err)), '}')
}

func (f failed) appendPack(b []byte) ([]byte, error) {
	return msgp.AppendString(b, errorRepr(f.err)), nil
}

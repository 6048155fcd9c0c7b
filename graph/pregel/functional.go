package pregel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// taskFunc is a function that a functional graph calls as a task.
type taskFunc struct {
	node
	run func(ctx context.Context, input *value) (any, error)
}

// call is the call of a functional task.
type call struct {
	fn    *taskFunc
	input *value
	done  chan struct{} // closed when it has ended
	err   error
}

// Task is a function whose result is persisted: a run that resumes after an interrupt or a failure does not call it again. It
// corresponds to LangGraph's @task. Call it within an entrypoint, a node or another task.
type Task[I, O any] struct{ fn *taskFunc }

// NewTask returns a task of this name. Options are those of nodes: WithRetry, WithTimeout, WithCachePolicy.
func NewTask[I, O any](name string, fn func(ctx context.Context, input I) (O, error), options ...NodeOption) *Task[I, O] {
	t := &taskFunc{node: node{name: name}}
	for _, option := range options {
		option(&t.node)
	}
	if fn != nil {
		t.run = typedCall(func(ctx context.Context, input I) (any, error) { return fn(ctx, input) })
	}
	return &Task[I, O]{t}
}

// Future is the result of a task that was started.
type Future[O any] struct {
	ctx context.Context //nolint:containedctx // of the caller, as in a function that waits
	t   *task
	r   *runner
	err error
}

type callRequest struct {
	parent *task
	under  uint64 // span of the caller; 0: none
	index  int
	fn     *taskFunc
	input  *value
	want   *task // instead of a call: start this task at once, a caller waits
	reply  chan callReply
}

type callReply struct {
	t   *task
	err error
}

// Start starts the task concurrently. Get waits for its result.
func (t *Task[I, O]) Start(ctx context.Context, input I) *Future[O] {
	tc := taskOf(ctx)
	if tc == nil {
		return &Future[O]{err: fmt.Errorf("task %s: %w", t.fn.name, errOutside)}
	}
	if t.fn.run == nil {
		return &Future[O]{err: fmt.Errorf("task %s has no function", t.fn.name)}
	}
	s := tc.t.scratch
	s.mu.Lock()
	index := s.calls
	s.calls++
	s.mu.Unlock()
	v := fromGo(input)
	if err := v.check(); err != nil {
		return &Future[O]{err: fmt.Errorf("input of task %s: %w", t.fn.name, err)}
	}
	r := tc.r
	if r == nil || tc.closed.Load() {
		return &Future[O]{err: errGivenUp}
	}
	reply, err := r.ask(ctx, &callRequest{parent: tc.t, under: spanOf(ctx), index: index, fn: t.fn, input: v, reply: make(chan callReply, 1)})
	return &Future[O]{ctx: ctx, t: reply.t, r: r, err: errors.Join(err, reply.err)}
}

// Call starts the task and waits for it.
func (t *Task[I, O]) Call(ctx context.Context, input I) (O, error) { return t.Start(ctx, input).Get() }

// Get waits for the result.
func (f *Future[O]) Get() (O, error) {
	var out O
	if f.err != nil {
		return out, f.err
	}
	select {
	case <-f.t.call.done:
	default:
		if _, err := f.r.ask(f.ctx, &callRequest{want: f.t, reply: make(chan callReply, 1)}); err != nil {
			return out, err
		}
		select {
		case <-f.t.call.done:
		case <-f.ctx.Done():
			return out, context.Cause(f.ctx)
		}
	}
	if f.t.call.err != nil {
		return out, f.t.call.err
	}
	for _, w := range f.t.writes {
		if w.channel == writeReturn {
			return out, decodeTo(w.v, &out)
		}
	}
	return out, nil
}

// ask sends a call request to the runner's goroutine and waits for the reply.
func (r *runner) ask(ctx context.Context, c *callRequest) (callReply, error) {
	select {
	case r.events <- runnerEvent{call: c}:
	case <-r.over:
		return callReply{}, errGivenUp
	case <-ctx.Done():
		return callReply{}, context.Cause(ctx)
	}
	select {
	case reply := <-c.reply:
		return reply, nil
	case <-r.over:
		return callReply{}, errGivenUp
	case <-ctx.Done():
		return callReply{}, context.Cause(ctx)
	}
}

// accept prepares a task that another task calls. It starts as soon as a worker is free.
func (r *runner) accept(c *callRequest) {
	if c.want != nil {
		// The caller is blocked until the task ends, so the task may use the caller's worker.
		if i := slices.Index(r.waiting, c.want); i >= 0 {
			r.waiting = slices.Delete(r.waiting, i, i+1)
			r.running = append(r.running, c.want)
			r.l.x.begin()
			go r.work(c.want, false)
		}
		c.reply <- callReply{}
		return
	}
	l := r.l
	t := &task{
		name: c.fn.name, path: taskPath{kind: push, index: c.index, parent: &c.parent.path}, triggers: pushTrigger, timeout: c.fn.timeout,
		input: argsOf(c.input), call: &call{fn: c.fn, input: c.input, done: make(chan struct{})}, parent: c.parent, under: c.under,
	}
	ns := t.name
	if c.parent.ns != "" {
		ns = c.parent.ns + "|" + t.name
	}
	t.id = taskID(l.cp.idBytes, l.cp.v <= 1, ns, strconv.Itoa(l.step), t.name, push, c.parent.path.text(), strconv.Itoa(c.index))
	if known := l.byID[t.id]; known != nil && known.call != nil { // the caller is retried
		c.reply <- callReply{t: known}
		return
	}
	t.ns = ns + ":" + t.id
	t.scratch = l.newScratchpad(t.id, t.ns, l.pending.answers())
	t.scratch.parent = c.parent.scratch
	t.pathText = t.path.text()
	l.showTasks([]*task{t})
	l.tasks = append(l.tasks, t)
	l.byID[t.id] = t
	if !l.replaying {
		l.reapply([]*task{t})
	}
	if len(t.writes) == 0 && l.fromCache(t) {
		if err := l.putWrites(t.id, t.writes, true); err != nil {
			c.reply <- callReply{err: err}
			return
		}
	}
	if len(t.writes) > 0 {
		close(t.call.done)
	} else {
		r.waiting = append(r.waiting, t)
	}
	c.reply <- callReply{t: t}
}

// argsOf shows the input of a task as LangGraph does: positional and keyword arguments.
func argsOf(v *value) *value {
	return fromItems([]*value{fromItems([]*value{v}), fromFields(nil)})
}

// ended notifies the caller of a task.
func (r *runner) ended(t *task, err error) {
	if t.call != nil {
		t.call.err = err
		close(t.call.done)
	}
}

// Final lets an entrypoint return one value and save another one, which the next run reads with Previous.
type Final[O, S any] struct {
	Value O
	Save  S
}

func (f Final[O, S]) split() (value, save any) { return f.Value, f.Save }

// NewEntrypoint returns a graph of one function, which calls tasks: LangGraph's functional API. The function's result is the
// graph's value.
func NewEntrypoint[I, O any](name string, fn func(ctx context.Context, input I) (O, error), options ...CompileOption) (*Graph, error) {
	if name == "" || reserved[name] {
		return nil, fmt.Errorf("an entrypoint cannot be named %q", name)
	}
	if fn == nil {
		return nil, fmt.Errorf("entrypoint %s has no function", name)
	}
	g := &Graph{
		name: name, nodes: map[string]*node{}, chanIndex: map[string]int{}, triggers: map[string][]string{}, functional: true, bareOut: true,
		out: []string{END}, result: []string{END}, inKeys: []string{START},
	}
	for _, option := range options {
		option(g)
	}
	if err := g.limits.check(); err != nil {
		return nil, fmt.Errorf("entrypoint %s: %w", name, err)
	}
	for _, list := range [][]string{g.before, g.after} {
		for _, n := range list {
			if n != "*" && n != name {
				return nil, fmt.Errorf("entrypoint %s: interrupt node `%s` not found", name, n)
			}
		}
	}
	in := &schema{typ: reflect.TypeFor[I]()}
	out := &schema{typ: reflect.TypeFor[O]()}
	if out.typ.Implements(reflect.TypeFor[interface{ split() (value, save any) }]()) {
		out.typ = out.typ.Field(0).Type
	}
	g.state, g.input, g.output = out, in, out
	g.addChannel(START, Ephemeral(), in.typ, "")
	g.addChannel(END, LastValue(), out.typ, "")
	g.chans[1].shown = true
	g.addChannel(chanPrevious, LastValue(), nil, "")
	g.addChannel(chanTasks, Topic(false), nil, "")
	g.tasksChan = g.chanIndex[chanTasks]
	g.attach(&node{
		name: name, bare: START, triggers: []string{START},
		call: typedCall(func(ctx context.Context, input I) (any, error) { return fn(ctx, input) }),
	})
	g.index()
	return g, nil
}

// functionalWrites appends the writes for the result of an entrypoint.
func (g *Graph) functionalWrites(out any, writes []write) ([]write, error) {
	given, kept := out, out
	if f, ok := out.(interface{ split() (value, save any) }); ok {
		given, kept = f.split()
	}
	a := fromGo(given)
	b := a
	if _, split := out.(interface{ split() (value, save any) }); split {
		b = fromGo(kept)
	}
	for _, v := range []*value{a, b} {
		if err := v.check(); err != nil {
			return nil, Errorf("TypeError", "result of %s: %w", g.name, err)
		}
	}
	return append(writes, write{END, a}, write{chanPrevious, b}), nil
}

package pregel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"understudy/graph"
)

// Compiled is a Graph, or a type that embeds one, such as an agent.
type Compiled interface{ compiled() *Graph }

func (g *Graph) compiled() *Graph { return g }

// Result is what a run of a graph in this process returned.
type Result[S any] struct {
	// State has the keys of the graph's output type.
	State S
	// Interrupts are the questions that the run waits for, in the order of the tasks that asked. Answer them with Command.Resume, on the same thread: without WithThread
	// they cannot be answered, which the log of the run says.
	Interrupts []PendingInterrupt
	// Next are the nodes at which the run was stopped, by a question or by InterruptBefore and InterruptAfter; none: it has reached its end. It continues
	// with Invoke on the same thread.
	Next []string
}

// PendingInterrupt is a question that waits for an answer.
type PendingInterrupt struct {
	ID             string
	Value          json.RawMessage
	ResponseSchema json.RawMessage // nil: none was given
}

// Decode decodes the value of the question.
func (p PendingInterrupt) Decode(into any) error { return json.Unmarshal(p.Value, into) }

// PanicError is a panic in a run that was started by Invoke, in the NodeError of its node. Its text is the value in one line; the verb %+v adds the stack, also of
// the NodeError.
type PanicError struct {
	Value any
	Node  string // "": the engine panicked
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string {
	return "panic: " + (&panicked{value: e.Value}).line()
}

// Format implements fmt.Formatter.
func (e *PanicError) Format(s fmt.State, verb rune) {
	if verb == 'v' && s.Flag('+') {
		fmt.Fprintf(s, "%s\n\n%s", e.Error(), e.Stack)
		return
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), e.Error())
}

// NodeError is an error of a node in a run that was started by Invoke, with the node; also of what nodes wrote, of a panic, and of a loop that does not end. When the run was cancelled, or its deadline was exceeded,
// it wraps the cause of the context and names the nodes that were running.
type NodeError struct {
	// Node is the name of the node; in a subgraph with those of the nodes around it: "outer/inner". Several are separated by commas.
	Node string
	Err  error
}

func (e *NodeError) Error() string { return "node " + e.Node + ": " + e.Err.Error() }

// Format implements fmt.Formatter.
func (e *NodeError) Format(s fmt.State, verb rune) {
	var p *PanicError
	if verb == 'v' && s.Flag('+') && errors.As(e.Err, &p) {
		fmt.Fprintf(s, "%s\n\n%s", e.Error(), p.Stack)
		return
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), e.Error())
}

// Unwrap returns the error of the node.
func (e *NodeError) Unwrap() error { return e.Err }

// forCaller returns the error of a run in the form that Invoke promises.
func forCaller(err error) error {
	var at *located
	errors.As(err, &at)
	if p := (*panicked)(nil); errors.As(err, &p) {
		out := &PanicError{Value: p.value, Node: p.node, Stack: p.stack}
		if at != nil {
			out.Node = at.node
		}
		if out.Node == "" {
			return out
		}
		return &NodeError{Node: out.Node, Err: out}
	}
	var merge *unmerged
	switch {
	case at == nil && errors.As(err, &merge) && merge.byNodes():
		return &NodeError{Node: someOf(slices.Clone(merge.by)), Err: withFix(err)}
	case at == nil:
		return withFix(err)
	}
	if bare, ok := err.(*located); ok { //nolint:errorlint // without the wrapper; others hold what a node added to it
		err = bare.err
	}
	return &NodeError{Node: at.node, Err: withFix(err)}
}

// withFix adds what to do to an error, if that is known.
func withFix(err error) error {
	var choice *undeclared
	if errors.As(err, &choice) {
		return &Error{Name: choice.ErrorName(), Text: choice.fix(), Cause: err}
	}
	if fix := fixOf(err); fix != "" {
		return &advised{fix, err}
	}
	return err
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Invoke runs a graph in this process, to its end or to an interrupt, and returns its state as S: the type of the state, Values, or json.RawMessage for a
// JSON object. input is an update as nodes return it, a *Command that resumes, or nil to continue.
//
// Errors of nodes are a *NodeError, which names the node and keeps the chain for errors.Is and errors.As; that of a panic holds a *PanicError. Nothing is masked,
// unlike in what a server's clients see.
//
// Within a node the graph becomes part of the run: it uses the run's thread in a namespace of its own, and an interrupt ends the node.
func Invoke[S any](ctx context.Context, g Compiled, input any, options ...RunOption) (Result[S], error) {
	var r Result[S]
	if g == nil || g.compiled() == nil {
		return r, errors.New("invoke: there is no graph; check the error of Compile")
	}
	if err := g.compiled().returns(reflect.TypeFor[S]()); err != nil {
		return r, err
	}
	state, l, err := g.compiled().invoke(ctx, input, options)
	if err != nil {
		return r, err
	}
	if err := state.into(reflect.ValueOf(&r.State).Elem()); err != nil {
		m := &misread{what: "result of graph " + g.compiled().name, err: err}
		if errors.As(err, &m.key) && l != nil {
			m.by = l.writersOf(m.key.key)
		}
		return r, withFix(m)
	}
	if l == nil || l.stopped == nil {
		return r, nil
	}
	l.warnUnsaved()
	for _, q := range l.stopped.interrupts {
		p := PendingInterrupt{ID: q.id, Value: q.value.JSON()}
		if q.schema != nil {
			p.ResponseSchema = q.schema.JSON()
		}
		r.Interrupts = append(r.Interrupts, p)
	}
	for _, t := range l.tasks {
		if len(t.writes) == 0 {
			r.Next = append(r.Next, t.name)
		}
	}
	return r, nil
}

// returns reports a type of which the graph sets no field: the caller would get its zero value, and no error.
func (g *Graph) returns(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if g.functional || hasMarshaler(t) || t == messageType {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 { // JSON, or what reads it
			return nil
		}
		fallthrough
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		if len(g.result) == 0 {
			return nil
		}
		return fmt.Errorf("result of graph %s: its state is an object with the keys %s, and %s is none; name the type of the state: Invoke[State]", g.name, someOf(slices.Clone(g.result)), t)
	default:
		return nil
	}
	fields := fieldsOf(t)
	for _, f := range fields {
		if slices.Contains(g.result, f.name) {
			return nil
		}
	}
	if len(fields) == 0 || len(g.result) == 0 {
		return nil
	}
	return fmt.Errorf("result of graph %s: no field of %s has the name of a key in its json tag: the keys are %s", g.name, t, someOf(slices.Clone(g.result)))
}

// invoke returns the state of a finished or stopped run, and its loop; no loop for a run within a node.
func (g *Graph) invoke(ctx context.Context, input any, options []RunOption) (*value, *loop, error) {
	if tc := taskOf(ctx); tc != nil && len(options) == 0 {
		v := inputOf(input)
		if err := v.check(); err != nil {
			return nil, nil, Errorf("TypeError", "input of graph %s: %w", g.name, err)
		}
		out, err := tc.l.subgraph(ctx, tc, g, v)
		return out, nil, err
	}
	inv, err := g.invocation(options)
	if err != nil {
		return nil, nil, err
	}
	if modesOf(inv.Modes, inv.Subgraphs) != (modes{}) {
		return nil, nil, fmt.Errorf("graph %s: WithModes and WithSubgraphs are for Stream: Invoke shows no events", g.name)
	}
	l, in, err := g.prepare(ctx, input, inv)
	if err != nil {
		return nil, nil, err
	}
	l.outKeys = g.result
	if err := l.x.drain(l.guardedRun(in)); err != nil {
		return nil, nil, forCaller(err)
	}
	return l.values(), l, nil
}

// warnUnsaved reports questions that cannot be answered.
func (l *loop) warnUnsaved() {
	if l.stopped != nil && len(l.stopped.interrupts) > 0 && l.x.saver == nil {
		l.x.log.Warn("the run waits for an answer, but was not saved: nothing can resume it", "graph", l.g.name,
			"fix", "pass WithThread, with a thread and a saver such as checkpointer.NewMemory()")
	}
}

// invocation returns what the options of a run in this process say.
func (g *Graph) invocation(options []RunOption) (*graph.Invocation, error) {
	inv := &graph.Invocation{}
	for _, option := range options {
		if err := option(inv); err != nil {
			return nil, fmt.Errorf("graph %s: %w", g.name, err)
		}
	}
	if err := checkOptions(inv); err != nil {
		return nil, fmt.Errorf("graph %s: %w", g.name, err)
	}
	return inv, nil
}

// prepare returns the loop of a run in this process, and its input.
func (g *Graph) prepare(ctx context.Context, given any, inv *graph.Invocation) (_ *loop, _ input, err error) {
	l, in, err := g.begin(ctx, inv)
	if err != nil {
		return nil, input{}, err
	}
	defer func() {
		if err != nil {
			l.x.cancel(err)
		}
	}()
	if cmd, ok := asCommand(given); ok {
		in, err = g.commandOf(cmd)
		return l, in, err
	}
	if v := inputOf(given); !v.isNull() {
		if err := v.check(); err != nil {
			return nil, input{}, Errorf("TypeError", "input of graph %s: %w", g.name, err)
		}
		in.given, in.v = true, v
	}
	return l, in, nil
}

// Stream runs a graph in this process as Invoke does, and yields its events while it runs: those of WithModes, in the form in which a server sends them. The run
// ends, cancelled, when the caller breaks out of the loop. The last pair has the error of the run, as Invoke returns it, if it failed, or the cause
// of ctx if that ended before all events were yielded; a question that the run waits for is
// an event `updates` with the key __interrupt__.
//
// Within a node it is a run of its own.
func Stream(ctx context.Context, g Compiled, input any, options ...RunOption) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		if err := yieldEvents(ctx, g, input, options, yield); err != nil && !errors.Is(err, errStopped) {
			yield(graph.Event{}, err)
		}
	}
}

func yieldEvents(ctx context.Context, g Compiled, input any, options []RunOption, yield func(graph.Event, error) bool) error {
	if g == nil || g.compiled() == nil {
		return errors.New("stream: there is no graph; check the error of Compile")
	}
	inv, err := g.compiled().invocation(append([]RunOption{WithModes("values")}, options...))
	if err != nil {
		return err
	}
	l, in, err := g.compiled().prepare(ctx, input, inv)
	if err != nil {
		return err
	}
	return l.show(ctx, in, func(err error) error {
		if err = l.x.flush(err); err != nil {
			return forCaller(err)
		}
		l.warnUnsaved()
		return nil
	}, yield)
}

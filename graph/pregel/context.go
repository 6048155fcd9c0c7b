package pregel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"understudy/graph"
	"understudy/id"
)

type taskKey struct{}

// taskContext holds what the functions of this package read from a node's context.
type taskContext struct {
	l       *loop
	r       *runner
	t       *task
	attempt int
	closed  atomic.Bool // the task was abandoned: its further output is ignored
	asked   atomic.Bool // Interrupt returned an ErrInterrupted
}

func taskOf(ctx context.Context) *taskContext {
	tc, _ := ctx.Value(taskKey{}).(*taskContext)
	return tc
}

var errGivenUp = errors.New("task abandoned")

func (tc *taskContext) write(writes ...write) error {
	if tc.closed.Load() {
		return errGivenUp
	}
	tc.t.mu.Lock()
	defer tc.t.mu.Unlock()
	tc.t.writes = append(tc.t.writes, writes...)
	return nil
}

var errOutside = errors.New("not within a node of a running graph")

// InterruptOption is an option of Interrupt.
type InterruptOption func(*interrupt)

// ResponseSchema sends clients the JSON Schema of the answer. Answers are not validated against it.
func ResponseSchema(schema json.RawMessage) InterruptOption {
	return func(i *interrupt) { i.schema = fromGo(schema) }
}

// Interrupt stops the run and asks the client for an answer to question, any value. The run that resumes it runs the node again from its start, and
// then Interrupt returns the answer, decoded as T. Several calls in a node receive their answers in order. The first time, the error is
// an ErrInterrupted: return it unchanged.
func Interrupt[T any](ctx context.Context, question any, options ...InterruptOption) (T, error) {
	var answer T
	tc := taskOf(ctx)
	if tc == nil {
		return answer, fmt.Errorf("interrupt: %w", errOutside)
	}
	v, err := tc.interrupt(question, options, func(v *value) bool {
		var fits T
		return decodeTo(v, &fits) == nil
	})
	if err != nil {
		return answer, err
	}
	if err := decodeTo(v, &answer); err != nil {
		return answer, Errorf("TypeError", "the answer to an interrupt: %w; resume the run with an answer that fits", err)
	}
	return answer, nil
}

// interrupt returns the answer to a question. A stored answer that does not fit failed the run: a later one replaces it, else the thread could not continue.
func (tc *taskContext) interrupt(x any, options []InterruptOption, fits func(*value) bool) (*value, error) {
	s := tc.t.scratch
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.interrupts
	s.interrupts++
	if at < len(s.resume) && !fits(s.resume[at]) {
		later := slices.Clone(s.resume[at+1:])
		if s.again != nil && s.againAt == at {
			later = append([]*value{s.again}, later...)
		} else if v := s.takeNullResume(); v != nil {
			later = append(later, v)
		}
		if len(later) > 0 {
			s.resume = append(s.resume[:at:at], later...)
		}
	}
	if at < len(s.resume) {
		return s.resume[at], tc.write(write{writeResume, fromItems(s.resume[: at+1 : at+1])})
	}
	if v := s.takeNullResume(); v != nil {
		s.resume = append(s.resume[:len(s.resume):len(s.resume)], v)
		return v, tc.write(write{writeResume, fromItems(s.resume)})
	}
	q := interrupt{value: fromGo(x), id: interruptID(tc.t.ns, len(s.resume))}
	for _, option := range options {
		option(&q)
	}
	if err := q.value.check(); err != nil {
		return nil, Errorf("TypeError", "the value of an interrupt: %w", err)
	}
	tc.asked.Store(true)
	return nil, &GraphInterrupt{[]interrupt{q}}
}

// Emit sends data to subscribers of the custom stream mode, as LangGraph's stream writer does. Outside of a run it is a
// no-op.
func Emit(ctx context.Context, data any) error {
	tc := taskOf(ctx)
	if tc == nil {
		return nil
	}
	v := fromGo(data)
	if err := v.check(); err != nil {
		return fmt.Errorf("emit: %w", err)
	}
	l := tc.l
	if tc.closed.Load() || l.x.out == nil {
		return nil
	}
	ns := tc.graphNS()
	if l.x.saves != nil && ns == "" {
		if words := graph.SummaryWords(v.JSON()); words != "" {
			l.x.saves.hear(words)
		}
	}
	if l.x.modes.custom && (ns == "" || l.x.modes.subgraphs) {
		l.x.out.push(ctx, graph.Event{Name: "custom", NS: ns, Data: v.JSON()})
	}
	return nil
}

// WantsTools reports whether the run subscribed to calls of tools: the stream mode tools.
func WantsTools(ctx context.Context) bool {
	tc := taskOf(ctx)
	return tc != nil && tc.l.x.out != nil && tc.l.x.modes.tools && (tc.l.x.modes.subgraphs || tc.graphNS() == "")
}

// EmitTool sends an event of a call of a tool, as LangGraph's stream mode tools has it, to a run that WantsTools.
func EmitTool(ctx context.Context, event json.RawMessage) {
	if tc := taskOf(ctx); WantsTools(ctx) && !tc.closed.Load() {
		tc.l.x.out.push(ctx, graph.Event{Name: "tools", NS: tc.graphNS(), Data: event})
	}
}

// graphNS is the namespace of the graph that the task belongs to, for its custom events.
func (tc *taskContext) graphNS() string {
	ns, _, ok := cutLast(tc.t.ns, "|")
	if !ok {
		return ""
	}
	return ns
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// StoreOf returns the long-term memory; nil outside of a run, and when there is none.
func StoreOf(ctx context.Context) graph.Store {
	if tc := taskOf(ctx); tc != nil {
		return tc.l.x.store
	}
	return nil
}

// LogOf returns the log of the run, with the node as an attribute; on a server also with the IDs of run and thread. Outside of a run it is slog.Default.
func LogOf(ctx context.Context) *slog.Logger {
	if tc := taskOf(ctx); tc != nil {
		return tc.l.x.log.With("node", tc.t.place())
	}
	return slog.Default()
}

// RunInfo says where a node runs.
type RunInfo struct {
	Thread   id.Thread
	Run      id.Run
	Node     string
	TaskID   string
	NS       string // checkpoint namespace of the task
	Step     int
	Attempt  int             // of the task, counted from 1
	Config   json.RawMessage // the run's configuration: tags, metadata, recursion_limit, configurable
	Context  json.RawMessage // nil: none
	Metadata json.RawMessage // of the run and the task, as messages show it
	// Messages reports whether anyone subscribed to the tokens of models.
	Messages bool
}

// Info returns where a node runs. ok is false outside of a run.
func Info(ctx context.Context) (info RunInfo, ok bool) {
	tc := taskOf(ctx)
	if tc == nil {
		return info, false
	}
	x := tc.l.x
	return RunInfo{
		Thread: x.thread, Run: x.run, Node: tc.t.name, TaskID: tc.t.id, NS: tc.t.ns, Step: tc.l.step, Attempt: tc.attempt, Config: x.config,
		Context: x.context, Metadata: tc.metadata(), Messages: x.modes.anyMessages(),
	}, true
}

// Previous returns the value that the entrypoint returned or saved in the previous run on the same thread. ok is false when there
// was none.
func Previous[T any](ctx context.Context) (v T, ok bool, err error) {
	tc := taskOf(ctx)
	if tc == nil {
		return v, false, errOutside
	}
	i, has := tc.l.g.chanIndex[chanPrevious]
	if !has {
		return v, false, nil
	}
	held := tc.l.chans[i].get()
	if held == nil {
		return v, false, nil
	}
	return v, true, decodeTo(held, &v)
}

// ContextOf reads the run's context, such as a user or a tenant. A missing field gets the default of its jsonschema tag, else its zero value.
func ContextOf[T any](ctx context.Context) (T, error) {
	var v T
	tc := taskOf(ctx)
	if tc == nil {
		return v, errOutside
	}
	if rv := reflect.ValueOf(&v).Elem(); rv.Kind() == reflect.Struct {
		for i := range rv.NumField() {
			if d, ok := defaultOf(rv.Type().Field(i)); ok && rv.Field(i).CanSet() {
				rv.Field(i).Set(d)
			}
		}
	}
	if c := tc.l.x.context; len(c) == 0 || string(c) == "null" {
		return v, nil
	}
	if err := fromJSON(tc.l.x.context).into(reflect.ValueOf(&v).Elem()); err != nil {
		return v, fmt.Errorf("read the context: %w", err)
	}
	return v, nil
}

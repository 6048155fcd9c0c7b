package python

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
)

// Messages are msgpack arrays that begin with their kind. A frame to the worker holds one, a frame from it one or more.
//
// From the worker:
//
//	[hello, langgraph, python, [[graph, error type, text, detail], …], [[graph, what it was compiled with and the server replaces], …],
//	 [[graph, [[node, file, function, its first line], …]], …]]
//	[event, call, name, namespace, json, checkpoint to wait for | nil]   checkpoint "": the puts that were announced before
//	[done, call, status, payload, error type, text, detail]
//	[ask, call, number, op, …]                                           see ask.go
//	[log, level, source, text, run, thread]
//	[pong, number]
//	[loading, graph]                                                     before the greeting: a graph is imported now; "": all have been
//	[loaded, graph, error type, text, detail]                            it was imported, or was not: an error type
//	[called, call, id, message, node, nested, source, tags, model, [input, output, total] | nil, µs]   a model call ended
//	[begin, call, id, parent, kind, name, namespace, node, step, provider, µs, content | nil]   a span began; content: [json, cut]
//	[end, call, id, µs, µs of the first token, status, error type, text, detail, model, message, [input, output, total, cached] | nil, content | nil]
//
// An empty frame comes first: the worker's code runs, and imports langgraph next.
//
// To the worker: first one frame with its modules in JSON (see embed.go and internal/child/boot.py), then
//
//	[run, call, {…}]   [cancel, call]   [answer, number, ok, value | text]
//	[ping, number]     [call, call, op, {…}]   [pause, call, on]   [refused, call, text]
//
// The numbers are those of wire.py.
const (
	fromHello   = 1
	fromEvent   = 2
	fromDone    = 3
	fromAsk     = 4
	fromLog     = 5
	fromPong    = 6
	fromLoading = 7
	fromCalled  = 8
	fromLoaded  = 9
	fromNode    = 10
	fromBegin   = 11
	fromEnd     = 12

	toRun    = 1
	toCancel = 2
	toAnswer = 3
	toPing   = 4
	toCall   = 5
	toPause  = 6
	toRefuse = 7
	toGo     = 8
)

// Status of a done message.
const (
	doneOK        = 0
	doneFailed    = 1
	doneCancelled = 2
	doneInvalid   = 3
	doneRefused   = 4 // an ask failed in this server; the payload is its number, 0: a save without an answer
)

type hello struct {
	langgraph, python string
	problems          map[string]*graph.Failure
	unused            map[string]string     // by graph: the checkpointer and store that it was compiled with, which the server replaces by its own
	nodes             map[string][]nodeCode // by graph
}

// nodeCode is where the function of a node is.
type nodeCode struct {
	node, file, function string
	line                 int // the first
}

type event struct {
	call     uint64
	name, ns string
	data     []byte
	holds    bool
	hold     id.Checkpoint
}

type done struct {
	call                  uint64
	status                int
	payload               []byte // raw msgpack
	errType, text, detail string
}

type ask struct {
	call, number uint64
	op           string
	args         []byte // raw msgpack: what follows op
}

type logLine struct {
	level                     int
	source, text, run, thread string
}

// receiver receives the messages of a frame in order.
type receiver interface {
	hello(hello)
	event(event)
	done(done)
	ask(ask)
	log(logLine)
	pong(uint64)
	loading(graph string)
	loaded(name string, why *graph.Failure)
	called(call uint64, c graph.ModelCall)
	node(call uint64, name string, began bool)
	begin(call uint64, s graph.SpanBegin)
	end(call uint64, s graph.SpanEnd)
}

var errBadMessage = errors.New("malformed message from a worker")

// decode passes the messages of a frame to r. Byte slices in them alias body.
func decode(body []byte, r receiver) error {
	for len(body) > 0 {
		d := decoder{b: body}
		n := d.array()
		kind := d.int()
		switch {
		case d.err != nil:
		case kind == fromEvent && n == 6:
			m := event{call: d.uint(), name: d.str(), ns: d.str(), data: d.bytes()}
			if !d.null() {
				m.holds, m.hold = true, id.Checkpoint(d.str())
			}
			if d.err == nil {
				r.event(m)
			}
		case kind == fromDone && n == 7:
			m := done{call: d.uint(), status: d.int(), payload: d.raw(), errType: d.str(), text: d.str(), detail: d.str()}
			if d.err == nil {
				r.done(m)
			}
		case kind == fromAsk && n >= 4:
			m := ask{call: d.uint(), number: d.uint(), op: d.str()}
			from := d.b
			for range n - 4 {
				d.skip()
			}
			if d.err == nil {
				m.args = from[:len(from)-len(d.b)]
				r.ask(m)
			}
		case kind == fromLog && n == 6:
			m := logLine{level: d.int(), source: d.str(), text: d.str(), run: d.str(), thread: d.str()}
			if d.err == nil {
				r.log(m)
			}
		case kind == fromPong && n == 2:
			if number := d.uint(); d.err == nil {
				r.pong(number)
			}
		case kind == fromLoading && n == 2:
			if name := d.str(); d.err == nil {
				r.loading(name)
			}
		case kind == fromLoaded && n == 5:
			name, why := d.str(), &graph.Failure{Type: d.str(), Message: d.str(), Detail: d.str()}
			if why.Type == "" {
				why = nil
			}
			if d.err == nil {
				r.loaded(name, why)
			}
		case kind == fromCalled && n == 11:
			call, m := d.uint(), d.modelCall()
			if d.err == nil {
				r.called(call, m)
			}
		case kind == fromNode && n == 4:
			call, name, began := d.uint(), d.str(), d.bool()
			if d.err == nil {
				r.node(call, name, began)
			}
		case kind == fromBegin && n == 12:
			call, s := d.uint(), d.spanBegin()
			if d.err == nil {
				r.begin(call, s)
			}
		case kind == fromEnd && n == 13:
			call, s := d.uint(), d.spanEnd()
			if d.err == nil {
				r.end(call, s)
			}
		case kind == fromHello && n == 6:
			m, err := d.hello()
			if err != nil {
				return err
			}
			if d.err == nil {
				r.hello(m)
			}
		default:
			return fmt.Errorf("%w: kind %d with %d fields", errBadMessage, kind, n)
		}
		if d.err != nil {
			return fmt.Errorf("%w: %w", errBadMessage, d.err)
		}
		body = d.b
	}
	return nil
}

// decoder reads msgpack values one after the other and keeps the first error.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) array() int {
	if d.err != nil {
		return 0
	}
	var n uint32
	n, d.b, d.err = msgp.ReadArrayHeaderBytes(d.b)
	if int64(n) > int64(len(d.b)) { // each element takes a byte at least
		d.err = errBadMessage
		return 0
	}
	return int(n)
}

func (d *decoder) int() (v int) {
	if d.err == nil {
		v, d.b, d.err = msgp.ReadIntBytes(d.b)
	}
	return v
}

func (d *decoder) uint() (v uint64) {
	if d.err == nil {
		v, d.b, d.err = msgp.ReadUint64Bytes(d.b)
	}
	return v
}

func (d *decoder) float() (v float64) {
	if d.err == nil {
		v, d.b, d.err = msgp.ReadFloat64Bytes(d.b)
	}
	return v
}

func (d *decoder) bool() (v bool) {
	if d.err == nil {
		v, d.b, d.err = msgp.ReadBoolBytes(d.b)
	}
	return v
}

func (d *decoder) boolOrNull() *bool {
	if d.null() {
		return nil
	}
	v := d.bool()
	return &v
}

func (d *decoder) str() (v string) {
	if d.err == nil {
		v, d.b, d.err = msgp.ReadStringBytes(d.b)
	}
	return v
}

func (d *decoder) strs() []string {
	n := d.array()
	out := make([]string, 0, n)
	for range n {
		out = append(out, d.str())
	}
	return out
}

// bytes reads a binary value without copying; nil for nil.
func (d *decoder) bytes() (v []byte) {
	if d.err == nil && !d.null() {
		v, d.b, d.err = msgp.ReadBytesZC(d.b)
		v = v[:len(v):len(v)]
	}
	return v
}

// null reads a nil if there is one.
func (d *decoder) null() bool {
	if d.err == nil && msgp.IsNil(d.b) {
		d.b, d.err = msgp.ReadNilBytes(d.b)
		return true
	}
	return false
}

// raw skips a value and returns its encoding.
func (d *decoder) raw() []byte {
	from := d.b
	d.skip()
	if d.err != nil {
		return nil
	}
	return from[:len(from)-len(d.b)]
}

func (d *decoder) skip() {
	if d.err == nil {
		d.b, d.err = msgp.Skip(d.b)
	}
}

func appendJSON(b []byte, v json.RawMessage) []byte {
	if v == nil {
		return msgp.AppendNil(b)
	}
	return msgp.AppendBytes(b, v)
}

// appendRun appends the message that starts a run. head, when not nil, is its start checkpoint in the form of an answer to load: it
// saves most runs that request.
func appendRun(b []byte, call uint64, name string, inv *graph.Invocation, head []byte) []byte {
	b = msgp.AppendArrayHeader(b, 3)
	b = msgp.AppendInt(b, toRun)
	b = msgp.AppendUint64(b, call)
	b = msgp.AppendMapHeader(b, commonPairs+15)
	b = appendCommon(b, name, inv.Config, inv.At)
	b = msgp.AppendString(b, "run")
	b = msgp.AppendString(b, string(inv.Run))
	b = msgp.AppendString(b, "head")
	if head == nil {
		b = msgp.AppendNil(b)
	} else {
		b = append(msgp.AppendArrayHeader(b, 1), head...)
	}
	b = appendField(b, "context", inv.Context)
	b = appendField(b, "input", inv.Input)
	b = appendField(b, "command", inv.Command)
	b = appendField(b, "interrupt_before", inv.InterruptBefore)
	b = appendField(b, "interrupt_after", inv.InterruptAfter)
	b = msgp.AppendString(b, "modes")
	b = msgp.AppendArrayHeader(b, uint32(len(inv.Modes)))
	for _, m := range inv.Modes {
		b = msgp.AppendString(b, m)
	}
	b = msgp.AppendString(b, "subgraphs")
	b = msgp.AppendBool(b, inv.Subgraphs)
	b = msgp.AppendString(b, "durability")
	b = msgp.AppendString(b, inv.Durability)
	b = msgp.AppendString(b, "saves")
	b = msgp.AppendBool(b, inv.Saver != nil && !inv.Temporary)
	b = msgp.AppendString(b, "calls")
	b = msgp.AppendBool(b, inv.Called != nil)
	b = msgp.AppendString(b, "steps")
	b = msgp.AppendBool(b, inv.Isolated) // its worker has died before: the next death should name the node
	b = msgp.AppendString(b, "spans")
	if inv.Tracing == nil {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendInt(b, inv.Tracing.Content)
	}
	b = msgp.AppendString(b, "attempt")
	return msgp.AppendInt(b, inv.Attempt)
}

// modelCall reads what follows the call's number in a message `called`.
func (d *decoder) modelCall() graph.ModelCall {
	m := graph.ModelCall{ID: d.str(), Message: d.str()}
	node, nested, source, tags := d.str(), d.bool(), d.str(), d.strs()
	m.Caller = graph.CallerOf(node, nested, source, tags...)
	m.Model = d.str()
	if !d.null() {
		if d.array() != 3 {
			d.err = errBadMessage
			return m
		}
		m.Usage = &graph.Usage{Input: int64(d.int()), Output: int64(d.int()), Total: int64(d.int())}
	}
	m.Took = time.Duration(d.int()) * time.Microsecond
	return m
}

// commonPairs is how many pairs of a map appendCommon appends.
const commonPairs = 10

// appendCommon appends what all requests have.
func appendCommon(b []byte, name string, cfg graph.Config, at checkpointer.Key) []byte {
	b = msgp.AppendString(b, "graph")
	b = msgp.AppendString(b, name)
	b = msgp.AppendString(b, "thread")
	b = msgp.AppendString(b, string(cfg.Thread))
	b = appendField(b, "config", cfg.Config)
	b = msgp.AppendString(b, "ns")
	b = msgp.AppendString(b, at.NS)
	b = msgp.AppendString(b, "checkpoint")
	b = msgp.AppendString(b, string(at.ID))
	b = appendField(b, "factory", cfg.Factory)
	b = appendField(b, "map", cfg.CheckpointMap)
	b = msgp.AppendString(b, "url")
	b = msgp.AppendString(b, cfg.URL)
	b = msgp.AppendString(b, "inside")
	inside := ""
	if cfg.Inside != nil {
		inside = cfg.Inside()
	}
	b = msgp.AppendString(b, inside)
	b = msgp.AppendString(b, "after")
	return msgp.AppendString(b, string(cfg.After))
}

func appendField(b []byte, key string, v json.RawMessage) []byte {
	return appendJSON(msgp.AppendString(b, key), v)
}

// hello reads a greeting.
func (d *decoder) hello() (hello, error) {
	m := hello{langgraph: d.str(), python: d.str(), problems: map[string]*graph.Failure{}, unused: map[string]string{}, nodes: map[string][]nodeCode{}}
	for range d.array() {
		if d.array() != 4 {
			return m, errBadMessage
		}
		name := d.str()
		m.problems[name] = &graph.Failure{Type: d.str(), Message: d.str(), Detail: d.str()}
		if d.err != nil {
			return m, nil
		}
	}
	for range d.array() {
		if d.array() != 2 {
			return m, errBadMessage
		}
		name := d.str()
		m.unused[name] = d.str()
		if d.err != nil {
			return m, nil
		}
	}
	for range d.array() {
		if d.array() != 2 {
			return m, errBadMessage
		}
		name := d.str()
		for range d.array() {
			if d.array() != 4 {
				return m, errBadMessage
			}
			m.nodes[name] = append(m.nodes[name], nodeCode{node: d.str(), file: d.str(), function: d.str(), line: d.int()})
			if d.err != nil {
				return m, nil
			}
		}
	}
	return m, nil
}

package pregel

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/message"
)

// noStream is the tag of models whose tokens are not streamed.
const noStream = "nostream"

// messageStream emits the messages of a run in the stream modes messages and messages-tuple: tokens of models as they come, and
// complete messages that nodes return, each once. It corresponds to LangGraph's StreamMessagesHandler.
type messageStream struct {
	mu       sync.Mutex
	seen     map[string]bool
	known    map[string]bool // whose metadata was shown
	partials map[string]*partial
	held     map[*partial]bool // chunks have come that no event has shown
}

func newMessageStream() *messageStream {
	return &messageStream{seen: map[string]bool{}, known: map[string]bool{}, partials: map[string]*partial{}, held: map[*partial]bool{}}
}

// showsMessages reports whether messages of the task are streamed.
func (tc *taskContext) showsMessages() bool {
	x := tc.l.x
	return x.out != nil && x.messages != nil && x.modes.anyMessages() && (x.modes.subgraphs || tc.messageNS() == "")
}

// messageNS is the namespace of the graph that the task runs in, without calls of functional tasks.
func (tc *taskContext) messageNS() string {
	ns := tc.t.ns
	for t := tc.t; t != nil; t = t.parent {
		ns, _, _ = cutLast(ns, "|")
		if t.parent == nil && t == tc.t && ns == tc.t.ns {
			return ""
		}
	}
	if ns == tc.t.ns || tc.l.ns == "" {
		return tc.l.ns
	}
	return ns
}

// begin notes the messages in the task's input: they are not new.
func (m *messageStream) begin(tc *taskContext) {
	if m == nil || !tc.showsMessages() || tc.t.hidden() {
		return
	}
	fields, ok := tc.t.input.object()
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range fields {
		eachMessage(f.v, func(v *value, id string) {
			if id != "" {
				m.seen[id] = true
			}
		})
	}
}

// eachMessage calls fn for a message, or for each message of a list.
func eachMessage(v *value, fn func(v *value, id string)) {
	if id, _, ok := v.messageID(); ok {
		fn(v, id)
		return
	}
	if v.kind != ofList && v.kind != ofPack {
		return
	}
	items, _ := v.list()
	for _, item := range items {
		if id, _, ok := item.messageID(); ok {
			fn(item, id)
		}
	}
}

// end shows the messages that the task returned.
func (m *messageStream) end(tc *taskContext, writes []write) {
	if m == nil || !tc.showsMessages() || tc.t.hidden() {
		return
	}
	m.flush(tc)
	for _, w := range writes {
		if i, ok := tc.l.g.chanIndex[w.channel]; !ok || !tc.l.g.chans[i].shown {
			continue
		}
		eachMessage(w.v, func(v *value, _ string) {
			if msg, ok := v.message(); ok {
				m.emit(tc, tc.metadata(), msg, true)
			}
		})
	}
}

// emit emits a message or a chunk of one. With once, it skips a message whose id was emitted before.
func (m *messageStream) emit(tc *taskContext, metadata []byte, msg message.Message, once bool) message.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	if once && m.seen[msg.ID] && msg.ID != "" {
		return msg
	}
	if msg.ID == "" {
		msg.ID = uuid.NewString()
	}
	m.seen[msg.ID] = true
	x, ns := tc.l.x, tc.messageNS()
	if x.modes.tuples {
		b := append(make([]byte, 0, 256+len(metadata)), '[')
		b = msg.AppendJSON(b)
		b = append(append(b, ','), metadata...)
		x.out.push(x.ctx, graph.Event{Name: "messages", NS: ns, Data: append(b, ']')})
		return msg
	}
	if !m.known[msg.ID] {
		m.known[msg.ID] = true
		b := append(appendQuoted([]byte{'{'}, msg.ID), `:{"metadata":`...)
		x.out.push(x.ctx, graph.Event{Name: "messages/metadata", Data: append(append(b, metadata...), "}}"...)})
	}
	if !msg.IsChunk() {
		if p := m.partials[msg.ID]; p != nil { // the whole message replaces it
			m.release(p)
			delete(m.partials, msg.ID)
		}
		b := append(msg.AppendJSON([]byte{'['}), ']')
		x.out.push(x.ctx, graph.Event{Name: "messages/complete", Data: b})
		return msg
	}
	m.chunk(tc, msg)
	return msg
}

// metadata returns the metadata of the task's messages.
func (tc *taskContext) metadata() []byte {
	t := tc.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.meta == nil {
		t.meta = tc.l.messageMetadata(t)
	}
	return t.meta
}

func (l *loop) messageMetadata(t *task) []byte {
	fields := fieldSet{list: slices.Clone(l.x.metadata)}
	add := fields.setRaw
	for _, f := range t.fields(l.step) {
		add(f.name, f.v.JSON())
	}
	if l.nested {
		add("checkpoint_ns", appendQuoted(nil, outermost(l.ns)))
	}
	add("ls_integration", []byte(`"langgraph"`)) // unless the node sets it, as nodes of agents do
	for _, f := range l.inherited {
		add(f.name, f.v.JSON())
	}
	if t.node != nil {
		for _, f := range t.node.metadata {
			add(f.name, f.v.JSON())
		}
	}
	if tags := l.x.tags; len(tags) > 0 {
		add("tags", fromGo(tags).JSON())
	}
	return appendFields(nil, fields.list)
}

// fields returns the metadata of a task in a step.
func (t *task) fields(step int) []field {
	return []field{
		{"langgraph_step", fromJSON(strconv.AppendInt(nil, int64(step), 10))},
		{"langgraph_node", fromString(t.name)},
		{"langgraph_triggers", fromJSON(t.shownTriggers(nil))},
		{"langgraph_path", fromJSON(t.path.appendJSON(nil))},
		{"langgraph_checkpoint_ns", fromString(t.ns)},
	}
}

// excludedMetadata lists metadata that `tasks` does not repeat.
var excludedMetadata = []string{
	"thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "langgraph_step", "langgraph_node", "langgraph_triggers", "langgraph_path",
	"langgraph_checkpoint_ns",
}

// taskMetadata returns the metadata of a task in `tasks` events.
func (l *loop) taskMetadata(t *task) []byte {
	var fields fieldSet
	for _, f := range l.x.metadata {
		if !slices.Contains(excludedMetadata, f.name) {
			fields.list = append(fields.list, f)
		}
	}
	for _, f := range l.inherited {
		fields.setRaw(f.name, f.v.JSON())
	}
	if t.node != nil {
		for _, f := range t.node.metadata {
			fields.setRaw(f.name, f.v.JSON())
		}
	}
	if tags := l.x.tags; len(tags) > 0 {
		fields.setRaw("tags", fromGo(tags).JSON())
	}
	return appendFields(nil, fields.list)
}

// ModelInfo describes a model to subscribers of its tokens.
type ModelInfo struct {
	// Metadata is added to the metadata of the messages: an object with ls_provider, ls_model_name and so on.
	Metadata json.RawMessage
	// Tags of the call. With "nostream" its tokens are not streamed.
	Tags []string
	// Input returns the messages of the call in JSON. It is called only for traces with content; nil: they show none.
	Input func() []json.RawMessage
}

// ModelCall is one call of a chat model within a node. Its methods are for one goroutine.
type ModelCall struct {
	tc       *taskContext
	info     ModelInfo
	id       string
	metadata []byte
	began    time.Time
	span     *span
	traced   graph.SpanEnd // its ID is 0 without a span, or after its end
	wanted   bool
	shown    bool
	streamed bool
}

// StartModel announces a call of a model. Outside of a run it emits nothing, but still assigns ids.
func StartModel(ctx context.Context, info ModelInfo) *ModelCall {
	id, err := uuid.NewV7()
	if err != nil {
		id = uuid.New()
	}
	c := &ModelCall{tc: taskOf(ctx), info: info, id: "lc_run--" + id.String(), began: time.Now()}
	// As in LangChain, a model streams as soon as the run subscribes to messages, even if its own tokens are not emitted.
	c.wanted = c.tc != nil && c.tc.l.x.out != nil && (c.tc.l.x.modes.anyMessages() || c.tc.l.x.modes.events) && !slices.Contains(info.Tags, noStream)
	defer c.startSpan(info)
	c.traceModel(ctx)
	if c.tc == nil || !c.tc.showsMessages() || slices.Contains(info.Tags, noStream) {
		return c
	}
	c.shown = true
	had, _ := fromJSON(c.tc.metadata()).object()
	fields := fieldSet{list: had}
	// In LangGraph it is inherited from the outermost task.
	fields.setRaw("checkpoint_ns", appendQuoted(nil, outermost(c.tc.t.ns)))
	if len(info.Metadata) > 0 || len(info.Tags) > 0 {
		gjson.ParseBytes(info.Metadata).ForEach(func(k, v gjson.Result) bool {
			fields.setRaw(k.String(), compact([]byte(v.Raw)))
			return true
		})
		if len(info.Tags) > 0 {
			fields.setRaw("tags", fromGo(info.Tags).JSON())
		}
	}
	c.metadata = appendFields(nil, fields.list)
	return c
}

// ID returns the id of the message and its chunks, used when the provider sends none.
func (c *ModelCall) ID() string { return c.id }

// Wanted reports whether the run subscribed to tokens: a model that can stream should do so.
func (c *ModelCall) Wanted() bool { return c.wanted }

// Chunk emits a part of the message.
func (c *ModelCall) Chunk(chunk message.Message) {
	if chunk.ID == "" {
		chunk.ID = c.id
	}
	c.streamed = true
	c.Token()
	c.emit("on_chat_model_stream", "chunk", chunk)
	if c.shown && !c.tc.closed.Load() {
		c.tc.l.x.messages.emit(c.tc, c.metadata, chunk, false)
	}
}

// End sets the id of the complete message, and emits it unless its chunks were emitted. It returns the message.
func (c *ModelCall) End(msg message.Message) message.Message {
	if msg.ID == "" {
		msg.ID = c.id
		if !c.streamed {
			msg.ID += "-0"
		}
	}
	c.emit("on_chat_model_end", "output", msg)
	c.count(msg)
	c.traceEnd(&msg, nil)
	if c.shown && !c.tc.closed.Load() {
		c.tc.l.x.messages.flush(c.tc)
		c.tc.l.x.messages.emit(c.tc, c.metadata, msg, true)
	}
	return msg
}

// count reports the call to the run's counter.
func (c *ModelCall) count(msg message.Message) {
	if c.tc == nil || c.tc.l.x.called == nil {
		return
	}
	call := graph.ModelCall{
		ID: c.id, Message: msg.ID,
		Caller: graph.CallerOf(c.tc.t.name, c.tc.messageNS() != "", gjson.GetBytes(c.info.Metadata, "lc_source").String(),
			slices.Concat(c.tc.l.x.tags, c.info.Tags)...),
		Model: c.model(&msg), Took: max(time.Since(c.began), time.Microsecond),
	}
	if u := msg.Usage; u != nil {
		call.Usage = &graph.Usage{Input: u.InputTokens, Output: u.OutputTokens, Total: u.TotalTokens}
	}
	c.tc.l.x.called(call)
}

// Fail ends a call that returned an error in place of a message.
func (c *ModelCall) Fail(err error) {
	c.traceEnd(nil, err)
	if c.shown {
		c.tc.l.x.messages.flush(c.tc)
	}
	c.shown = false
}

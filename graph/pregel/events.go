package pregel

import (
	"slices"
	"strconv"

	"github.com/google/uuid"

	"understudy/graph"
	"understudy/graph/message"
)

// Stream mode `events` emits the events of LangChain's astream_events: start, stream and end of the graph, its nodes and its models.
// Nothing else within a node emits events.

// span is a graph, node or model call that emits start and end events.
type span struct {
	x        *exec
	id       string
	name     string
	parents  []string
	tags     []string
	metadata []byte
}

func (s *span) emit(event string, data []byte) {
	b := append(make([]byte, 0, 256+len(data)), `{"event":"`...)
	b = append(b, event...)
	b = append(appendQuoted(append(b, `","name":`...), s.name), `,"run_id":"`...)
	b = append(append(b, s.id...), `","tags":`...)
	b = append(b, fromGo(append([]string{}, s.tags...)).JSON()...)
	b = append(b, `,"metadata":`...)
	if len(s.metadata) == 0 {
		b = append(b, "{}"...)
	} else {
		b = append(b, s.metadata...)
	}
	b = append(append(b, `,"data":`...), data...)
	b = append(b, `,"parent_ids":`...)
	b = append(b, fromGo(append([]string{}, s.parents...)).JSON()...)
	s.x.out.push(s.x.ctx, graph.Event{Name: "events", Data: append(b, '}')})
}

// below returns a child span.
func (s *span) below(name string, tags []string, metadata []byte) *span {
	return &span{x: s.x, id: uuid.NewString(), name: name, parents: append(slices.Clone(s.parents), s.id), tags: tags, metadata: metadata}
}

// spanData returns {"key": value, …}.
func spanData(pairs ...any) []byte {
	b := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, pairs[i].(string)), ':')
		b = append(b, pairs[i+1].([]byte)...)
	}
	return append(b, '}')
}

// startEvents emits the start of the graph.
func (l *loop) startEvents(in input) {
	if !l.x.modes.events || l.x.out == nil {
		return
	}
	if l.nested {
		if l.task.span == nil {
			return
		}
		l.span = l.task.span.below(l.g.name, nil, l.task.span.metadata)
	} else {
		l.span = &span{x: l.x, id: string(l.x.run), name: l.g.name, tags: l.x.tags, metadata: appendFields(nil, l.x.metadata)}
		if l.span.id == "" {
			l.span.id = uuid.NewString()
		}
	}
	given := jsonNull
	if in.v != nil {
		given = in.v.JSON()
	} else if in.command != nil {
		given = in.command.appendJSON(nil)
	}
	l.span.emit("on_chain_start", spanData("input", given))
}

// endEvents emits the end of the graph, unless it failed.
func (l *loop) endEvents(err error) {
	if l.span != nil && err == nil {
		l.span.emit("on_chain_end", spanData("output", l.values().JSON()))
	}
}

// startSpan emits the start of a node.
func (tc *taskContext) startSpan() {
	l, t := tc.l, tc.t
	if l.span == nil || t.hidden() {
		return
	}
	t.span = l.span.below(t.name, append(slices.Clone(l.x.tags), "graph:step:"+strconv.Itoa(l.step)), tc.metadata())
	t.span.emit("on_chain_start", spanData("input", t.input.JSON()))
}

// endSpan emits the end of a node, with its writes.
func (tc *taskContext) endSpan(writes []write) {
	t := tc.t
	if t.span == nil {
		return
	}
	out := tc.l.updatesJSON(nil, writes)
	t.span.emit("on_chain_stream", spanData("chunk", out))
	t.span.emit("on_chain_end", spanData("output", out, "input", t.input.JSON()))
}

// startSpan emits the start of a model call.
func (c *ModelCall) startSpan(info ModelInfo) {
	if c.tc == nil || c.tc.t.span == nil {
		return
	}
	name := "ChatModel"
	if v := fromJSON(compact(info.Metadata)); len(info.Metadata) > 0 {
		if fields, ok := v.object(); ok {
			for _, f := range fields {
				if text, ok := f.v.text(); ok && f.name == "ls_model_name" {
					name = text
				}
			}
		}
	}
	metadata := c.metadata
	if metadata == nil {
		metadata = c.tc.metadata()
	}
	c.span = c.tc.t.span.below(name, info.Tags, metadata)
	c.span.emit("on_chat_model_start", spanData("input", []byte(`{"messages":[]}`)))
}

func (c *ModelCall) emit(event, key string, m message.Message) {
	if c.span != nil && !c.tc.closed.Load() {
		c.span.emit(event, spanData(key, m.AppendJSON(nil)))
	}
}

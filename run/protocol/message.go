package protocol

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// message is one that is being streamed. It follows langchain-core's chunks_to_events, with two fields more, by which clients distinguish messages of
// models that run in parallel: the id on every event, and the node.
type message struct {
	key, ns, node, task string
	number              int    // in the order in which they started
	id                  []byte // a JSON string
	hidden              bool   // its events are only counted
	blocks              []*block
	byKey               map[string]*block
	usage               usage
	metadata, more      jsonobj.Object
}

// block is one content block of a message.
type block struct {
	index  int
	kind   string          // its type
	fields *jsonobj.Object // without the text that grows
	grown  []byte          // the inside of a JSON string: text, reasoning or arguments so far
}

// growing names the field of a type of blocks that grows with each chunk.
func growing(kind string) (field, delta string) {
	switch kind {
	case "text":
		return "text", `{"type":"text-delta","text":`
	case "reasoning":
		return "reasoning", `{"type":"reasoning-delta","reasoning":`
	case toolChunk, serverToolChunk:
		return "args", `{"type":"tool-call-delta","args":`
	}
	return "", ""
}

const (
	toolChunk       = "tool_call_chunk"
	serverToolChunk = "server_tool_call_chunk"
)

// message projects an item of `messages`: [message or chunk, metadata].
func (p *Projection) message(st *runState, ns string, data []byte, hidden bool) {
	object, about, _, ok := p.pairs.Split(data)
	if !ok {
		return
	}
	var c chunk
	if !c.read(object) {
		return
	}
	p.key = append(append(append(p.key[:0], ns...), 0), c.id...)
	m := st.messages.byKey[string(p.key)]
	if m == nil {
		if st.done[string(p.key)] {
			return // streamed before, and now returned by its node
		}
		m = &message{key: string(p.key), ns: ns, id: slices.Clone(c.id), hidden: hidden, byKey: map[string]*block{}}
		m.node = jsonscan.Text(about, "langgraph_node")
		_, m.task = graphOf(jsonscan.Text(about, "langgraph_checkpoint_ns"))
		st.messages.add(m)
		p.startMessage(st, m, &c)
	} else if of := m.continues(&c); of != nil {
		p.growBy(st, m, of, c.content[1:len(c.content)-1])
		return
	}
	for _, part := range c.blocks() {
		p.grow(st, m, part)
	}
	jsonscan.Each(c.metadata, func(k []byte, start, end int) bool {
		m.metadata.Set(text(k), slices.Clone(c.metadata[start:end]))
		return true
	})
	jsonscan.Each(c.more, func(k []byte, start, end int) bool {
		m.more.Set(text(k), slices.Clone(c.more[start:end]))
		return true
	})
	m.usage.add(c.usage)
	if c.whole || c.last {
		p.finishMessage(st, m)
	}
}

// textKey is the key of a block of text that has no index.
const textKey = "ntext0"

// continues returns the block of a message to which a chunk does nothing but add text, as nearly all do; nil: there is none, or it has more.
func (m *message) continues(c *chunk) *block {
	if c.whole || c.last || len(c.content) <= 2 || c.content[0] != '"' || given(c.usage) || filled(c.calls) || filled(c.metadata) || filled(c.more) {
		return nil
	}
	if b := m.byKey[textKey]; b != nil && b.kind == "text" {
		return b
	}
	return nil
}

// filled reports whether an object or a list has something in it.
func filled(v json.RawMessage) bool { return len(v) > 2 && string(v) != "null" }

// chunk is a message, or a part of one, as the engine emits it.
type chunk struct {
	id, content, calls, invalid, usage, metadata, more json.RawMessage
	whole, last                                        bool
}

// read reads a message of a model; it reports false for all others.
func (c *chunk) read(object []byte) bool {
	kind, whole := "", json.RawMessage(nil)
	jsonscan.Each(object, func(key []byte, start, end int) bool {
		v := object[start:end]
		switch string(key) {
		case `"type"`:
			kind = text(v)
		case `"id"`:
			c.id = v
		case `"content"`:
			c.content = v
		case `"tool_call_chunks"`:
			c.calls = v
		case `"tool_calls"`:
			whole = v
		case `"invalid_tool_calls"`:
			c.invalid = v
		case `"usage_metadata"`:
			c.usage = v
		case `"response_metadata"`:
			c.metadata = v
		case `"additional_kwargs"`:
			c.more = v
		case `"chunk_position"`:
			c.last = text(v) == "last"
		}
		return true
	})
	switch kind {
	case "AIMessageChunk":
		c.invalid = nil // of arguments that have not come whole yet
	case "ai":
		c.whole, c.calls, c.more = true, whole, nil
	default:
		return false
	}
	if !given(c.id) || c.id[0] != '"' {
		c.id = json.RawMessage(`""`)
	}
	return true
}

// part is the piece of a block that a chunk has.
type part struct {
	key, kind string
	fields    *jsonobj.Object
	more      []byte // the inside of a JSON string
}

// blocks returns the content blocks of a chunk, as its content_blocks in langchain-core has them.
func (c *chunk) blocks() (parts []part) {
	add := func(kind string, fields *jsonobj.Object) {
		p := part{kind: kind, fields: fields}
		if index := fields.Get("index"); given(index) {
			p.key = "i" + string(index)
		} else {
			p.key = "n" + kind + strconv.Itoa(len(parts))
		}
		if name, _ := growing(kind); name != "" {
			if v := fields.Get(name); len(v) >= 2 && v[0] == '"' {
				p.more = v[1 : len(v)-1]
			}
			fields.Delete(name)
		}
		parts = append(parts, p)
	}
	block := func(kind string) *jsonobj.Object {
		o := &jsonobj.Object{}
		o.SetText("type", kind)
		return o
	}
	if thought := jsonscan.Raw(c.more, "reasoning_content"); len(thought) > 2 && thought[0] == '"' {
		o := block("reasoning")
		o.Set("reasoning", thought)
		add("reasoning", o)
	}
	calls, _ := jsonscan.Elements(c.calls)
	if len(c.content) > 2 && c.content[0] == '"' {
		o := block("text")
		o.Set("text", c.content)
		add("text", o)
	}
	items, _ := jsonscan.Elements(c.content)
	for _, item := range items {
		switch {
		case len(item) > 0 && item[0] == '"':
			o := block("text")
			o.Set("text", item)
			add("text", o)
		case len(item) > 0 && item[0] == '{':
			if kind, o := contentBlock(item); o != nil {
				add(kind, o)
			}
		}
	}
	for _, call := range calls {
		kind := toolChunk
		if c.whole {
			kind = "tool_call"
		}
		o := block(kind)
		jsonscan.Each(call, func(key []byte, start, end int) bool {
			switch k := text(key); k {
			case "id", "name", "args":
				o.Set(k, call[start:end])
			case "index":
				if given(call[start:end]) {
					o.Set(k, call[start:end])
				}
			}
			return true
		})
		add(kind, o)
	}
	if broken, _ := jsonscan.Elements(c.invalid); c.whole {
		for _, call := range broken {
			o := jsonobj.Of(call)
			o.SetText("type", "invalid_tool_call")
			add("invalid_tool_call", o)
		}
	}
	return parts
}

// contentBlock reads an item of a list of content. Calls of tools are in fields of their own; nil for those.
func contentBlock(item []byte) (string, *jsonobj.Object) {
	o := jsonobj.Of(item)
	switch kind := o.Text("type"); kind {
	case "text", "reasoning":
		return kind, o
	case "thinking":
		thought := &jsonobj.Object{}
		thought.SetText("type", "reasoning")
		for _, key := range []string{"index", "id"} {
			if v := o.Get(key); given(v) {
				thought.Set(key, v)
			}
		}
		if v := o.Get("thinking"); v != nil {
			thought.Set("reasoning", v)
		}
		if v := o.Get("signature"); given(v) {
			extras := &jsonobj.Object{}
			extras.Set("signature", v)
			thought.Set("extras", extras.JSON())
		}
		return "reasoning", thought
	case "tool_use", "tool_call", toolChunk, "input_json_delta", "function_call":
		return "", nil
	case "image_url", "input_audio":
		if media := mediaBlock(kind, item); media != nil {
			if v := o.Get("index"); given(v) {
				media.Set("index", v)
			}
			return media.Text("type"), media
		}
	case "image", "audio", "video", "file", "text-plain", "server_tool_call", serverToolChunk, "server_tool_result", "non_standard":
		return kind, o
	}
	other := &jsonobj.Object{}
	other.SetText("type", "non_standard")
	if v := o.Get("index"); given(v) {
		other.Set("index", v)
	}
	other.Set("value", slices.Clone(item))
	return "non_standard", other
}

// messageEvent sends an event of a message. Its members follow those that all have.
func (p *Projection) messageEvent(st *runState, m *message, event string, members func([]byte) []byte) {
	if m.hidden {
		p.number(st)
		return
	}
	p.emit(st, m.ns, "messages", m.node, func(b []byte) []byte {
		b = append(append(append(b, `{"event":"`...), event...), `","id":`...)
		b = append(b, m.id...)
		return append(members(b), '}')
	})
}

func (p *Projection) startMessage(st *runState, m *message, c *chunk) {
	p.messageEvent(st, m, "message-start", func(b []byte) []byte {
		b = append(b, `,"role":"ai"`...)
		provider, model := jsonscan.Raw(c.metadata, "model_provider"), jsonscan.Raw(c.metadata, "model_name")
		if provider == nil && model == nil {
			return b
		}
		hints := &jsonobj.Object{}
		if provider != nil {
			hints.Set("provider", provider)
		}
		if model != nil {
			hints.Set("model", model)
		}
		return append(append(b, `,"metadata":`...), hints.JSON()...)
	})
}

// grow adds a part to its block, which the first one starts.
func (p *Projection) grow(st *runState, m *message, with part) {
	field, _ := growing(with.kind)
	of := m.byKey[with.key]
	if of == nil {
		of = &block{index: len(m.blocks), kind: with.kind, fields: cloned(with.fields)}
		m.blocks = append(m.blocks, of)
		m.byKey[with.key] = of
		p.messageEvent(st, m, "content-block-start", func(b []byte) []byte {
			return append(append(of.appendIndex(b), `,"content":`...), of.skeleton(field)...)
		})
	} else {
		of.merge(with)
	}
	p.growBy(st, m, of, with.more)
}

// growBy adds to the text of a block.
func (p *Projection) growBy(st *runState, m *message, of *block, more []byte) {
	of.grown = append(of.grown, more...)
	if len(more) == 0 {
		return
	}
	_, delta := growing(of.kind)
	p.messageEvent(st, m, "content-block-delta", func(b []byte) []byte {
		b = append(append(of.appendIndex(b), `,"delta":`...), delta...)
		return append(append(append(b, '"'), more...), `"}`...)
	})
}

func (b *block) appendIndex(dst []byte) []byte {
	return strconv.AppendInt(append(dst, `,"index":`...), int64(b.index), 10)
}

// merge takes over the fields of a later part.
func (b *block) merge(with part) {
	if with.kind != b.kind { // a block of another type in its place
		b.kind, b.fields, b.grown = with.kind, cloned(with.fields), nil
		return
	}
	with.fields.Each(func(key string, v json.RawMessage) {
		switch {
		case key == "type", !given(v):
		case key == "extras":
			b.fields.Set(key, slices.Clone(jsonobj.Merge(b.fields.Get(key), v)))
		default:
			b.fields.Set(key, slices.Clone(v))
		}
	})
}

// heavy are fields that the start of a block leaves to its end.
var heavy = []string{"args", "data", "output", "transcript", "value"}

// skeleton is the block at its start: without its content.
func (b *block) skeleton(field string) json.RawMessage {
	o := &jsonobj.Object{}
	b.fields.Each(func(key string, v json.RawMessage) {
		switch {
		case field == "" && slices.Contains(heavy, key), (b.kind == "text" || b.kind == "reasoning") && (key == "index" || key == "annotations"):
		default:
			o.Set(key, v)
		}
	})
	switch {
	case field != "":
		o.SetText(field, "")
	case b.kind == "tool_call", b.kind == "server_tool_call":
		o.Set("args", json.RawMessage("{}"))
	case b.kind == "non_standard":
		o.Set("value", json.RawMessage("{}"))
	}
	return o.JSON()
}

// finished is the block at its end.
func (b *block) finished() json.RawMessage {
	field, _ := growing(b.kind)
	o := cloned(b.fields)
	whole := append(append([]byte{'"'}, b.grown...), '"')
	switch {
	case field == "":
	case field != "args":
		o.Set(field, whole)
	default:
		args := []byte(text(whole))
		if len(bytes.TrimSpace(args)) == 0 {
			args = []byte("{}")
		}
		kind := "tool_call"
		if b.kind == serverToolChunk {
			kind = "server_tool_call"
		} else {
			o.Delete("index")
		}
		var compact bytes.Buffer
		if !jsonscan.Valid(args) || json.Compact(&compact, args) != nil {
			o.SetText("type", "invalid_tool_call")
			o.Set("args", whole)
			o.SetText("error", "Failed to parse tool call arguments as JSON")
			break
		}
		o.SetText("type", kind)
		o.Set("args", compact.Bytes())
		for _, key := range []string{"id", "name"} {
			if !given(o.Get(key)) {
				o.SetText(key, "")
			}
		}
	}
	return o.JSON()
}

// cloned copies an object, so that it does not hold the record that its values are in.
func cloned(o *jsonobj.Object) *jsonobj.Object {
	out := &jsonobj.Object{}
	o.Each(func(key string, v json.RawMessage) { out.Set(key, slices.Clone(v)) })
	return out
}

// finishMessages ends open messages.
func (p *Projection) finishMessages(st *runState, messages []*message) {
	for _, m := range messages {
		p.finishMessage(st, m)
	}
}

func (p *Projection) finishMessage(st *runState, m *message) {
	st.messages.remove(m)
	if len(m.id) > 2 { // else its key is that of others
		st.done[m.key] = true
	}
	for _, of := range m.blocks {
		p.messageEvent(st, m, "content-block-finish", func(b []byte) []byte {
			return append(append(of.appendIndex(b), `,"content":`...), of.finished()...)
		})
	}
	p.messageEvent(st, m, "message-finish", func(b []byte) []byte {
		if m.usage.known {
			b = append(append(b, `,"usage":`...), m.usage.JSON()...)
		}
		if m.metadata.Len() > 0 {
			b = append(append(b, `,"metadata":`...), m.metadata.JSON()...)
		}
		if m.more.Len() > 0 {
			b = append(append(b, `,"additional_kwargs":`...), m.more.JSON()...)
		}
		return b
	})
}

// usage adds up the tokens of a message.
type usage struct {
	known                bool
	input, output, total int64
	details              jsonobj.Object
}

func (u *usage) add(raw json.RawMessage) {
	jsonscan.Each(raw, func(key []byte, start, end int) bool {
		u.known = true
		switch v := raw[start:end]; text(key) {
		case "input_tokens":
			u.input += jsonInt(v)
		case "output_tokens":
			u.output += jsonInt(v)
		case "total_tokens":
			u.total += jsonInt(v)
		case "input_token_details", "output_token_details":
			if len(v) > 2 && v[0] == '{' {
				u.details.Set(text(key), slices.Clone(jsonobj.Merge(u.details.Get(text(key)), v)))
			}
		}
		return true
	})
}

// JSON is the usage on the wire.
func (u *usage) JSON() json.RawMessage {
	o := &jsonobj.Object{}
	for _, f := range []struct {
		key string
		n   int64
	}{{"input_tokens", u.input}, {"output_tokens", u.output}, {"total_tokens", u.total}} {
		o.Set(f.key, strconv.AppendInt(nil, f.n, 10))
	}
	o.Merge(&u.details)
	return o.JSON()
}

// tools sends an event of a tool. The message that a tool returned is also sent as a message, in a namespace of its call.
func (p *Projection) tools(st *runState, ns string, data []byte) {
	p.emit(st, ns, "tools", "", func(b []byte) []byte { return append(b, data...) })
	if jsonscan.Text(data, "event") != "tool-finished" {
		return
	}
	output := jsonscan.Raw(data, "output")
	if jsonscan.Text(output, "type") != "tool" {
		return
	}
	call := jsonscan.Raw(data, "tool_call_id")
	ident := jsonscan.Raw(output, "id")
	if !given(ident) {
		ident = call
	}
	at := p.newSpace(append(slices.Clone(p.space(ns).levels), "tools:"+text(call)))
	send := func(event, members string, more ...[]byte) {
		p.emitIn(st, at, "messages", "", func(b []byte) []byte {
			b = append(append(append(b, `{"event":"`...), event...), `","id":`...)
			b = append(append(b, ident...), members...)
			for _, m := range more {
				b = append(b, m...)
			}
			return append(b, '}')
		})
	}
	content := toolText(jsonscan.Raw(output, "content"))
	send("message-start", `,"role":"tool","tool_call_id":`, call)
	send("content-block-start", `,"index":0,"content":{"type":"text","text":""}`)
	send("content-block-delta", `,"index":0,"content":{"type":"text","text":`, content, []byte("}")) // as LangGraph Server: not `delta`
	send("content-block-finish", `,"index":0,"content":{"type":"text","text":`, content, []byte("}"))
	send("message-finish", `,"metadata":{}`)
}

// toolText is the text of the content of a tool's message, as a JSON string.
func toolText(content json.RawMessage) json.RawMessage {
	if len(content) > 0 && content[0] == '"' {
		return content
	}
	out := []byte{'"'}
	items, _ := jsonscan.Elements(content)
	for _, item := range items {
		if len(item) > 0 && item[0] == '{' {
			item = jsonscan.Raw(item, "text")
		}
		if len(item) >= 2 && item[0] == '"' {
			out = append(out, item[1:len(item)-1]...)
		}
	}
	return append(out, '"')
}

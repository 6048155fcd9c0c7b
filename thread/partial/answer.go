package partial

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/internal/jsonobj"
)

// answer is one message of a model as far as it has come.
type answer struct {
	id        string
	step      int
	size      int // bytes of text
	truncated bool

	// As sums of chunks: each level is of about twice as many as the next, so that adding all of them copies a text once per level.
	levels []level
	calls  []*call

	// Or as it came last.
	raw      []byte // not read yet
	complete bool   // nothing comes after it
}

type level struct {
	sum message.Message
	n   int
}

// call is a tool call as far as its parts have come.
type call struct {
	index    *int
	id, name string
	args     strings.Builder
	whole    *message.ToolCall // it came in one piece
}

// add adds a chunk. Its calls are kept apart: they are read once, at the end.
func (a *answer) add(m message.Message) {
	for _, part := range m.ToolCallChunks {
		a.addCall(part)
	}
	if len(m.ToolCallChunks) == 0 {
		for _, c := range m.ToolCalls {
			a.calls = append(a.calls, &call{id: c.ID, name: c.Name, whole: &c})
		}
	}
	m.ToolCallChunks, m.ToolCalls, m.InvalidToolCalls = nil, nil, nil
	a.levels = append(a.levels, level{m, 1})
	for n := len(a.levels); n > 1 && a.levels[n-2].n <= a.levels[n-1].n; n = len(a.levels) {
		a.join()
	}
}

// join adds the last level to the one before it. What cannot be added is left out, as LangChain's own stream would fail there.
func (a *answer) join() {
	n := len(a.levels)
	left, right := &a.levels[n-2], a.levels[n-1]
	if sum, err := message.Add(left.sum, right.sum); err == nil {
		left.sum = sum
	}
	left.n += right.n
	a.levels = a.levels[:n-1]
}

func (a *answer) addCall(part message.ToolCallChunk) {
	if part.Index != nil {
		for _, c := range a.calls {
			if c.index == nil || *c.index != *part.Index || c.id != "" && part.ID != "" && c.id != part.ID {
				continue
			}
			c.name += part.Name
			c.args.WriteString(part.Args)
			if c.id == "" {
				c.id = part.ID
			}
			return
		}
	}
	c := &call{index: part.Index, id: part.ID, name: part.Name}
	c.args.WriteString(part.Args)
	a.calls = append(a.calls, c)
}

// set replaces the answer by a message that came as a whole.
func (a *answer) set(m message.Message, complete bool) {
	a.later(m.AppendJSON(nil), complete)
}

// later replaces the answer by what is known of it now. raw is read at the end only.
func (a *answer) later(raw []byte, complete bool) {
	*a = answer{id: a.id, step: a.step, raw: raw, complete: complete, size: len(raw)}
}

// message returns the answer without what is not whole; ok is false when nothing is left.
func (a *answer) message() (m message.Message, ok bool) {
	if a.raw != nil {
		if m, ok = message.Read(a.raw); !ok || m.Type != message.TypeAI && m.Type != message.TypeAIChunk {
			return m, false
		}
		m = m.Whole()
		// Half of the arguments of the last call look like all of them: LangChain completes their JSON. The calls before it are whole.
		if n := len(m.ToolCalls); n > 0 && !a.complete && !ended(&m) {
			m.ToolCalls = m.ToolCalls[:n-1]
			dropHalves(&m)
		} else if len(m.InvalidToolCalls) > 0 {
			dropHalves(&m)
		}
	} else {
		for len(a.levels) > 1 {
			a.join()
		}
		if len(a.levels) == 0 {
			return m, false
		}
		m = a.levels[0].sum
		end := m.Last || ended(&m)
		m = m.Whole()
		for i, c := range a.calls {
			if w := c.read(end || i < len(a.calls)-1); w != nil {
				m.ToolCalls = append(m.ToolCalls, *w)
			}
		}
		if len(m.ToolCalls) < len(a.calls) {
			dropHalves(&m)
		}
	}
	m.ID = a.id
	return m, !m.Content.Empty() || len(m.ToolCalls) > 0 || len(m.AdditionalKwargs) > 0
}

// ended reports whether the provider has said why the message ends.
func ended(m *message.Message) bool {
	meta := gjson.ParseBytes(m.ResponseMetadata)
	return slices.ContainsFunc([]string{"finish_reason", "stop_reason", "stopReason", "done_reason"}, func(name string) bool {
		return meta.Get(name).String() != ""
	})
}

// read returns the call if it is whole; nil else. end: no more of it comes.
func (c *call) read(end bool) *message.ToolCall {
	if c.whole != nil {
		return c.whole
	}
	args := c.args.String()
	if c.name == "" || args == "" && !end {
		return nil
	}
	if args == "" {
		return &message.ToolCall{Name: c.name, ID: c.id}
	}
	if v := gjson.Parse(args); !gjson.Valid(args) || !v.IsObject() {
		return nil
	}
	return &message.ToolCall{Name: c.name, ID: c.id, Args: json.RawMessage(args)}
}

// dropHalves takes out of a message everything that shows a tool call that is not whole.
func dropHalves(m *message.Message) {
	m.InvalidToolCalls = nil
	if m.AdditionalKwargs != nil {
		o := jsonobj.Of(m.AdditionalKwargs)
		o.Delete("tool_calls")
		o.Delete("function_call")
		if m.AdditionalKwargs = o.JSON(); o.Len() == 0 {
			m.AdditionalKwargs = nil
		}
	}
	whole := map[string]bool{}
	for _, c := range m.ToolCalls {
		whole[c.ID] = true
	}
	m.Content.Blocks = slices.DeleteFunc(slices.Clone(m.Content.Blocks), func(raw json.RawMessage) bool {
		block := gjson.ParseBytes(raw)
		switch block.Get("type").String() {
		case "tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call", "input_json_delta":
			return !whole[block.Get("id").String()] && !whole[block.Get("call_id").String()]
		}
		for _, name := range []string{"partial_json", "args", "arguments"} {
			if v := block.Get(name); v.Type == gjson.String && !gjson.Valid(v.String()) {
				return true
			}
		}
		return false
	})
}

// textSize is how many bytes of text a message or chunk brings.
func textSize(m *message.Message) int {
	n := len(m.Content.Text) + len(m.AdditionalKwargs)
	for _, block := range m.Content.Blocks {
		n += blockSize(block)
	}
	for _, c := range m.ToolCallChunks {
		n += len(c.Args)
	}
	return n
}

func blockSize(block json.RawMessage) int {
	if text := gjson.GetBytes(block, "text"); text.Type == gjson.String {
		return len(text.Str)
	}
	return len(block)
}

// cut shortens the text of a message.
func cut(m *message.Message, limit int) {
	if m.Content.Blocks == nil {
		m.Content.Text = prefix(m.Content.Text, limit)
		return
	}
	left := limit
	for i, block := range m.Content.Blocks {
		if left -= blockSize(block); left < 0 {
			m.Content.Blocks = m.Content.Blocks[:i]
			return
		}
	}
}

// prefix returns at most n bytes of the beginning of a text, whole characters only.
func prefix(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

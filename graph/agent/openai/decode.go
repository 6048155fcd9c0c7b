package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/agent/internal/wire"
	"understudy/graph/agent/llm"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// decoder reads the chunks of one answer. It is lenient: a member of an unexpected type counts as absent, and numbers may be texts.
type decoder struct {
	calls    []*call
	begun    bool       // a part of the answer has come
	finished bool       // the first choice has said why it ended, or the end of what has begun came
	ended    bool       // [DONE] came
	usage    *llm.Usage // of the whole answer, as last reported
	model    string
	tier     string
	texts    wire.Texts
}

// call is what is known of a tool call so far.
type call struct {
	wire      string // index as the server gave it; "": none
	id, name  string
	arguments progress
	extra     bool // its extra_content has come
}

// maxCalls bounds the tool calls of one answer, and maxName the bytes of their names, which may come in any number of pieces.
const (
	maxCalls = 1024
	maxName  = 1024
)

func (d *decoder) Complete() bool { return d.finished }
func (d *decoder) Ended() bool    { return d.ended }

// Last returns the usage: some servers count on in every chunk, and the last one holds.
func (d *decoder) Last() (llm.Chunk, bool) {
	return llm.Chunk{Usage: d.usage}, d.usage != nil
}

// Whole reads an answer in one piece. A list is how Gemini wraps its errors.
func (d *decoder) Whole(data []byte) (llm.Chunk, error) {
	c, _, err := d.Event("", data)
	return c, err
}

// Event reads one event. ok is false when it has no content: role announcements, Azure's filter results.
func (d *decoder) Event(name string, data []byte) (c llm.Chunk, ok bool, err error) {
	if string(data) == "[DONE]" {
		d.finished, d.ended = d.finished || d.begun, true
		return c, false, nil
	}
	in := gjson.ParseBytes(data)
	if in.IsArray() {
		in = in.Get("0")
	}
	if !jsonscan.Valid(data) || !in.IsObject() {
		if name == "error" {
			return c, false, &llm.Error{Status: http.StatusOK, Message: string(data)}
		}
		return c, false, &wire.Misunderstood{What: "an event that is not a JSON object"}
	}
	failure := &llm.Error{Status: http.StatusOK}
	if fill(in, failure) || name == "error" {
		if failure.Message == "" {
			failure.Message = in.Raw
		}
		return c, false, failure
	}
	usage := in.Get("usage")
	if !usage.IsObject() {
		usage = in.Get("x_groq.usage")
	}
	if usage.IsObject() {
		d.usage = usageOf(usage)
	}
	if !usage.IsObject() && !in.Get("choices").Exists() {
		return c, false, &wire.Misunderstood{What: "an event without choices"} // it may be an error in a form of its own
	}
	for _, choice := range in.Get("choices").Array() {
		if choice.Get("index").Int() == 0 {
			if err := d.choice(choice, &c); err != nil {
				return c, false, err
			}
			break
		}
	}
	d.begun = d.begun || !c.Empty()
	if model := str(in.Get("model")); model != "" && d.model == "" {
		d.model = model
		c.Model = model
	}
	if tier := str(in.Get("service_tier")); tier != "" {
		d.tier = tier
	}
	if c.FinishReason != "" {
		c.Fingerprint = str(in.Get("system_fingerprint"))
		if d.tier != "" {
			c.Metadata = member(c.Metadata, "service_tier", jsonobj.Quote(d.tier))
		}
	}
	return c, !c.Empty() || c.Model != "", nil
}

func (d *decoder) choice(in gjson.Result, c *llm.Chunk) error {
	if reason := str(in.Get("finish_reason")); reason != "" && !d.finished {
		if reason == "error" { // OpenRouter; with an error next to it, fill has found that
			return &llm.Error{Status: http.StatusOK, Message: "the provider ended the answer with an error", Code: str(in.Get("native_finish_reason"))}
		}
		d.finished = true
		c.FinishReason = reason
	}
	if probabilities := in.Get("logprobs"); probabilities.IsObject() {
		c.Metadata = member(c.Metadata, "logprobs", []byte(probabilities.Raw))
	}
	m := in.Get("delta")
	if !m.IsObject() {
		m = in.Get("message")
	}
	content, thinking := d.parts(m.Get("content"))
	c.Content = content
	c.Reasoning = d.texts.Read("reasoning", m.Get("reasoning_content")) + thinking // DeepSeek, vLLM, Qwen; Mistral
	if c.Reasoning == "" {
		// OpenRouter, Ollama, newer vLLM. Those who send both names send the same text twice.
		c.Reasoning = d.texts.Read("reasoning", m.Get("reasoning"))
	}
	c.Refusal = d.texts.Read("refusal", m.Get("refusal"))
	if details := m.Get("reasoning_details"); details.IsArray() && len(details.Array()) > 0 {
		c.Kwargs = member(c.Kwargs, "reasoning_details", []byte(details.Raw))
	}
	if notes := m.Get("annotations"); notes.IsArray() && len(notes.Array()) > 0 {
		c.Metadata = member(c.Metadata, "annotations", []byte(notes.Raw))
	}
	calls := m.Get("tool_calls").Array()
	if old := m.Get("function_call"); old.IsObject() && len(calls) == 0 { // the form before tools
		calls = []gjson.Result{gjson.Parse(`{"index":0,"function":` + old.Raw + `}`)}
	}
	var extras jsonobj.Object    // by the id of the call
	pieces := map[int][]string{} // of arguments, by call: an event may have any number of them
	at := map[int]int{}
	for _, in := range calls {
		piece, err := d.toolCall(in, &extras)
		if err != nil {
			return err
		}
		i, known := at[piece.Index]
		if !known {
			i = len(c.ToolCalls)
			at[piece.Index], c.ToolCalls = i, append(c.ToolCalls, llm.ToolCallDelta{Index: piece.Index})
		}
		c.ToolCalls[i].ID += piece.ID
		c.ToolCalls[i].Name += piece.Name
		pieces[i] = append(pieces[i], piece.Arguments)
	}
	for i := range c.ToolCalls {
		c.ToolCalls[i].Arguments = strings.Join(pieces[i], "")
	}
	if extras.Len() > 0 {
		c.Kwargs = member(c.Kwargs, "tool_call_extra_content", extras.JSON())
	}
	return nil
}

// toolCall finds the call that a piece belongs to. OpenAI numbers calls and names each once. Other servers send index 0 for every
// call, or none, repeat id and name with each piece, or send another id with each piece.
// The first extra_content of a call is added to extras.
func (d *decoder) toolCall(in gjson.Result, extras *jsonobj.Object) (out llm.ToolCallDelta, err error) {
	index, id, name, arguments := "", str(in.Get("id")), str(in.Get("function.name")), in.Get("function.arguments")
	if i := in.Get("index"); i.Type == gjson.Number || i.Type == gjson.String {
		index = fmt.Sprint(i.Int())
	}
	piece := ""
	if arguments.IsObject() || arguments.IsArray() {
		piece = arguments.Raw // some servers send the object
	} else {
		piece = d.texts.Read("arguments "+index, arguments)
	}
	at := d.find(index, id, name, piece)
	if at < 0 {
		if len(d.calls) == maxCalls {
			return out, fmt.Errorf("read answer: more than %d tool calls", maxCalls)
		}
		at = len(d.calls)
		d.calls = append(d.calls, &call{wire: index})
	}
	known := d.calls[at]
	out = llm.ToolCallDelta{Index: at, Arguments: piece}
	if known.id == "" {
		known.id, out.ID = strings.Clone(id), id // the id alone: it is part of the event
	}
	if name != known.name && len(known.name)+len(name) <= maxName {
		known.name += name
		out.Name = name
	}
	known.arguments.add(piece)
	if content := in.Get("extra_content"); content.IsObject() && !known.extra {
		if known.id == "" {
			known.id = llm.NewCallID()
			out.ID = known.id
		}
		known.extra = true // some servers repeat it, and chunks add up
		extras.Set(known.id, json.RawMessage(content.Raw))
	}
	return out, nil
}

// find returns the call of a piece; -1: it begins one.
func (d *decoder) find(index, id, name, piece string) int {
	if id != "" {
		for i, known := range d.calls {
			if known.id == id && (index == "" || known.wire == index) {
				return i
			}
		}
	}
	at := -1
	for i := len(d.calls) - 1; i >= 0 && at < 0; i-- {
		if index == "" || d.calls[i].wire == index {
			at = i
		}
	}
	if at < 0 {
		return -1
	}
	known := d.calls[at]
	switch {
	case name == "":
		return at // also with another id: only a name begins a call
	case id != "" && known.id != "":
		if name == known.name && known.arguments.len > 0 && !known.arguments.complete() {
			return at // a server that makes up an id for each piece
		}
		return -1
	case known.name == "" || known.arguments.len == 0 && (name == known.name || index != ""):
		return at // its name may come in pieces
	case index == "" && id == "":
		return -1 // neither number nor id: a name begins a call
	case known.arguments.complete():
		return -1 // a name after complete arguments
	}
	return at
}

// parts reads content: a text, null, or the list of parts that Mistral sends when it thinks.
func (d *decoder) parts(in gjson.Result) (content, thinking string) {
	if !in.IsArray() {
		return d.texts.Read("content", in), ""
	}
	var said, thought strings.Builder
	in.ForEach(func(_, p gjson.Result) bool {
		if p.Type == gjson.String {
			said.WriteString(p.Str)
			return true
		}
		said.WriteString(d.texts.Read("content", p.Get("text")))
		if p.Get("type").Str != "thinking" {
			return true
		}
		inner := p.Get("thinking")
		if inner.Type == gjson.String {
			thought.WriteString(inner.Str)
		}
		for _, t := range inner.Array() {
			thought.WriteString(str(t.Get("text")))
		}
		return true
	})
	return said.String(), thought.String()
}

// str returns a JSON text; "" for values of other types.
func str(in gjson.Result) string {
	if in.Type == gjson.String {
		return in.Str
	}
	return ""
}

// member adds a member to an object.
func member(object json.RawMessage, name string, value []byte) json.RawMessage {
	out := []byte("{")
	if len(object) > 2 {
		out = append(append(out, object[1:len(object)-1]...), ',')
	}
	out = append(append(append(out, jsonobj.Quote(name)...), ':'), value...)
	return append(out, '}')
}

func usageOf(u gjson.Result) *llm.Usage {
	count := func(names ...string) int {
		for _, name := range names {
			if n, ok := wire.Count(u.Get(name)); ok {
				return int(n)
			}
		}
		return 0
	}
	out := &llm.Usage{
		Input: count("prompt_tokens", "input_tokens"), Output: count("completion_tokens", "output_tokens"), Total: count("total_tokens"),
		CacheRead: count("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens", "prompt_cache_hit_tokens"), // DeepSeek
		Reasoning: count("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"),
	}
	if out.CacheRead == 0 {
		out.CacheRead = count("prompt_cache_hit_tokens")
	}
	out.Total = max(out.Total, out.Input+out.Output) // it may count more than both: thinking, of Gemini
	return out
}

package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/agent/internal/wire"
	"understudy/graph/agent/llm"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// maxBlocks bounds the blocks of one answer.
const maxBlocks = 4096

// decoder reads the events of one answer. It is lenient: a member of an unexpected type counts as absent, an unknown event is skipped,
// and a delta may come without the beginning of its block. Chunks have the form of langchain-anthropic's.
type decoder struct {
	coerce   bool // text comes as text rather than as blocks, if the first block is text
	begun    bool // it is known which of both
	blocks   []*block
	byIndex  map[int64]*block
	model    string
	usage    map[string]int64 // as last reported
	reason   string
	sequence string // stop_sequence as JSON
	ended    bool
	texts    wire.Texts
}

// block is a block of the answer.
type block struct {
	index  int // of its own: servers number wrongly
	kind   string
	call   bool   // a call of the agent's tools
	input  string // that came with the beginning
	pieces bool   // of the input
}

func newDecoder(coerce bool) *decoder {
	return &decoder{coerce: coerce, byIndex: map[int64]*block{}, usage: map[string]int64{}, sequence: "null"}
}

func (d *decoder) Complete() bool { return d.reason != "" }
func (d *decoder) Ended() bool    { return d.ended }

// Last returns the reason of the end, and the usage: servers report it in parts, and the last report of each count holds.
func (d *decoder) Last() (llm.Chunk, bool) {
	c := llm.Chunk{FinishReason: d.reason, Native: true, Usage: d.counts()}
	c.Blocks = d.begin("")
	c.Metadata = append(jsonobj.AppendText([]byte(`{"stop_reason":`), d.reason), (`,"stop_sequence":` + d.sequence + `}`)...)
	return c, true
}

// begin decides on the form of the content with its first block. It returns an empty list for content in blocks, else nil.
func (d *decoder) begin(kind string) []json.RawMessage {
	if !d.begun {
		d.begun = true
		d.coerce = d.coerce && (kind == "text" || kind == "")
	}
	if d.coerce {
		return nil
	}
	return []json.RawMessage{}
}

// Event reads one event of a stream. ok is false when it has no content.
func (d *decoder) Event(name string, data []byte) (c llm.Chunk, ok bool, err error) {
	in := gjson.ParseBytes(data)
	if !jsonscan.Valid(data) || !in.IsObject() {
		if name == "error" {
			return c, false, &llm.Error{Status: http.StatusOK, Message: string(data)}
		}
		return c, false, &wire.Misunderstood{What: "an event that is not a JSON object"}
	}
	switch kind := text(in.Get("type")); kind {
	case "message_start":
		m := in.Get("message")
		d.count(m.Get("usage"))
		if model := text(m.Get("model")); model != "" && d.model == "" {
			d.model, c.Model = model, model
			return c, true, nil
		}
		return c, false, nil
	case "content_block_start":
		return d.start(in)
	case "content_block_delta":
		return d.delta(in)
	case "content_block_stop":
		b := d.byIndex[in.Get("index").Int()]
		delete(d.byIndex, in.Get("index").Int()) // a number that is used again begins a block
		if b == nil || b.input == "" || b.pieces {
			return c, false, nil
		}
		return d.piece(b, b.input), true, nil // of a server that sends the input at once
	case "message_delta":
		d.stop(in.Get("delta"))
		d.count(in.Get("usage"))
		return c, false, nil
	case "message_stop":
		d.ended = true
		if d.reason == "" && len(d.blocks) > 0 {
			d.reason = "end_turn" // left out by some gateways
		}
		return c, false, nil
	case "ping":
		return c, false, nil
	case "message":
		if !in.Get("content").IsArray() {
			return c, false, &wire.Misunderstood{What: "a message without content"}
		}
		c, err = d.Whole(data)
		return c, true, err
	default:
		failure, detail := in.Get("error"), kind == "" && text(in.Get("detail")) != "" // of gateways in FastAPI
		if name != "error" && kind != "error" && !failure.IsObject() && text(failure) == "" && !detail {
			return c, false, &wire.Misunderstood{What: "event " + kind}
		}
		e := &llm.Error{Status: http.StatusOK}
		explain(data, e)
		if e.Message == "" {
			e.Message = in.Raw
		}
		return c, false, e
	}
}

func (d *decoder) stop(in gjson.Result) {
	if reason := text(in.Get("stop_reason")); reason != "" {
		d.reason = reason
	}
	if sequence := in.Get("stop_sequence"); sequence.Exists() {
		d.sequence = sequence.Raw
	}
}

// Whole reads an answer in one piece.
func (d *decoder) Whole(data []byte) (llm.Chunk, error) {
	in := gjson.ParseBytes(data)
	if kind := text(in.Get("type")); kind != "message" && kind != "" || !in.Get("content").IsArray() {
		c, _, err := d.Event("", data)
		return c, err
	}
	d.model = text(in.Get("model"))
	out := llm.Chunk{Model: d.model}
	var said strings.Builder
	for _, content := range in.Get("content").Array() {
		kind := text(content.Get("type"))
		b, err := d.add(-1, kind)
		if err != nil {
			return out, err
		}
		blocks := d.begin(kind)
		if kind == "tool_use" {
			out.ToolCalls = append(out.ToolCalls, llm.ToolCallDelta{Index: b.index, ID: text(content.Get("id")), Name: text(content.Get("name")), Arguments: content.Get("input").Raw})
		}
		if blocks == nil {
			said.WriteString(text(content.Get("text")))
			continue
		}
		if out.Blocks == nil {
			out.Blocks = blocks
		}
		if content.IsObject() {
			fields := jsonobj.Of(json.RawMessage(content.Raw))
			out.Blocks = append(out.Blocks, indexed(*fields, b.index))
		}
	}
	d.count(in.Get("usage"))
	d.stop(in)
	if d.reason == "" {
		d.reason = "end_turn"
	}
	d.ended = true
	out.Content = said.String()
	return out, nil
}

// start reads the beginning of a block. Blocks of kinds that are not known are content, too.
func (d *decoder) start(in gjson.Result) (c llm.Chunk, ok bool, err error) {
	content := in.Get("content_block")
	kind := text(content.Get("type"))
	if kind == "" {
		return c, false, &wire.Misunderstood{What: "a block without a type"}
	}
	b, err := d.add(in.Get("index").Int(), kind)
	if err != nil {
		return c, false, err
	}
	c.Blocks = d.begin(kind)
	if kind == "tool_use" {
		b.call = true
		c.ToolCalls = []llm.ToolCallDelta{{Index: b.index, ID: text(content.Get("id")), Name: text(content.Get("name"))}}
	}
	if input := content.Get("input"); input.IsObject() && len(input.Map()) > 0 {
		b.input = input.Raw
	}
	if d.coerce {
		if kind != "text" && kind != "tool_use" {
			return c, false, &wire.Misunderstood{What: "block " + kind + " after plain text"}
		}
		c.Content = text(content.Get("text"))
		return c, !c.Empty(), nil
	}
	var fields jsonobj.Object
	content.ForEach(func(k, v gjson.Result) bool {
		if k.Str != "input" && k.Str != "index" {
			fields.Set(k.Str, json.RawMessage(v.Raw))
		}
		return true
	})
	switch kind {
	case "text":
		if citations := content.Get("citations"); text(content.Get("text")) == "" && len(citations.Array()) == 0 {
			return c, false, nil // as LangChain: its deltas make it
		} else if len(citations.Array()) == 0 {
			fields.Delete("citations")
		}
	case "thinking":
		if text(content.Get("thinking")) == "" && text(content.Get("signature")) == "" {
			return c, false, nil
		}
	case "tool_use", "server_tool_use", "mcp_tool_use":
		fields.Set("input", json.RawMessage("{}"))
	}
	c.Blocks = append(c.Blocks, indexed(fields, b.index))
	return c, true, nil
}

// add begins a block.
func (d *decoder) add(index int64, kind string) (*block, error) {
	if len(d.blocks) == maxBlocks {
		return nil, fmt.Errorf("read answer: more than %d blocks", maxBlocks)
	}
	b := &block{index: len(d.blocks), kind: kind}
	d.blocks = append(d.blocks, b)
	d.byIndex[index] = b
	return b, nil
}

// kinds are those of the blocks that deltas are of.
var kinds = map[string]string{
	"text_delta": "text", "citations_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking", "input_json_delta": "tool_use",
}

func (d *decoder) delta(in gjson.Result) (c llm.Chunk, ok bool, err error) {
	delta := in.Get("delta")
	kind := text(delta.Get("type"))
	of, known := kinds[kind]
	if !known {
		return c, false, &wire.Misunderstood{What: "delta " + kind}
	}
	b := d.byIndex[in.Get("index").Int()]
	if b == nil {
		if of == "tool_use" {
			return c, false, &wire.Misunderstood{What: "tool input without a tool call"}
		}
		if b, err = d.add(in.Get("index").Int(), of); err != nil {
			return c, false, err
		}
	}
	c.Blocks = d.begin(of)
	if kind == "input_json_delta" {
		b.pieces = true
		return d.piece(b, d.read(b, delta.Get("partial_json"))), true, nil
	}
	if d.coerce {
		if kind != "text_delta" || b.kind != "text" {
			return c, false, &wire.Misunderstood{What: kind + " in plain text"}
		}
		c.Content = d.read(b, delta.Get("text"))
		return c, c.Content != "", nil
	}
	var fields jsonobj.Object
	switch kind {
	case "text_delta":
		fields.SetText("text", d.read(b, delta.Get("text")))
		fields.SetText("type", "text")
	case "citations_delta":
		citation := delta.Get("citation")
		if !citation.IsObject() {
			return c, false, &wire.Misunderstood{What: "a citation that is not an object"}
		}
		fields.SetText("type", "text")
		fields.Set("citations", json.RawMessage("["+citation.Raw+"]"))
	case "thinking_delta":
		fields.SetText("thinking", d.read(b, delta.Get("thinking")))
		fields.SetText("type", "thinking")
	case "signature_delta":
		fields.SetText("signature", d.read(b, delta.Get("signature")))
		fields.SetText("type", "thinking")
		fields.SetText("thinking", "")
	}
	c.Blocks = append(c.Blocks, indexed(fields, b.index))
	return c, true, nil
}

// piece returns a piece of the input of a call.
func (d *decoder) piece(b *block, json string) (c llm.Chunk) {
	var fields jsonobj.Object
	fields.SetText("partial_json", json)
	fields.SetText("type", "input_json_delta")
	if c.Blocks = d.begin(b.kind); c.Blocks != nil {
		c.Blocks = append(c.Blocks, indexed(fields, b.index))
	}
	if b.call {
		c.ToolCalls = []llm.ToolCallDelta{{Index: b.index, Arguments: json}}
	}
	return c
}

func indexed(fields jsonobj.Object, index int) json.RawMessage {
	fields.Set("index", json.RawMessage(fmt.Sprint(index)))
	return fields.JSON()
}

// read returns a piece of the text of a block.
func (d *decoder) read(b *block, piece gjson.Result) string {
	return d.texts.Read(strconv.Itoa(b.index), piece)
}

// counted are the members of usage that counts reads.
var counted = []string{
	"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
	"cache_creation.ephemeral_5m_input_tokens", "cache_creation.ephemeral_1h_input_tokens",
}

func (d *decoder) count(usage gjson.Result) {
	for _, name := range counted {
		if v := usage.Get(name); v.Type == gjson.Number {
			if n, ok := wire.Count(v); ok {
				d.usage[name] = n
			}
		}
	}
}

// counts returns the usage as langchain-anthropic does: input includes what was read from and written to the cache.
func (d *decoder) counts() *llm.Usage {
	if len(d.usage) == 0 {
		return nil
	}
	n := func(name string) int { return int(d.usage[name]) }
	read, written := n("cache_read_input_tokens"), n("cache_creation_input_tokens")
	u := &llm.Usage{Input: n("input_tokens") + read + written, Output: n("output_tokens"), CacheRead: read}
	u.Total = u.Input + u.Output
	details := jsonobj.Object{}
	set := func(name string, count int, reported bool) {
		if reported {
			details.Set(name, json.RawMessage(fmt.Sprint(count)))
		}
	}
	lifetimes := counted[4:]
	byLifetime := n(lifetimes[0])+n(lifetimes[1]) > 0
	if byLifetime {
		written = 0 // by lifetime below, as LangChain has it: consumers sum the details
	}
	_, reported := d.usage["cache_creation_input_tokens"]
	set("cache_creation", written, reported)
	_, reported = d.usage["cache_read_input_tokens"]
	set("cache_read", read, reported)
	for _, name := range lifetimes {
		set(strings.TrimPrefix(name, "cache_creation."), n(name), n(name) > 0)
	}
	if details.Len() > 0 {
		u.InputDetails = details.JSON()
	}
	return u
}

package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/agent/internal/wire"
	"understudy/graph/agent/llm"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// maxBlocks bounds the content blocks of one answer.
const maxBlocks = 4096

// responseDecoder reads the events of one response. It is lenient: a member of an unexpected type counts as absent, unknown progress is skipped, an item may come without its
// pieces, or pieces without the item. Chunks have the form of langchain-openai's.
type responseDecoder struct {
	byID        map[string]*output
	byIndex     map[int64]*output
	items       int // so far, as blocks and calls
	blocks      int
	calls       int
	begun       bool
	ended       bool
	reasonGiven bool // the reason of the end was yielded
	model       string
	texts       wire.Texts
}

// output is an item of the response.
type output struct {
	number   int
	kind, id string
	blocks   map[int64]int  // of the content, by number: a message has several, others one
	said     map[string]int // bytes of each text so far
	whole    bool           // nothing more is expected of it
}

func newResponseDecoder() *responseDecoder {
	return &responseDecoder{byID: map[string]*output{}, byIndex: map[int64]*output{}}
}

func (d *responseDecoder) Complete() bool { return d.ended }
func (d *responseDecoder) Ended() bool    { return d.ended }

// Last returns the reason of the end of an answer whose server only said that it is over.
func (d *responseDecoder) Last() (llm.Chunk, bool) {
	return llm.Chunk{FinishReason: d.reason(), Blocks: []json.RawMessage{}}, !d.reasonGiven
}

func (d *responseDecoder) reason() string {
	d.reasonGiven = true
	if d.calls > 0 {
		return "tool_calls"
	}
	return "stop"
}

// Whole reads an answer in one piece.
func (d *responseDecoder) Whole(data []byte) (llm.Chunk, error) {
	c, _, err := d.Event("", data)
	return c, err
}

// Event reads one event. ok is false when it has no content.
func (d *responseDecoder) Event(name string, data []byte) (c llm.Chunk, ok bool, err error) {
	if string(data) == "[DONE]" {
		d.ended = d.begun
		return c, false, nil
	}
	in := gjson.ParseBytes(data)
	if !jsonscan.Valid(data) || !in.IsObject() {
		if name == "error" {
			return c, false, &llm.Error{Status: http.StatusOK, Message: string(data)}
		}
		return c, false, &wire.Misunderstood{What: "an event that is not a JSON object"}
	}
	kind := str(in.Get("type"))
	if kind == "" {
		kind = name
	}
	if str(in.Get("object")) == "response" { // an answer in one piece
		kind, in = "response."+str(in.Get("status")), gjson.Parse(`{"response":`+in.Raw+`}`)
	}
	switch kind {
	case "response.output_item.added":
		err = d.added(in, &c)
	case "response.output_item.done":
		err = d.item(in.Get("item"), d.find(in), in.Get("output_index").Int(), &c)
	case "response.output_text.delta", "response.output_text.done", "response.output_text.annotation.added", "response.refusal.done", "response.function_call_arguments.delta",
		"response.function_call_arguments.done", "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		err = d.piece(strings.TrimPrefix(kind, "response."), in, &c)
	case "response.completed", "response.incomplete":
		err = d.end(in.Get("response"), &c)
	case "response.failed", "response.cancelled", "error":
		return c, false, failure(kind, in)
	default:
		if e := (&llm.Error{Status: http.StatusOK}); kind == name && fill(in, e) { // of a gateway
			return c, false, e
		}
		if !strings.HasPrefix(kind, "response.") && kind != "keepalive" {
			return c, false, &wire.Misunderstood{What: "event " + kind}
		}
	}
	if err == nil && d.items > maxBlocks {
		err = fmt.Errorf("read answer: more than %d items", maxBlocks)
	}
	d.begun = d.begun || !c.Empty()
	if model := str(in.Get("response.model")); model != "" && d.model == "" {
		d.model, c.Model = model, model
	}
	if !c.Empty() && c.Blocks == nil {
		c.Blocks = []json.RawMessage{}
	}
	return c, !c.Empty() || c.Model != "", err
}

// failure is the error of an event.
func failure(kind string, in gjson.Result) error {
	e := &llm.Error{Status: http.StatusOK}
	if !fill(in.Get("response"), e) && !fill(in, e) {
		e.Message, e.Code, e.Param = textOf(in.Get("message")), textOf(in.Get("code")), textOf(in.Get("param"))
	}
	if e.Message == "" {
		e.Message = "the provider ended the answer: " + strings.TrimPrefix(kind, "response.")
	}
	return e
}

// find returns the item of an event; nil: it is not known. Some servers change the ids of items, others their numbers.
func (d *responseDecoder) find(in gjson.Result) *output {
	id := str(in.Get("item_id"))
	if id == "" {
		id = str(in.Get("item.id"))
	}
	if known := d.byID[id]; known != nil && id != "" {
		return known
	}
	known := d.byIndex[in.Get("output_index").Int()]
	if kind := str(in.Get("item.type")); known != nil && kind != "" && (kind != known.kind || known.whole) {
		return nil
	}
	return known
}

// add begins an item.
func (d *responseDecoder) add(kind, id string, index int64) *output {
	o := &output{number: d.items, kind: kind, id: strings.Clone(id), blocks: map[int64]int{}, said: map[string]int{}}
	d.items++
	d.byIndex[index] = o
	if id != "" {
		d.byID[o.id] = o
	}
	return o
}

// block adds members to a block of an item.
func (d *responseDecoder) block(o *output, part int64, kind string, c *llm.Chunk, set func(fields *jsonobj.Object)) error {
	at, known := o.blocks[part]
	if !known {
		if d.blocks == maxBlocks {
			return fmt.Errorf("read answer: more than %d blocks", maxBlocks)
		}
		at = d.blocks
		d.blocks++
		o.blocks[part] = at
	}
	var fields jsonobj.Object
	fields.SetText("type", kind)
	set(&fields)
	if kind != "refusal" { // it comes whole
		fields.Set("index", json.RawMessage(strconv.Itoa(at)))
	}
	if n := len(c.Blocks); n > 0 && kind != "refusal" && gjson.GetBytes(c.Blocks[n-1], "index").Int() == int64(at) {
		c.Blocks[n-1] = joined(c.Blocks[n-1], &fields)
	} else {
		c.Blocks = append(c.Blocks, fields.JSON())
	}
	return nil
}

// joined adds a piece of a block to another of the same event: a chunk has each block once.
func joined(block json.RawMessage, piece *jsonobj.Object) json.RawMessage {
	out := jsonobj.Of(block)
	piece.Each(func(name string, value json.RawMessage) {
		have, more := gjson.ParseBytes(out.Get(name)), gjson.ParseBytes(value)
		switch {
		case name == "type" || name == "index":
		case have.Type == gjson.String && more.Type == gjson.String && name != "id":
			out.SetText(name, have.Str+more.Str)
		case have.IsArray() && more.IsArray() && len(have.Array()) > 0:
			out.Set(name, []byte(have.Raw[:len(have.Raw)-1]+","+more.Raw[1:]))
		default:
			out.Set(name, value)
		}
	})
	return out.JSON()
}

func (d *responseDecoder) added(in gjson.Result, c *llm.Chunk) error {
	item := in.Get("item")
	if d.byID[str(item.Get("id"))] != nil {
		return nil
	}
	return d.begin(d.add(str(item.Get("type")), str(item.Get("id")), in.Get("output_index").Int()), item, c)
}

// begin writes what an item begins with.
func (d *responseDecoder) begin(o *output, item gjson.Result, c *llm.Chunk) error {
	switch o.kind {
	case "message":
		if phase := str(item.Get("phase")); phase != "" {
			return d.block(o, 0, "text", c, func(f *jsonobj.Object) {
				f.SetText("text", "")
				f.SetText("phase", phase)
			})
		}
	case "function_call":
		name, call := str(item.Get("name")), str(item.Get("call_id"))
		if call == "" {
			call = llm.NewCallID()
		}
		d.calls++
		err := d.block(o, 0, o.kind, c, func(f *jsonobj.Object) {
			f.SetText("name", name)
			f.SetText("arguments", "")
			f.SetText("call_id", call)
			if o.id != "" {
				f.SetText("id", o.id)
			}
		})
		c.ToolCalls = append(c.ToolCalls, llm.ToolCallDelta{Index: o.blocks[0], ID: call, Name: name})
		return err
	case "reasoning":
		return d.block(o, 0, o.kind, c, func(f *jsonobj.Object) {
			if o.id != "" {
				f.SetText("id", o.id)
			}
			f.Set("summary", json.RawMessage("[]"))
		})
	}
	return nil
}

// pieceKinds are the kinds of the items that pieces are of, by the beginning of the event's name.
var pieceKinds = []struct{ prefix, kind string }{{"output_text", "message"}, {"refusal", "message"}, {"function_call", "function_call"}, {"reasoning", "reasoning"}}

// piece reads a part of an item.
func (d *responseDecoder) piece(name string, in gjson.Result, c *llm.Chunk) error {
	o := d.find(in)
	if o == nil {
		for _, p := range pieceKinds {
			if strings.HasPrefix(name, p.prefix) {
				if p.kind == "function_call" { // of which tool, is not known
					return &wire.Misunderstood{What: "arguments without a call"}
				}
				o = d.add(p.kind, str(in.Get("item_id")), in.Get("output_index").Int())
				if err := d.begin(o, gjson.Result{}, c); err != nil {
					return err
				}
			}
		}
	}
	part := in.Get("content_index").Int()
	switch name {
	case "output_text.delta":
		return d.text(o, part, in.Get("delta"), c)
	case "output_text.done":
		return d.textDone(o, part, in.Get("text"), c)
	case "output_text.annotation.added":
		if note := in.Get("annotation"); note.IsObject() {
			return d.notes(o, part, "["+note.Raw+"]", c)
		}
	case "refusal.done":
		return d.refusal(o, part, in.Get("refusal"), c)
	case "function_call_arguments.delta":
		return d.arguments(o, in.Get("delta"), c)
	case "function_call_arguments.done":
		if o.said["arguments"] == 0 {
			return d.arguments(o, in.Get("arguments"), c)
		}
	case "reasoning_summary_part.added":
		return d.thoughts(o, summary, c, in.Get("summary_index").Int(), in.Get("part.text"))
	case "reasoning_summary_text.delta":
		return d.thoughts(o, summary, c, in.Get("summary_index").Int(), in.Get("delta"))
	case "reasoning_text.delta":
		return d.thoughts(o, thinking, c, part, in.Get("delta"))
	}
	return nil
}

// read returns a piece of a text of an item.
func (d *responseDecoder) read(o *output, name string, in gjson.Result) string {
	text := d.texts.Read(strconv.Itoa(o.number)+" "+name, in)
	o.said[name] += len(text)
	return text
}

func (d *responseDecoder) text(o *output, part int64, in gjson.Result, c *llm.Chunk) error {
	text := d.read(o, textName(part), in)
	if text == "" {
		return nil
	}
	return d.block(o, part, "text", c, func(f *jsonobj.Object) { f.SetText("text", text) })
}

func textName(part int64) string { return "text " + strconv.FormatInt(part, 10) }

// textDone writes the id of a text that is complete, and the text if it came without pieces.
func (d *responseDecoder) textDone(o *output, part int64, in gjson.Result, c *llm.Chunk) error {
	if o.said[textName(part)] == 0 {
		if err := d.text(o, part, in, c); err != nil {
			return err
		}
	}
	named := "id " + strconv.FormatInt(part, 10)
	if _, known := o.blocks[part]; !known || o.id == "" || o.said[named] > 0 {
		return nil
	}
	o.said[named] = 1
	return d.block(o, part, "text", c, func(f *jsonobj.Object) {
		f.SetText("text", "")
		f.SetText("id", o.id)
	})
}

func (d *responseDecoder) notes(o *output, part int64, list string, c *llm.Chunk) error {
	o.said["notes"] += len(list)
	return d.block(o, part, "text", c, func(f *jsonobj.Object) { f.Set("annotations", json.RawMessage(list)) })
}

func (d *responseDecoder) refusal(o *output, part int64, in gjson.Result, c *llm.Chunk) error {
	if o.said["refusal"] > 0 {
		return nil
	}
	text := d.read(o, "refusal", in)
	if text == "" {
		return nil
	}
	return d.block(o, part, "refusal", c, func(f *jsonobj.Object) { f.SetText("refusal", text) })
}

// arguments writes a piece of the arguments of a call.
func (d *responseDecoder) arguments(o *output, in gjson.Result, c *llm.Chunk) error {
	text := ""
	if in.IsObject() { // of servers that send it as it is
		text = in.Raw
		o.said["arguments"] += len(text)
	} else if text = d.read(o, "arguments", in); text == "" {
		return nil
	}
	if err := d.block(o, 0, o.kind, c, func(f *jsonobj.Object) { f.SetText("arguments", text) }); err != nil {
		return err
	}
	at := o.blocks[0]
	if n := len(c.ToolCalls); n > 0 && c.ToolCalls[n-1].Index == at {
		c.ToolCalls[n-1].Arguments += text
	} else {
		c.ToolCalls = append(c.ToolCalls, llm.ToolCallDelta{Index: at, Arguments: text})
	}
	return nil
}

// thoughtList is a list of parts of reasoning.
type thoughtList struct{ name, kind string }

var (
	summary  = thoughtList{"summary", "summary_text"}
	thinking = thoughtList{"content", "reasoning_text"}
)

// thoughts writes pieces of reasoning: of the parts of a list from number first.
func (d *responseDecoder) thoughts(o *output, list thoughtList, c *llm.Chunk, first int64, in ...gjson.Result) error {
	var pieces []byte
	for i, piece := range in {
		n := first + int64(i)
		text := d.read(o, thoughtName(list, n), piece)
		if text == "" {
			continue
		}
		if pieces != nil {
			pieces = append(pieces, ',')
		}
		pieces = fmt.Appendf(pieces, `{"index":%d,"type":%q,"text":%s}`, n, list.kind, jsonobj.Quote(text))
	}
	if pieces == nil {
		return nil
	}
	return d.block(o, 0, o.kind, c, func(f *jsonobj.Object) { f.Set(list.name, slices.Concat([]byte("["), pieces, []byte("]"))) })
}

func thoughtName(list thoughtList, n int64) string { return list.name + " " + strconv.FormatInt(n, 10) }

// item writes what is left of an item that is complete; o is nil if nothing of it came before.
func (d *responseDecoder) item(item gjson.Result, o *output, index int64, c *llm.Chunk) error {
	if o == nil {
		o = d.add(str(item.Get("type")), str(item.Get("id")), index)
		if err := d.begin(o, item, c); err != nil {
			return err
		}
	}
	if o.whole {
		return nil
	}
	o.whole = true
	switch o.kind {
	case "message":
		for i, p := range item.Get("content").Array() {
			part, err := int64(i), error(nil)
			switch str(p.Get("type")) {
			case "output_text":
				if notes := p.Get("annotations"); o.said["notes"] == 0 && len(notes.Array()) > 0 {
					err = d.notes(o, part, notes.Raw, c)
				}
				if err == nil {
					err = d.textDone(o, part, p.Get("text"), c)
				}
			case "refusal":
				err = d.refusal(o, part, p.Get("refusal"), c)
			}
			if err != nil {
				return err
			}
		}
	case "function_call":
		if o.said["arguments"] == 0 {
			return d.arguments(o, item.Get("arguments"), c)
		}
	case "reasoning":
		for _, list := range []thoughtList{summary, thinking} {
			var left []gjson.Result // empty: it came before
			for i, p := range item.Get(list.name).Array() {
				text := p.Get("text")
				if o.said[thoughtName(list, int64(i))] > 0 {
					text = gjson.Result{}
				}
				left = append(left, text)
			}
			if err := d.thoughts(o, list, c, 0, left...); err != nil {
				return err
			}
		}
		if secret := str(item.Get("encrypted_content")); secret != "" {
			return d.block(o, 0, o.kind, c, func(f *jsonobj.Object) { f.SetText("encrypted_content", secret) })
		}
	case "":
		return &wire.Misunderstood{What: "an item without a type"}
	default: // what the server itself did
		return d.block(o, 0, o.kind, c, func(f *jsonobj.Object) {
			jsonobj.Of(json.RawMessage(item.Raw)).Each(func(name string, value json.RawMessage) {
				if name != "type" && name != "index" && string(value) != "null" {
					f.Set(name, value)
				}
			})
		})
	}
	return nil
}

// ofResponse are the members of a response that messages keep.
var ofResponse = []string{"id", "created_at", "incomplete_details", "metadata", "model", "object", "service_tier", "status", "user"}

// end reads the response when it is complete, with the items that did not come before.
func (d *responseDecoder) end(in gjson.Result, c *llm.Chunk) error {
	for i, item := range in.Get("output").Array() {
		o := d.byID[str(item.Get("id"))]
		if at := d.byIndex[int64(i)]; o == nil && at != nil && at.kind == str(item.Get("type")) {
			o = at
		}
		if err := d.item(item, o, int64(i), c); err != nil {
			return err
		}
	}
	d.ended = true
	c.FinishReason = d.reason()
	if str(in.Get("status")) == "incomplete" || in.Get("incomplete_details").IsObject() {
		switch reason := str(in.Get("incomplete_details.reason")); reason {
		case "max_output_tokens", "":
			c.FinishReason = "length" // in the words of the chat API, which middleware knows
		default:
			c.FinishReason = reason
		}
	}
	var kept jsonobj.Object
	for _, name := range ofResponse {
		if v := in.Get(name); v.Exists() && v.Type != gjson.Null {
			kept.Set(name, json.RawMessage(v.Raw))
		}
	}
	if kept.Len() > 0 {
		c.Metadata = kept.JSON()
	}
	if usage := in.Get("usage"); usage.IsObject() {
		c.Usage = usageOf(usage)
	}
	return nil
}

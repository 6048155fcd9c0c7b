package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/internal/callids"
	"understudy/graph/agent/llm"
	"understudy/internal/jsonobj"
)

// NeedsResponses reports whether OpenAI serves a model by its Responses API alone, as far as its name says so.
func NeedsResponses(model string) bool { return responsesOnly.MatchString(model) }

var (
	responsesOnly = regexp.MustCompile(`codex|^gpt-[0-9.]+-pro|^o[0-9]+(-mini)?-(pro|deep-research)|^computer-use`)
	reasoning     = regexp.MustCompile(`codex|^o[0-9]|^gpt-([5-9]|[1-9][0-9])`)
)

// responsesRequest is a request of the Responses API. It has no place for stop words, seeds and penalties.
type responsesRequest struct {
	Model           string          `json:"model,omitempty"`
	Input           []any           `json:"input"`
	Stream          bool            `json:"stream"`
	Tools           []responsesTool `json:"tools,omitempty"`
	ToolChoice      any             `json:"tool_choice,omitempty"`
	MaxOutputTokens int             `json:"max_output_tokens,omitempty"`
	Temperature     float64         `json:"temperature,omitempty"`
	TopP            float64         `json:"top_p,omitempty"`
	Text            any             `json:"text,omitempty"`
}

// responsesTool has strict even if it is false: without it the server changes schemas until they are strict, and requires what is optional.
type responsesTool struct {
	Type        string `json:"type"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Parameters  any    `json:"parameters"`
	Strict      bool   `json:"strict"`
}

// streamResponse asks for an answer. If the server does not know items that an earlier answer had (it deleted them, another server made them, or it stores none), it is asked
// again without them: else all further runs of the thread would fail.
func (c *Client) streamResponse(ctx context.Context, messages []llms.MessageContent, options []llms.CallOption) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		body, own, err := c.responsesBody(messages, options, true)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		begun := false
		for chunk, err := range c.wire.Stream(ctx, body) {
			if err != nil && own && !begun && ctx.Err() == nil && refusesItems(err) {
				cmp.Or(c.opts.Log, slog.Default()).WarnContext(ctx, "model refused items of earlier answers; asking again without its reasoning", "model", c.opts.Model, "error", err)
				if body, _, err = c.responsesBody(messages, options, false); err != nil {
					yield(llm.Chunk{}, err)
					return
				}
				c.wire.Stream(ctx, body)(yield)
				return
			}
			begun = true
			if !yield(chunk, err) {
				return
			}
		}
	}
}

// itemRefusals are words of errors about items of earlier answers.
var itemRefusals = []string{"item with id", "encrypted", "required following item", "without its required", "duplicate item", "items are not persisted"}

func refusesItems(err error) bool {
	var e *llm.Error
	if !errors.As(err, &e) || e.Status != http.StatusBadRequest && e.Status != http.StatusNotFound && e.Status != http.StatusUnprocessableEntity {
		return false
	}
	text := strings.ToLower(e.Code + " " + e.Message)
	return slices.ContainsFunc(itemRefusals, func(word string) bool { return strings.Contains(text, word) })
}

// responsesBody writes a request. With items it has what only the server knows that made it: the ids of items, and reasoning; own reports whether there is any.
func (c *Client) responsesBody(messages []llms.MessageContent, options []llms.CallOption, items bool) (body []byte, own bool, err error) {
	var opts llms.CallOptions
	for _, o := range options {
		o(&opts)
	}
	r := responsesRequest{Model: cmp.Or(opts.Model, c.opts.Model), Stream: true, MaxOutputTokens: opts.MaxTokens, Temperature: opts.Temperature, TopP: opts.TopP}
	if opts.JSONMode || opts.ResponseMIMEType == "application/json" {
		r.Text = object{"format": object{"type": "json_object"}}
	}
	w := inputs{writer: writer{quirks: c.opts.Quirks, own: c.own, tools: map[string]bool{}}, items: items, stored: string(c.opts.Extra["store"]) != "false"}
	for _, t := range opts.Tools {
		f := t.Function
		w.tools[f.Name] = true
		if f.Parameters == nil {
			f.Parameters = object{"type": "object", "properties": object{}}
		}
		r.Tools = append(r.Tools, responsesTool{Type: "function", Name: f.Name, Description: f.Description, Parameters: f.Parameters, Strict: f.Strict})
	}
	if len(r.Tools) > 0 {
		r.ToolChoice = toolChoice(opts.ToolChoice)
		if choice, ok := r.ToolChoice.(llms.ToolChoice); ok && choice.Function != nil {
			r.ToolChoice = object{"type": "function", "name": choice.Function.Name}
		}
	}
	for i, m := range messages {
		if err := w.message(m); err != nil {
			return nil, false, llm.InMessage(i, err)
		}
	}
	r.Input = w.list
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, false, err
	}
	members := jsonobj.Of(raw)
	setMembers(members, c.opts.Extra)
	model := members.Text("model")
	reasons := reasoning.MatchString(model) && !strings.Contains(model, "chat") // gpt-5-chat-latest
	if reasons && gjson.GetBytes(members.Get("reasoning"), "effort").Str != "none" {
		members.Delete("temperature") // refused there
		members.Delete("top_p")
	}
	if items && !w.stored && members.Get("include") == nil && (reasons || members.Get("reasoning") != nil) {
		members.Set("include", json.RawMessage(`["reasoning.encrypted_content"]`)) // else its reasoning is lost with each call of a tool
		w.own = true
	}
	return members.JSON(), w.returned || w.own, nil
}

type object = map[string]any

// otherNames are the members of chat completions that have another place in this API: a member, or one inside of a member; "": none. Of several for one place the last counts.
var otherNames = []struct{ name, member, inner string }{
	{"max_tokens", "max_output_tokens", ""},
	{"max_completion_tokens", "max_output_tokens", ""},
	{"reasoning_effort", "reasoning", "effort"},
	{"verbosity", "text", "verbosity"},
	{"response_format", "text", "format"},
	{"stream_options", "", ""},
	{"stop", "", ""},
}

// setMembers puts configured members into a request, under the names that they have in this API. null removes what is in the request, not another configured member.
func setMembers(members *jsonobj.Object, extra map[string]json.RawMessage) {
	null := func(name string) bool { return string(extra[name]) == "null" }
	inside := func(member string, change func(*jsonobj.Object)) {
		in := jsonobj.Of(members.Get(member))
		if change(in); in.Len() > 0 {
			members.Set(member, in.JSON())
		} else {
			members.Delete(member)
		}
	}
	own := maps.Clone(extra)
	for name := range extra {
		if null(name) {
			members.Delete(name)
			delete(own, name)
		}
	}
	for _, o := range otherNames {
		if delete(own, o.name); !null(o.name) {
			continue
		}
		if o.inner == "" {
			members.Delete(o.member)
		} else {
			inside(o.member, func(in *jsonobj.Object) { in.Delete(o.inner) })
		}
	}
	for _, o := range otherNames {
		value, configured := extra[o.name]
		switch {
		case !configured || null(o.name) || o.member == "":
		case o.inner == "":
			members.Set(o.member, value)
		default:
			if o.name == "response_format" {
				value = textFormat(value)
			}
			inside(o.member, func(in *jsonobj.Object) { in.Set(o.inner, value) })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		value := own[name]
		if (name == "reasoning" || name == "text") && gjson.ParseBytes(value).IsObject() {
			value = jsonobj.Merge(value, members.Get(name))
		}
		members.Set(name, value)
	}
}

// textFormat returns a response_format of chat completions as this API has it.
func textFormat(value json.RawMessage) json.RawMessage {
	format := jsonobj.Of(value)
	if schema := format.Get("json_schema"); schema != nil {
		format.Delete("json_schema")
		format.Merge(jsonobj.Of(schema))
	}
	return format.JSON()
}

// inputs writes the items of a request.
type inputs struct {
	writer
	items    bool // with what only the server knows that made it
	stored   bool // the server keeps the items of its answers
	returned bool // there is some
	list     []any
}

// inputMessage is a message among the items.
type inputMessage struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	ID      string          `json:"id,omitempty"`
	Phase   json.RawMessage `json:"phase,omitempty"`
	Content []object        `json:"content"`
}

func (w *inputs) message(m llms.MessageContent) error {
	switch m.Role {
	case llms.ChatMessageTypeSystem:
		return w.person("system", m.Parts)
	case llms.ChatMessageTypeHuman, llms.ChatMessageTypeGeneric:
		return w.person("user", m.Parts)
	case llms.ChatMessageTypeAI:
		return w.answer(m.Parts)
	case llms.ChatMessageTypeTool, llms.ChatMessageTypeFunction:
		for _, p := range m.Parts {
			result, rich, err := llm.Result(p)
			if err != nil {
				return err
			}
			out := object{"type": "function_call_output", "call_id": w.id(result.ToolCallID), "output": result.Content}
			if seen := images(rich.Content); w.quirks.ToolImages && len(seen) > 0 {
				list := []any{object{"type": "input_text", "text": result.Content}}
				for _, image := range seen {
					chat, _ := image.(object)
					block, _ := inputPart(chat)
					list = append(list, block)
				}
				out["output"] = list
			}
			w.list = append(w.list, out)
		}
		return nil
	}
	return fmt.Errorf("role %q is not known", m.Role)
}

// person writes a message that is not of a model.
func (w *inputs) person(role string, parts []llms.ContentPart) error {
	content := []object{}
	for _, p := range parts {
		rich, ok := p.(llm.Part)
		if ok {
			if p = rich.ContentPart; p == nil && (rich.Block == nil || rich.Optional) {
				continue
			}
		}
		switch p := p.(type) {
		case llms.TextContent:
			content = append(content, object{"type": "input_text", "text": p.Text})
		case nil, llms.ImageURLContent, llms.BinaryContent:
			block, err := w.input(p, rich)
			if err != nil {
				return err
			}
			content = append(content, block)
		default:
			return fmt.Errorf("%T cannot be sent as %s", p, role)
		}
	}
	w.list = append(w.list, inputMessage{Type: "message", Role: role, Content: content})
	return nil
}

// input writes a part that is not text, or a text in its place.
func (w *inputs) input(p llms.ContentPart, rich llm.Part) (object, error) {
	if at := gjson.GetManyBytes(rich.Block, "type", "url", "source.url"); p == nil && rich.Broken == "" && (at[0].Str == "file" || at[0].Str == "document") {
		if address := cmp.Or(str(at[1]), str(at[2])); address != "" {
			return object{"type": "input_file", "file_url": address}, nil
		}
	}
	chat, reason := w.data(p, rich)
	if reason == "" {
		var block object
		if block, reason = inputPart(chat); reason == "" {
			return block, nil
		}
	}
	text, err := rich.Without(reason)
	return object{"type": "input_text", "text": text}, err
}

// inputPart returns a part of the chat API as this one has it; reason is why it has none.
func inputPart(chat object) (block object, reason string) {
	switch kind := chat["type"]; kind {
	case "text":
		return object{"type": "input_text", "text": chat["text"]}, ""
	case "image_url":
		image, _ := chat["image_url"].(map[string]string)
		out := object{"type": "input_image", "image_url": image["url"]}
		if image["detail"] != "" {
			out["detail"] = image["detail"]
		}
		return out, ""
	case "file":
		out := object{"type": "input_file"}
		file, _ := chat["file"].(map[string]string)
		for name, value := range file {
			out[name] = value
		}
		return out, ""
	}
	return nil, "the Responses API takes no audio"
}

// answer writes the message of a model: an item for each run of texts, and for each call, at the places where the model had them. Reasoning is refused without the item that
// followed it, which may be gone: a call of a tool that was not made.
func (w *inputs) answer(parts []llms.ContentPart) error {
	calls, order := map[string]llms.ToolCall{}, []string{}
	for _, p := range parts {
		if rich, ok := p.(llm.Part); ok {
			p = rich.ContentPart
		}
		if call, ok := p.(llms.ToolCall); ok {
			if call.FunctionCall == nil {
				return fmt.Errorf("tool call %s has no function", call.ID)
			}
			if _, twice := calls[call.ID]; !twice {
				order = append(order, call.ID)
			}
			calls[call.ID] = call
		}
	}
	var held []any         // reasoning
	var last *inputMessage // the message that texts are added to, and its id in the conversation
	var lastID string
	add := func(item any, following bool) {
		if following && len(held) > 0 {
			w.list, w.returned = append(w.list, held...), true
		}
		held, last = nil, nil
		w.list = append(w.list, item)
	}
	say := func(block gjson.Result, content object) {
		id := str(block.Get("id"))
		if last != nil && lastID == id {
			last.Content = append(last.Content, content)
			return
		}
		m := &inputMessage{Type: "message", Role: "assistant", ID: w.known(id, "msg"), Content: []object{content}}
		if phase := block.Get("phase"); phase.Type == gjson.String {
			m.Phase = json.RawMessage(phase.Raw)
		}
		add(m, id != "")
		last, lastID = m, id
	}
	for _, p := range parts {
		rich, ok := p.(llm.Part)
		if ok {
			p = rich.ContentPart
		}
		block := gjson.ParseBytes(rich.Block)
		id, kind := str(block.Get("id")), block.Get("type").Str
		if text, isText := p.(llms.TextContent); isText {
			content := object{"type": "output_text", "text": text.Text, "annotations": []any{}}
			if notes := block.Get("annotations"); notes.IsArray() {
				content["annotations"] = json.RawMessage(notes.Raw)
			}
			say(block, content)
			continue
		}
		switch {
		case p != nil: // calls without a block follow; a model's own images are nothing that it takes
		case kind == "refusal":
			say(block, object{"type": kind, "refusal": block.Get("refusal").String()})
		case kind == "function_call":
			call, made := calls[str(block.Get("call_id"))]
			if !made {
				held, last = nil, nil
				continue
			}
			delete(calls, call.ID)
			add(w.call(call, id), true)
		case id == "" || !w.items || !w.stored && block.Get("encrypted_content").Str == "":
		case kind == "reasoning" && block.Get("summary").IsArray():
			held = append(held, unnumbered(block))
		case strings.HasSuffix(kind, "_call") || slices.Contains(serverItems, kind):
			add(unnumbered(block), true)
			w.returned = true
		}
	}
	for _, id := range order {
		if call, left := calls[id]; left {
			add(w.call(call, ""), false)
		}
	}
	return nil
}

// serverItems are the types of items of what the server itself does, in addition to its calls.
var serverItems = []string{"mcp_list_tools", "mcp_approval_request", "compaction"}

func (w *inputs) call(call llms.ToolCall, id string) object {
	name := call.FunctionCall.Name
	if !w.tools[name] {
		name = callids.Name(name)
	}
	out := object{"type": "function_call", "call_id": w.id(call.ID), "name": name, "arguments": call.FunctionCall.Arguments}
	if id = w.known(id, "fc"); id != "" {
		out["id"] = id
	}
	return out
}

// known returns the id of an item if the server knows it; "": it does not. Other providers have ids of other forms, which are refused.
func (w *inputs) known(id, prefix string) string {
	if !w.items || !w.stored || !strings.HasPrefix(id, prefix) {
		return ""
	}
	w.returned = true
	return id
}

// unnumbered returns a block without the numbers by which its pieces were put together.
func unnumbered(block gjson.Result) json.RawMessage {
	out := jsonobj.Of(json.RawMessage(block.Raw))
	out.Delete("index")
	for _, name := range []string{"summary", "content"} {
		if !block.Get(name).IsArray() {
			continue
		}
		parts := []json.RawMessage{}
		for _, p := range block.Get(name).Array() {
			part := jsonobj.Of(json.RawMessage(p.Raw))
			part.Delete("index")
			parts = append(parts, part.JSON())
		}
		list, _ := json.Marshal(parts) // valid JSON
		out.Set(name, list)
	}
	return out.JSON()
}

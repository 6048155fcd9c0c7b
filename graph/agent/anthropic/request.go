package anthropic

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/internal/callids"
	"understudy/graph/agent/llm"
	"understudy/internal/jsonscan"
)

type request struct {
	Model         string    `json:"model"`
	MaxTokens     int       `json:"max_tokens"`
	System        any       `json:"system,omitempty"` // text, or blocks
	Messages      []message `json:"messages"`
	Stream        bool      `json:"stream"`
	Tools         []tool    `json:"tools,omitempty"`
	ToolChoice    any       `json:"tool_choice,omitempty"`
	Temperature   float64   `json:"temperature,omitempty"`
	TopP          float64   `json:"top_p,omitempty"`
	TopK          int       `json:"top_k,omitempty"`
	StopSequences []string  `json:"stop_sequences,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content []part `json:"content"`
}

// part is a content block.
type part map[string]any

func (p part) is(kinds ...string) bool {
	for _, kind := range kinds {
		if p["type"] == kind {
			return true
		}
	}
	return false
}

func (p part) thinks() bool { return p.is("thinking", "redacted_thinking") }

// mark identifies a block of thinking.
func (p part) mark() string {
	if signature, ok := p["signature"].(string); ok {
		return signature
	}
	data, _ := p["data"].(string)
	return data
}

type tool struct {
	Name         string `json:"name"`
	Description  string `json:"description,omitempty"`
	InputSchema  any    `json:"input_schema"`
	CacheControl any    `json:"cache_control,omitempty"`
}

const (
	assistant = "assistant"
	user      = "user"
	maxAnswer = 8192 // the API requires a number
	maxID     = 64
)

// body writes the request. plain reports that an answer of text alone comes as text: the rule of LangChain. asked reports that the model
// is to think.
func (c *Client) body(messages []llms.MessageContent, options []llms.CallOption) (body []byte, plain, asked bool, err error) {
	var opts llms.CallOptions
	for _, o := range options {
		o(&opts)
	}
	w := writer{tools: map[string]bool{}, unasked: map[string]bool{}}
	r := request{Model: c.opts.Model, Stream: true, Temperature: opts.Temperature, TopP: opts.TopP, TopK: opts.TopK}
	if opts.Model != "" {
		r.Model = opts.Model
	}
	for _, s := range opts.StopWords {
		if strings.TrimSpace(s) != "" { // refused
			r.StopSequences = append(r.StopSequences, s)
		}
	}
	for _, t := range opts.Tools {
		w.tools[t.Function.Name] = true
		r.Tools = append(r.Tools, tool{Name: t.Function.Name, Description: t.Function.Description, InputSchema: schema(t.Function.Parameters)})
	}
	for i, m := range messages {
		if err := w.message(m); err != nil {
			return nil, false, false, llm.InMessage(i, err)
		}
	}
	r.Messages = w.end()
	if n := len(r.Messages); n == 0 || w.blank && r.Messages[n-1].Role == assistant {
		return nil, false, false, &llm.Unsendable{Reason: "the last message has no text, which Anthropic refuses"}
	}
	switch {
	case len(w.system) > 1 || len(w.system) == 1 && (len(w.system[0]) > 2 || c.opts.Caching != ""):
		r.System = w.system
	case len(w.system) == 1:
		r.System = w.system[0]["text"]
	}
	thinking := c.thinking(r.Messages, w.unasked)
	if len(r.Tools) > 0 {
		r.ToolChoice = toolChoice(opts.ToolChoice, thinking != "")
	} else if len(w.called) > 0 { // refused without their tools
		for _, name := range w.called {
			r.Tools = append(r.Tools, tool{Name: name, InputSchema: schema(nil)})
		}
		r.ToolChoice = map[string]string{"type": "none"}
	}
	r.MaxTokens = c.maxTokens(opts.MaxTokens)
	c.cache(&r)
	body, err = c.extra(r, thinking)
	return body, thinking == "" && len(opts.Tools) == 0 && !w.cites && !c.has("tools") && !c.has("mcp_servers"), thinking != "", err
}

// has reports whether a member of the request is configured, such as tools that the server executes.
func (c *Client) has(name string) bool {
	v := c.opts.Extra[name]
	return v != nil && string(v) != "null"
}

// thinking returns the configured thinking; "" for none. The loop of tool calls at the end of a conversation is one turn of the model,
// which has to begin with thinking if it is enabled, and must have none if it is not. Where another model called the first tools there is
// none that could be returned: the turn continues without. A provider that thinks unasked gets those thoughts back: it needs them.
func (c *Client) thinking(messages []message, unasked map[string]bool) string {
	v := gjson.ParseBytes(c.opts.Extra["thinking"])
	kind := v.Get("type").Str
	turn, begins := lastTurn(messages)
	if kind == "adaptive" || kind == "enabled" && begins {
		return v.Raw
	}
	for i := range turn {
		if turn[i].Role == assistant {
			// Never all of them: the last block is another one, see complete.
			turn[i].Content = slices.DeleteFunc(turn[i].Content, func(p part) bool { return p.thinks() && !unasked[p.mark()] })
		}
	}
	return ""
}

// lastTurn returns the messages of a turn of the model that is not over, and whether it begins with thinking. A person who speaks next to
// the results of tools may begin another turn: what follows has to begin with thinking, too.
func lastTurn(messages []message) (turn []message, begins bool) {
	begins = true
	from := len(messages)
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if m.Role == user && !m.Content[0].is("tool_result") {
			break
		}
		from = i
		if m.Role != assistant {
			continue
		}
		first := i == 0 || slices.ContainsFunc(messages[i-1].Content, func(p part) bool { return !p.is("tool_result") })
		begins = begins && (!first || m.Content[0].thinks())
	}
	return messages[from:], begins
}

// maxTokens returns the most tokens of an answer, which have to be more than those of the thinking.
func (c *Client) maxTokens(n int) int {
	if n == 0 {
		n = c.opts.MaxTokens
	}
	if n > 0 {
		return n
	}
	return maxAnswer + int(gjson.GetBytes(c.opts.Extra["thinking"], "budget_tokens").Int())
}

// extra puts the configured members over those of the request.
func (c *Client) extra(r request, thinking string) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil || len(c.opts.Extra) == 0 {
		return body, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	for name, value := range c.opts.Extra {
		if string(value) == "null" || name == "thinking" && thinking == "" && gjson.GetBytes(value, "type").Str == "enabled" {
			delete(members, name)
		} else {
			members[name] = value
		}
	}
	return json.Marshal(members)
}

// maxMarks is how many marks of the cache a request may have.
const maxMarks = 4

// cache marks the ends of what the next request repeats.
func (c *Client) cache(r *request) {
	if c.opts.Caching == "" {
		return
	}
	mark := map[string]string{"type": "ephemeral"}
	if c.opts.Caching != "5m" {
		mark["ttl"] = c.opts.Caching
	}
	marks := 0
	system, _ := r.System.([]part)
	for _, list := range append([]message{{Content: system}}, r.Messages...) {
		for _, p := range list.Content {
			if p["cache_control"] != nil {
				marks++
			}
		}
	}
	free := func() bool { marks++; return marks <= maxMarks }
	if n := len(r.Messages); n > 0 {
		content := r.Messages[n-1].Content
		if last := content[len(content)-1]; last["cache_control"] == nil && !last.thinks() && free() {
			last["cache_control"] = mark
		}
	}
	if n := len(system); n > 0 && system[n-1]["cache_control"] == nil && free() {
		system[n-1]["cache_control"] = mark
	}
	if n := len(r.Tools); n > 0 && free() {
		r.Tools[n-1].CacheControl = mark
	}
}

// schema returns the schema of a tool's input. It has to be one of an object.
func schema(parameters any) any {
	raw, err := json.Marshal(parameters)
	if err != nil || !gjson.ParseBytes(raw).IsObject() {
		return map[string]any{"type": "object", "properties": map[string]any{}}
	}
	if gjson.GetBytes(raw, "type").Str != "object" {
		members := map[string]json.RawMessage{}
		_ = json.Unmarshal(raw, &members) // it is an object
		members["type"] = json.RawMessage(`"object"`)
		return members
	}
	return json.RawMessage(raw)
}

// toolChoice returns a choice in the API's form. With thinking a tool cannot be forced.
func toolChoice(choice any, thinking bool) any {
	var name string
	switch choice := choice.(type) {
	case nil:
		return nil
	case string:
		name = choice
	case llms.ToolChoice:
		if name = choice.Type; choice.Function != nil {
			name = choice.Function.Name
		}
	default:
		return choice
	}
	switch name {
	case "":
		return nil
	case "auto", "none":
		return map[string]string{"type": name}
	}
	if thinking {
		return map[string]string{"type": "auto"}
	}
	if name == "any" || name == "required" {
		return map[string]string{"type": "any"}
	}
	return map[string]string{"type": "tool", "name": name}
}

// writer writes the messages of a request. Those of one role that follow each other are one message there.
type writer struct {
	tools  map[string]bool // names of the request's tools
	called []string        // names of the tools that were called
	system []part
	list   []message
	cites  bool // a document wants citations
	blank  bool // the last message is of a person, and has nothing to send

	unasked map[string]bool // marks of thinking that the provider sent unasked
}

func (w *writer) message(m llms.MessageContent) error {
	switch m.Role {
	case llms.ChatMessageTypeSystem:
		content, err := w.content(m.Parts)
		w.system = append(w.system, content...)
		return err
	case llms.ChatMessageTypeHuman, llms.ChatMessageTypeGeneric:
		content, err := w.content(m.Parts)
		w.blank = len(content) == 0
		w.add(user, content)
		return err
	case llms.ChatMessageTypeAI:
		w.blank = false
		w.add(assistant, w.answer(m.Parts))
		return nil
	case llms.ChatMessageTypeTool, llms.ChatMessageTypeFunction:
		for _, p := range m.Parts {
			result, rich, err := llm.Result(p)
			if err != nil {
				return err
			}
			w.add(user, []part{w.result(result, rich)})
		}
		return nil
	}
	return fmt.Errorf("role %q is not known", m.Role)
}

// add adds blocks to the last message, or begins another. A message without content is refused, and left out.
func (w *writer) add(role string, content []part) {
	if len(content) == 0 {
		return
	}
	if n := len(w.list); n > 0 && w.list[n-1].Role == role {
		w.list[n-1].Content = append(w.list[n-1].Content, content...)
		return
	}
	w.list = append(w.list, message{role, content})
}

// end returns the messages. Results of tools come first in theirs, whenever a person spoke. A last message of the model, which the answer
// continues, must not end with white space.
func (w *writer) end() []message {
	list := w.list
	w.list = nil
	for i, m := range list {
		if m.Role == assistant {
			m.Content = complete(m.Content, i == len(list)-1)
		}
		w.add(m.Role, m.Content)
	}
	for _, m := range w.list {
		slices.SortStableFunc(m.Content, func(a, b part) int { return cmp.Compare(order(a), order(b)) })
	}
	n := len(w.list)
	if n == 0 || w.list[n-1].Role != assistant {
		return w.list
	}
	last := &w.list[n-1]
	if end := last.Content[len(last.Content)-1]; end.is("text") {
		if text, _ := end["text"].(string); text != strings.TrimSpace(text) {
			end["text"] = strings.TrimRight(text, " \t\r\n")
		}
	}
	return w.list
}

// complete returns the blocks of a message of the model without those that are refused because an answer was cut off: thinking at the end,
// and calls that the server executes without their results, which the next answer can have only if the message is the last; and results
// without calls.
func complete(content []part, last bool) []part {
	calls, results := map[string]bool{}, map[string]bool{}
	for _, p := range content {
		if id, ok := p["tool_use_id"].(json.RawMessage); ok {
			results[string(id)] = true
		} else if id, ok := p["id"].(json.RawMessage); ok {
			calls[string(id)] = true
		}
	}
	content = slices.DeleteFunc(content, func(p part) bool {
		if id, ok := p["tool_use_id"].(json.RawMessage); ok {
			return !calls[string(id)]
		}
		id, _ := p["id"].(json.RawMessage)
		return p.is("server_tool_use", "mcp_tool_use") && !last && !results[string(id)]
	})
	for len(content) > 0 && content[len(content)-1].thinks() {
		content = content[:len(content)-1]
	}
	return content
}

func order(p part) int {
	if p.is("tool_result") {
		return -1
	}
	return 0
}

// result writes the result of a call. Images and documents stay what they are, except in errors, which may have text alone and have to
// have some.
func (w *writer) result(r llms.ToolCallResponse, rich llm.Part) part {
	out := part{"type": "tool_result", "tool_use_id": callids.Word(r.ToolCallID, maxID)}
	if rich.Failed {
		out["is_error"], out["content"] = true, r.Content
		if strings.TrimSpace(r.Content) == "" {
			out["content"] = "Error"
		}
		return out
	}
	if content, err := w.content(rich.Content); err == nil && len(content) > 0 {
		out["content"] = content
	} else if r.Content != "" {
		out["content"] = r.Content
	}
	return out
}

// content writes the parts of a person's message.
func (w *writer) content(parts []llms.ContentPart) (out []part, err error) {
	for _, p := range parts {
		rich, _ := p.(llm.Part)
		if rich.ContentPart != nil {
			p = rich.ContentPart
		}
		var block part
		reason := ""
		switch p := p.(type) {
		case llms.TextContent:
			if strings.TrimSpace(p.Text) == "" {
				continue // refused
			}
			block = part{"type": "text", "text": p.Text}
		case llms.ImageURLContent:
			block, reason = image(p.URL)
		case llms.BinaryContent:
			block, reason = binary(p)
		case llm.Part:
			if rich.Block == nil {
				continue
			}
			if block, reason = native(gjson.ParseBytes(rich.Block)); rich.Broken != "" {
				reason = rich.Broken
			}
		default:
			return nil, fmt.Errorf("%T cannot be sent", p)
		}
		if reason != "" {
			text, err := rich.Without(reason)
			if err != nil {
				return nil, err
			}
			out = append(out, part{"type": "text", "text": text})
			continue
		}
		w.decorate(block, gjson.ParseBytes(rich.Block))
		if block.is("document") && block["title"] == nil && rich.Name != "" {
			block["title"] = rich.Name
		}
		out = append(out, block)
	}
	return out, nil
}

// decorate copies what only this API knows from a block of LangChain's form, where it may be in extras.
func (w *writer) decorate(out part, block gjson.Result) {
	names := []string{"cache_control"}
	if out.is("document") {
		names = append(names, "title", "context", "citations")
	}
	for _, name := range names {
		v := block.Get(name)
		if !v.Exists() {
			v = block.Get("extras." + name)
		}
		if v.Exists() && v.Type != gjson.Null && out[name] == nil {
			out[name] = json.RawMessage(v.Raw)
		}
	}
	if raw, ok := out["citations"].(json.RawMessage); ok && gjson.GetBytes(raw, "enabled").Bool() {
		w.cites = true
	}
}

func image(address string) (block part, reason string) {
	if mime, data, ok := llm.CutDataURL(address); ok {
		return imageData(mime, data)
	}
	if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		return part{"type": "image", "source": part{"type": "url", "url": address}}, ""
	}
	return nil, "an image is neither a data URL nor an http address"
}

// imageData refuses types of images that the API refuses.
func imageData(mime, data string) (block part, reason string) {
	switch mime = strings.ToLower(mime); mime {
	case "image/jpg":
		mime = "image/jpeg"
	case "image/jpeg", "image/png", "image/gif", "image/webp":
	default:
		return nil, fmt.Sprintf("Anthropic takes no images of type %q; convert it to JPEG or PNG", mime)
	}
	return part{"type": "image", "source": part{"type": "base64", "media_type": mime, "data": data}}, ""
}

func binary(p llms.BinaryContent) (block part, reason string) {
	kind, _, _ := strings.Cut(p.MIMEType, "/")
	switch {
	case kind == "image":
		return imageData(p.MIMEType, base64.StdEncoding.EncodeToString(p.Data))
	case p.MIMEType == "application/pdf":
		return part{"type": "document", "source": part{"type": "base64", "media_type": p.MIMEType, "data": base64.StdEncoding.EncodeToString(p.Data)}}, ""
	case kind == "text":
		return part{"type": "document", "source": part{"type": "text", "media_type": "text/plain", "data": string(p.Data)}}, ""
	}
	return nil, "Anthropic takes no content of type " + p.MIMEType
}

// native writes a block that only this API knows: its own, or LangChain's with a reference in it. reason is why it cannot be sent.
func native(b gjson.Result) (block part, reason string) {
	kind := b.Get("type").Str
	id := cmp.Or(b.Get("file_id").String(), b.Get("file.file_id").String(), b.Get("source.file_id").String())
	if id == "" && b.Get("source_type").Str == "id" {
		id = b.Get("id").String()
	}
	if strings.HasPrefix(id, "file-") {
		return nil, "the file was uploaded to OpenAI"
	}
	var source part
	switch {
	case kind == "text-plain" && b.Get("text").Exists(), kind == "file" && b.Get("source_type").Str == "text":
		source = part{"type": "text", "media_type": "text/plain", "data": b.Get("text").String()}
	case kind == "document", kind == "search_result", kind == "container_upload", kind == "image" && b.Get("source").IsObject():
		return members(b, "index"), ""
	case (kind == "file" || kind == "image") && id != "":
		source = part{"type": "file", "file_id": id}
	case kind == "file" && b.Get("url").Exists():
		source = part{"type": "url", "url": b.Get("url").String()}
	default:
		return nil, "Anthropic takes no such blocks"
	}
	if kind == "image" {
		return part{"type": kind, "source": source}, ""
	}
	return part{"type": "document", "source": source}, ""
}

// members returns an object without some of its members.
func members(v gjson.Result, without ...string) part {
	out := part{}
	v.ForEach(func(k, v gjson.Result) bool {
		out[k.Str] = json.RawMessage(v.Raw)
		return true
	})
	for _, name := range without {
		delete(out, name)
	}
	out["type"] = v.Get("type").Str
	return out
}

// answer writes a message of a model: its blocks in their order, with the calls as they are in the message now. A person may have edited them.
func (w *writer) answer(parts []llms.ContentPart) (out []part) {
	calls := map[string]llms.ToolCall{}
	var ids []string
	for _, p := range parts {
		if rich, ok := p.(llm.Part); ok {
			p = rich.ContentPart
		}
		if call, ok := p.(llms.ToolCall); ok && call.FunctionCall != nil {
			if _, twice := calls[call.ID]; !twice {
				ids = append(ids, call.ID)
			}
			calls[call.ID] = call
		}
	}
	use := func(id string) {
		if call, ok := calls[id]; ok {
			out = append(out, w.call(call))
			delete(calls, id)
		}
	}
	for _, p := range parts {
		rich, _ := p.(llm.Part)
		if rich.ContentPart != nil {
			p = rich.ContentPart
		}
		b := gjson.ParseBytes(rich.Block)
		own := rich.Provider == "anthropic" || rich.Provider == ""
		switch kind := b.Get("type").Str; {
		case kind == "tool_use":
			use(b.Get("id").String())
		case kind == "thinking":
			if text, signature := b.Get("thinking").String(), b.Get("signature").String(); own && signature != "" {
				out = append(out, part{"type": kind, "thinking": text, "signature": signature})
				w.unasked[signature] = w.unasked[signature] || rich.Unasked
			}
		case kind == "redacted_thinking":
			if own && b.Get("data").Exists() {
				out = append(out, part{"type": kind, "data": b.Get("data").String()})
				w.unasked[b.Get("data").String()] = w.unasked[b.Get("data").String()] || rich.Unasked
			}
		case kind == "server_tool_use", kind == "mcp_tool_use":
			if own && rich.Provider != "" { // as its result, below: one is refused without the other
				block := members(b, "index", "partial_json")
				if input := b.Get("partial_json"); jsonscan.Valid([]byte(input.Str)) && gjson.Parse(input.Str).IsObject() {
					block["input"] = json.RawMessage(input.Str)
				}
				out = append(out, block)
			}
		case kind == "text":
			text, _ := p.(llms.TextContent)
			if strings.TrimSpace(text.Text) == "" {
				continue
			}
			block := part{"type": kind, "text": text.Text}
			if citations := b.Get("citations"); own && len(citations.Array()) > 0 {
				block["citations"] = json.RawMessage(citations.Raw)
			}
			out = append(out, block)
		case rich.Block != nil:
			if own && rich.Provider != "" && kind != "reasoning" && kind != "non_standard" {
				out = append(out, members(b, "index"))
			}
		default:
			if text, ok := p.(llms.TextContent); ok && strings.TrimSpace(text.Text) != "" {
				out = append(out, part{"type": "text", "text": text.Text})
			}
		}
	}
	for _, id := range ids {
		use(id)
	}
	return out
}

func (w *writer) call(c llms.ToolCall) part {
	name := c.FunctionCall.Name
	if !w.tools[name] {
		name = callids.Name(name)
	}
	w.note(name)
	var input any = part{}
	if jsonscan.Valid([]byte(c.FunctionCall.Arguments)) && gjson.Parse(c.FunctionCall.Arguments).IsObject() {
		input = json.RawMessage(c.FunctionCall.Arguments)
	}
	return part{"type": "tool_use", "id": callids.Word(c.ID, maxID), "name": name, "input": input}
}

func (w *writer) note(name string) {
	for _, known := range w.called {
		if known == name {
			return
		}
	}
	w.called = append(w.called, name)
}

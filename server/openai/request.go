package openai

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/server/answer"
)

// Turn is what a client asks for: one run of an assistant.
type Turn struct {
	Model string
	// Thread has the memory of the conversation; "": there is none, and the client sends all messages each time.
	Thread id.Thread
	Stream bool

	includeUsage bool
	subgraphs    bool // a stream has tokens of subgraphs
	user         string
	metadata     *jsonobj.Object // of the client, without what is ours; may be empty
	messages     []turnMessage
	whole        bool // the messages are all new, also those of the assistant
	resumes      bool // the run answers a question; known after Body

	// Of a request for a response.
	response *responseRequest
}

// turnMessage is a message in the form that graphs take.
type turnMessage struct {
	role string // system, user, assistant or tool
	raw  json.RawMessage
	text string
}

// ThreadHeader is the header that names the thread of a conversation, also in answers.
const ThreadHeader = "X-Thread-Id"

// ReadChat reads the body of a chat completion, which is valid JSON. thread is the header that names the thread; "" when there is none.
func ReadChat(body []byte, thread string) (*Turn, error) {
	r := gjson.ParseBytes(body)
	t := &Turn{}
	if err := t.read(r, thread); err != nil {
		return nil, err
	}
	if err := refuseChat(r); err != nil {
		return nil, err
	}
	options := r.Get("stream_options")
	if options.Exists() && options.Type != gjson.Null && !options.IsObject() {
		return nil, refuse("stream_options", "stream_options is an object")
	}
	t.includeUsage = options.Get("include_usage").Bool()
	list := r.Get("messages")
	if !list.IsArray() {
		return nil, refuse("messages", "messages is a list of messages")
	}
	for i, m := range list.Array() {
		one, err := readMessage(m, "messages["+strconv.Itoa(i)+"]")
		if err != nil {
			return nil, err
		}
		t.messages = append(t.messages, one)
	}
	if len(t.messages) == 0 {
		return nil, refuse("messages", "messages has no message")
	}
	return t, nil
}

// read reads what both kinds of requests have.
func (t *Turn) read(r gjson.Result, header string) error {
	if !r.IsObject() {
		return refuse("", "The body of the request is a JSON object")
	}
	model := r.Get("model")
	if model.Type != gjson.String || model.Str == "" {
		return refuse("model", "model is the id of an assistant, or the name of a graph")
	}
	t.Model = model.Str
	for name, to := range map[string]*bool{"stream": &t.Stream, "stream_subgraphs": &t.subgraphs} {
		switch v := r.Get(name); {
		case v.IsBool():
			*to = v.Bool()
		case v.Exists() && v.Type != gjson.Null:
			return refuse(name, name+" is true or false")
		}
	}
	switch user := r.Get("user"); {
	case user.Type == gjson.String:
		t.user = user.Str
	case user.Exists() && user.Type != gjson.Null:
		return refuse("user", "user is a text")
	}
	t.metadata = &jsonobj.Object{}
	named := ""
	switch metadata := r.Get("metadata"); {
	case metadata.IsObject():
		t.metadata = jsonobj.Of(json.RawMessage(metadata.Raw))
		if raw := t.metadata.Get("thread_id"); raw != nil {
			v := gjson.ParseBytes(raw)
			if v.Type != gjson.String {
				return refuse("metadata.thread_id", "thread_id is a text")
			}
			named = v.Str
			t.metadata.Delete("thread_id")
		}
	case metadata.Exists() && metadata.Type != gjson.Null:
		return refuse("metadata", "metadata is an object")
	}
	return t.choose(header, named)
}

// choose reads the thread, which the header or the metadata names.
func (t *Turn) choose(header, named string) error {
	for param, name := range map[string]string{ThreadHeader: header, "metadata.thread_id": named} {
		if name == "" {
			continue
		}
		canonical := id.Canonical(name)
		if canonical == "" {
			return refuse(param, param+" is the id of a thread, a UUID. A new one begins a conversation")
		}
		if t.Thread != "" && t.Thread != id.Thread(canonical) {
			return refuse("metadata.thread_id", "The header "+ThreadHeader+" and metadata.thread_id name different threads")
		}
		t.Thread = id.Thread(canonical)
	}
	return nil
}

// refuseChat refuses what no graph honors and whose absence a client would not notice.
func refuseChat(r gjson.Result) error {
	if n := r.Get("n"); n.Exists() && n.Type != gjson.Null && n.Raw != "1" {
		return refuseValue("n", "n must be 1: a run has one answer")
	}
	if err := refuseTools(r.Get("tools"), r.Get("tool_choice")); err != nil {
		return err
	}
	if call := r.Get("function_call"); call.IsObject() {
		return refuseValue("function_call", "The graph calls its own tools; those of a client are not offered to it")
	}
	if kind := r.Get("response_format.type").Str; kind != "" && kind != "text" {
		return refuseValue("response_format", "The form of the answer is set in the graph; only the response_format text is possible")
	}
	if r.Get("logprobs").Bool() {
		return refuseValue("logprobs", "Probabilities of tokens are not known")
	}
	for _, m := range r.Get("modalities").Array() {
		if m.Str != "text" {
			return refuseValue("modalities", "Answers are text")
		}
	}
	return nil
}

// refuseTools refuses tools of the client that must be called. Others are never called, which a client expects of a model too.
func refuseTools(tools, choice gjson.Result) error {
	if choice.IsObject() || choice.Str == "required" {
		return refuseValue("tool_choice", "The graph calls its own tools; those of a client are not offered to it")
	}
	if tools.Exists() && tools.Type != gjson.Null && !tools.IsArray() {
		return refuse("tools", "tools is a list")
	}
	return nil
}

// readMessage reads a message of a chat completion.
func readMessage(m gjson.Result, at string) (turnMessage, error) {
	if !m.IsObject() {
		return turnMessage{}, refuse(at, at+" is no object")
	}
	role := m.Get("role")
	content := m.Get("content")
	switch role.Str {
	case "system", "developer":
		return newMessage("system", content, m, at)
	case "user":
		return newMessage("user", content, m, at)
	case "tool":
		call := m.Get("tool_call_id")
		if call.Type != gjson.String {
			return turnMessage{}, refuse(at+".tool_call_id", "tool_call_id is the id of the call that the tool answers")
		}
		one, err := newMessage("tool", content, m, at)
		one.set("tool_call_id", jsonobj.Quote(call.Str))
		return one, err
	case "assistant":
		calls := m.Get("tool_calls")
		if content.Type == gjson.Null && calls.IsArray() {
			content = gjson.Parse(`""`)
		}
		if refusal := m.Get("refusal"); content.Type == gjson.Null && refusal.Type == gjson.String {
			content = refusal
		}
		one, err := newMessage("assistant", content, m, at)
		if err != nil {
			return one, err
		}
		var good, bad [][]byte
		for _, c := range calls.Array() {
			f := c.Get("function")
			head := jsonobj.AppendText(append(jsonobj.AppendText([]byte(`{"id":`), c.Get("id").String()), `,"name":`...), f.Get("name").String())
			if args := f.Get("arguments").String(); jsonscan.Valid([]byte(args)) && gjson.Parse(args).IsObject() {
				good = append(good, append(append(append(head, `,"type":"tool_call","args":`...), args...), '}'))
			} else {
				bad = append(bad, append(jsonobj.AppendText(append(head, `,"type":"invalid_tool_call","error":null,"args":`...), args), '}'))
			}
		}
		one.set("tool_calls", list(good))
		one.set("invalid_tool_calls", list(bad))
		return one, nil
	}
	return turnMessage{}, refuse(at+".role", "The role of a message is system, developer, user, assistant or tool")
}

func list(items [][]byte) json.RawMessage {
	if len(items) == 0 {
		return nil
	}
	out := []byte{'['}
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}

// set adds a member; nil adds none.
func (m *turnMessage) set(key string, value json.RawMessage) {
	if value == nil || len(m.raw) == 0 {
		return
	}
	o := jsonobj.Of(m.raw)
	o.Set(key, value)
	m.raw = o.JSON()
}

// types are the roles in the words of LangChain.
var types = map[string]string{"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}

// newMessage makes a message from its content: a text, or a list of parts.
func newMessage(role string, content, m gjson.Result, at string) (turnMessage, error) {
	out := turnMessage{role: role}
	raw := jsonobj.AppendText(append(make([]byte, 0, len(content.Raw)+128), `{"type":`...), types[role])
	raw = append(raw, `,"content":`...)
	switch {
	case content.Type == gjson.String:
		out.text = content.Str
		raw = append(raw, content.Raw...)
	case content.IsArray():
		var texts []string
		raw = append(raw, '[')
		for i, part := range content.Array() {
			if i > 0 {
				raw = append(raw, ',')
			}
			block, text, err := readPart(part, at+".content["+strconv.Itoa(i)+"]")
			if err != nil {
				return out, err
			}
			raw = append(raw, block...)
			if text != "" {
				texts = append(texts, text)
			}
		}
		raw = append(raw, ']')
		out.text = strings.Join(texts, "\n")
	default:
		return out, refuse(at+".content", "The content of a message is a text or a list of parts")
	}
	if name := m.Get("name"); name.Type == gjson.String && name.Str != "" {
		raw = jsonobj.AppendText(append(raw, `,"name":`...), name.Str)
	}
	out.raw = append(raw, '}')
	return out, nil
}

// readPart reads a part of a message, of either kind of requests. LangChain takes OpenAI's parts of chat completions as they are.
func readPart(part gjson.Result, at string) (block json.RawMessage, text string, err error) {
	object := func(key string) (gjson.Result, error) {
		v := part.Get(key)
		if !v.IsObject() {
			return v, refuse(at+"."+key, key+" is an object")
		}
		if v.Get("file_id").Type == gjson.String {
			return v, refuseValue(at+"."+key, "This server keeps no files: send the data of the file")
		}
		return v, nil
	}
	block = json.RawMessage(part.Raw)
	switch kind := part.Get("type").Str; kind {
	case "text", "input_text", "output_text", "refusal":
		v := part.Get("text")
		if kind == "refusal" {
			v = part.Get("refusal")
		}
		if v.Type != gjson.String {
			return nil, "", refuse(at+".text", "text is a text")
		}
		return append(append([]byte(`{"type":"text","text":`), v.Raw...), '}'), v.Str, nil
	case "image_url":
		image, err := object("image_url")
		if err == nil && image.Get("url").Type != gjson.String {
			err = refuse(at+".image_url.url", "url is the address of an image, or its data")
		}
		return block, "", err
	case "input_audio":
		_, err := object("input_audio")
		return block, "", err
	case "file":
		_, err := object("file")
		return block, "", err
	case "input_image":
		url := part.Get("image_url")
		if url.Type != gjson.String {
			return nil, "", refuseValue(at+".image_url", "An image is sent by its address or data; this server keeps no files")
		}
		b := append([]byte(`{"type":"image_url","image_url":{"url":`), url.Raw...)
		if detail := part.Get("detail"); detail.Type == gjson.String {
			b = append(append(b, `,"detail":`...), detail.Raw...)
		}
		return append(b, "}}"...), "", nil
	case "input_file":
		if url := part.Get("file_url"); url.Type == gjson.String {
			return append(append([]byte(`{"type":"file","url":`), url.Raw...), '}'), "", nil
		}
		data := part.Get("file_data")
		if data.Type != gjson.String {
			return nil, "", refuseValue(at+".file_data", "A file is sent as its address or data; this server keeps no files")
		}
		b := append([]byte(`{"type":"file","file":{"file_data":`), data.Raw...)
		if name := part.Get("filename"); name.Type == gjson.String {
			b = append(append(b, `,"filename":`...), name.Raw...)
		}
		return append(b, "}}"...), "", nil
	default:
		return nil, "", refuse(at+".type", "A part of a message is text, image_url, input_audio or file")
	}
}

// Memory is what the thread of a turn has before it.
type Memory struct {
	Exists     bool            // it has a state: the graph has the messages that came before
	Interrupts json.RawMessage // {task: [{id, value}]}; nil: it waits for nothing
	Checkpoint id.Checkpoint   // where the run begins; "": at the newest
}

// Waits reports whether the thread waits for an answer.
func (m Memory) Waits() bool { return len(answer.Questions(m.Interrupts)) > 0 }

// fresh returns the messages that a thread has not seen: those after the last answer. Those of the system are sent each time, with ids by which they take
// the place of the ones before.
func (t *Turn) fresh(m Memory) []turnMessage {
	messages := slices.Clone(t.messages)
	if t.Thread == "" {
		return messages
	}
	begin := 0
	if m.Exists && !t.whole {
		for i, one := range messages {
			if one.role == "assistant" {
				begin = i + 1
			}
		}
	}
	out, n := messages[:0], 0
	for i, one := range messages {
		if one.role == "system" {
			one.set("id", jsonobj.Quote("openai-system-"+strconv.Itoa(n)))
			n++
			out = append(out, one)
		} else if i >= begin {
			out = append(out, one)
		}
	}
	return out
}

// Body returns the body of the request for a run, in the form of LangGraph Server's API. Messages may be large: they are copied once.
func (t *Turn) Body(a id.Assistant, m Memory) (json.RawMessage, error) {
	o := jsonobj.Object{}
	o.SetText("assistant_id", string(a))
	var input []byte
	news := t.fresh(m)
	if pending := answer.Questions(m.Interrupts); len(pending) > 0 {
		reply, ok := lastUser(news)
		if !ok {
			return nil, refuse("messages", "The conversation waits for an answer to a question: send it as a message of the user")
		}
		t.resumes = true
		command := jsonobj.Object{}
		command.Set("resume", answer.Resume(pending, reply))
		o.Set("command", command.JSON())
	} else {
		if !slices.ContainsFunc(news, func(one turnMessage) bool { return one.role != "system" }) && t.Thread != "" {
			return nil, refuse("messages", "The thread has seen all messages: the last one is an answer of its own. Send a new message, or another thread")
		}
		if last := &news[len(news)-1]; last.role == "assistant" {
			last.set("id", jsonobj.Quote(uuid.NewString())) // by which it is not the answer
		}
		size := 4096
		for _, one := range news {
			size += len(one.raw) + 1
		}
		input = append(make([]byte, 0, size), `{"input":{"messages":[`...)
		for i, one := range news {
			if i > 0 {
				input = append(input, ',')
			}
			input = append(input, one.raw...)
		}
		input = append(input, "]},"...)
	}
	o.Set("stream_mode", json.RawMessage(`["updates"]`))
	if t.Stream {
		o.Set("stream_mode", json.RawMessage(`["messages-tuple","updates"]`))
		if t.subgraphs {
			o.Set("stream_subgraphs", json.RawMessage("true"))
		}
	}
	o.SetText("on_disconnect", "cancel")
	if t.Thread != "" {
		o.SetText("if_not_exists", "create")
		if m.Checkpoint != "" {
			o.SetText("checkpoint_id", string(m.Checkpoint))
		}
	}
	metadata := jsonobj.Of(t.metadata.JSON())
	if t.user != "" {
		metadata.SetText("user", t.user)
		configurable := jsonobj.Object{}
		configurable.SetText("user_id", t.user)
		config := jsonobj.Object{}
		config.Set("configurable", configurable.JSON())
		o.Set("config", config.JSON())
	}
	if metadata.Len() > 0 {
		o.Set("metadata", metadata.JSON())
	}
	if input == nil {
		return o.JSON(), nil
	}
	return append(input, o.JSON()[1:]...), nil
}

// NewAnswer returns the empty answer of a turn whose Body is made. had are the messages that its thread had before a run that answers a question.
func NewAnswer(t *Turn, had json.RawMessage) *answer.Answer {
	return answer.New(answer.Options{Live: t.Stream, Subgraphs: t.subgraphs, Resumable: t.Thread != "", Resumes: t.resumes, Had: had})
}

// lastUser returns the text of the last message of the user.
func lastUser(messages []turnMessage) (string, bool) {
	for _, one := range slices.Backward(messages) {
		if one.role == "user" && strings.TrimSpace(one.text) != "" {
			return one.text, true
		}
	}
	return "", false
}

package openai

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/answer"
	"understudy/thread"
)

// responseRequest is what a request for a response says that a chat completion does not.
type responseRequest struct {
	store        bool
	previous     string
	after        id.Run // the run of previous
	conversation string
	instructions string
}

// Prefixes of ids.
const (
	responsePrefix     = "resp_"
	conversationPrefix = "conv_"
)

// ResponseID is the id of a response: that of its thread and that of its run.
func ResponseID(r *run.Run) string {
	return responsePrefix + strings.ReplaceAll(string(r.Thread)+string(r.ID), "-", "")
}

// ParseResponseID returns the thread and the run of a response; ok is false if there can be none with this id.
func ParseResponseID(s string) (t id.Thread, r id.Run, ok bool) {
	digits, ok := strings.CutPrefix(s, responsePrefix)
	if !ok || len(digits) != 64 {
		return "", "", false
	}
	t, r = id.Thread(id.Canonical(digits[:32])), id.Run(id.Canonical(digits[32:]))
	return t, r, t != "" && r != ""
}

// conversationID is the id of a thread as a conversation.
func conversationID(t id.Thread) string {
	return conversationPrefix + strings.ReplaceAll(string(t), "-", "")
}

// ParseConversationID returns the thread of a conversation; ok is false if there can be none with this id. The id of a thread is one of a conversation too.
func ParseConversationID(s string) (t id.Thread, ok bool) {
	t = id.Thread(id.Canonical(strings.TrimPrefix(s, conversationPrefix)))
	return t, t != ""
}

// ReadConversation reads the body of a request for a new conversation, which is valid JSON, and returns its metadata; nil when it has none.
func ReadConversation(body []byte) (json.RawMessage, error) {
	r := gjson.ParseBytes(body)
	if !r.IsObject() {
		return nil, refuse("", "The body of the request is a JSON object")
	}
	if len(r.Get("items").Array()) > 0 {
		return nil, refuseValue("items", "A conversation begins empty: send items as the input of its first response")
	}
	switch metadata := r.Get("metadata"); {
	case metadata.IsObject():
		return json.RawMessage(metadata.Raw), nil
	case metadata.Exists() && metadata.Type != gjson.Null:
		return nil, refuse("metadata", "metadata is an object")
	}
	return nil, nil
}

// AppendConversation appends a thread as a conversation.
func AppendConversation(dst []byte, t *thread.Thread) []byte {
	dst = jsonobj.AppendText(append(dst, `{"id":`...), conversationID(t.ID))
	dst = appendTime(append(dst, `,"object":"conversation","created_at":`...), t.CreatedAt)
	return append(append(append(dst, `,"metadata":`...), objectOr(t.Metadata)...), '}')
}

// AppendConversationDeleted appends that a conversation was deleted.
func AppendConversationDeleted(dst []byte, t id.Thread) []byte {
	dst = jsonobj.AppendText(append(dst, `{"id":`...), conversationID(t))
	return append(dst, `,"object":"conversation.deleted","deleted":true}`...)
}

func objectOr(raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return []byte("{}")
	}
	return raw
}

// ReadResponse reads the body of a request for a response, which is valid JSON. thread is the header that names the thread; "" when there is none.
func ReadResponse(body []byte, thread string) (*Turn, error) {
	r := gjson.ParseBytes(body)
	t := &Turn{whole: true, response: &responseRequest{store: true}}
	if err := t.read(r, thread); err != nil {
		return nil, err
	}
	if err := t.readThread(r); err != nil {
		return nil, err
	}
	if err := refuseResponse(r); err != nil {
		return nil, err
	}
	if text := r.Get("instructions"); text.Type == gjson.String && text.Str != "" {
		t.response.instructions = text.Str
		one, err := newMessage("system", text, gjson.Result{}, "instructions")
		if err != nil {
			return nil, err
		}
		t.messages = append(t.messages, one)
	}
	input := r.Get("input")
	switch {
	case input.Type == gjson.String:
		one, err := newMessage("user", input, gjson.Result{}, "input")
		if err != nil {
			return nil, err
		}
		t.messages = append(t.messages, one)
	case input.IsArray():
		for i, item := range input.Array() {
			one, err := readItem(item, "input["+strconv.Itoa(i)+"]")
			if err != nil {
				return nil, err
			}
			if one.role != "" {
				t.messages = append(t.messages, one)
			}
		}
	}
	if !slices.ContainsFunc(t.messages, func(m turnMessage) bool { return m.role != "system" }) {
		return nil, refuse("input", "input is a text, or a list of items with a message")
	}
	return t, nil
}

// readThread reads which thread has the memory: a new one, unless nothing is stored.
func (t *Turn) readThread(r gjson.Result) error {
	q := t.response
	if v := r.Get("store"); v.IsBool() {
		q.store = v.Bool()
	}
	given := map[string]id.Thread{}
	if t.Thread != "" {
		given[ThreadHeader] = t.Thread
	}
	if v := r.Get("previous_response_id"); v.Type == gjson.String && v.Str != "" {
		thread, after, ok := ParseResponseID(v.Str)
		if !ok {
			return NoResponse()
		}
		q.previous, q.after = v.Str, after
		given["previous_response_id"] = thread
	}
	v := r.Get("conversation")
	if v.IsObject() {
		v = v.Get("id")
	}
	if v.Type == gjson.String && v.Str != "" {
		thread, ok := ParseConversationID(v.Str)
		if !ok {
			return refuse("conversation", "conversation is the id of a conversation, or of a thread: a UUID. A new one begins a conversation")
		}
		q.conversation = conversationID(thread)
		given["conversation"] = thread
	}
	for param, thread := range given {
		if t.Thread != "" && t.Thread != thread {
			return refuse(param, "Name one conversation: by previous_response_id, conversation or the header "+ThreadHeader)
		}
		t.Thread = thread
	}
	switch {
	case !q.store && t.Thread != "":
		return refuseValue("store", "A response of a conversation is stored: its thread is the memory. Leave out store, or send all messages")
	case q.store && t.Thread == "":
		t.Thread = id.NewThread()
	}
	return nil
}

// refuseResponse refuses what no graph honors and whose absence a client would not notice.
func refuseResponse(r gjson.Result) error {
	if err := refuseTools(r.Get("tools"), r.Get("tool_choice")); err != nil {
		return err
	}
	if kind := r.Get("text.format.type").Str; kind != "" && kind != "text" {
		return refuseValue("text.format", "The form of the answer is set in the graph; only the format text is possible")
	}
	if r.Get("background").Bool() {
		return refuseValue("background", "Responses in the background are not supported; create a run of the thread instead: POST /threads/{thread_id}/runs")
	}
	if p := r.Get("prompt"); p.IsObject() {
		return refuseValue("prompt", "This server keeps no prompts; an assistant has its own")
	}
	for _, name := range r.Get("include").Array() {
		if name.Str == "message.output_text.logprobs" {
			return refuseValue("include", "Probabilities of tokens are not known")
		}
	}
	return nil
}

// readItem reads an item of the input. It returns an empty message for an item that graphs have no use for.
func readItem(item gjson.Result, at string) (turnMessage, error) {
	switch kind := item.Get("type").Str; kind {
	case "", "message":
		role := item.Get("role").Str
		if role == "developer" {
			role = "system"
		}
		if types[role] == "" || role == "tool" {
			return turnMessage{}, refuse(at+".role", "The role of a message is system, developer, user or assistant")
		}
		return newMessage(role, item.Get("content"), gjson.Result{}, at)
	case "function_call":
		call := jsonobj.Object{}
		call.Set("id", jsonobj.Quote(item.Get("call_id").String()))
		function := jsonobj.Object{}
		function.SetText("name", item.Get("name").String())
		function.SetText("arguments", item.Get("arguments").String())
		call.Set("function", function.JSON())
		return readMessage(gjson.ParseBytes(append(append([]byte(`{"role":"assistant","content":"","tool_calls":[`), call.JSON()...), "]}"...)), at)
	case "function_call_output":
		m := jsonobj.Object{}
		m.SetText("role", "tool")
		m.SetText("tool_call_id", item.Get("call_id").String())
		output := item.Get("output")
		if output.IsArray() {
			m.Set("content", json.RawMessage(output.Raw))
		} else {
			m.SetText("content", output.String())
		}
		return readMessage(gjson.ParseBytes(m.JSON()), at)
	case "reasoning":
		return turnMessage{}, nil
	default:
		return turnMessage{}, refuse(at+".type", "An item is a message, function_call, function_call_output or reasoning")
	}
}

// After returns the run that the response follows; "" when it follows none, or the newest of its thread.
func (t *Turn) After() id.Run {
	if t.response == nil {
		return ""
	}
	return t.response.after
}

// response is what all forms of a response say of it.
type response struct {
	id, model    string
	thread       id.Thread
	created      time.Time
	completed    time.Time
	status       string // completed, failed, incomplete, in_progress, queued, cancelled
	failure      string
	reason       string // why it is incomplete
	previous     string
	conversation string
	instructions string
	store        bool
	user         string
	metadata     json.RawMessage
	output       []json.RawMessage
	usage        *answer.Answer // nil: not known
	asks         *answer.Answer // nil: nothing
}

func newResponse(t *Turn, r *run.Run) *response {
	return &response{
		id: ResponseID(r), model: t.Model, thread: t.Thread, created: r.CreatedAt, status: "in_progress", previous: t.response.previous,
		conversation: t.response.conversation, instructions: t.response.instructions, store: t.response.store, user: t.user, metadata: t.metadata.JSON(),
	}
}

// append appends the response. What a graph decides by itself is shown as a model's defaults, because clients expect it.
func (x *response) append(dst []byte) []byte {
	dst = jsonobj.AppendText(append(dst, `{"id":`...), x.id)
	dst = appendTime(append(dst, `,"object":"response","created_at":`...), x.created)
	dst = append(dst, `,"status":"`+x.status+`","background":false,"completed_at":`...)
	if x.completed.IsZero() {
		dst = append(dst, "null"...)
	} else {
		dst = appendTime(dst, x.completed)
	}
	dst = append(dst, `,"error":`...)
	if x.failure == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(jsonobj.AppendText(append(dst, `{"code":"server_error","message":`...), x.failure), '}')
	}
	dst = append(dst, `,"incomplete_details":`...)
	if x.reason == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(dst, `{"reason":"`+x.reason...), `"}`...)
	}
	dst = appendTextOrNull(append(dst, `,"instructions":`...), x.instructions)
	dst = append(dst, `,"max_output_tokens":null,"max_tool_calls":null,"model":`...)
	dst = jsonobj.AppendText(dst, x.model)
	dst = append(dst, `,"output":[`...)
	for i, item := range x.output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, item...)
	}
	dst = append(dst, ']')
	dst = appendTextOrNull(append(dst, `,"parallel_tool_calls":true,"previous_response_id":`...), x.previous)
	dst = append(dst, `,"conversation":`...)
	if x.conversation == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(jsonobj.AppendText(append(dst, `{"id":`...), x.conversation), '}')
	}
	dst = append(dst, `,"reasoning":{"effort":null,"summary":null},"service_tier":"default","store":`...)
	dst = strconv.AppendBool(dst, x.store)
	dst = append(dst, `,"temperature":null,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":null,"truncation":"disabled","usage":`...)
	dst = x.appendUsage(dst)
	dst = appendTextOrNull(append(dst, `,"user":`...), x.user)
	dst = append(append(dst, `,"metadata":`...), x.metadata...)
	if x.asks != nil && len(x.asks.Questions()) > 0 {
		dst = append(appendInterrupt(append(dst, `,"interrupt":`...), x.asks, x.thread), '}')
	}
	return append(dst, '}')
}

func (x *response) appendUsage(dst []byte) []byte {
	var u answer.Usage
	if x.usage != nil {
		u = x.usage.Usage()
	}
	if !u.Known {
		return append(dst, "null"...)
	}
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), u.Input, 10)
	dst = strconv.AppendInt(append(dst, `,"input_tokens_details":{"cached_tokens":`...), u.Cached, 10)
	dst = strconv.AppendInt(append(dst, `,"cache_write_tokens":`...), u.Created, 10)
	dst = strconv.AppendInt(append(dst, `},"output_tokens":`...), u.Output, 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens_details":{"reasoning_tokens":`...), u.Reasoning, 10)
	dst = strconv.AppendInt(append(dst, `},"total_tokens":`...), u.Total, 10)
	return append(dst, '}')
}

// end completes a response whose run has ended.
func (x *response) end(a *answer.Answer, at time.Time) {
	x.usage, x.asks, x.completed = a, a, at
	switch reason := a.Reason(); {
	case a.Failed() != "":
		x.status, x.failure, x.completed = "failed", a.Failed(), time.Time{}
	case reason == answer.Length:
		x.status, x.reason = "incomplete", "max_output_tokens"
	case reason == answer.ContentFilter:
		x.status, x.reason = "incomplete", "content_filter"
	default:
		x.status = "completed"
	}
}

func appendPart(dst []byte, text string) []byte {
	return append(jsonobj.AppendText(append(dst, `{"type":"output_text","annotations":[],"logprobs":[],"text":`...), text), '}')
}

// appendItem appends a message of the output. With text nil it has no content yet.
func appendItem(dst []byte, mid, status string, text *string) []byte {
	dst = append(dst, `{"id":"`+mid+`","type":"message","status":"`+status+`","role":"assistant","content":[`...)
	if text != nil {
		dst = appendPart(dst, *text)
	}
	return append(dst, "]}"...)
}

func newItemID() string { return "msg_" + strings.ReplaceAll(uuid.NewString(), "-", "") }

// AppendResponse appends a response that is not streamed: the messages of models that the run wrote, each as an item.
func AppendResponse(dst []byte, t *Turn, r *run.Run, a *answer.Answer) []byte {
	x := newResponse(t, r)
	x.end(a, time.Now())
	for _, text := range a.Messages() {
		x.output = append(x.output, appendItem(nil, newItemID(), "completed", &text))
	}
	return x.append(dst)
}

// statuses are those of responses, by the status of their runs.
var statuses = map[run.Status]string{
	run.Pending: "queued", run.Running: "in_progress", run.Interrupted: "cancelled", run.Error: "failed", run.Timeout: "failed",
}

// AppendStored appends a response as it is stored: what its run has written of messages, in order, and the interrupts that its thread waits at since.
func AppendStored(dst []byte, r *run.Run, messages []json.RawMessage, interrupts json.RawMessage) []byte {
	a := answer.Stored(messages, interrupts)
	x := &response{id: ResponseID(r), model: ModelID(&assistant.Assistant{ID: r.Assistant, GraphID: r.Graph}), thread: r.Thread, created: r.CreatedAt, store: true, metadata: json.RawMessage("{}")}
	if x.end(a, r.EndedAt); statuses[r.Status] != "" {
		x.status = statuses[r.Status]
	}
	if x.status == "failed" {
		x.failure = answer.Failure(r.Error)
	}
	if x.status != "completed" {
		x.completed = time.Time{}
	}
	for _, text := range a.Messages() {
		x.output = append(x.output, appendItem(nil, newItemID(), "completed", &text))
	}
	return x.append(dst)
}

// responseEvents is the stream of a response.
type responseEvents struct {
	x     *response
	a     *answer.Answer
	seq   int
	begun bool

	item    string // id of the message that is shown; "": none
	message int    // its number
	text    strings.Builder
}

// NewResponse returns the stream of a response.
func NewResponse(t *Turn, r *run.Run, a *answer.Answer) Events {
	return &responseEvents{x: newResponse(t, r), a: a}
}

// event appends an event; body are its members.
func (e *responseEvents) event(dst []byte, kind string, body func(dst []byte) []byte) []byte {
	dst = append(dst, "event: "+kind+"\ndata: {\"type\":\""+kind+`","sequence_number":`...)
	dst = strconv.AppendInt(dst, int64(e.seq), 10)
	e.seq++
	return append(body(append(dst, ',')), "}\n\n"...)
}

func (e *responseEvents) whole(dst []byte, kind string) []byte {
	return e.event(dst, kind, func(dst []byte) []byte { return e.x.append(append(dst, `"response":`...)) })
}

// place appends where the text that is shown stands.
func (e *responseEvents) place(dst []byte) []byte {
	return append(dst, `"item_id":"`+e.item+`","output_index":`+strconv.Itoa(len(e.x.output))+`,"content_index":0,`...)
}

// Append implements Events.
func (e *responseEvents) Append(dst []byte, r *bridge.Record) []byte {
	if !e.begun {
		e.begun = true
		dst = e.whole(dst, "response.created")
		dst = e.whole(dst, "response.in_progress")
	}
	return e.say(dst, e.a.Add(r))
}

func (e *responseEvents) say(dst []byte, pieces []answer.Piece) []byte {
	for _, p := range pieces {
		if e.item == "" || p.Message != e.message {
			dst = e.close(dst)
			e.item, e.message = newItemID(), p.Message
			dst = e.event(dst, "response.output_item.added", func(dst []byte) []byte {
				dst = append(dst, `"output_index":`+strconv.Itoa(len(e.x.output))+`,"item":`...)
				return appendItem(dst, e.item, "in_progress", nil)
			})
			dst = e.event(dst, "response.content_part.added", func(dst []byte) []byte { return appendPart(append(e.place(dst), `"part":`...), "") })
		}
		e.text.WriteString(p.Text)
		dst = e.event(dst, "response.output_text.delta", func(dst []byte) []byte {
			return jsonobj.AppendText(append(e.place(dst), `"logprobs":[],"delta":`...), p.Text)
		})
	}
	return dst
}

// close ends the message that is shown.
func (e *responseEvents) close(dst []byte) []byte {
	if e.item == "" {
		return dst
	}
	text := e.text.String()
	e.text = strings.Builder{}
	dst = e.event(dst, "response.output_text.done", func(dst []byte) []byte {
		return jsonobj.AppendText(append(e.place(dst), `"logprobs":[],"text":`...), text)
	})
	dst = e.event(dst, "response.content_part.done", func(dst []byte) []byte { return appendPart(append(e.place(dst), `"part":`...), text) })
	item := appendItem(nil, e.item, "completed", &text)
	dst = e.event(dst, "response.output_item.done", func(dst []byte) []byte {
		return append(append(dst, `"output_index":`+strconv.Itoa(len(e.x.output))+`,"item":`...), item...)
	})
	e.x.output, e.item = append(e.x.output, item), ""
	return dst
}

// End implements Events.
func (e *responseEvents) End(dst []byte) []byte {
	dst = e.close(e.say(dst, e.a.End()))
	e.x.end(e.a, time.Now())
	return e.whole(dst, "response."+e.x.status)
}

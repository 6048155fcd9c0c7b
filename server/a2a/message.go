package a2a

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/run/webhook"
)

// Part is a part of a message or an artifact: a text, data or a file.
type Part struct {
	Text string
	Data json.RawMessage // not nil: it is data
	File *File           // not nil: it is a file
}

// File is a file by its bytes or by its address.
type File struct{ Base64, URL, Type, Name string }

// Message is a message of the history of a task.
type Message struct {
	ID    string
	User  bool // else it is the agent's
	Task  TaskID
	Parts []Part
}

func (d Dialect) appendParts(dst []byte, parts []Part) []byte {
	dst = append(dst, '[')
	for i, p := range parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		switch {
		case p.Data != nil:
			dst = append(append(append(dst, `{"kind":"data","data":`...), p.Data...), '}')
		case p.File != nil:
			dst = d.appendFile(dst, p.File)
		default:
			dst = append(jsonobj.AppendText(append(dst, `{"kind":"text","text":`...), p.Text), '}')
		}
	}
	return append(dst, ']')
}

// appendFile appends a file in the form of one version: bytes are not repeated.
func (d Dialect) appendFile(dst []byte, f *File) []byte {
	bytes, url, kind, name, end := "bytes", "uri", "mimeType", "name", "}}"
	dst = append(dst, `{"kind":"file",`...)
	if d.V1 {
		bytes, url, kind, name, end = "raw", "url", "mediaType", "filename", "}"
	} else {
		dst = append(dst, `"file":{`...)
	}
	if f.URL != "" {
		dst = jsonobj.AppendText(append(dst, `"`+url+`":`...), f.URL)
	} else {
		dst = jsonobj.AppendText(append(dst, `"`+bytes+`":`...), f.Base64)
	}
	if f.Type != "" {
		dst = jsonobj.AppendText(append(dst, `,"`+kind+`":`...), f.Type)
	}
	if f.Name != "" {
		dst = jsonobj.AppendText(append(dst, `,"`+name+`":`...), f.Name)
	}
	return append(dst, end...)
}

func (d Dialect) appendMessage(dst []byte, task TaskID, m *Message) []byte {
	role := "agent"
	if m.User {
		role = "user"
	}
	if d.V1 {
		role = "ROLE_" + strings.ToUpper(role)
	}
	if m.Task != (TaskID{}) {
		task = m.Task
	}
	dst = d.appendParts(append(dst, `{"kind":"message","role":"`+role+`","parts":`...), m.Parts)
	dst = jsonobj.AppendText(append(dst, `,"messageId":`...), m.ID)
	return append(dst, `,"taskId":"`+task.String()+`","contextId":"`+string(task.Thread)+`"}`...)
}

// Says returns a message of the agent with a text.
func Says(mid, text string) *Message { return &Message{ID: mid, Parts: []Part{{Text: text}}} }

// FromGraph returns a message of a conversation as clients see it; ok is false for those that they do not: of the system, and calls of tools without a text.
func FromGraph(raw []byte, mid string, task TaskID) (_ Message, ok bool) {
	m, ok := message.Read(raw)
	if !ok {
		return Message{}, false
	}
	out := Message{ID: mid, Task: task}
	switch m.Type {
	case message.TypeHuman:
		out.User = true
	case message.TypeAI, message.TypeAIChunk:
	case message.TypeTool:
		out.Parts = []Part{{Data: ToolResults(&m)}}
		return out, true
	default:
		return Message{}, false
	}
	if m.Content.Blocks == nil {
		if m.Content.Text != "" || out.User {
			out.Parts = []Part{{Text: m.Content.Text}}
		}
		return out, len(out.Parts) > 0
	}
	for _, block := range m.Content.Blocks {
		if p, ok := fromBlock(gjson.ParseBytes(block)); ok {
			out.Parts = append(out.Parts, p)
		}
	}
	return out, len(out.Parts) > 0
}

// ToolResults returns the data of the part by which clients learn of a tool's result.
func ToolResults(m *message.Message) json.RawMessage {
	status := m.Status
	if status == "" {
		status = message.StatusSuccess
	}
	b := jsonobj.AppendText([]byte(`{"tool_results":[{"toolCallId":`), m.ToolCallID)
	b = jsonobj.AppendText(append(b, `,"content":`...), m.Text())
	b = jsonobj.AppendText(append(b, `,"name":`...), m.Name)
	b = jsonobj.AppendText(append(b, `,"status":`...), status)
	return append(b, "}]}"...)
}

// fromBlock reads a block of a content, in the forms that LangChain has for texts and files. ok is false for others: of reasoning, calls of tools.
func fromBlock(b gjson.Result) (p Part, ok bool) {
	if b.Type == gjson.String {
		return Part{Text: b.Str}, b.Str != ""
	}
	file := &File{Type: b.Get("mime_type").Str, Name: b.Get("filename").Str, Base64: b.Get("base64").Str, URL: b.Get("url").Str}
	switch b.Get("type").Str {
	case "text":
		return Part{Text: b.Get("text").Str}, b.Get("text").Str != ""
	case "image_url":
		url := b.Get("image_url")
		if url.IsObject() {
			url = url.Get("url")
		}
		file.URL = url.Str
	case "image", "audio", "video":
		if file.Base64 == "" {
			file.Base64 = b.Get("data").Str
		}
	case "file":
		if inner := b.Get("file"); inner.IsObject() {
			file.URL, file.Name = inner.Get("file_data").Str, inner.Get("filename").Str
		} else if file.Base64 == "" {
			file.Base64 = b.Get("data").Str
		}
	default:
		return Part{}, false
	}
	if kind, data, ok := strings.Cut(strings.TrimPrefix(file.URL, "data:"), ";base64,"); ok && strings.HasPrefix(file.URL, "data:") {
		file.URL, file.Base64, file.Type = "", data, kind
	}
	return Part{File: file}, file.URL != "" || file.Base64 != ""
}

// Sent is a message that a client sends.
type Sent struct {
	ID     string
	Thread id.Thread // context; "": a new one
	Task   *TaskID   // it answers a question of this task; nil: it begins one
	// Wait: the answer is sent when the task has stopped. Otherwise at once.
	Wait    bool
	History *int // how many messages of the history the answer has at most; nil: all
	// Push are notifications of the end of the run; nil: none.
	Push  *webhook.Push
	own   Message
	agent bool
	// metadata of the request, for the run; nil: none.
	metadata json.RawMessage
}

// ReadSend reads the params of message/send and message/stream.
func (d Dialect) ReadSend(params gjson.Result) (*Sent, error) {
	m := params.Get("message")
	if !hasMembers(m) {
		return nil, refuse(InvalidParams, "Missing or invalid 'message' in params")
	}
	s := &Sent{ID: m.Get("messageId").Str, Wait: true}
	if s.ID == "" {
		return nil, refuse(InvalidParams, "Missing required 'messageId' in message")
	}
	if len(s.ID) > maxID {
		return nil, refuse(InvalidParams, "messageId has at most %d bytes", maxID)
	}
	switch role := m.Get("role"); {
	case !role.Exists(), role.Str == "user", role.Str == "ROLE_USER":
	case role.Str == "agent", role.Str == "ROLE_AGENT":
		s.agent = true
	default:
		return nil, refuse(InvalidParams, "The role of a message is user or agent")
	}
	if err := s.readParts(m.Get("parts")); err != nil {
		return nil, err
	}
	if err := s.readPlace(m); err != nil {
		return nil, err
	}
	conf := params.Get("configuration")
	if conf.Exists() && conf.Type != gjson.Null && !conf.IsObject() {
		return nil, refuse(InvalidParams, "Invalid params: 'configuration' must be an object")
	}
	s.Wait = conf.Get("blocking").Type != gjson.False && conf.Get("returnImmediately").Type != gjson.True
	var err error
	if s.History, err = HistoryLength(conf); err != nil {
		return nil, err
	}
	for _, name := range []string{"pushNotificationConfig", "taskPushNotificationConfig"} {
		if v := conf.Get(name); v.Exists() && v.Type != gjson.Null {
			p, err := d.ReadPush(v)
			if err != nil {
				return nil, err
			}
			s.Push = &p
		}
	}
	switch metadata := params.Get("metadata"); {
	case metadata.IsObject():
		s.metadata = json.RawMessage(metadata.Raw)
	case metadata.Exists() && metadata.Type != gjson.Null:
		return nil, refuse(InvalidParams, "metadata is an object")
	}
	return s, nil
}

// readPlace reads the context and the task of a message.
func (s *Sent) readPlace(m gjson.Result) error {
	for _, name := range []string{"contextId", "taskId"} {
		if v := m.Get(name); v.Exists() && v.Type != gjson.String && v.Type != gjson.Null {
			return refuse(InvalidParams, "%s must be a string", name)
		}
	}
	if at := m.Get("contextId").Str; at != "" {
		if s.Thread = id.Thread(id.Canonical(at)); s.Thread == "" {
			return refuse(InvalidParams, "Failed to create run: Invalid thread ID")
		}
	}
	if at := m.Get("taskId"); at.Str != "" {
		task, err := ParseTaskID(at.Str)
		if err != nil {
			return err
		}
		if s.Thread != "" && s.Thread != task.Thread {
			return refuse(InvalidParams, "The task is one of another context")
		}
		s.Task, s.Thread = &task, task.Thread
	}
	return nil
}

// HistoryLength reads the member of this name; nil when it has none.
func HistoryLength(of gjson.Result) (*int, error) {
	v := of.Get("historyLength")
	if !v.Exists() || v.Type == gjson.Null {
		return nil, nil
	}
	if v.Type != gjson.Number || v.Num < 0 || v.Num != float64(int64(v.Num)) {
		return nil, refuse(InvalidParams, "historyLength must be a non-negative integer")
	}
	n := int(min(v.Num, 1<<30))
	return &n, nil
}

func (s *Sent) readParts(parts gjson.Result) error {
	if parts.Exists() && !parts.IsArray() {
		return refuse(InvalidParams, "Invalid params: 'parts' must be an array")
	}
	list := parts.Array()
	if len(list) == 0 {
		return refuse(InvalidParams, "Message must contain at least one part")
	}
	s.own = Message{ID: s.ID, User: !s.agent}
	for _, p := range list {
		one, err := readPart(p)
		if err != nil {
			return err
		}
		s.own.Parts = append(s.own.Parts, one)
	}
	return nil
}

const partKinds = "A2A agents support 'text', 'data', and 'file' parts only."

// readPart reads a part in the form of either version.
func readPart(p gjson.Result) (Part, error) {
	kind := p.Get("kind").Str
	text, data, file := p.Get("text"), p.Get("data"), p.Get("file")
	switch {
	case !p.IsObject():
		return Part{}, refuse(ContentType, "Each message part must be an object. "+partKinds)
	case text.Type == gjson.String && (kind == "" || kind == "text"):
		return Part{Text: text.Str}, nil
	case data.Exists() && (kind == "" || kind == "data"):
		return Part{Data: json.RawMessage(data.Raw)}, nil
	case file.IsObject() && (kind == "" || kind == "file"):
		f := &File{Base64: file.Get("bytes").Str, URL: file.Get("uri").Str, Type: file.Get("mimeType").Str, Name: file.Get("name").Str}
		return Part{File: f}, checkFile(f)
	case p.Get("raw").Exists() || p.Get("url").Exists():
		f := &File{Base64: p.Get("raw").Str, URL: p.Get("url").Str, Type: p.Get("mediaType").Str, Name: p.Get("filename").Str}
		return Part{File: f}, checkFile(f)
	}
	return Part{}, refuse(ContentType, "Unsupported part type. "+partKinds)
}

// notBase64 reports whether no alphabet of base64 has a character.
func notBase64(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("+/-_=\r\n", r)
}

func checkFile(f *File) error {
	if (f.Base64 == "") == (f.URL == "") {
		return refuse(InvalidParams, "A file has either bytes, in base64, or an address")
	}
	if i := strings.IndexFunc(f.Base64, notBase64); i >= 0 {
		return refuse(InvalidParams, "The bytes of a file are base64; character %d is not", i+1)
	}
	return nil
}

// Speaks reports whether the message has a text or a file, for which a graph needs a channel `messages`.
func (s *Sent) Speaks() bool {
	for _, p := range s.own.Parts {
		if p.Data == nil {
			return true
		}
	}
	return false
}

// Own is the message itself, for the history of a task that has just begun.
func (s *Sent) Own() Message { return s.own }

// Body returns the body of the request for a run, in the form of LangGraph Server's API. first is the first run of the task that it continues; "": it begins one.
func (s *Sent) Body(a id.Assistant, first id.Run, live bool) (json.RawMessage, error) {
	o := jsonobj.Object{}
	o.SetText("assistant_id", string(a))
	if first == "" {
		input, err := s.input()
		if err != nil {
			return nil, err
		}
		o.Set("input", input)
		o.SetText("if_not_exists", "create")
	}
	o.Set("stream_mode", json.RawMessage(`["updates"]`))
	if live {
		o.Set("stream_mode", json.RawMessage(`["messages-tuple","updates"]`))
	}
	o.Set("stream_resumable", json.RawMessage("true")) // for tasks/resubscribe
	metadata := jsonobj.Of(s.metadata)
	if metadata.Delete(TaskKey); first != "" {
		metadata.SetText(TaskKey, string(first))
	}
	if metadata.Len() > 0 {
		o.Set("metadata", metadata.JSON())
	}
	return o.JSON(), nil
}

// input returns the input of the graph: data are members of it, texts and files one message.
func (s *Sent) input() (json.RawMessage, error) {
	input := jsonobj.Object{}
	for _, p := range s.own.Parts {
		if p.Data == nil {
			continue
		}
		if !gjson.ParseBytes(p.Data).IsObject() {
			return nil, refuse(ContentType, "DataPart must contain a JSON object in the 'data' field")
		}
		input.Merge(jsonobj.Of(p.Data))
	}
	if !s.Speaks() {
		return input.JSON(), nil
	}
	var messages []json.RawMessage
	if had := input.Get("messages"); had != nil {
		var ok bool
		if messages, ok = jsonscan.Elements(had); !ok {
			return nil, refuse(InvalidParams, "messages is a list where a message has texts too")
		}
	}
	input.Set("messages", jsonscan.Join(append(messages, s.message())))
	return input.JSON(), nil
}

// message returns the texts and files as a message of LangChain.
func (s *Sent) message() json.RawMessage {
	kind := "human"
	if s.agent {
		kind = "ai"
	}
	b := jsonobj.AppendText([]byte(`{"type":"`+kind+`","id":`), s.ID)
	b = append(b, `,"content":`...)
	if text, ok := s.text(); ok {
		return append(jsonobj.AppendText(b, text), '}')
	}
	b = append(b, '[')
	for i, p := range s.own.Parts {
		if p.Data != nil {
			continue
		}
		if i > 0 && b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		if p.File == nil {
			b = append(jsonobj.AppendText(append(b, `{"type":"text","text":`...), p.Text), '}')
			continue
		}
		b = p.File.appendBlock(b)
	}
	return append(b, "]}"...)
}

// appendBlock appends a file as LangChain's standard block.
func (f *File) appendBlock(b []byte) []byte {
	kind, _, _ := strings.Cut(f.Type, "/")
	if kind != "image" && kind != "audio" && kind != "video" {
		kind = "file"
	}
	b = append(b, `{"type":"`+kind+`"`...)
	if f.URL != "" {
		b = jsonobj.AppendText(append(b, `,"url":`...), f.URL)
	} else {
		b = jsonobj.AppendText(append(b, `,"base64":`...), f.Base64)
	}
	if f.Type != "" {
		b = jsonobj.AppendText(append(b, `,"mime_type":`...), f.Type)
	}
	if f.Name != "" {
		b = jsonobj.AppendText(append(b, `,"filename":`...), f.Name)
	}
	return append(b, '}')
}

// text returns the texts of the message as paragraphs; ok is false when it has files.
func (s *Sent) text() (string, bool) {
	var texts []string
	for _, p := range s.own.Parts {
		if p.File != nil {
			return "", false
		}
		if p.Data == nil {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n"), true
}

// Reply returns what the message answers a question with: its data, or else its text.
func (s *Sent) Reply() (data json.RawMessage, text string, err error) {
	text, ok := s.text()
	if !ok {
		return nil, "", refuse(ContentType, "The answer to a question is text or data, not a file")
	}
	for _, p := range s.own.Parts {
		switch {
		case p.Data == nil:
		case data != nil:
			return nil, "", refuse(InvalidParams, "The answer to a question has one part with data")
		default:
			data = p.Data
		}
	}
	return data, text, nil
}

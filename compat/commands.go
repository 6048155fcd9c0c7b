package compat

import (
	"encoding/json"
	"slices"

	guuid "github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/thread"
)

// ForkThread decodes the body of POST /commands/fork-thread.
func ForkThread(body []byte) (from id.Thread, at thread.Fork, err error) {
	o, err := decode(body, ThreadFork)
	if err != nil {
		return "", at, err
	}
	if from, err = ThreadID(o.text("source_thread_id")); err != nil {
		return "", at, err
	}
	return from, thread.Fork{Seq: eventstore.Seq(gjson.ParseBytes(o.raw("event_number")).Int())}, nil
}

// AppendFork appends the answer to a request for a fork.
func AppendFork(dst []byte, from id.Thread, at thread.Fork, v *thread.View) []byte {
	r := newRow(dst, nil)
	r.text("thread_id", string(v.ID))
	r.text("source_thread_id", string(from))
	r.int("event_number", int(at.Seq))
	r.textOrNull("checkpoint_id", string(v.Head))
	r.time("created_at", v.CreatedAt)
	return r.end()
}

// Message is a message that a client sends to a thread.
type Message struct {
	Thread id.Thread
	ID     string // of the message, which its event has too
	Run    run.Request
}

// SendMessage decodes the body of POST /commands/send-message.
func SendMessage(body []byte) (*Message, error) {
	o, err := decode(body, MessageSend)
	if err != nil {
		return nil, err
	}
	t, err := ThreadID(o.text("thread_id"))
	if err != nil {
		return nil, err
	}
	message, name, err := ReadMessage(o.raw("message"))
	if err != nil {
		return nil, err
	}
	b := &jsonobj.Object{}
	b.SetText("assistant_id", o.text("assistant_id"))
	b.Set("input", slices.Concat(json.RawMessage(`{"messages":[`), message, json.RawMessage(`]}`)))
	for _, key := range []string{"config", "context", "metadata"} {
		if raw := o.raw(key); raw != nil {
			b.Set(key, raw)
		}
	}
	req, err := NewRun(b.JSON(), RunForm{})
	return &Message{t, name, req}, err
}

// ReadMessage reads a message of a person: its text, or an object with content. It returns the message and its ID, which is a new one when it has none.
func ReadMessage(raw json.RawMessage) (message json.RawMessage, name string, err error) {
	m := &jsonobj.Object{}
	if len(raw) > 0 && raw[0] == '{' {
		m = jsonobj.Of(raw)
	} else if len(raw) > 0 && raw[0] == '"' {
		m.Set("content", raw)
	}
	for _, key := range []string{"type", "role", "id"} {
		if raw := m.Get(key); raw != nil && raw[0] != '"' && string(raw) != "null" {
			return nil, "", fault.Newf(fault.Unprocessable, "%s of the message is not a string", key)
		}
	}
	role := m.Text("type")
	if role == "" {
		role = m.Text("role")
	}
	if !slices.Contains([]string{"", "human", "user"}, role) {
		return nil, "", fault.Newf(fault.Unprocessable, "message is of type %s; only messages of a person can be sent: human or user", cut([]byte(role)))
	}
	if c := gjson.ParseBytes(m.Get("content")); c.Type != gjson.String && !c.IsArray() || c.String() == "" || c.IsArray() && len(c.Array()) == 0 {
		return nil, "", fault.New(fault.Unprocessable, "message has no content; send a text, or an object whose content is a text or a list of parts")
	}
	m.Delete("role")
	m.SetText("type", "human")
	if name = m.Text("id"); name == "" {
		name = guuid.NewString()
		m.SetText("id", name)
	}
	return m.JSON(), name, nil
}

// AppendSent appends the answer to a message that was sent.
func AppendSent(dst []byte, m *Message, x *run.Run) []byte {
	r := newRow(dst, nil)
	r.text("thread_id", string(x.Thread))
	r.text("run_id", string(x.ID))
	r.text("message_id", m.ID)
	r.text("status", string(x.Status))
	return r.end()
}

package webhook

import (
	"encoding/json"
	"net/http"
	"time"

	"understudy/id"
	"understudy/internal/jsonobj"
)

// Push is where a client of A2A wants to be notified of the end of a run of its task.
type Push struct {
	ID          string `json:"id"`
	Task        string `json:"task,omitempty"` // "": that which the run begins
	URL         string `json:"url"`
	Token       string `json:"token,omitempty"`       // header X-A2A-Notification-Token
	Scheme      string `json:"scheme,omitempty"`      // with Credentials: header Authorization
	Credentials string `json:"credentials,omitempty"` // "": none
	V1          bool   `json:"v1,omitempty"`          // in the words of version 1.0
}

// States of tasks after the end of a run, by version 0.3 and by version 1.0.
var (
	TaskCompleted     = [2]string{"completed", "TASK_STATE_COMPLETED"}
	TaskInputRequired = [2]string{"input-required", "TASK_STATE_INPUT_REQUIRED"}
	TaskFailed        = [2]string{"failed", "TASK_STATE_FAILED"}
	TaskCanceled      = [2]string{"canceled", "TASK_STATE_CANCELED"}
)

// TaskEnd is what a push notification reports: a run of a task has ended.
type TaskEnd struct {
	Thread id.Thread
	Run    id.Run
	State  [2]string
	At     time.Time
}

// Members of the body of a delivery that is a push notification: what is sent, and the headers with it.
const (
	pushBody    = "__push_body__"
	pushHeaders = "__push_headers__"
)

// Delivery makes the entry of the outbox that reports the state of a task. The receiver then requests the task.
func (p Push) Delivery(e TaskEnd) *Delivery {
	task, state := p.Task, e.State[0]
	if task == "" {
		task = string(e.Thread) + ":" + string(e.Run)
	}
	if p.V1 {
		state = e.State[1]
	}
	body := jsonobj.AppendText([]byte(`{"kind":"task","id":`), task)
	body = jsonobj.AppendText(append(body, `,"contextId":`...), string(e.Thread))
	body = jsonobj.AppendText(append(body, `,"status":{"state":`...), state)
	body = jsonobj.AppendText(append(body, `,"timestamp":`...), e.At.UTC().Format(timeLayout))
	if body = append(body, "}}"...); p.V1 {
		body = append(append([]byte(`{"task":`), body...), '}')
	}
	headers := &jsonobj.Object{}
	if p.Token != "" {
		headers.SetText("X-A2A-Notification-Token", p.Token)
	}
	if p.Credentials != "" {
		headers.SetText("Authorization", p.Scheme+" "+p.Credentials)
	}
	whole := &jsonobj.Object{}
	whole.Set(pushBody, body)
	whole.Set(pushHeaders, headers.JSON())
	return &Delivery{Thread: e.Thread, Run: e.Run, URL: p.URL, Origin: origin(p.URL), Body: whole.JSON(), Due: e.At}
}

// push returns the body of a delivery that is a push notification, and adds its headers; nil for others.
func push(body *jsonobj.Object, to http.Header) json.RawMessage {
	sent := body.Get(pushBody)
	if sent == nil {
		return nil
	}
	headers := jsonobj.Of(body.Get(pushHeaders))
	for _, name := range headers.Keys() {
		to.Set(name, headers.Text(name))
	}
	return sent
}

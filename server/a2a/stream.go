package a2a

import (
	"strconv"
	"strings"
	"time"

	"understudy/bridge"
	"understudy/server/answer"
)

// Events is the stream of a task. It implements the interface of streams of package server.
type Events struct {
	call  Call
	task  *Task // as it is when the stream begins
	fold  *answer.Answer
	run   string // id of the run that is followed
	final func() (*Task, error)
	fail  func(error) (code int, text string)
	now   func() time.Time

	begun   bool
	number  int // of the message that is shown
	text    strings.Builder
	sent    int // bytes of it that were sent
	results int // of tools
}

// NewEvents returns the stream of a task, which begins with the task itself. fold makes an answer of the records of the run, live. final returns the task after its
// run has ended, and fail the form of its error that clients see.
func NewEvents(call Call, task *Task, run string, fold *answer.Answer, final func() (*Task, error), fail func(error) (int, string)) *Events {
	return &Events{call: Call{Dialect: call.Dialect, ID: call.ID}, task: task, run: run, fold: fold, final: final, fail: fail, now: time.Now}
}

// Append implements the interface of streams.
func (e *Events) Append(dst []byte, r *bridge.Record) []byte {
	dst = e.Begin(dst)
	for _, p := range e.fold.Add(r) {
		if p.Message != e.number {
			dst = e.flush(dst)
			e.number, e.sent = p.Message, 0
			e.text.Reset()
		}
		e.text.WriteString(p.Text)
		// Each update repeats the text. They come when it has grown by a quarter, so that all of them are in proportion to its length.
		if e.text.Len() > e.sent+e.sent/4 {
			dst = e.flush(dst)
		}
	}
	for _, m := range e.fold.Results() {
		dst = e.flush(dst)
		dst = e.update(dst, &Message{ID: e.run + "-tool-" + strconv.Itoa(e.results), Parts: []Part{{Data: ToolResults(&m)}}})
		e.results++
	}
	return dst
}

// Begin appends the task, once: clients learn its ID while the run waits.
func (e *Events) Begin(dst []byte) []byte {
	if e.begun {
		return dst
	}
	e.begun = true
	dst = event(dst, func(dst []byte) []byte { return e.call.AppendResult(dst, e.call.AppendSent(nil, e.task)) })
	e.task.History, e.task.Artifacts = nil, nil // not for as long as the run takes
	return dst
}

// flush appends the text so far, if the client has not seen all of it.
func (e *Events) flush(dst []byte) []byte {
	if e.text.Len() == e.sent {
		return dst
	}
	e.sent = e.text.Len()
	return e.update(dst, Says(e.run+"-"+strconv.Itoa(e.number), e.text.String()))
}

// update appends that the task is working, and what it says.
func (e *Events) update(dst []byte, m *Message) []byte {
	return e.status(dst, &Task{ID: e.task.ID, State: Working, At: e.now(), Status: m}, false)
}

// members appends an update of one kind. Version 1.0 has it in a member, LangGraph Server in the result itself: the result has both.
func (e *Events) members(dst []byte, kind, member string, fill func(dst []byte) []byte) []byte {
	return event(dst, func(dst []byte) []byte {
		head := `{"taskId":"` + e.task.ID.String() + `","contextId":"` + string(e.task.ID.Thread) + `",`
		body := fill([]byte(head))
		result := append(append([]byte{}, body...), `,"kind":"`+kind+`"`...)
		if e.call.V1 {
			result = append(append(append(result, `,"`+member+`":`...), body...), '}')
		}
		return e.call.AppendResult(dst, append(result, '}'))
	})
}

func (e *Events) status(dst []byte, t *Task, final bool) []byte {
	return e.members(dst, "status-update", "statusUpdate", func(dst []byte) []byte {
		dst = e.call.appendStatus(append(dst, `"status":`...), t)
		return strconv.AppendBool(append(dst, `,"final":`...), final)
	})
}

// End implements the interface of streams.
func (e *Events) End(dst []byte) []byte {
	dst = e.flush(e.Begin(dst))
	t, err := e.final()
	if err != nil {
		code, text := e.fail(err)
		return event(dst, func(dst []byte) []byte { return e.call.AppendFailure(dst, code, text) })
	}
	for i := range t.Artifacts {
		dst = e.members(dst, "artifact-update", "artifactUpdate", func(dst []byte) []byte {
			dst = e.call.appendArtifact(append(dst, `"artifact":`...), &t.Artifacts[i])
			return append(dst, `,"append":false,"lastChunk":true`...)
		})
	}
	return e.status(dst, t, true)
}

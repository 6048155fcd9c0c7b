package a2a

import (
	"encoding/json"
	"strings"
	"time"

	"understudy/id"
	"understudy/internal/jsonobj"
)

// TaskKey is the member of a run's metadata that names the first run of its task, if that is another one.
const TaskKey = "a2a_task"

// TaskID names a task: its context and its first run.
type TaskID struct {
	Thread id.Thread
	Run    id.Run
}

func (t TaskID) String() string { return string(t.Thread) + ":" + string(t.Run) }

// ParseTaskID reads the ID of a task. The error is that of a task that there is not.
func ParseTaskID(s string) (TaskID, error) {
	thread, run, _ := strings.Cut(s, ":")
	t := TaskID{id.Thread(id.Canonical(thread)), id.Run(id.Canonical(run))}
	if t.Thread == "" || t.Run == "" {
		if len(s) > 100 {
			s = s[:100]
		}
		return TaskID{}, NoTask(strings.ToValidUTF8(s, "?"))
	}
	return t, nil
}

// State of a task, as version 0.3 spells it.
type State string

const (
	Submitted     State = "submitted"
	Working       State = "working"
	InputRequired State = "input-required"
	Completed     State = "completed"
	Failed        State = "failed"
	Canceled      State = "canceled"
)

// Terminal reports whether the task takes no more messages.
func (s State) Terminal() bool { return s == Completed || s == Failed || s == Canceled }

// ParseState reads a state in the words of either version; "" for none.
func ParseState(s string) State {
	name, v1 := strings.CutPrefix(s, "TASK_STATE_")
	if v1 {
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	switch state := State(name); state {
	case Submitted, Working, InputRequired, Completed, Failed, Canceled:
		return state
	}
	return ""
}

// spell returns the state in the words of a version.
func (d Dialect) spell(s State) string {
	if d.V1 {
		return "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(string(s), "-", "_"))
	}
	return string(s)
}

// Artifact is a result of a task: an answer, or a question.
type Artifact struct {
	ID, Name, Description string
	Parts                 []Part
}

// Task is a task as clients see it.
type Task struct {
	ID      TaskID
	State   State
	At      time.Time // of the state
	Status  *Message  // says something of the state; nil: nothing
	History []Message
	// Artifacts are what the task has made.
	Artifacts []Artifact
	// NoHistory and NoArtifacts leave these members out.
	NoHistory, NoArtifacts bool
}

const timeLayout = "2006-01-02T15:04:05.000000-07:00"

func (d Dialect) appendStatus(dst []byte, t *Task) []byte {
	dst = append(append(append(dst, `{"state":"`...), d.spell(t.State)...), '"')
	if t.Status != nil {
		dst = d.appendMessage(append(dst, `,"message":`...), t.ID, t.Status)
	}
	return append(t.At.UTC().AppendFormat(append(dst, `,"timestamp":"`...), timeLayout), `"}`...)
}

// AppendTask appends a task.
func (d Dialect) AppendTask(dst []byte, t *Task) []byte {
	dst = append(dst, `{"kind":"task","id":"`+t.ID.String()+`","contextId":"`+string(t.ID.Thread)+`","status":`...)
	dst = d.appendStatus(dst, t)
	if !t.NoHistory {
		dst = append(dst, `,"history":[`...)
		for i := range t.History {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = d.appendMessage(dst, t.ID, &t.History[i])
		}
		dst = append(dst, ']')
	}
	if !t.NoArtifacts {
		dst = append(dst, `,"artifacts":[`...)
		for i := range t.Artifacts {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = d.appendArtifact(dst, &t.Artifacts[i])
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// AppendSent appends a task as the answer to a message, which version 1.0 wraps.
func (d Dialect) AppendSent(dst []byte, t *Task) []byte {
	if !d.V1 {
		return d.AppendTask(dst, t)
	}
	return append(d.AppendTask(append(dst, `{"task":`...), t), '}')
}

func (d Dialect) appendArtifact(dst []byte, a *Artifact) []byte {
	dst = jsonobj.AppendText(append(dst, `{"artifactId":`...), a.ID)
	dst = jsonobj.AppendText(append(dst, `,"name":`...), a.Name)
	dst = jsonobj.AppendText(append(dst, `,"description":`...), a.Description)
	return append(d.appendParts(append(dst, `,"parts":`...), a.Parts), '}')
}

// Answer is the artifact with the text of an answer.
func Answer(r id.Run, a id.Assistant, parts ...Part) Artifact {
	return Artifact{ID: string(r), Name: "Assistant Response", Description: "Response from assistant " + string(a), Parts: parts}
}

// Question is the artifact with the interrupts that a task waits at, each as {id, value}.
func Question(r id.Run, interrupts []json.RawMessage) Artifact {
	a := Artifact{ID: string(r) + "-interrupt", Name: "Interrupt", Description: "Agent requires input to continue"}
	for _, raw := range interrupts {
		a.Parts = append(a.Parts, Part{Data: raw})
	}
	return a
}

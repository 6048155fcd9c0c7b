package run

import (
	"encoding/json"
	"time"

	"github.com/tidwall/gjson"

	"understudy/id"
)

// Task is what a scheduled task of DeerFlow has in addition to its cron.
type Task struct {
	Title  string          `json:"title"`
	Prompt string          `json:"prompt"`
	Once   bool            `json:"once"` // it is due at one time, not by a cron expression
	Spec   json.RawMessage `json:"spec"` // the schedule as clients wrote it: an object with cron or run_at
	Fresh  bool            `json:"fresh"`
	// Thread is the one that its runs continue; with Fresh, each has a thread of its own, and this is what clients set.
	Thread id.Thread  `json:"thread,omitempty"`
	Status TaskStatus `json:"status"`

	// Of its last run; "": there was none.
	LastAt     *time.Time `json:"last_at,omitempty"`
	LastRun    id.Run     `json:"last_run,omitempty"`
	LastThread id.Thread  `json:"last_thread,omitempty"`
	LastError  string     `json:"last_error,omitempty"`
	// Settled: the end of the last run is in Status and LastError.
	Settled bool `json:"settled"`
	Runs    int  `json:"runs"`
}

// TaskStatus is the state of a scheduled task.
type TaskStatus string

// States of scheduled tasks. All but the first two are of tasks that are due once.
const (
	TaskEnabled   TaskStatus = "enabled"
	TaskPaused    TaskStatus = "paused"
	TaskRunning   TaskStatus = "running"
	TaskCompleted TaskStatus = "completed"
	TaskFailed    TaskStatus = "failed"
	TaskCancelled TaskStatus = "cancelled"
)

// Active reports whether the run is neither over nor gone; r may be nil.
func (r *Run) Active() bool { return r != nil && (r.Status == Pending || r.Status == Running) }

// Settle notes how the last run ended. last is its row, nil when it was deleted. It does nothing while the run is active.
func (t *Task) Settle(last *Run) {
	if t.LastRun == "" || t.Settled || last.Active() {
		return
	}
	t.Settled = true
	outcome, why := Outcome(last)
	t.LastError = why
	if t.Status != TaskRunning {
		return
	}
	switch outcome {
	case OccurrenceSuccess:
		t.Status = TaskCompleted
	case OccurrenceInterrupted:
		t.Status = TaskCancelled
	default:
		t.Status = TaskFailed
	}
}

// MaxOccurrences is how many occurrences are kept of a scheduled task, the newest.
const MaxOccurrences = 1000

// Occurrence is the outcome of a scheduled task that was due or triggered.
type Occurrence struct {
	ID     string
	Cron   id.Cron
	Thread id.Thread
	Run    id.Run // "": it made none
	Manual bool   // it was triggered
	At     time.Time

	// Status and Error are those of the run, which were read with it, or stored when there is none.
	Status OccurrenceStatus
	Error  string
	Ended  time.Time // zero: it has not ended
}

// OccurrenceStatus is how an occurrence of a scheduled task ended.
type OccurrenceStatus string

// States of occurrences.
const (
	OccurrenceRunning     OccurrenceStatus = "running"
	OccurrenceSuccess     OccurrenceStatus = "success"
	OccurrenceFailed      OccurrenceStatus = "failed"
	OccurrenceInterrupted OccurrenceStatus = "interrupted"
	OccurrenceSkipped     OccurrenceStatus = "skipped"
)

// Outcome returns what a run, nil when it was deleted, is to the task that made it, and why.
func Outcome(r *Run) (s OccurrenceStatus, why string) {
	switch {
	case r == nil:
		return OccurrenceInterrupted, "the run was deleted"
	case r.Active():
		return OccurrenceRunning, ""
	case r.Status == Success:
		return OccurrenceSuccess, ""
	case r.Cancel != "" || r.Status == Interrupted:
		return OccurrenceInterrupted, "run was interrupted before completion"
	}
	if why = gjson.GetBytes(r.Error, "message").String(); why == "" {
		why = string(r.Status)
	}
	return OccurrenceFailed, why
}

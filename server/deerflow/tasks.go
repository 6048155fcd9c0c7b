package deerflow

import (
	"encoding/json"
	"time"

	"understudy/run"
	"understudy/run/cron"
)

// Contexts of scheduled tasks.
const (
	FreshThread = "fresh_thread_per_run"
	ReuseThread = "reuse_thread"
)

// Task is a scheduled task. What only the Gateway's own scheduler needs, its lease, is never set.
func Task(c *run.Cron) json.RawMessage {
	t := c.Task
	mode, kind := ReuseThread, "cron"
	if t.Fresh {
		mode = FreshThread
	}
	if t.Once {
		kind = "once"
	}
	return encode(struct {
		ID          string          `json:"id"`
		User        string          `json:"user_id"`
		Thread      *string         `json:"thread_id"`
		Mode        string          `json:"context_mode"`
		Assistant   string          `json:"assistant_id"`
		Title       string          `json:"title"`
		Prompt      string          `json:"prompt"`
		Kind        string          `json:"schedule_type"`
		Spec        json.RawMessage `json:"schedule_spec"`
		Timezone    string          `json:"timezone"`
		Status      run.TaskStatus  `json:"status"`
		Overlap     string          `json:"overlap_policy"`
		Next        *string         `json:"next_run_at"`
		LastAt      *string         `json:"last_run_at"`
		LastRun     *string         `json:"last_run_id"`
		LastThread  *string         `json:"last_thread_id"`
		LastError   *string         `json:"last_error"`
		LeaseOwner  *string         `json:"lease_owner"`
		LeaseExpiry *string         `json:"lease_expires_at"`
		Runs        int             `json:"run_count"`
		CreatedAt   string          `json:"created_at"`
		UpdatedAt   string          `json:"updated_at"`
	}{
		ID: cron.TaskID(c.ID), User: c.Account, Thread: some(string(t.Thread)), Mode: mode, Assistant: "lead_agent", Title: t.Title, Prompt: t.Prompt, Kind: kind, Spec: object(t.Spec),
		Timezone: c.Timezone, Status: t.Status, Overlap: "skip", Next: stamp(c.Next), LastAt: stamp(t.LastAt), LastRun: some(string(t.LastRun)), LastThread: some(string(t.LastThread)),
		LastError: some(t.LastError), Runs: t.Runs, CreatedAt: Stamp(c.CreatedAt), UpdatedAt: Stamp(c.UpdatedAt),
	})
}

// stamp is Stamp of a time that may be missing.
func stamp(t *time.Time) *string {
	if t == nil || t.IsZero() {
		return nil
	}
	return some(stampSeconds(*t))
}

// stampSeconds is a time without the fraction where it is zero, as the Gateway writes times of schedules.
func stampSeconds(t time.Time) string {
	if t.Nanosecond() < int(time.Microsecond) {
		return t.UTC().Format("2006-01-02T15:04:05+00:00")
	}
	return Stamp(t)
}

// Occurrence is the outcome of a scheduled task that was due or triggered.
func Occurrence(o *run.Occurrence) json.RawMessage {
	trigger := "scheduled"
	if o.Manual {
		trigger = "manual"
	}
	return encode(struct {
		ID        string               `json:"id"`
		Task      string               `json:"task_id"`
		Thread    string               `json:"thread_id"`
		Run       *string              `json:"run_id"`
		At        string               `json:"scheduled_for"`
		Trigger   string               `json:"trigger"`
		Status    run.OccurrenceStatus `json:"status"`
		Error     *string              `json:"error"`
		Started   string               `json:"started_at"`
		Finished  *string              `json:"finished_at"`
		CreatedAt string               `json:"created_at"`
	}{o.ID, cron.TaskID(o.Cron), string(o.Thread), some(string(o.Run)), Stamp(o.At), trigger, o.Status, some(o.Error), Stamp(o.At), stamp(&o.Ended), Stamp(o.At)})
}

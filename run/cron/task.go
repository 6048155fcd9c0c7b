package cron

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// TaskRules say how scheduled tasks are run.
type TaskRules struct {
	Scheduled bool          // they are due by themselves; else they can only be triggered
	MaxRuns   int           // of all tasks at once; 0: any number
	MinDelay  time.Duration // how far ahead a single time has to be
}

// rules returns the rules of now.
func (s *Crons) rules() TaskRules {
	if s.Tasks == nil {
		return TaskRules{}
	}
	return s.Tasks()
}

// Refusals and reasons of scheduled tasks, in DeerFlow's words.
var (
	errNoTask      = fault.New(fault.NotFound, "Scheduled task not found")
	errTaskThread  = fault.New(fault.NotFound, "Thread not found")
	errTaskRunning = fault.New(fault.Conflict, "Scheduled task is currently running; retry after the active execution finishes")
	errTaskActive  = fault.New(fault.Conflict, "task already has an active run")
	errChanged     = fault.New(fault.Conflict, "Scheduled task is being changed; try again")
	errTaskLimit   = fault.New(fault.Conflict, "global concurrent-run limit reached")
)

const (
	skippedActive = "skipped: a previous run of this task is still active"
	// taskPause is when tasks that are due are looked at again while too many runs are active.
	taskPause = 5 * time.Second
	// MaxTasks is how many scheduled tasks an account may have.
	MaxTasks = 1000
)

// TaskID is the id of a scheduled task on the wire.
func TaskID(c id.Cron) string { return "task-" + strings.ReplaceAll(string(c), "-", "") }

// taskCron is the cron of a scheduled task; "" for what is no id of one.
func taskCron(task string) id.Cron {
	hex, found := strings.CutPrefix(task, "task-")
	if !found || len(hex) != 32 {
		return ""
	}
	text := strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
	if id.Canonical(text) != text {
		return ""
	}
	return id.Cron(text)
}

// occurrenceID makes an id of an occurrence.
func occurrenceID() string { return "task-run-" + strings.ReplaceAll(string(id.NewCron()), "-", "") }

// NewTask is a request for a scheduled task.
type NewTask struct {
	Account       string
	Title, Prompt string
	When
	Fresh     bool
	Thread    id.Thread
	Assistant id.Assistant
	Payload   json.RawMessage // of its runs, in LangGraph's form
}

// TaskPatch changes a scheduled task. Nil fields stay.
type TaskPatch struct {
	Title, Prompt *string
	Payload       json.RawMessage // of its runs; goes with Prompt
	Fresh         *bool
	Thread        *id.Thread
	Spec          json.RawMessage
	Timezone      *string
}

// CreateTask makes a scheduled task. Whose the thread is that its runs continue, the caller has checked.
func (s *Crons) CreateTask(ctx context.Context, n NewTask) (*run.Cron, error) {
	now := s.Clock.Now()
	next, err := n.arm(now, s.rules().MinDelay)
	if err != nil {
		return nil, err
	}
	c := &run.Cron{
		ID: id.NewCron(), Assistant: n.Assistant, Timezone: n.Timezone, Next: next, Metadata: json.RawMessage(`{}`), Payload: n.Payload, Enabled: true, CreatedAt: now, UpdatedAt: now,
		Account: n.Account, Task: &run.Task{Title: n.Title, Prompt: n.Prompt, Once: n.Once, Spec: n.Spec, Fresh: n.Fresh, Thread: n.Thread, Status: run.TaskEnabled},
	}
	c.Payload = encryptedIn(c.Payload, encryption.Of(ctx))
	err = s.Store.Write(ctx, func(tx run.Tx) error {
		if err := bind(tx, c); err != nil {
			return err
		}
		if there, err := tx.CountTasks(n.Account); err != nil {
			return err
		} else if there >= MaxTasks {
			return fault.Newf(fault.Conflict, "an account has at most %d scheduled tasks; delete some first", MaxTasks)
		}
		return tx.InsertCron(c)
	})
	if err != nil {
		return nil, err
	}
	s.Poke()
	return c, nil
}

// encryptedIn writes into the configuration of a task's runs the context that they are encrypted in.
func encryptedIn(payload json.RawMessage, in encryption.Context) json.RawMessage {
	return withConfigurable(jsonobj.Of(payload), func(configurable *jsonobj.Object) { encryption.Write(configurable, in) })
}

// bind makes the thread that runs of a task continue the cron's, with which it is deleted.
func bind(tx run.Tx, c *run.Cron) error {
	if c.Thread = ""; c.Task.Fresh {
		return nil
	}
	c.Thread = c.Task.Thread
	_, err := tx.Thread(c.Thread)
	if fault.Is(err, fault.NotFound) {
		return errTaskThread
	}
	return err
}

// TaskOf returns a scheduled task of an account.
func (s *Crons) TaskOf(ctx context.Context, account, task string) (*run.Cron, error) {
	c, err := s.Store.Cron(ctx, taskCron(task))
	if err = ownTask(c, err, account); err != nil {
		return nil, err
	}
	return c, s.settle(ctx, c)
}

// TasksOf returns the scheduled tasks of an account, newest first; with a thread, those alone that name it.
func (s *Crons) TasksOf(ctx context.Context, account string, t id.Thread) ([]*run.Cron, error) {
	list, err := s.Store.Crons(ctx, run.CronQuery{Account: account})
	if err != nil {
		return nil, err
	}
	out := []*run.Cron{}
	for _, c := range list {
		if t != "" && c.Task.Thread != t {
			continue
		}
		if err := s.settle(ctx, c); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// settle notes on a task that was read how its last run ended.
func (s *Crons) settle(ctx context.Context, c *run.Cron) error {
	if c.Task.LastRun == "" || c.Task.Settled {
		return nil
	}
	last, err := s.Store.Run(ctx, c.Task.LastThread, c.Task.LastRun)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	c.Task.Settle(last)
	return nil
}

// settleIn is settle for a task that the transaction has locked. It returns whether its last run is active.
func settleIn(tx run.CronTx, c *run.Cron) (active bool, err error) {
	if c.Task.LastRun == "" || c.Task.Settled {
		return false, nil
	}
	last, err := tx.Run(c.Task.LastThread, c.Task.LastRun)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}
	c.Task.Settle(last)
	return last.Active(), nil
}

// taskIn returns a task of an account, locked.
func taskIn(tx run.CronTx, account, task string) (*run.Cron, error) {
	c, err := tx.Cron(taskCron(task))
	return c, ownTask(c, err, account)
}

// ownTask returns the error for what was read as a task of an account: errNoTask also when it is no task, or that of another.
func ownTask(c *run.Cron, err error, account string) error {
	if fault.Is(err, fault.NotFound) || err == nil && (c.Account == "" || c.Account != account) {
		return errNoTask
	}
	return err
}

// changeTask changes a task that is not running.
func (s *Crons) changeTask(ctx context.Context, account, task string, change func(tx run.Tx, c *run.Cron, now time.Time) error) (c *run.Cron, err error) {
	err = s.Store.Write(ctx, func(tx run.Tx) error {
		if c, err = taskIn(tx, account, task); err != nil {
			return err
		}
		if _, err := settleIn(tx, c); err != nil {
			return err
		}
		if err := Mutable(c); err != nil {
			return err
		}
		now := s.Clock.Now()
		if err := change(tx, c, now); err != nil {
			return err
		}
		c.UpdatedAt, c.Enabled = now, c.Task.Status == run.TaskEnabled
		return tx.UpdateCron(c)
	})
	if err != nil {
		return nil, err
	}
	s.Poke()
	return c, nil
}

// Mutable refuses changes of a task that is running.
func Mutable(c *run.Cron) error {
	if c.Task.Status == run.TaskRunning {
		return errTaskRunning
	}
	return nil
}

// UpdateTask changes a scheduled task. A changed schedule or zone counts from now, and a task that is over is due again.
func (s *Crons) UpdateTask(ctx context.Context, account, task string, p TaskPatch) (*run.Cron, error) {
	return s.changeTask(ctx, account, task, func(tx run.Tx, c *run.Cron, now time.Time) error {
		t := c.Task
		if p.Title != nil {
			t.Title = *p.Title
		}
		if p.Prompt != nil {
			t.Prompt, c.Payload = *p.Prompt, encryptedIn(p.Payload, encryption.OfRun(jsonobj.Of(c.Payload).Get("config")))
		}
		if p.Fresh != nil {
			t.Fresh = *p.Fresh
		}
		if p.Thread != nil {
			t.Thread = *p.Thread
		}
		if t.Fresh {
			t.Thread = ""
		}
		if err := bind(tx, c); err != nil {
			return err
		}
		if p.Spec == nil && p.Timezone == nil {
			return nil
		}
		w := whenOf(c)
		if p.Spec != nil {
			w.Spec = p.Spec
		}
		if p.Timezone != nil {
			w.Timezone = *p.Timezone
		}
		next, err := w.arm(now, s.rules().MinDelay)
		if err != nil {
			return err
		}
		t.Spec, c.Timezone, c.Next = w.Spec, w.Timezone, next
		if t.Status != run.TaskPaused {
			t.Status = run.TaskEnabled
		}
		return nil
	})
}

// PauseTask and ResumeTask let a task not be due by itself, and be due again.
func (s *Crons) PauseTask(ctx context.Context, account, task string) (*run.Cron, error) {
	return s.setTask(ctx, account, task, run.TaskPaused)
}

// ResumeTask is the reverse of PauseTask.
func (s *Crons) ResumeTask(ctx context.Context, account, task string) (*run.Cron, error) {
	return s.setTask(ctx, account, task, run.TaskEnabled)
}

func (s *Crons) setTask(ctx context.Context, account, task string, status run.TaskStatus) (*run.Cron, error) {
	return s.changeTask(ctx, account, task, func(_ run.Tx, c *run.Cron, _ time.Time) error {
		c.Task.Status = status
		return nil
	})
}

// DeleteTask deletes a scheduled task and its occurrences. Its runs are not affected.
func (s *Crons) DeleteTask(ctx context.Context, account, task string) error {
	return s.Store.Write(ctx, func(tx run.Tx) error {
		c, err := taskIn(tx, account, task)
		if err != nil {
			return err
		}
		return tx.DeleteCron(c.ID)
	})
}

// Occurrences returns the outcomes of a scheduled task, newest first.
func (s *Crons) Occurrences(ctx context.Context, c *run.Cron, limit, offset int) ([]*run.Occurrence, error) {
	return s.Store.Occurrences(ctx, c.ID, limit, offset)
}

// room is how many runs of scheduled tasks may still be made.
type room struct {
	most   int       // 0: any number
	active []id.Cron // the tasks of those that are pending or running
}

func (r *room) full() bool { return r.most > 0 && len(r.active) >= r.most }

// roomIn counts the runs that are active, unless any number may be.
func roomIn(tx run.CronTx, rules TaskRules) (r *room, err error) {
	r = &room{most: rules.MaxRuns}
	if r.most > 0 {
		r.active, err = tx.ActiveOccurrences()
	}
	return r, err
}

// TriggerTask makes a run of a scheduled task now. fault.Conflict: another run is in its way. Other errors are those of creating the run.
func (s *Crons) TriggerTask(ctx context.Context, account, task string) error {
	for range triggerTries {
		c, err := s.TaskOf(ctx, account, task)
		if err != nil {
			return err
		}
		if err := s.triggerTask(ctx, account, task, s.ask(ctx, c)); !errors.Is(err, errChanged) {
			return err
		}
	}
	return errChanged
}

// triggerTries is how often a task is asked about again that was changed meanwhile.
const triggerTries = 3

// triggerTask is TriggerTask for the version of the task that was admitted; errChanged: it is another one now.
func (s *Crons) triggerTask(ctx context.Context, account, task string, admitted *admission) error {
	var refused error
	err := s.Runs.CreateIn(ctx, func(tx run.CronTx, add Add) error {
		c, err := taskIn(tx, account, task)
		if err != nil {
			return err
		}
		if admitted.of(c) == nil {
			return errChanged
		}
		room, err := roomIn(tx, s.rules())
		if err == nil {
			refused, err = s.fireTask(tx, add, c, s.Clock.Now(), room, admitted, true)
		}
		return err
	})
	if err != nil {
		return err
	}
	return refused
}

// fireTask makes the run of a task that is due or triggered, and notes the outcome in the same transaction: it fires once, whatever happens. refused says why
// there is no run. With errTaskLimit nothing is noted or written: there are too many, and a task that is due waits.
func (s *Crons) fireTask(tx run.CronTx, add Add, c *run.Cron, now time.Time, room *room, admitted *admission, manual bool) (refused, err error) {
	t := c.Task
	if !manual && room.full() && !slices.Contains(room.active, c.ID) {
		return errTaskLimit, nil // as most do then: nothing is read for it
	}
	active, err := settleIn(tx, c)
	if err != nil {
		return nil, err
	}
	if active && manual {
		return errTaskActive, nil
	}
	o := &run.Occurrence{ID: occurrenceID(), Cron: c.ID, Thread: c.Thread, Manual: manual, At: now}
	if t.Fresh {
		o.Thread = id.NewThread()
	}
	w := whenOf(c)
	next, bad := w.next(now)
	if active {
		return s.skip(tx, c, o, next, skippedActive)
	}
	if room.full() {
		return errTaskLimit, nil
	}
	var r *run.Run
	if err = bad; err == nil { // else the schedule cannot be read any more: its zone is gone
		r, err = s.addTaskRun(add, c, o, admitted)
	}
	switch kind := fault.KindOf(err); {
	case err == nil:
		o.Run, t.LastRun, t.LastError, t.Settled = r.ID, r.ID, "", false
		t.Runs++
		room.active = append(room.active, c.ID)
		switch {
		case t.Once:
			t.Status = run.TaskRunning
		case !manual || t.Status != run.TaskPaused:
			t.Status = run.TaskEnabled
		}
	case mayWork(err):
		return nil, err
	case kind == fault.Conflict && !manual:
		return s.skip(tx, c, o, next, err.Error())
	default:
		s.Log.Warn("scheduled task could not make its run", "task", TaskID(c.ID), "error", err)
		o.Status, o.Error = run.OccurrenceFailed, err.Error()
		t.LastRun, t.LastError, t.Settled = "", err.Error(), true
		if !manual && t.Once {
			t.Status = run.TaskFailed
		}
		refused = err
	}
	t.LastAt, t.LastThread = &now, o.Thread
	return refused, s.moveOn(tx, c, o, next)
}

// skip notes that a task that was due made no run, as another one goes.
func (s *Crons) skip(tx run.CronTx, c *run.Cron, o *run.Occurrence, next *time.Time, why string) (refused, err error) {
	o.Status, o.Error = run.OccurrenceSkipped, why
	if c.Task.Once {
		c.Task.Status, c.Task.LastError = run.TaskFailed, why
	}
	return nil, s.moveOn(tx, c, o, next)
}

func (s *Crons) moveOn(tx run.CronTx, c *run.Cron, o *run.Occurrence, next *time.Time) error {
	c.Next, c.UpdatedAt, c.Enabled = next, o.At, c.Task.Status == run.TaskEnabled
	if err := tx.UpdateCron(c); err != nil {
		return err
	}
	return tx.InsertOccurrence(o)
}

// addTaskRun makes the run of an occurrence.
func (s *Crons) addTaskRun(add Add, c *run.Cron, o *run.Occurrence, admitted *admission) (*run.Run, error) {
	if admitted.err != nil {
		return nil, admitted.err
	}
	req := *admitted.req // of which the transaction may make another one
	how := "scheduled"
	if o.Manual {
		how = "manual"
	}
	metadata := jsonobj.Of(req.Metadata)
	metadata.SetText("scheduled_task_id", TaskID(c.ID))
	metadata.SetText("scheduled_task_run_id", o.ID)
	metadata.SetText("scheduled_trigger", how)
	req.Metadata, req.Strategy, req.KeepUndone = metadata.JSON(), run.Reject, true
	req.IfNotExists = "reject"
	if c.Task.Fresh {
		req.IfNotExists = "create"
	}
	return add(o.Thread, c.Assistant, false, &req)
}

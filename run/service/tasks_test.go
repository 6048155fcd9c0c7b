package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/cron"
	"understudy/run/service"
	"understudy/thread"
)

const hour = int64(time.Hour)

// taskWorld has a clock that moves on request, a graph that waits to be released, and tasks that are due every hour.
type taskWorld struct {
	*world
	offset  atomic.Int64
	rules   atomic.Pointer[cron.TaskRules]
	release chan error      // an end of the graph `held`
	ctx     context.Context // in which tasks are made; nil: that of the test
}

func newTaskWorld(t *testing.T, changes ...func(*service.Options)) *taskWorld {
	t.Helper()
	w := &taskWorld{release: make(chan error)}
	w.rules.Store(&cron.TaskRules{Scheduled: true, MaxRuns: 3, MinDelay: time.Minute})
	w.world = newWorld(t, map[string]script{
		"echo": echo,
		"held": {stream: func(ctx context.Context, _ graph.Invocation, _ func(string, string)) error {
			select {
			case err := <-w.release:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}},
	}, func(o *service.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }
		o.Tasks = func() cron.TaskRules { return *w.rules.Load() }
		for _, change := range changes {
			change(o)
		}
	})
	return w
}

// at moves the clock on, as a server that starts later sees it.
func (w *taskWorld) later(d int64) {
	w.stop()
	w.offset.Add(d)
	w.start()
}

func (w *taskWorld) make(graph string, change func(*cron.NewTask)) *run.Cron {
	w.t.Helper()
	n := cron.NewTask{
		Account: "ann", Title: "T", Prompt: "P", Fresh: true, Assistant: id.DefaultAssistant(graph), When: cron.When{Spec: json.RawMessage(`{"cron":"0 * * * *"}`), Timezone: "UTC"},
		Payload: json.RawMessage(`{"assistant_id":"` + graph + `","input":{},"config":{"metadata":{"user_id":"ann"}}}`),
	}
	if change != nil {
		change(&n)
	}
	ctx := w.ctx
	if ctx == nil {
		ctx = w.t.Context()
	}
	c, err := w.runs.Crons().CreateTask(ctx, n)
	require.NoError(w.t, err)
	return c
}

func (w *taskWorld) task(c *run.Cron) *run.Cron {
	w.t.Helper()
	got, err := w.runs.Crons().TaskOf(w.t.Context(), "ann", cron.TaskID(c.ID))
	require.NoError(w.t, err)
	return got
}

// came waits for the n-th occurrence of a task, and returns it in a state.
func (w *taskWorld) came(c *run.Cron, n int, status run.OccurrenceStatus) *run.Occurrence {
	w.t.Helper()
	var list []*run.Occurrence
	require.Eventually(w.t, func() bool {
		var err error
		list, err = w.runs.Crons().Occurrences(w.t.Context(), c, 0, 0)
		require.NoError(w.t, err)
		return len(list) == n && list[0].Status == status
	}, time.Minute, 10*time.Millisecond, "occurrence %d of %s", n, status)
	return list[0]
}

func (w *taskWorld) trigger(c *run.Cron) error {
	return w.runs.Crons().TriggerTask(w.t.Context(), "ann", cron.TaskID(c.ID))
}

func onceIn(after time.Duration) func(*cron.NewTask) {
	return func(n *cron.NewTask) {
		n.Once, n.Spec = true, json.RawMessage(`{"run_at":"`+time.Now().Add(after).UTC().Format(time.RFC3339Nano)[:19]+`Z"}`)
	}
}

func TestTasksAreDue(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	fresh, paused := w.make("echo", nil), w.make("echo", nil)
	th := w.thread()
	bound := w.make("echo", func(n *cron.NewTask) { n.Fresh, n.Thread = false, th })
	single := w.make("echo", onceIn(30*time.Minute))
	_, err := w.runs.Crons().PauseTask(t.Context(), "ann", cron.TaskID(paused.ID))
	require.NoError(t, err)
	w.later(hour)
	got := w.came(fresh, 1, run.OccurrenceSuccess)
	row, err := w.rows.Threads().Thread(t.Context(), got.Thread)
	require.NoError(t, err)
	for key, want := range map[string]string{"user_id": "ann", "scheduled_task_id": cron.TaskID(fresh.ID), "scheduled_task_run_id": got.ID, "scheduled_trigger": "scheduled"} {
		var metadata map[string]string
		require.NoError(t, json.Unmarshal(row.Metadata, &metadata))
		require.Equal(t, want, metadata[key], key)
	}
	require.Equal(t, th, w.came(bound, 1, run.OccurrenceSuccess).Thread)
	w.came(single, 1, run.OccurrenceSuccess)
	require.Equal(t, run.TaskCompleted, w.task(single).Task.Status)
	require.Nil(t, w.task(single).Next)
	require.Equal(t, run.TaskEnabled, w.task(fresh).Task.Status)
	require.True(t, w.task(fresh).Next.After(got.At))

	w.later(hour)
	require.NotEqual(t, got.Thread, w.came(fresh, 2, run.OccurrenceSuccess).Thread)
	w.came(bound, 2, run.OccurrenceSuccess)
	for c, n := range map[*run.Cron]int{paused: 0, single: 1, fresh: 2} {
		list, err := w.runs.Crons().Occurrences(t.Context(), c, 0, 0)
		require.NoError(t, err)
		require.Len(t, list, n)
		require.Equal(t, n, w.task(c).Task.Runs)
	}

	// A run that was missed is made when the task resumes, and the task is deleted with its thread.
	_, err = w.runs.Crons().ResumeTask(t.Context(), "ann", cron.TaskID(paused.ID))
	require.NoError(t, err)
	w.came(paused, 1, run.OccurrenceSuccess)
	require.NoError(t, w.rows.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(th) }))
	_, err = w.runs.Crons().TaskOf(t.Context(), "ann", cron.TaskID(bound.ID))
	require.True(t, fault.Is(err, fault.NotFound))
}

// A task is skipped while its last run is active; a task with a single time then fails.
func TestTasksDoNotOverlap(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	c := w.make("held", nil)
	require.NoError(t, w.trigger(c))
	require.True(t, fault.Is(w.trigger(c), fault.Conflict), "its last run is active")
	w.came(c, 1, run.OccurrenceRunning)
	single := w.make("held", onceIn(30*time.Minute))
	require.NoError(t, w.trigger(single))
	require.Equal(t, run.TaskRunning, w.task(single).Task.Status)
	_, err := w.runs.Crons().PauseTask(t.Context(), "ann", cron.TaskID(single.ID))
	require.True(t, fault.Is(err, fault.Conflict))

	w.later(hour) // their runs begin again
	skipped := w.came(c, 2, run.OccurrenceSkipped)
	require.Equal(t, "skipped: a previous run of this task is still active", skipped.Error)
	require.Empty(t, skipped.Run)
	require.Equal(t, 1, w.task(c).Task.Runs)
	w.release <- nil
	w.release <- errors.New("boom")
	require.Eventually(t, func() bool {
		a, b := w.task(c), w.task(single)
		return a.Task.Settled && b.Task.Settled
	}, time.Minute, 10*time.Millisecond)
	ends := []string{w.task(c).Task.LastError, w.task(single).Task.LastError}
	require.ElementsMatch(t, []string{"", "An internal error occurred"}, ends)
	want := map[string]run.TaskStatus{"": run.TaskCompleted, "An internal error occurred": run.TaskFailed}[ends[1]]
	require.Equal(t, want, w.task(single).Task.Status)
}

// Beyond so many runs at once, tasks that are due wait, and others cannot be triggered.
func TestTasksAtOnce(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	w.rules.Store(&cron.TaskRules{Scheduled: true, MaxRuns: 1, MinDelay: time.Minute})
	first, second := w.make("held", nil), w.make("echo", nil)
	require.NoError(t, w.trigger(first))
	err := w.trigger(second)
	require.True(t, fault.Is(err, fault.Conflict))
	require.EqualError(t, err, "global concurrent-run limit reached")
	before := w.task(second)
	w.later(hour)
	w.came(first, 2, run.OccurrenceSkipped)
	require.Equal(t, before, w.task(second), "it waits, and nothing is written meanwhile")
	list, err := w.runs.Crons().Occurrences(t.Context(), second, 0, 0)
	require.NoError(t, err)
	require.Empty(t, list)
	w.release <- nil
	w.later(int64(time.Minute))
	w.came(second, 1, run.OccurrenceSuccess)
}

// Where tasks are not scheduled they are not due, and can be triggered.
func TestTasksThatAreNotScheduled(t *testing.T) {
	t.Parallel()
	w := newTaskWorld(t)
	w.rules.Store(&cron.TaskRules{MaxRuns: 3})
	task := w.make("echo", nil)
	plain, err := w.runs.Crons().Create(t.Context(), run.NewCron{AssistantID: "echo", Schedule: "0 * * * *", Enabled: true, Payload: map[string]json.RawMessage{"input": json.RawMessage(`{}`)}})
	require.NoError(t, err)
	w.later(hour)
	require.Eventually(t, func() bool {
		now, err := w.runs.Crons().Get(t.Context(), plain.ID)
		require.NoError(t, err)
		return now.Next.After(*plain.Next)
	}, time.Minute, 10*time.Millisecond, "a cron is due")
	require.Equal(t, task.Next, w.task(task).Next)
	require.NoError(t, w.trigger(task))
	w.came(task, 1, run.OccurrenceSuccess)

	// It is none of LangGraph's crons.
	crons := w.runs.Crons()
	_, err = crons.Get(t.Context(), task.ID)
	require.True(t, fault.Is(err, fault.NotFound))
	_, err = crons.Update(t.Context(), task.ID, run.CronPatch{})
	require.True(t, fault.Is(err, fault.NotFound))
	require.True(t, fault.Is(crons.Delete(t.Context(), task.ID), fault.NotFound))
	_, err = crons.TaskOf(t.Context(), "ben", cron.TaskID(task.ID))
	require.True(t, fault.Is(err, fault.NotFound))
	_, err = crons.TaskOf(t.Context(), "", cron.TaskID(plain.ID))
	require.True(t, fault.Is(err, fault.NotFound), "and a cron is no task, of no account")
}

// Runs of tasks, due or triggered, are asked about, act as their account, and are encrypted as the task was.
func TestTasksActAsTheirAccounts(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	w := newTaskWorld(t, func(o *service.Options) {
		o.Admit = func(_ context.Context, c *run.Cron, req *run.Request) error {
			if refuse.Load() && c.Account != "" {
				return &access.Refusal{Status: 403, Detail: json.RawMessage(`"no"`)}
			}
			req.Actor = &access.Actor{Identity: "ann", Permissions: []string{}, User: json.RawMessage(`{"identity":"ann"}`)}
			return nil
		}
	})
	in, err := encryption.Parse([]byte(`{"tenant":"t1"}`))
	require.NoError(t, err)
	w.ctx = encryption.With(t.Context(), in)
	task := w.make("echo", nil)
	prompt := "Q"
	_, err = w.runs.Crons().UpdateTask(t.Context(), "ann", cron.TaskID(task.ID), cron.TaskPatch{Prompt: &prompt, Payload: task.Payload})
	require.NoError(t, err)
	check := func(n int) {
		t.Helper()
		o := w.came(task, n, run.OccurrenceSuccess)
		rows, err := w.runs.List(t.Context(), o.Thread, run.Query{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, o.Run, rows[0].ID)
		actor := access.OfRun(rows[0].Kwargs.Config)
		require.NotNil(t, actor, string(rows[0].Kwargs.Config))
		require.Equal(t, "ann", actor.Identity)
		require.Equal(t, in, encryption.OfRun(rows[0].Kwargs.Config))
	}
	require.NoError(t, w.trigger(task))
	check(1)
	w.later(hour)
	check(2)

	// A refusal is the outcome of the task, and does not keep other crons from firing.
	refuse.Store(true)
	var refusal *access.Refusal
	require.ErrorAs(t, w.trigger(task), &refusal)
	require.Equal(t, `"no"`, w.came(task, 3, run.OccurrenceFailed).Error)
	plain, err := w.runs.Crons().Create(t.Context(), run.NewCron{AssistantID: "echo", Schedule: "0 * * * *", Enabled: true, Payload: map[string]json.RawMessage{"input": json.RawMessage(`{}`)}})
	require.NoError(t, err)
	w.later(hour)
	w.came(task, 4, run.OccurrenceFailed)
	require.Eventually(t, func() bool {
		now, err := w.runs.Crons().Get(t.Context(), plain.ID)
		require.NoError(t, err)
		return now.Next.After(*plain.Next)
	}, time.Minute, 10*time.Millisecond, "the cron is due")
}

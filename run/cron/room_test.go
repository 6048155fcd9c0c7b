package cron

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/run"
	"understudy/run/clock"
)

// fullStore is a store with due tasks and a due cron behind them, while as many runs of tasks are active as may be. Whatever it does not have panics.
type fullStore struct {
	Store
	Runs
	tasks   []*run.Cron
	plain   *run.Cron
	counted int
	written []id.Cron
}

func (s *fullStore) NextCron(_ context.Context, tasks bool) (time.Time, error) {
	if tasks {
		return *s.tasks[0].Next, nil
	}
	return time.Time{}, nil
}

func (s *fullStore) DueCrons(_ context.Context, now time.Time, limit int, tasks bool) ([]*run.Cron, error) {
	return fullTx{s: s}.DueCrons(now, limit, tasks)
}

func (s *fullStore) CreateIn(_ context.Context, fn func(tx run.CronTx, add Add) error) error {
	return fn(fullTx{s: s}, func(id.Thread, id.Assistant, bool, *run.Request) (*run.Run, error) {
		return &run.Run{ID: id.NewRun()}, nil
	})
}

type fullTx struct {
	run.CronTx
	s *fullStore
}

func (tx fullTx) DueCrons(now time.Time, limit int, tasks bool) (due []*run.Cron, err error) {
	if tasks {
		due = append(due, tx.s.tasks...)
	}
	if tx.s.plain.Next == nil || !tx.s.plain.Next.After(now) {
		due = append(due, tx.s.plain)
	}
	return due[:min(len(due), limit)], nil
}

func (tx fullTx) ActiveOccurrences() ([]id.Cron, error) {
	tx.s.counted++
	return []id.Cron{"other"}, nil
}

func (tx fullTx) UpdateCron(c *run.Cron) error {
	tx.s.written = append(tx.s.written, c.ID)
	return nil
}

type plainWire struct{ run.Wire }

func (plainWire) Request(json.RawMessage, bool) (run.Request, error) { return run.Request{}, nil }

// Tasks that wait for the runs of others cost one count, and no writes; other crons are due all the same, however many tasks wait before them.
func TestTasksWaitWithoutWrites(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour)
	s := &fullStore{plain: &run.Cron{ID: "plain", Schedule: "0 0 1 1 *", Next: &long}}
	for n := range 2 * cronBatch {
		s.tasks = append(s.tasks, &run.Cron{ID: id.Cron(fmt.Sprint("task", n)), Account: "ann", Next: &long, Task: &run.Task{Spec: json.RawMessage(`{"cron":"0 * * * *"}`)}})
	}
	crons := New(Options{
		Store: s, Runs: s, Clock: clock.New(time.Now, nil, time.Second, slog.Default()), Log: slog.Default(), Wire: plainWire{},
		Tasks: func() TaskRules { return TaskRules{Scheduled: true, MaxRuns: 1} },
	})
	next, err := crons.fireDue(t.Context())
	require.NoError(t, err)
	require.Equal(t, []id.Cron{"plain"}, s.written)
	require.Equal(t, 2, s.counted, "once in the batch that fires the cron, and in the one that finds nothing else")
	require.WithinDuration(t, time.Now().Add(taskPause), next, 2*time.Second, "they are looked at again")
}

package cron

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/run"
	"understudy/run/clock"
)

// idle is a store in which nothing is due.
type idle struct {
	Store
	Runs
	asked atomic.Int64 // how often it was asked which tasks are due
}

func (s *idle) NextCron(context.Context, bool) (time.Time, error) { return time.Time{}, nil }

func (s *idle) DueCrons(context.Context, time.Time, int, bool) ([]*run.Cron, error) { return nil, nil }

func (s *idle) CreateIn(_ context.Context, fn func(tx run.CronTx, add Add) error) error {
	return fn(idleTx{idle: s}, nil)
}

type idleTx struct {
	run.CronTx
	idle *idle
}

func (tx idleTx) DueCrons(_ time.Time, _ int, tasks bool) ([]*run.Cron, error) {
	if tasks {
		tx.idle.asked.Add(1)
	}
	return nil, nil
}

// Tasks that are allowed to be due while the loop has nothing to wait for are due soon after, although nothing pokes it.
func TestChangedRulesAreNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var scheduled atomic.Bool
		var s idle
		crons := New(Options{
			Store: &s, Runs: &s, Clock: clock.New(time.Now, nil, time.Second, slog.Default()), Log: slog.Default(),
			Tasks: func() TaskRules { return TaskRules{Scheduled: scheduled.Load()} },
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- crons.Run(ctx) }()
		synctest.Wait()
		scheduled.Store(true)
		time.Sleep(31 * time.Second) // of the bubble's clock
		synctest.Wait()
		require.NotZero(t, s.asked.Load())
		stop()
		require.NoError(t, <-ended)
	})
}

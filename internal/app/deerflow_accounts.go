package app

import (
	"context"
	"errors"
	"time"

	"understudy/access"
	"understudy/deerflow/account"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/loop"
	"understudy/run"
	dialect "understudy/server/deerflow"
)

// Of accounts that were deleted: how often servers look for them, and how long for what acted while they were being deleted.
const (
	goneEvery = 5 * time.Second
	goneFor   = time.Minute
)

// followAccounts ends what acts for accounts that were deleted, by whatever program: their runs, and what was remembered of them. Their crons and scheduled tasks make no
// more runs (gateway.Installation.Holds), and their sessions have ended.
func (s *Server) followAccounts(ctx context.Context) error {
	l := loop.Loop{Name: "deleted accounts", Log: s.log, Now: s.now}
	return notCanceled(l.Every(ctx, goneEvery, func(ctx context.Context) error {
		list, err := s.rows.Gone(ctx)
		for _, g := range list {
			if err := s.endAccount(ctx, g); err != nil {
				return err
			}
		}
		return err
	}))
}

// endAccount ends what acts for an account. It is done again until nothing that began before the deletion can continue.
func (s *Server) endAccount(ctx context.Context, g account.Gone) error {
	if _, err := s.rows.User(ctx, g.ID); !fault.Is(err, fault.NotFound) {
		if err == nil { // it was imported again
			err = s.rows.ForgetGone(ctx, g)
		}
		return err
	}
	cancelled, err := s.cancelRunsOf(ctx, g.ID)
	if err != nil {
		return err
	}
	if cancelled > 0 {
		s.log.InfoContext(ctx, "runs of a deleted account were cancelled", "user", g.ID, "runs", cancelled)
	}
	if err := errors.Join(s.deerflow.ForgetMemory(g.ID), s.forget(ctx, g.ID)); err != nil { // the files first, from which it would be imported again
		return err
	}
	if s.now().Sub(g.At) < goneFor {
		return nil
	}
	return s.rows.ForgetGone(ctx, g)
}

// goneThreads is how many threads with runs are looked at at once.
const goneThreads = 200

// cancelRunsOf cancels the runs of a user that wait or run, and returns how many there were.
func (s *Server) cancelRunsOf(ctx context.Context, user string) (cancelled int, err error) {
	ctx = access.Everything(ctx)
	for above := id.Thread(""); ; {
		batch, err := s.rows.Runs().ActiveThreads(ctx, run.Active{}, above, goneThreads)
		if err != nil || len(batch) == 0 {
			return cancelled, err
		}
		for _, t := range batch {
			n, err := s.cancelRunsIn(ctx, t, user)
			if err != nil {
				return cancelled, err
			}
			cancelled += n
		}
		above = batch[len(batch)-1]
	}
}

func (s *Server) cancelRunsIn(ctx context.Context, t id.Thread, user string) (int, error) {
	row, err := s.rows.Threads().Thread(ctx, t)
	if fault.Is(err, fault.NotFound) || err == nil && jsonobj.Of(row.Metadata).Text(dialect.OwnerKey) != user {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	active, err := s.rows.Runs().ActiveRuns(ctx, t)
	if err != nil || len(active) == 0 {
		return 0, err
	}
	runs := make([]id.Run, len(active))
	for i, r := range active {
		runs[i] = r.ID
	}
	err = s.runs.Cancel(ctx, t, runs, run.CancelInterrupt, false)
	if fault.Is(err, fault.NotFound) { // they ended meanwhile, or are being cancelled
		return 0, nil
	}
	return len(runs), err
}

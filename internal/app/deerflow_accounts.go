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
	return notCanceled(l.Every(ctx, goneEvery, s.endAccounts))
}

// endAccounts ends what acts for accounts that were deleted. It is done again until nothing that began before the deletion can continue. What fails for one keeps no other
// one waiting.
func (s *Server) endAccounts(ctx context.Context) error {
	list, err := s.rows.Gone(ctx)
	errs, deleted, active := []error{err}, []account.Gone(nil), map[string]int{}
	for _, g := range list {
		switch _, err := s.rows.User(ctx, g.ID); {
		case err == nil: // it was imported again
			errs = append(errs, s.rows.ForgetGone(ctx, g))
		case fault.Is(err, fault.NotFound):
			deleted = append(deleted, g)
			active[g.ID] = 0
		default:
			errs = append(errs, err)
		}
	}
	if len(deleted) == 0 {
		return errors.Join(errs...)
	}
	stays := s.cancelRunsOf(ctx, active)
	errs = append(errs, stays)
	for _, g := range deleted {
		err := errors.Join(s.deerflow.ForgetMemory(g.ID), s.forget(ctx, g.ID)) // the files first, from which it would be imported again
		// A run queues for the memory until it has ended.
		if err == nil && stays == nil && active[g.ID] == 0 && s.now().Sub(g.At) >= goneFor {
			err = s.rows.ForgetGone(ctx, g)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// goneThreads is how many threads with runs are looked at at once.
const goneThreads = 200

// cancelRunsOf cancels the runs of users that wait or run, and adds to each user how many there were, also those that were being cancelled. A thread that fails keeps no other one waiting.
func (s *Server) cancelRunsOf(ctx context.Context, users map[string]int) error {
	ctx = access.Everything(ctx)
	var errs []error
	for above := id.Thread(""); ; {
		batch, err := s.rows.Runs().ActiveThreads(ctx, run.Active{}, above, goneThreads)
		if err != nil || len(batch) == 0 {
			return errors.Join(append(errs, err)...)
		}
		for _, t := range batch {
			if err := s.cancelRunsIn(ctx, t, users); err != nil {
				errs = append(errs, err)
			}
		}
		above = batch[len(batch)-1]
	}
}

func (s *Server) cancelRunsIn(ctx context.Context, t id.Thread, users map[string]int) error {
	row, err := s.rows.Threads().Thread(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return nil
	} else if err != nil {
		return err
	}
	owner := jsonobj.Of(row.Metadata).Text(dialect.OwnerKey)
	if _, ok := users[owner]; !ok {
		return nil
	}
	active, err := s.rows.Runs().ActiveRuns(ctx, t)
	if err != nil || len(active) == 0 {
		return err
	}
	runs := make([]id.Run, len(active))
	for i, r := range active {
		runs[i] = r.ID
	}
	users[owner] += len(runs)
	err = s.runs.Cancel(ctx, t, runs, run.CancelInterrupt, false)
	switch {
	case fault.Is(err, fault.NotFound): // they ended meanwhile, or are being cancelled
		return nil
	case err == nil:
		s.log.InfoContext(ctx, "runs of a deleted account were cancelled", "user", owner, "thread_id", t, "runs", len(runs))
	}
	return err
}

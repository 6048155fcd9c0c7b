package thread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/logctx"
	"understudy/internal/sweep"
)

// Retention sets how long threads are kept, and how often to check for expired ones.
type Retention struct {
	Default *TTL          // for threads without their own; nil: kept forever
	Every   time.Duration // between sweeps; default 5 min
	Limit   int           // maximum number of threads per sweep; default 1000
}

func (r Retention) orDefaults() Retention {
	if r.Every <= 0 {
		r.Every = 5 * time.Minute
	}
	if r.Limit <= 0 {
		r.Limit = 1000
	}
	return r
}

// sweepPage is how many threads are loaded at once.
const sweepPage = 50

// Sweep deletes or prunes expired threads until ctx ends: at the start and at every interval, on one server at a time. Failures are logged, and
// the next sweep continues.
func (s *Service) Sweep(ctx context.Context) error {
	loop := sweep.Loop{Turns: s.Store, Name: "threads", Every: s.Retention.Every, Log: s.Log, Now: s.Now, Do: s.sweep}
	return loop.Run(ctx)
}

// swept counts the results of a sweep.
type swept struct{ deleted, pruned, checkpoints, deferred int }

// sweep is one sweep. It ends when the next one is due, which another server may start.
func (s *Service) sweep(ctx context.Context, until time.Time) error {
	began := s.Now()
	var done swept
	err := s.finish(ctx)
	for n := 0; err == nil && n < s.Retention.Limit; {
		var list []id.Thread
		if list, err = s.Store.Expired(ctx, s.Now(), min(sweepPage, s.Retention.Limit-n)); err != nil || len(list) == 0 {
			break
		}
		for _, t := range list {
			if n++; !s.Now().Before(until) {
				n = s.Retention.Limit
			} else if err == nil {
				err = s.expire(ctx, t, &done)
			}
		}
	}
	listed, unlisted := s.Store.ListThreads(ctx, func() bool { return s.Now().Before(until) })
	if listed > 0 {
		s.Log.InfoContext(ctx, "lists in metadata indexed", "threads", listed)
	}
	err = errors.Join(err, unlisted)
	if done != (swept{}) {
		s.Log.InfoContext(ctx, "threads swept", "deleted", done.deleted, "pruned", done.pruned, "checkpoints", done.checkpoints,
			"deferred", done.deferred, logctx.Took(s.Now().Sub(began)))
	}
	return err
}

// finish deletes the remaining rows of threads removed by earlier, interrupted sweeps.
func (s *Service) finish(ctx context.Context) error {
	list, err := s.Store.Remains(ctx, s.Retention.Limit)
	for _, t := range list {
		if err == nil {
			err = s.alone(ctx, t, s.deleteRemains(ctx, t))
		}
	}
	return err
}

// alone returns nil for an error that concerns one thread. It returns an error when the storage is unavailable or ctx has
// ended.
func (s *Service) alone(ctx context.Context, t id.Thread, err error) error {
	if err == nil || ctx.Err() != nil || fault.Is(err, fault.Unavailable) {
		return err
	}
	s.Log.WarnContext(ctx, "expired thread not removed; the next sweep retries", "thread_id", t, "error", err)
	return nil
}

// expire deletes or prunes an expired thread. Whatever the result, the same sweep does not return the thread again.
func (s *Service) expire(ctx context.Context, t id.Thread, done *swept) error {
	row, err := s.Store.Thread(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if row.TTL != nil && row.TTL.Strategy == KeepLatest {
		err = s.pruneExpired(ctx, t, done)
	} else {
		err = s.deleteExpired(ctx, t, done)
	}
	if err == nil {
		return nil
	}
	if err := s.alone(ctx, t, err); err != nil {
		return err
	}
	done.deferred++
	return s.Store.Write(ctx, func(tx Tx) error { return tx.SetExpiry(t, s.Now().Add(s.Retention.Every)) })
}

func (s *Service) deleteExpired(ctx context.Context, t id.Thread, done *swept) error {
	var verdict verdict
	var row *Thread
	err := s.Store.Write(ctx, func(tx Tx) (err error) {
		if verdict, err = s.judge(tx, t, Delete); err != nil || verdict != due {
			return err
		}
		if row, err = tx.Thread(t); err != nil {
			return err
		}
		return tx.RemoveThread(t)
	})
	if err != nil {
		return fmt.Errorf("delete expired thread %s: %w", t, err)
	}
	switch verdict {
	case due:
		done.deleted++
		s.Deleted(row)
		return s.deleteRemains(ctx, t)
	case busy:
		done.deferred++
	}
	return nil
}

func (s *Service) pruneExpired(ctx context.Context, t id.Thread, done *swept) error {
	if err := s.backfill(ctx, t); err != nil { // unrecorded messages would be lost
		return fmt.Errorf("record thread %s before pruning it: %w", t, err)
	}
	verdict := notDue
	n, err := s.pruneSteps(ctx, t, func(tx Tx, _ *Thread, last bool) (ok bool, err error) {
		if verdict, err = s.judge(tx, t, KeepLatest); err != nil || verdict != due {
			return false, err
		}
		if last { // nothing to prune until it is used again
			err = tx.SetExpiry(t, time.Time{})
		}
		return true, err
	})
	done.checkpoints += n
	switch {
	case errors.Is(err, errStopped) && verdict == busy:
		done.deferred++
	case err == nil:
		done.pruned++
	case !errors.Is(err, errStopped) && !fault.Is(err, fault.NotFound):
		return err
	}
	return nil
}

// verdict is the state of an expired thread, as read in a transaction.
type verdict int

const (
	notDue verdict = iota // deleted, or used since
	busy                  // runs are pending or running: not now
	due
)

// judge reads a thread again under its lock. If it is not due, judge postpones it.
func (s *Service) judge(tx Tx, t id.Thread, strategy Strategy) (verdict, error) {
	row, err := tx.Thread(t)
	if fault.Is(err, fault.NotFound) {
		return notDue, nil
	}
	if err != nil {
		return notDue, err
	}
	now := s.Now()
	if at, expires := row.ExpiresAt(); !expires || at.After(now) {
		return notDue, tx.SetExpiry(t, at)
	}
	active, err := tx.HasActiveRuns(t)
	if err != nil {
		return notDue, err
	}
	if active || row.TTL.Strategy != strategy { // changed meanwhile: left to the next sweep
		return busy, tx.SetExpiry(t, now.Add(s.Retention.Every))
	}
	return due, nil
}

// Prune deletes threads, or all of their checkpoints but the newest and those needed to read it, if they meet where. Threads with pending or running runs keep
// their checkpoints, from which the runs may start, and do not count.
func (s *Service) Prune(ctx context.Context, ids []id.Thread, strategy Strategy, where *Condition) (pruned Pruned, err error) {
	meets, err := where.ready()
	if err != nil {
		return pruned, err
	}
	if strategy != KeepLatest {
		gone, others, err := s.removeMatching(ctx, ids, meets)
		return Pruned{len(gone), others}, err
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	for _, t := range slices.Compact(ids) {
		met, err := s.pruneMatching(ctx, t, meets)
		switch {
		case err == nil:
			pruned.Count++
		case !met && errors.Is(err, errStopped):
			pruned.Unmatched++
		case !errors.Is(err, errStopped) && !fault.Is(err, fault.NotFound):
			return pruned, err
		}
	}
	return pruned, nil
}

// pruneMatching prunes a thread that meets a condition. The error is errStopped when nothing was pruned, because the thread does not, or has active runs.
func (s *Service) pruneMatching(ctx context.Context, t id.Thread, meets func(*Thread) bool) (met bool, err error) {
	row, err := s.Store.Thread(ctx, t)
	if err != nil {
		return false, err
	}
	if !meets(row) {
		return false, errStopped
	}
	if err := s.backfill(ctx, t); err != nil { // unrecorded messages would be lost
		return true, err
	}
	_, err = s.pruneSteps(ctx, t, func(tx Tx, row *Thread, _ bool) (bool, error) {
		if met = meets(row); !met { // any more
			return false, nil
		}
		active, err := tx.HasActiveRuns(t)
		return !active, err
	})
	return met, err
}

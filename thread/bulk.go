package thread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"understudy/id"
	"understudy/internal/fault"
)

// What belongs to a long thread is deleted, pruned and copied in many small transactions, between which others write. Each leaves every thread as it
// was or as it is to be: first a thread is hidden, then its rows are deleted; a copy is shown when it is complete.

const (
	// biteRows is how many rows a transaction deletes of a thread that is gone, until it is known how long that takes.
	biteRows    = 500
	maxBiteRows = 2000
	minBiteRows = 100
	// biteTime is how long a transaction should take.
	biteTime = 20 * time.Millisecond
	// biteCheckpoints is how many checkpoints a transaction deletes of a thread that stays, each with some writes and values.
	biteCheckpoints = 100
	// removeThreads bounds how many threads a transaction hides.
	removeThreads = 50
	// plans bounds how often pruning begins anew because the thread was used meanwhile.
	plans = 10
)

// alternately runs fn in a transaction when no other such transaction of this service is under way: however many long threads are worked on at once, others
// wait for one of their transactions.
func (s *Service) alternately(ctx context.Context, fn func(Tx) error) error {
	select {
	case s.bulk <- struct{}{}:
		defer func() { <-s.bulk }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return s.Store.Write(ctx, fn)
}

// deleteRemains deletes what is left of a thread that was removed, if anything is.
func (s *Service) deleteRemains(ctx context.Context, t id.Thread) error {
	limit := biteRows
	for more := true; more; {
		var took time.Duration
		err := s.alternately(ctx, func(tx Tx) (err error) {
			began := time.Now()
			more, err = tx.DeleteRemains(t, limit)
			took = time.Since(began)
			return err
		})
		if err != nil {
			return fmt.Errorf("remains of thread %s: %w", t, err)
		}
		if took > biteTime {
			limit = max(limit/2, minBiteRows)
		} else if took < biteTime/2 {
			limit = min(limit*2, maxBiteRows)
		}
	}
	return nil
}

// clear deletes what is left of threads that are gone for all readers, also when the client has left. What fails here is done by a sweep.
func (s *Service) clear(ctx context.Context, gone []id.Thread) {
	ctx = context.WithoutCancel(ctx)
	for _, t := range gone {
		s.Deleted(t)
	}
	for _, t := range gone {
		if err := s.deleteRemains(ctx, t); err != nil {
			s.Log.WarnContext(ctx, "rows of a deleted thread stay until the next sweep", "thread_id", t, "error", err)
			return
		}
	}
}

// Remove deletes threads with all their data, and returns those that existed. Their runs stop.
func (s *Service) Remove(ctx context.Context, ids []id.Thread) (gone []id.Thread, err error) {
	ids = slices.Clone(ids)
	slices.Sort(ids) // a storage that locks threads one by one wants the same order everywhere
	for ids = slices.Compact(ids); len(ids) > 0; {
		var removed []id.Thread
		tried := 0
		if err := s.alternately(ctx, func(tx Tx) error {
			removed, tried = nil, 0
			for began := time.Now(); tried < min(len(ids), removeThreads) && time.Since(began) < biteTime; tried++ {
				_, err := tx.Thread(ids[tried])
				if err == nil {
					err = tx.DeleteThread(ids[tried])
				}
				if fault.Is(err, fault.NotFound) {
					continue
				}
				if err != nil {
					return err
				}
				removed = append(removed, ids[tried])
			}
			return nil
		}); err != nil {
			return gone, err
		}
		ids = ids[tried:]
		s.clear(ctx, removed)
		gone = append(gone, removed...)
	}
	return gone, nil
}

// errStopped ends pruning whose thread is not to be pruned any more.
var errStopped = errors.New("not to be pruned")

// pruneSteps deletes checkpoints of a thread until none is to be deleted any more; n is how many were. allow is asked in each transaction, the last of which
// is named; when it does not, that transaction is the last one, and the error is errStopped. The thread can be read after each.
func (s *Service) pruneSteps(ctx context.Context, t id.Thread, allow func(tx Tx, last bool) (bool, error)) (n int, err error) {
	for range plans {
		plan, err := s.Store.PlanPrune(ctx, t, biteCheckpoints)
		if err != nil {
			return n, err
		}
		used, stopped := false, false
		for i := range max(1, len(plan.Steps)) { // allow is asked once at least
			deleted := 0
			if err := s.alternately(ctx, func(tx Tx) error {
				deleted = 0
				row, err := tx.Thread(t)
				if err != nil {
					return err
				}
				if used = !plan.holds(row); used {
					return nil
				}
				ok, err := allow(tx, i >= len(plan.Steps)-1)
				if stopped = !ok; err != nil || stopped || i >= len(plan.Steps) {
					return err
				}
				deleted = len(plan.Steps[i].Checkpoints)
				return tx.PruneStep(t, &plan.Steps[i])
			}); err != nil {
				return n, err
			}
			if n += deleted; stopped {
				return n, errStopped
			}
			if used {
				break
			}
		}
		if !used {
			return n, nil
		}
	}
	return n, fault.Newf(fault.Conflict, "thread %s is used all the time: not all of its checkpoints were pruned", t)
}

// holds reports whether the checkpoints of a thread are those that the plan was made for: whatever adds some changes its row, or belongs to an active run.
func (p *PrunePlan) holds(row *Thread) bool {
	was := p.Thread
	return row.CreatedAt.Equal(was.CreatedAt) && row.UpdatedAt.Equal(was.UpdatedAt) && row.StateUpdatedAt.Equal(was.StateUpdatedAt) && row.Head == was.Head
}

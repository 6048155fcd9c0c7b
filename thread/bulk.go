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

// Data of a long thread is deleted, pruned and copied in many small transactions, so that others can write in between. After each, every thread is
// either unchanged or complete: deletion first hides a thread and then deletes its rows; a copy becomes visible when it is complete.

const (
	// biteRows is how many rows of a deleted thread the first transaction deletes, until its duration is known.
	biteRows    = 500
	maxBiteRows = 2000
	minBiteRows = 100
	// biteTime is how long a transaction should take.
	biteTime = 20 * time.Millisecond
	// biteCheckpoints is how many checkpoints of a remaining thread a transaction deletes, each with some writes and values.
	biteCheckpoints = 100
	// removeThreads is the maximum number of threads that a transaction hides.
	removeThreads = 50
	// plans is the maximum number of restarts of pruning because the thread was used meanwhile.
	plans = 10
)

// alternately runs fn in a transaction, one at a time in this service: however many long threads are processed at once, other writers wait for only one
// of these transactions.
func (s *Service) alternately(ctx context.Context, fn func(Tx) error) error {
	select {
	case s.bulk <- struct{}{}:
		defer func() { <-s.bulk }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return s.Store.Write(ctx, fn)
}

// deleteRemains deletes the remaining rows of a removed thread, if any.
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

// clear deletes the rows of removed threads, even if the client has left. A sweep retries failures.
func (s *Service) clear(ctx context.Context, gone []*Thread) {
	ctx = context.WithoutCancel(ctx)
	for _, t := range gone {
		s.Deleted(t)
	}
	for _, t := range gone {
		if err := s.deleteRemains(ctx, t.ID); err != nil {
			s.Log.WarnContext(ctx, "rows of a deleted thread remain until the next sweep", "thread_id", t.ID, "error", err)
			return
		}
	}
}

// Remove deletes threads with all their data, and returns those that existed. Their runs stop.
func (s *Service) Remove(ctx context.Context, ids []id.Thread) (gone []id.Thread, err error) {
	gone, _, err = s.removeMatching(ctx, ids, func(*Thread) bool { return true })
	return gone, err
}

// removeMatching is Remove of the threads that match in the transaction that removes them; others is the number of the rest.
func (s *Service) removeMatching(ctx context.Context, ids []id.Thread, match func(*Thread) bool) (gone []id.Thread, others int, err error) {
	ids = slices.Clone(ids)
	slices.Sort(ids) // a storage that locks thread by thread needs the same order everywhere
	for ids = slices.Compact(ids); len(ids) > 0; {
		var removed []*Thread
		tried, left := 0, 0
		if err := s.alternately(ctx, func(tx Tx) error {
			removed, tried, left = nil, 0, 0
			for began := time.Now(); tried < min(len(ids), removeThreads) && time.Since(began) < biteTime; tried++ {
				row, err := tx.Thread(ids[tried])
				if err == nil && !match(row) {
					left++
					continue
				}
				if err == nil {
					err = tx.DeleteThread(ids[tried])
				}
				if fault.Is(err, fault.NotFound) {
					continue
				}
				if err != nil {
					return err
				}
				removed = append(removed, row)
			}
			return nil
		}); err != nil {
			return gone, others, err
		}
		ids = ids[tried:]
		others += left
		s.clear(ctx, removed)
		for _, t := range removed {
			gone = append(gone, t.ID)
		}
	}
	return gone, others, nil
}

// errStopped ends pruning of a thread that must not be pruned any more.
var errStopped = errors.New("not to be pruned")

// pruneSteps deletes checkpoints of a thread until none are left to delete; n is their number. allow is called in each transaction with the row, and last set in the
// final one. If it returns false, that transaction is the last one, and the error is errStopped. The thread can be read after each.
func (s *Service) pruneSteps(ctx context.Context, t id.Thread, allow func(tx Tx, row *Thread, last bool) (bool, error)) (n int, err error) {
	for range plans {
		plan, err := s.Store.PlanPrune(ctx, t, biteCheckpoints)
		if err != nil {
			return n, err
		}
		used, stopped := false, false
		for i := range max(1, len(plan.Steps)) { // allow is called at least once
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
				ok, err := allow(tx, row, i >= len(plan.Steps)-1)
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
	return n, fault.Newf(fault.Conflict, "thread %s is in constant use: not all of its checkpoints were pruned. Try again later", t)
}

// holds reports whether the checkpoints of a thread are unchanged since the plan was made: adding one changes its row, or belongs to an active run.
func (p *PrunePlan) holds(row *Thread) bool {
	was := p.Thread
	return row.CreatedAt.Equal(was.CreatedAt) && row.UpdatedAt.Equal(was.UpdatedAt) && row.StateUpdatedAt.Equal(was.StateUpdatedAt) && row.Head == was.Head
}

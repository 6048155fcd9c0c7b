package storagetest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// due asks for the next run; "" when there is none.
func due(t *testing.T, b Backend, now time.Time) (r id.Run) {
	t.Helper()
	write(t, b, func(tx run.Tx) error {
		r = ""
		found, err := tx.DueRun(now)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err == nil {
			r = found.ID
		}
		return err
	})
	return r
}

func nextDue(t *testing.T, b Backend) time.Time {
	t.Helper()
	next, err := b.Runs.NextDue(ctx)
	require.NoError(t, err)
	return next
}

var queueCases = map[string]func(*testing.T, Backend){
	"oldest first, ties by id": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2), newThread(3))
		three, two, one := newRun(3, 3), newRun(2, 2), newRun(1, 1)
		three.CreatedAt, two.CreatedAt, one.CreatedAt = at(0), at(1), at(1)
		insertRuns(t, b, one, two, three)
		for _, r := range []*run.Run{three, one, two} {
			require.Equal(t, r.CreatedAt, nextDue(t, b))
			require.Equal(t, r.ID, due(t, b, at(5)))
			updateRun(t, b, r, func(r *run.Run) { r.Status = run.Running })
		}
		require.Empty(t, due(t, b, at(5)))
		require.True(t, nextDue(t, b).IsZero())
	},
	"one running run a thread": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		one, two, other := newRun(1, 1), newRun(2, 1), newRun(3, 2)
		insertRuns(t, b, one, two, other)
		require.Equal(t, one.ID, due(t, b, at(9)))
		updateRun(t, b, one, func(r *run.Run) { r.Status = run.Running })
		require.Equal(t, other.ID, due(t, b, at(9)))
		require.Equal(t, other.CreatedAt, nextDue(t, b))
		updateRun(t, b, one, func(r *run.Run) { r.Status = run.Success })
		require.Equal(t, two.ID, due(t, b, at(9)))
		// A run that was handed back is in its old place again.
		updateRun(t, b, two, func(r *run.Run) { r.Status = run.Running })
		updateRun(t, b, two, func(r *run.Run) { r.Status = run.Pending })
		require.Equal(t, two.ID, due(t, b, at(9)))
	},
	"delayed runs delay no others": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		late, now := newRun(1, 1), newRun(2, 1)
		late.CreatedAt, now.CreatedAt = at(100), at(2)
		insertRuns(t, b, late)
		require.Empty(t, due(t, b, at(99)))
		require.Equal(t, at(100), nextDue(t, b))
		insertRuns(t, b, now)
		require.Equal(t, now.ID, due(t, b, at(99)))
		updateRun(t, b, now, func(r *run.Run) { r.Status = run.Error })
		require.Equal(t, late.ID, due(t, b, at(100)))
		// Due exactly now is due; an earlier date moves it forward.
		updateRun(t, b, late, func(r *run.Run) { r.CreatedAt = at(50) })
		require.Equal(t, late.ID, due(t, b, at(50)))
	},
	"runs wait by their own clock": func(t *testing.T, b Backend) {
		ahead := at(100)                             // the clock of the server that writes
		behind := ahead.Add(-300 * time.Millisecond) // that of the server that reads
		for i, c := range []struct {
			name             string
			created, updated time.Time
			with             func(*run.Run)
			due              []bool // behind, ahead, an hour later
		}{
			{"waits", ahead, ahead, nil, []bool{true, true, true}},
			{"is set past the run before it", ahead.Add(time.Microsecond), ahead.Add(time.Microsecond), nil, []bool{true, true, true}},
			{"waits for an hour, by both clocks", behind.Add(-time.Hour), behind.Add(-time.Hour), nil, []bool{true, true, true}},
			{"is delayed", ahead.Add(time.Hour), ahead, nil, []bool{false, false, true}},
			{"is delayed by less than the clocks differ", behind.Add(100 * time.Millisecond), behind, nil, []bool{false, true, true}},
			{"was delayed, and is due by both", behind.Add(-time.Second), behind.Add(-time.Hour), nil, []bool{true, true, true}},
			{"was delayed, and was taken back from a server that died", ahead.Add(time.Second), ahead, func(r *run.Run) { r.Attempt = 1 }, []bool{true, true, true}},
			{"was delayed, and is running", ahead.Add(time.Second), ahead, func(r *run.Run) { r.Status = run.Running }, []bool{true, true, true}},
			{"is over", ahead, ahead, func(r *run.Run) { r.Status = run.Success }, []bool{false, false, false}},
		} {
			insertThreads(t, b, newThread(i+1))
			r := newRun(i+1, i+1)
			r.CreatedAt, r.UpdatedAt = c.created, c.updated
			if c.with != nil {
				c.with(r)
			}
			insertRuns(t, b, r)
			for j, now := range []time.Time{behind, ahead, ahead.Add(time.Hour)} {
				got, err := b.Threads.DueRuns(ctx, r.Thread, now)
				require.NoError(t, err)
				require.Equal(t, c.due[j], len(got) == 1 && got[0] == r.ID, "a run that %s, at %s: %v", c.name, now, got)
			}
		}
	},
	"graphs are passed over": func(t *testing.T, b Backend) {
		graphs := []string{"c", "a", "b", "a", "a", "b"} // of the runs 1, 2, 3…
		var all []*run.Run
		for i, g := range graphs {
			insertThreads(t, b, newThread(i+1))
			r := newRun(i+1, i+1)
			r.Graph = g
			all = append(all, r)
		}
		insertRuns(t, b, all...)
		next := func(beside ...string) (r id.Run) {
			write(t, b, func(tx run.Tx) error {
				r = ""
				found, err := tx.DueRun(at(9), beside...)
				if fault.Is(err, fault.NotFound) {
					return nil
				}
				if err == nil {
					r = found.ID
				}
				return err
			})
			due, err := b.Runs.NextDue(ctx, beside...)
			require.NoError(t, err)
			want := time.Time{}
			for _, one := range all {
				if one.ID == r {
					want = one.CreatedAt
				}
			}
			require.Equal(t, want, due)
			return r
		}
		require.Equal(t, runID(1), next())
		require.Equal(t, runID(2), next("c"))
		require.Equal(t, runID(3), next("c", "a"))
		require.Equal(t, runID(1), next("a", "b", "unknown"))
		require.Empty(t, next("a", "b", "c"))
		// What heads a thread's queue may be of another graph after it.
		follower := newRun(9, 1)
		follower.Graph, follower.CreatedAt = "a", at(1)
		insertRuns(t, b, follower)
		all = append(all, follower)
		updateRun(t, b, all[0], func(r *run.Run) { r.Status = run.Running })
		require.Equal(t, runID(3), next("a"))
		updateRun(t, b, all[0], func(r *run.Run) { r.Status = run.Success })
		require.Equal(t, runID(3), next("a"))
		require.Equal(t, runID(9), next("c"))
		// Not due is not due, whatever else is passed over.
		updateRun(t, b, all[2], func(r *run.Run) { r.CreatedAt = at(50) })
		updateRun(t, b, all[5], func(r *run.Run) { r.CreatedAt = at(60) })
		write(t, b, func(tx run.Tx) error {
			_, err := tx.DueRun(at(49), "a", "c")
			isKind(t, err, fault.NotFound)
			return nil
		})
		due, err := b.Runs.NextDue(ctx, "a", "c")
		require.NoError(t, err)
		require.Equal(t, at(50), due)
	},
	"a run is claimed once": func(t *testing.T, b Backend) {
		const n = 20
		for i := range n {
			insertThreads(t, b, newThread(i))
			insertRuns(t, b, newRun(i, i), newRun(100+i, i))
		}
		var mu sync.Mutex
		claims := map[id.Run]int{}
		busy := map[id.Thread]bool{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					var got *run.Run
					err := b.Runs.Write(ctx, func(tx run.Tx) error {
						r, err := tx.DueRun(at(1000))
						if err != nil {
							return err
						}
						got = r
						r.Status = run.Running
						r.Attempt++
						return tx.UpdateRun(r)
					})
					if fault.Is(err, fault.NotFound) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					claims[got.ID]++
					if busy[got.Thread] {
						t.Errorf("two runs of thread %s at once", got.Thread)
					}
					busy[got.Thread] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, claims, n)
		for r, times := range claims {
			require.Equal(t, 1, times, r)
		}
	},
	"a long queue behind a running run": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		first := newRun(0, 1)
		first.Status = run.Running
		write(t, b, func(tx run.Tx) error {
			if err := tx.InsertRun(first); err != nil {
				return err
			}
			for n := 1; n <= 500; n++ {
				if err := tx.InsertRun(newRun(n, 1)); err != nil {
					return err
				}
			}
			return tx.InsertRun(newRun(1000, 2))
		})
		require.Equal(t, runID(1000), due(t, b, at(5000)))
		write(t, b, func(tx run.Tx) error { return tx.DeleteRun(threadID(1), first.ID) })
		require.Equal(t, runID(1), due(t, b, at(5000)))
	},
}

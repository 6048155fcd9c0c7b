package storagetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/webhook"
	"understudy/thread"
)

func updateRun(t *testing.T, b Backend, r *run.Run, change func(*run.Run)) {
	t.Helper()
	change(r)
	write(t, b, func(tx run.Tx) error { return tx.UpdateRun(r) })
}

var runCases = map[string]func(*testing.T, Backend){
	"the newest runs of several threads": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2), newThread(3))
		var all []*run.Run
		for n := range 30 {
			r := newRun(n+1, 1+n%3)
			r.CreatedAt = at(n / 2) // some at the same time
			all = append(all, r)
		}
		insertRuns(t, b, all...)
		newest := func(limit int, threads ...int) (got []id.Run) {
			var ids []id.Thread
			for _, n := range threads {
				ids = append(ids, threadID(n))
			}
			require.NoError(t, b.Runs.NewestRuns(t.Context(), ids, limit, func(r *run.Run) error {
				require.Nil(t, r.Kwargs.Input)
				got = append(got, r.ID)
				return nil
			}))
			return got
		}
		want := func(limit int, threads ...int) (list []id.Run) {
			for _, r := range slices.Backward(all) {
				for _, n := range threads {
					if r.Thread == threadID(n) && len(list) < limit {
						list = append(list, r.ID)
					}
				}
			}
			return list
		}
		for _, limit := range []int{1, 7, 100} {
			require.Equal(t, want(limit, 1, 3), newest(limit, 1, 3))
			require.Equal(t, want(limit, 2), newest(limit, 2, 9))
		}
		require.Empty(t, newest(5))
		require.NoError(t, b.Threads.Write(t.Context(), func(tx thread.Tx) error { return tx.RemoveThread(threadID(1)) }))
		require.Equal(t, want(100, 3), newest(100, 1, 3))
	},
	"recent runs of all threads, page by page": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2), newThread(3))
		require.NoError(t, b.Threads.Write(t.Context(), func(tx thread.Tx) error {
			th, err := tx.Thread(threadID(3))
			if err == nil {
				th.Metadata = raw(`{"owner": "alice"}`)
				err = tx.UpdateThread(th)
			}
			return err
		}))
		random := rand.New(rand.NewPCG(4, 2))
		var all []*run.Run // newest first
		for n := range 60 {
			r := newRun(n+1, 1+random.IntN(3))
			r.Status = []run.Status{run.Pending, run.Success, run.Error}[random.IntN(3)]
			r.Graph = []string{"g", "h"}[random.IntN(2)]
			insertRuns(t, b, r)
			all = append([]*run.Run{r}, all...)
		}
		alice, err := access.ParseFilter(raw(`{"owner": "alice"}`))
		require.NoError(t, err)
		for _, reach := range []*access.Filter{nil, alice} {
			ctx := t.Context()
			if reach != nil {
				ctx = access.Narrow(ctx, access.Threads, reach)
			}
			for range 20 {
				q := run.Recent{Limit: 1 + random.IntN(15), Status: []run.Status{"", run.Error, run.Pending}[random.IntN(3)], Graph: []string{"", "g"}[random.IntN(2)]}
				want, got := []id.Run{}, []id.Run{}
				for _, r := range all {
					if (q.Status == "" || r.Status == q.Status) && (q.Graph == "" || r.Graph == q.Graph) && (reach == nil || r.Thread == threadID(3)) {
						want = append(want, r.ID)
					}
				}
				for {
					page, next, err := b.Runs.RecentRuns(ctx, q)
					require.NoError(t, err)
					require.LessOrEqual(t, len(page), q.Limit)
					for _, r := range page {
						require.Nil(t, r.Kwargs.Input)
						got = append(got, r.ID)
					}
					if next == "" {
						break
					}
					q.Before = next
				}
				require.Equal(t, want, got)
			}
		}
	},
	"every field comes back as it was": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		full := &run.Run{
			ID: runID(1), Thread: threadID(1), Assistant: "a", Graph: "g", Metadata: raw(`{"m": 1.0}`), Status: run.Running,
			Kwargs: run.Arguments{
				Arguments: graph.Arguments{
					Input: raw(`{"messages": [ {"n":12345678901234567890, "f":1.10, "t":"<&>"} ]}`), Command: raw(`{"resume":null}`),
					Modes: []string{"values", "messages-tuple"}, InterruptBefore: raw(`"*"`), InterruptAfter: raw(`["a"]`),
					Temporary: true, Subgraphs: true, Durability: "exit",
				},
				Config: raw(`{"configurable":{"thread_id":"x"}}`), Context: raw(`{"c":1}`), Webhook: "https://example.com/?a=1&b=2", FeedbackKeys: raw(`["k"]`),
				Resumable: true, CheckpointNS: "n:1", CheckpointID: "1ef", CheckpointMap: raw(`{"":"x"}`),
			},
			Strategy: run.Interrupt, CreatedAt: at(1), UpdatedAt: at(2), StartedAt: at(3), EndedAt: at(4), Attempt: 3, Failures: 2, Passed: true,
			Owner: "me", LeaseUntil: at(5), Cancel: run.CancelRollback, Error: raw(`{"error":"E"}`), OnCompletion: "keep", OnDisconnect: "cancel",
			Cron: "cron", Crashes: 3, Turn: run.Alone,
		}
		insertRuns(t, b, full)
		got, err := b.Runs.Run(ctx, full.Thread, full.ID)
		require.NoError(t, err)
		same(t, full, got)

		bare := newRun(2, 1)
		insertRuns(t, b, bare)
		got, err = b.Runs.Run(ctx, bare.Thread, bare.ID)
		require.NoError(t, err)
		same(t, bare, got)

		// The whole row, also what became empty; arguments too.
		full.StartedAt, full.EndedAt, full.LeaseUntil, full.Error, full.Owner, full.Cancel = time.Time{}, time.Time{}, time.Time{}, nil, "", ""
		full.Kwargs.Command, full.Kwargs.Input, full.Kwargs.Resumable = nil, raw(`null`), false
		full.Kwargs.InterruptAfter = raw(`null`)
		updateRun(t, b, full, func(*run.Run) {})
		got, err = b.Runs.Run(ctx, full.Thread, full.ID)
		require.NoError(t, err)
		same(t, full, got)
	},
	"model calls": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		insertRuns(t, b, newRun(1, 1), newRun(2, 1), newRun(3, 2))
		one := graph.ModelCall{ID: "a", Message: "m", Caller: graph.Lead, Model: "x", Usage: &graph.Usage{Input: 1, Output: 2, Total: 3}}
		two, bare := graph.ModelCall{ID: "b", Caller: graph.Middleware, Usage: &graph.Usage{}}, graph.ModelCall{ID: "c", Caller: graph.Subagent}
		again := one
		again.Model = "other"
		put := func(r id.Run, calls ...graph.ModelCall) {
			write(t, b, func(tx run.Tx) error { return tx.PutModelCalls(r, calls) })
		}
		take := func(r id.Run) (calls []graph.ModelCall) {
			write(t, b, func(tx run.Tx) (err error) {
				calls, err = tx.TakeModelCalls(r)
				return err
			})
			return calls
		}
		require.Empty(t, take(runID(1)))
		put(runID(1), one, two)
		put(runID(1), again, bare)
		put(runID(2), one)
		put(runID(3), one)
		require.ElementsMatch(t, []graph.ModelCall{one, two, bare}, take(runID(1)), "the first of an id stays")
		require.Empty(t, take(runID(1)))
		write(t, b, func(tx run.Tx) error { return tx.DeleteRun(threadID(1), runID(2)) })
		insertRuns(t, b, newRun(2, 1))
		require.Empty(t, take(runID(2)), "they went with their run")
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(2)) })
		insertThreads(t, b, newThread(2))
		insertRuns(t, b, newRun(3, 2))
		require.Empty(t, take(runID(3)), "they went with their thread")
	},
	"spans": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		insertRuns(t, b, newRun(1, 1), newRun(2, 1), newRun(3, 2))
		put := func(r id.Run, number int64, spans, seconds int, body string) {
			write(t, b, func(tx run.Tx) error {
				return tx.PutSpans(r, &run.SpanBatch{Number: number, Spans: spans, At: at(seconds), Body: []byte(body)})
			})
		}
		stored := func(thread, r int) []string {
			bodies, err := b.Runs.SpanBatches(ctx, threadID(thread), runID(r))
			require.NoError(t, err)
			out := []string{}
			for _, body := range bodies {
				out = append(out, string(body))
			}
			return out
		}
		require.Empty(t, stored(1, 1))
		put(runID(1), 1<<32|1, 1, 1, "second")
		put(runID(1), 1<<32, 2, 2, "first")
		put(runID(1), 1<<32, 1, 3, "fewer")
		put(runID(1), 1<<32|1, 2, 3, "more")
		put(runID(2), 0, 1, 3, "other")
		put(runID(3), 0, 1, 4, "last")
		require.Equal(t, []string{"first", "more"}, stored(1, 1))
		require.Empty(t, stored(2, 1), "of another thread")
		write(t, b, func(tx run.Tx) error { return tx.DeleteRun(threadID(1), runID(2)) })
		insertRuns(t, b, newRun(2, 1))
		require.Empty(t, stored(1, 2), "they went with their run")
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(2)) })
		insertThreads(t, b, newThread(2))
		insertRuns(t, b, newRun(3, 2))
		require.Empty(t, stored(2, 3), "they went with their thread")
		put(runID(3), 0, 1, 5, "new")
		sweep := func(seconds, limit int) (n int) {
			write(t, b, func(tx run.Tx) (err error) {
				n, err = tx.DeleteSpans(at(seconds), limit)
				return err
			})
			return n
		}
		require.Zero(t, sweep(1, 10))
		require.Equal(t, 1, sweep(5, 1), "at most so many")
		require.Equal(t, 1, sweep(5, 10))
		require.Empty(t, stored(1, 1))
		require.Equal(t, []string{"new"}, stored(2, 3))
	},
	"conflict and not found": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		insertRuns(t, b, newRun(1, 1))
		isKind(t, b.Runs.Write(ctx, func(tx run.Tx) error { return tx.InsertRun(newRun(1, 1)) }), fault.Conflict)
		_, err := b.Runs.Run(ctx, threadID(2), runID(1)) // of another thread
		isKind(t, err, fault.NotFound)
		for _, fn := range []func(run.Tx) error{
			func(tx run.Tx) error { return tx.UpdateRun(newRun(2, 1)) },
			func(tx run.Tx) error { return tx.DeleteRun(threadID(1), runID(2)) },
			func(tx run.Tx) error { return tx.DeleteRun(threadID(2), runID(1)) },
			func(tx run.Tx) error { return tx.MarkPassed(runID(2)) },
			func(tx run.Tx) error { _, _, _, err := tx.Fence(runID(2)); return err },
			func(tx run.Tx) error { _, err := tx.Run(threadID(1), runID(2)); return err },
			func(tx run.Tx) error { _, err := tx.DueRun(at(0)); return err },
		} {
			isKind(t, b.Runs.Write(ctx, fn), fault.NotFound)
		}
	},
	"lists": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		for n := 1; n <= 6; n++ {
			r := newRun(n, 1)
			r.CreatedAt = at(n / 2)
			if n%2 == 0 {
				r.Status = run.Success
			}
			insertRuns(t, b, r)
		}
		insertRuns(t, b, newRun(9, 2))
		for _, tt := range []struct {
			q    run.Query
			want []id.Run
		}{
			{run.Query{}, []id.Run{runID(6), runID(5), runID(4), runID(3), runID(2), runID(1)}},
			{run.Query{Limit: 2}, []id.Run{runID(6), runID(5)}},
			{run.Query{Limit: 2, Offset: 3}, []id.Run{runID(3), runID(2)}},
			{run.Query{Status: run.Success}, []id.Run{runID(6), runID(4), runID(2)}},
			{run.Query{Status: run.Success, Limit: 1, Offset: 1}, []id.Run{runID(4)}},
			{run.Query{Status: run.Timeout}, []id.Run{}},
		} {
			got, err := b.Runs.Runs(ctx, threadID(1), tt.q)
			require.NoError(t, err)
			require.Equal(t, tt.want, runIDs(got))

			q, loaded := tt.q, 0
			q.Bytes = 100
			bounded, err := b.Runs.Runs(ctx, threadID(1), q)
			require.NoError(t, err)
			require.Len(t, bounded, len(got))
			for i := range got {
				var want *run.Run
				want, loaded = q.Fit(got[i], loaded)
				require.Equal(t, want, bounded[i])
			}
		}
	},
	"active runs and counts": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		one, two, three, over := newRun(1, 1), newRun(2, 2), newRun(3, 1), newRun(4, 1)
		one.Status, over.Status = run.Running, run.Error
		one.CreatedAt = at(9) // the oldest due comes first, whatever its status
		insertRuns(t, b, one, two, three, over)
		for th, want := range map[id.Thread][]id.Run{
			threadID(1): {runID(3), runID(1)}, threadID(2): {runID(2)}, threadID(3): {}, "": {runID(2), runID(3), runID(1)},
		} {
			got, err := b.Runs.ActiveRuns(ctx, th)
			require.NoError(t, err)
			require.Equal(t, want, runIDs(got))
			write(t, b, func(tx run.Tx) error {
				got, err = tx.ActiveRuns(th)
				return err
			})
			require.Equal(t, want, runIDs(got))
		}
		for above, want := range map[id.Thread][]id.Thread{"": {threadID(1)}, threadID(1): {threadID(2)}, threadID(2): nil} {
			got, err := b.Runs.ActiveThreads(ctx, above, 1)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	},
	"how the queue stands": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2), newThread(3))
		stands := func(now, bound int) run.Queue {
			q, err := b.Runs.Queue(ctx, at(now), bound)
			require.NoError(t, err)
			return q
		}
		require.Zero(t, stands(100, 100))
		running, over := newRun(9, 1), newRun(8, 1)
		running.Status, over.Status = run.Running, run.Success
		due := func(n, thread, when int) *run.Run {
			r := newRun(n, thread)
			r.CreatedAt = at(when)
			return r
		}
		insertRuns(t, b, running, over, due(1, 1, 1), due(2, 2, 20), due(3, 2, 30), due(4, 3, 40))
		require.Equal(t, run.Queue{Pending: 4, Running: 1, First: at(1), Middle: at(20)}, stands(10, 100), "one waits for another, three for their time")
		require.Equal(t, run.Queue{Pending: 4, Running: 1, Due: 2, First: at(1), Middle: at(20), FirstDue: at(20)}, stands(40, 100))
		got := stands(40, 1)
		require.Equal(t, []int{1, 1, 1}, []int{got.Pending, got.Running, got.Due}, "no further than the bound")
	},
	"fence and mark": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		r := newRun(1, 1)
		r.Attempt, r.Status, r.Cancel, r.Failures, r.Crashes, r.Turn = 4, run.Running, run.CancelInterrupt, 1, 3, run.Alone
		insertRuns(t, b, r)
		write(t, b, func(tx run.Tx) error {
			attempt, status, cancel, err := tx.Fence(r.ID)
			if err == nil && (attempt != 4 || status != run.Running || cancel != run.CancelInterrupt) {
				err = errors.New("the fence says something else")
			}
			return firstError(err, tx.MarkPassed(r.ID), tx.MarkPassed(r.ID))
		})
		r.Passed, r.Failures, r.Crashes, r.Turn = true, 0, 0, run.NoTurn
		got, err := b.Runs.Run(ctx, r.Thread, r.ID)
		require.NoError(t, err)
		same(t, r, got)
		for _, again := range []func(){func() { r.Failures = 2 }, func() { r.Crashes, r.Turn = 2, run.Company }} {
			again()
			updateRun(t, b, r, func(*run.Run) {})
			write(t, b, func(tx run.Tx) error { return tx.MarkPassed(r.ID) })
			r.Failures, r.Crashes, r.Turn = 0, 0, run.NoTurn
			got, err = b.Runs.Run(ctx, r.Thread, r.ID)
			require.NoError(t, err)
			same(t, r, got)
		}
	},
	"deleting": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		insertRuns(t, b, newRun(1, 1), newRun(2, 1))
		write(t, b, func(tx run.Tx) error {
			return firstError(tx.InsertRecords(threadID(1), []*bridge.Record{
				{Offset: bridge.Offset{MS: 1}, Run: runID(1), Event: "e"},
				{Offset: bridge.Offset{MS: 2}, Run: runID(2), Event: "e"},
			}), tx.DeleteRun(threadID(1), runID(1)))
		})
		_, err := b.Runs.Run(ctx, threadID(1), runID(1))
		isKind(t, err, fault.NotFound)
		records, err := b.Runs.Records(ctx, threadID(1), bridge.Offset{}, 0)
		require.NoError(t, err)
		require.Len(t, records, 1)
		due, err := b.Runs.NextDue(ctx)
		require.NoError(t, err)
		require.Equal(t, at(2), due)
		insertRuns(t, b, newRun(1, 1)) // the id is free again
	},
}

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

var deliveryCases = map[string]func(*testing.T, Backend){
	"due ones in order, and when the next is due": func(t *testing.T, b Backend) {
		list := []*webhook.Delivery{
			{Thread: threadID(1), Run: runID(1), URL: "https://example.com/1", Body: raw(`{"a": 1}`), Due: at(2)},
			{Thread: threadID(1), Run: runID(2), URL: "https://example.com/2", Body: raw(`{}`), Due: at(1), Attempts: 3},
			{Thread: threadID(1), Run: runID(3), URL: "https://example.com/3", Body: raw(`{}`), Due: at(7)},
			{Thread: threadID(1), Run: runID(4), URL: "https://example.com/4", Body: raw(`{}`), Due: at(9)},
		}
		write(t, b, func(tx run.Tx) error {
			for _, d := range list {
				if err := tx.InsertDelivery(d); err != nil {
					return err
				}
			}
			return nil
		})
		got, next, err := b.Runs.Deliveries(ctx, webhook.Query{By: at(2), PerOrigin: 10, Limit: 10})
		require.NoError(t, err)
		same(t, []*webhook.Delivery{list[1], list[0]}, got)
		require.Equal(t, at(7), next)
		got, _, err = b.Runs.Deliveries(ctx, webhook.Query{By: at(2), PerOrigin: 10, Limit: 1})
		require.NoError(t, err)
		require.Len(t, got, 1)

		list[1].Attempts, list[1].Due = 4, at(20)
		write(t, b, func(tx run.Tx) error {
			return firstError(tx.UpdateDelivery(list[1]), tx.DeleteDelivery(list[0].ID))
		})
		got, next, err = b.Runs.Deliveries(ctx, webhook.Query{By: at(8), PerOrigin: 10, Limit: 10})
		require.NoError(t, err)
		same(t, []*webhook.Delivery{list[2]}, got)
		require.Equal(t, at(9), next)
		_, next, err = b.Runs.Deliveries(ctx, webhook.Query{By: at(20), PerOrigin: 10, Limit: 10})
		require.NoError(t, err)
		require.True(t, next.IsZero())
		isKind(t, b.Runs.Write(ctx, func(tx run.Tx) error { return tx.UpdateDelivery(list[0]) }), fault.NotFound)
		isKind(t, b.Runs.Write(ctx, func(tx run.Tx) error { return tx.DeleteDelivery(list[0].ID) }), fault.NotFound)
	},
	"no origin takes the places of others": func(t *testing.T, b Backend) {
		var want []*webhook.Delivery
		write(t, b, func(tx run.Tx) error {
			want = nil // it may run twice
			for i := range 60 {
				d := &webhook.Delivery{Thread: threadID(1), Run: runID(1), Origin: []string{"", "http://a", "http://b:81"}[i%3], Body: raw(`{}`), Due: at(i)}
				if err := tx.InsertDelivery(d); err != nil {
					return err
				}
				if i < 6 && d.Origin != "http://a" {
					want = append(want, d)
				}
			}
			return nil
		})
		q := webhook.Query{By: at(50), Skip: []string{"http://a", "http://unknown"}, PerOrigin: 2, Limit: 10}
		got, next, err := b.Runs.Deliveries(ctx, q)
		require.NoError(t, err)
		same(t, want, got)
		require.Equal(t, at(51), next)
		q.By = at(-1)
		got, _, err = b.Runs.Deliveries(ctx, q)
		require.NoError(t, err)
		require.Empty(t, got)
		if shared, ok := b.Runs.(run.Shared); ok {
			q.By, q.Limit = at(50), 3
			got, _, err := shared.TakeDeliveries(ctx, q, at(100))
			require.NoError(t, err)
			same(t, want[:3], got)
			got, _, err = shared.TakeDeliveries(ctx, q, at(100))
			require.NoError(t, err)
			require.Len(t, got, 3)
			same(t, want[3:], got[:1])
		}
	},
}

var recordCases = map[string]func(*testing.T, Backend){
	"above an offset, in order": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		insertRuns(t, b, newRun(0, 1), newRun(1, 1))
		var all []*bridge.Record
		for n := range 10 {
			all = append(all, &bridge.Record{
				Offset: bridge.Offset{MS: int64(1000 + n/4), N: int64(n % 4)}, Run: runID(n % 2), Kind: bridge.Kind(n % 3),
				Event: "values", Data: raw(`{"n": 1.0}`), Kept: n%2 == 0, Ephemeral: n%3 == 0,
				Checkpoint: []id.Checkpoint{"", checkpointID(n)}[n%2], Ahead: n%4 == 1, Summarizer: n%5 == 0,
			})
		}
		write(t, b, func(tx run.Tx) error {
			return firstError(tx.InsertRecords(threadID(1), all[5:]), tx.InsertRecords(threadID(1), all[:5]), tx.InsertRecords(threadID(2), all[:1]))
		})
		for n := range all {
			got, err := b.Runs.Records(ctx, threadID(1), all[n].Offset, 0)
			require.NoError(t, err)
			if n == len(all)-1 {
				require.Empty(t, got)
				break
			}
			same(t, all[n+1:], got)
			got, err = b.Runs.Records(ctx, threadID(1), all[n].Offset, 2)
			require.NoError(t, err)
			same(t, all[n+1:min(n+3, len(all))], got)
		}
		got, err := b.Runs.Records(ctx, threadID(1), bridge.Offset{}, 0)
		require.NoError(t, err)
		same(t, all, got)
	},
	"in batches of any size, page by page": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		insertRuns(t, b, newRun(0, 1), newRun(1, 1))
		rnd := rand.New(rand.NewPCG(1, 2))
		var all []*bridge.Record
		var batches [][]*bridge.Record
		at := bridge.Offset{MS: 1000}
		for n := 0; n < 1200; {
			var batch []*bridge.Record
			of := runID(rnd.IntN(2)) // batches of two runs may overlap: see below
			for range 1 + rnd.IntN(60) {
				if n++; rnd.IntN(3) == 0 {
					at = bridge.Offset{MS: at.MS + int64(rnd.IntN(200)), N: at.N + 1}
				}
				at.N++
				data := raw(fmt.Sprintf(`["%s", %d]`, strings.Repeat("word ", rnd.IntN(200)), n))
				batch = append(batch, &bridge.Record{Offset: at, Run: of, Kind: bridge.Kind(n % 3), Event: "messages", Data: data, Kept: true, Summarizer: n%5 == 0})
			}
			all = append(all, batch...)
			if last := len(batches) - 1; last >= 0 && batches[last][0].Run != of && rnd.IntN(2) == 0 {
				// The end of the one before is stored later than the beginning of this one.
				a, b := batches[last][len(batches[last])-1], batch[0]
				a.Offset, b.Offset = b.Offset, a.Offset
			}
			batches = append(batches, batch)
		}
		rnd.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
		for _, batch := range batches {
			write(t, b, func(tx run.Tx) error { return tx.InsertRecords(threadID(1), batch) })
		}
		write(t, b, func(tx run.Tx) error { return tx.InsertRecords(threadID(1), batches[0]) }) // whether its commit succeeded was not known
		slices.SortFunc(all, func(a, b *bridge.Record) int { return a.Offset.Compare(b.Offset) })
		for _, page := range []int{0, 1000, 300, 7} {
			var got []*bridge.Record
			for after := (bridge.Offset{}); ; after = got[len(got)-1].Offset {
				records, err := b.Runs.Records(ctx, threadID(1), after, page)
				require.NoError(t, err)
				got = append(got, records...)
				if len(records) < page || page == 0 {
					break
				}
			}
			same(t, all, got)
		}
		for range 50 { // as one who looks for a record
			want := rnd.IntN(len(all))
			got, err := b.Runs.Records(ctx, threadID(1), bridge.Offset{MS: all[want].Offset.MS, N: all[want].Offset.N - 1}, 1)
			require.NoError(t, err)
			same(t, all[want:want+1], got)
			var after []string
			require.NoError(t, b.Runs.RunRecords(ctx, threadID(1), runID(1), all[want].Offset, func(r *bridge.Record) error {
				after = append(after, r.Offset.String())
				return nil
			}))
			var expected []string
			for _, r := range all[want+1:] {
				if r.Run == runID(1) {
					expected = append(expected, r.Offset.String())
				}
			}
			require.Equal(t, expected, after)
		}
		write(t, b, func(tx run.Tx) error { return tx.DeleteRun(threadID(1), runID(0)) })
		got, err := b.Runs.Records(ctx, threadID(1), bridge.Offset{}, 0)
		require.NoError(t, err)
		same(t, slices.DeleteFunc(all, func(r *bridge.Record) bool { return r.Run == runID(0) }), got)
	},
	"of a run": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		insertRuns(t, b, newRun(1, 1), newRun(2, 1))
		write(t, b, func(tx run.Tx) error {
			for n := range 8 {
				r := &bridge.Record{
					Offset: bridge.Offset{MS: int64(n / 4), N: int64(n % 4)}, Run: runID(1 + n%2), Event: fmt.Sprint("e", n), Data: raw(fmt.Sprint(n)), Summarizer: n == 4,
				}
				if err := tx.InsertRecords(threadID(1), []*bridge.Record{r}); err != nil {
					return err
				}
			}
			return nil
		})
		none := bridge.Offset{MS: -1}
		read := func(th, r int, after bridge.Offset) (out []string) {
			write(t, b, func(tx run.Tx) error {
				out = nil
				return tx.RunRecords(threadID(th), runID(r), after, func(r *bridge.Record) error {
					out = append(out, fmt.Sprint(r.Event, " ", string(r.Data), " ", r.Summarizer, " ", r.Offset))
					return nil
				})
			})
			var outside []string
			require.NoError(t, b.Runs.RunRecords(ctx, threadID(th), runID(r), after, func(r *bridge.Record) error {
				outside = append(outside, fmt.Sprint(r.Event, " ", string(r.Data), " ", r.Summarizer, " ", r.Offset))
				return nil
			}))
			require.Equal(t, out, outside)
			return out
		}
		all := []string{"e0 0 false 0-0", "e2 2 false 0-2", "e4 4 true 1-0", "e6 6 false 1-2"}
		require.Equal(t, all, read(1, 1, none))
		for i, after := range []bridge.Offset{{MS: 0, N: 0}, {MS: 0, N: 2}, {MS: 1, N: 0}, {MS: 1, N: 2}} {
			require.Equal(t, len(all)-1-i, len(read(1, 1, after)))
		}
		require.Len(t, read(1, 2, none), 4)
		require.Empty(t, read(1, 3, none))
		require.Empty(t, read(2, 1, none))
	},
	"of runs that are gone are left out": func(t *testing.T, b Backend) {
		for _, remove := range []func(t *testing.T){
			func(t *testing.T) {
				require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.RemoveThread(threadID(1)) }))
			},
			func(t *testing.T) { write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) }) },
			func(t *testing.T) { write(t, b, func(tx run.Tx) error { return tx.DeleteRun(threadID(1), runID(1)) }) },
		} {
			insertThreads(t, b, newThread(1), newThread(2))
			insertRuns(t, b, newRun(1, 1), newRun(2, 2))
			remove(t)
			write(t, b, func(tx run.Tx) error {
				for n := 1; n <= 2; n++ {
					r := &bridge.Record{Offset: bridge.Offset{MS: int64(n)}, Run: runID(n), Event: "e", Data: raw(`1`)}
					if err := tx.InsertRecords(threadID(n), []*bridge.Record{r}); err != nil {
						return err
					}
				}
				return nil
			})
			for n := 1; n <= 2; n++ {
				got, err := b.Runs.Records(ctx, threadID(n), bridge.Offset{}, 0)
				require.NoError(t, err)
				require.Len(t, got, n-1)
			}
			write(t, b, func(tx run.Tx) error {
				n, err := tx.DeleteRecords(at(1000))
				require.Zero(t, n)
				return firstError(err, tx.DeleteThread(threadID(2)))
			})
		}
	},
	"swept when their run is long over": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		old, fresh, running := newRun(1, 1), newRun(2, 1), newRun(3, 1)
		old.Status, old.EndedAt = run.Success, at(10)
		fresh.Status, fresh.EndedAt = run.Success, at(20)
		running.Status = run.Running
		insertRuns(t, b, old, fresh, running)
		write(t, b, func(tx run.Tx) error {
			for n := range 9 {
				r := &bridge.Record{Offset: bridge.Offset{MS: int64(n)}, Run: runID(1 + n%3), Event: "e", Data: raw(`1`)}
				if err := tx.InsertRecords(threadID(1), []*bridge.Record{r}); err != nil {
					return err
				}
			}
			return nil
		})
		sweep := func(before time.Time) (n int) {
			write(t, b, func(tx run.Tx) (err error) {
				n, err = tx.DeleteRecords(before)
				return err
			})
			return n
		}
		require.Equal(t, 0, sweep(at(10)))
		require.Equal(t, 3, sweep(at(11)))
		require.Equal(t, 0, sweep(at(11)))
		got, err := b.Runs.Records(ctx, threadID(1), bridge.Offset{MS: -1}, 0)
		require.NoError(t, err)
		require.Len(t, got, 6)
		require.Equal(t, 3, sweep(at(1000)))
	},
}

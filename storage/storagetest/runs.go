package storagetest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/thread"
)

func updateRun(t *testing.T, b Backend, r *run.Run, change func(*run.Run)) {
	t.Helper()
	change(r)
	write(t, b, func(tx run.Tx) error { return tx.UpdateRun(r) })
}

var runCases = map[string]func(*testing.T, Backend){
	"the runs of all threads": recentRuns,
	"active runs of a filter": activeRuns,
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
			r.Cron = []id.Cron{"", "c"}[random.IntN(2)]
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
				q := run.Recent{Limit: 1 + random.IntN(15), Status: []run.Status{"", run.Error, run.Pending}[random.IntN(3)], Graph: []string{"", "g"}[random.IntN(2)], Cron: []id.Cron{"", "c"}[random.IntN(2)]}
				want, got := []id.Run{}, []id.Run{}
				for _, r := range all {
					if (q.Status == "" || r.Status == q.Status) && (q.Graph == "" || r.Graph == q.Graph) && (q.Cron == "" || r.Cron == q.Cron) && (reach == nil || r.Thread == threadID(3)) {
						want = append(want, r.ID)
					}
				}
				for {
					page, next, err := b.Runs.RecentRuns(ctx, q)
					require.NoError(t, err)
					require.LessOrEqual(t, len(page), q.Limit)
					for _, r := range page {
						require.Nil(t, r.Kwargs.Input)
						require.Equal(t, behind(all, r), r.Behind, r.ID)
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
		one := graph.ModelCall{ID: "a", Message: "m", Caller: graph.Lead, Model: "x", Usage: &graph.Usage{Input: 1, Output: 2, Total: 3}, Took: 1500 * time.Microsecond, Number: 1}
		two, bare := graph.ModelCall{ID: "b", Caller: graph.Middleware, Usage: &graph.Usage{}, Number: 2}, graph.ModelCall{ID: "c", Caller: graph.Subagent}
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
		stored, err := b.Runs.ModelCalls(ctx, runID(1))
		require.NoError(t, err)
		require.ElementsMatch(t, []graph.ModelCall{one, two, bare}, stored, "the first of an id stays")
		require.ElementsMatch(t, stored, take(runID(1)))
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
			got, err := b.Runs.ActiveThreads(ctx, run.Active{}, above, 1)
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
		keepRecords(t, b, threadID(1), &bridge.Record{Offset: bridge.Offset{MS: 1}, Run: runID(1), Event: "e"}, &bridge.Record{Offset: bridge.Offset{MS: 2}, Run: runID(2), Event: "e"})
		write(t, b, func(tx run.Tx) error { return tx.DeleteRun(threadID(1), runID(1)) })
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

// behind reports whether a pending run comes after another one of its thread that is active.
func behind(all []*run.Run, r *run.Run) bool {
	return r.Status == run.Pending && slices.ContainsFunc(all, func(b *run.Run) bool {
		first := b.CreatedAt.Before(r.CreatedAt) || b.CreatedAt.Equal(r.CreatedAt) && b.ID < r.ID
		return b.Thread == r.Thread && (b.Status == run.Running || b.Status == run.Pending && first)
	})
}

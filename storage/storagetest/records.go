package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
	"understudy/run"
	"understudy/thread"
)

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
		require.NoError(t, b.Runs.KeepRecords(ctx, map[id.Thread][]*bridge.Record{threadID(1): all[5:], threadID(2): all[:1], threadID(3): nil}))
		keepRecords(t, b, threadID(1), all[:5]...)
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
			keepRecords(t, b, threadID(1), batch...)
		}
		keepRecords(t, b, threadID(1), batches[0]...) // whether its commit succeeded was not known
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
		for n := range 8 {
			keepRecords(t, b, threadID(1), &bridge.Record{
				Offset: bridge.Offset{MS: int64(n / 4), N: int64(n % 4)}, Run: runID(1 + n%2), Event: fmt.Sprint("e", n), Data: raw(fmt.Sprint(n)), Summarizer: n == 4,
			})
		}
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
	"until when events are gone": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		gone := func(n int) time.Time {
			until, err := b.Runs.EventsGone(ctx, threadID(n))
			require.NoError(t, err)
			return until
		}
		require.Zero(t, gone(1))
		for _, n := range []int{3, 5, 4} {
			write(t, b, func(tx run.Tx) error { return tx.MarkGone(threadID(1), at(n)) })
		}
		require.Equal(t, at(5), gone(1), "the latest")
		row, err := b.Threads.Thread(ctx, threadID(1))
		require.NoError(t, err)
		write(t, b, func(tx run.Tx) error { return tx.UpdateThread(row) })
		require.Equal(t, at(5), gone(1), "the rest of the row is written without it")
		require.Zero(t, gone(2))
		require.Zero(t, gone(3), "there is no such thread")
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		insertThreads(t, b, newThread(1))
		require.Zero(t, gone(1), "another thread of the same id")
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
			for n := 1; n <= 2; n++ {
				keepRecords(t, b, threadID(n), &bridge.Record{Offset: bridge.Offset{MS: int64(n)}, Run: runID(n), Event: "e", Data: raw(`1`)})
			}
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
		for n := range 9 {
			keepRecords(t, b, threadID(1), &bridge.Record{Offset: bridge.Offset{MS: int64(n)}, Run: runID(1 + n%3), Event: "e", Data: raw(`1`)})
		}
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

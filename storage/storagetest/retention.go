package storagetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/thread"
)

var retentionCases = map[string]func(*testing.T, Backend){
	"expiry": func(t *testing.T, b Backend) {
		lasting := func(n int, after time.Duration) *thread.Thread {
			th := newThread(n) // last used at(n)
			th.TTL = &thread.TTL{Strategy: thread.Delete, After: after}
			return th
		}
		first, second, third := lasting(1, 30*time.Second), lasting(2, 10*time.Second), lasting(3, 10*time.Second)
		insertThreads(t, b, newThread(9), first, second, third)
		expired := func(now, limit int) []id.Thread {
			list, err := b.Threads.Expired(ctx, at(now), limit)
			require.NoError(t, err)
			return list
		}
		change := func(fn func(tx thread.Tx) error) { require.NoError(t, b.Threads.Write(ctx, fn)) }
		update := func(th *thread.Thread) { change(func(tx thread.Tx) error { return tx.UpdateThread(th) }) }
		require.Empty(t, expired(11, 10))
		require.Equal(t, []id.Thread{second.ID}, expired(12, 10))
		require.Equal(t, []id.Thread{second.ID, third.ID, first.ID}, expired(99, 10))
		require.Equal(t, []id.Thread{second.ID, third.ID}, expired(99, 2))

		// Use postpones the expiry; other writes do not.
		second.UpdatedAt, third.StreamHigh = at(40), 7
		update(second)
		update(third)
		require.Equal(t, []id.Thread{third.ID, first.ID, second.ID}, expired(99, 10))

		// Put off, until the row is written with another time or ttl.
		change(func(tx thread.Tx) error {
			return firstError(tx.SetExpiry(third.ID, time.Time{}), tx.SetExpiry(first.ID, at(60)), tx.SetExpiry(threadID(99), at(1)))
		})
		third.StreamHigh = 8
		update(third)
		require.Equal(t, []id.Thread{second.ID, first.ID}, expired(99, 10))
		third.UpdatedAt = at(4)
		update(third)
		require.Equal(t, []id.Thread{third.ID, second.ID, first.ID}, expired(99, 10))
		change(func(tx thread.Tx) error { return tx.SetExpiry(third.ID, time.Time{}) })
		third.TTL = &thread.TTL{Strategy: thread.Delete, After: 11 * time.Second, Default: true}
		update(third)
		b = b.reopen(t)
		require.Equal(t, []id.Thread{third.ID}, expired(15, 10))
		got, err := b.Threads.Thread(ctx, third.ID)
		require.NoError(t, err)
		same(t, third, got)
		third.TTL = nil
		update(third)
		require.Equal(t, []id.Thread{second.ID, first.ID}, expired(99, 10))
		change(func(tx thread.Tx) error { return tx.DeleteThread(first.ID) })
		require.Equal(t, []id.Thread{second.ID}, expired(99, 10))
	},
	"turns": func(t *testing.T, b Backend) {
		take := func(name string, n int, every time.Duration) (time.Time, bool) {
			next, mine, err := b.Threads.TakeTurn(ctx, name, at(n), every)
			require.NoError(t, err)
			return next.UTC(), mine
		}
		expect := func(name string, n int, every time.Duration, next int, mine bool) {
			t.Helper()
			gotNext, gotMine := take(name, n, every)
			require.Equal(t, mine, gotMine)
			require.Equal(t, at(next), gotNext)
		}
		minute := time.Minute
		expect("a", 0, minute, 60, true)
		expect("a", 59, minute, 60, false)
		expect("b", 59, minute, 119, true) // each by itself
		b = b.reopen(t)
		expect("a", 30, minute, 60, false)
		expect("a", 60, minute, 120, true)
		expect("a", 59, minute, 120, false)     // a clock that goes a little behind
		expect("a", -3600, minute, -3540, true) // one that was far ahead is not waited for
		_, mine, err := b.Items.TakeTurn(ctx, "a", at(-3599), minute)
		require.NoError(t, err)
		require.False(t, mine)

		// Of many concurrent attempts one succeeds.
		var wg sync.WaitGroup
		got := make(chan bool, 8)
		for range cap(got) {
			wg.Go(func() {
				_, mine, err := b.Threads.TakeTurn(ctx, "c", at(0), minute)
				got <- mine && err == nil
			})
		}
		wg.Wait()
		close(got)
		n := 0
		for mine := range got {
			if mine {
				n++
			}
		}
		require.Equal(t, 1, n)
	},
	"removing in bites": func(t *testing.T, b Backend) {
		b = rich(t, b)
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.RemoveThread(threadID(1)) }))
		isKind(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.RemoveThread(threadID(1)) }), fault.NotFound)

		// Every reader finds it gone at once.
		_, err := b.Threads.Thread(ctx, threadID(1))
		isKind(t, err, fault.NotFound)
		_, err = b.Runs.Run(ctx, "", runID(1))
		isKind(t, err, fault.NotFound)
		_, err = b.Runs.Cron(ctx, cronID(1))
		isKind(t, err, fault.NotFound)
		found, err := b.Threads.Threads(ctx, thread.Query{Metadata: raw(`{"who":1}`)})
		require.NoError(t, err)
		require.Equal(t, []id.Thread{threadID(2)}, threadIDs(found))
		due, err := b.Runs.NextDue(ctx)
		require.NoError(t, err)
		require.Equal(t, at(2), due)

		bites, more := 0, true
		for more {
			left, err := b.Threads.Remains(ctx, 10)
			require.NoError(t, err)
			require.Equal(t, []id.Thread{threadID(1)}, left)
			require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) (err error) {
				more, err = tx.DeleteRemains(threadID(1), 3)
				return err
			}))
			if bites++; bites == 2 {
				b = b.reopen(t) // the next caller continues
			}
		}
		require.Greater(t, bites, 5)
		left, err := b.Threads.Remains(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) (err error) {
			more, err = tx.DeleteRemains(threadID(1), 3)
			return err
		}))
		require.False(t, more)
		insertThreads(t, b, newThread(1))
		isBare(t, b, 1)
		isRich(t, b, 2)
	},
	"a thread that is made again starts from nothing": func(t *testing.T, b Backend) {
		b = rich(t, b)
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
			if err := tx.RemoveThread(threadID(1)); err != nil {
				return err
			}
			_, err := tx.DeleteRemains(threadID(1), 2)
			return err
		}))
		insertThreads(t, b, newThread(1))
		left, err := b.Threads.Remains(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, left)
		isBare(t, b, 1)
		isRich(t, b, 2)
		records(t, b, talk(1, 1, 0, 1, "new"))
		require.Len(t, log(t, b, 1), 1)
		require.Equal(t, []string{"@" + uuid(1)}, listed(t, b, checkpointer.List{Thread: threadID(1)}))
	},
	// A sweep that deletes in batches, or from a list of IDs, learns late that the thread was created
	// again.
	"a bite that comes too late leaves what was made again": func(t *testing.T, b Backend) {
		b = rich(t, b)
		bite := func(limit int) (more bool) {
			require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) (err error) {
				more, err = tx.DeleteRemains(threadID(1), limit)
				return err
			}))
			return more
		}
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.RemoveThread(threadID(1)) }))
		require.True(t, bite(2))
		insertThreads(t, b, newThread(1))
		texts := []string{}
		for i := 1; i <= 4; i++ {
			texts = append(texts, fmt.Sprintf("%d %0400d", i, i))
			records(t, b, talk(1, i, i-1, 1, texts...))
		}
		write(t, b, func(tx run.Tx) error {
			return firstError(
				tx.InsertRun(newRun(1, 1)),
				tx.PutWrites(checkpointer.Key{Thread: threadID(1), ID: checkpointID(4)}, []checkpointer.Write{
					{TaskID: "t", Channel: "x", Type: "msgpack", Data: []byte("w")}, {TaskID: "t", Index: 1, Channel: "y", Type: "msgpack", Data: []byte("w")},
				}),
			)
		})
		keepRecords(t, b, threadID(1), &bridge.Record{Offset: bridge.Offset{MS: 1}, Run: runID(1), Event: "e", Data: []byte("1")})
		isRich(t, b, 1)
		for _, limit := range []int{2, 0} {
			require.False(t, bite(limit))
			b = b.reopen(t) // what is remembered would hide what is missing
			isRich(t, b, 1)
			isRich(t, b, 2)
		}
	},
	"a bite and making again wait for each other": func(t *testing.T, b Backend) {
		b = rich(t, b)
		more := false
		bite := func(tx thread.Tx) (err error) {
			more, err = tx.DeleteRemains(threadID(1), 2)
			return err
		}
		again := func(tx thread.Tx) error { return tx.InsertThread(newThread(1)) }
		// meanwhile runs two transactions, the second of which comes when the first has done its part.
		meanwhile := func(first, second func(tx thread.Tx) error) {
			t.Helper()
			var once sync.Once
			late := make(chan error, 1)
			require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
				err := first(tx)
				once.Do(func() { go func() { late <- b.Threads.Write(ctx, second) }() })
				select {
				case <-late:
					return fmt.Errorf("the second did not wait")
				case <-time.After(50 * time.Millisecond):
					return err
				}
			}))
			require.NoError(t, <-late)
		}
		remove := func() {
			t.Helper()
			require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.RemoveThread(threadID(1)) }))
		}
		remove()
		meanwhile(bite, again)
		require.True(t, more)
		require.Empty(t, log(t, b, 1))
		require.Empty(t, listed(t, b, checkpointer.List{Thread: threadID(1)}))
		records(t, b, talk(1, 1, 0, 1, "old"))
		remove()
		meanwhile(again, bite)
		require.False(t, more)
		isBare(t, b, 1)
		isRich(t, b, 2)
	},
	// A copy takes several transactions. Before the last of them nothing shows it, and what a
	// failed one leaves goes as remains.
	"a copy that fails leaves nothing but remains": func(t *testing.T, b Backend) {
		b = rich(t, b)
		writes := make([]checkpointer.Write, 1500)
		for i := range writes {
			writes[i] = checkpointer.Write{TaskID: "many", Index: i, Channel: "x", Type: "msgpack", Data: []byte("w")}
		}
		write(t, b, func(tx run.Tx) error {
			return tx.PutWrites(checkpointer.Key{Thread: threadID(1), ID: checkpointID(4)}, writes)
		})
		before, err := b.Threads.Remains(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, before)
		require.ErrorIs(t, b.Threads.CopyThread(ctx, threadID(1), threadID(3), nil, func(tx thread.Tx, row *thread.Thread) error {
			require.Equal(t, threadID(1), row.ID)
			return errBoom
		}), errBoom)
		_, err = b.Threads.Thread(ctx, threadID(3))
		isKind(t, err, fault.NotFound)
		left, err := b.Threads.Remains(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, []id.Thread{threadID(3)}, left)
		b = b.reopen(t)
		for more := true; more; {
			require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) (err error) {
				more, err = tx.DeleteRemains(threadID(3), 100)
				return err
			}))
		}
		left, err = b.Threads.Remains(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, left)
		insertThreads(t, b, newThread(3))
		isBare(t, b, 3)

		copyThread(t, b, 1, 4)
		require.Len(t, load(t, b, key(4, "", "")).Writes, 1502)
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		require.Len(t, log(t, b, 4), 4)
		isRich(t, b, 2)
		isKind(t, b.Threads.CopyThread(ctx, threadID(1), threadID(5), nil, nil), fault.NotFound)
	},
	// Deleting the original while it is copied ends the copy; changing it does not change what is
	// copied.
	"a copy is one state of the original": func(t *testing.T, b Backend) {
		b = rich(t, b)
		writes := make([]checkpointer.Write, 1500)
		for i := range writes {
			writes[i] = checkpointer.Write{TaskID: "many", Index: i, Channel: "x", Type: "msgpack", Data: []byte("w")}
		}
		write(t, b, func(tx run.Tx) error {
			return tx.PutWrites(checkpointer.Key{Thread: threadID(1), ID: checkpointID(4)}, writes)
		})
		var wg sync.WaitGroup
		for n := range 3 {
			wg.Go(func() {
				err := b.Threads.CopyThread(ctx, threadID(1), threadID(10+n), nil, func(tx thread.Tx, row *thread.Thread) error {
					row.ID = threadID(10 + n)
					return tx.InsertThread(row)
				})
				if err != nil && !fault.Is(err, fault.NotFound) {
					t.Error(err)
				}
			})
		}
		prune(t, b, 1)
		write(t, b, func(tx run.Tx) error {
			return firstError(tx.PutCheckpoint(put(key(1, "", uuid(9)), id.Checkpoint(uuid(4)), nil)), tx.DeleteThread(threadID(1)))
		})
		wg.Wait()
		for n := range 3 {
			if _, err := b.Threads.Thread(ctx, threadID(10+n)); fault.Is(err, fault.NotFound) {
				continue
			}
			list := listed(t, b, checkpointer.List{Thread: threadID(10 + n)})
			require.Contains(t, []int{1, 4}, len(list), list) // before the pruning, or after it
			require.Len(t, load(t, b, key(10+n, "", "")).Writes, 1502)
			require.Len(t, log(t, b, 10+n), 4)
		}
	},
	// A thread that has much is hidden with its runs before its rows are deleted.
	"runs of a removed thread are hidden": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		var list []*run.Run
		for n := 1; n <= 150; n++ {
			r := newRun(n, 1)
			if n > 2 {
				r.Status = run.Success
			}
			list = append(list, r)
		}
		list[0].Status = run.Running
		insertRuns(t, b, list...)
		insertRuns(t, b, newRun(200, 2))
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		check := func() {
			t.Helper()
			left, err := b.Threads.Remains(ctx, 10)
			require.NoError(t, err)
			require.Equal(t, []id.Thread{threadID(1)}, left)
			for _, n := range []int{1, 2, 3} {
				for _, th := range []id.Thread{"", threadID(1)} {
					_, err := b.Runs.Run(ctx, th, runID(n))
					isKind(t, err, fault.NotFound)
				}
				write(t, b, func(tx run.Tx) error {
					_, err := tx.Run(threadID(1), runID(n))
					isKind(t, err, fault.NotFound)
					_, _, _, err = tx.Fence(runID(n))
					isKind(t, err, fault.NotFound)
					isKind(t, tx.MarkPassed(runID(n)), fault.NotFound)
					isKind(t, tx.DeleteRun(threadID(1), runID(n)), fault.NotFound)
					return nil
				})
			}
			for _, status := range []run.Status{"", run.Success, run.Pending} {
				found, err := b.Runs.Runs(ctx, threadID(1), run.Query{Status: status})
				require.NoError(t, err)
				require.Empty(t, found)
			}
			for _, th := range []id.Thread{"", threadID(1)} {
				active, err := b.Runs.ActiveRuns(ctx, th)
				require.NoError(t, err)
				want := []id.Run{}
				if th == "" {
					want = []id.Run{runID(200)}
				}
				require.Equal(t, want, runIDs(active))
			}
			threads, err := b.Runs.ActiveThreads(ctx, run.Active{}, "", 10)
			require.NoError(t, err)
			require.Equal(t, []id.Thread{threadID(2)}, threads)
			queue, err := b.Runs.Queue(ctx, at(999), 100)
			require.NoError(t, err)
			require.Equal(t, 0, queue.Running)
			require.Equal(t, 1, queue.Pending)
			write(t, b, func(tx run.Tx) error {
				due, err := tx.DueRun(at(999))
				if err == nil && due.ID != runID(200) {
					err = fmt.Errorf("due is %s", due.ID)
				}
				return err
			})
		}
		check()
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
			_, err := tx.DeleteRemains(threadID(1), 60)
			return err
		}))
		b = b.reopen(t)
		check()
		insertThreads(t, b, newThread(1)) // created again, it has none
		found, err := b.Runs.Runs(ctx, threadID(1), run.Query{})
		require.NoError(t, err)
		require.Empty(t, found)
		insertRuns(t, b, list[:3]...) // and none of theirs is left
		left, err := b.Threads.Remains(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, left)
	},
	"removing and making again in one transaction": func(t *testing.T, b Backend) {
		b = rich(t, b)
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
			if err := tx.RemoveThread(threadID(1)); err != nil {
				return err
			}
			return tx.InsertThread(newThread(1))
		}))
		isBare(t, b, 1)
		isRich(t, b, 2)
	},
	"pruning in bites": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		for n := 1; n <= 7; n++ {
			parent := id.Checkpoint("")
			if n > 1 {
				parent = id.Checkpoint(fmt.Sprint("c", n-1))
			}
			puts(t, b, put(key(1, "", fmt.Sprint("c", n)), parent, nil, blob("a", fmt.Sprint(n), "v")))
		}
		plan, err := b.Threads.PlanPrune(ctx, threadID(1), 4)
		require.NoError(t, err)
		require.Equal(t, threadID(1), plan.Thread.ID)
		require.Len(t, plan.Steps, 2)
		for i, left := range [][]string{{"@c7", "@c2", "@c1"}, {"@c7"}} {
			require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.PruneStep(threadID(1), &plan.Steps[i]) }))
			require.Equal(t, left, listed(t, b, checkpointer.List{Thread: threadID(1)}))
			for _, name := range left { // whatever is left reads as before
				require.Equal(t, map[string]string{"a": "v"}, blobText(load(t, b, key(1, "", name[1:]))))
			}
		}
		plan, err = b.Threads.PlanPrune(ctx, threadID(1), 4)
		require.NoError(t, err)
		require.Empty(t, plan.Steps)
		_, err = b.Threads.PlanPrune(ctx, threadID(2), 4)
		isKind(t, err, fault.NotFound)
		require.Empty(t, load(t, b, key(1, "", "")).Parent)
	},
	// Channels m and k are delta channels. s is where each has a snapshot.
	"pruning keeps what delta channels are read from": func(t *testing.T, b Backend) {
		delta := func(th int, c, parent, counters string, blobs ...checkpointer.Blob) *checkpointer.Put {
			metadata := raw(`{"counters_since_delta_snapshot":` + counters + `}`)
			if counters == "" {
				metadata = nil
			}
			return put(key(th, "", c), id.Checkpoint(parent), metadata, blobs...)
		}
		empty := func(channel, version string) checkpointer.Blob {
			return checkpointer.Blob{Channel: channel, Version: version, Type: "empty", Data: []byte{}}
		}
		write := func(c checkpointer.Key) {
			write(t, b, func(tx run.Tx) error {
				return tx.PutWrites(c, []checkpointer.Write{{TaskID: "t", Channel: "m", Type: "msgpack", Data: []byte("w " + c.ID)}})
			})
		}
		for n, tt := range []struct {
			name string
			puts func(th int) []*checkpointer.Put
			left []string
		}{
			{"from the last snapshot on", func(th int) []*checkpointer.Put {
				return []*checkpointer.Put{
					delta(th, "c1", "", `{"m":[1,1]}`, empty("m", "1")),
					delta(th, "c2", "c1", "", blob("m", "2", "snapshot")),
					delta(th, "c3", "c2", `{"m":[1,1]}`, empty("m", "3"), blob("x", "1", "x")),
					delta(th, "c4", "c3", `{"m":[1,2]}`, unchanged("m", "3"), empty("x", "2")),
				}
			}, []string{"@c4", "@c3", "@c2"}},
			{"a branch that is no ancestor goes", func(th int) []*checkpointer.Put {
				return []*checkpointer.Put{
					delta(th, "c1", "", "", blob("m", "1", "snapshot")),
					delta(th, "c2", "c1", `{"m":[1,1]}`, empty("m", "2")),
					delta(th, "c3", "c2", `{"m":[2,2]}`, empty("m", "3")),
					delta(th, "c4", "c1", `{"m":[1,1]}`, empty("m", "3.1")),
				}
			}, []string{"@c4", "@c1"}},
			{"the newest is a snapshot", func(th int) []*checkpointer.Put {
				return []*checkpointer.Put{
					delta(th, "c1", "", `{"m":[1,1]}`, empty("m", "1")), delta(th, "c2", "c1", "", blob("m", "2", "snapshot")),
				}
			}, []string{"@c2"}},
			{"none was ever made", func(th int) []*checkpointer.Put {
				return []*checkpointer.Put{
					delta(th, "c1", "", `{"m":[1,1]}`, empty("m", "1")), delta(th, "c2", "c1", `{"m":[2,2]}`, empty("m", "2")),
				}
			}, []string{"@c2", "@c1"}},
			{"a channel that was never written needs nothing", func(th int) []*checkpointer.Put {
				return []*checkpointer.Put{
					delta(th, "c1", "", `{"k":[0,1]}`), delta(th, "c2", "c1", `{"k":[0,2],"m":[1,1]}`, empty("m", "1")),
					delta(th, "c3", "c2", `{"k":[0,3]}`, blob("m", "2", "snapshot")), delta(th, "c4", "c3", `{"k":[0,4],"m":[0,1]}`, unchanged("m", "2.1")),
				}
			}, []string{"@c4", "@c3"}},
			{"two channels: back to where both can be read", func(th int) []*checkpointer.Put {
				return []*checkpointer.Put{
					delta(th, "c1", "", `{"m":[1,1]}`, empty("m", "1")),
					delta(th, "c2", "c1", "", blob("m", "2", "s"), blob("k", "2", "s")),
					delta(th, "c3", "c2", `{"m":[1,1]}`, empty("m", "3"), blob("k", "3", "s")),
					delta(th, "c4", "c3", `{"k":[1,1]}`, blob("m", "4", "s"), empty("k", "4")),
				}
			}, []string{"@c4", "@c3", "@c2"}},
			{"no ancestor is there", func(th int) []*checkpointer.Put {
				return []*checkpointer.Put{delta(th, "c1", "", `{"m":[1,1]}`, empty("m", "1")), delta(th, "c2", "c0", `{"m":[2,2]}`, empty("m", "2"))}
			}, []string{"@c2"}},
		} {
			th := 100 + n
			insertThreads(t, b, newThread(th))
			for _, p := range tt.puts(th) {
				puts(t, b, p)
				write(p.Key)
			}
			for range 2 { // the second finds nothing to do
				prune(t, b, th)
				require.Equal(t, tt.left, listed(t, b, checkpointer.List{Thread: threadID(th)}), tt.name)
			}
			for i, name := range tt.left { // a chain, each with its writes
				got := load(t, b, key(th, "", name[1:]))
				require.Len(t, got.Writes, 1, tt.name)
				want := id.Checkpoint("")
				if i+1 < len(tt.left) {
					want = id.Checkpoint(tt.left[i+1][1:])
				}
				require.Equal(t, want, got.Parent, tt.name)
			}
		}

		// A namespace by itself: the root has no delta channel.
		insertThreads(t, b, newThread(1))
		puts(t, b, put(key(1, "", "c1"), "", nil), put(key(1, "", "c2"), "c1", nil))
		for n := 1; n <= 3; n++ {
			p := put(key(1, "n", fmt.Sprint("c", n)), "", raw(`{"counters_since_delta_snapshot":{"m":[1,1]}}`), empty("m", fmt.Sprint(n)))
			if n > 1 {
				p.Parent = id.Checkpoint(fmt.Sprint("c", n-1))
			}
			puts(t, b, p)
		}
		prune(t, b, 1)
		require.Equal(t, []string{"@c2", "n@c1", "n@c2", "n@c3"}, sortedKeys(listed(t, b, checkpointer.List{Thread: threadID(1)})))
	},
	"what LangGraph.js wrote with a delta channel is not pruned": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		puts(t, b, put(key(1, "", "c1"), "", nil), put(key(1, "", "c2"), "c1", raw(`{"delta_writes_versioned":true}`)))
		_, err := b.Threads.PlanPrune(ctx, threadID(1), 10)
		isKind(t, err, fault.NotSupported)
		require.Len(t, listed(t, b, checkpointer.List{Thread: threadID(1)}), 2)
	},
	"items in bites": func(t *testing.T, b Backend) {
		now := time.Now()
		for n := range 5 {
			i := item("t", fmt.Sprint(n), `{}`, 1)
			i.TTL, i.ExpiresAt = time.Hour, now.Add(-time.Duration(n)*time.Minute)
			apply(t, b, i)
		}
		for _, want := range []int{2, 2, 1, 0} {
			n, err := b.Items.Sweep(ctx, now, 2)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
	},
}

// rich makes two threads with something of all that is kept of a thread; they share the contents
// of events.
func rich(t *testing.T, b Backend) Backend {
	t.Helper()
	for n := 1; n <= 2; n++ {
		th := newThread(n)
		th.Metadata = raw(`{"who":1}`)
		insertThreads(t, b, th)
		if n == 1 {
			texts := []string{}
			for i := 1; i <= 4; i++ {
				texts = append(texts, fmt.Sprintf("%d %0400d", i, i)) // long enough to be kept in parts
				records(t, b, talk(1, i, i-1, 1, texts...))
			}
		} else {
			copyThread(t, b, 1, 2)
		}
		write(t, b, func(tx run.Tx) error {
			k := checkpointer.Key{Thread: threadID(n), ID: checkpointID(4)}
			return firstError(
				tx.InsertRun(newRun(n, n)),
				tx.InsertCron(newCron(n, func(c *run.Cron) { c.Thread = threadID(n) })),
				tx.PutWrites(k, []checkpointer.Write{{TaskID: "t", Channel: "x", Type: "msgpack", Data: []byte("w")}, {TaskID: "t", Index: 1, Channel: "y", Type: "msgpack", Data: []byte("w")}}),
			)
		})
		keepRecords(t, b, threadID(n), &bridge.Record{Offset: bridge.Offset{MS: 1}, Run: runID(n), Event: "e", Data: []byte("1")})
		require.NoError(t, b.Threads.KeepAnswer(ctx, checkpointer.Key{Thread: threadID(n), ID: checkpointID(4)}, "k", raw(`1`)))
	}
	isRich(t, b, 1)
	isRich(t, b, 2)
	return b
}

func isRich(t *testing.T, b Backend, n int) {
	t.Helper()
	require.Len(t, listed(t, b, checkpointer.List{Thread: threadID(n)}), 4)
	head := load(t, b, key(n, "", ""))
	require.Len(t, head.Writes, 2)
	require.Contains(t, string(head.Blobs[0].AppendTo(nil)), "00004")
	require.Len(t, log(t, b, n), 4)
	shown := 0
	reader := eventReader(t, b)
	tr, err := eventstore.TranscriptAt(ctx, reader, threadID(n), checkpointID(4))
	require.NoError(t, err)
	require.NoError(t, reader.EachContent(ctx, threadID(n), eventstore.Ranges(tr.Entries), func(e *eventstore.Event) error {
		shown++
		if len(e.Content) < 400 {
			return fmt.Errorf("content %q", e.Content)
		}
		return nil
	}))
	require.Equal(t, 4, shown)
	kept, err := b.Runs.Records(ctx, threadID(n), bridge.Offset{}, 0)
	require.NoError(t, err)
	require.Len(t, kept, 1)
}

func isBare(t *testing.T, b Backend, n int) {
	t.Helper()
	require.Empty(t, listed(t, b, checkpointer.List{Thread: threadID(n)}))
	require.Empty(t, log(t, b, n))
	kept, err := b.Runs.Records(ctx, threadID(n), bridge.Offset{}, 0)
	require.NoError(t, err)
	require.Empty(t, kept)
	puts(t, b, put(key(n, "", uuid(4)), "", nil))
	require.Empty(t, load(t, b, key(n, "", uuid(4))).Writes)
	answer, err := b.Threads.LoadAnswer(ctx, checkpointer.Key{Thread: threadID(n), ID: checkpointID(4)}, "k")
	require.NoError(t, err)
	require.Nil(t, answer)
	prune(t, b, n)
	write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(n)) })
	insertThreads(t, b, newThread(n))
}

func sortedKeys(list []string) []string {
	slices.Sort(list)
	return list
}

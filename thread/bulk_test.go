package thread_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/postgres/migratedtest"
	"understudy/thread"
)

// long makes a thread with runs, each of which has three checkpoints, two messages and a write.
func long(t testing.TB, r rows, name id.Thread, runs int) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, r.Threads().Write(ctx, func(tx thread.Tx) error {
		return tx.InsertThread(&thread.Thread{
			ID: name, CreatedAt: base, UpdatedAt: base, StateUpdatedAt: base, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Idle,
		})
	}))
	item := func(n int) []byte { return msgp.AppendString(nil, fmt.Sprintf("%s %0600d", name, n)) }
	for n := 0; n < runs; {
		require.NoError(t, r.Runs().Write(ctx, func(tx run.Tx) error {
			for end := min(n+100, runs); n < end; n++ {
				rn := &run.Run{
					ID: id.Run(fmt.Sprintf("%s-%06d", name, n)), Thread: name, Assistant: "a", Graph: "g", Metadata: json.RawMessage(`{}`), Status: run.Success,
					Strategy: run.Enqueue, CreatedAt: base.Add(time.Duration(n) * time.Second), UpdatedAt: base, EndedAt: base,
				}
				if err := tx.InsertRun(rn); err != nil {
					return err
				}
				for i := 3 * n; i < 3*n+3; i++ {
					list := msgp.AppendArrayHeader(nil, 3)
					for k := range 3 {
						list = append(list, item(i+k)...)
					}
					p := &checkpointer.Put{
						Checkpoint: checkpointer.Checkpoint{
							Key: checkpointer.Key{Thread: name, ID: id.Checkpoint(fmt.Sprintf("%07d", i+1))}, Run: rn.ID,
							Data:     json.RawMessage(fmt.Sprintf(`{"channel_versions":{"messages":"%d","other":"%d"}}`, i, n)),
							Metadata: json.RawMessage(fmt.Sprintf(`{"source":"loop","step":%d,"thread_id":"%s"}`, i, name)),
						},
						Blobs: []checkpointer.Blob{
							{Channel: "messages", Version: fmt.Sprint(i), Type: "msgpack", Data: list},
							{Channel: "other", Version: fmt.Sprint(n), Type: "msgpack", Data: []byte("\xa1v")},
						},
					}
					if i > 0 {
						p.Parent = id.Checkpoint(fmt.Sprintf("%07d", i))
					}
					if err := tx.PutCheckpoint(p); err != nil {
						return err
					}
				}
				if err := tx.PutWrites(checkpointer.Key{Thread: name, ID: id.Checkpoint(fmt.Sprintf("%07d", 3*n+3))}, []checkpointer.Write{
					{TaskID: "t", Channel: "messages", Type: "msgpack", Data: item(n)},
				}); err != nil {
					return err
				}
				if err := tx.AppendEvents(name, []*eventstore.Event{
					{Run: rn.ID, Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, MessageID: fmt.Sprint("h", n), Content: item(n), CreatedAt: base},
					{Run: rn.ID, Type: eventstore.TypeAI, Category: eventstore.CategoryMessage, MessageID: fmt.Sprint("a", n), Content: item(n), CreatedAt: base},
				}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// waits measures how long small writes take while fn works.
func waits(t testing.TB, r rows, fn func()) (took, longest, median time.Duration) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var all []time.Duration
		for n := 0; ; n++ {
			began := time.Now()
			if err := r.Threads().Write(context.Background(), func(tx thread.Tx) error {
				row, err := tx.Thread("other")
				if err != nil {
					return err
				}
				row.UpdatedAt = base.Add(time.Duration(n) * time.Second)
				return tx.UpdateThread(row)
			}); err != nil {
				t.Error(err)
			}
			all = append(all, time.Since(began))
			select {
			case <-stop:
				done <- all
				return
			default:
			}
		}
	}()
	began := time.Now()
	fn()
	took = time.Since(began)
	close(stop)
	all := <-done
	slices.Sort(all)
	return took, all[len(all)-1], all[len(all)/2]
}

// A long thread is copied, pruned and deleted, and runs of it are rolled back, while others write, who hardly notice. LONG=10000 is a thread with as many runs and twice as many messages.
func TestLongThreadsHoldUpNoOtherWrite(t *testing.T) {
	for engine, runs := range map[string]int{"sqlite": 1000, "postgres": 200} {
		if text := os.Getenv("LONG"); text != "" {
			_, err := fmt.Sscan(text, &runs)
			require.NoError(t, err)
		}
		t.Run(engine, func(t *testing.T) {
			where := t.TempDir()
			if engine == "postgres" {
				where = migratedtest.Database(t)
			}
			r := open(t, where)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			s := thread.NewService(thread.Options{Store: r.Threads(), Snapshots: checkpointer.NewSnapshots(r.Threads(), thread.Explainer{Store: r.Threads()})})
			long(t, r, "long", runs)
			long(t, r, "other", 1)
			check := func(what string, fn func()) {
				t.Helper()
				took, longest, median := waits(t, r, fn)
				t.Logf("%s of %d runs: %v; others waited %v at most, %v in the middle", what, runs, took.Round(time.Millisecond), longest.Round(time.Millisecond), median)
				// The machine may be slow or busy: what counts is that they do not wait for all of it.
				require.Less(t, longest, max(took/2, 400*time.Millisecond), what)
			}
			var copied id.Thread
			check("copy", func() {
				v, err := s.Copy(t.Context(), "long")
				require.NoError(t, err)
				copied = v.ID
			})
			require.Equal(t, 3*runs, checkpoints(t, r, copied))
			require.Equal(t, 2*runs+1, events(t, r, copied)) // and where it comes from
			for what, n := range map[string]int{"rollback of an early run": 5, "rollback of a run in the middle": runs / 2} {
				check(what, func() {
					gone := id.Run(fmt.Sprintf("long-%06d", n))
					require.NoError(t, r.Runs().Write(t.Context(), func(tx run.Tx) error {
						return errors.Join(tx.DeleteRunCheckpoints("long", gone, false), tx.RollBackEvents("long", gone), tx.DeleteRun("long", gone))
					}))
				})
			}
			require.Equal(t, 3*runs-6, checkpoints(t, r, "long"))
			check("prune", func() {
				pruned, err := s.Prune(t.Context(), []id.Thread{"long"}, thread.KeepLatest, nil)
				require.NoError(t, err)
				require.Equal(t, 1, pruned.Count)
			})
			require.Equal(t, 1, checkpoints(t, r, "long"))
			require.Equal(t, 2*runs, events(t, r, "long"))
			head := func(of id.Thread) string {
				at, err := r.Threads().LoadCheckpoint(t.Context(), checkpointer.Key{Thread: of})
				require.NoError(t, err)
				require.Len(t, at.Blobs, 2)
				return string(at.Blobs[0].AppendTo(nil)) + string(at.Blobs[1].AppendTo(nil))
			}
			require.Equal(t, head(copied), head("long"))
			check("delete", func() { require.NoError(t, s.Delete(t.Context(), "long")) })
			check("delete of the copy", func() { require.NoError(t, s.Delete(t.Context(), copied)) })
			left, err := r.Threads().Remains(t.Context(), 10)
			require.NoError(t, err)
			require.Empty(t, left)
			require.Equal(t, 3, checkpoints(t, r, "other"))
		})
	}
}

// A thread that a list has found, and that is deleted before it is shown, is gone, however much of it is deleted yet.
func TestThreadsThatAreDeletedWhileTheyAreRead(t *testing.T) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			where := t.TempDir()
			if engine == "postgres" {
				where = migratedtest.Database(t)
			}
			r := open(t, where)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			s := thread.NewService(thread.Options{Store: r.Threads(), Snapshots: checkpointer.NewSnapshots(r.Threads(), thread.Explainer{Store: r.Threads()})})
			long(t, r, "long", 2)
			write := func(fn func(tx thread.Tx) error) {
				t.Helper()
				require.NoError(t, r.Threads().Write(t.Context(), fn))
			}
			write(func(tx thread.Tx) error {
				row, err := tx.Thread("long")
				if err != nil {
					return err
				}
				row.Head = "0000006"
				return tx.UpdateThread(row)
			})
			page, _, err := s.Search(t.Context(), thread.Search{})
			require.NoError(t, err)
			require.Len(t, page, 1)
			v := *page[0]
			require.NoError(t, s.Show(t.Context(), thread.Search{}, &v))
			require.NotEmpty(t, v.Values)
			write(func(tx thread.Tx) error { return tx.RemoveThread("long") })
			for more := true; more; {
				v = *page[0]
				if err := s.Show(t.Context(), thread.Search{}, &v); err != nil { // all of it may still be there
					require.Equal(t, fault.NotFound, fault.KindOf(err), "%v", err)
				}
				write(func(tx thread.Tx) (err error) {
					more, err = tx.DeleteRemains("long", 1)
					return err
				})
			}
		})
	}
}

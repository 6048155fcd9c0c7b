package sqlite

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/id"
)

// nextOf is the n-th checkpoint of a thread, of a list of three items, of which the next one has two.
func nextOf(th id.Thread, n int, run id.Run) *checkpointer.Put {
	list := msgp.AppendArrayHeader(nil, 3)
	for i := range 3 {
		list = msgp.AppendString(list, fmt.Sprintf("%0600d", n+i))
	}
	p := &checkpointer.Put{
		Checkpoint: checkpointer.Checkpoint{
			Key: checkpointer.Key{Thread: th, ID: id.Checkpoint(fmt.Sprintf("%07d", n+1))}, Run: run,
			Data:     fmt.Appendf(nil, `{"channel_versions":{"messages":"%d","other":"%d"}}`, n, n/7),
			Metadata: []byte(`{}`),
		},
		Blobs: []checkpointer.Blob{
			{Channel: "messages", Version: fmt.Sprint(n), Type: "msgpack", Data: list},
			{Channel: "other", Version: fmt.Sprint(n / 7), Type: "msgpack", Data: []byte("\xa1v")},
		},
	}
	if n > 0 {
		p.Parent = id.Checkpoint(fmt.Sprintf("%07d", n))
	}
	return p
}

// longOf makes a thread of so many runs with three checkpoints each.
func longOf(t *testing.T, s *Store, th id.Thread, runs int) {
	t.Helper()
	insertThread(t, s, th)
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		for n := range 3 * runs {
			if err := tx.PutCheckpoint(nextOf(th, n, id.Run(fmt.Sprint("of", n/3)))); err != nil {
				return err
			}
		}
		return nil
	}))
}

// However long a thread is, the transaction that deletes a run of it reads what the run has, and
// no more.
func TestDeletingARunReadsNothingElseInItsTransaction(t *testing.T) {
	t.Parallel()
	visited := map[int]int{}
	for _, runs := range []int{300, 1200} {
		s, err := Open(t.Context(), Options{Dir: t.TempDir(), Synchronous: "normal"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		longOf(t, s, "t", runs)
		for _, n := range []int{5, runs / 2, runs - 1} {
			most := 0
			require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
				err := tx.DeleteRunCheckpoints("t", id.Run(fmt.Sprint("of", n)), false)
				most = tx.visited
				return err
			}))
			visited[runs] = max(visited[runs], most)
			requireNoGarbage(t, s)
		}
	}
	require.LessOrEqual(t, visited[1200], visited[300]+10)
	require.Less(t, visited[1200], 50)
}

// A plan does not hold when the thread got checkpoints after it was made, however closely: then
// another one is made, and in the end none is.
func TestPlansThatDoNotHold(t *testing.T) {
	t.Parallel()
	for _, changes := range []int{1, plannings, plannings + 2} {
		s, err := Open(t.Context(), Options{Dir: t.TempDir(), Synchronous: "normal"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		s.longThread = 1
		longOf(t, s, "t", 20)
		tries := 0
		require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
			tries++
			if tries > 1 && tries <= changes { // as if another write had come in between
				*tx.lists.marks.of("t")++
			}
			return tx.DeleteRunCheckpoints("t", "of7", false)
		}))
		require.Equal(t, min(changes, plannings)+1, tries)
		requireNoGarbage(t, s)

		// In earnest: others write to the thread all the time.
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			for n := 60; ctx.Err() == nil; n++ {
				if err := s.write(context.WithoutCancel(ctx), func(tx *Tx) error { return tx.PutCheckpoint(nextOf("t", n, "other")) }); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for n := range 7 {
			require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return tx.DeleteRunCheckpoints("t", id.Run(fmt.Sprint("of", n)), false) }))
		}
		cancel()
		require.NoError(t, <-done)
		requireNoGarbage(t, s)
	}
}

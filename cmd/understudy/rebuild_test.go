package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/eventstore/readmodel"
	"understudy/storage/sqlite"
	"understudy/thread"
)

// What differs is named, with --check alone left as it is, and without replaced.
func TestRebuild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	on := func(fn func(s *sqlite.Store)) {
		s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir, Synchronous: "normal"})
		require.NoError(t, err)
		fn(s)
		require.NoError(t, s.Close())
	}
	rebuild := func(args ...string) (string, error) {
		return execute(t, append([]string{"rebuild", "--data", dir}, args...)...)
	}
	on(func(s *sqlite.Store) {
		now := time.Now().Truncate(time.Microsecond)
		require.NoError(t, s.Threads().Write(t.Context(), func(tx thread.Tx) error {
			if err := tx.InsertThread(&thread.Thread{ID: "t", CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: []byte(`{}`), Config: []byte(`{}`), Status: thread.Idle}); err != nil {
				return err
			}
			return tx.AppendEvents("t", []*eventstore.Event{
				{Type: eventstore.TypeRunStart, Category: eventstore.CategoryTrace, Content: []byte(`{}`), CreatedAt: now},
				{Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, MessageID: "m", Content: []byte(`{}`), CreatedAt: now},
			})
		}))
	})
	out, err := rebuild("--check")
	require.NoError(t, err)
	require.Contains(t, out, "1 threads have new events")
	out, err = rebuild()
	require.NoError(t, err)
	require.Equal(t, "branches   0 rows\nheads      1 rows\nmessages   1 rows\ntimeline   1 rows\n1 threads compared, 0 differed\nusage      0 rows\n0 runs compared, 0 days differed\n", out)
	on(func(s *sqlite.Store) {
		p, err := s.Projection(t.Context(), readmodel.Follower, "t", readmodel.Messages)
		require.NoError(t, err)
		_, err = s.Project(t.Context(), readmodel.Follower, []readmodel.Change{{Thread: "t", Was: p.Offset, Now: *p.Offset, Delete: p.Rows}})
		require.NoError(t, err)
	})
	for range 2 { // a check changes nothing
		out, err = rebuild("--check", "messages")
		require.ErrorIs(t, err, errDiffer)
		require.Contains(t, out, "thread t: 0 rows too many, 1 missing\n  + messages \"m\" seq 2")
	}
	_, err = rebuild("--check", "timeline")
	require.NoError(t, err)
	out, err = rebuild("timeline")
	require.NoError(t, err)
	require.Contains(t, out, "1 threads compared, 0 differed\n")
	out, err = rebuild("messages")
	require.NoError(t, err)
	require.Contains(t, out, "messages   1 rows\n1 threads compared, 1 differed and are equal to their logs now\n")
	_, err = rebuild("--check")
	require.NoError(t, err)
	_, err = rebuild("nonsense")
	require.ErrorContains(t, err, "the read models are branches, heads, messages, timeline, usage")
}

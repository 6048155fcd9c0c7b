package storagetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	upstream "understudy/proxy/record"
	"understudy/thread"
)

// RunUpstream runs the suite for storages of a proxy's recordings. open returns an empty one, which
// it closes when the test ends.
func RunUpstream(t *testing.T, open func(t *testing.T) upstream.Store) {
	for name, test := range map[string]func(*testing.T, upstream.Store){
		"links and deletions":       upstreamLinks,
		"several record one thread": upstreamTogether,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func upstreamThread(t id.Thread) *thread.Thread {
	return &thread.Thread{
		ID: t, CreatedAt: time.UnixMicro(7), UpdatedAt: time.UnixMicro(7), StateUpdatedAt: time.UnixMicro(7), Status: thread.Idle, Metadata: raw(`{}`), Config: raw(`{}`),
	}
}

// Checking whether a checkpoint is recorded and recording it in one transaction records it once,
// however many callers do it concurrently.
func upstreamTogether(t *testing.T, u upstream.Store) {
	const recorders, checkpoints = 4, 20
	var wg sync.WaitGroup
	for range recorders {
		wg.Go(func() {
			for n := range checkpoints {
				c := id.Checkpoint(fmt.Sprintf("c%02d", n))
				if err := u.Record(ctx, func(tx upstream.Tx) error {
					if _, err := tx.Thread("t1"); fault.Is(err, fault.NotFound) {
						if err := tx.InsertThread(upstreamThread("t1")); err != nil {
							return err
						}
					} else if err != nil {
						return err
					}
					if l, err := tx.Link("t1", c); err != nil || l != nil {
						return err
					}
					if err := tx.AppendEvents("t1", []*eventstore.Event{{Type: string(c), Category: "trace", Content: []byte("1"), CreatedAt: base}}); err != nil {
						return err
					}
					if err := tx.PutTranscriptRow(&eventstore.Row{Thread: "t1", Checkpoint: c}); err != nil {
						return err
					}
					return tx.PutLink("t1", upstream.Link{ID: c})
				}); err != nil {
					t.Errorf("record %s: %v", c, err)
				}
			}
		})
	}
	wg.Wait()
	events, err := u.Events(ctx, "t1", 0, 0)
	require.NoError(t, err)
	require.Len(t, events, checkpoints)
	for i, e := range events {
		require.EqualValues(t, i+1, e.Seq)
		require.Equal(t, fmt.Sprintf("c%02d", i), e.Type)
	}
}

func upstreamLinks(t *testing.T, u upstream.Store) {
	checkpoints := []upstream.Link{
		{ID: "c1", Run: "r1", Version: "v1"},
		{ID: "c2", Parent: "c1", Run: "r1", Version: "v2"},
		{ID: "c3", Parent: "c2", Run: "r2", Version: "v2"},
		{ID: "c4", Parent: "c2", Run: "r2", Version: "v1", Incomplete: true},
	}
	require.NoError(t, u.Record(ctx, func(tx upstream.Tx) error {
		_, err := tx.Thread("t1")
		require.True(t, fault.Is(err, fault.NotFound))
		require.NoError(t, tx.InsertThread(upstreamThread("t1")))
		for _, l := range checkpoints {
			require.NoError(t, tx.PutTranscriptRow(&eventstore.Row{Thread: "t1", Checkpoint: l.ID, Run: l.Run, Version: l.Version}))
			require.NoError(t, tx.PutLink("t1", l))
		}
		// What was recorded next to checkpoints is none.
		require.NoError(t, tx.PutTranscriptRow(&eventstore.Row{Thread: "t1", Checkpoint: "c9", Version: "v2"}))
		require.NoError(t, tx.PutLink("t1", upstream.Link{ID: "c2", Parent: "else"}), "once is enough")
		for _, want := range checkpoints {
			l, err := tx.Link("t1", want.ID)
			require.NoError(t, err)
			require.Equal(t, &want, l)
		}
		l, err := tx.Link("t1", "c9")
		require.NoError(t, err)
		require.Nil(t, l)
		row, err := tx.Sibling("t1", "c2", "v2")
		require.NoError(t, err)
		require.Equal(t, id.Checkpoint("c3"), row.Checkpoint)
		row, err = tx.Sibling("t1", "c1", "v1")
		require.NoError(t, err)
		require.Nil(t, row)

		require.NoError(t, tx.NoteDeleted("t1", "c2", []string{"a"}))
		require.NoError(t, tx.NoteDeleted("t1", "c2", []string{"b"}))
		require.NoError(t, tx.NoteDeleted("t1", "c3", []string{"c"}))
		for _, tt := range []struct {
			before id.Checkpoint
			want   []string
		}{{"c2", nil}, {"c3", []string{"a", "b"}}, {"c3", nil}, {"c4", []string{"c"}}} {
			ids, err := tx.TakeDeleted("t1", tt.before)
			require.NoError(t, err)
			require.Equal(t, tt.want, ids)
		}
		return tx.NoteDeleted("t1", "c4", []string{"d"})
	}))
	found, err := u.Links(ctx, "t1", []id.Checkpoint{"c3", "c9", "c1", "x"})
	require.NoError(t, err)
	require.Equal(t, map[id.Checkpoint]upstream.Link{"c1": checkpoints[0], "c3": checkpoints[2]}, found)
	l, ok, err := u.OfVersion(ctx, "t1", "v2")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, checkpoints[2], l)
	_, ok, err = u.OfVersion(ctx, "t1", "v3")
	require.NoError(t, err)
	require.False(t, ok)
	for of, want := range map[[2]string]id.Checkpoint{{"c4", "r2"}: "c2", {"c4", "r1"}: "c4", {"c2", "r1"}: "", {"x", "r1"}: ""} {
		at, err := u.Before(ctx, "t1", id.Checkpoint(of[0]), id.Run(of[1]))
		require.NoError(t, err)
		require.Equal(t, want, at, "%v", of)
	}
	require.NoError(t, u.Record(ctx, func(tx upstream.Tx) error { return tx.DeleteThread("t1") }))
	require.NoError(t, u.Record(ctx, func(tx upstream.Tx) error {
		ids, err := tx.TakeDeleted("t1", "c9")
		require.NoError(t, err)
		require.Nil(t, ids)
		l, err := tx.Link("t1", "c1")
		require.NoError(t, err)
		require.Nil(t, l)
		return nil
	}))
}

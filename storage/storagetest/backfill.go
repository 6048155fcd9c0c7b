package storagetest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/run"
)

// archive is the part of a storage that backfilling uses.
func archive(t *testing.T, b Backend) eventstore.Archive {
	t.Helper()
	a, ok := b.Threads.(eventstore.Archive)
	require.True(t, ok, "the store of threads cannot be backfilled")
	return a
}

func ensure(t *testing.T, a eventstore.Archive, th int) {
	t.Helper()
	require.NoError(t, eventstore.NewBackfiller(a).Ensure(ctx, threadID(th), ""))
}

// saved saves checkpoints without recording them.
func saved(t *testing.T, b Backend, list ...*checkpointer.Put) {
	t.Helper()
	write(t, b, func(tx run.Tx) error {
		for _, p := range list {
			if err := tx.PutCheckpoint(p); err != nil {
				return err
			}
		}
		return nil
	})
}

// condensing is a conversation: its third checkpoint condenses, its fourth is a branch.
func condensing() []*checkpointer.Put {
	list := []*checkpointer.Put{
		talk(1, 1, 0, 1, "a", "b"), talk(1, 2, 1, 1, "a", "b", "c", "d"), talk(1, 3, 2, 1, "d", "e"), talk(1, 4, 1, 2, "a", "b", "f"),
	}
	for i, p := range list {
		p.Data = append(raw(`{"ts":"`+at(i).Format(time.RFC3339Nano)+`",`), p.Data[1:]...)
	}
	return list
}

// failing is an Archive whose transactions fail from some number on.
type failing struct {
	eventstore.Archive
	left int
}

func (f *failing) Backfill(ctx context.Context, fn func(eventstore.BackfillTx) error) error {
	return f.Archive.Backfill(ctx, func(tx eventstore.BackfillTx) error {
		err := fn(tx)
		if f.left--; f.left < 0 && err == nil {
			err = errBoom
		}
		return err
	})
}

var backfillCases = map[string]func(*testing.T, Backend){
	"old checkpoints are found": func(t *testing.T, b Backend) {
		a := archive(t, b)
		lacks := func() bool {
			found, err := a.Unrecorded(ctx, threadID(1))
			require.NoError(t, err)
			return found
		}
		require.False(t, lacks(), "no checkpoints at all")
		records(t, b, talk(1, 1, 0, 1, "a"))
		nested := talk(1, 7, 0, 1, "x")
		nested.NS = "sub:1"
		saved(t, b, nested)
		require.False(t, lacks(), "subgraphs have no transcripts")
		saved(t, b, talk(1, 3, 2, 5, "c"), talk(1, 2, 1, 1, "b"), talk(2, 4, 0, 1, "other"))
		require.True(t, lacks())
		links, err := a.Lineage(ctx, threadID(1))
		require.NoError(t, err)
		same(t, []eventstore.Link{
			{ID: checkpointID(1), Recorded: true}, {ID: checkpointID(2), Parent: checkpointID(1)}, {ID: checkpointID(3), Parent: checkpointID(2)},
		}, links)
		links, err = a.Lineage(ctx, threadID(9))
		require.NoError(t, err)
		require.Empty(t, links)

		row, err := a.RootCheckpoint(ctx, threadID(1), checkpointID(3))
		require.NoError(t, err)
		require.Equal(t, runID(5), row.Run)
		require.Equal(t, checkpointID(2), row.Parent)
		require.JSONEq(t, `{"source":"loop","step":1}`, string(row.Metadata))
		require.Equal(t, "v3", member(t, row.Data, "channel_versions", "messages"))
		row, err = a.RootCheckpoint(ctx, threadID(1), checkpointID(7))
		require.NoError(t, err)
		require.Nil(t, row, "not at the root")

		v, err := a.RootValue(ctx, threadID(1), "messages", "v3")
		require.NoError(t, err)
		require.Equal(t, "msgpack", v.Type)
		require.Equal(t, talk(1, 3, 2, 5, "c").Blobs[0].Data, v.Data)
		v, err = a.RootValue(ctx, threadID(1), "messages", "nothing")
		require.NoError(t, err)
		require.Empty(t, v.Type)

		require.NoError(t, a.Backfill(ctx, func(tx eventstore.BackfillTx) error {
			for c, want := range map[int]bool{1: true, 3: true, 4: false, 7: false} {
				found, err := tx.HasRootCheckpoint(threadID(1), checkpointID(c))
				if err != nil {
					return err
				}
				require.Equal(t, want, found, "checkpoint %d", c)
			}
			return nil
		}))
	},
	"a thread is backfilled as it would have been recorded": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		saved(t, b, condensing()...)
		ensure(t, archive(t, b), 1)
		got := log(t, b, 1)
		require.Equal(t, []string{"a", "b", "c", "*", "d", "e"}, texts(t, b, 1, 3))
		require.Equal(t, []string{"a", "b", "f"}, texts(t, b, 1, 4))
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		records(t, b, condensing()...)
		same(t, log(t, b, 1), got)
	},
	"backfilling twice does nothing more": func(t *testing.T, b Backend) {
		saved(t, b, condensing()...)
		ensure(t, archive(t, b), 1)
		n := len(log(t, b, 1))
		ensure(t, archive(t, b), 1)
		b = b.reopen(t)
		ensure(t, archive(t, b), 1)
		require.Len(t, log(t, b, 1), n)
	},
	"what was recorded on an unknown parent is recorded anew": func(t *testing.T, b Backend) {
		all := condensing()
		saved(t, b, all[:2]...)
		records(t, b, all[2:]...)
		records(t, b, talk(1, 5, 3, 3, "d", "e", "g"))
		require.Equal(t, []string{"d", "e", "g"}, texts(t, b, 1, 5), "without backfill")
		before := len(log(t, b, 1))
		ensure(t, archive(t, b), 1)
		require.Equal(t, []string{"a", "b", "c", "*", "d", "e", "g"}, texts(t, b, 1, 5))
		require.Equal(t, []string{"a", "b", "f"}, texts(t, b, 1, 4))
		events := log(t, b, 1)
		for i, e := range events {
			var m struct {
				RolledBack bool `json:"rolled_back"`
			}
			require.NoError(t, json.Unmarshal(e.Metadata, &m))
			require.Equal(t, i < before, m.RolledBack, "event %d", e.Seq)
		}
	},
	"what clients asked for is found where tasks have no paths": func(t *testing.T, b Backend) {
		p := talk(1, 1, 0, 1, "a")
		input := talk(1, 2, 1, 1, "a")
		input.Metadata = raw(`{"source": "input"}`)
		write(t, b, func(tx run.Tx) error {
			for _, p := range []*checkpointer.Put{p, input} {
				w := checkpointer.Write{TaskID: "a", Channel: "messages", Type: "msgpack", Data: []byte(p.ID)}
				if err := firstError(tx.PutCheckpoint(p), tx.PutWrites(p.Key, []checkpointer.Write{w})); err != nil {
					return err
				}
			}
			values, err := tx.ClientWrites(p.Thread, p.ID, "messages")
			require.Empty(t, values, "of a node")
			if err != nil {
				return err
			}
			values, err = tx.ClientWrites(p.Thread, input.ID, "messages")
			same(t, []eventstore.Value{{Type: "msgpack", Data: []byte(input.ID)}}, values)
			return err
		})
	},
	"an interrupted backfill continues where it was": func(t *testing.T, b Backend) {
		all := condensing()
		saved(t, b, all[:2]...)
		records(t, b, all[2:]...)
		for left := 0; ; left++ {
			a := archive(t, b)
			err := eventstore.NewBackfiller(&failing{a, left}).Ensure(ctx, threadID(1), "")
			b = b.reopen(t)
			if err == nil {
				break
			}
			require.True(t, errors.Is(err, errBoom), err)
		}
		require.Equal(t, []string{"a", "b", "c", "*", "d", "e"}, texts(t, b, 1, 3))
		require.Equal(t, []string{"a", "b", "f"}, texts(t, b, 1, 4))
	},
}

// member returns a text member of an object.
func member(t *testing.T, object []byte, keys ...string) (text string) {
	t.Helper()
	for i, k := range keys {
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(object, &fields))
		if object = fields[k]; i == len(keys)-1 {
			require.NoError(t, json.Unmarshal(object, &text))
		}
	}
	return text
}

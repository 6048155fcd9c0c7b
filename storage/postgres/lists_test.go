package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/internal/postgrestest"
	"understudy/storage/internal/relational"
)

// talk is a list of n messages.
func talk(n int) []byte {
	out := msgp.AppendArrayHeader(nil, uint32(n))
	for i := range n {
		out = msgp.AppendString(out, fmt.Sprint(i, strings.Repeat("x", 200)))
	}
	return out
}

// growing is the nth checkpoint of a thread whose list has one item more with each.
func growing(thread id.Thread, n int) *checkpointer.Put {
	return &checkpointer.Put{
		Checkpoint: checkpointer.Checkpoint{
			Key: checkpointer.Key{Thread: thread, ID: id.Checkpoint(fmt.Sprintf("%06d", n))}, Run: id.Run(fmt.Sprint("run", n/5)),
			Data: json.RawMessage(fmt.Sprintf(`{"channel_versions":{"messages":"%d"}}`, n)),
		},
		Blobs: []checkpointer.Blob{{Channel: "messages", Version: fmt.Sprint(n), Type: "msgpack", Data: talk(n)}},
	}
}

func requireLists(t *testing.T, s *Store, thread id.Thread) (count int) {
	t.Helper()
	list, err := s.ListCheckpoints(context.Background(), checkpointer.List{Thread: thread})
	require.NoError(t, err)
	for _, tuple := range list {
		var n int
		_, err := fmt.Sscanf(string(tuple.ID), "%d", &n)
		require.NoError(t, err)
		require.True(t, bytes.Equal(talk(n), tuple.Blobs[0].Bytes()), "checkpoint %s", tuple.ID)
	}
	return len(list)
}

// Each instance remembers parts; what the others added, dropped or undid is noticed.
func TestListsOfTwoInstances(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	stores := []*Store{open(t, Options{URL: address}), open(t, Options{URL: address})}
	ctx := context.Background()
	put := func(s *Store, n int) {
		t.Helper()
		require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.PutCheckpoint(growing("t", n)) }))
	}
	for n := 1; n <= 120; n++ {
		s, other := stores[n%3%2], stores[1-n%3%2]
		put(s, n)
		switch {
		case n%17 == 0: // parts go, and their numbers may come again
			require.NoError(t, other.write(ctx, func(tx *Tx) error { return tx.DeleteRunCheckpoints("t", id.Run(fmt.Sprint("run", n/5)), false) }))
		case n%13 == 0:
			require.ErrorIs(t, other.write(ctx, func(tx *Tx) error {
				return errors.Join(tx.PutCheckpoint(growing("t", n+1)), context.Canceled)
			}), context.Canceled)
		case n == 60:
			require.NoError(t, other.write(ctx, func(tx *Tx) error { return tx.deleteCheckpoints("t") }))
		}
	}
	require.Positive(t, requireLists(t, stores[0], "t"))
	require.NotEmpty(t, stores[0].lists.of)
}

// A list of which parts are gone is an error that says so, not a list with a hole.
func TestMissingParts(t *testing.T) {
	t.Parallel()
	s := open(t, Options{URL: postgrestest.Database(t)})
	for n := 1; n <= 20; n++ {
		require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return tx.PutCheckpoint(growing("t", n)) }))
	}
	for _, lose := range []string{"DELETE FROM list_parts WHERE part & 15 = 2", "DELETE FROM list_parts", "DELETE FROM list_owners"} {
		require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return tx.exec(lose) }))
		_, err := s.LoadCheckpoint(t.Context(), checkpointer.Key{Thread: "t"})
		require.ErrorIs(t, err, checkpointer.ErrLost, lose)
		_, err = s.ListCheckpoints(t.Context(), checkpointer.List{Thread: "t"})
		require.ErrorIs(t, err, checkpointer.ErrLost, lose)
	}
}

// Many goroutines of two instances on few threads: lists are whole, and what is kept in memory is
// counted right.
func TestListsUnderLoad(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	stores := []*Store{open(t, Options{URL: address}), open(t, Options{URL: address})}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for n := 1; n <= 30; n++ {
				err := stores[w%2].write(context.Background(), func(tx *Tx) error {
					return tx.PutCheckpoint(growing(id.Thread(fmt.Sprint("t", n%3)), w*30+n))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for n := range 3 {
		require.Equal(t, 60, requireLists(t, stores[n%2], id.Thread(fmt.Sprint("t", n))))
	}
	for _, s := range stores {
		size, bytes := 0, 0
		for _, p := range s.lists.of {
			size += len(p.known)
			bytes += p.value.Size()
		}
		require.Equal(t, size, s.lists.size)
		require.Equal(t, bytes, s.lists.bytes)
	}
	// Nothing is stored that no list names.
	var used compact.Set
	require.NoError(t, stores[0].snapshot(context.Background(), func(q *reader) error {
		var values [][]byte
		if err := q.query(relational.ListsOf.Postgres, func(r *row) error {
			values = append(values, r.Bytes(3))
			return nil
		}, "t1"); err != nil {
			return err
		}
		if err := newLoader(q, "t1").named(values, &used); err != nil {
			return err
		}
		owner, _, err := findOwner(q, "t1")
		if err != nil {
			return err
		}
		return q.query("SELECT part FROM list_parts WHERE part BETWEEN $1 AND $2", func(r *row) error {
			require.True(t, used.Has(uint32(r.Int(0)&(1<<partBits-1))))
			return nil
		}, partKey(owner, 0), partKey(owner+1, 0)-1)
	}))
}

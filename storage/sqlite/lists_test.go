package sqlite

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/storage/internal/relational"
)

// blobTypes counts the rows of checkpoint_blobs by type.
func blobTypes(t *testing.T, s *Store) map[string]int {
	t.Helper()
	out := map[string]int{}
	require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
		return query(c, "SELECT type, count(*) FROM checkpoint_blobs GROUP BY type", func(st *sqlite.Stmt) error {
			out[st.ColumnText(0)] = st.ColumnInt(1)
			return nil
		})
	}))
	return out
}

func putSteady(t *testing.T, s *Store, thread id.Thread, from, to int) {
	t.Helper()
	require.NoError(t, s.write(context.Background(), func(tx *Tx) error {
		for n := from; n < to; n++ {
			if err := tx.PutCheckpoint(steadyPut(thread, n)); err != nil {
				return err
			}
		}
		return nil
	}))
}

func requireSteady(t *testing.T, s *Store, thread id.Thread, count int) {
	t.Helper()
	list, err := s.ListCheckpoints(context.Background(), checkpointer.List{Thread: thread})
	require.NoError(t, err)
	require.Len(t, list, count)
	for i, tuple := range list {
		require.Equal(t, talk(count-i), tuple.Blobs[0].Bytes())
	}
}

// The layout is decided when a database is made, whatever is asked later, and both are read.
func TestLayoutIsDecidedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx := context.Background()
	for i, asked := range []string{layoutLangGraph, "", layoutCompact} {
		s, err := Open(ctx, Options{Dir: dir, Layout: asked})
		require.NoError(t, err)
		putSteady(t, s, "t", 10*i+1, 10*i+11)
		require.Equal(t, map[string]int{"msgpack": 10*i + 10}, blobTypes(t, s))
		if i == 2 { // as an operator who converts it would
			require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.exec("UPDATE meta SET value = 'compact' WHERE key = 'layout'") }))
		}
		require.NoError(t, s.Close())
	}
	s, err := Open(ctx, Options{Dir: dir})
	require.NoError(t, err)
	putSteady(t, s, "t", 31, 41)
	require.Equal(t, map[string]int{"msgpack": 30, "list": 10}, blobTypes(t, s))
	requireSteady(t, s, "t", 40)
	insertThread(t, s, "t")
	copyThread(t, s, "t", "copy")
	require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.deleteCheckpoints("t") }))
	requireSteady(t, s, "copy", 40)
	requireNoGarbage(t, s)

	require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.exec("UPDATE meta SET value = 'later' WHERE key = 'layout'") }))
	require.NoError(t, s.Close())
	_, err = Open(ctx, Options{Dir: dir})
	require.ErrorContains(t, err, "later")
	_, err = Open(ctx, Options{Dir: t.TempDir(), Layout: "other"})
	require.ErrorContains(t, err, "other")
}

// A database from before lists were stored by item keeps its values and writes new ones compact.
func TestOldDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx := context.Background()
	conn, err := connect(filepath.Join(dir, fileName), true, "normal")
	require.NoError(t, err)
	require.NoError(t, migrate(ctx, conn, migrations()[:2], slog.New(slog.DiscardHandler)))
	for n := 1; n <= 5; n++ {
		p := steadyPut("t", n)
		require.NoError(t, exec(conn, "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata) VALUES (?, '', ?, ?, CAST('{}' AS BLOB))",
			p.Thread, p.ID, p.Data))
		require.NoError(t, exec(conn, "INSERT INTO checkpoint_blobs (thread_id, channel, version, type, blob) VALUES (?, 'messages', ?, 'msgpack', ?)",
			p.Thread, p.Blobs[0].Version, p.Blobs[0].Data))
	}
	require.NoError(t, conn.Close())

	s, err := Open(ctx, Options{Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	putSteady(t, s, "t", 6, 9)
	require.Equal(t, map[string]int{"msgpack": 5, "list": 3}, blobTypes(t, s))
	requireSteady(t, s, "t", 8)
}

// A part that is gone is an error that names it, not a list with a hole.
func TestMissingPart(t *testing.T) {
	t.Parallel()
	s := setup(t)
	putSteady(t, s, "t", 1, 20)
	require.NoError(t, s.write(context.Background(), func(tx *Tx) error { return tx.exec("DELETE FROM list_parts WHERE part & 15 = 7") }))
	_, err := s.LoadCheckpoint(context.Background(), checkpointer.Key{Thread: "t"})
	require.ErrorIs(t, err, checkpointer.ErrLost)
	require.ErrorContains(t, err, "part 7 is missing")
	require.ErrorContains(t, err, "messages")
}

// What is kept in memory of parts is bounded, and counted right.
func TestListsInMemory(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx := context.Background()
	count := func(l *lists) {
		size, bytes := 0, 0
		for _, p := range l.of {
			size += len(p.known)
			bytes += p.value.Size()
		}
		require.Equal(t, size, l.size)
		require.Equal(t, bytes, l.bytes)
	}
	for n := range 40 {
		require.NoError(t, s.write(ctx, func(tx *Tx) error {
			count(tx.lists)
			if n == 20 {
				tx.lists.forget("t6")
				tx.lists.bytes += valueLimit // as if it were full
			}
			return tx.PutCheckpoint(steadyPut(id.Thread(fmt.Sprint("t", n%7)), n+1))
		}))
		if n%9 == 0 {
			require.ErrorIs(t, s.write(ctx, func(tx *Tx) error {
				return errorOf(tx.PutCheckpoint(steadyPut(id.Thread(fmt.Sprint("t", n%5)), n+100)), os.ErrInvalid)
			}), os.ErrInvalid)
		}
	}
	require.NoError(t, s.write(ctx, func(tx *Tx) error {
		count(tx.lists)
		require.NotEmpty(t, tx.lists.of)
		return nil
	}))
}

func TestPlansOfLists(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
		for _, text := range []string{ownerOf, digestsOf, selectParts, deleteParts, relational.ListsOf.SQLite, listOfOne, deleteOwners, relational.RowOf.SQLite} {
			for _, step := range plan(t, c, text) {
				require.NotContains(t, step, "TEMP B-TREE", text)
				require.NotRegexp(t, fullScan, step, text)
			}
		}
		require.Contains(t, plan(t, c, relational.RowOfVersion.SQLite)[0], "version=?")
		return nil
	}))
}

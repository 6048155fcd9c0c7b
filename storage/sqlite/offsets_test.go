package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/compat"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/id"
	"understudy/storage/internal/relational"
	"understudy/thread"
)

func insertThread(t *testing.T, s *Store, name id.Thread) {
	t.Helper()
	now := time.Now()
	row := &thread.Thread{ID: name, CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: []byte(`{}`), Config: []byte(`{}`), Status: thread.Idle}
	require.NoError(t, s.write(context.Background(), func(tx *Tx) error { return tx.InsertThread(row) }))
}

// copyThread copies a thread, and makes the row of the copy.
func copyThread(t *testing.T, s *Store, from, to id.Thread) {
	t.Helper()
	require.NoError(t, s.CopyThread(context.Background(), from, to, nil, func(tx thread.Tx, row *thread.Thread) error {
		row.ID = to
		return tx.InsertThread(row)
	}))
}

func TestChangedIsToldOfCommits(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []id.Thread
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: t.TempDir(), Synchronous: "normal", Changed: func(threads []id.Thread) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, threads...)
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	insertThread(t, s, "a")
	boom := errors.New("boom")
	require.ErrorIs(t, s.write(ctx, func(tx *Tx) error {
		return errors.Join(tx.AppendEvents("undone", []*eventstore.Event{event("x")}), boom)
	}), boom)
	require.NoError(t, s.write(ctx, func(tx *Tx) error {
		return errors.Join(tx.AppendEvents("a", []*eventstore.Event{event("x")}), tx.AppendEvents("a", []*eventstore.Event{event("y")}))
	}))
	copyThread(t, s, "a", "b")
	require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.DeleteThread("a") }))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []id.Thread{"a", "b", "a"}, told)
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx := context.Background()
	for _, name := range []id.Thread{"a", "c", "d"} {
		insertThread(t, s, name)
	}
	at := time.UnixMicro(7).UTC()
	require.NoError(t, s.PutOffsets(ctx, "f", []eventstore.Offset{{Thread: "a", Created: at, Seq: 3, Position: 9}, {Thread: "gone", Created: at, Seq: 1}}))
	require.NoError(t, s.PutOffsets(ctx, "other", []eventstore.Offset{{Thread: "b", Created: at, Seq: 3}}))
	o, created, err := s.Offset(ctx, "f", "a")
	require.NoError(t, err)
	require.Equal(t, &eventstore.Offset{Thread: "a", Created: at, Seq: 3, Position: 9}, o)
	require.False(t, created.IsZero())
	o, created, err = s.Offset(ctx, "f", "c")
	require.NoError(t, err)
	require.Nil(t, o)
	require.False(t, created.IsZero())
	_, created, err = s.Offset(ctx, "f", "gone")
	require.NoError(t, err)
	require.True(t, created.IsZero())

	page := func(after id.Thread, limit int) []id.Thread {
		threads, err := s.Followed(ctx, "f", after, limit)
		require.NoError(t, err)
		return threads
	}
	require.Equal(t, []id.Thread{"a", "c"}, page("", 2))
	require.Equal(t, []id.Thread{"d", "gone"}, page("c", 2))
	require.Empty(t, page("gone", 2))
	require.NoError(t, s.PutOffsets(ctx, "f", []eventstore.Offset{{Thread: "gone"}}))
	require.Equal(t, []id.Thread{"d"}, page("c", 2))
	require.NoError(t, s.read(ctx, func(c *sqlite.Conn) error {
		for _, step := range plan(t, c, relational.Followed.SQLite) {
			require.NotContains(t, step, "TEMP B-TREE")
			require.NotRegexp(t, fullScan, step)
		}
		return nil
	}))
}

// Threads grow, go and come again while a mirror runs and is restarted: in the end files say what
// the log says.
func TestMirrorOfDatabase(t *testing.T) {
	t.Parallel()
	dir, files := t.TempDir(), t.TempDir()
	ctx := context.Background()
	names := []id.Thread{"t0", "t1", "t2", "t3"}
	for life := range 3 {
		changes := eventstore.NewChanges()
		s, err := Open(ctx, Options{Dir: dir, Synchronous: "normal", Changed: changes.Add})
		require.NoError(t, err)
		running, stop := context.WithCancel(ctx)
		ended := make(chan error)
		m := mirror.New(mirror.Options{Dir: files, Store: s, Changes: changes, Encode: compat.AppendEvent})
		go func() { ended <- m.Run(running) }()
		if life == 0 {
			for _, name := range names {
				insertThread(t, s, name)
			}
		}
		var wg sync.WaitGroup
		for _, name := range names {
			wg.Go(func() {
				for n := range 40 {
					if err := s.write(ctx, func(tx *Tx) error { return tx.AppendEvents(name, []*eventstore.Event{event(fmt.Sprint(n))}) }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if life == 1 {
			require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.DeleteThread("t0") }))
			insertThread(t, s, "t0")
			require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.AppendEvents("t0", []*eventstore.Event{event("again")}) }))
			require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.DeleteThread("t3") }))
			names = names[:3]
		}
		stop()
		require.NoError(t, <-ended)
		for _, name := range names {
			events, err := s.Events(ctx, name, 0, 0)
			require.NoError(t, err)
			var want strings.Builder
			for _, e := range events {
				want.Write(append(compat.AppendEvent(nil, e), '\n'))
			}
			got, err := os.ReadFile(filepath.Join(files, string(name)+".jsonl"))
			require.NoError(t, err)
			require.Equal(t, want.String(), string(got))
			require.NoError(t, os.WriteFile(filepath.Join(files, string(name)+".jsonl"), append(got, `{"seq":`...), 0o600))
		}
		found, err := filepath.Glob(filepath.Join(files, "*"))
		require.NoError(t, err)
		require.Len(t, found, len(names))
		require.NoError(t, s.Close())
	}
}

// Databases from before first_seq get it from the metadata of their events.
func TestMigrationFindsFirstEvents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), fileName)
	conn, err := connect(path, true, "normal")
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, migrate(ctx, conn, migrations()[:4], slog.New(slog.DiscardHandler)))
	for seq, metadata := range []string{`{}`, `{"step":1}`, `{"revises":2}`, ``, `{"revises":3}`, `{"revises":1}`, `{"revises":5}`} {
		var m any
		if metadata != "" {
			m = []byte(metadata)
		}
		require.NoError(t, exec(conn, "INSERT INTO events (thread_id, seq, type, category, body, metadata, created_at) VALUES ('t', ?, 'x', 'x', 0, ?, 0)", seq+1, m))
	}
	require.NoError(t, migrate(ctx, conn, migrations(), slog.New(slog.DiscardHandler)))
	var firsts []int
	require.NoError(t, query(conn, "SELECT first_seq FROM events ORDER BY seq", func(s *sqlite.Stmt) error {
		firsts = append(firsts, s.ColumnInt(0))
		return nil
	}))
	require.Equal(t, []int{0, 0, 2, 0, 2, 1, 2}, firsts)
}

package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/storage/internal/relational"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(removeTemplates)) }

func setup(t testing.TB) *Store {
	t.Helper()
	s, err := Open(context.Background(), Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func event(typ string) *eventstore.Event {
	return &eventstore.Event{Type: typ, Category: "message", Content: []byte(`{}`), CreatedAt: time.Now()}
}

// types are the events of a thread in order.
func types(t testing.TB, s *Store, thread id.Thread) []string {
	t.Helper()
	var out []string
	require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
		return query(c, "SELECT type FROM events WHERE thread_id = ? ORDER BY seq", func(st *sqlite.Stmt) error {
			out = append(out, st.ColumnText(0))
			return nil
		}, thread)
	}))
	return out
}

func TestOpenTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, err := Open(context.Background(), Options{Dir: dir})
	require.NoError(t, err)
	_, err = Open(context.Background(), Options{Dir: dir})
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "pid ")
	require.Equal(t, fault.Internal, fault.KindOf(err))

	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.write(context.Background(), func(*Tx) error { return nil }), errClosed)
	require.ErrorIs(t, s.read(context.Background(), func(*sqlite.Conn) error { return nil }), errClosed)
	s, err = Open(context.Background(), Options{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestOpenNewerDatabase(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(context.Background(), Options{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, s.write(context.Background(), func(tx *Tx) error {
		return tx.exec("INSERT INTO schema_migrations (number, name) VALUES (999, '0999_later')")
	}))
	require.NoError(t, s.Close())
	_, err = Open(context.Background(), Options{Dir: dir})
	require.ErrorContains(t, err, "newer version")
	require.ErrorContains(t, err, "0999_later")
}

func TestMigrateStopsAtTheBrokenStep(t *testing.T) {
	conn, err := connect(filepath.Join(t.TempDir(), "x.db"), true, "normal")
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	good := migration{1, "0001_good", "CREATE TABLE a (x);"}
	bad := migration{2, "0002_bad", "CREATE TABLE b (x); CREATE TABLE a (x);"}
	require.ErrorContains(t, migrate(context.Background(), conn, []migration{good, bad}, slog.New(slog.DiscardHandler)), "0002_bad")
	// The broken step leaves nothing, and the repaired one continues from there.
	bad.script = "CREATE TABLE b (x);"
	require.NoError(t, migrate(context.Background(), conn, []migration{good, bad}, slog.New(slog.DiscardHandler)))
	require.NoError(t, migrate(context.Background(), conn, []migration{good, bad}, slog.New(slog.DiscardHandler)))
}

func TestWriteGroups(t *testing.T) {
	s := setup(t)
	ctx := context.Background()
	boom := errors.New("boom")

	// The first write holds the writer until all others wait: they share its transaction.
	hold, held := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	errs := make([]error, 4)
	write := func(i int, fn func(tx *Tx) error) {
		wg.Go(func() { errs[i] = s.write(ctx, fn) })
	}
	var once sync.Once // what shares a transaction with a failure is run again
	write(0, func(tx *Tx) error {
		once.Do(func() { close(held) })
		<-hold
		return tx.AppendEvents("t", []*eventstore.Event{event("first")})
	})
	<-held
	write(1, func(tx *Tx) error {
		return errors.Join(tx.AppendEvents("t", []*eventstore.Event{event("failed")}), boom)
	})
	write(2, func(tx *Tx) error {
		if err := tx.AppendEvents("t", []*eventstore.Event{event("panicked")}); err != nil {
			return err
		}
		panic("ouch")
	})
	write(3, func(tx *Tx) error { return tx.AppendEvents("t", []*eventstore.Event{event("last")}) })
	waitFor(t, func() bool { return len(s.writer.queue) == 3 })
	cancelled, cancel := context.WithCancelCause(ctx)
	gone := make(chan error)
	go func() { gone <- s.write(cancelled, func(*Tx) error { panic("must not run") }) }()
	waitFor(t, func() bool { return len(s.writer.queue) == 4 })
	cancel(boom)
	require.ErrorIs(t, <-gone, boom) // at once, not when its turn comes
	close(hold)
	wg.Wait()

	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], boom)
	require.ErrorContains(t, errs[2], "ouch")
	require.NoError(t, errs[3])
	require.ElementsMatch(t, []string{"first", "last"}, types(t, s, "t"))
}

func TestWriteCancelledAfterItBegan(t *testing.T) {
	s := setup(t)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, s.write(ctx, func(tx *Tx) error {
		cancel()
		return tx.AppendEvents("t", []*eventstore.Event{event("kept")})
	}))
	require.Equal(t, []string{"kept"}, types(t, s, "t"))
	require.ErrorIs(t, s.write(ctx, func(*Tx) error { panic("must not run") }), context.Canceled)
	require.ErrorIs(t, s.read(ctx, func(*sqlite.Conn) error { panic("must not run") }), context.Canceled)
}

// A failing assertion inside a write ends the goroutine that runs it. The test must fail, not
// hang, and the store must live.
func TestWriteThatEndsItsGoroutine(t *testing.T) {
	s := setup(t)
	require.ErrorContains(t, s.write(context.Background(), func(tx *Tx) error {
		require.NoError(t, tx.AppendEvents("t", []*eventstore.Event{event("lost")}))
		runtime.Goexit()
		return nil
	}), "ended its goroutine")
	require.NoError(t, s.write(context.Background(), func(tx *Tx) error {
		return tx.AppendEvents("t", []*eventstore.Event{event("kept")})
	}))
	require.Equal(t, []string{"kept"}, types(t, s, "t"))
}

func TestReadInterrupted(t *testing.T) {
	s := setup(t)
	boom := errors.New("boom")
	for range 20 { // more often than there are connections: each must be usable again
		ctx, cancel := context.WithCancelCause(context.Background())
		err := s.snapshot(ctx, func(c *sqlite.Conn) error {
			n := 0
			return query(c, "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x % 10 = 0",
				func(*sqlite.Stmt) error {
					if n++; n == 3 {
						cancel(boom)
					}
					return nil
				})
		})
		require.ErrorIs(t, err, boom)
		require.Empty(t, types(t, s, "t"))
	}
}

func TestReadersDoNotWaitForTheWriter(t *testing.T) {
	s := setup(t)
	ctx := context.Background()
	require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.AppendEvents("t", []*eventstore.Event{event("old")}) }))
	require.NoError(t, s.snapshot(ctx, func(c *sqlite.Conn) error {
		count := func() (n int) {
			_, err := one(c, "SELECT count(*) FROM events", func(st *sqlite.Stmt) error { n = st.ColumnInt(0); return nil })
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 1, count())
		require.NoError(t, s.write(ctx, func(tx *Tx) error {
			if err := tx.AppendEvents("t", []*eventstore.Event{event("new")}); err != nil {
				return err
			}
			require.Equal(t, []string{"old"}, types(t, s, "t")) // not committed: not seen
			return nil
		}))
		require.Equal(t, 1, count()) // a snapshot stays what it was
		return nil
	}))
	require.Equal(t, []string{"old", "new"}, types(t, s, "t"))
}

// waitFor polls until ok, and fails the test after a while.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen within ten seconds")
		}
	}
}

// Descriptions stood in a table of their own once. Checkpoints of other writers have none.
func TestMigrationOfDescriptions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn, err := connect(filepath.Join(t.TempDir(), fileName), true, "normal")
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, migrate(ctx, conn, migrations()[:6], slog.New(slog.DiscardHandler)))
	for _, text := range []string{
		"INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata) VALUES ('t', '', '1', x'7b7d', x'7b7d'), ('t', 'n', '1', x'7b7d', x'7b7d'), ('u', '', '1', x'7b7d', x'7b7d')",
		"INSERT INTO snapshots (thread_id, checkpoint_ns, checkpoint_id, run_id, shape, tasks) VALUES ('t', '', '1', 'r', 's', x'5b5d'), ('t', 'n', '1', '', 's2', NULL)",
	} {
		require.NoError(t, exec(conn, text))
	}
	require.NoError(t, migrate(ctx, conn, migrations(), slog.New(slog.DiscardHandler)))
	got := map[string][]string{}
	for _, k := range []checkpointer.Key{{Thread: "t", ID: "1"}, {Thread: "t", NS: "n", ID: "1"}, {Thread: "u", ID: "1"}} {
		row, err := relational.LoadRow(querier{conn}, k)
		require.NoError(t, err)
		got[string(k.Thread)+k.NS] = []string{string(row.Run), row.Shape, string(row.Tasks)}
	}
	require.Equal(t, map[string][]string{"t": {"r", "s", "[]"}, "tn": {"", "s2", ""}, "u": {"", "", ""}}, got)
}

func TestMigrationsAreNumbered(t *testing.T) {
	steps := migrations()
	require.NotEmpty(t, steps)
	for _, m := range steps {
		require.NotEmpty(t, strings.TrimSpace(m.script), m.name)
	}
}

package postgres

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/run/usage"
	"understudy/storage/storagetest"
	"understudy/store"
	"understudy/thread"
)

// schema1 is what a server of schema 1 wrote: threads with condensed messages, an interrupt and a copy, runs of which one is to come, an assistant of
// two versions, a cron and a store item.
//
//go:embed testdata/schema1.sql.gz
var schema1 []byte

func schema1Rows(t testing.TB) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(schema1))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// migrateTo brings a database to the last of some steps.
func migrateTo(t testing.TB, address string, steps []migration) {
	t.Helper()
	opts := Options{URL: address, Logger: slog.New(slog.DiscardHandler)}
	_, err := prepare(t.Context(), connect(t, address), steps, opts)
	require.NoError(t, err)
}

// TestMigrationFromEverySchema puts what was written by the first version into a database of each
// schema that there was, and opens it: all of it is there, and can be worked with.
func TestMigrationFromEverySchema(t *testing.T) {
	t.Parallel()
	rows, steps := schema1Rows(t), migrations()
	var mu sync.Mutex
	var want string
	for n := 1; n <= len(steps); n++ {
		t.Run(steps[n-1].name, func(t *testing.T) {
			t.Parallel()
			address := postgrestest.Database(t)
			migrateTo(t, address, steps[:n])
			execAll(t, connect(t, address), rows)
			s := open(t, Options{URL: address})
			got := readSchema1(t, s)
			mu.Lock()
			defer mu.Unlock()
			if want == "" {
				want = got
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("not what it is from another schema:\n%s", diff)
			}
		})
	}
}

// readSchema1 returns everything that clients see of the rows, checks known values, and continues
// to use them.
func readSchema1(t *testing.T, s *Store) string {
	var all []any
	ctx := t.Context()
	name := func(n int) id.Thread { return id.Thread(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }
	list, err := s.Threads().Threads(ctx, thread.Query{SortBy: "thread_id", Ascending: true})
	require.NoError(t, err)
	require.Len(t, list, 4)
	require.Equal(t, thread.Interrupted, list[1].Status)
	found, err := s.Threads().Threads(ctx, thread.Query{Metadata: []byte(`{"n":2}`)})
	require.NoError(t, err)
	require.Len(t, found, 1)
	for _, th := range list {
		head, err := s.LoadCheckpoint(ctx, checkpointer.Key{Thread: th.ID})
		require.NoError(t, err)
		log, err := s.Transfer().Log(ctx, th.ID)
		require.NoError(t, err)
		runs, err := s.Runs().Runs(ctx, th.ID, run.Query{})
		require.NoError(t, err)
		for e, err := range log.Events {
			require.NoError(t, err)
			all = append(all, e)
		}
		all = append(all, th, log.Rows, log.Nodes, runs)
		if head == nil {
			continue
		}
		for _, b := range head.Blobs {
			all = append(all, b.Channel, b.Version, b.Type, string(b.Bytes()))
		}
		all = append(all, string(head.Data), string(head.Metadata), head.Writes)
		tr, err := eventstore.TranscriptAt(ctx, s, th.ID, head.ID)
		require.NoError(t, err)
		all = append(all, tr)
	}
	first, err := s.Threads().Thread(ctx, name(1))
	require.NoError(t, err)
	tr, err := eventstore.TranscriptAt(ctx, s, name(1), first.Head)
	require.NoError(t, err)
	require.Greater(t, len(tr.Entries), len(tr.List), "messages were condensed")
	versions, err := s.Versions(ctx, id.Assistant(name(9)), nil, 0, 0)
	require.NoError(t, err)
	require.Len(t, versions, 2)
	item, err := s.Items().Item(ctx, []string{"users", "42"}, "likes")
	require.NoError(t, err)
	require.JSONEq(t, `{"food":["figs"]}`, string(item.Value))
	all = append(all, versions, item)

	// The scheduled run is claimed by the first server when it is due, and its thread continues.
	future := time.Now().AddDate(60, 0, 0)
	var claimed *run.Run
	require.NoError(t, s.write(ctx, func(tx *Tx) (err error) {
		claimed, err = tx.DueRun(future)
		return err
	}))
	require.NotNil(t, claimed)
	require.Equal(t, name(3), claimed.Thread)
	require.NotEmpty(t, claimed.Kwargs.Input)
	require.NoError(t, s.Items().Apply(ctx, []*store.Item{{Namespace: []string{"users", "42"}, Key: "more", Value: []byte("1"), CreatedAt: item.CreatedAt, UpdatedAt: item.UpdatedAt}}))
	require.NoError(t, s.Runs().Write(ctx, func(tx run.Tx) error { return tx.DeleteThread(name(1)) }))
	_, err = s.Threads().Thread(ctx, name(1))
	require.True(t, fault.Is(err, fault.NotFound))
	text, err := json.MarshalIndent(all, "", " ")
	require.NoError(t, err)
	return string(text)
}

// What an instance of schema 1 does for a run, as it was released: these statements are not edited.
var oldStatements = []string{
	"SELECT pg_advisory_xact_lock_shared(1970170995, 1)",
	"SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
	"INSERT INTO threads (thread_id, created_at, updated_at, state_updated_at, metadata, config, status, touched, head, interrupts, error, ttl, stream_high) " +
		"VALUES ($1, 1, 1, 1, '{}', '{}', 'idle', false, '', NULL, NULL, NULL, 0)",
	"SELECT thread_id, created_at, updated_at, state_updated_at, metadata, config, status, touched, head, interrupts, error, ttl, stream_high FROM threads WHERE thread_id = $1",
	"INSERT INTO thread_metadata (key, value, updated_at, thread_id) VALUES ('k', 'v', 1, $1)",
	"INSERT INTO runs (run_id, thread_id, assistant_id, graph_id, metadata, status, strategy, created_at, updated_at, started_at, ended_at, " +
		"attempt, failures, passed, owner, lease_until, cancel, error, on_completion, on_disconnect, cron_id, kwargs_digest) " +
		"VALUES ($1, $1, 'a', 'g', '{}', 'pending', 'enqueue', 1, 1, NULL, NULL, 0, 0, false, '', NULL, '', NULL, '', '', '', '')",
	"INSERT INTO run_kwargs (run_id, input, command, config, context, options) VALUES ($1, '{}', NULL, NULL, NULL, '{}')",
	`WITH head AS (
			SELECT run_id, created_at FROM runs WHERE thread_id = $1 AND status = 'pending'
				AND NOT EXISTS (SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'running')
			ORDER BY created_at, run_id LIMIT 1
		), gone AS (
			DELETE FROM run_heads WHERE thread_id = $1 AND NOT EXISTS (SELECT 1 FROM head)
		)
		INSERT INTO run_heads (thread_id, run_id, created_at) SELECT $1, run_id, created_at FROM head
		ON CONFLICT (thread_id) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at
			WHERE (run_heads.run_id, run_heads.created_at) IS DISTINCT FROM (excluded.run_id, excluded.created_at)`,
	"SELECT thread, run FROM claim_head(length($1::text)::bigint)",
	"UPDATE runs SET (status, attempt, owner, lease_until) = ROW ('running', attempt + 1, 'old', 9) WHERE run_id = $1",
	"INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint) VALUES ($1, '', '1', '{}')",
	"INSERT INTO snapshots (thread_id, checkpoint_ns, checkpoint_id, run_id, shape, tasks) VALUES ($1, '', '1', $1, '', NULL)",
	"INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) VALUES ($1, '', 'c', '1', 'msgpack', '\\xc0')",
	"INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path) VALUES ($1, '', '1', 't', 0, 'c', 'msgpack', '\\xc0', '')",
	"INSERT INTO event_bodies (body, refs, content) VALUES (nextval('event_bodies_number'), 1, convert_to($1, 'UTF8'))",
	"INSERT INTO events (thread_id, seq, run_id, type, category, message_id, digest, anonymous, body, metadata, created_at, first_seq) " +
		"VALUES ($1, 1, $1, 't', 'trace', '', NULL, false, currval('event_bodies_number'), '{}', 1, 0)",
	"INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, checkpoint_id) SELECT $1, ms, 1, $1, 1, 1, 'values', '{}', '' FROM generate_series(1, 3) AS ms",
	"INSERT INTO stream_runs (run_id, thread_id, first_ms, last_ms) VALUES ($1, $1, 1, 3)",
	"UPDATE runs SET (status, ended_at) = ROW ('success', 2) WHERE run_id = $1",
	"UPDATE threads SET (thread_id, created_at, updated_at, state_updated_at, metadata, config, status, touched, head, interrupts, error, ttl, stream_high) = " +
		"ROW ($1, 1, 2, 2, '{}', '{}', 'idle', true, '1', NULL, NULL, NULL, 0) WHERE thread_id = $1",
	"INSERT INTO store_items (namespace, key, value, created_at, updated_at, ttl, expires_at) VALUES ('n', $1, '{}', 1, 1, 0, NULL)",
	"SELECT seq, run_id, type, category, message_id, digest, anonymous, metadata, created_at, first_seq, content FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND seq > 0 ORDER BY seq",
	"SELECT pg_notify('understudy', $1)",
}

// oldRun does what an instance of schema 1 does, in one transaction as long as those are.
func oldRun(ctx context.Context, conn *pgx.Conn, name string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, text := range oldStatements {
			var args []any
			if strings.Contains(text, "$1") {
				args = append(args, name)
			}
			if _, err := tx.Exec(ctx, text, args...); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return nil
	})
}

// TestOldInstancesServeWhileANewOneMigrates: servers of the first schema write and read with
// prepared statements while a current one migrates, and afterwards. None of their statements
// fails, and the new one reads what they wrote before and after.
func TestOldInstancesServeWhileANewOneMigrates(t *testing.T) {
	t.Parallel()
	const instances, before, after = 3, 10, 20
	address := postgrestest.Database(t)
	migrateTo(t, address, migrations()[:1])
	var serving sync.WaitGroup
	ready := make(chan struct{}, instances)
	migrated := make(chan struct{})
	for i := range instances {
		conn := connect(t, address)
		serving.Go(func() {
			left := after
			for n := 0; left > 0; n++ {
				if n == before {
					ready <- struct{}{}
				}
				err := oldRun(context.WithoutCancel(t.Context()), conn, fmt.Sprintf("%d-%06d", i, n))
				for collided(err) { // as it always did
					err = oldRun(context.WithoutCancel(t.Context()), conn, fmt.Sprintf("%d-%06d", i, n))
				}
				if err != nil {
					t.Errorf("an old instance failed: %v", err)
					if n < before {
						ready <- struct{}{}
					}
					return
				}
				select {
				case <-migrated:
					left--
				default:
				}
			}
		})
	}
	for range instances {
		<-ready
	}
	s, err := Open(t.Context(), Options{URL: address, Connections: 4})
	close(migrated)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for n := range 20 {
		require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return tx.InsertThread(someThread(n)) }))
	}
	serving.Wait()
	list, err := s.Threads().Threads(t.Context(), thread.Query{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(list), 20+instances*(before+after))
	for _, th := range list {
		if !th.Touched {
			continue // of the new one
		}
		require.EqualValues(t, "1", th.Head)
		events, err := s.Events(t.Context(), th.ID, 0, 0)
		require.NoError(t, err)
		require.Len(t, events, 1)
		require.Equal(t, string(th.ID), string(events[0].Content))
		runs, err := s.Runs().Runs(t.Context(), th.ID, run.Query{})
		require.NoError(t, err)
		require.Equal(t, run.Success, runs[0].Status)
	}
}

// TestMigrationLetsOthersPass: while a transaction holds a table, a step that needs it waits
// briefly, lets later transactions pass, and tries again.
func TestMigrationLetsOthersPass(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	address := postgrestest.Database(t)
	migrateTo(t, address, migrations())
	steps := append(migrations(), migration{number: len(migrations()) + 1, name: "later", script: "ALTER TABLE threads ADD COLUMN later text"})
	s := open(t, Options{URL: address})
	long, err := connect(t, address).Begin(ctx)
	require.NoError(t, err)
	_, err = long.Exec(ctx, "SELECT count(*) FROM threads")
	require.NoError(t, err)
	log := &waits{seen: make(chan struct{}, 1000)}
	m := migrator{conn: connect(t, address), steps: steps, opts: Options{Logger: slog.New(log)}, times: stepTimes{lock: 20 * time.Millisecond, give: time.Hour}}
	done := make(chan error, 1)
	go func() { done <- m.run(ctx) }()
	<-log.seen // that it migrates
	for n := range 3 {
		<-log.seen
		// It would wait for ever if the step were in the queue before it.
		require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.InsertThread(someThread(n)) }))
	}
	require.NoError(t, long.Rollback(ctx))
	require.NoError(t, <-done)
	execAll(t, connect(t, address), "SELECT later FROM threads")

	// A migration that never gets the table says what it waited for.
	steps = append(steps, migration{number: len(steps) + 1, name: "never", script: "ALTER TABLE threads ADD COLUMN never text"})
	long, err = connect(t, address).Begin(ctx)
	require.NoError(t, err)
	_, err = long.Exec(ctx, "SELECT count(*) FROM threads")
	require.NoError(t, err)
	m = migrator{conn: connect(t, address), steps: steps, opts: Options{Logger: slog.New(slog.DiscardHandler)}, times: stepTimes{lock: time.Millisecond, give: time.Second}}
	err = m.run(ctx)
	require.ErrorContains(t, err, "not finished within 1s")
	require.NoError(t, long.Rollback(ctx))
}

// Servers that are started together on a new database make it without a word; who waits for long says so.
func TestMigrationOfANewDatabaseIsQuiet(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	address := postgrestest.Database(t)
	first, err := connect(t, address).Begin(ctx)
	require.NoError(t, err)
	_, err = first.Exec(ctx, tryMigrations) // as one that migrates
	require.NoError(t, err)
	said := &waits{seen: make(chan struct{}, 1000)}
	done := make(chan error, 2)
	start := func(quiet time.Duration, log slog.Handler) {
		m := migrator{conn: connect(t, address), steps: migrations(), opts: Options{Logger: slog.New(log)}, times: stepTimes{lock: time.Second, give: time.Hour, quiet: quiet}}
		go func() { done <- m.run(ctx) }()
	}
	silent := &waits{seen: make(chan struct{}, 1000)}
	start(time.Hour, silent)
	start(20*time.Millisecond, said)
	<-said.seen
	<-said.seen
	require.NoError(t, first.Rollback(ctx))
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	require.Empty(t, silent.seen)
}

// waits hears of each time that a migration waits.
type waits struct {
	slog.Handler
	seen chan struct{}
}

func (w *waits) Enabled(context.Context, slog.Level) bool { return true }
func (w *waits) Handle(context.Context, slog.Record) error {
	w.seen <- struct{}{}
	return nil
}

// TestIndexesAreMadeBesideOthers: an index is made without keeping writers away, by one of several
// instances; one whose making was interrupted is made anew.
func TestIndexesAreMadeBesideOthers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	address := postgrestest.Database(t)
	migrateTo(t, address, migrations())
	index := newMigration(len(migrations())+1, "index", "-- Why.\nCREATE UNIQUE INDEX CONCURRENTLY threads_other ON threads (created_at, head);\n")
	require.Equal(t, "threads_other", index.index)
	steps := append(migrations(), index)
	require.Panics(t, func() { newMigration(9, "two", "CREATE INDEX CONCURRENTLY a ON b (c); SELECT 1") })

	// A transaction writes meanwhile: the index waits for it, other writes do not wait for the index.
	s := open(t, Options{URL: address})
	writer, err := connect(t, address).Begin(ctx)
	require.NoError(t, err)
	_, err = writer.Exec(ctx, "INSERT INTO thread_metadata VALUES ('k', 'v', 1, 't'); UPDATE threads SET touched = true")
	require.NoError(t, err)
	const instances = 3
	done := make(chan error, instances)
	for range instances {
		m := migrator{connect(t, address), steps, Options{Logger: slog.New(slog.DiscardHandler)}, stepTimes{lock: time.Second, give: time.Hour}}
		go func() { done <- m.run(ctx) }()
	}
	admin := connect(t, address)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, admin.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%threads_other%' AND wait_event_type = 'Lock' AND datname = current_database()").Scan(&n))
		return n == 1
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.InsertThread(&thread.Thread{ID: "a", Head: "1", Status: thread.Idle}) }))
	require.NoError(t, writer.Commit(ctx))
	for range instances {
		require.NoError(t, <-done)
	}
	usable := func(name string) (usable bool) {
		require.NoError(t, admin.QueryRow(ctx, "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", name).Scan(&usable))
		return usable
	}
	require.True(t, usable("threads_other"))

	// Two rows that are alike: it cannot be made, and what is left of it is not taken for it.
	steps = append(steps, newMigration(len(steps)+1, "twins", "CREATE UNIQUE INDEX CONCURRENTLY threads_twins ON threads (status);"))
	require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.InsertThread(&thread.Thread{ID: "b", Head: "2", Status: thread.Idle}) }))
	m := migrator{connect(t, address), steps, Options{Logger: slog.New(slog.DiscardHandler)}, patience}
	var pg *pgconn.PgError
	err = m.run(ctx)
	require.True(t, errors.As(err, &pg) && pg.Code == "23505", err)
	require.False(t, usable("threads_twins"))
	execAll(t, admin, "UPDATE threads SET status = 'error' WHERE thread_id = 'b'")
	require.NoError(t, m.run(ctx))
	require.True(t, usable("threads_twins"))
}

// What runs used counts once, whatever the version before the follower had done with it, and while servers of it are there.
func TestUsageOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	b := backend(t, Options{URL: address})
	conn := connect(t, address)
	storagetest.UsageUpgrade(t, b, func(listed []usage.Ended) {
		execAll(t, conn, "DELETE FROM log_offsets")
		for _, e := range listed {
			sums, err := json.Marshal(e.Sums)
			require.NoError(t, err)
			execAll(t, conn, fmt.Sprintf("INSERT INTO usage_ended (identity, day, sums, run_id) VALUES ('%s', %d, convert_to('%s', 'UTF8'), '%s')", e.Identity, e.Day, sums, e.Run))
		}
		for _, m := range migrations() {
			if strings.Contains(m.name, "usage_follower") {
				execAll(t, conn, m.script)
			}
		}
	})
	var left int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM usage_ended").Scan(&left))
	require.Zero(t, left, "servers of the version before add what is listed")
}

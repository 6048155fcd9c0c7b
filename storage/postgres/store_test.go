package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/fleet"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

func connect(t testing.TB, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

func execAll(t testing.TB, conn *pgx.Conn, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, err := conn.Exec(context.Background(), text)
		require.NoError(t, err, text)
	}
}

func someThread(n int) *thread.Thread {
	return &thread.Thread{ID: id.Thread(fmt.Sprintf("t%06d", n)), Metadata: []byte(`{}`), Config: []byte(`{}`), Status: thread.Idle}
}

// killOthers ends all other sessions of the store's user on the database.
const killOthers = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

// A connection that dies under a transaction undoes it, and it is run again on another.
func TestBackendDiesInATransaction(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	s, admin := open(t, Options{URL: address}), connect(t, address)
	times := 0
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		times++
		if err := tx.InsertThread(someThread(times)); err != nil {
			return err
		}
		if times == 1 {
			if err := tx.send(); err != nil {
				return err
			}
			execAll(t, admin, killOthers)
		}
		_, err := tx.HasActiveRuns("other")
		return err
	}))
	require.Equal(t, 2, times)
	list, err := s.SearchThreads(t.Context(), thread.Query{})
	require.NoError(t, err)
	require.Len(t, list, 1, "what the first time wrote is undone")
	require.Equal(t, someThread(2).ID, list[0].ID)
}

// Whatever dies whenever: what was answered is there, once, and the log has no holes.
func TestBackendsDieUnderLoad(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	s, admin := open(t, Options{URL: address, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}), connect(t, address)
	const writers, each = 4, 60
	stop := make(chan struct{})
	var killer, wg sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(30 * time.Millisecond):
				if _, err := admin.Exec(context.Background(), killOthers); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var unknown atomic.Int64
	answered := make([]map[string]bool, writers)
	for w := range writers {
		answered[w] = map[string]bool{}
		wg.Go(func() {
			for n := range each {
				name := fmt.Sprint(w, "-", n)
				for {
					err := s.write(context.Background(), func(tx *Tx) error {
						return tx.AppendEvents("t", []*eventstore.Event{{Type: name, Category: "trace", Content: []byte(name)}})
					})
					if err == nil {
						answered[w][name] = true
						break
					}
					if !fault.Is(err, fault.Unavailable) {
						t.Errorf("a kind that nobody can act on: %v", err)
						return
					}
					if strings.Contains(err.Error(), "not known") {
						unknown.Add(1)
						break
					}
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	killer.Wait()
	var events []*eventstore.Event
	require.Eventually(t, func() (ok bool) { // the last shot may still hit
		var err error
		events, err = s.Events(context.Background(), "t", 0, 0)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	times := map[string]int{}
	for i, e := range events {
		require.EqualValues(t, i+1, e.Seq)
		times[e.Type]++
	}
	for _, of := range answered {
		for name := range of {
			require.Equal(t, 1, times[name], name)
		}
	}
	for name, n := range times {
		require.Equal(t, 1, n, name)
	}
	t.Logf("%d events, of %d it was not known", len(events), unknown.Load())
}

// A session that was paused holds its locks no longer than the database lets it.
func TestAPausedTransactionIsEnded(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t) + "&idle_in_transaction_session_timeout=200"
	s := open(t, Options{URL: address})
	held, free := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	times := 0
	go func() {
		first <- s.write(context.Background(), func(tx *Tx) error {
			times++
			if _, err := tx.HasActiveRuns("t"); err != nil {
				return err
			}
			if times == 1 {
				close(held)
				<-free
			}
			return tx.InsertThread(someThread(1))
		})
	}()
	<-held
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		_, err := tx.HasActiveRuns("t") // waits for the lock
		return err
	}))
	close(free)
	require.NoError(t, <-first, "it began anew")
	require.Equal(t, 2, times)
}

// One that was ended for being idle before its commit came did not happen: it is run again, too.
func TestAPauseBeforeTheCommit(t *testing.T) {
	t.Parallel()
	s := open(t, Options{URL: postgrestest.Database(t) + "&idle_in_transaction_session_timeout=200"})
	times := 0
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		times++
		if err := errors.Join(tx.InsertThread(someThread(1)), tx.send()); err != nil {
			return err
		}
		if times == 1 {
			time.Sleep(400 * time.Millisecond)
		}
		return nil
	}))
	require.Equal(t, 2, times)
	_, err := s.Thread(t.Context(), someThread(1).ID)
	require.NoError(t, err)
}

// Two transactions that wait for each other: one of them is run again.
func TestDeadlocksAreResolved(t *testing.T) {
	t.Parallel()
	s := open(t, Options{URL: postgrestest.Database(t) + "&deadlock_timeout=50ms"})
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		return errors.Join(tx.InsertThread(someThread(1)), tx.InsertThread(someThread(2)))
	}))
	var both sync.WaitGroup
	both.Add(2)
	var wg sync.WaitGroup
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		wg.Go(func() {
			met := false
			if err := s.write(context.Background(), func(tx *Tx) error {
				for i, n := range order {
					th, err := tx.Thread(someThread(n).ID)
					if err != nil {
						return err
					}
					if th.StreamHigh++; i == 0 && !met {
						met = true
						both.Done()
						both.Wait()
					}
					if err := tx.UpdateThread(th); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for n := 1; n <= 2; n++ {
		th, err := s.Thread(t.Context(), someThread(n).ID)
		require.NoError(t, err)
		require.EqualValues(t, 2, th.StreamHigh)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	address := postgrestest.Database(t)
	other, err := url.Parse(address)
	require.NoError(t, err)
	other.Path = "/missing"
	for name, tt := range map[string]struct{ address, want string }{
		"no address":  {"postgres://host:port/x", "write it as postgres://"},
		"nobody":      {"postgres://u:secret@127.0.0.1:1/x", "cannot be reached"},
		"no database": {other.String(), "does not exist"},
	} {
		_, err := Open(ctx, Options{URL: tt.address})
		require.ErrorContains(t, err, tt.want, name)
		require.NotContains(t, err.Error(), "secret", name)
	}
	_, err = Open(ctx, Options{URL: address, Layout: "other"})
	require.ErrorContains(t, err, "other")
	_, err = Open(ctx, Options{URL: address, Synchronous: "other"})
	require.ErrorContains(t, err, "other")

	s := open(t, Options{URL: address + "&statement_timeout=50"})
	err = s.read(ctx, func(q *reader) error { return q.query("SELECT pg_sleep(10)", nil) })
	require.True(t, fault.Is(err, fault.Unavailable), err)
	cancelled, cancel := context.WithCancelCause(ctx)
	time.AfterFunc(time.Millisecond, func() { cancel(errors.New("enough")) })
	err = s.read(cancelled, func(q *reader) error { return q.query("SELECT pg_sleep(0.04) FROM generate_series(1, 100)", nil) })
	require.ErrorContains(t, err, "enough")
	require.NoError(t, s.Ping(ctx))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Ping(ctx), errClosed)
	require.ErrorIs(t, s.write(ctx, func(*Tx) error { return nil }), errClosed)
	_, err = s.Thread(ctx, "t")
	require.ErrorIs(t, err, errClosed)
}

func TestPoolSettingsOfTheAddressWin(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int32{"postgres://h/d": 16, "postgres://h/d?pool_max_conns=3": 3} {
		config, err := configure(&Options{URL: address})
		require.NoError(t, err)
		require.Equal(t, want, config.MaxConns)
		require.Equal(t, "30000", config.ConnConfig.RuntimeParams["statement_timeout"])
	}
	config, err := configure(&Options{URL: "postgres://h/d?statement_timeout=5", Synchronous: "normal"})
	require.NoError(t, err)
	require.Equal(t, "5", config.ConnConfig.RuntimeParams["statement_timeout"])
	require.Equal(t, "off", config.ConnConfig.RuntimeParams["synchronous_commit"])
}

// Many instances that start at once bring the schema up once.
func TestInstancesStartAtOnce(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := Open(context.Background(), Options{URL: address, Connections: 2})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	reporting := open(t, Options{URL: address})
	at := time.UnixMicro(time.Now().UnixMicro())
	require.NoError(t, reporting.Beat(t.Context(), &fleet.Report{Server: "one", At: at, Body: []byte(`{"id":"one"}`)}, 1, at))
	in, err := Inspect(t.Context(), Options{URL: address}, encryption.Configured{})
	require.NoError(t, err)
	require.Equal(t, len(migrations()), in.Schema)
	require.Positive(t, in.Size)
	require.Less(t, in.Ahead.Abs(), time.Second, "it is the same clock")
	require.Equal(t, []fleet.Report{{Server: "one", At: at, Body: []byte(`{"id":"one"}`)}}, in.Servers)
	execAll(t, connect(t, address), "INSERT INTO understudy_migrations (number, name) VALUES (9999, 'later')")
	_, err = Open(t.Context(), Options{URL: address})
	require.ErrorContains(t, err, "newer version")
}

func TestDatabaseOfLangGraphServerIsRefused(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	execAll(t, connect(t, address), "CREATE TABLE assistant (); CREATE TABLE thread (); CREATE TABLE run ()")
	_, err := Open(t.Context(), Options{URL: address})
	require.ErrorContains(t, err, "understudy import")
	_, err = Inspect(t.Context(), Options{URL: address}, encryption.Configured{})
	require.ErrorContains(t, err, "LangGraph Server")
}

// What LangGraph's saver left stays as it is, is read, and what is added can be read by it.
func TestTablesOfLangGraphAreTakenAsTheyAre(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	conn := connect(t, address)
	execAll(t, conn, langgraphTables,
		`INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata) VALUES ('t', '', '1', '{"v": 4, "channel_versions": {"messages": "1"}}', '{"source": "loop"}')`,
		`INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) VALUES ('t', '', 'messages', '1', 'msgpack', '\x9101')`)
	columns := func() (list []string) {
		rows, err := conn.Query(t.Context(), "SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_name LIKE 'checkpoint%' ORDER BY 1")
		require.NoError(t, err)
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return list
	}
	before := columns()
	_, err := Open(t.Context(), Options{URL: address, Layout: layoutCompact})
	require.ErrorContains(t, err, "layout is langgraph")
	s := open(t, Options{URL: address})
	require.Equal(t, before, columns())
	old, err := s.LoadCheckpoint(t.Context(), checkpointer.Key{Thread: "t"})
	require.NoError(t, err)
	require.Equal(t, []byte{0x91, 1}, old.Blobs[0].Bytes())
	for n := 2; n < 20; n++ {
		require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return tx.PutCheckpoint(growing("t", n)) }))
	}
	var plain, all int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE type = 'msgpack'), count(*) FROM checkpoint_blobs").Scan(&plain, &all))
	require.Equal(t, 19, all)
	require.Equal(t, all, plain)
}

func TestTablesOfAnOldSaverAreRefused(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	execAll(t, connect(t, address), langgraphTables, "ALTER TABLE checkpoint_writes DROP COLUMN task_path")
	_, err := Open(t.Context(), Options{URL: address})
	require.ErrorContains(t, err, "setup()")
}

// Postgres has no NUL in text and in jsonb, and no half of a surrogate pair: they become U+FFFD
// everywhere.
func TestTextThatPostgresCannotHold(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := growing("a\x00b", 1)
	p.Data = []byte(`{"channel_versions": {"messages": "1"}, "x": "a\u0000b \ud800 \ud83d\ude00 \\u0000 \udc00\u0041"}`)
	p.Metadata = []byte(`{"k\u0000": 1}`)
	p.Blobs[0].Version = "1"
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		return errors.Join(tx.PutCheckpoint(p), tx.AppendEvents("a\x00b", []*eventstore.Event{{Type: "x\xff", MessageID: "\x00", Content: []byte("\x00")}}))
	}))
	got, err := s.LoadCheckpoint(t.Context(), checkpointer.Key{Thread: "a\x00b"})
	require.NoError(t, err)
	require.Contains(t, string(got.Data), `"a`+"\uFFFDb \uFFFD \U0001F600 "+`\\u0000 `+"\uFFFDA\"")
	require.JSONEq(t, `{"k\ufffd": 1}`, string(got.Metadata))
	require.Len(t, got.Blobs, 1)
	events, err := s.Events(t.Context(), "a\x00b", 0, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"x\uFFFD", "\uFFFD", "\x00"}, []string{events[0].Type, events[0].MessageID, string(events[0].Content)})
}

func FuzzJSONB(f *testing.F) {
	for _, text := range []string{`{"a":"\u0000"}`, `"\ud800\udc00\\u0000"`, `"\`, `"\u00`, "\x00\xff", `"\\\u0000"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out := string(rows.JSON([]byte(text)))
		require.NotContains(t, out, "\x00")
		require.Equal(t, out, string(rows.JSON([]byte(out))), "twice is once")
	})
}

// Signals reach all, also after their connection was lost.
func TestSignals(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	s, admin := open(t, Options{URL: address}), connect(t, address)
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan run.Signal, 100), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(sig run.Signal) { heard <- sig }) }()
	all := []run.Signal{{Thread: "t"}, {Run: "r"}, {Thread: "t", Run: "r", Ended: "an instance"}, {}}
	for range 2 {
		require.Equal(t, run.Signal{}, <-heard, "something may have been missed before")
		require.NoError(t, s.Send(t.Context(), all...))
		for _, want := range all {
			require.Equal(t, want, <-heard)
		}
		execAll(t, admin, killOthers)
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// Walks whose answers have other columns may follow each other on one connection.
func TestWalksOfSeveralShapes(t *testing.T) {
	t.Parallel()
	err := setup(t).snapshot(t.Context(), func(q *reader) error {
		for _, text := range []string{"SELECT 1::bigint, true, 2", "SELECT 1::bigint, 'a'::text", "SELECT 1::bigint, true, 2"} {
			sum := int64(0)
			if err := q.walk(16, text+" FROM generate_series(1, 100)", func(r *row) error { sum += r.Int(0); return nil }); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
			require.EqualValues(t, 100, sum, text)
		}
		return nil
	})
	require.NoError(t, err)
}

package thread_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/postgrestest"
	"understudy/run"
	pgstore "understudy/storage/postgres"
	"understudy/storage/postgres/migratedtest"
	litestore "understudy/storage/sqlite"
	"understudy/thread"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// rows is a storage, as both kinds are.
type rows interface {
	Threads() thread.Store
	Runs() run.Store
	Close() error
}

// open opens a folder, or the Postgres database that a URL names.
func open(t testing.TB, where string) rows {
	t.Helper()
	if strings.HasPrefix(where, "postgres") {
		s, err := pgstore.Open(context.Background(), pgstore.Options{URL: where})
		require.NoError(t, err)
		return s
	}
	s, err := litestore.Open(context.Background(), litestore.Options{Dir: where})
	require.NoError(t, err)
	return s
}

var base = time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)

// world is a service on a storage of its own, whose clock the test sets.
type world struct {
	*thread.Service
	rows    rows
	now     time.Time
	deleted []id.Thread
	log     bytes.Buffer
}

func setup(t *testing.T, r thread.Retention) *world {
	t.Helper()
	w := &world{rows: open(t, t.TempDir()), now: base}
	t.Cleanup(func() { require.NoError(t, w.rows.Close()) })
	w.Service = thread.NewService(thread.Options{
		Store: w.rows.Threads(), Retention: r, Now: func() time.Time { return w.now }, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Deleted: func(t *thread.Thread) { w.deleted = append(w.deleted, t.ID) },
	})
	return w
}

// thread makes a thread that is due after some minutes without use.
func (w *world) thread(t *testing.T, name string, strategy thread.Strategy, minutes int) id.Thread {
	t.Helper()
	after := time.Duration(minutes) * time.Minute
	v, err := w.Create(t.Context(), thread.New{ID: id.Thread(name), TTL: &thread.TTLRequest{Strategy: strategy, After: &after}})
	require.NoError(t, err)
	return v.ID
}

func (w *world) sweepAt(t *testing.T, minutes float64) []id.Thread {
	t.Helper()
	w.deleted = nil
	w.now = base.Add(time.Duration(minutes * float64(time.Minute)))
	require.NoError(t, w.SweepOnce(t.Context(), w.now.Add(time.Hour)))
	return w.deleted
}

// grow adds checkpoints to a thread, each with one more message, with all that hangs on them, from the one after first to last.
func grow(t testing.TB, r rows, to id.Thread, first, last int) {
	t.Helper()
	for n := first + 1; n <= last; n++ {
		data := msgp.AppendArrayHeader(nil, uint32(n))
		for i := range n {
			data = msgp.AppendMapHeader(data, 3)
			for _, field := range [][2]string{{"type", "human"}, {"content", fmt.Sprintf("%0300d", i)}, {"id", fmt.Sprint("m", i)}} {
				data = msgp.AppendString(msgp.AppendString(data, field[0]), field[1])
			}
		}
		p := &checkpointer.Put{
			Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: to, ID: id.Checkpoint(fmt.Sprintf("%04d", n))}, Run: "run",
				Data:     json.RawMessage(fmt.Sprintf(`{"channel_versions":{"messages":"%d"}}`, n)),
				Metadata: json.RawMessage(`{"source":"loop","step":1}`),
			},
			Blobs: []checkpointer.Blob{{Channel: "messages", Version: fmt.Sprint(n), Type: "msgpack", Data: data}},
		}
		if n > 1 {
			p.Parent = id.Checkpoint(fmt.Sprintf("%04d", n-1))
		}
		require.NoError(t, r.Runs().Write(context.Background(), func(tx run.Tx) error {
			if err := tx.PutCheckpoint(p); err != nil {
				return err
			}
			if err := eventstore.Record(tx, eventstore.FactsOf(p)); err != nil {
				return err
			}
			if err := tx.PutWrites(p.Key, []checkpointer.Write{{TaskID: "t", Channel: "messages", Type: "msgpack", Data: []byte("w")}}); err != nil {
				return err
			}
			return nil
		}))
		rec := &bridge.Record{Offset: bridge.Offset{MS: int64(n)}, Run: id.Run("run of " + to), Event: "values", Data: []byte("{}")}
		require.NoError(t, r.Runs().KeepRecords(context.Background(), map[id.Thread][]*bridge.Record{to: {rec}}))
	}
}

func checkpoints(t *testing.T, r rows, of id.Thread) int {
	t.Helper()
	list, err := r.Threads().ListCheckpoints(context.Background(), checkpointer.List{Thread: of})
	require.NoError(t, err)
	return len(list)
}

func events(t *testing.T, r rows, of id.Thread) int {
	t.Helper()
	reader, ok := r.Threads().(eventstore.Reader)
	require.True(t, ok)
	list, err := reader.Events(context.Background(), of, 0, 0)
	require.NoError(t, err)
	return len(list)
}

func TestThreadsGoWhenTheirTimeIsUp(t *testing.T) {
	t.Parallel()
	w := setup(t, thread.Retention{})
	first := w.thread(t, "first", thread.Delete, 10)
	used := w.thread(t, "used", thread.Delete, 20)
	longer := w.thread(t, "longer", thread.Delete, 20)
	_, err := w.Create(t.Context(), thread.New{ID: "forever"})
	require.NoError(t, err)
	grow(t, w.rows, first, 0, 3)

	require.Empty(t, w.sweepAt(t, 9))
	require.Equal(t, []id.Thread{first}, w.sweepAt(t, 10))
	require.Contains(t, w.log.String(), `msg="threads swept" deleted=1 pruned=0 checkpoints=0 deferred=0`)
	require.Zero(t, checkpoints(t, w.rows, first)+events(t, w.rows, first))

	w.now = base.Add(15 * time.Minute)
	_, err = w.Patch(t.Context(), used, thread.Patch{Metadata: json.RawMessage(`{"a":1}`)})
	require.NoError(t, err)
	month := 30 * 24 * time.Hour
	_, err = w.Patch(t.Context(), longer, thread.Patch{TTL: &thread.TTLRequest{Strategy: thread.Delete, After: &month}})
	require.NoError(t, err)
	require.Empty(t, w.sweepAt(t, 34))
	require.Equal(t, []id.Thread{used}, w.sweepAt(t, 35))
	v, err := w.Get(t.Context(), longer)
	require.NoError(t, err)
	at, _ := v.ExpiresAt()
	require.Equal(t, base.Add(15*time.Minute+month), at.UTC())
	require.Equal(t, []id.Thread{longer}, w.sweepAt(t, 99999))
	n, err := w.rows.Threads().CountThreads(t.Context(), thread.Query{})
	require.NoError(t, err)
	require.Equal(t, 1, n, "what never expires is there")
}

// A thread with a pending or a running run stays, whatever its ttl says, and goes when it is over.
func TestBusyThreadsStay(t *testing.T) {
	t.Parallel()
	for _, strategy := range []thread.Strategy{thread.Delete, thread.KeepLatest} {
		w := setup(t, thread.Retention{Every: 5 * time.Minute})
		busy := w.thread(t, "busy", strategy, 10)
		grow(t, w.rows, busy, 0, 3)
		r := &run.Run{ID: "r", Thread: busy, Assistant: "a", Graph: "g", Status: run.Pending, Strategy: run.Enqueue, CreatedAt: base, UpdatedAt: base}
		write := func(fn func(tx run.Tx) error) { require.NoError(t, w.rows.Runs().Write(t.Context(), fn)) }
		write(func(tx run.Tx) error { return tx.InsertRun(r) })
		for minutes, status := range map[float64]run.Status{10: run.Pending, 20: run.Running} {
			r.Status = status
			write(func(tx run.Tx) error { return tx.UpdateRun(r) })
			require.Empty(t, w.sweepAt(t, minutes))
			require.Equal(t, 3, checkpoints(t, w.rows, busy))
		}
		r.Status = run.Success
		write(func(tx run.Tx) error { return tx.UpdateRun(r) })
		w.sweepAt(t, 30)
		_, err := w.rows.Threads().Thread(t.Context(), busy)
		require.Equal(t, strategy == thread.Delete, fault.Is(err, fault.NotFound))
		require.Less(t, checkpoints(t, w.rows, busy), 3)
	}
}

// keep_latest leaves the thread, its newest checkpoint and the whole transcript; it does nothing more until a new run.
func TestKeepLatest(t *testing.T) {
	t.Parallel()
	w := setup(t, thread.Retention{})
	kept := w.thread(t, "kept", thread.KeepLatest, 10)
	grow(t, w.rows, kept, 0, 120) // more than a bite
	require.Empty(t, w.sweepAt(t, 10))
	require.Equal(t, 1, checkpoints(t, w.rows, kept))
	require.Equal(t, 120, events(t, w.rows, kept))
	require.Contains(t, w.log.String(), "pruned=1 checkpoints=119")
	head, err := w.rows.Threads().LoadCheckpoint(t.Context(), checkpointer.Key{Thread: kept})
	require.NoError(t, err)
	require.Contains(t, string(head.Blobs[0].AppendTo(nil)), fmt.Sprintf("%0300d", 119))

	w.log.Reset()
	w.sweepAt(t, 30)
	require.Empty(t, w.log.String())
	grow(t, w.rows, kept, 120, 122)
	_, err = w.Patch(t.Context(), kept, thread.Patch{})
	require.NoError(t, err)
	w.sweepAt(t, 39)
	require.Equal(t, 3, checkpoints(t, w.rows, kept))
	w.sweepAt(t, 40)
	require.Equal(t, 1, checkpoints(t, w.rows, kept))
}

// One thread that cannot be pruned holds up no other, nor the next sweep.
func TestOneThreadDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	w := setup(t, thread.Retention{Every: 5 * time.Minute})
	stuck, fine := w.thread(t, "stuck", thread.KeepLatest, 1), w.thread(t, "fine", thread.KeepLatest, 2)
	for _, to := range []id.Thread{stuck, fine} {
		grow(t, w.rows, to, 0, 2)
	}
	require.NoError(t, w.rows.Runs().Write(t.Context(), func(tx run.Tx) error {
		return tx.PutCheckpoint(&checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
			Key: checkpointer.Key{Thread: stuck, ID: "0009"}, Data: json.RawMessage(`{"channel_versions":{}}`), Metadata: json.RawMessage(`{"delta_writes_versioned":true}`),
		}})
	}))
	w.sweepAt(t, 10)
	require.Equal(t, 3, checkpoints(t, w.rows, stuck))
	require.Equal(t, 1, checkpoints(t, w.rows, fine))
	require.Contains(t, w.log.String(), "expired thread not removed; the next sweep retries")
	w.log.Reset()
	w.sweepAt(t, 14)
	require.Empty(t, w.log.String())
	w.sweepAt(t, 15)
	require.Contains(t, w.log.String(), "expired thread not removed; the next sweep retries")
}

func TestSweepsAreBounded(t *testing.T) {
	t.Parallel()
	w := setup(t, thread.Retention{Limit: 70})
	var all []id.Thread
	for n := range 100 {
		all = append(all, w.thread(t, fmt.Sprintf("t%03d", n), thread.Delete, 1))
	}
	require.Equal(t, all[:70], w.sweepAt(t, 2))
	require.Equal(t, all[70:], w.sweepAt(t, 3))

	w.thread(t, "last", thread.Delete, 1)
	w.now = base.Add(time.Hour)
	w.deleted = nil
	require.NoError(t, w.SweepOnce(t.Context(), w.now), "its time is over before it begins")
	require.Empty(t, w.deleted)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	configured := thread.Retention{Default: &thread.TTL{Strategy: thread.KeepLatest, After: hour}}
	minute := time.Minute
	for _, tt := range []struct {
		name      string
		retention thread.Retention
		asked     *thread.TTLRequest
		want      *thread.TTL
	}{
		{"nothing", thread.Retention{}, nil, nil},
		{"the default", configured, nil, &thread.TTL{Strategy: thread.KeepLatest, After: hour, Default: true}},
		{"asked for", configured, &thread.TTLRequest{Strategy: thread.Delete, After: &minute}, &thread.TTL{Strategy: thread.Delete, After: minute}},
		{"without a default", thread.Retention{}, &thread.TTLRequest{Strategy: thread.Delete, After: &minute}, &thread.TTL{Strategy: thread.Delete, After: minute}},
		{"a strategy alone takes the default's time", configured, &thread.TTLRequest{Strategy: thread.Delete}, &thread.TTL{Strategy: thread.Delete, After: hour}},
		{"and has none without", thread.Retention{}, &thread.TTLRequest{Strategy: thread.Delete}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, tt.retention)
			v, err := w.Create(t.Context(), thread.New{TTL: tt.asked})
			require.NoError(t, err)
			require.Equal(t, tt.want, v.TTL)
		})
	}

	// With a run, a default follows the configuration; a TTL requested by a client stays.
	th := thread.Thread{TTL: &thread.TTL{Strategy: thread.Delete, After: minute}}
	th.Renew(configured.Default)
	require.Equal(t, &thread.TTL{Strategy: thread.Delete, After: minute}, th.TTL)
	th.TTL = nil
	th.Renew(configured.Default)
	require.Equal(t, &thread.TTL{Strategy: thread.KeepLatest, After: hour, Default: true}, th.TTL)
	th.Renew(nil)
	require.Nil(t, th.TTL)
}

func TestPrune(t *testing.T) {
	t.Parallel()
	w := setup(t, thread.Retention{})
	for _, name := range []string{"a", "b", "busy"} {
		_, err := w.Create(t.Context(), thread.New{ID: id.Thread(name)})
		require.NoError(t, err)
		grow(t, w.rows, id.Thread(name), 0, 3)
	}
	require.NoError(t, w.rows.Runs().Write(t.Context(), func(tx run.Tx) error {
		return tx.InsertRun(&run.Run{ID: "r", Thread: "busy", Assistant: "a", Graph: "g", Status: run.Pending, Strategy: run.Enqueue, CreatedAt: base, UpdatedAt: base})
	}))
	prune := func(strategy thread.Strategy, ids ...id.Thread) int {
		pruned, err := w.Prune(t.Context(), ids, strategy, nil)
		require.NoError(t, err)
		return pruned.Count
	}
	require.Equal(t, 1, prune(thread.KeepLatest, "a", "none", "busy"))
	require.Equal(t, 1, checkpoints(t, w.rows, "a"))
	require.Equal(t, 3, events(t, w.rows, "a"))
	require.Equal(t, 3, checkpoints(t, w.rows, "busy"), "its run may start anywhere")
	require.Equal(t, 2, prune(thread.Delete, "a", "a", "busy", "none"))
	require.Equal(t, []id.Thread{"a", "busy"}, w.deleted)
	require.Equal(t, 3, checkpoints(t, w.rows, "b"))
}

const (
	sweepWhere = "UNDERSTUDY_TEST_SWEEP"
	crowd      = 8
	steps      = 25
)

// TestSweepChild is the process that TestSweepsSurviveKill kills.
func TestSweepChild(t *testing.T) {
	where := os.Getenv(sweepWhere)
	if where == "" {
		t.Skip("runs as the child of TestSweepsSurviveKill")
	}
	s := thread.NewService(thread.Options{
		Store: open(t, where).Threads(), Now: func() time.Time { return base.Add(time.Hour) },
		Deleted: func(t *thread.Thread) { fmt.Println("gone", t.ID) },
	})
	require.NoError(t, s.SweepOnce(t.Context(), base.Add(2*time.Hour)))
}

// Wherever a sweep is killed, a thread is there with everything or not at all, and the next one leaves nothing of those that went.
func TestSweepsSurviveKill(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return t.TempDir() },
		"postgres": func(t *testing.T) string { return migratedtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			where := where(t)
			r := open(t, where)
			minute := time.Minute
			s := thread.NewService(thread.Options{Store: r.Threads(), Now: func() time.Time { return base }})
			for n := range crowd {
				v, err := s.Create(t.Context(), thread.New{
					ID: id.Thread(fmt.Sprintf("thread%02d", n)), Metadata: json.RawMessage(`{"k":1}`), TTL: &thread.TTLRequest{Strategy: thread.Delete, After: &minute},
				})
				require.NoError(t, err)
				grow(t, r, v.ID, 0, steps)
			}
			gone := map[string]bool{}
			for round := range 3 {
				require.NoError(t, r.Close())
				cmd := osexec.Command(os.Args[0], "-test.run=^TestSweepChild$", "-test.v")
				cmd.Env = append(os.Environ(), sweepWhere+"="+where)
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				lines := bufio.NewScanner(out)
				for n := 0; n <= round && lines.Scan(); { // each a little later
					if t, ok := strings.CutPrefix(lines.Text(), "gone "); ok {
						gone[t] = true
						n++
					}
				}
				require.NoError(t, cmd.Process.Kill())
				for lines.Scan() {
					if t, ok := strings.CutPrefix(lines.Text(), "gone "); ok {
						gone[t] = true
					}
				}
				_ = cmd.Wait() // killed

				r = open(t, where)
				for n := range crowd {
					name := id.Thread(fmt.Sprintf("thread%02d", n))
					_, err := r.Threads().Thread(t.Context(), name)
					if fault.Is(err, fault.NotFound) {
						continue
					}
					require.NoError(t, err)
					require.False(t, gone[string(name)], "%s has come back", name)
					require.Equal(t, steps, checkpoints(t, r, name))
					require.Equal(t, steps, events(t, r, name))
				}
			}
			require.NotEmpty(t, gone)
			s = thread.NewService(thread.Options{Store: r.Threads(), Now: func() time.Time { return base.Add(time.Hour) }})
			require.NoError(t, s.SweepOnce(t.Context(), base.Add(2*time.Hour)))
			require.NoError(t, r.Close())
			for table, n := range rowsIn(t, where) {
				require.Zero(t, n, table)
			}
		})
	}
}

// slowest is a storage that notes how long its longest transaction took.
type slowest struct {
	thread.Store
	longest time.Duration
}

func (s *slowest) Write(ctx context.Context, fn func(thread.Tx) error) error {
	began := time.Now()
	err := s.Store.Write(ctx, fn)
	s.longest = max(s.longest, time.Since(began))
	return err
}

// BenchmarkSweep measures the cost of a sweep per thread, and the longest wait of other writers: deletion and pruning, of many small
// threads and of a long one.
func BenchmarkSweep(b *testing.B) {
	for name, where := range map[string]func() string{
		"sqlite": func() string { return b.TempDir() }, "postgres": func() string { return migratedtest.Database(b) },
	} {
		for _, strategy := range []thread.Strategy{thread.Delete, thread.KeepLatest} {
			for _, steps := range []int{3, 1000} {
				b.Run(fmt.Sprintf("%s/%s/checkpoints=%d", name, strategy, steps), func(b *testing.B) {
					r := open(b, where())
					defer func() { require.NoError(b, r.Close()) }()
					store := &slowest{Store: r.Threads()}
					s := thread.NewService(thread.Options{Store: store, Retention: thread.Retention{Limit: b.N}})
					for n := range b.N {
						var now time.Duration
						v, err := s.Create(b.Context(), thread.New{ID: id.Thread(fmt.Sprint(n)), TTL: &thread.TTLRequest{Strategy: strategy, After: &now}})
						require.NoError(b, err)
						grow(b, r, v.ID, 0, steps)
					}
					store.longest = 0
					b.ResetTimer()
					require.NoError(b, s.SweepOnce(b.Context(), time.Now().Add(time.Hour)))
					b.ReportMetric(float64(store.longest.Microseconds())/1000, "longest-ms")
				})
			}
		}
	}
}

// rowsIn counts the rows of all tables that hold something of threads.
func rowsIn(t *testing.T, where string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	if strings.HasPrefix(where, "postgres") {
		conn, err := pgx.Connect(t.Context(), where)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(context.Background())) }()
		found, err := conn.Query(t.Context(), "SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name IN ('thread_id', 'body', 'part')")
		require.NoError(t, err)
		tables, err := pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(t, err)
		for _, table := range tables {
			var n int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()).Scan(&n))
			counts[table] = n
		}
		require.Greater(t, len(counts), 15)
		return counts
	}
	conn, err := sqlite.OpenConn(filepath.Join(where, "understudy.db"), sqlite.OpenReadOnly)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	const tables = "SELECT DISTINCT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name IN ('thread_id', 'body', 'part')"
	var names []string
	require.NoError(t, sqlitex.ExecuteTransient(conn, tables, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		names = append(names, s.ColumnText(0))
		return nil
	}}))
	for _, table := range names {
		require.NoError(t, sqlitex.ExecuteTransient(conn, "SELECT count(*) FROM "+table, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			counts[table] = s.ColumnInt(0)
			return nil
		}}))
	}
	require.Greater(t, len(counts), 15)
	return counts
}

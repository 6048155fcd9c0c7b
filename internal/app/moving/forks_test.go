package moving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"
	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/internal/config"
	"understudy/storage/postgres"
	"understudy/storage/postgres/migratedtest"
	"understudy/storage/sqlite"
	"understudy/thread"
	"understudy/transfer"
)

// storage is a database with threads.
type storage interface {
	readmodel.Store
	readmodel.Reader
	Threads() thread.Store
	Assistants() assistant.Store
	Close() error
}

// openAt opens the data folder or database of a configuration.
func openAt(t *testing.T, cfg *config.Config) storage {
	t.Helper()
	var s storage
	var err error
	if cfg.Storage.DatabaseURL != "" {
		s, err = postgres.Open(t.Context(), postgres.Options{URL: cfg.Storage.DatabaseURL})
	} else {
		s, err = sqlite.Open(t.Context(), sqlite.Options{Dir: cfg.Storage.Data, Synchronous: "normal"})
	}
	require.NoError(t, err)
	return s
}

// family is threads that are forks of each other, as they are read.
type family struct {
	t        *testing.T
	s        storage
	service  *thread.Service
	log      *thread.Log
	messages int
}

func newFamily(t *testing.T, s storage) *family {
	log, ok := s.Threads().(thread.LogStore)
	require.True(t, ok)
	return &family{
		t: t, s: s, log: thread.NewLog(log, nil),
		service: thread.NewService(thread.Options{Store: s.Threads(), Snapshots: checkpointer.NewSnapshots(s.Threads(), thread.Explainer{Store: s.Threads()})}),
	}
}

// talk continues a thread by so many steps, each of which saves one message more.
func (f *family) talk(name id.Thread, steps int) {
	f.t.Helper()
	for range steps {
		snap, err := f.service.State(f.t.Context(), checkpointer.Key{Thread: name}, false)
		require.NoError(f.t, err)
		known := gjson.GetBytes(snap.Values, "messages").Array()
		f.messages++
		list := msgp.AppendArrayHeader(nil, uint32(len(known)+1))
		add := func(m string) {
			list = msgp.AppendMapHeader(list, 3)
			for _, pair := range [][2]string{{"type", "human"}, {"id", m}, {"content", "said " + m}} {
				list = msgp.AppendString(msgp.AppendString(list, pair[0]), pair[1])
			}
		}
		for _, m := range known {
			add(m.Get("id").Str)
		}
		add(fmt.Sprintf("m%d", f.messages))
		version := fmt.Sprintf("%07d", f.messages)
		checkpoint := id.Checkpoint(fmt.Sprintf("1f0bd33e-8a23-6f9d-8001-%012d", f.messages))
		put := &checkpointer.Put{
			Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: name, ID: checkpoint}, Parent: snap.Key.ID, Run: "r",
				Data:     json.RawMessage(fmt.Sprintf(`{"v":4,"ts":"2026-01-01T00:00:00+00:00","id":%q,"channel_versions":{"messages":%q},"channel_values":{},"versions_seen":{}}`, checkpoint, version)),
				Metadata: json.RawMessage(`{"source":"loop","step":1,"run_id":"r","parents":{}}`),
			},
			Blobs: []checkpointer.Blob{{Channel: "messages", Version: version, Type: "msgpack", Data: list}},
		}
		require.NoError(f.t, f.s.Threads().Write(f.t.Context(), func(tx thread.Tx) error {
			return errors.Join(tx.PutCheckpoint(put), eventstore.Record(tx, eventstore.FactsOf(put)))
		}))
	}
}

func (f *family) fork(name id.Thread, seq eventstore.Seq) id.Thread {
	f.t.Helper()
	v, err := f.service.ForkAt(f.t.Context(), name, thread.Fork{Seq: seq})
	require.NoError(f.t, err)
	return v.ID
}

// member is what can be read of a thread.
type member struct {
	Log, Transcript, State []string
	Ancestors, Branches    []string
}

// read reads all threads.
func (f *family) read(names []id.Thread) map[id.Thread]member {
	f.t.Helper()
	ctx := f.t.Context()
	models := readmodel.Rebuilding{Store: f.s} // nothing follows the log here
	rebuilt, err := models.Run(ctx)
	require.NoError(f.t, err)
	require.Zero(f.t, rebuilt.Different)
	out := map[id.Thread]member{}
	for _, name := range names {
		var m member
		events, err := f.s.Events(ctx, name, 0, 0)
		require.NoError(f.t, err)
		for _, e := range events {
			m.Log = append(m.Log, fmt.Sprint(e.Seq, e.Run, e.Type, e.Category, e.MessageID, string(e.Content), string(e.Metadata), e.First, e.CreatedAt.UTC().Format(time.RFC3339Nano)))
		}
		page, err := f.log.Messages(ctx, eventstore.PageQuery{Thread: name, Limit: 1000})
		require.NoError(f.t, err)
		for {
			e, err := page.Next(ctx, 0)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(f.t, err)
			m.Transcript = append(m.Transcript, fmt.Sprint(e.Seq, e.MessageID, string(e.Content)))
		}
		m.State = f.state(name)
		lineage, err := (&readmodel.Service{Store: f.s}).Branches(ctx, name, "", 100)
		require.NoError(f.t, err)
		for _, r := range lineage.Ancestors {
			m.Ancestors = append(m.Ancestors, fmt.Sprint(r.Name, r.Ref, r.Checkpoint))
		}
		for _, r := range lineage.Forks {
			m.Branches = append(m.Branches, fmt.Sprint(r.Thread, r.Ref, r.Checkpoint))
		}
		out[name] = m
	}
	return out
}

func (f *family) state(name id.Thread) (list []string) {
	snap, err := f.service.State(f.t.Context(), checkpointer.Key{Thread: name}, false)
	require.NoError(f.t, err)
	for _, m := range gjson.GetBytes(snap.Values, "messages").Array() {
		list = append(list, m.Get("id").Str+" "+m.Get("content").Str)
	}
	return list
}

// make makes a thread with a fork, a fork of that one, a copy, and a fork whose source is deleted. All have continued.
func (f *family) make() []id.Thread {
	var roots []id.Thread
	for range 2 {
		v, err := f.service.Create(f.t.Context(), thread.New{NoValues: true})
		require.NoError(f.t, err)
		roots = append(roots, v.ID)
		f.talk(v.ID, 5)
	}
	fork := f.fork(roots[0], 3)
	f.talk(fork, 3)
	of := f.fork(fork, 6) // 4 is its lineage
	f.talk(of, 2)
	copied, err := f.service.Copy(f.t.Context(), roots[0])
	require.NoError(f.t, err)
	f.talk(copied.ID, 1)
	f.talk(roots[0], 2)
	orphan := f.fork(roots[1], 2)
	f.talk(orphan, 2)
	require.NoError(f.t, f.service.Delete(f.t.Context(), roots[1]))
	names := []id.Thread{roots[0], fork, of, copied.ID, orphan}
	was := f.read(names)
	require.Len(f.t, was[of].Ancestors, 2)
	require.Len(f.t, was[orphan].Ancestors, 1)
	require.Len(f.t, was[roots[0]].Branches, 2)
	require.Len(f.t, was[of].Transcript, 3+2+2)
	return names
}

// Forks move as they are: with their lineage, messages in order, and states from which they continue; also those whose source is gone.
func TestForksMove(t *testing.T) {
	t.Parallel()
	place := map[string]func(t *testing.T) *config.Config{
		"folder": func(t *testing.T) *config.Config { return &config.Config{Storage: config.Storage{Data: t.TempDir()}} },
		"database": func(t *testing.T) *config.Config {
			return &config.Config{Storage: config.Storage{DatabaseURL: migratedtest.Database(t)}}
		},
	}
	for _, way := range [][2]string{{"folder", "folder"}, {"folder", "database"}, {"database", "folder"}} {
		t.Run(way[0]+" to "+way[1], func(t *testing.T) {
			t.Parallel()
			from, to := place[way[0]](t), place[way[1]](t)
			source := openAt(t, from)
			names := newFamily(t, source).make()
			want := newFamily(t, source).read(names)
			require.NoError(t, source.Close())
			stored := bodies(t, from)
			where := from.Storage.Data
			if from.Storage.DatabaseURL != "" {
				where = from.Storage.DatabaseURL
			}
			for range 2 { // the second time there is nothing to do
				result, err := Import{From: where}.Run(t.Context(), to, nil)
				require.NoError(t, err)
				require.Empty(t, result.Problems)
			}
			require.Equal(t, stored, bodies(t, to), "contents of forks are stored once")
			// LangGraph's tables have no log: what is in them is the state of each thread.
			file := t.TempDir() + "/checkpoints.sqlite"
			_, err := Export{To: file}.Run(t.Context(), to)
			require.NoError(t, err)
			target := openAt(t, to)
			f := newFamily(t, target)
			require.Equal(t, want, f.read(names))
			// They continue, and can be forked, where they are now.
			f.messages = 100
			f.talk(names[2], 1)
			require.Len(t, f.read(names)[names[2]].Transcript, 8)
			again := f.fork(names[4], 2)
			require.Equal(t, want[names[4]].Transcript[:2], f.read([]id.Thread{again})[again].Transcript)
			require.NoError(t, target.Close())

			back := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
			_, err = Import{From: file}.Run(t.Context(), back, nil)
			require.NoError(t, err)
			target = openAt(t, back)
			defer func() { require.NoError(t, target.Close()) }()
			f = newFamily(t, target)
			for _, name := range names {
				require.Equal(t, want[name].State, f.state(name))
			}
		})
	}
}

// bodies counts the stored contents of events.
func bodies(t *testing.T, cfg *config.Config) (n int) {
	t.Helper()
	const count = "SELECT count(*) FROM event_bodies"
	if cfg.Storage.DatabaseURL != "" {
		conn, err := pgx.Connect(t.Context(), cfg.Storage.DatabaseURL)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(t.Context())) }()
		require.NoError(t, conn.QueryRow(t.Context(), count).Scan(&n))
		return n
	}
	conn, err := zombiezen.OpenConn(filepath.Join(cfg.Storage.Data, "understudy.db"), zombiezen.OpenReadOnly)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, sqlitex.ExecuteTransient(conn, count, &sqlitex.ExecOptions{ResultFunc: func(s *zombiezen.Stmt) error {
		n = s.ColumnInt(0)
		return nil
	}}))
	return n
}

// logs moves logs.
type logs interface {
	Log(ctx context.Context, t id.Thread) (*transfer.Log, error)
	PutLog(ctx context.Context, t id.Thread, l *transfer.Log) error
}

// In whichever order threads are moved, they share the contents that they shared before, and deleting one takes nothing from the others.
func TestMovedForksShareContents(t *testing.T) {
	t.Parallel()
	from := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
	source := openAt(t, from)
	names := newFamily(t, source).make()
	want := newFamily(t, source).read(names)
	stored := bodies(t, from)
	moved := map[id.Thread]*transfer.Log{}
	for _, name := range names {
		l, err := source.(logs).Log(t.Context(), name)
		require.NoError(t, err)
		moved[name] = l
	}
	defer func() { require.NoError(t, source.Close()) }()
	for name, make := range map[string]func() *config.Config{
		"folder": func() *config.Config { return &config.Config{Storage: config.Storage{Data: t.TempDir()}} }, "database": func() *config.Config {
			return &config.Config{Storage: config.Storage{DatabaseURL: migratedtest.Database(t)}}
		},
	} {
		for turn := range 2 * len(names) {
			order := slices.Concat(names[turn%len(names):], names[:turn%len(names)])
			if turn >= len(names) {
				slices.Reverse(order)
			}
			if name == "database" && turn%3 != 0 {
				continue
			}
			cfg := make()
			target := openAt(t, cfg)
			now := time.Now()
			for _, n := range order {
				require.NoError(t, target.(logs).PutLog(t.Context(), n, moved[n]))
				require.NoError(t, target.Threads().Write(t.Context(), func(tx thread.Tx) error {
					return tx.InsertThread(&thread.Thread{ID: n, CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`)})
				}))
			}
			require.Equal(t, stored, bodies(t, cfg), "%s, turn %d", name, turn)
			f := newFamily(t, target)
			require.NoError(t, target.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(order[0]) }))
			for _, n := range order[1:] {
				require.Equal(t, want[n].Log, f.read([]id.Thread{n})[n].Log)
			}
			for _, n := range order[1:] {
				require.NoError(t, target.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(n) }))
			}
			require.Zero(t, bodies(t, cfg))
			require.NoError(t, target.Close())
		}
	}
}

// logOf returns a log with so many events.
func logOf(events int, lineage ...eventstore.Lineage) *transfer.Log {
	return &transfer.Log{Lineages: lineage, Events: func(yield func(*eventstore.Event, error) bool) {
		for n := range events {
			if !yield(&eventstore.Event{Seq: eventstore.Seq(n + 1), Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, Content: fmt.Appendf(nil, `{"n":%d}`, n), Metadata: json.RawMessage(`{}`), CreatedAt: time.Now()}, nil) {
				return
			}
		}
	}}
}

// An import finds the relative that shares most among any number of forks that are gone.
func TestImportFindsTheNearestOfManyForks(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]*config.Config{"folder": {Storage: config.Storage{Data: t.TempDir()}}, "database": {Storage: config.Storage{DatabaseURL: migratedtest.Database(t)}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := openAt(t, cfg)
			defer func() { require.NoError(t, target.Close()) }()
			put := func(name id.Thread, l *transfer.Log) {
				t.Helper()
				require.NoError(t, target.(logs).PutLog(t.Context(), name, l))
			}
			// Each is a fork of a fork, which is gone, of one thread, which is gone: of that all have eight events, and three have all ten.
			for n := range 1100 {
				put(id.Thread(fmt.Sprintf("leaf-%04d", n)), logOf(8, eventstore.Lineage{Source: "gone", Seq: 8}, eventstore.Lineage{Source: id.Thread(fmt.Sprintf("fork-%04d", n)), Seq: 8}))
			}
			require.Equal(t, 8, bodies(t, cfg))
			for _, name := range []id.Thread{"x", "z", "y"} {
				put(name, logOf(10, eventstore.Lineage{Source: "gone", Seq: 10}))
			}
			require.Equal(t, 10, bodies(t, cfg))
		})
	}
}

// Forks without events have nothing to share: they do not look for relatives, and none that has events looks at them. An import of many grew with the square of their number.
func TestImportOfEmptyForks(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]*config.Config{"folder": {Storage: config.Storage{Data: t.TempDir()}}, "database": {Storage: config.Storage{DatabaseURL: migratedtest.Database(t)}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := openAt(t, cfg)
			defer func() { require.NoError(t, target.Close()) }()
			put := func(name string, n int, l *transfer.Log) time.Duration {
				began := time.Now()
				require.NoError(t, target.(logs).PutLog(t.Context(), id.Thread(fmt.Sprintf("%s-%04d", name, n)), l))
				return time.Since(began)
			}
			var empty, full [4]time.Duration
			for n := range 1200 {
				empty[n/300] += put("leaf", n, logOf(0, eventstore.Lineage{Source: "gone", Seq: 8}))
				if n%10 == 0 { // these share less with it than the empty ones would
					full[n/300] += put("full", n, logOf(2, eventstore.Lineage{Source: "gone", Seq: 1}))
				}
			}
			require.Less(t, empty[3], 3*empty[0]+2*time.Second, "%v; with a search for each, the last take seven times as long", empty)
			require.Less(t, full[3], 2*full[0]+300*time.Millisecond, "%v; when they look at the empty ones, the last take seven times as long", full)
		})
	}
}

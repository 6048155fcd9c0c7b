package langgraph_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonplus"
	"understudy/internal/postgrestest"
	"understudy/storage/langgraph"
	"understudy/storage/postgres"
	own "understudy/storage/sqlite"
	"understudy/store"
	"understudy/thread"
	"understudy/transfer"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// rows is this server's own storage.
type rows interface {
	Transfer() transfer.Target
	Assistants() assistant.Store
	Items() store.Backend
	Threads() thread.Store
	eventstore.Archive
	eventstore.Reader
	Close() error
}

// world is a data folder or a database.
type world struct {
	rows
	open func() transfer.Source // as an import or export opens it
}

// kinds are the worlds that there are.
var kinds = map[string]func(testing.TB) *world{"sqlite": folderWorld, "postgres": databaseWorld}

func newWorld(t testing.TB) *world { return folderWorld(t) }

func folderWorld(t testing.TB) *world {
	t.Helper()
	dir := t.TempDir()
	s, err := own.Open(t.Context(), own.Options{Dir: dir, Synchronous: "normal"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return &world{s, func() transfer.Source {
		f, err := own.OpenFolder(t.Context(), dir)
		require.NoError(t, err)
		return f
	}}
}

func databaseWorld(t testing.TB) *world {
	t.Helper()
	opts := postgres.Options{URL: postgrestest.Database(t), Connections: 3}
	s, err := postgres.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return &world{s, func() transfer.Source {
		d, err := postgres.OpenDatabase(t.Context(), opts)
		require.NoError(t, err)
		return d
	}}
}

// eachKind runs a test with each kind of world.
func eachKind(t *testing.T, test func(t *testing.T, newWorld func(testing.TB) *world)) {
	t.Parallel()
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make)
		})
	}
}

func (w *world) importer() *transfer.Importer {
	return &transfer.Importer{Target: w.Transfer(), Assistants: w.Assistants(), Items: w.Items(), Backfill: eventstore.NewBackfiller(w)}
}

func (w *world) source() transfer.Source {
	return transfer.NewStorage("here", w.Transfer(), w.Assistants())
}

func (w *world) export(t testing.TB, to transfer.Sink) *transfer.Result {
	t.Helper()
	x := transfer.Exporter{Source: w.source()}
	r, err := x.Run(t.Context(), to)
	require.NoError(t, err)
	return r
}

func message(t testing.TB, kind, text, ident string) []byte {
	t.Helper()
	out, err := jsonplus.AppendMessage(nil, fmt.Appendf(nil, `{"type":%q,"content":%q,"id":%q}`, kind, text, ident))
	require.NoError(t, err)
	return out
}

// conversation puts a thread of some steps with a fork, a nested namespace and pending writes.
func (w *world) conversation(t testing.TB, name id.Thread, steps int, rng *rand.Rand) {
	t.Helper()
	list := []byte{0xdc, 0, 0}
	count := 0
	parent := id.Checkpoint("")
	require.NoError(t, w.Threads().Write(t.Context(), func(tx thread.Tx) error {
		if err := tx.InsertThread(&thread.Thread{
			ID: name, CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(2, 0), StateUpdatedAt: time.Unix(2, 0),
			Metadata: []byte(`{"graph_id":"agent"}`), Config: []byte("{}"), Status: thread.Idle,
		}); err != nil {
			return err
		}
		for i := range steps {
			list = append(list, message(t, []string{"human", "ai"}[i%2], strings.Repeat("word ", 1+rng.IntN(50)), fmt.Sprintf("m%d", i))...)
			count++
			list[1], list[2] = byte(count>>8), byte(count)
			version := fmt.Sprintf("%032d.0.%d", i+1, rng.IntN(1000))
			p := &checkpointer.Put{}
			p.Thread, p.ID, p.Parent = name, id.Checkpoint(fmt.Sprintf("1f0%05d-0000-6000-8000-%012d", i, rng.IntN(1e9))), parent
			p.Data = fmt.Appendf(nil, `{"v":4,"ts":"2026-01-02T03:04:05+00:00","id":%q,"channel_values":{"n":%d,"x":1.0,"none":null},"channel_versions":{"messages":%q,"n":%q,"x":"1","none":"1","raw":"1"},"versions_seen":{}}`,
				p.ID, i, version, version)
			p.Metadata = fmt.Appendf(nil, `{"source":"loop","step":%d,"graph_id":"agent","thread_id":%q}`, i, name)
			p.Blobs = []checkpointer.Blob{
				{Channel: "messages", Version: version, Type: jsonplus.TypeMsgpack, Data: slices.Clone(list)},
				{Channel: "raw", Version: "1", Type: jsonplus.TypeBytes, Data: []byte{0, 1, 2}},
			}
			if err := tx.PutCheckpoint(p); err != nil {
				return err
			}
			if err := tx.PutWrites(p.Key, []checkpointer.Write{
				{TaskID: "t1", Index: 0, Channel: "messages", Type: jsonplus.TypeMsgpack, Data: message(t, "ai", "x", "w"), Path: "~__pregel_pull, model"},
				{TaskID: "t1", Index: -3, Channel: "__interrupt__", Type: jsonplus.TypeMsgpack, Data: []byte{0x90}},
				{TaskID: "t2", Index: 0, Channel: "none", Type: jsonplus.TypeNull},
			}); err != nil {
				return err
			}
			nested := *p
			nested.NS, nested.Parent, nested.Blobs = "model:1", "", nil
			nested.Data = fmt.Appendf(nil, `{"v":4,"id":%q,"channel_values":{"k":"%d"},"channel_versions":{"k":%q},"versions_seen":{}}`, p.ID, i, version)
			if err := tx.PutCheckpoint(&nested); err != nil {
				return err
			}
			if i != steps-2 { // the last two are siblings
				parent = p.ID
			}
		}
		return nil
	}))
}

type sink struct {
	name string
	open func(t *testing.T) (sink func() transfer.Sink, source func() transfer.Source)
}

var sinks = []sink{
	{"sqlite", func(t *testing.T) (func() transfer.Sink, func() transfer.Source) {
		path := filepath.Join(t.TempDir(), "checkpoints.sqlite")
		return func() transfer.Sink {
				s, err := langgraph.OpenSQLiteSink(context.WithoutCancel(t.Context()), path)
				require.NoError(t, err)
				return s
			}, func() transfer.Source {
				s, err := langgraph.OpenSQLite(context.WithoutCancel(t.Context()), path)
				require.NoError(t, err)
				return s
			}
	}},
	{"postgres", func(t *testing.T) (func() transfer.Sink, func() transfer.Source) {
		dsn := postgrestest.Database(t)
		return func() transfer.Sink {
				s, err := langgraph.OpenPostgresSink(t.Context(), dsn)
				require.NoError(t, err)
				return s
			}, func() transfer.Source {
				s, err := langgraph.OpenPostgres(t.Context(), dsn)
				require.NoError(t, err)
				return s
			}
	}},
}

// TestThereAndBack moves conversations out, in elsewhere, and out again: the last is what the
// first was.
func TestThereAndBack(t *testing.T) {
	eachKind(t, thereAndBack)
}

func thereAndBack(t *testing.T, newWorld func(testing.TB) *world) {
	for _, s := range sinks {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			a, b := newWorld(t), newWorld(t)
			for range 3 {
				a.conversation(t, id.Thread(uuid.NewString()), 20, rng)
			}
			now := time.Now().Truncate(time.Second)
			items := []*store.Item{
				{Namespace: []string{"users", "1"}, Key: "k", Value: []byte(`{"a":[1,2.5,"x"]}`), CreatedAt: now, UpdatedAt: now},
				{Namespace: []string{"users"}, Key: "soon", Value: []byte(`{}`), CreatedAt: now, UpdatedAt: now, TTL: time.Hour, ExpiresAt: now.Add(time.Hour)},
			}
			require.NoError(t, a.Items().Apply(t.Context(), items))
			sink, source := s.open(t)

			to := sink()
			first := a.export(t, to)
			require.Empty(t, first.Problems)
			assert.Equal(t, transfer.Count{New: 3}, first.Threads)
			assert.Equal(t, transfer.Count{New: 120}, first.Checkpoints)
			assert.Equal(t, transfer.Count{New: 2}, first.Items)
			second := a.export(t, to)
			require.Empty(t, second.Problems)
			assert.Equal(t, []transfer.Count{{Known: 3}, {Known: 120}, {Known: 2}}, []transfer.Count{second.Threads, second.Checkpoints, second.Items})
			assert.Equal(t, first.Digest, second.Digest)
			require.NoError(t, to.Close())

			for i, want := range []transfer.Count{{New: 3}, {Known: 3}} {
				from := source()
				r, err := b.importer().Run(t.Context(), from)
				require.NoError(t, err)
				require.Empty(t, r.Problems)
				assert.Equal(t, want, r.Threads, i)
				assert.Equal(t, first.Digest, r.Digest)
				require.NoError(t, from.Close())
			}
			got, err := b.Items().Item(t.Context(), []string{"users"}, "soon")
			require.NoError(t, err)
			assert.Equal(t, items[1].ExpiresAt.Unix(), got.ExpiresAt.Unix())
			assert.Equal(t, time.Hour, got.TTL)
			list, err := b.Threads().Threads(t.Context(), thread.Query{})
			require.NoError(t, err)
			for _, row := range list {
				log, err := b.Events(t.Context(), row.ID, 0, 0)
				require.NoError(t, err)
				assert.Len(t, log, 21, "every message was recorded, one of them for both siblings")
			}
			back, _ := s.open(t)
			to = back()
			again := b.export(t, to)
			require.Empty(t, again.Problems)
			assert.Equal(t, first.Digest, again.Digest)
			require.NoError(t, to.Close())
		})
	}
}

// TestFromOneStorageToTheOther moves everything that this program keeps from a data folder into a
// database and on into another folder, by the ways that an import opens them: nothing is lost, and
// logs and transcripts are the same.
func TestFromOneStorageToTheOther(t *testing.T) {
	t.Parallel()
	worlds := []*world{folderWorld(t), databaseWorld(t), folderWorld(t)}
	first := worlds[0]
	rng := rand.New(rand.NewPCG(11, 12))
	now := time.Now().UTC().Truncate(time.Second)
	names := []id.Thread{id.Thread(uuid.NewString()), id.Thread(uuid.NewString())}
	for _, name := range names {
		first.conversation(t, name, 20, rng)
		require.NoError(t, eventstore.NewBackfiller(first).Ensure(t.Context(), name, ""))
	}
	require.NoError(t, first.Assistants().Write(t.Context(), func(tx assistant.Tx) error {
		a := &assistant.Assistant{
			ID: id.NewAssistant(), GraphID: "agent", Name: "mine", Version: 1, CreatedAt: now, UpdatedAt: now,
			Config: []byte(`{"x":1}`), Context: []byte(`{}`), Metadata: []byte(`{}`),
		}
		if err := tx.InsertAssistant(a); err != nil {
			return err
		}
		later := *a
		later.Version, later.Name = 2, "mine too"
		return tx.PutAssistant(&later, true)
	}))
	var items []*store.Item
	for i := range 450 { // more than are read at once
		items = append(items, &store.Item{Namespace: []string{"n", fmt.Sprint(i % 7)}, Key: fmt.Sprint(i), Value: fmt.Appendf(nil, `{"i":%d,"nul":"a\u0000b"}`, i), CreatedAt: now, UpdatedAt: now})
	}
	require.NoError(t, first.Items().Apply(t.Context(), items))
	all := func(w *world) (out []any) {
		for _, name := range names {
			row, err := w.Threads().Thread(t.Context(), name)
			require.NoError(t, err)
			log, err := w.Transfer().Log(t.Context(), name)
			require.NoError(t, err)
			var events []*eventstore.Event
			for e, err := range log.Events {
				require.NoError(t, err)
				events = append(events, e)
			}
			require.Len(t, events, 21)
			row.Touched, row.Head, row.Interrupts = false, "", nil // made of the checkpoints
			out = append(out, row, events, log.Rows, log.Nodes)
		}
		list, err := w.Assistants().Assistants(t.Context(), assistant.Query{})
		require.NoError(t, err)
		versions, err := w.Assistants().Versions(t.Context(), list[0].ID, nil, 0, 0)
		require.NoError(t, err)
		require.Len(t, versions, 2)
		found, err := w.Transfer().ItemsAfter(t.Context(), nil, "", 1000, 1<<30)
		require.NoError(t, err)
		require.Len(t, found, len(items))
		return append(out, list, versions, found)
	}
	want := all(first)
	digest := ""
	for i, w := range worlds[1:] {
		for again := range 2 {
			from := worlds[i].open()
			r, err := w.importer().Run(t.Context(), from)
			require.NoError(t, err)
			require.NoError(t, from.Close())
			require.Empty(t, r.Problems)
			require.Equal(t, 2*(1-again), r.Threads.New)
			require.Equal(t, 80*(1-again), r.Checkpoints.New)
			require.Equal(t, len(items)*(1-again), r.Items.New)
			require.Equal(t, 1-again, r.Assistants.New)
			if digest == "" {
				digest = r.Digest
			}
			require.Equal(t, digest, r.Digest)
		}
		if diff := cmp.Diff(want, all(w)); diff != "" {
			t.Fatalf("world %d is not what the first was (-want +got):\n%s", i+1, diff)
		}
	}
}

// TestInPlace: a database of LangGraph's savers that a server was pointed at has threads without
// rows; they are named when the database is read as one of this program, and get theirs by an
// import of it into itself.
func TestInPlace(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	a := folderWorld(t)
	a.conversation(t, id.Thread(uuid.NewString()), 5, rand.New(rand.NewPCG(13, 14)))
	to, err := langgraph.OpenPostgresSink(t.Context(), dsn)
	require.NoError(t, err)
	first := a.export(t, to)
	require.Empty(t, first.Problems)
	require.NoError(t, to.Close())
	s, err := postgres.Open(t.Context(), postgres.Options{URL: dsn, Connections: 3})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	d, err := postgres.OpenDatabase(t.Context(), postgres.Options{URL: dsn})
	require.NoError(t, err)
	require.True(t, d.Plain())
	require.Len(t, d.Notes(), 1)
	require.Contains(t, d.Notes()[0], "1 threads")
	same, err := d.Is(t.Context(), strings.Replace(dsn, "127.0.0.1", "localhost", 1))
	require.NoError(t, err)
	require.True(t, same)
	same, err = d.Is(t.Context(), postgrestest.Database(t))
	require.NoError(t, err)
	require.False(t, same)
	require.NoError(t, d.Close())
	from, err := langgraph.OpenPostgres(t.Context(), dsn)
	require.NoError(t, err)
	b := &world{rows: s}
	r, err := b.importer().Run(t.Context(), from)
	require.NoError(t, err)
	require.NoError(t, from.Close())
	require.Empty(t, r.Problems)
	require.Equal(t, transfer.Count{Known: 10}, r.Checkpoints)
	require.Equal(t, transfer.Count{New: 1}, r.Threads)
	require.Equal(t, first.Digest, r.Digest)
	n, err := s.Threads().CountThreads(t.Context(), thread.Query{})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = langgraph.OpenPostgresSink(t.Context(), dsn)
	require.ErrorContains(t, err, "is a database of understudy itself")
	_, err = postgres.OpenDatabase(t.Context(), postgres.Options{URL: postgrestest.Database(t)})
	require.ErrorIs(t, err, postgres.ErrNotOurs)
}

// breaking is a source that ends in the middle.
type breaking struct {
	transfer.Source
	steps int
}

func (b *breaking) History(ctx context.Context, t *transfer.Thread) (transfer.History, error) {
	h, err := b.Source.History(ctx, t)
	return &breakingHistory{h, b}, err
}

type breakingHistory struct {
	transfer.History
	b *breaking
}

var errBroken = errors.New("it broke")

func (h *breakingHistory) Read(ctx context.Context, links []transfer.Link, fn func(*transfer.Step) error) error {
	return h.History.Read(ctx, links, func(p *transfer.Step) error {
		if h.b.steps--; h.b.steps < 0 {
			return errBroken
		}
		return fn(p)
	})
}

// TestGoesOnWhereItEnded breaks an import everywhere: what is missing comes with the next one, and
// nothing is there twice.
func TestGoesOnWhereItEnded(t *testing.T) {
	eachKind(t, goesOn)
}

func goesOn(t *testing.T, newWorld func(testing.TB) *world) {
	a, b := newWorld(t), newWorld(t)
	a.conversation(t, id.Thread(uuid.NewString()), 40, rand.New(rand.NewPCG(3, 4)))
	for steps := 7; steps < 80; steps += 31 {
		r, err := b.importer().Run(t.Context(), &breaking{a.source(), steps})
		require.NoError(t, err)
		require.Len(t, r.Problems, 1)
		require.ErrorIs(t, r.Problems[0].Err, errBroken)
		n, err := b.Threads().CountThreads(t.Context(), thread.Query{})
		require.NoError(t, err)
		require.Zero(t, n, "a thread that is not whole is not shown")
	}
	r, err := b.importer().Run(t.Context(), a.source())
	require.NoError(t, err)
	require.Empty(t, r.Problems)
	assert.Equal(t, 80, r.Checkpoints.New+r.Checkpoints.Known)
	assert.NotZero(t, r.Checkpoints.Known)
}

// TestWhatWentOn: a thread that grew in the source grows here; one that grew on both sides is
// named and left alone.
func TestWhatWentOn(t *testing.T) {
	eachKind(t, whatWentOn)
}

func whatWentOn(t *testing.T, newWorld func(testing.TB) *world) {
	a, b := newWorld(t), newWorld(t)
	name := id.Thread(uuid.NewString())
	a.conversation(t, name, 4, rand.New(rand.NewPCG(5, 6)))
	run := func() *transfer.Result {
		r, err := b.importer().Run(t.Context(), a.source())
		require.NoError(t, err)
		return r
	}
	require.Empty(t, run().Problems)
	add := func(w *world, ident id.Checkpoint) {
		require.NoError(t, w.Threads().Write(t.Context(), func(tx thread.Tx) error {
			p := &checkpointer.Put{}
			p.Thread, p.ID = name, ident
			p.Data, p.Metadata = []byte(`{"v":4,"channel_values":{},"channel_versions":{},"versions_seen":{}}`), []byte("{}")
			return tx.PutCheckpoint(p)
		}))
	}
	add(a, "2f000000-0000-6000-8000-000000000001")
	r := run()
	require.Empty(t, r.Problems)
	assert.Equal(t, transfer.Count{New: 1, Known: 8}, r.Checkpoints)
	row, err := b.Threads().Thread(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, id.Checkpoint("2f000000-0000-6000-8000-000000000001"), row.Head)

	add(b, "2f000000-0000-6000-8000-000000000002")
	require.Empty(t, run().Problems, "what came here later is no difference")
	add(a, "2f000000-0000-6000-8000-000000000003")
	r = run()
	require.Len(t, r.Problems, 1)
	assert.Contains(t, r.Problems[0].String(), "it continued in both places")
}

// TestDifferencesAreNamed: a checkpoint here that is not what the source has fails the import and
// names its thread.
func TestDifferencesAreNamed(t *testing.T) {
	eachKind(t, differences)
}

func differences(t *testing.T, newWorld func(testing.TB) *world) {
	a, b := newWorld(t), newWorld(t)
	name := id.Thread(uuid.NewString())
	a.conversation(t, name, 4, rand.New(rand.NewPCG(7, 8)))
	_, err := b.importer().Run(t.Context(), a.source())
	require.NoError(t, err)
	links, err := b.Transfer().Links(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, b.Threads().Write(t.Context(), func(tx thread.Tx) error {
		p := &checkpointer.Put{}
		p.Thread, p.ID = name, links[0].ID
		p.Data, p.Metadata = []byte(`{"v":4,"channel_values":{},"channel_versions":{},"versions_seen":{}}`), []byte("{}")
		return tx.PutCheckpoint(p)
	}))
	r, err := b.importer().Run(t.Context(), a.source())
	require.NoError(t, err)
	require.Len(t, r.Problems, 1)
	assert.Equal(t, "thread "+string(name), r.Problems[0].What)
	assert.Contains(t, r.Problems[0].String(), "checkpoint "+string(links[0].ID)+" differs")
}

func TestPostgresThatIsNotReadSaysWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, setup, want string }{
		{"empty", "", "has no tables of LangGraph"},
		{"a server's", "CREATE TABLE assistant (x int); CREATE TABLE thread (x int); CREATE TABLE run (x int); CREATE TABLE checkpoints (x int)", "understudy import --from http://"},
		{"newer", "CREATE TABLE checkpoint_migrations (v int); INSERT INTO checkpoint_migrations VALUES (10); CREATE TABLE checkpoints (thread_id text)", "newer version"},
		{"another's", "CREATE TABLE checkpoints (thread_id text, nothing_else int)", "has no column"},
		{"a newer store", "CREATE TABLE store_migrations (v int); INSERT INTO store_migrations VALUES (4); CREATE TABLE store (prefix text)", "newer version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.Database(t)
			conn, err := pgx.Connect(t.Context(), dsn)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), c.setup)
			require.NoError(t, err)
			require.NoError(t, conn.Close(t.Context()))
			_, err = langgraph.OpenPostgres(t.Context(), dsn)
			require.ErrorContains(t, err, c.want)
		})
	}
	dsn := postgrestest.Database(t)
	for _, c := range []struct{ name, dsn, want string }{
		{"no such database", strings.Replace(dsn, "?", "_none?", 1), "does not exist"},
		{"no such user", strings.Replace(dsn, "postgres@", "stranger@", 1), "rejects the user"},
		{"nobody there", "postgres://127.0.0.1:1/x", "cannot be reached"},
		{"not an address", "postgres://[", "cannot be parsed"},
	} {
		_, err := langgraph.OpenPostgres(t.Context(), c.dsn)
		assert.ErrorContains(t, err, c.want, c.name)
	}
}

func TestPostgresRights(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	to, err := langgraph.OpenPostgresSink(t.Context(), dsn)
	require.NoError(t, err)
	require.NoError(t, to.Prepare(t.Context()))
	require.NoError(t, to.Close())
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	role := "reader_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err = conn.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	_, err = langgraph.OpenPostgres(t.Context(), strings.Replace(dsn, "postgres@", role+"@", 1))
	assert.ErrorContains(t, err, "GRANT SELECT")
}

// TestTheSourceIsOnlyRead: reading leaves the file as it was, and puts nothing beside it.
func TestTheSourceIsOnlyRead(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t), newWorld(t)
	a.conversation(t, id.Thread(uuid.NewString()), 10, rand.New(rand.NewPCG(9, 9)))
	path := filepath.Join(t.TempDir(), "checkpoints.sqlite")
	to, err := langgraph.OpenSQLiteSink(t.Context(), path)
	require.NoError(t, err)
	a.export(t, to)
	require.NoError(t, to.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	from, err := langgraph.OpenSQLite(t.Context(), path)
	require.NoError(t, err)
	r, err := b.importer().Run(t.Context(), from)
	require.NoError(t, err)
	require.Empty(t, r.Problems)
	require.NoError(t, from.Close())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	files, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	assert.Equal(t, []string{path}, files)
}

func TestSQLiteThatIsNotReadSaysWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, script string) string {
		path := filepath.Join(dir, name)
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
		require.NoError(t, err)
		require.NoError(t, sqlitex.ExecuteScript(conn, script, nil))
		require.NoError(t, conn.Close())
		return path
	}
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("just some text, longer than a header"), 0o600))
	for _, c := range []struct{ name, path, want string }{
		{"nothing", filepath.Join(dir, "none"), "does not exist"},
		{"a folder", dir, "is a folder"},
		{"text", text, "is not an SQLite database"},
		{"another's", file("a", "CREATE TABLE x (y)"), "has no tables of langgraph-checkpoint-sqlite"},
		{"other columns", file("b", "CREATE TABLE checkpoints (thread_id); CREATE TABLE writes (thread_id)"), "has no column"},
		{"ours", file("c", "CREATE TABLE schema_migrations (number)"), "is a database of understudy itself"},
		{"newer", file("d", "CREATE TABLE store (prefix, key, value); CREATE TABLE store_migrations (v); INSERT INTO store_migrations VALUES (9)"), "newer version"},
	} {
		_, err := langgraph.OpenSQLite(t.Context(), c.path)
		assert.ErrorContains(t, err, c.want, c.name)
	}
	_, err := langgraph.OpenSQLiteSink(t.Context(), file("e", "CREATE TABLE schema_migrations (number)"))
	assert.ErrorContains(t, err, "is a database of understudy itself")
}

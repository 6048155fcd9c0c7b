package readmodel_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/access"
	"understudy/eventstore"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/seedtest"
	"understudy/storage/postgres"
	"understudy/storage/postgres/migratedtest"
	"understudy/storage/sqlite"
	"understudy/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type database interface {
	readmodel.Store
	readmodel.Reader
	Threads() thread.Store
	Close() error
}

// server is a database as one of its servers has it.
type server struct {
	database
	changes *eventstore.Changes
	threads *thread.Service
	models  *readmodel.Service
}

func open(t testing.TB, where string) *server {
	t.Helper()
	s := &server{changes: eventstore.NewChanges()}
	var err error
	if where != "" {
		s.database, err = postgres.Open(t.Context(), postgres.Options{URL: where, Changed: s.changes.Add})
	} else {
		s.database, err = sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Synchronous: "normal", Changed: s.changes.Add})
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	s.threads = thread.NewService(thread.Options{Store: s.Threads()})
	s.models = &readmodel.Service{Store: s.database}
	return s
}

func (s *server) loop(ctx context.Context) error {
	l := readmodel.NewLoop(s.database, s.changes, slog.New(slog.DiscardHandler))
	l.Gather = 0
	return l.Run(ctx)
}

var kinds = []eventstore.Event{
	{Type: eventstore.TypeRunStart, Category: eventstore.CategoryTrace},
	{Type: eventstore.TypeRunEnd, Category: eventstore.CategoryOutputs, Metadata: []byte(`{"status":"success"}`)},
	{Type: eventstore.TypeRunEnd, Category: eventstore.CategoryOutputs, Metadata: []byte(`{"status":"success","waiting":true}`)},
	{Type: eventstore.TypeRunEnd, Category: eventstore.CategoryOutputs, Metadata: []byte(`{"status":"interrupted"}`)},
	{Type: eventstore.TypeRunError, Category: eventstore.CategoryError, Metadata: []byte(`{}`)},
	{Type: eventstore.TypeRunRetry, Category: eventstore.CategoryTrace},
	{Type: eventstore.TypeSummarize, Category: eventstore.CategoryMiddleware, MessageID: "s"},
	{Type: eventstore.TypeRemoved, Category: eventstore.CategoryTrace},
	{Type: "of.another.program", Category: eventstore.CategoryTrace, Metadata: []byte(`not JSON`)},
	{Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, MessageID: "m0"},
	{Type: eventstore.TypeAI, Category: eventstore.CategoryMessage, MessageID: "m 1 é", Metadata: []byte(`{"checkpoint_id":"c1"}`)},
	{Type: eventstore.TypeTool, Category: eventstore.CategoryMessage, MessageID: "m2", Metadata: []byte(`{"checkpoint_id":"c2"}`)},
}

// world is what is done to threads at random, and what then is to be read.
type world struct {
	t       *testing.T
	random  *rand.Rand
	where   string // the database of all servers; "" for a folder, which has one
	servers []*server
	all     []id.Thread
	sources map[id.Thread]id.Thread // of forks, also when they are gone
	clock   time.Time
}

// newWorld returns a world with one server on a database of its own.
func newWorld(t *testing.T, engine string, seed uint64) *world {
	t.Helper()
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 3)), sources: map[id.Thread]id.Thread{}, clock: time.Now().Add(-time.Hour).Truncate(time.Microsecond)}
	if engine == "postgres" {
		w.where = migratedtest.Database(t)
	}
	w.addServer()
	return w
}

func (w *world) addServer() {
	w.t.Helper()
	w.servers = append(w.servers, open(w.t, w.where))
}

func (w *world) any() *server { return w.servers[w.random.IntN(len(w.servers))] }

func (w *world) write(fn func(tx thread.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.any().Threads().Write(w.t.Context(), fn))
}

func (w *world) create(name id.Thread) {
	w.clock = w.clock.Add(time.Second)
	row := &thread.Thread{
		ID: name, CreatedAt: w.clock, UpdatedAt: w.clock, StateUpdatedAt: w.clock, Config: []byte(`{}`), Status: thread.Idle,
		Metadata: fmt.Appendf(nil, `{"owner":"%d"}`, w.random.IntN(2)),
	}
	w.write(func(tx thread.Tx) error { return tx.InsertThread(row) })
	w.all = append(w.all, name)
}

// step does one thing.
func (w *world) step() {
	ctx := w.t.Context()
	if len(w.all) == 0 || w.random.IntN(12) == 0 {
		if name := id.NewThread(); len(w.all) < 12 {
			w.create(name)
		}
		return
	}
	i := w.random.IntN(len(w.all))
	name := w.all[i]
	last := eventstore.Seq(0)
	list, err := w.any().Events(ctx, name, 0, 0)
	require.NoError(w.t, err)
	if len(list) > 0 {
		last = list[len(list)-1].Seq
	}
	switch n := w.random.IntN(20); {
	case n == 0:
		require.NoError(w.t, w.any().threads.Delete(ctx, name))
		w.all = slices.Delete(w.all, i, i+1)
		if w.random.IntN(2) == 0 {
			w.create(name) // another thread with its id
			delete(w.sources, name)
		}
	case n < 4 && last > 0:
		fork, err := w.any().threads.ForkAt(ctx, name, thread.Fork{Seq: 1 + eventstore.Seq(w.random.IntN(int(last)))})
		if err != nil { // it was rolled back
			require.True(w.t, fault.Is(err, fault.Conflict) || fault.Is(err, fault.Unprocessable), "%v", err)
			return
		}
		w.all, w.sources[fork.ID] = append(w.all, fork.ID), name
	case n == 4:
		made, err := w.any().threads.Copy(ctx, name)
		require.NoError(w.t, err)
		w.all, w.sources[made.ID] = append(w.all, made.ID), name
	case n == 5:
		r := id.Run(fmt.Sprint("r", w.random.IntN(3)))
		w.write(func(tx thread.Tx) error {
			if err := tx.RollBackEvents(name, r); err != nil || w.random.IntN(2) == 0 { // as when it is deleted
				return err
			}
			return tx.AppendEvents(name, []*eventstore.Event{{Run: r, Type: eventstore.TypeRunRollback, Category: eventstore.CategoryTrace, Content: []byte(`{}`), CreatedAt: w.clock}})
		})
	default:
		var events []*eventstore.Event
		for range 1 + w.random.IntN(4) {
			e := kinds[w.random.IntN(len(kinds))]
			w.clock = w.clock.Add(time.Second)
			e.Content, e.CreatedAt, e.Run = []byte(`{}`), w.clock, id.Run(fmt.Sprint("r", w.random.IntN(3)))
			if e.Category == eventstore.CategoryMessage && w.random.IntN(3) == 0 {
				for _, was := range list {
					if was.MessageID == e.MessageID && was.First == 0 {
						e.First = was.Seq
					}
				}
			}
			events = append(events, &e)
		}
		w.write(func(tx thread.Tx) error { return tx.AppendEvents(name, events) })
	}
}

// check compares all that is read with whole logs.
func (w *world) check() {
	ctx, s := w.t.Context(), w.any()
	var timeline []string
	heads := []string{}
	for _, name := range w.all {
		list, err := s.Events(ctx, name, 0, 0)
		require.NoError(w.t, err)
		lineage, err := s.models.Branches(ctx, name, "", 100)
		require.NoError(w.t, err)
		ancestors, forks := []id.Thread{}, []id.Thread{}
		for at := name; ; {
			source, fork := w.sources[at]
			if !fork {
				break
			}
			ancestors = append([]id.Thread{source}, ancestors...)
			at = source
		}
		for child, source := range w.sources {
			if source == name && slices.Contains(w.all, child) {
				forks = append(forks, child)
			}
		}
		slices.Sort(forks)
		require.Equal(w.t, forks, threadsOf(lineage.Forks), "forks of %s", name)
		// Of a source that another thread has replaced the lineage of the fork still knows the old one.
		require.Subset(w.t, append(sourcesOf(lineage.Ancestors), ""), append(ancestors[max(0, len(ancestors)-1):], ""))
		for _, m := range []string{"m0", "m 1 é", "m2", "none"} {
			var want *eventstore.Event
			for _, e := range list {
				if e.Category == eventstore.CategoryMessage && e.MessageID == m && !rolledBack(e) {
					want = e
				}
			}
			got, err := s.models.Message(ctx, name, m)
			if want == nil {
				require.True(w.t, fault.Is(err, fault.NotFound), "%v", err)
				continue
			}
			require.NoError(w.t, err)
			require.Equal(w.t, []any{want.Seq, cmp.Or(want.First, want.Seq), want.Run, want.CreatedAt.UnixMicro()}, []any{got.Seq, got.First, got.Run, got.At}, m)
		}
		own := eventstore.Seq(0)
		for _, e := range list {
			if e.Type == eventstore.TypeFork {
				own = e.Seq
			}
		}
		for _, e := range list {
			if e.Seq >= own && e.Category != eventstore.CategoryMessage && e.Type != "of.another.program" {
				timeline = append(timeline, fmt.Sprintf("%016d %s %06d", e.CreatedAt.UnixMicro(), name, e.Seq))
			}
		}
		if n := len(list); n > 0 {
			heads = append(heads, fmt.Sprintf("%016d %s %06d", list[n-1].CreatedAt.UnixMicro(), name, n))
		}
	}
	for model, want := range map[string][]string{readmodel.Timeline: timeline, readmodel.Heads: heads} {
		slices.Sort(want)
		slices.Reverse(want)
		got := []string{}
		for before := (readmodel.Place{}); ; {
			page, next, err := s.models.Recent(ctx, model, before, 1+w.random.IntN(7))
			require.NoError(w.t, err)
			for _, r := range page {
				got = append(got, fmt.Sprintf("%016d %s %06d", r.At, r.Thread, r.Seq))
			}
			if before = next; next == (readmodel.Place{}) {
				break
			}
		}
		require.Equal(w.t, append([]string{}, want...), got, model)
	}
}

func rolledBack(e *eventstore.Event) bool {
	var m struct {
		RolledBack bool `json:"rolled_back"`
	}
	_ = json.Unmarshal(e.Metadata, &m)
	return m.RolledBack
}

func threadsOf(rows []readmodel.Row) []id.Thread {
	out := []id.Thread{}
	for _, r := range rows {
		out = append(out, r.Thread)
	}
	return out
}

func sourcesOf(rows []readmodel.Row) []id.Thread {
	out := []id.Thread{}
	for _, r := range rows {
		out = append(out, id.Thread(r.Name))
	}
	return out
}

// damage changes stored rows behind the back of the follower, and returns how many threads it has changed.
func (w *world) damage() int {
	ctx, n := w.t.Context(), 0
	for _, name := range w.all {
		p, err := w.any().Projection(ctx, readmodel.Follower, name, "")
		require.NoError(w.t, err)
		if len(p.Rows) == 0 || w.random.IntN(2) == 0 {
			continue
		}
		c := readmodel.Change{Thread: name, Was: p.Offset, Now: *p.Offset}
		row := p.Rows[w.random.IntN(len(p.Rows))]
		switch w.random.IntN(4) {
		case 0:
			c.Delete = []readmodel.Row{row}
		case 1:
			row.Ref++
			c.Put = []readmodel.Row{row}
		case 2:
			row.Seq += 1000
			c.Put = []readmodel.Row{row}
		case 3:
			c.Drop = true
		}
		refused, err := w.any().Project(ctx, readmodel.Follower, []readmodel.Change{c})
		require.NoError(w.t, err)
		require.Empty(w.t, refused)
		n++
	}
	return n
}

// Whatever happens to threads, on two servers at a time and with followers that end anywhere, the stored read models are those that the log gives; damaged ones are
// found, and are so again after they were made anew.
func TestReadModelsAreThoseOfTheLog(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		for seed := range seedtest.Seeds(6) {
			t.Run(fmt.Sprint(engine, seed), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, engine, seed)
				if engine == "postgres" {
					w.addServer()
				}
				for range 4 {
					ctx, stop := context.WithCancel(t.Context())
					var running sync.WaitGroup
					for _, s := range w.servers {
						running.Go(func() { _ = s.loop(ctx) })
					}
					for range 50 {
						w.step()
						if w.random.IntN(10) == 0 && len(w.all) > 0 { // a reader brings one up to date
							_, err := w.any().models.Branches(t.Context(), w.all[w.random.IntN(len(w.all))], "", 1)
							require.NoError(t, err)
						}
					}
					stop()
					running.Wait()
					require.Zero(t, w.rebuild(true).Different, "what followers stored is what the log gives")
				}
				require.Zero(t, w.rebuild(false).Different)
				require.Equal(t, 0, w.rebuild(true).Behind)
				w.check()
				broken := w.damage()
				require.Equal(t, broken, w.rebuild(true).Different)
				require.Equal(t, broken, w.rebuild(true).Different, "a check changes nothing")
				require.Equal(t, broken, w.rebuild(false).Different)
				require.Zero(t, w.rebuild(true).Different)
				w.check()
			})
		}
	}
}

func (w *world) rebuild(check bool) *readmodel.Rebuilt {
	w.t.Helper()
	told := 0
	r := readmodel.Rebuilding{Store: w.any(), Check: check, Differs: func(name id.Thread, extra, missing []readmodel.Row) {
		require.NotEmpty(w.t, append(extra, missing...), name)
		told++
	}}
	out, err := r.Run(w.t.Context())
	require.NoError(w.t, err)
	require.Equal(w.t, out.Different, told)
	return out
}

// A rebuild beside servers that write finds nothing, and ends.
func TestRebuildBesideServers(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, engine, 1)
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = w.servers[0].loop(ctx) })
			running.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					r := readmodel.Rebuilding{Store: w.servers[0], Check: i%2 == 0}
					if out, err := r.Run(ctx); ctx.Err() == nil && (err != nil || out.Different > 0) {
						t.Errorf("rebuild: %v %+v", err, out)
					}
				}
			})
			for range 200 {
				w.step()
			}
			stop()
			running.Wait()
			require.Zero(t, w.rebuild(true).Different)
		})
	}
}

// Threads that a caller does not reach are not in what it reads.
func TestReadModelsKeepToTheReach(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, engine, 5)
			for range 250 {
				w.step()
			}
			w.rebuild(false)
			filter, err := access.ParseFilter(json.RawMessage(`{"owner":"1"}`))
			require.NoError(t, err)
			s := w.servers[0]
			narrow := access.Narrow(t.Context(), access.Threads, filter)
			mine := map[id.Thread]bool{}
			for _, name := range w.all {
				v, err := s.threads.Get(t.Context(), name)
				require.NoError(t, err)
				mine[name] = filter.Match(v.Metadata)
			}
			for model := range map[string]bool{readmodel.Timeline: true, readmodel.Heads: true} {
				whole, _, err := s.models.Recent(t.Context(), model, readmodel.Place{}, 1000)
				require.NoError(t, err)
				whole = slices.DeleteFunc(whole, func(r readmodel.Row) bool { return !mine[r.Thread] })
				var got []readmodel.Row
				for before := (readmodel.Place{}); ; {
					page, next, err := s.models.Recent(narrow, model, before, 3)
					require.NoError(t, err)
					got = append(got, page...)
					if before = next; next == (readmodel.Place{}) {
						break
					}
				}
				require.Equal(t, whole, got)
				require.NotEmpty(t, got)
			}
			for name, my := range mine {
				all, err := s.models.Branches(t.Context(), name, "", 100)
				require.NoError(t, err)
				got, err := s.models.Branches(narrow, name, "", 100)
				_, found := s.models.Message(narrow, name, "m0")
				if !my {
					require.True(t, fault.Is(err, fault.NotFound), "%v", err)
					require.True(t, fault.Is(found, fault.NotFound), "%v", err)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, slices.DeleteFunc(threadsOf(all.Forks), func(c id.Thread) bool { return !mine[c] }), threadsOf(got.Forks))
			}
		})
	}
}

package follow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/eventstore"
	"understudy/eventstore/follow"
	"understudy/id"
	"understudy/internal/seedtest"
	"understudy/storage/postgres"
	"understudy/storage/postgres/migratedtest"
	"understudy/storage/sqlite"
	"understudy/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is what a test needs of a storage.
type database interface {
	follow.ObserverStore
	Threads() thread.Store
	Close() error
}

func open(t *testing.T, where string, changed func([]id.Thread)) database {
	t.Helper()
	var s database
	var err error
	if where != "" {
		s, err = postgres.Open(t.Context(), postgres.Options{URL: where, Changed: changed})
	} else {
		s, err = sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Synchronous: "normal", Changed: changed})
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// seen is what observers of one name got, on all servers.
type seen struct {
	mu     sync.Mutex
	random *rand.Rand
	fails  int // so often it fails
	order  map[string][]int64
	got    map[string]follow.Observation
	wake   chan struct{}
}

var errBoom = errors.New("boom")

func (s *seen) observe(_ context.Context, o follow.Observation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 && s.random.IntN(10) == 0 {
		if s.fails--; s.fails%2 == 0 {
			panic("boom")
		}
		return errBoom
	}
	if before, known := s.got[o.Key]; known {
		o.At = before.At // of a deleted thread
		if fmt.Sprint(before) != fmt.Sprint(o) {
			return fmt.Errorf("%v repeats %v", o, before)
		}
		return nil
	}
	s.got[o.Key] = o
	s.order[o.Thread] = append(s.order[o.Thread], o.Seq)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// await waits until something holds.
func (s *seen) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		ok := holds()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-s.wake:
		case <-limit:
			require.Fail(t, "not observed: "+what)
		}
	}
}

var rowKinds = []struct {
	event eventstore.Event
	kind  follow.Kind
}{
	{eventstore.Event{Type: eventstore.TypeRunStart, Category: eventstore.CategoryTrace}, follow.Started},
	{eventstore.Event{Type: eventstore.TypeRunEnd, Category: eventstore.CategoryOutputs, Metadata: []byte(`{"status":"success"}`)}, follow.Completed},
	{eventstore.Event{Type: eventstore.TypeRunEnd, Category: eventstore.CategoryOutputs, Metadata: []byte(`{"status":"success","waiting":true}`)}, follow.Interrupted},
	{eventstore.Event{Type: eventstore.TypeRunEnd, Category: eventstore.CategoryOutputs, Metadata: []byte(`{"status":"interrupted"}`)}, follow.Cancelled},
	{eventstore.Event{Type: eventstore.TypeRunError, Category: eventstore.CategoryError, Metadata: []byte(`{"status":"error"}`)}, follow.Failed},
	{eventstore.Event{Type: eventstore.TypeRunRollback, Category: eventstore.CategoryTrace}, follow.Cancelled},
	{eventstore.Event{Type: eventstore.TypeRunRetry, Category: eventstore.CategoryTrace}, ""},
	{eventstore.Event{Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage}, follow.Changed},
	{eventstore.Event{Type: eventstore.TypeAI, Category: eventstore.CategoryMessage}, follow.Changed},
}

// Threads grow, are copied and deleted, and come again, while observers fail, end and are started again, on one server or two. What they have seen in the end is
// what the logs say, in their order.
func TestObserversMissNothing(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		for seed := range seedtest.Seeds(8) {
			t.Run(fmt.Sprint(engine, seed), func(t *testing.T) {
				t.Parallel()
				where := ""
				if engine == "postgres" {
					where = migratedtest.Database(t)
				}
				observeAtRandom(t, where, rand.New(rand.NewPCG(seed, 7)))
			})
		}
	}
}

type expected struct {
	key  string
	kind follow.Kind
}

// server is a database as a server has it, with what changes there.
type server struct {
	database
	changes *eventstore.Changes
}

func observeAtRandom(t *testing.T, where string, random *rand.Rand) {
	servers := make([]*server, 1)
	if where != "" {
		servers = make([]*server, 2)
	}
	for i := range servers {
		changes := eventstore.NewChanges()
		servers[i] = &server{open(t, where, changes.Add), changes}
	}
	s := &seen{random: rand.New(rand.NewPCG(random.Uint64(), 1)), order: map[string][]int64{}, got: map[string]follow.Observation{}, wake: make(chan struct{}, 1)}
	created := map[id.Thread]time.Time{}
	var want []expected
	base := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	for life := range 3 {
		s.mu.Lock()
		s.fails = 2
		s.mu.Unlock()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, at := range servers {
			loop := follow.NewObserver("test", at, at.changes, s.observe, slog.New(slog.DiscardHandler))
			running.Go(func() { _ = loop.Run(ctx) })
		}
		for range 60 {
			at := servers[random.IntN(len(servers))]
			name := id.Thread(fmt.Sprintf("t%d", random.IntN(6)))
			if _, there := created[name]; !there {
				base = base.Add(time.Second)
				created[name] = base
				write(t, at, func(tx thread.Tx) error {
					return tx.InsertThread(&thread.Thread{ID: name, CreatedAt: base, UpdatedAt: base, StateUpdatedAt: base, Metadata: []byte(`{}`), Config: []byte(`{}`), Status: thread.Idle})
				})
				continue
			}
			key := fmt.Sprintf("%s@%d/", name, created[name].UnixMicro())
			if random.IntN(15) == 0 {
				saw := false
				s.mu.Lock()
				for k := range s.got {
					saw = saw || len(k) > len(key) && k[:len(key)] == key
				}
				s.mu.Unlock()
				if saw { // of one that it has never seen there is nothing to report
					want = slices.DeleteFunc(want, func(e expected) bool { return len(e.key) > len(key) && e.key[:len(key)] == key })
					want = append(want, expected{key + "deleted", follow.Deleted})
				}
				if !saw {
					continue
				}
				delete(created, name)
				write(t, at, func(tx thread.Tx) error { return tx.DeleteThread(name) })
				continue
			}
			k := rowKinds[random.IntN(len(rowKinds))]
			e := k.event
			e.Content, e.CreatedAt = []byte(`{}`), base
			write(t, at, func(tx thread.Tx) error { return tx.AppendEvents(name, []*eventstore.Event{&e}) })
			if k.kind != "" {
				want = append(want, expected{fmt.Sprint(key, e.Seq), k.kind})
			}
		}
		if life == 1 { // the rest is found later
			stop()
			running.Wait()
			continue
		}
		for i, e := range want {
			if e.kind == follow.Changed && i+1 < len(want) {
				continue // one for several
			}
			s.await(t, e.key+" "+string(e.kind), func() bool { return s.got[e.key].Kind == e.kind })
		}
		for name, at := range created { // of messages in a row the last one
			list, err := servers[0].Events(t.Context(), name, 0, 0)
			require.NoError(t, err)
			last := eventstore.Seq(0)
			for _, e := range list {
				if e.Category == eventstore.CategoryMessage {
					last = e.Seq
				}
			}
			key := fmt.Sprintf("%s@%d/%d", name, at.UnixMicro(), last)
			s.await(t, "the last message: "+key, func() bool { return last == 0 || s.got[key].Kind == follow.Changed })
		}
		stop()
		running.Wait()
	}
	for _, e := range want {
		if e.kind != follow.Changed {
			require.Equal(t, e.kind, s.got[e.key].Kind, e.key)
		}
	}
	if len(servers) == 1 {
		for name, seqs := range s.order {
			begin := 0
			for i, seq := range seqs {
				if seq == 0 {
					begin = i + 1
				} else if i > begin {
					require.Greater(t, seq, seqs[i-1], "order of %s: %v", name, seqs)
				}
			}
		}
	}
	require.NotEmpty(t, slices.Collect(maps.Keys(s.got)))
}

func write(t *testing.T, at *server, fn func(tx thread.Tx) error) {
	t.Helper()
	require.NoError(t, at.Threads().Write(t.Context(), fn))
}

// The events of a fork that are those of its source are not observed again.
func TestObserversSeeWhatIsOfAForkAlone(t *testing.T) {
	t.Parallel()
	changes := eventstore.NewChanges()
	at := &server{open(t, "", changes.Add), changes}
	s := &seen{random: rand.New(rand.NewPCG(1, 1)), order: map[string][]int64{}, got: map[string]follow.Observation{}, wake: make(chan struct{}, 1)}
	service := thread.NewService(thread.Options{Store: at.Threads()})
	v, err := service.Create(t.Context(), thread.New{NoValues: true})
	require.NoError(t, err)
	for range 3 {
		write(t, at, func(tx thread.Tx) error {
			return tx.AppendEvents(v.ID, []*eventstore.Event{{Type: eventstore.TypeRunStart, Category: eventstore.CategoryTrace, Content: []byte(`{}`), CreatedAt: time.Now()}})
		})
	}
	fork, err := service.ForkAt(t.Context(), v.ID, thread.Fork{Seq: 2})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = follow.NewObserver("test", at, changes, s.observe, slog.New(slog.DiscardHandler)).Run(ctx) })
	s.await(t, "both threads", func() bool { return len(s.order) == 2 && len(s.order[string(v.ID)]) == 3 })
	stop()
	running.Wait()
	require.Equal(t, []int64{3}, s.order[string(fork.ID)])
	require.Equal(t, []int64{1, 2, 3}, s.order[string(v.ID)])
}

// The log names an observer whose function fails, by an error or a panic, and says what to do; other errors of its follower are not those of its function.
func TestTheLogNamesAFailedObserver(t *testing.T) {
	t.Parallel()
	for _, fail := range []func() error{func() error { return errBoom }, func() error { panic("boom") }} {
		changes := eventstore.NewChanges()
		s := &server{open(t, "", changes.Add), changes}
		var log bytes.Buffer
		row := &thread.Thread{ID: id.NewThread(), CreatedAt: time.Now(), UpdatedAt: time.Now(), StateUpdatedAt: time.Now(), Metadata: []byte(`{}`), Config: []byte(`{}`), Status: thread.Idle}
		write(t, s, func(tx thread.Tx) error { return tx.InsertThread(row) })
		write(t, s, func(tx thread.Tx) error {
			return tx.AppendEvents(row.ID, []*eventstore.Event{{Type: eventstore.TypeRunStart, Category: eventstore.CategoryTrace, Content: []byte(`{}`), CreatedAt: time.Now()}})
		})
		ctx, cancel := context.WithCancel(t.Context())
		var calls int
		l := follow.NewObserver("billing", s, changes, func(context.Context, follow.Observation) error {
			if calls++; calls == 2 {
				cancel()
				return nil
			}
			return fail()
		}, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, l.Run(ctx))
		require.Contains(t, log.String(), `msg="the function of an observer failed; it gets the event again`)
		require.Contains(t, log.String(), "observer=billing fix=")
		require.Contains(t, log.String(), "boom")
		require.NotContains(t, log.String(), "follower")
	}
}

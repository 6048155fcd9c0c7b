package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/service"
	"understudy/storage/sqlite"
	"understudy/thread"
)

// server is what one instance has for threads and their runs.
type server struct {
	runs    *service.Service
	threads *thread.Service
	graphs  *graph.Registry
	rows    interface {
		Threads() thread.Store
		Runs() run.Store
		Assistants() assistant.Store
	}
}

// items is a graph that appends what it is given to a list, and a word of its own.
func items(t *testing.T) *graph.Registry {
	t.Helper()
	type State struct {
		Items []string `json:"items" graph:"items,reducer=append"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("node", func(_ context.Context, s State) (any, error) {
		return State{Items: []string{"after " + s.Items[len(s.Items)-1]}}, nil
	})
	g.AddSequence(pregel.START, "node", pregel.END)
	graphs := graph.NewRegistry()
	require.NoError(t, graphs.Add("items", "", g.MustCompile()))
	return graphs
}

// jobs is how many runs an instance executes at once.
const jobs = 4

// newServer lets an instance work on a storage.
func newServer(t *testing.T, s *server, b bridge.Bridge) *server {
	t.Helper()
	snapshots := checkpointer.NewSnapshots(s.rows.Threads(), thread.Explainer{Store: s.rows.Threads(), Graphs: s.graphs})
	s.threads = thread.NewService(thread.Options{Store: s.rows.Threads(), Graphs: s.graphs, Snapshots: snapshots})
	s.runs = service.New(service.Options{
		Store: s.rows.Runs(), Bridge: b, Graphs: s.graphs, Snapshots: snapshots, Jobs: jobs, Grace: 5 * time.Second, Wire: wire{},
	})
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, assistant.NewService(s.rows.Assistants(), s.graphs, nil).EnsureDefaults(ctx, nil))
	ended := make(chan error, 1)
	go func() { ended <- s.runs.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

// onServers runs a test on SQLite, also with two services at once, and on two instances that share Postgres.
func onServers(t *testing.T, test func(*testing.T, []*server)) {
	onServersOf(t, func(t *testing.T) (*graph.Registry, any) { return items(t), nil }, func(t *testing.T, all []*server, _ any) { test(t, all) })
}

// onServersOf is onServers with graphs of the test, and what it has made with them.
func onServersOf[G any](t *testing.T, graphsOf func(*testing.T) (*graph.Registry, G), test func(*testing.T, []*server, G)) {
	lite := func(n int) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Synchronous: "normal"})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, rows.Close()) })
			b := bridge.NewMemory(bridge.Options{})
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			var all []*server
			graphs, with := graphsOf(t)
			for range n {
				all = append(all, newServer(t, &server{graphs: graphs, rows: rows}, b))
			}
			test(t, all, with)
		}
	}
	t.Run("sqlite", lite(1))
	t.Run("sqlite, two services", lite(2))
	t.Run("postgres, two instances", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		graphs, with := graphsOf(t)
		test(t, []*server{newServer(t, &server{graphs: graphs, rows: c.open()}, c.bridge), newServer(t, &server{graphs: graphs, rows: c.open()}, c.bridge)}, with)
	})
}

func (s *server) thread(t *testing.T) id.Thread {
	t.Helper()
	v, err := s.threads.Create(t.Context(), thread.New{Metadata: json.RawMessage(`{"graph_id":"items"}`)})
	require.NoError(t, err)
	return v.ID
}

func adds(words ...string) (steps [][]graph.StateUpdate) {
	for _, w := range words {
		steps = append(steps, []graph.StateUpdate{{Values: fmt.Appendf(nil, `{"items":[%q]}`, w), AsNode: "node"}})
	}
	return steps
}

func itemsOf(t *testing.T, values json.RawMessage) []string {
	t.Helper()
	var v struct{ Items []string }
	if len(values) > 0 {
		require.NoError(t, json.Unmarshal(values, &v))
	}
	return v.Items
}

// Each of many updates at once is in the head afterwards, once, and builds on the one before.
func TestUpdatesAtOnce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, all []*server) {
		th := all[0].thread(t)
		const n = 40
		var wg sync.WaitGroup
		var want []string
		for i := range n {
			word := fmt.Sprintf("u%02d", i)
			want = append(want, word)
			wg.Go(func() {
				if _, err := all[i%len(all)].threads.UpdateState(t.Context(), thread.Place{Key: checkpointer.Key{Thread: th}}, adds(word)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		state, err := all[0].threads.State(t.Context(), checkpointer.Key{Thread: th}, false)
		require.NoError(t, err)
		got := itemsOf(t, state.Values)
		slices.Sort(got)
		require.Equal(t, want, got)
		history, err := all[0].threads.History(t.Context(), thread.HistoryQuery{Thread: th})
		require.NoError(t, err)
		require.Len(t, history, n)
	})
}

// clients records what was acknowledged about one thread while clients do all kinds of things to it at once.
type clients struct {
	t      *testing.T
	all    []*server
	thread id.Thread

	mu      sync.Mutex
	updates []acked
	runs    []*run.Run
	forked  map[id.Run]bool
	gone    map[id.Run]bool // deleted, or rolled back
	copies  []copied
	known   []id.Checkpoint // that were seen as heads: where forks start
}

// acked is an update of some steps whose last checkpoint the answer named.
type acked struct {
	at    id.Checkpoint
	words []string
	fork  id.Checkpoint // "": it built on the head
}

// copied is a copy of the thread, with what had been acknowledged before it was asked for.
type copied struct {
	thread id.Thread
	before []acked
}

func (k *clients) on(r *rand.Rand) *server { return k.all[r.IntN(len(k.all))] }

// act does one thing. Only conflicts may be answered, and only to updates.
func (k *clients) act(ctx context.Context, r *rand.Rand, name string) error {
	s := k.on(r)
	switch n := r.IntN(20); {
	case n < 12: // an update of one or several steps, some from a checkpoint that is named
		u := acked{words: []string{name + ".0", name + ".1", name + ".2"}[:1+r.IntN(3)]}
		k.mu.Lock()
		if n < 2 && len(k.known) > 0 {
			u.fork = k.known[r.IntN(len(k.known))]
		}
		k.mu.Unlock()
		key, err := s.threads.UpdateState(ctx, thread.Place{Key: checkpointer.Key{Thread: k.thread, ID: u.fork}}, adds(u.words...))
		if fault.Is(err, fault.Conflict) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("update %s: %w", name, err)
		}
		u.at = key.ID
		k.mu.Lock()
		defer k.mu.Unlock()
		k.updates = append(k.updates, u)
		k.known = append(k.known, key.ID)
	case n < 16: // a run, some from a checkpoint that is named; some are deleted when they have ended, some rolled back at once
		req := request("items")
		req.Input = fmt.Appendf(nil, `{"items":[%q]}`, name)
		k.mu.Lock()
		if n == 12 && len(k.known) > 0 {
			req.CheckpointID = k.known[r.IntN(len(k.known))]
		}
		k.mu.Unlock()
		made, err := s.runs.Create(ctx, k.thread, req)
		if err != nil {
			return fmt.Errorf("run %s: %w", name, err)
		}
		k.mu.Lock()
		k.runs = append(k.runs, made)
		k.forked[made.ID] = req.CheckpointID != ""
		k.mu.Unlock()
		switch r.IntN(4) {
		case 0:
			k.mu.Lock()
			k.gone[made.ID] = true
			k.mu.Unlock()
			if err := k.on(r).runs.Delete(ctx, k.thread, made.ID); err != nil {
				return fmt.Errorf("delete run %s: %w", name, err)
			}
		case 1:
			if err := k.await(ctx, s, made); err != nil {
				return err
			}
			k.mu.Lock()
			k.gone[made.ID] = true
			k.mu.Unlock()
			if err := k.on(r).runs.Delete(ctx, k.thread, made.ID); err != nil && !fault.Is(err, fault.Conflict) {
				return fmt.Errorf("delete run %s: %w", name, err)
			} else if err != nil {
				k.mu.Lock()
				k.gone[made.ID] = false
				k.mu.Unlock()
			}
		default:
			return k.await(ctx, s, made)
		}
	case n < 18:
		k.mu.Lock()
		before := slices.Clone(k.updates)
		k.mu.Unlock()
		v, err := s.threads.Copy(ctx, k.thread)
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.copies = append(k.copies, copied{v.ID, before})
	default:
		if _, err := s.threads.Patch(ctx, k.thread, thread.Patch{Metadata: fmt.Appendf(nil, `{"note":%q}`, name)}); err != nil {
			return fmt.Errorf("patch %s: %w", name, err)
		}
	}
	return nil
}

// await waits for the end of a run.
func (k *clients) await(ctx context.Context, s *server, r *run.Run) error {
	f, err := s.runs.Join(ctx, k.thread, r.ID)
	if err != nil {
		return fmt.Errorf("join run %s: %w", r.ID, err)
	}
	defer f.Close(false)
	_, err = f.Result(ctx)
	return err
}

// history returns the root checkpoints of a thread, oldest first.
func (k *clients) history(t id.Thread) []*checkpointer.Tuple {
	k.t.Helper()
	root := ""
	list, err := k.all[0].rows.Threads().ListCheckpoints(k.t.Context(), checkpointer.List{Thread: t, NS: &root})
	require.NoError(k.t, err)
	slices.Reverse(list)
	return list
}

func (k *clients) items(t id.Thread, c id.Checkpoint) []string {
	k.t.Helper()
	state, err := k.all[0].threads.State(k.t.Context(), checkpointer.Key{Thread: t, ID: c}, false)
	require.NoError(k.t, err)
	return itemsOf(k.t, state.Values)
}

// check compares every acknowledgement with what is stored.
func (k *clients) check() {
	t := k.t
	t.Helper()
	// A run that is deleted while it is executed goes when it has stopped, which may be after the answer.
	require.Eventually(t, func() bool {
		v, err := k.all[0].threads.Get(t.Context(), k.thread)
		return err != nil || v.Status != thread.Busy
	}, time.Minute, 10*time.Millisecond)
	list := k.history(k.thread)
	place := map[id.Checkpoint]int{}
	for i, c := range list {
		place[c.ID] = i
	}
	deleted := func(c id.Checkpoint) bool { _, there := place[c]; return c != "" && !there }
	// before is what a checkpoint that was made on the head has to have as its parent: the one that was made before it.
	before := func(i int) id.Checkpoint {
		if i == 0 {
			return ""
		}
		return list[i-1].ID
	}
	steps := 0
	for _, u := range k.updates {
		last, there := place[u.at]
		require.True(t, there, "update %v was acknowledged and is not in the history", u.words)
		first := last - len(u.words) + 1
		require.GreaterOrEqual(t, first, 0)
		steps += len(u.words)
		for i := last; i > first; i-- {
			require.Equal(t, list[i-1].ID, list[i].Parent, "the steps of an update are one after the other")
		}
		base := list[first].Parent
		switch {
		case u.fork != "":
			require.Equal(t, u.fork, base)
		case !deleted(base):
			require.Equal(t, before(first), base, "update %v does not build on the head that was left before it", u.words)
		}
		var had []string
		if base != "" && !deleted(base) {
			had = k.items(k.thread, base)
			require.Equal(t, append(had, u.words...), k.items(k.thread, u.at))
		}
	}
	writers := map[id.Run]int{}
	for i, c := range list {
		if c.Run == "" {
			continue
		}
		require.False(t, k.gone[c.Run], "checkpoint %s of a run that is gone", c.ID)
		if writers[c.Run]++; writers[c.Run] == 1 && !k.forked[c.Run] && !deleted(c.Parent) {
			require.Equal(t, before(i), c.Parent, "run %s does not build on the head that was left before it", c.Run)
		}
	}
	for _, r := range k.runs {
		if !k.gone[r.ID] {
			require.Equal(t, 3, writers[r.ID], "checkpoints of run %s", r.ID)
			steps += 3
		}
	}
	require.Len(t, list, steps, "and nothing else was written")

	v, err := k.all[0].threads.Get(t.Context(), k.thread)
	require.NoError(t, err)
	require.Equal(t, thread.Idle, v.Status)
	require.Equal(t, before(len(list)), v.Head)
	if len(list) > 0 {
		require.Equal(t, k.items(k.thread, v.Head), itemsOf(t, v.Values))
	}
	for _, c := range k.copies {
		copied := k.history(c.thread)
		there := map[id.Checkpoint]bool{}
		for _, one := range copied {
			there[one.ID] = true
		}
		for _, u := range c.before {
			require.True(t, there[u.at], "update %v was acknowledged before the thread was copied", u.words)
		}
		v, err := k.all[0].threads.Get(t.Context(), c.thread)
		require.NoError(t, err)
		if len(copied) > 0 {
			require.Equal(t, copied[len(copied)-1].ID, v.Head, "a copy shows its newest checkpoint")
		}
		for _, u := range k.updates {
			if there[u.at] {
				require.Equal(t, k.items(k.thread, u.at), k.items(c.thread, u.at))
			}
		}
	}
}

// Whatever clients do to a thread at once and in whatever order: each acknowledged write is there, builds on what was the head when it was made, and
// nothing else is.
func TestNoAcknowledgedWriteIsLost(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, all []*server) {
		rounds := 4
		if testing.Short() {
			rounds = 1
		}
		for range rounds {
			seed := rand.Uint64()
			k := &clients{t: t, all: all, thread: all[0].thread(t), forked: map[id.Run]bool{}, gone: map[id.Run]bool{}}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			var wg sync.WaitGroup
			for client := range 6 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(client)))
					for n := range 8 {
						if err := k.act(ctx, r, fmt.Sprintf("%d.%d", client, n)); err != nil {
							t.Errorf("seed %d: %v", seed, err)
							return
						}
					}
				})
			}
			wg.Wait()
			cancel()
			if t.Failed() {
				return
			}
			k.check()
			if t.Failed() {
				t.Log("seed", seed)
			}
		}
	})
}

// A revision sees every update that was acknowledged before it, and none comes between what it read and what it wrote: each counts the items that the head has.
func TestRevisionsLoseNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, all []*server) {
		th := all[0].thread(t)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var updates, revisions int
		for i := range 24 {
			s := all[i%len(all)]
			wg.Go(func() {
				if i%3 > 0 {
					_, err := s.threads.UpdateState(t.Context(), thread.Place{Key: checkpointer.Key{Thread: th}}, adds("u"))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					updates++
					return
				}
				_, err := s.threads.Revise(t.Context(), th, func(_ context.Context, values json.RawMessage) (*graph.StateUpdate, error) {
					return &graph.StateUpdate{Values: fmt.Appendf(nil, `{"items":["%d"]}`, len(itemsOf(t, values))), AsNode: "node"}, nil
				})
				if fault.Is(err, fault.Conflict) { // it gives up sooner than an update
					return
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				revisions++
			})
		}
		wg.Wait()
		head, err := all[0].threads.State(t.Context(), checkpointer.Key{Thread: th}, false)
		require.NoError(t, err)
		list := itemsOf(t, head.Values)
		require.Len(t, list, updates+revisions)
		require.Positive(t, revisions)
		for i, item := range list {
			if item != "u" {
				require.Equal(t, fmt.Sprint(i), item)
			}
		}

		at, err := all[0].threads.Revise(t.Context(), th, func(context.Context, json.RawMessage) (*graph.StateUpdate, error) { return nil, nil })
		require.NoError(t, err)
		require.Empty(t, at.ID, "nothing was written")
		after, err := all[0].threads.State(t.Context(), checkpointer.Key{Thread: th}, false)
		require.NoError(t, err)
		require.Equal(t, head.ID, after.ID)
	})
}

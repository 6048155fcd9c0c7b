package service_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
	"understudy/run"
	"understudy/thread"
)

// gates hold the nodes "one" and "two" of runs: each reports "<name of the run> <node>", and ends when the test opens that.
type gates struct {
	reached chan string
	mu      sync.Mutex
	gates   map[string]chan struct{}
}

func (g *gates) of(at string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates[at] == nil {
		g.gates[at] = make(chan struct{})
	}
	return g.gates[at]
}

func (g *gates) open(name string) {
	close(g.of(name + " one"))
	close(g.of(name + " two"))
}

func (g *gates) graphs(t *testing.T) *graph.Registry {
	t.Helper()
	type State struct {
		Name  string   `json:"name"`
		Items []string `json:"items" graph:"items,reducer=append"`
	}
	b := pregel.NewStateGraph[State]()
	for _, node := range []string{"one", "two"} {
		b.AddNode(node, func(ctx context.Context, s State) (any, error) {
			at := s.Name + " " + node
			g.reached <- at
			select {
			case <-g.of(at):
				return State{Items: []string{at}}, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
	}
	b.AddSequence(pregel.START, "one", "two", pregel.END)
	graphs := graph.NewRegistry()
	require.NoError(t, graphs.Add("held", "", b.MustCompile()))
	return graphs
}

// While a run waits for its turn, the state says that there is something to do next: a page that is loaded then opens a stream. A delayed run does not count before
// it is due, and the history has only what was saved.
func TestStateOfAThreadWhoseRunHasSavedNothing(t *testing.T) {
	t.Parallel()
	onServersOf(t, func(t *testing.T) (*graph.Registry, *gates) {
		g := &gates{reached: make(chan string, 100), gates: map[string]chan struct{}{}}
		return g.graphs(t), g
	}, func(t *testing.T, all []*server, g *gates) {
		startOn := func(s *server, to id.Thread, name string, after time.Duration) *run.Run {
			t.Helper()
			req := request("held")
			req.Input, req.After, req.Durability = fmt.Appendf(nil, `{"name":%q}`, name), after, "sync"
			r, err := s.runs.Create(t.Context(), to, req)
			require.NoError(t, err)
			return r
		}
		start := func(to id.Thread, name string) *run.Run { return startOn(all[0], to, name, 0) }
		// state is what every server says.
		state := func(of id.Thread) (next, items []string, by string) {
			t.Helper()
			for i, s := range all {
				snap, err := s.threads.State(t.Context(), checkpointer.Key{Thread: of}, i%2 == 1)
				require.NoError(t, err)
				if i > 0 {
					require.Equal(t, next, snap.Next)
				}
				next, items, by = snap.Next, itemsOf(t, snap.Values), gjson.GetBytes(snap.Metadata, "run_id").String()
			}
			return next, items, by
		}
		expect := func(of id.Thread, wantNext, wantItems []string, wantBy id.Run, why string) {
			t.Helper()
			next, items, by := state(of)
			require.Equal(t, [3]any{wantNext, wantItems, string(wantBy)}, [3]any{next, items, by}, why)
		}
		end := func(r *run.Run) {
			t.Helper()
			f, err := all[0].runs.Join(t.Context(), r.Thread, r.ID)
			require.NoError(t, err)
			defer f.Close(false)
			_, err = f.Result(t.Context())
			require.NoError(t, err)
		}
		reach := func(want string) {
			t.Helper()
			for got := range g.reached {
				if got == want {
					return
				}
			}
		}

		th, fresh, delayed := all[0].thread(t), all[0].thread(t), all[0].thread(t)
		first := start(th, "first")
		g.open("first")
		end(first)
		said := []string{"first one", "first two"}
		expect(th, []string{}, said, first.ID, "the run is over")

		n := jobs * len(all) // as many as all servers execute at once
		for i := range n {
			name := fmt.Sprint("busy ", i)
			startOn(all[i%len(all)], all[0].thread(t), name, 0)
			reach(name + " one")
		}
		second, third := start(th, "second"), start(th, "third")
		other := start(fresh, "other")
		startOn(all[0], delayed, "delayed", time.Hour)
		expect(th, []string{pregel.START}, said, first.ID, "its runs wait")
		expect(fresh, []string{pregel.START}, nil, "", "also without a checkpoint")
		expect(delayed, []string{}, nil, "", "nothing is due")
		history, err := all[0].threads.History(t.Context(), thread.HistoryQuery{Thread: th, Limit: 1})
		require.NoError(t, err)
		require.Empty(t, history[0].Next)
		record, err := all[0].threads.State(t.Context(), checkpointer.Key{Thread: th, ID: history[0].ID}, false)
		require.NoError(t, err)
		require.Empty(t, record.Next)

		for i := range n {
			g.open(fmt.Sprint("busy ", i))
		}
		reach("second one")
		expect(th, []string{"one"}, said, second.ID, "it has saved its input")
		g.open("other")
		end(other)
		expect(fresh, []string{}, []string{"other one", "other two"}, other.ID, "the run is over")
		g.open("second")
		end(second)
		said = append(said, "second one", "second two")
		reach("third one")
		expect(th, []string{"one"}, said, third.ID, "the next one has begun")
		g.open("third")
		end(third)
		expect(th, []string{}, append(said, "third one", "third two"), third.ID, "the run is over")
	})
}

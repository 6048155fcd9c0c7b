package understudy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy"
	"understudy/graph/pregel"
)

// An observer sees how runs begin and end, once, also what happened while it was not there, and runs do not wait for it.
func TestObserve(t *testing.T) {
	t.Parallel()
	type State struct {
		Name string `json:"name"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("ask", func(ctx context.Context, s State) (any, error) {
		if s.Name == "fail" {
			return nil, errors.New("it failed")
		}
		name, err := pregel.Interrupt[string](ctx, "Who are you?")
		return State{Name: name}, err
	})
	g.AddEdge(pregel.START, "ask")
	graph := g.MustCompile()
	dir := t.TempDir()
	// serve serves until body returns; observations that body does not receive block the observer.
	serve := func(observes bool, body func(post func(method, path, body string) string, got <-chan understudy.Observation)) {
		srv, err := understudy.New(understudy.Config{Addr: "127.0.0.1:0", Storage: understudy.Storage{Dir: dir}})
		require.NoError(t, err)
		require.NoError(t, srv.Register("ask", "", graph))
		got := make(chan understudy.Observation)
		if observes {
			require.NoError(t, srv.Observe("test", func(ctx context.Context, o understudy.Observation) error {
				select {
				case got <- o:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}))
			require.ErrorContains(t, srv.Observe("test", func(context.Context, understudy.Observation) error { return nil }), "the name is taken")
			require.ErrorContains(t, srv.Observe("a b", nil), "a name has")
			require.ErrorContains(t, srv.Observe("nil", nil), "the function is nil")
		}
		serving(t, srv, func(call func(method, path, body string) (int, string)) { body(succeeding(t, call), got) })
	}
	seen := map[string]bool{}
	var runs []string
	next := func(got <-chan understudy.Observation, kind any, thread string) {
		t.Helper()
		o := <-got
		require.Equal(t, kind, o.Kind)
		require.Equal(t, thread, o.Thread)
		require.False(t, seen[o.Key], "%s is repeated", o.Key)
		seen[o.Key] = true
		runs = append(runs, o.Run)
	}
	var thread string
	serve(true, func(call func(method, path, body string) string, got <-chan understudy.Observation) {
		thread = gjson.Get(call("POST", "/threads", "{}"), "thread_id").Str
		run := "/threads/" + thread + "/runs/wait"
		// The observer waits for its first observation to be received, and both runs end meanwhile.
		call("POST", run, `{"assistant_id":"ask","input":{"name":"x"}}`)
		call("POST", run, `{"assistant_id":"ask","command":{"resume":"me"}}`)
		next(got, understudy.Started, thread)
		next(got, understudy.Interrupted, thread)
		next(got, understudy.Started, thread)
		next(got, understudy.Completed, thread)
		require.Equal(t, runs[0], runs[1])
		require.NotEqual(t, runs[1], runs[2])
	})
	serve(false, func(call func(method, path, body string) string, _ <-chan understudy.Observation) {
		call("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"ask","input":{"name":"fail"}}`)
	})
	serve(true, func(call func(method, path, body string) string, got <-chan understudy.Observation) {
		next(got, understudy.Started, thread)
		next(got, understudy.Failed, thread)
		call("DELETE", "/threads/"+thread, "")
		next(got, understudy.Deleted, thread)
	})
}

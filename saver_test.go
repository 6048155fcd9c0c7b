package understudy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy"
	"understudy/graph/pregel"
	"understudy/id"
	"understudy/storage/sqlite"
)

// A thread that a program without a server has saved is there for a server on the same folder once a client creates it by its ID.
func TestServerOnSavedThreads(t *testing.T) {
	t.Parallel()
	type State struct {
		Name  string   `json:"name"`
		Words []string `json:"words" graph:"words,reducer=append"`
	}
	g := pregel.NewStateGraph[State]()
	g.AddNode("ask", func(ctx context.Context, _ State) (any, error) {
		name, err := pregel.Interrupt[string](ctx, "Who are you?")
		if err != nil {
			return nil, err
		}
		return State{Name: name, Words: []string{"hello " + name}}, nil
	})
	g.AddEdge(pregel.START, "ask")
	graph := g.MustCompile()
	dir := t.TempDir()
	thread := id.NewThread()
	alone := func(input any) { // a program without a server
		store, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
		require.NoError(t, err)
		_, err = pregel.Invoke[State](t.Context(), graph, input, pregel.WithThread(thread, store.Saver()))
		require.NoError(t, err)
		require.NoError(t, store.Close())
	}
	serve := func(body func(call func(method, path, body string) string)) {
		srv, err := understudy.New(understudy.Config{Addr: "127.0.0.1:0", Storage: understudy.Storage{Dir: dir}})
		require.NoError(t, err)
		require.NoError(t, srv.Register("ask", "", graph))
		serving(t, srv, func(call func(method, path, body string) (int, string)) {
			body(func(method, path, body string) string {
				status, answer := call(method, path, body)
				return fmt.Sprintf("%d %s", status, answer)
			})
		})
	}
	at := "/threads/" + string(thread)
	alone(State{Words: []string{"hi"}})
	serve(func(call func(method, path, body string) string) {
		for _, path := range []string{at, at + "/state", at + "/history"} {
			require.Contains(t, call("GET", path, ""), "404 ")
		}
		require.Contains(t, call("POST", "/threads", `{"thread_id":"`+string(thread)+`","if_exists":"do_nothing","metadata":{"graph_id":"ask"}}`), "200 ")
		for _, path := range []string{at + "/state", at + "/history"} {
			require.Regexp(t, `^200 .*"values":\{"words":\["hi"\]\},"next":\["ask"\].*"value":"Who are you\?"`, call("GET", path, ""))
		}
		require.Equal(t, `200 {"name":"Ada","words":["hi","hello Ada"]}`, call("POST", at+"/runs/wait", `{"assistant_id":"ask","command":{"resume":"Ada"}}`))
		require.Regexp(t, `"values":\{"name":"Ada","words":\["hi","hello Ada"\]\}`, call("GET", at, ""))
	})
	// And the other way round.
	alone(State{Words: []string{"again"}})
	serve(func(call func(method, path, body string) string) {
		require.Regexp(t, `^200 .*"values":\{"name":"Ada","words":\["hi","hello Ada","again"\]\},"next":\["ask"\]`, call("GET", at+"/state", ""))
		require.Equal(t, `200 {"name":"Bob","words":["hi","hello Ada","again","hello Bob"]}`, call("POST", at+"/runs/wait", `{"assistant_id":"ask","command":{"resume":"Bob"}}`))
	})
}

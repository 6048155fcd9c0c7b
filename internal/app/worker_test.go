package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/pregel"
	"understudy/internal/config"
	"understudy/storage/postgres/migratedtest"
)

// steps is the state of a graph of two nodes. The second does what the input says.
type steps struct {
	Do   string   `json:"do"`
	Done []string `json:"done" graph:"done,reducer=append"`
}

// stepping makes the graph. While failing it fails in the second node, if it is to.
func stepping(t *testing.T, began chan<- struct{}, failing *atomic.Bool) *pregel.Graph {
	t.Helper()
	g := pregel.NewStateGraph[steps]()
	g.AddNode("first", func(context.Context, steps) (any, error) { return steps{Done: []string{"first"}}, nil })
	g.AddNode("second", func(ctx context.Context, s steps) (any, error) {
		switch {
		case s.Do == "fail" && failing.Load():
			return nil, errors.New("the model is away")
		case s.Do == "ask":
			if _, err := pregel.Interrupt[bool](ctx, "go on?"); err != nil {
				return nil, err
			}
		case s.Do == "hang":
			began <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return steps{Done: []string{"second"}}, nil
	})
	g.AddSequence(pregel.START, "first", "second", pregel.END)
	compiled, err := g.Compile(pregel.WithName("steps"))
	require.NoError(t, err)
	return compiled
}

// start runs a server or a worker on a database, without Redis.
func start(t *testing.T, mode config.Mode, g *pregel.Graph, flags map[string]string) *Server {
	t.Helper()
	settings, _, err := config.Load(config.Source{Mode: mode, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	return runWith(t, Config{Settings: settings}, "steps", g)
}

// A server that only serves leaves the runs to a worker, which serves nothing; without Redis too its answers are those of the database.
func TestServingAndExecutingApart(t *testing.T) {
	t.Parallel()
	database := migratedtest.Database(t)
	began := make(chan struct{}, 1)
	failing := &atomic.Bool{}
	failing.Store(true)
	g := stepping(t, began, failing)
	flags := func(more ...string) map[string]string {
		all := map[string]string{"database-url": database, "database-connections": "4"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	api := start(t, config.Serve, g, flags("port", "0", "concurrency", "0"))
	worker := start(t, config.Worker, g, flags("concurrency", "3", "graph-concurrency", "steps=2", "health-port", "0"))
	url := "http://" + api.Addr().String()
	newThread := func() string {
		thread, _ := call(t, http.MethodPost, url+"/threads", `{}`)["thread_id"].(string)
		return url + "/threads/" + thread
	}
	post := func(path, body string) string {
		resp, err := http.Post(path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Less(t, resp.StatusCode, 300, "%s", text)
		return strings.TrimSpace(string(text))
	}

	t.Run("health and metrics of a worker, and nothing else", func(t *testing.T) {
		for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/ok?check_db=1": 200, "/threads": 404, "/runs/wait": 404} {
			resp, err := http.Get("http://" + worker.Addr().String() + path)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, want, resp.StatusCode, "%s: %s", path, body)
			if path == "/metrics" {
				require.Contains(t, string(body), "understudy_runs")
			}
		}
	})
	t.Run("a result", func(t *testing.T) {
		th := newThread()
		require.JSONEq(t, `{"do":"","done":["first","second"]}`, post(th+"/runs/wait", `{"assistant_id":"steps","input":{"do":""}}`))
	})
	t.Run("a stream says that it was not shared, and how the run ended", func(t *testing.T) {
		for modes, want := range map[string][]string{`["values"]`: {"gap", "values"}, `["updates"]`: {"gap"}, `["updates","values"]`: {"gap", "values"}} {
			text := post(newThread()+"/runs/stream", `{"assistant_id":"steps","input":{"do":""},"stream_mode":`+modes+`}`)
			var events []string
			for line := range strings.Lines(text) {
				if event, ok := strings.CutPrefix(line, "event: "); ok {
					events = append(events, strings.TrimSpace(event))
				}
			}
			require.Equal(t, want, events, text)
			require.Contains(t, text, `"recovery":"reload_durable_state"`)
			if len(want) > 1 {
				require.Contains(t, text, `"done":["first","second"]`)
			}
		}
	})
	t.Run("an interrupt", func(t *testing.T) {
		th := newThread()
		require.Regexp(t, `^{"__interrupt__":\[{.*"value":"go on\?"}\]}$`, post(th+"/runs/wait", `{"assistant_id":"steps","input":{"do":"ask"}}`))
		require.JSONEq(t, `{"do":"ask","done":["first","second"]}`, post(th+"/runs/wait", `{"assistant_id":"steps","command":{"resume":true}}`))
	})
	t.Run("an error keeps what was done, and is tried again by a run without input", func(t *testing.T) {
		th := newThread()
		require.Contains(t, post(th+"/runs/wait", `{"assistant_id":"steps","input":{"do":"fail"}}`), `"message":"the model is away"`)
		thread := call(t, http.MethodGet, th, "")
		require.Equal(t, "error", thread["status"])
		require.Contains(t, thread["error"], "message")
		state := call(t, http.MethodGet, th+"/state", "")
		require.Equal(t, []any{"second"}, state["next"])
		require.Equal(t, []any{"first"}, state["values"].(map[string]any)["done"])
		failing.Store(false)
		require.JSONEq(t, `{"do":"fail","done":["first","second"]}`, post(th+"/runs/wait", `{"assistant_id":"steps","input":null}`))
		require.Equal(t, "idle", call(t, http.MethodGet, th, "")["status"])
	})
	t.Run("a cancel, and a join of what it ends", func(t *testing.T) {
		th := newThread()
		run, _ := call(t, http.MethodPost, th+"/runs", `{"assistant_id":"steps","input":{"do":"hang"}}`)["run_id"].(string)
		<-began
		joined := make(chan string, 1)
		go func() {
			resp, err := http.Get(th + "/runs/" + run + "/join")
			if err != nil {
				joined <- err.Error()
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				text = []byte(err.Error())
			}
			joined <- string(text)
		}()
		post(th+"/runs/"+run+"/cancel?wait=true", ``)
		require.Equal(t, "interrupted", call(t, http.MethodGet, th+"/runs/"+run, "")["status"])
		require.Contains(t, <-joined, "UserInterrupt")
	})
	t.Run("a stateless run leaves nothing to answer with", func(t *testing.T) {
		require.Contains(t, post(url+"/runs/wait", `{"assistant_id":"steps","input":{"do":""}}`), `"ResultUnavailable"`)
		require.Contains(t, post(url+"/runs/wait", `{"assistant_id":"steps","input":{"do":""},"on_completion":"keep"}`), `"done":["first","second"]`)
	})
}

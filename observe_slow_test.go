package understudy_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// Runs do not wait for observers that panic, and do not end with them; each kind is observed, in order, when they recover.
func TestObserversDoNotStopRuns(t *testing.T) {
	t.Parallel()
	type State struct {
		Hold     bool              `json:"hold"`
		Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
	}
	began := make(chan struct{}, 1)
	g := pregel.NewStateGraph[State]()
	g.AddNode("answer", func(ctx context.Context, s State) (any, error) {
		if s.Hold {
			began <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return State{Messages: []message.Message{message.AI("hello")}}, nil
	})
	g.AddEdge(pregel.START, "answer")
	srv, err := understudy.New(understudy.Config{Addr: "127.0.0.1:0", Storage: understudy.Storage{Dir: t.TempDir()}})
	require.NoError(t, err)
	require.NoError(t, srv.Register("g", "", g.MustCompile()))

	var broken atomic.Bool
	broken.Store(true)
	panicked := make(chan struct{}, 1)
	got := make(chan understudy.Observation, 100)
	require.NoError(t, srv.Observe("breaks", func(context.Context, understudy.Observation) error {
		if broken.Load() {
			select {
			case panicked <- struct{}{}:
			default:
			}
			panic("an observer breaks")
		}
		return nil
	}))
	release := make(chan struct{})
	require.NoError(t, srv.Observe("slow", func(ctx context.Context, o understudy.Observation) error {
		select {
		case <-release:
			got <- o
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	serving(t, srv, func(answer func(method, path, body string) (int, string)) {
		call := succeeding(t, answer)
		thread := gjson.Get(call("POST", "/threads", "{}"), "thread_id").Str
		runs := "/threads/" + thread + "/runs"
		said := call("POST", runs+"/wait", `{"assistant_id":"g","input":{"messages":[{"type":"human","id":"h","content":"hi"}]}}`)
		require.Equal(t, "hello", gjson.Get(said, "messages.1.content").Str)
		<-panicked
		held := gjson.Get(call("POST", runs, `{"assistant_id":"g","input":{"hold":true}}`), "run_id").Str
		<-began
		call("POST", runs+"/"+held+"/cancel?wait=true", "")
		require.Equal(t, "interrupted", gjson.Get(call("GET", runs+"/"+held, ""), "status").Str)
		require.Empty(t, got, "nothing was observed so far, and both runs are over")

		close(release)
		broken.Store(false)
		kinds := []any{nil}
		for kinds[len(kinds)-1] != understudy.Cancelled {
			o := <-got
			require.Equal(t, thread, o.Thread)
			if o.Kind != understudy.Changed || o.Kind != kinds[len(kinds)-1] { // a busy writer saves the checkpoints of a run in two transactions
				kinds = append(kinds, o.Kind)
			}
		}
		require.Equal(t, []any{nil, understudy.Started, understudy.Changed, understudy.Completed, understudy.Started, understudy.Cancelled}, kinds)
	})
}

package answer_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/server/answer"
)

// Models of one node that run in parallel, after a fan-out: whatever the order of their tokens and of what their tasks write, the answer has each message once,
// whole, and not in the middle of another.
func TestParallelTasksOfOneNode(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for n := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, n))
		type task struct {
			ns, id string
			left   int // tokens
			said   int
			ends   bool // the model says which token is its last
		}
		var tasks []*task
		want := map[string]bool{}
		for i := range 1 + random.IntN(6) {
			x := &task{ns: fmt.Sprintf("say:%d", i), id: fmt.Sprintf("m%d", i), left: 1 + random.IntN(8), ends: random.IntN(2) == 0}
			if random.IntN(3) == 0 { // in a subgraph, with a name of its own
				x.ns = fmt.Sprintf("sub:%d|say:%d", i, i)
			}
			tasks = append(tasks, x)
			text := ""
			for k := range x.left {
				text += fmt.Sprintf("%s.%d ", x.id, k)
			}
			want[text] = true
		}
		a := answer.New(answer.Options{Live: true, Subgraphs: true})
		said := map[int]string{}
		var order []int
		add := func(event, data string) {
			for _, p := range a.Add(&bridge.Record{Event: event, Data: []byte(data)}) {
				if _, ok := said[p.Message]; !ok {
					order = append(order, p.Message)
				}
				require.Equal(t, order[len(order)-1], p.Message, "in the middle of another: seed %d, case %d", seed, n)
				said[p.Message] += p.Text
			}
		}
		for len(tasks) > 0 {
			i := random.IntN(len(tasks))
			x := tasks[i]
			if x.left > 0 {
				last := ""
				if x.left--; x.left == 0 && x.ends {
					last = `,"chunk_position":"last"`
				}
				add("messages", fmt.Sprintf(`[{"type":"AIMessageChunk","id":"%s","content":"%s.%d "%s},{"langgraph_node":"say","langgraph_checkpoint_ns":"%s"}]`, x.id, x.id, x.said, last, x.ns))
				x.said++
				continue
			}
			text := ""
			for k := range x.said {
				text += fmt.Sprintf("%s.%d ", x.id, k)
			}
			update := fmt.Sprintf(`{"say":{"messages":[{"type":"ai","id":"%s","content":"%s"}]}}`, x.id, text)
			if graph, _, nested := strings.Cut(x.ns, "|"); nested {
				add("updates|"+graph, update)
				update = strings.Replace(update, "say", "sub", 1)
			}
			add("updates", update)
			tasks = append(tasks[:i], tasks[i+1:]...)
		}
		for _, p := range a.End() {
			said[p.Message] += p.Text
		}
		got := map[string]bool{}
		for _, text := range said {
			got[text] = true
		}
		require.Equal(t, want, got, "seed %d, case %d", seed, n)
		require.Len(t, said, len(want))
	}
}

// A node in a loop that writes all of its messages again: the new one ends, not the one of an earlier turn.
func TestLoopsThatWriteWholeLists(t *testing.T) {
	t.Parallel()
	a := answer.New(answer.Options{Live: true})
	said := ""
	add := func(event, data string) {
		for _, p := range a.Add(&bridge.Record{Event: event, Data: []byte(data)}) {
			said += fmt.Sprintf("%d:%s ", p.Message, p.Text)
		}
	}
	messages := ""
	for i := range 4 {
		add("messages", fmt.Sprintf(`[{"type":"AIMessageChunk","id":"m%d","content":"t%d"},{"langgraph_node":"say","langgraph_checkpoint_ns":"say:%d"}]`, i, i, i))
		if messages += ","; i == 0 {
			messages = ""
		}
		messages += fmt.Sprintf(`{"type":"ai","id":"m%d","content":"t%d"}`, i, i)
		add("updates", `{"say":{"messages":[`+messages+`]}}`)
	}
	require.Equal(t, "0:t0 1:t1 2:t2 3:t3 ", said, "each is shown at once")
}

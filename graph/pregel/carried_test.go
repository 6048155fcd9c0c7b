package pregel_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
)

// counting returns a graph that counts its runs, in a channel of each kind that is stored inside of a checkpoint and in one that is not.
func counting(t *testing.T, name string) *pregel.Graph {
	t.Helper()
	kinds := []string{"int", "float", "text", "bool", "none", "list"}
	var options []pregel.GraphOption
	for _, kind := range kinds {
		options = append(options, pregel.WithChannel(name+"_"+kind, pregel.LastValue()))
	}
	g := pregel.NewStateGraph[pregel.Values](options...)
	g.AddNode("step", func(_ context.Context, s pregel.Values) (any, error) {
		raw, err := json.Marshal(s[name+"_int"])
		n := gjson.ParseBytes(raw).Int() + 1
		return pregel.Values{
			name + "_int": n, name + "_float": float64(n) + 0.5, name + "_text": `"` + strconv.FormatInt(n, 10) + "\u00e9\n", name + "_bool": n%2 == 0,
			name + "_none": nil, name + "_list": []int64{n},
		}, err
	})
	g.AddSequence(pregel.START, "step", pregel.END)
	out, err := g.Compile()
	require.NoError(t, err)
	return out
}

// Graphs that share a thread each find what they left, whatever the others did in between: runs, updates, and forks.
func TestGraphsThatShareAThread(t *testing.T) {
	t.Parallel()
	graphs := map[string]*pregel.Graph{"a": counting(t, "a"), "b": counting(t, "b"), "c": counting(t, "c")}
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	m := &memory{}
	type counts map[string]int64
	at, now := map[checkpointer.Key]counts{}, counts{}
	keys := []checkpointer.Key{}
	for range 60 {
		name := string("abc"[r.IntN(3)])
		g := graphs[name]
		start := checkpointer.Key{Thread: testThread}
		if r.IntN(4) == 0 && len(keys) > 0 {
			start = keys[r.IntN(len(keys))]
			now = at[start]
		}
		next := counts{}
		for k, v := range now {
			next[k] = v
		}
		var key checkpointer.Key
		if r.IntN(3) == 0 {
			n := int64(r.IntN(100))
			cfg := graph.Config{Thread: testThread, Saver: m}
			var err error
			values := json.RawMessage(`{"` + name + `_int":` + strconv.FormatInt(n, 10) + `}`)
			key, err = g.Update(t.Context(), cfg, start, [][]graph.StateUpdate{{{Values: values, AsNode: "step"}}})
			require.NoError(t, err)
			next[name] = n
		} else {
			inv := invocation(m, `{"`+name+`_none":null}`, "values")
			inv.At = start
			_, err := collect(t, g, inv)
			require.NoError(t, err)
			key = m.order[len(m.order)-1]
			next[name]++
		}
		now = next
		at[key] = now
		keys = append(keys, key)
		for other, g := range graphs {
			if now[other] == 0 && other != name {
				continue
			}
			e, err := g.Explain(t.Context(), graph.Config{Thread: testThread, Saver: m}, key, false)
			require.NoError(t, err)
			require.Equal(t, now[other], gjson.GetBytes(e.Values, other+"_int").Int(), "graph %s after %s: %s", other, name, e.Values)
		}
	}
}

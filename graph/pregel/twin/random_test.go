package twin

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// generator makes random small graphs, and things to do with them.
type generator struct {
	r *rand.Rand
	// unkept: subgraphs may go without checkpoints. Not where durability is sync: LangGraph fails there with an AttributeError.
	unkept bool
}

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func pick[T any](g *generator, from []T) T { return from[g.r.IntN(len(from))] }

// ops gives what a node does. Of nodes that may run beside each other, none writes a key that takes one value a step.
func (g *generator) ops(name string, alone bool, depth int) []op {
	ops := []op{add(name)}
	if g.chance(40) {
		ops = append(ops, incr0("total", g.r.IntN(4)))
	}
	if alone && g.chance(50) {
		ops = append(ops, incr("n"))
	}
	if alone && g.chance(15) {
		ops = append(ops, set("topics", [][]string{{"t1"}, {"t2"}}[:g.r.IntN(3)]))
	}
	if alone && g.chance(18) {
		ops = append([]op{ask("answer", map[string]any{"from": name})}, ops...)
	}
	if alone && g.chance(12) {
		ops = append([]op{failTimes(1+g.r.IntN(2), pick(g, []string{"ValueError", "KeyError", "RuntimeError"}), "boom in "+name)}, ops...)
	}
	if g.chance(10) {
		ops = append(ops, emit(map[string]any{"at": name}))
	}
	if g.chance(10) {
		ops = []op{keys()}
	}
	if g.chance(8) {
		ops = append(ops, say("ai", "from "+name, fmt.Sprintf("m-%s-%d", name, g.r.IntN(3))))
	}
	return ops
}

func incr0(key string, by int) op { return op{"do": "set", "key": key, "value": by} }

// graph makes layers of nodes: each node of a layer leads to the next one, by edges, a join, a condition or Sends.
func (g *generator) graph(depth int) graphDesc {
	d := graphDesc{Channels: channels{
		{"n", "last"}, {"items", "append"}, {"total", "add"}, {"answer", "last"}, {"topics", "last"}, {"messages", "messages"}, {"topic", "last"},
		{"seen", "topic_all"}, {"brief", "ephemeral"},
	}}
	layers := 1 + g.r.IntN(4)
	prev := []string{"__start__"}
	number := 0
	prefix := string(rune('a' + depth*7))
	for range layers {
		width := 1
		if g.chance(35) {
			width = 2 + g.r.IntN(2)
		}
		var layer []string
		for range width {
			name := fmt.Sprintf("%s%d", prefix, number)
			number++
			layer = append(layer, name)
			n := nodeDesc{Name: name}
			if depth < 2 && width == 1 && g.chance(22) {
				inner := g.graph(depth + 1)
				if g.chance(20) {
					inner.Checkpointer = yes(!g.unkept || g.chance(50))
				}
				n.Subgraph = &inner
			} else {
				n.Ops = g.ops(name, width == 1, depth)
				if g.chance(10) {
					n.Retry = &retryDesc{Max: 2, On: []string{"ValueError"}}
				}
			}
			if width == 1 && g.chance(8) {
				n.Defer = true
			}
			d.Nodes = append(d.Nodes, n)
		}
		if all := g.connect(&d, prev, layer); all && depth == 0 && width > 1 && g.chance(30) {
			// One of them fails when the others are through.
			n := &d.Nodes[len(d.Nodes)-1]
			ops := []op{failTimes(1+g.r.IntN(2), "ValueError", "boom in "+n.Name)}
			for _, other := range layer[:width-1] {
				ops = append([]op{after(other)}, ops...)
			}
			n.Ops, n.Retry = append(ops, n.Ops...), nil
		}
		prev = layer
	}
	if g.chance(20) {
		// A way back, as long as n is small.
		last := prev[0]
		d.Branches = append(d.Branches, by(last, "n", map[string]any{"1": d.Nodes[0].Name, "2": d.Nodes[0].Name}, "__end__"))
		d.Nodes[0].Ops = append(d.Nodes[0].Ops, incr("n"))
		d.Nodes[0].Subgraph, d.Nodes[0].Retry = nil, nil
		dedupe(&d.Nodes[0])
	} else {
		for _, p := range prev {
			d.Edges = append(d.Edges, edge(p, "__end__"))
		}
	}
	if g.chance(10) {
		d.Before = []string{pick(g, d.Nodes).Name}
	}
	if g.chance(10) {
		d.After = []string{pick(g, d.Nodes).Name}
	}
	return d
}

// dedupe leaves one op that counts n.
func dedupe(n *nodeDesc) {
	var ops []op
	counted := false
	for _, o := range n.Ops {
		if o["do"] == "incr" && o["key"] == "n" {
			if counted {
				continue
			}
			counted = true
		}
		ops = append(ops, o)
	}
	n.Ops = ops
}

// connect lets one layer lead to the next. It reports whether all nodes of that one run beside each other.
func (g *generator) connect(d *graphDesc, prev, layer []string) bool {
	switch {
	case len(prev) > 1 && len(layer) == 1 && g.chance(60):
		d.Edges = append(d.Edges, edge(prev, layer[0]))
	case len(prev) == 1 && g.chance(25):
		d.Branches = append(d.Branches, branchDesc{From: prev[0], Rule: rule{Kind: "const", To: anys(layer)}, Targets: layer})
	case len(prev) == 1 && prev[0] != "__start__" && len(layer) == 1 && g.chance(15):
		d.Branches = append(d.Branches, fan(prev[0], "topics", layer[0], "topic"))
		d.Nodes[len(d.Nodes)-1].Ops = []op{from("items", "topic"), incr0("total", 1)}
		d.Nodes[len(d.Nodes)-1].Subgraph = nil
	case len(prev) == 1 && len(layer) > 1 && g.chance(25):
		d.Branches = append(d.Branches, by(prev[0], "n", map[string]any{"1": layer[0], "2": anys(layer)}, layer[len(layer)-1], layer...))
		return false
	default:
		for _, p := range prev {
			for _, to := range layer {
				d.Edges = append(d.Edges, edge(p, to))
			}
		}
	}
	return true
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

// testCase makes a graph and up to five steps.
func (g *generator) testCase(seed uint64) testCase {
	durability := pick(g, []string{"async", "async", "sync", "exit"})
	g.unkept = durability != "sync"
	c := testCase{Name: "random " + strconv.FormatUint(seed, 10), Graph: g.graph(0)}
	input := fmt.Sprintf(`{"n":%d,"topics":%s,"items":["in"]}`, g.r.IntN(3), pick(g, []string{`[]`, `[["x"]]`, `[["x"],["y"]]`}))
	first := run(input).durability(durability)
	if g.chance(40) {
		first = first.deep()
	}
	c.Steps = []step{first}
	for range g.r.IntN(5) {
		var s step
		switch k := g.r.IntN(100); {
		case k < 35:
			s = goOn()
		case k < 65:
			s = command(`{"resume":"yes"}`)
		case k < 75:
			s = run(input)
		case k < 82:
			s = command(`{"update":{"items":["u"]}}`)
		case k < 90:
			s = goOn().at(0)
		default:
			s = update(`{"items":["up"]}`, pick(g, c.Graph.Nodes).Name)
		}
		s = s.durability(durability)
		if g.chance(30) {
			s = s.deep()
		}
		c.Steps = append(c.Steps, s)
	}
	return c
}

// Random graphs show the same in LangGraph and here. TWIN_RANDOM is how many, TWIN_SEED the first of them.
func TestRandom(t *testing.T) {
	p := startPython(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	count, first := 60, uint64(1)
	if n := os.Getenv("TWIN_RANDOM"); n != "" {
		var err error
		count, err = strconv.Atoi(n)
		require.NoError(t, err)
	}
	if n := os.Getenv("TWIN_SEED"); n != "" {
		var err error
		first, err = strconv.ParseUint(n, 10, 64)
		require.NoError(t, err)
	}
	for i := range count {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			g := &generator{r: rand.New(rand.NewPCG(seed, 7))}
			compare(t, p, g.testCase(seed))
		})
	}
}

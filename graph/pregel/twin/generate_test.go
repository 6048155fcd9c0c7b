package twin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator makes random small graphs, and steps to run on them. The same seed makes the same case.
type generator struct {
	r *rand.Rand
	// unkept: subgraphs may be without checkpoints. Not where durability is sync: LangGraph fails there with an AttributeError.
	unkept bool
	// exit: runs may have the durability exit.
	exit bool
	// pinned are nodes that ask, fail, keep a history, or wait for another node of their step: nothing but edges may make them run.
	pinned map[string]bool
	// reachable are the names of all nodes of the root graph.
	reachable []string
}

func newGenerator(seed uint64) *generator {
	return &generator{r: rand.New(rand.NewPCG(seed, 7)), pinned: map[string]bool{}}
}

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func pick[T any](g *generator, from []T) T { return from[g.r.IntN(len(from))] }

var (
	untypedChannels = channels{
		{"n", "last"},
		{"items", "append"},
		{"total", "add"},
		{"answer", "last"},
		{"topics", "last"},
		{"messages", "messages"},
		{"topic", "last"},
		{"seen", "topic_all"},
		{"brief", "ephemeral"},
		{"left", "remaining_steps"},
	}
	// Numbers that fit a typed state, and updates of all types.
	numbers = []any{0, 1, 2, 3, true, false, -1}
	anyAdd  = []any{1, 2, true, false, 1.5, -2.25, nil, "x", []any{1}, map[string]any{"k": 1}, 9007199254740993}
	kindsOf = []string{"ValueError", "KeyError", "RuntimeError"}
)

// ops returns what a node does. A node that runs next to others (not alone) writes no key that takes one value a step.
func (g *generator) ops(d *graphDesc, name string, alone bool) []op {
	ops := []op{add(name)}
	switch {
	case g.chance(30):
		ops = append(ops, set("total", pick(g, numbers)))
	case !d.Typed && g.chance(6):
		ops = append(ops, set("total", pick(g, anyAdd)))
	case d.Typed && g.chance(40):
		ops = append(ops, set("score", pick(g, []any{1, 0.5, true, -2.25})), set("text", pick(g, []any{"a", "é", ""})))
	case d.Typed && g.chance(4):
		ops = append(ops, set("text", pick(g, []any{1, true, nil, []any{"x"}})))
	}
	if alone && g.chance(50) {
		ops = append(ops, incr("n"))
	}
	if alone && g.chance(15) {
		ops = append(ops, set("topics", [][]string{{"t1"}, {"t2"}}[:g.r.IntN(3)]))
	}
	if !g.exit && g.chance(7) {
		// With durability exit LangGraph saves an accumulated topic as it is after the interrupt that ended the run.
		ops = append(ops, set("seen", pick(g, []any{"s", []any{"s1", "s2"}, []any{}})))
	}
	if alone && g.chance(8) {
		ops = append(ops, set("brief", name))
	}
	if alone && d.has("secret") && g.chance(30) {
		ops = append(ops, set("secret", name))
	}
	if !d.Typed && g.chance(15) {
		ops = append(ops, set("extra", g.r.IntN(3)))
	}
	if g.chance(10) {
		ops = append(ops, emit(map[string]any{"at": name}))
	}
	if !d.Typed && g.chance(8) {
		ops = []op{keys()}
	}
	if g.chance(8) {
		ops = append(ops, say("ai", "from "+name, fmt.Sprintf("m-%s-%d", name, g.r.IntN(3))))
	}
	if alone && g.chance(4) {
		ops = append(ops, op{"do": "overwrite", "key": "items", "value": pick(g, []any{[]any{"over"}, []any{}})})
	}
	switch {
	case alone && g.chance(15):
		g.pinned[name] = true // of two tasks of this node either may take an answer that names none
		ops = append([]op{ask("answer", map[string]any{"from": name})}, ops...)
	case g.chance(12):
		g.pinned[name] = true
		asking := ask("items", "ask "+name)
		asking["list"] = true
		ops = append(ops, asking)
		if g.chance(25) { // a second question
			ops = append(ops, asking)
		}
	}
	if alone && g.chance(12) {
		ops = append([]op{failTimes(1+g.r.IntN(2), pick(g, kindsOf), "boom in "+name)}, ops...)
		g.pinned[name] = true // of two tasks of this node it were a race which one fails
	}
	if alone && g.chance(3) {
		g.pinned[name] = true
		ops = append(ops, op{"do": "bad", "value": pick(g, []any{"text", "5"})})
	}
	return ops
}

// races reports whether a node or a condition fails where there are subgraphs as well: which part of a subgraph is done when a task next to it
// fails is a race, so nothing may make them run in the same step.
func (g *graphDesc) races() bool {
	fails := slices.ContainsFunc(g.Branches, func(b branchDesc) bool {
		return slices.ContainsFunc(sortedKeys(b.Rule.Cases), func(k string) bool {
			to, ok := b.Rule.Cases[k].(map[string]any)
			return ok && to["raise"] != nil || b.Rule.Cases[k] == "nowhere"
		})
	})
	subgraphs := g.Graphs != nil
	for _, n := range g.Nodes {
		subgraphs = subgraphs || n.Subgraph != nil
		fails = fails || slices.ContainsFunc(n.Ops, func(o op) bool { return o["do"] == "fail" || o["do"] == "bad" })
	}
	return fails && subgraphs
}

func (g *graphDesc) has(channel string) bool {
	return slices.ContainsFunc(g.Channels, func(c [2]string) bool { return c[0] == channel })
}

func incr0(key string, by int) op { return op{"do": "set", "key": key, "value": by} }

// graph makes layers of nodes: each node of a layer leads to the next one, by edges, a join, a condition, Sends or a Command.
func (g *generator) graph(depth int) graphDesc {
	d := graphDesc{Channels: untypedChannels}
	switch {
	case g.chance(25):
		d.Typed, d.Channels = true, typedChannels
	case !g.exit && g.chance(12):
		// With durability exit LangGraph stores what tasks wrote there.
		d.Channels = append(slices.Clone(d.Channels), [2]string{"secret", "untracked"})
	}
	layers := 1 + g.r.IntN(4)
	if depth > 0 {
		layers = 1 + g.r.IntN(2)
	}
	prev := []string{START}
	prefix := string(rune('a' + depth*7))
	for range layers {
		width := 1
		if g.chance(40) {
			width = 2 + g.r.IntN(2)
		}
		var layer []string
		for range width {
			n := g.node(&d, fmt.Sprintf("%s%d", prefix, len(d.Nodes)), width == 1, depth)
			layer = append(layer, n.Name)
			d.Nodes = append(d.Nodes, n)
		}
		if all := g.connect(&d, prev, layer); all && depth == 0 && width > 1 && g.chance(30) {
			g.failLate(&d, layer)
		}
		prev = layer
	}
	g.finish(&d, prev)
	if depth == 0 && !d.races() {
		for _, n := range d.Nodes {
			if !g.pinned[n.Name] {
				g.reachable = append(g.reachable, n.Name)
			}
		}
	}
	g.commands(&d, depth)
	if g.chance(8) {
		d.Before = []string{pick(g, d.Nodes).Name}
	}
	if g.chance(8) {
		d.After = []string{pick(g, d.Nodes).Name}
	}
	if !d.Typed && g.chance(6) {
		d.Input = []string{"n", "items", "topics", "topic"}
	}
	if !d.Typed && g.chance(6) {
		d.Output = []string{"n", "items", "total"}
	}
	return d
}

// START is where graphs begin.
const START = "__start__"

func (g *generator) node(d *graphDesc, name string, alone bool, depth int) nodeDesc {
	n := nodeDesc{Name: name}
	switch {
	case depth < 2 && g.chance(map[bool]int{true: 20, false: 6}[alone]):
		pinned := len(g.pinned)
		inner := g.graph(depth + 1)
		if len(g.pinned) > pinned || inner.Before != nil || inner.After != nil {
			g.pinned[name] = true // two tasks of it would be a race
		}
		if g.chance(20) {
			inner.Checkpointer = yes(!g.unkept || g.chance(50))
			g.pinned[name] = true // two tasks would share one history
		}
		n.Subgraph = &inner
	case depth < 2 && alone && !d.Typed && g.chance(4):
		inner := g.graph(depth + 1)
		if d.Graphs == nil {
			d.Graphs = map[string]graphDesc{}
		}
		d.Graphs["in "+name] = inner
		n.Ops = append(g.ops(d, name, alone), op{"do": "call", "graph": "in " + name, "key": "answer", "value": map[string]any{"n": 1, "items": []any{"called"}}})
	default:
		n.Ops = g.ops(d, name, alone)
		n.Returns = pick(g, []string{"", "", "values", "raw", "struct"})
		if g.chance(10) {
			n.Retry = &retryDesc{Max: 2, On: []string{"ValueError"}}
		}
		if g.chance(4) {
			n.Cache = true
		}
	}
	if alone && g.chance(8) {
		n.Defer = true
	}
	if g.chance(4) {
		n.Metadata = map[string]any{"made": "by chance"}
	}
	return n
}

// failLate makes a node of a layer fail when the others are through, or while one hangs.
func (g *generator) failLate(d *graphDesc, layer []string) {
	nodes := d.Nodes[len(d.Nodes)-len(layer):]
	last := &nodes[len(nodes)-1]
	for _, n := range nodes {
		if n.Subgraph != nil || n.Cache || slices.ContainsFunc(n.Ops, func(o op) bool {
			return o["do"] == "interrupt" || o["do"] == "bad" || o["do"] == "fail" || o["do"] == "keys" || o["key"] == "total" || o["key"] == "text"
		}) {
			return
		}
	}
	for _, n := range layer {
		g.pinned[n] = true
	}
	fails := failTimes(1+g.r.IntN(2), "ValueError", "boom in "+last.Name)
	last.Retry = nil
	if g.chance(25) {
		nodes[0].Ops, nodes[0].Retry = []op{{"do": "hang"}}, nil
		last.Ops = []op{fail("ValueError", "boom in "+last.Name)}
		for _, other := range layer[1 : len(layer)-1] {
			last.Ops = append([]op{after(other)}, last.Ops...)
		}
		return
	}
	ops := []op{fails}
	if g.chance(25) {
		ops = []op{ask("items", "late")}
		ops[0]["list"] = true
	}
	for _, other := range layer[:len(layer)-1] {
		ops = append([]op{after(other)}, ops...)
	}
	last.Ops = append(ops, last.Ops...)
}

// finish ends a graph, or leads back to its first node while n is small.
func (g *generator) finish(d *graphDesc, last []string) {
	if !g.chance(20) {
		for _, p := range last {
			d.Edges = append(d.Edges, edge(p, "__end__"))
		}
		return
	}
	first := &d.Nodes[0]
	if g.pinned[first.Name] {
		return
	}
	d.Branches = append(d.Branches, by(last[0], "n", map[string]any{"1": first.Name, "2": first.Name}, "__end__"))
	first.Ops = slices.DeleteFunc(first.Ops, func(o op) bool { return o["do"] == "incr" && o["key"] == "n" })
	first.Ops = append(first.Ops, incr("n"))
	first.Subgraph, first.Retry = nil, nil
}

// commands lets some nodes return Commands: to nodes of their graph, and in subgraphs to nodes of the graph above.
func (g *generator) commands(d *graphDesc, depth int) {
	var names []string
	for _, n := range d.Nodes {
		if !g.pinned[n.Name] {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 || d.races() {
		return
	}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Subgraph != nil || g.pinned[n.Name] || !g.chance(14) {
			continue
		}
		var to []any
		for range g.r.IntN(3) {
			if later := pick(g, names); later > n.Name || g.chance(10) { // mostly forward
				if later > n.Name && g.chance(40) {
					to = append(to, send(later, map[string]any{"n": g.r.IntN(3), "topic": "sent"}))
				} else {
					to = append(to, later)
				}
			}
		}
		var update map[string]any
		if g.chance(60) {
			update = map[string]any{"items": []any{"cmd " + n.Name}}
		}
		c := cmd(update, to...)
		if depth > 0 && g.chance(30) {
			c["parent"] = true
			c["goto"] = []any{pick(g, []string{"a0", "a1", "__end__"})}
		}
		if update == nil && c["goto"] == nil && len(to) == 0 {
			c["update"] = map[string]any{"total": 1}
		}
		n.Ops = append(n.Ops, c)
	}
}

// connect lets one layer lead to the next. It reports whether all nodes of that one run in the same step.
func (g *generator) connect(d *graphDesc, prev, layer []string) bool {
	one := len(prev) == 1
	switch {
	case len(prev) > 1 && len(layer) == 1 && !g.exit && g.chance(60):
		// With durability exit LangGraph saves a join as it is after the interrupt that ended the run.
		d.Edges = append(d.Edges, edge(prev, layer[0]))
	case one && g.chance(20):
		d.Branches = append(d.Branches, branchDesc{From: prev[0], Rule: rule{Kind: "const", To: anys(layer)}, Targets: layer})
	case one && prev[0] != START && len(layer) == 1 && g.chance(15):
		d.Branches = append(d.Branches, fan(prev[0], "topics", layer[0], "topic"))
		n := &d.Nodes[len(d.Nodes)-1]
		n.Ops = []op{from("items", "topic"), incr0("total", 1)}
		if strings.HasPrefix(layer[0], "a") && g.chance(40) {
			asking := ask("items", "fan")
			asking["list"] = true
			n.Ops = []op{asking, incr0("total", 1)}
		}
		n.Subgraph, n.Cache = nil, false
	case one && g.chance(30):
		d.Branches = append(d.Branches, g.condition(d, prev[0], layer))
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

// condition chooses among a layer: by a key of the state, by one that is none, or by a managed value. It may fail.
func (g *generator) condition(d *graphDesc, from string, layer []string) branchDesc {
	key := pick(g, []string{"n", "n", "extra", "topic", "brief", "left"})
	cases := map[string]any{"1": layer[0], "2": anys(layer), "null": layer[len(layer)-1]}
	if key == "left" {
		cases = map[string]any{"9": layer[0], "8": layer[len(layer)-1], "7": anys(layer)}
	}
	if g.chance(20) {
		cases["2"] = map[string]any{"raise": pick(g, kindsOf), "text": "no way from " + from}
	}
	if g.chance(10) {
		cases["1"] = "nowhere"
	}
	if g.chance(20) {
		cases["0"] = map[string]any{"node": layer[0], "arg": map[string]any{"n": 7, "topic": "by condition"}}
	}
	var targets []string
	if g.chance(60) {
		targets = layer
	}
	return by(from, key, cases, layer[len(layer)-1], targets...)
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

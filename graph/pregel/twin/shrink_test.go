package twin

import (
	"encoding/json"
	"slices"
	"time"
)

// shrink returns a smaller case that still differs: without steps, nodes, edges, operations and options that do not matter.
func shrink(c testCase, differs func(testCase) bool) testCase {
	until := time.Now().Add(30 * time.Second)
	for again := true; again; {
		again = false
		for i := 0; ; i++ {
			smaller, ok := without(c, i)
			if !ok || time.Now().After(until) {
				break
			}
			if differs(smaller) {
				c, again = smaller, true
				i--
			}
		}
	}
	return c
}

// without returns a copy of a case that lacks its i-th part. false: it has no so many.
func without(c testCase, i int) (testCase, bool) {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	var small testCase
	if err := json.Unmarshal(text, &small); err != nil {
		panic(err)
	}
	r := &remover{left: i}
	r.fromCase(&small)
	return small, r.done
}

// remover counts the parts of a case down, and removes one.
type remover struct {
	left int
	done bool
}

// here reports whether this is the part to remove.
func (r *remover) here() bool {
	if r.done {
		return false
	}
	r.left--
	r.done = r.left < 0
	return r.done
}

// one removes an item of a list.
func one[T any](r *remover, list []T) []T {
	for i := range list {
		if r.here() {
			return slices.Delete(list, i, i+1)
		}
	}
	return list
}

// clearOf removes a value that is set.
func clearOf[T any](r *remover, set bool, at *T) {
	if set && r.here() {
		var zero T
		*at = zero
	}
}

func (r *remover) fromCase(c *testCase) {
	for i := len(c.Steps) - 1; i >= 0; i-- {
		if len(c.Steps) > 1 && r.here() {
			c.Steps = slices.Delete(c.Steps, i, i+1)
			return
		}
	}
	r.fromGraph(&c.Graph)
	for i := range c.Steps {
		r.fromStep(&c.Steps[i])
	}
}

func (r *remover) fromGraph(d *graphDesc) {
	for i := range d.Nodes {
		if len(d.Nodes) > 1 && r.here() {
			d.dropNode(d.Nodes[i].Name)
			return
		}
	}
	d.Edges = one(r, d.Edges)
	d.Branches = one(r, d.Branches)
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Subgraph != nil {
			if r.here() {
				n.Subgraph, n.Ops = nil, []op{add(n.Name)}
				return
			}
			r.fromGraph(n.Subgraph)
		}
		n.Ops = one(r, n.Ops)
		clearOf(r, n.Defer, &n.Defer)
		clearOf(r, n.Retry != nil, &n.Retry)
		clearOf(r, n.Cache, &n.Cache)
		clearOf(r, n.Metadata != nil, &n.Metadata)
		clearOf(r, n.Returns != "", &n.Returns)
	}
	for i := range d.Branches {
		b := &d.Branches[i]
		for _, name := range sortedKeys(b.Rule.Cases) {
			if r.here() {
				delete(b.Rule.Cases, name)
				return
			}
		}
		clearOf(r, b.Targets != nil, &b.Targets)
	}
	clearOf(r, d.Before != nil, &d.Before)
	clearOf(r, d.After != nil, &d.After)
	clearOf(r, d.Input != nil, &d.Input)
	clearOf(r, d.Output != nil, &d.Output)
	clearOf(r, d.Checkpointer != nil, &d.Checkpointer)
	for _, name := range sortedKeys(d.Graphs) {
		sub := d.Graphs[name]
		r.fromGraph(&sub)
		d.Graphs[name] = sub
	}
	for i, c := range d.Channels {
		// LangGraph has no graphs without a state; a typed state has a type of its own.
		if !d.Typed && c[0] != "n" && c[0] != "items" && r.here() {
			d.Channels = slices.Delete(d.Channels, i, i+1)
			return
		}
	}
}

func (r *remover) fromStep(s *step) {
	clearOf(r, s.At != nil, &s.At)
	clearOf(r, s.Limit != nil, &s.Limit)
	clearOf(r, s.Subgraphs, &s.Subgraphs)
	clearOf(r, s.Durability != "", &s.Durability)
	clearOf(r, s.InterruptBefore != nil, &s.InterruptBefore)
	clearOf(r, s.InterruptAfter != nil, &s.InterruptAfter)
	clearOf(r, s.Lose, &s.Lose)
	if len(s.Updates) > 1 {
		s.Updates = one(r, s.Updates)
	}
	for i := range s.Updates {
		if len(s.Updates[i]) > 1 {
			s.Updates[i] = one(r, s.Updates[i])
		}
	}
	if len(s.Modes) > 1 {
		s.Modes = one(r, s.Modes)
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(s.Input, &given) != nil {
		return
	}
	for _, name := range sortedKeys(given) {
		if r.here() {
			delete(given, name)
			s.Input = raw(given)
			return
		}
	}
}

// dropNode removes a node with all that leads to it and from it.
func (g *graphDesc) dropNode(name string) {
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n nodeDesc) bool { return n.Name == name })
	is := func(x any) bool { return slices.Contains(names(x), name) }
	g.Edges = slices.DeleteFunc(g.Edges, func(e [2]any) bool { return is(e[0]) || is(e[1]) })
	g.Branches = slices.DeleteFunc(g.Branches, func(b branchDesc) bool {
		return b.From == name || is(b.Rule.Default) || is(b.Rule.To) || b.Rule.Node == name
	})
	for i := range g.Branches {
		b := &g.Branches[i]
		if b.Targets != nil {
			b.Targets = slices.DeleteFunc(b.Targets, func(t string) bool { return t == name })
		}
	}
	for i := range g.Nodes {
		g.Nodes[i].Ops = slices.DeleteFunc(g.Nodes[i].Ops, func(o op) bool { return o["do"] == "after" && o["node"] == name })
	}
	without := func(x any) any {
		left := slices.DeleteFunc(names(x), func(n string) bool { return n == name })
		if len(left) == 0 {
			return nil
		}
		return left
	}
	g.Before, g.After = without(g.Before), without(g.After)
}

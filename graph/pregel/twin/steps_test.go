package twin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// testCase makes a graph and up to seven steps.
func (g *generator) testCase(seed uint64) testCase {
	durabilities := pick(g, [][]string{{"async"}, {"sync"}, {"exit"}, {"async", "exit"}, {"async", "sync", "exit"}})
	g.unkept, g.exit = !slices.Contains(durabilities, "sync"), slices.Contains(durabilities, "exit")
	c := testCase{Name: "random " + strconv.FormatUint(seed, 10), Graph: g.graph(0)}
	if g.chance(8) {
		first := g.update(c.Graph)
		c.Steps = append(c.Steps, first)
	}
	begin := run(g.input(c.Graph))
	if len(g.reachable) > 0 && g.chance(20) {
		begin = g.command(g.reachable)
	}
	c.Steps = append(c.Steps, g.options(c.Graph, begin, durabilities))
	for range g.r.IntN(6) {
		if last := c.Steps[len(c.Steps)-1]; last.Op == "run" && last.At == nil && g.chance(15) {
			again := last
			again.Again = pick(g, []string{"null", "input", "input"})
			c.Steps = append(c.Steps, step{Op: "crash", Keep: g.r.IntN(5), Lose: g.chance(50)}, again)
			continue
		}
		c.Steps = append(c.Steps, g.step(c.Graph, durabilities))
	}
	return c
}

func (g *generator) input(d graphDesc) string {
	in := map[string]any{"n": g.r.IntN(3), "topics": pick(g, []any{[]any{}, []any{[]string{"x"}}, []any{[]string{"x"}, []string{"y"}}}), "items": []string{"in"}}
	if g.chance(40) {
		in["extra"] = g.r.IntN(3)
	}
	if g.chance(20) {
		in["topic"] = "given"
	}
	if g.chance(15) {
		in["brief"] = "given"
	}
	if g.chance(15) {
		in["total"] = pick(g, numbers)
	}
	if !d.Typed && g.chance(5) {
		in["total"] = pick(g, anyAdd)
	}
	if g.chance(4) {
		in["items"] = "no list"
	}
	if g.chance(10) {
		in["messages"] = []any{map[string]any{"role": "user", "content": "hi", "id": fmt.Sprintf("h%d", g.r.IntN(2))}}
	}
	if g.chance(10) {
		delete(in, "n")
	}
	return string(raw(in))
}

// command is a Command that a run begins with.
func (g *generator) command(names []string) step {
	c := map[string]any{}
	if g.chance(60) {
		c["update"] = map[string]any{"items": []any{"u"}, "n": g.r.IntN(3)}
	}
	if len(c) == 0 || g.chance(60) {
		var to []any
		for range 1 + g.r.IntN(2) {
			if name := pick(g, names); g.chance(30) {
				to = append(to, map[string]any{"node": name, "input": map[string]any{"n": 1, "topic": "sent"}})
			} else {
				to = append(to, name)
			}
		}
		c["goto"] = to
		if name, ok := to[0].(string); ok && len(to) == 1 && g.chance(50) {
			c["goto"] = name
		}
	}
	return command(string(raw(c)))
}

// options are how a run is executed and seen.
func (g *generator) options(d graphDesc, s step, durabilities []string) step {
	s = s.durability(pick(g, durabilities))
	if g.chance(35) {
		s = s.deep()
	}
	s = s.limit(9) // Sends in a loop multiply
	if g.chance(15) {
		s = s.limit(pick(g, []int{1, 1, 2, 3, 4, 6}))
	}
	if g.chance(2) {
		s = s.limit(pick(g, []int{0, -1}))
	}
	if g.chance(6) {
		s = s.before(pick(g, []any{[]string{pick(g, d.Nodes).Name}, "*"}))
	}
	if g.chance(6) {
		s = s.after(pick(g, []any{[]string{pick(g, d.Nodes).Name}, "*"}))
	}
	switch {
	case g.chance(10):
		s = s.modes(append(slices.Clone(allModes), "debug")...)
	case g.chance(10):
		s = s.modes("values", "updates", "messages-tuple")
	}
	return s
}

var answers = []string{
	`"yes"`, `"yes"`, `1`, `false`, `{"a":1}`, `{"$ask 0":"first"}`, `{"$ask 1":"second"}`, `{"$ask 0":"first","$ask 1":"second"}`,
	`{"$ask 2":"third","$ask 0":"first"}`, `{"$ask 1":2,"$ask 0":1,"$ask 2":3}`, `{}`, `{"0123456789abcdef0123456789abcdef":"nobody's"}`,
}

func (g *generator) step(d graphDesc, durabilities []string) step {
	var s step
	switch k := g.r.IntN(100); {
	case k < 22:
		s = goOn()
	case k < 57:
		c := `{"resume":` + pick(g, answers) + `}`
		if g.chance(15) {
			c = c[:len(c)-1] + `,"update":{"items":["with answer"]}}`
		}
		s = command(c)
	case k < 65:
		s = run(g.input(d))
	case k < 72 && len(g.reachable) > 0:
		s = g.command(g.reachable)
	default:
		return g.update(d)
	}
	if g.chance(18) {
		s = s.at(g.r.IntN(6))
	}
	return g.options(d, s, durabilities)
}

// update is an update of the state: one or several, in one superstep or several.
func (g *generator) update(d graphDesc) step {
	one := func() updateDesc {
		u := updateDesc{AsNode: pick(g, d.Nodes).Name, Values: g.values(d)}
		switch k := g.r.IntN(100); {
		case k < 8:
			u.AsNode = ""
		case k < 11:
			u.AsNode = "nobody"
		case k < 15:
			u.AsNode = START
		case k < 20 && len(g.reachable) > 0:
			u.Values = nil
			u.Command = g.command(g.reachable).Command
		case k < 24:
			u.Values = nil
		}
		return u
	}
	s := step{Op: "update"}
	switch k := g.r.IntN(100); {
	case k < 8:
		s.Updates = [][]updateDesc{{{AsNode: "__end__"}}}
	case k < 14:
		s.Updates = [][]updateDesc{{{AsNode: "__input__", Values: json.RawMessage(g.input(d))}}}
	case k < 20:
		s.Updates = [][]updateDesc{{{AsNode: "__copy__"}}}
	case k < 26:
		s.Updates = [][]updateDesc{{{AsNode: "__copy__", Values: raw([]any{[]any{g.values(d), pick(g, d.Nodes).Name}})}}}
	case k < 40:
		s.Updates = [][]updateDesc{{one(), one()}}
	case k < 52:
		s.Updates = [][]updateDesc{{one()}, {one(), one()}, {one()}}[:2+g.r.IntN(2)]
	default:
		s.Updates = [][]updateDesc{{one()}}
	}
	switch {
	case g.chance(20):
		s = s.at(g.r.IntN(6))
	case g.chance(10):
		for _, n := range d.Nodes {
			if n.Subgraph != nil {
				s.NS = &n.Name
				s.Updates = [][]updateDesc{{{AsNode: pick(g, n.Subgraph.Nodes).Name, Values: g.values(*n.Subgraph)}}}
			}
		}
	}
	return s
}

// values are an update of a state.
func (g *generator) values(d graphDesc) json.RawMessage {
	v := map[string]any{"items": []any{"up"}}
	if g.chance(40) {
		v["n"] = g.r.IntN(4)
	}
	if g.chance(20) {
		v["total"] = pick(g, numbers)
	}
	if !d.Typed && g.chance(5) {
		v["total"] = pick(g, anyAdd)
	}
	if g.chance(15) {
		v["extra"] = g.r.IntN(3)
	}
	if g.chance(4) {
		v["items"] = map[string]any{"value": []any{"replaced"}, "type": "__overwrite__"}
	}
	return raw(v)
}

package twin

import (
	"testing"

	"go.uber.org/goleak"
)

// again is a second attempt of the run before.
func (s step) again(with string) step { s.Again = with; return s }

// crash loses all root checkpoints of the run before but the first ones, and the writes on the last of these.
func crash(keep int) step { return step{Op: "crash", Keep: keep, Lose: true} }

func raises(kind, text string) map[string]any { return map[string]any{"raise": kind, "text": text} }

func (n nodeDesc) returns(form string) nodeDesc { n.Returns = form; return n }

func overwrite(key string, v any) op { return op{"do": "overwrite", "key": key, "value": v} }

func (s step) saved(durability string) step { return s.durability(durability).deep() }

var (
	beginning = graphOf(chain("a"), node("a", add("a")), node("b", add("b"), incr("n")))
	extra     = graphOf([][2]any{edge("b", "__end__"), edge("c", "__end__")}, node("b", add("b")), node("c", add("c")))
	endless   = graphOf([][2]any{edge("__start__", "x"), edge("x", "y"), edge("y", "x")}, node("x", incr("n")), node("y", add("y")))
	hanging   = graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b")}, node("a", op{"do": "hang"}), node("b", fail("ValueError", "boom")))
	choosing  = graphOf(chain("a"), node("a", add("a")), node("b")).branch(by("a", "n",
		map[string]any{"1": raises("ValueError", "one"), "2": raises("KeyError", "it's two"), "3": raises("RuntimeError", "three"), "4": "nowhere"}, "b", "b"))
	edgeCases []testCase
)

func init() {
	edgeCases = []testCase{
		{
			Name: "replay of a Command that began the thread", Graph: beginning,
			Steps: []step{command(`{"goto":"b","update":{"n":3}}`), goOn().at(0), goOn().at(1)},
		},
		{
			Name: "replay of a Command with Sends", Graph: beginning,
			Steps: []step{command(`{"goto":[{"node":"b","input":{"n":7}},"b"],"update":{"n":4,"items":["u"]}}`), goOn().at(0), update(`{"n":9}`, "b").at(0)},
		},
		{
			Name: "second attempt of a Command that began the thread", Graph: beginning,
			Steps: []step{command(`{"goto":"b","update":{"n":3}}`), crash(1), command(`{"goto":"b","update":{"n":3}}`).again("input")},
		},
		{
			Name: "a Command that began the thread of a graph with a condition", Graph: extra.branch(by("__start__", "n", map[string]any{"1": "b"}, "c")),
			Steps: []step{command(`{"update":{"n":1,"extra":1}}`), goOn().at(0)},
		},
		{
			Name: "condition from START sees input that is no channel", Graph: extra.branch(by("__start__", "extra", map[string]any{"1": "b"}, "c")),
			Steps: []step{run(`{"n":1,"extra":1}`), run(`{"extra":2}`), goOn().at(0), update(`{"extra":1}`, "__start__"), update(`{"extra":1}`, "__input__"), goOn()},
		},
		{Name: "condition sees managed values", Graph: extra.with(append(channels{{"left", "remaining_steps"}}, state...)).
			branch(by("__start__", "left", map[string]any{"25": "b"}, "c")), Steps: []step{run(`{"n":1}`), run(`{"n":1}`).limit(4), update(`{"n":2}`, "__start__")}},
		{Name: "condition sees what a subgraph returned", Graph: graphOf(chain("s"), sub("s", graphOf(chain("x"), node("x", set("extra", 1))).with(append(channels{{"extra", "last"}}, state...))),
			node("b", add("b")), node("c", add("c"))).branch(by("s", "extra", map[string]any{"1": "b"}, "c")), Steps: []step{run(`{"n":1}`)}},
		{Name: "recursion limit of a subgraph", Graph: graphOf(chain("s"), sub("s", endless)), Steps: []step{run(`{"n":1}`).limit(4), goOn().limit(4)}},
		{Name: "recursion limit below 1", Graph: echo, Steps: []step{run(`{"n":1}`).limit(0), run(`{"n":1}`).limit(-1), run(`{"n":2}`).limit(1)}},
		{Name: "cancelled next to a failure", Graph: hanging, Steps: []step{run(`{"n":1}`)}},
		{Name: "condition that fails after a Command for the parent", Graph: graphOf(chain("s"), sub("s", graphOf(chain("x"), node("x", op{"do": "command", "parent": true, "update": map[string]any{"items": []any{"x"}}}))),
			node("b", add("b"))).branch(by("s", "n", map[string]any{"1": raises("ValueError", "no")}, "b")), Steps: []step{run(`{"n":1}`), goOn()}},
		{Name: "Command for a parent that is not there", Graph: graphOf(chain("a"), node("a", op{"do": "command", "parent": true, "update": map[string]any{"items": []any{"x"}}})), Steps: []step{run(`{"n":1}`)}},
		{Name: "metadata of nodes reach what is nested", Graph: graphOf(chain("s"), nodeDesc{
			Name: "s", Metadata: map[string]any{"outer": 1, "both": 1},
			Subgraph: ptr(graphOf(chain("t"), nodeDesc{Name: "t", Metadata: map[string]any{"inner": 1, "both": 2}, Subgraph: ptr(echo)})),
		}), Steps: []step{run(`{"n":1}`).deep()}},
		{Name: "replay shows where it began in messages", Graph: chat, Steps: []step{run(`{"n":1}`), goOn().at(1).modes("messages-tuple"), goOn().at(1).modes("messages")}},
		{
			Name: "a pending Overwrite", Graph: graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b")}, node("a", overwrite("items", []any{"over"})), node("b", after("a"), ask("answer", 1))),
			Steps: []step{run(`{"items":["in"]}`), command(`{"resume":1}`)},
		},
	}
	edgeCases = append(edgeCases, testCase{
		Name: "a run that cannot begin, with durability exit", Graph: graphOf(chain("a", "b"), node("a", overwrite("items", 5)), node("b", ask("answer", 1))),
		Steps: []step{run(`{"n":1}`), command(`{"resume":"yes","update":{"items":["u"]}}`).durability("exit"), command(`{"resume":"yes"}`)},
	})
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		edgeCases = append(edgeCases, testCase{Name: "condition that fails in an update, " + n, Graph: choosing, Steps: []step{update(`{"n":`+n+`}`, "a")}})
	}
	for _, form := range []string{"values", "raw", "struct"} {
		g := graphOf(chain("a"), node("a", set("items", []any{"a"}), set("extra", 1)).returns(form), node("b", add("b")), node("c", add("c")))
		edgeCases = append(edgeCases, testCase{Name: "condition sees what a node returned as " + form, Graph: g.branch(by("a", "extra", map[string]any{"1": "b"}, "c")), Steps: []step{run(`{"n":1}`)}})
	}
	for _, durability := range []string{"async", "sync", "exit"} {
		for _, c := range edgeCases[:len(edgeCases):len(edgeCases)] {
			if c.Name != "recursion limit of a subgraph" && c.Name != "cancelled next to a failure" {
				continue
			}
			c.Name += ", " + durability
			steps := make([]step, len(c.Steps))
			for i, s := range c.Steps {
				steps[i] = s.saved(durability)
			}
			c.Steps = steps
			edgeCases = append(edgeCases, c)
		}
	}
	// What + does with values of other types, and what it says of those that it does not add.
	some := []any{true, false, 2, 1.5, "x", []any{1}, map[string]any{"k": 1}, nil}
	for _, first := range some {
		for _, then := range some {
			g := graphOf(chain("a", "b"), node("a", overwrite("total", first)), node("b", set("total", then)))
			edgeCases = append(edgeCases, testCase{Name: "add " + string(raw(first)) + " and " + string(raw(then)), Graph: g, Steps: []step{run(`{"n":1}`).modes("values")}})
		}
	}
}

func ptr(d graphDesc) *graphDesc { return &d }

// Cases at the edges of the semantics, where the engine once differed, show the same in LangGraph and here.
func TestEdgeCases(t *testing.T) {
	p := twinOf(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, c := range edgeCases {
		t.Run(c.Name, func(t *testing.T) { compare(t, p, c) })
	}
}

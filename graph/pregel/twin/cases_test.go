package twin

func yes(b bool) *bool { return &b }

// state is what most cases have.
var state = channels{{"n", "last"}, {"items", "append"}, {"total", "add"}, {"answer", "last"}, {"topics", "last"}}

func graphOf(edges [][2]any, nodes ...nodeDesc) graphDesc {
	return graphDesc{Channels: state, Nodes: nodes, Edges: edges}
}

func (g graphDesc) with(c channels) graphDesc { g.Channels = c; return g }

func (g graphDesc) branch(b ...branchDesc) graphDesc { g.Branches = append(g.Branches, b...); return g }

func (g graphDesc) stops(before, after any) graphDesc { g.Before, g.After = before, after; return g }

func (g graphDesc) keeps(b bool) graphDesc { g.Checkpointer = &b; return g }

func (g graphDesc) takes(in, out []string) graphDesc { g.Input, g.Output = in, out; return g }

func (g graphDesc) calling(name string, sub graphDesc) graphDesc {
	g.Graphs = map[string]graphDesc{name: sub}
	return g
}

var (
	echo     = graphOf(chain("a"), node("a", incr("n")))
	twoSteps = graphOf(chain("a", "b"), node("a", add("a"), incr("n")), node("b", add("b"), incr("n")))
	asking   = graphOf(chain("a", "b", "c"), node("a", add("a")), node("b", ask("answer", map[string]any{"q": 1}), add("b")), node("c", add("c"), from("n", "answer")))
	parallel = graphOf([][2]any{edge("__start__", "a"), edge("a", "b"), edge("a", "c"), edge([]string{"b", "c"}, "d"), edge("d", "__end__")},
		node("a", add("a")), node("b", add("b"), set("n", 1)), node("c", add("c"), after("b")), node("d", add("d")))
	fanned = graphOf([][2]any{edge("__start__", "plan"), edge("work", "done"), edge("done", "__end__")},
		node("plan", add("plan")), node("work", from("items", "topic"), incr("total")), node("done", keys())).
		with(append(channels{}, append(state, [2]string{"topic", "last"})...)).branch(fan("plan", "topics", "work", "topic"))
	child  = graphOf(chain("x", "y"), node("x", add("x"), incr("n")), node("y", add("y")))
	nested = graphOf(chain("before", "sub", "after"), node("before", add("before")), sub("sub", child), node("after", add("after")))
	deep   = graphOf(chain("p", "mid", "q"), node("p", add("p")), sub("mid", graphOf(chain("leaf", "m"), sub("leaf",
		graphOf(chain("l1", "l2"), node("l1", add("l1")), node("l2", ask("answer", "leaf?"), add("l2")))), node("m", add("m")))), node("q", add("q")))
	askingChild = graphOf(chain("before", "sub", "after"), node("before", add("before")),
		sub("sub", graphOf(chain("x", "y"), node("x", add("x")), node("y", ask("answer", "ok?"), add("y")))), node("after", add("after")))
	chat = graphOf(chain("a", "b"), node("a", say("ai", "hello", "a1")), node("b", say("ai", "again", "a2"), say("tool", "t", "t1"))).
		with(channels{{"messages", "messages"}, {"n", "last"}})
	loop = graphOf([][2]any{edge("__start__", "a"), edge("b", "__end__")}, node("a", incr("n"), add("a")), node("b", add("b"))).
		branch(by("a", "n", map[string]any{"1": "a", "2": "a"}, "b", "a", "b"))
	twoAsk = graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b"), edge("a", "c"), edge("b", "c")},
		node("a", ask("n", "a?"), add("a")), node("b", ask("answer", "b?"), add("b")), node("c", add("c")))
)

var cases = []testCase{
	{Name: "echo", Graph: echo, Steps: []step{run(`{"n":1}`)}},
	{Name: "two turns", Graph: echo, Steps: []step{run(`{"n":1}`), run(`{"n":5}`), run(`{"n":7}`)}},
	{Name: "steps", Graph: twoSteps, Steps: []step{run(`{"n":1,"items":["in"]}`)}},
	{Name: "no input", Graph: echo, Steps: []step{goOn()}},
	{Name: "go on at the end", Graph: echo, Steps: []step{run(`{"n":1}`), goOn()}},
	{Name: "unknown keys", Graph: echo, Steps: []step{run(`{"n":1,"other":2}`)}},
	{Name: "no keys", Graph: echo, Steps: []step{run(`{}`)}},
	{Name: "only unknown keys", Graph: echo, Steps: []step{run(`{"other":2}`)}},
	{
		Name: "values of all kinds", Graph: graphOf(chain("a"), node("a", set("n", map[string]any{"f": 1.5, "b": true, "z": nil, "l": []any{1, "x", []any{}}, "t": "é☃"}))),
		Steps: []step{run(`{"n":[1,2.5,"x",null,true,{"k":1.0}]}`)},
	},
	{
		Name: "an lc key", Graph: graphOf(chain("a"), node("a", from("answer", "n"), set("topics", map[string]any{"lc": 1, "type": "constructor", "id": []any{"a"}, "kwargs": map[string]any{}}))),
		Steps: []step{run(`{"n":{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"x"}}}`)},
	},
	{Name: "loop", Graph: loop, Steps: []step{run(`{"n":0}`)}},
	{Name: "recursion limit", Graph: loop.branch(), Steps: []step{run(`{"n":-10}`).limit(3), goOn()}},
	{
		Name: "endless", Graph: graphOf([][2]any{edge("__start__", "a"), edge("a", "b"), edge("b", "a")}, node("a", incr("n")), node("b", add("b"))),
		Steps: []step{run(`{"n":0}`).limit(4), goOn().limit(3)},
	},
	{Name: "parallel and join", Graph: parallel, Steps: []step{run(`{}`), run(`{"n":3}`)}},
	{
		Name: "parallel conflict", Graph: graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b")}, node("a", set("n", 1)), node("b", set("n", 2))),
		Steps: []step{run(`{"items":["x"]}`), goOn()},
	},
	{Name: "fan out", Graph: fanned, Steps: []step{run(`{"topics":[["a"],["b"],["c"]]}`)}},
	{Name: "fan out to nobody", Graph: fanned, Steps: []step{run(`{"topics":[]}`)}},
	{Name: "fan out twice", Graph: fanned, Steps: []step{run(`{"topics":[["a"],["b"]]}`), run(`{"topics":[["c"]]}`)}},
	{Name: "interrupt", Graph: asking, Steps: []step{run(`{"n":1}`), command(`{"resume":"yes"}`)}},
	{Name: "interrupt, resume by id is a map", Graph: asking, Steps: []step{run(`{"n":1}`), command(`{"resume":{"a":1}}`)}},
	{Name: "interrupt, resume false and zero", Graph: asking, Steps: []step{run(`{"n":1}`), command(`{"resume":false}`)}},
	{Name: "interrupt, resume an empty map", Graph: asking, Steps: []step{run(`{"n":1}`), command(`{"resume":{}}`)}},
	{Name: "interrupt, go on without an answer", Graph: asking, Steps: []step{run(`{"n":1}`), goOn(), command(`{"resume":1}`)}},
	{Name: "interrupt, new input", Graph: asking, Steps: []step{run(`{"n":1}`), run(`{"n":2}`), command(`{"resume":2}`)}},
	{Name: "interrupt, resume with update", Graph: asking, Steps: []step{run(`{"n":1}`), command(`{"resume":2,"update":{"items":["u"],"n":9}}`)}},
	{Name: "interrupt, resume with goto", Graph: asking, Steps: []step{run(`{"n":1}`), command(`{"resume":2,"goto":"c"}`)}},
	{
		Name: "interrupt twice in a node", Graph: graphOf(chain("a"), node("a", ask("n", 1), ask("answer", 2), add("a"))),
		Steps: []step{run(`{"n":1}`), command(`{"resume":"one"}`), command(`{"resume":"two"}`)},
	},
	{Name: "interrupts of two nodes", Graph: twoAsk, Steps: []step{run(`{}`), command(`{"resume":"x"}`)}},
	{Name: "interrupts of two nodes, by id", Graph: twoAsk, Steps: []step{run(`{}`), command(`{"resume":{"$ask a":"A"}}`), command(`{"resume":{"$ask b":"B"}}`)}},
	{Name: "interrupts of two nodes, both by id", Graph: twoAsk, Steps: []step{run(`{}`), command(`{"resume":{"$ask b":"B","$ask a":"A"}}`)}},
	{Name: "interrupts of two nodes, by id, then by order", Graph: twoAsk, Steps: []step{run(`{}`), command(`{"resume":{"$ask a":"A"}}`), command(`{"resume":"B"}`)}},
	{Name: "interrupt by an id that is nobody's", Graph: asking, Steps: []step{run(`{}`), command(`{"resume":{"0123456789abcdef0123456789abcdef":"A"}}`), command(`{"resume":"B"}`)}},
	{
		Name: "two interrupts in a node, by id", Graph: graphOf(chain("a"), node("a", ask("n", 1), ask("answer", 2), add("a"))),
		Steps: []step{run(`{"n":1}`), command(`{"resume":{"$ask a":"one"}}`), command(`{"resume":{"$ask a":"two"}}`)},
	},
	{
		Name: "an interrupt beside a finished node", Graph: graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b"), edge("a", "c"), edge("b", "c")},
			node("a", add("a"), incr("total")), node("b", after("a"), ask("answer", "b?"), add("b")), node("c", add("c"))),
		Steps: []step{run(`{}`), goOn(), command(`{"resume":"x"}`)},
	},
	{
		Name: "interrupt of a node that a Send runs", Graph: graphOf([][2]any{edge("__start__", "plan")}, node("plan"), node("w", ask("answer", "w?"), from("items", "t"))).
			with(append(channels{}, append(state, [2]string{"t", "last"})...)).branch(fan("plan", "topics", "w", "t")),
		Steps: []step{run(`{"topics":[["x"]]}`), command(`{"resume":"ok"}`)},
	},
	{Name: "breakpoint before", Graph: twoSteps.stops([]string{"b"}, nil), Steps: []step{run(`{"n":1}`), goOn(), run(`{"n":2}`), goOn()}},
	{Name: "breakpoint after", Graph: twoSteps.stops(nil, []string{"a"}), Steps: []step{run(`{"n":1}`), goOn()}},
	{Name: "breakpoint before all", Graph: twoSteps.stops("*", nil), Steps: []step{run(`{"n":1}`), goOn(), goOn(), goOn()}},
	{Name: "breakpoint after all", Graph: twoSteps.stops(nil, "*"), Steps: []step{run(`{"n":1}`), goOn(), goOn()}},
	{Name: "breakpoint of the run", Graph: twoSteps, Steps: []step{run(`{"n":1}`).before([]string{"b"}), goOn().after([]string{"b"}), goOn()}},
	{Name: "breakpoint, input again", Graph: twoSteps.stops([]string{"b"}, nil), Steps: []step{run(`{"n":1}`), run(`{"n":5}`)}},
	{Name: "failure", Graph: graphOf(chain("a", "b"), node("a", add("a")), node("b", fail("ValueError", "boom"))), Steps: []step{run(`{"n":1}`), goOn()}},
	{Name: "failure of a kind with a repr", Graph: graphOf(chain("a"), node("a", fail("KeyError", "it's"))), Steps: []step{run(`{"n":1}`)}},
	{Name: "failure once", Graph: graphOf(chain("a", "b"), node("a", add("a")), node("b", failTimes(1, "ValueError", "boom"), add("b"))), Steps: []step{run(`{"n":1}`), goOn()}},
	{
		Name: "failure once beside a finished node", Graph: graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b"), edge([]string{"a", "b"}, "c")},
			node("a", add("a"), incr("total")), node("b", after("a"), failTimes(1, "ValueError", "boom"), add("b")), node("c", add("c"))),
		Steps: []step{run(`{}`), goOn()},
	},
	{Name: "failure beside a node that hangs", Graph: graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b")},
		node("a", op{"do": "hang"}), node("b", fail("ValueError", "boom"))), Steps: []step{run(`{}`)}},
	{
		Name: "retry", Graph: graphOf(chain("a"), nodeDesc{Name: "a", Ops: []op{failTimes(2, "ValueError", "again"), add("a")}, Retry: &retryDesc{Max: 3, On: []string{"ValueError"}}}),
		Steps: []step{run(`{}`)},
	},
	{
		Name: "retry in vain", Graph: graphOf(chain("a"), nodeDesc{Name: "a", Ops: []op{fail("ValueError", "again")}, Retry: &retryDesc{Max: 2, On: []string{"ValueError"}}}),
		Steps: []step{run(`{}`)},
	},
	{
		Name: "retry of another error", Graph: graphOf(chain("a"), nodeDesc{Name: "a", Ops: []op{failTimes(1, "RuntimeError", "no")}, Retry: &retryDesc{Max: 2, On: []string{"ValueError"}}}),
		Steps: []step{run(`{}`), goOn()},
	},
	{Name: "a bad return", Graph: graphOf(chain("a"), node("a", op{"do": "bad", "value": "text"})), Steps: []step{run(`{"n":1}`)}},
	{Name: "a node without update", Graph: graphOf(chain("a", "b"), node("a"), node("b", add("b"))), Steps: []step{run(`{"n":1}`)}},
	{Name: "command", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", cmd(map[string]any{"n": 5}, "c")), node("b", add("b")), node("c", add("c"))), Steps: []step{run(`{"n":1}`)}},
	{
		Name: "command to several, and END", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", cmd(map[string]any{"n": 5}, "b", "c", "__end__")), node("b", add("b")), node("c", add("c"))),
		Steps: []step{run(`{"n":1}`)},
	},
	{
		Name: "command with sends", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", cmd(nil, send("b", map[string]any{"n": 1}), "c", send("b", map[string]any{"n": 2}))), node("b", from("items", "topics"), from("answer", "n"), keys()), node("c", add("c"))),
		Steps: []step{run(`{"n":1}`)},
	},
	{
		Name: "several commands", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", cmd(map[string]any{"n": 5}, "b"), cmd(map[string]any{"answer": 6}, "c"), add("a")), node("b", add("b")), node("c", add("c"))),
		Steps: []step{run(`{"n":1}`)},
	},
	{Name: "command and an edge", Graph: graphOf(chain("a", "b"), node("a", cmd(map[string]any{"n": 5}, "c")), node("b", add("b")), node("c", add("c"))), Steps: []step{run(`{"n":1}`)}},
	{Name: "command of the run", Graph: twoSteps, Steps: []step{run(`{"n":1}`), command(`{"goto":"b"}`), command(`{"update":{"n":10,"items":["u"]}}`), command(`{"goto":["a",{"node":"b","input":{"n":3}}],"update":[["n",4]]}`)}},
	{Name: "command on an empty thread", Graph: twoSteps, Steps: []step{command(`{"goto":"b"}`), command(`{"resume":1}`)}},
	{Name: "command on an empty thread, that updates", Graph: graphOf(chain("a"), node("a", add("a")), node("b", add("b"))), Steps: []step{command(`{"goto":"b","update":{"n":3}}`)}},
	{Name: "command on an empty thread, with a send", Graph: graphOf(chain("a"), node("a", add("a")), node("b", keys())), Steps: []step{command(`{"goto":[{"node":"b","input":{"n":3}}]}`)}},
	{
		Name: "condition from START", Graph: graphOf([][2]any{edge("b", "__end__")}, node("a", add("a")), node("b", add("b"))).branch(by("__start__", "n", map[string]any{"1": "a"}, "b")),
		Steps: []step{run(`{"n":1}`), run(`{"n":2}`)},
	},
	{Name: "condition to a bad node", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", add("a")), node("b")).branch(by("a", "n", map[string]any{}, "nowhere")), Steps: []step{run(`{"n":1}`)}},
	{Name: "condition outside of its map", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", add("a")), node("b"), node("c")).branch(by("a", "n", map[string]any{}, "c", "b")), Steps: []step{run(`{"n":1}`)}},
	{Name: "condition to several", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", add("a")), node("b", add("b")), node("c", add("c"), after("b"))).
		branch(branchDesc{From: "a", Rule: rule{Kind: "const", To: []any{"b", "c"}}}), Steps: []step{run(`{"n":1}`)}},
	{Name: "condition sees what was written", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", set("n", 7)), node("b", add("b")), node("c", add("c"))).
		branch(by("a", "n", map[string]any{"7": "b"}, "c")), Steps: []step{run(`{"n":1}`)}},
	{Name: "two conditions", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", set("n", 7)), node("b", add("b")), node("c", add("c"), after("b"))).
		branch(by("a", "n", map[string]any{}, "b"), by("a", "n", map[string]any{}, "c")), Steps: []step{run(`{"n":1}`)}},
	{Name: "deferred", Graph: graphOf([][2]any{edge("__start__", "a"), edge("a", "b"), edge("a", "d"), edge("b", "c"), edge("c", "d"), edge("d", "__end__")},
		node("a", add("a")), node("b", add("b")), node("c", add("c")), nodeDesc{Name: "d", Defer: true, Ops: []op{add("d")}}), Steps: []step{run(`{"n":1}`)}},
	{Name: "deferred join", Graph: graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b"), edge("b", "c"), edge([]string{"a", "b"}, "d")},
		node("a", add("a")), node("b", add("b"), after("a")), node("c", add("c")), nodeDesc{Name: "d", Defer: true, Ops: []op{add("d")}}), Steps: []step{run(`{"n":1}`)}},
	{Name: "channels", Graph: graphOf(chain("a", "b", "c"), node("a", set("e", 1), set("t", "x"), set("ta", "x"), set("u", "secret")), node("b", keys(), set("ta", []any{"y", "z"})), node("c", keys())).
		with(channels{{"items", "append"}, {"e", "ephemeral"}, {"t", "topic"}, {"ta", "topic_all"}, {"u", "untracked"}}), Steps: []step{run(`{"e":5,"items":["i"]}`), run(`{"t":"i"}`)}},
	{Name: "untracked in a send", Graph: graphOf([][2]any{edge("__start__", "a")}, node("a", set("u", 1), cmd(nil, send("b", map[string]any{"u": 2, "n": 3}))), node("b", keys())).
		with(channels{{"items", "append"}, {"n", "last"}, {"u", "untracked"}}), Steps: []step{run(`{"n":1}`)}},
	{Name: "managed values", Graph: graphOf(chain("a", "b"), node("a", from("answer", "left"), from("items", "topics"), keys()), node("b", from("n", "last"), from("topics", "left"))).
		with(append(channels{}, append(state, [2]string{"left", "remaining_steps"}, [2]string{"last", "is_last_step"})...)), Steps: []step{run(`{"topics":[1]}`).limit(2)}},
	{Name: "overwrite", Graph: graphOf(chain("a", "b"), node("a", op{"do": "overwrite", "key": "items", "value": []any{"o"}}), node("b", add("b"))), Steps: []step{run(`{"items":["x","y"]}`), run(`{"items":{"__overwrite__":["z"]}}`)}},
	{
		Name: "overwrite twice in a step", Graph: graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b")}, node("a", op{"do": "overwrite", "key": "items", "value": []any{"o"}}), node("b", op{"do": "overwrite", "key": "items", "value": []any{"p"}})),
		Steps: []step{run(`{"items":["x","y"]}`)},
	},
	{Name: "reducer of the wrong type", Graph: graphOf(chain("a"), node("a", set("items", 5))), Steps: []step{run(`{"n":1}`)}},
	{Name: "messages", Graph: chat, Steps: []step{run(`{"messages":[{"role":"user","content":"hi","id":"h1"}]}`), run(`{"messages":[{"type":"human","content":"more","id":"h2"},{"type":"ai","content":"changed","id":"a1"}]}`)}},
	{
		Name: "messages, removed", Graph: graphOf(chain("a"), node("a", op{"do": "remove", "id": "h1"}, say("ai", "bye", "a1"))).with(channels{{"messages", "messages"}}),
		Steps: []step{run(`{"messages":[{"role":"user","content":"hi","id":"h1"},{"role":"user","content":"ho","id":"h2"}]}`)},
	},
	{
		Name: "messages, all removed", Graph: graphOf(chain("a"), node("a", op{"do": "remove", "id": "__remove_all__"}, say("ai", "bye", "a1"))).with(channels{{"messages", "messages"}}),
		Steps: []step{run(`{"messages":[{"role":"user","content":"hi","id":"h1"},{"role":"user","content":"ho","id":"h2"}]}`)},
	},
	{
		Name: "messages, an unknown one removed", Graph: graphOf(chain("a"), node("a", op{"do": "remove", "id": "nobody"})).with(channels{{"messages", "messages"}}),
		Steps: []step{run(`{"messages":[{"role":"user","content":"hi","id":"h1"}]}`)},
	},
	{Name: "messages modes", Graph: chat, Steps: []step{run(`{"messages":[{"role":"user","content":"hi","id":"h1"}]}`).modes("messages"), run(`{"messages":[{"role":"user","content":"hi","id":"h3"}]}`).modes("messages", "values")}},
	{Name: "subgraph", Graph: nested, Steps: []step{run(`{"n":1}`), run(`{"n":2}`)}},
	{Name: "subgraph, its events", Graph: nested, Steps: []step{run(`{"n":1}`).deep()}},
	{Name: "subgraph that asks", Graph: askingChild, Steps: []step{run(`{"n":1}`), command(`{"resume":"yes"}`)}},
	{Name: "subgraph that asks, its events", Graph: askingChild, Steps: []step{run(`{"n":1}`).deep(), command(`{"resume":"yes"}`).deep()}},
	{Name: "subgraphs in subgraphs", Graph: deep, Steps: []step{run(`{"n":1}`).deep(), command(`{"resume":"yes"}`).deep(), run(`{"n":3}`), command(`{"resume":"no"}`)}},
	{
		Name: "subgraph with breakpoints", Graph: graphOf(chain("before", "sub", "after"), node("before", add("before")), sub("sub", child.stops([]string{"y"}, nil)), node("after", add("after"))),
		Steps: []step{run(`{"n":1}`), goOn(), run(`{"n":2}`)},
	},
	{
		Name: "subgraph that fails", Graph: graphOf(chain("sub"), sub("sub", graphOf(chain("x", "y"), node("x", add("x")), node("y", failTimes(1, "ValueError", "inner"), add("y"))))),
		Steps: []step{run(`{"n":1}`), goOn()},
	},
	{Name: "subgraph with its history", Graph: graphOf(chain("sub"), sub("sub", child.keeps(true))), Steps: []step{run(`{"n":1}`), run(`{"n":5}`)}},
	{Name: "subgraph without checkpoints", Graph: graphOf(chain("sub"), sub("sub", child.keeps(false))), Steps: []step{run(`{"n":1}`).deep(), run(`{"n":5}`)}},
	{
		Name: "subgraph without checkpoints that asks", Graph: graphOf(chain("sub"), sub("sub", graphOf(chain("x", "y"), node("x", add("x")), node("y", ask("answer", "ok?"))).keeps(false))),
		Steps: []step{run(`{"n":1}`), command(`{"resume":"yes"}`)},
	},
	{
		Name: "subgraph with its history that asks", Graph: graphOf(chain("sub"), sub("sub", graphOf(chain("x", "y"), node("x", add("x")), node("y", ask("answer", "ok?"))).keeps(true))),
		Steps: []step{run(`{"n":1}`), command(`{"resume":"yes"}`), run(`{"n":2}`), command(`{"resume":"no"}`)},
	},
	{Name: "subgraph with input and output", Graph: graphOf(chain("sub", "z"), sub("sub", child.takes([]string{"n"}, []string{"items"})), node("z", keys())), Steps: []step{run(`{"n":1,"items":["i"],"answer":3}`)}},
	{Name: "graph with input and output", Graph: twoSteps.takes([]string{"n"}, []string{"items"}), Steps: []step{run(`{"n":1,"items":["i"]}`)}},
	{Name: "subgraph that is called", Graph: graphOf(chain("a"), node("a", op{"do": "call", "graph": "g", "key": "answer", "value": map[string]any{"n": 4}})).calling("g", child), Steps: []step{run(`{"n":1}`).deep()}},
	{Name: "subgraph that is called, and asks", Graph: graphOf(chain("a"), node("a", op{"do": "call", "graph": "g", "key": "answer", "value": map[string]any{"n": 4}})).
		calling("g", graphOf(chain("x"), node("x", ask("n", "g?"), add("x")))), Steps: []step{run(`{"n":1}`), command(`{"resume":"yes"}`)}},
	{Name: "subgraph called twice", Graph: graphOf(chain("a"), node("a", op{"do": "call", "graph": "g", "key": "answer", "value": map[string]any{"n": 4}}, op{"do": "call", "graph": "g", "key": "n", "value": map[string]any{"n": 5}})).
		calling("g", child), Steps: []step{run(`{"n":1}`).deep()}},
	{
		Name: "command for the parent", Graph: graphOf([][2]any{edge("__start__", "sub")}, sub("sub", graphOf(chain("x"), node("x", op{"do": "command", "parent": true, "update": map[string]any{"n": 5}, "goto": []any{"b"}}))), node("b", add("b")), node("c", add("c"))),
		Steps: []step{run(`{"n":1}`)},
	},
	{Name: "command for a parent that is not there", Graph: graphOf(chain("x"), node("x", op{"do": "command", "parent": true, "goto": []any{"b"}})), Steps: []step{run(`{"n":1}`)}},
	{Name: "exit", Graph: twoSteps, Steps: []step{run(`{"n":1}`).durability("exit"), run(`{"n":2}`).durability("exit")}},
	{Name: "exit, interrupt", Graph: asking, Steps: []step{run(`{"n":1}`).durability("exit"), command(`{"resume":"x"}`).durability("exit")}},
	{Name: "exit, failure", Graph: graphOf(chain("a", "b"), node("a", add("a")), node("b", failTimes(1, "ValueError", "boom"), add("b"))), Steps: []step{run(`{"n":1}`).durability("exit"), goOn().durability("exit")}},
	{Name: "exit, subgraph that asks", Graph: askingChild, Steps: []step{run(`{"n":1}`).durability("exit"), command(`{"resume":"yes"}`).durability("exit")}},
	{Name: "exit, subgraph with its history", Graph: graphOf(chain("sub"), sub("sub", child.keeps(true))), Steps: []step{run(`{"n":1}`).durability("exit"), run(`{"n":5}`).durability("exit")}},
	{Name: "sync", Graph: asking, Steps: []step{run(`{"n":1}`).durability("sync"), command(`{"resume":"x"}`).durability("sync")}},
	{Name: "replay", Graph: twoSteps, Steps: []step{run(`{"n":1}`), goOn().at(2), goOn().at(1)}},
	{Name: "replay of an interrupt", Graph: asking, Steps: []step{run(`{"n":1}`), command(`{"resume":"one"}`), goOn().at(2), command(`{"resume":"two"}`), command(`{"resume":"three"}`).at(2)}},
	{Name: "replay with input", Graph: twoSteps, Steps: []step{run(`{"n":1}`), step{Op: "run", Input: []byte(`{"n":50}`), Modes: allModes}.at(2)}},
	{Name: "replay with a subgraph", Graph: askingChild, Steps: []step{run(`{"n":1}`), command(`{"resume":"one"}`), goOn().at(2), command(`{"resume":"two"}`)}},
	{Name: "resume at the head by its id", Graph: asking, Steps: []step{run(`{"n":1}`), command(`{"resume":"one"}`).at(2)}},
	{Name: "fork by update", Graph: twoSteps, Steps: []step{run(`{"n":1}`), update(`{"n":100}`, "a").at(2), goOn(), goOn().at(2)}},
	{Name: "update", Graph: twoSteps, Steps: []step{update(`{"n":5,"items":["u"]}`, "a"), goOn()}},
	{Name: "update without node", Graph: twoSteps, Steps: []step{run(`{"n":1}`), update(`{"n":5}`, ""), goOn()}},
	{Name: "update on an empty thread without node", Graph: twoSteps, Steps: []step{update(`{"n":5}`, ""), goOn()}},
	{Name: "update of an unknown node", Graph: twoSteps, Steps: []step{run(`{"n":1}`), update(`{"n":5}`, "nobody")}},
	{Name: "update of nothing", Graph: twoSteps, Steps: []step{run(`{"n":1}`).before([]string{"b"}), update("", "b"), goOn()}},
	{Name: "update as END", Graph: twoSteps, Steps: []step{run(`{"n":1}`).before([]string{"b"}), update("", "__end__"), goOn()}},
	{
		Name: "update as END beside finished nodes", Graph: graphOf([][2]any{edge("__start__", "a"), edge("__start__", "b")}, node("a", add("a")), node("b", after("a"), ask("answer", 1))),
		Steps: []step{run(`{"n":1}`), update("", "__end__"), goOn()},
	},
	{Name: "update as input", Graph: twoSteps, Steps: []step{update(`{"n":5}`, "__input__"), goOn(), update(`{"n":8}`, "__input__"), goOn()}},
	{Name: "copy", Graph: twoSteps, Steps: []step{run(`{"n":1}`), update("", "__copy__").at(2), goOn()}},
	{Name: "copy and update", Graph: twoSteps, Steps: []step{run(`{"n":1}`), update(`[[{"n":77},"a"]]`, "__copy__").at(1), goOn()}},
	{Name: "copy of nothing", Graph: twoSteps, Steps: []step{update("", "__copy__")}},
	{Name: "several updates", Graph: parallel, Steps: []step{run(`{}`).before([]string{"b", "c"}), {Op: "update", Updates: [][]updateDesc{{{Values: []byte(`{"items":["B"]}`), AsNode: "b"}, {Values: []byte(`{"items":["C"]}`), AsNode: "c"}}}}, goOn()}},
	{Name: "several updates without nodes", Graph: parallel, Steps: []step{run(`{}`), {Op: "update", Updates: [][]updateDesc{{{Values: []byte(`{"items":["B"]}`)}, {Values: []byte(`{"items":["C"]}`)}}}}}},
	{Name: "several supersteps of updates", Graph: twoSteps, Steps: []step{{Op: "update", Updates: [][]updateDesc{{{Values: []byte(`{"n":1}`), AsNode: "__input__"}}, {{Values: []byte(`{"n":2}`), AsNode: "a"}}, {{Values: []byte(`{"n":3}`), AsNode: "b"}}}}, goOn()}},
	{Name: "update by a command", Graph: twoSteps, Steps: []step{run(`{"n":1}`), {Op: "update", Updates: [][]updateDesc{{{Command: []byte(`{"update":{"n":9},"goto":["a"]}`), AsNode: "b"}}}}, goOn()}},
	{Name: "update at an interrupt", Graph: asking, Steps: []step{run(`{"n":1}`), update(`{"n":5}`, "a"), command(`{"resume":"x"}`)}},
	{Name: "update as the node that asks", Graph: asking, Steps: []step{run(`{"n":1}`), update(`{"answer":"instead"}`, "b"), goOn()}},
	{Name: "update of a subgraph", Graph: askingChild, Steps: []step{run(`{"n":1}`), update(`{"items":["u"]}`, "x").in("sub"), command(`{"resume":"x"}`)}},
	{Name: "update of messages", Graph: chat, Steps: []step{run(`{"messages":[{"role":"user","content":"hi","id":"h1"}]}`), update(`{"messages":[{"type":"remove","id":"h1","content":""},{"role":"user","content":"new","id":"h9"}]}`, "a")}},
	{Name: "update through a condition", Graph: loop, Steps: []step{run(`{"n":0}`), update(`{"n":1}`, "a"), goOn()}},
	{Name: "functional", Graph: graphDesc{Functional: &functionalDesc{
		Name: "main", Return: "y", Ops: []op{{"do": "task", "name": "double", "arg": "in", "to": "x"}, {"do": "task", "name": "double", "arg": "x", "to": "y"}},
		Tasks: map[string]taskDesc{"double": {Ops: []op{{"do": "double"}}}},
	}}, Steps: []step{run(`4`), run(`5`)}},
	{Name: "functional, parallel", Graph: graphDesc{Functional: &functionalDesc{
		Name: "main", Return: "y", Ops: []op{{"do": "parallel", "name": "double", "arg": "in", "to": "y"}},
		Tasks: map[string]taskDesc{"double": {Ops: []op{{"do": "double"}}}},
	}}, Steps: []step{run(`[1,2,3]`)}},
	{Name: "functional, saved", Graph: graphDesc{Functional: &functionalDesc{
		Name: "main", Return: "prev", Save: "x", Ops: []op{{"do": "task", "name": "double", "arg": "in", "to": "x"}},
		Tasks: map[string]taskDesc{"double": {Ops: []op{{"do": "double"}}}},
	}}, Steps: []step{run(`4`), run(`5`)}},
	{Name: "functional, interrupt", Graph: graphDesc{Functional: &functionalDesc{
		Name: "main", Return: "y", Ops: []op{{"do": "task", "name": "double", "arg": "in", "to": "x"}, {"do": "interrupt", "value": "go?", "to": "y"}},
		Tasks: map[string]taskDesc{"double": {Ops: []op{{"do": "double"}}}},
	}}, Steps: []step{run(`4`), command(`{"resume":"yes"}`)}},
	{Name: "functional, a task that asks", Graph: graphDesc{Functional: &functionalDesc{
		Name: "main", Return: "y", Ops: []op{{"do": "task", "name": "double", "arg": "in", "to": "x"}, {"do": "task", "name": "asking", "arg": "x", "to": "y"}},
		Tasks: map[string]taskDesc{"double": {Ops: []op{{"do": "double"}}}, "asking": {Ops: []op{{"do": "interrupt", "value": "go?"}}}},
	}}, Steps: []step{run(`4`), command(`{"resume":"yes"}`)}},
	{Name: "functional, failure", Graph: graphDesc{Functional: &functionalDesc{
		Name: "main", Return: "y", Ops: []op{{"do": "task", "name": "double", "arg": "in", "to": "x"}, {"do": "task", "name": "bad", "arg": "x", "to": "y"}},
		Tasks: map[string]taskDesc{"double": {Ops: []op{{"do": "double"}}}, "bad": {Ops: []op{{"do": "fail", "text": "oh", "times": 1}, {"do": "double"}}}},
	}}, Steps: []step{run(`4`), goOn()}},
	{Name: "cache", Graph: graphOf(chain("a"), nodeDesc{Name: "a", Cache: true, Ops: []op{failTimes(0, "ValueError", ""), add("a"), incr("total")}}), Steps: []step{run(`{"n":1}`), run(`{"n":1}`)}},
	{Name: "node metadata", Graph: graphOf(chain("a"), nodeDesc{Name: "a", Metadata: map[string]any{"who": "me"}, Ops: []op{add("a")}}), Steps: []step{run(`{"n":1}`)}},
	{Name: "custom", Graph: graphOf(chain("a", "sub"), node("a", emit(map[string]any{"p": 1}), emit("text")), sub("sub", graphOf(chain("x"), node("x", emit("inner"), add("x"))))), Steps: []step{run(`{"n":1}`), run(`{"n":1}`).deep()}},
	{Name: "debug", Graph: nested, Steps: []step{run(`{"n":1}`).modes("debug"), run(`{"n":1}`).modes("debug").deep()}},
	{Name: "debug of an interrupt and a failure", Graph: asking, Steps: []step{run(`{"n":1}`).modes("debug", "values"), command(`{"resume":1}`).modes("debug")}},
	{Name: "without checkpointer", Graph: nested, Saver: yes(false), Steps: []step{run(`{"n":1}`).deep()}},
	{Name: "without checkpointer, interrupt", Graph: asking, Saver: yes(false), Steps: []step{run(`{"n":1}`), command(`{"resume":1}`)}},
	{Name: "compile: unknown node", Graph: graphOf(chain("a", "b"), node("a")), Steps: []step{run(`{}`)}},
	{Name: "compile: no entry", Graph: graphOf([][2]any{edge("a", "__end__")}, node("a")), Steps: []step{run(`{}`)}},
	{Name: "compile: twice the same node", Graph: graphOf(chain("a"), node("a"), node("a")), Steps: []step{run(`{}`)}},
	{Name: "compile: a reserved character", Graph: graphOf(chain("a|b"), node("a|b")), Steps: []step{run(`{}`)}},
	{Name: "compile: unknown breakpoint", Graph: echo.stops([]string{"nobody"}, nil), Steps: []step{run(`{}`)}},
}

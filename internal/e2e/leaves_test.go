package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// oddGraph answers with messages that hold what msgpack has no form for, made up from a seed. In each run it makes up those of earlier ones
// again, and fails unless the messages it was given are the same.
const oddGraph = `
import random
from typing import Annotated, Any
from typing_extensions import TypedDict
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command

class Thing:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return type(other) is Thing and self.n == other.n
    def __hash__(self): return hash(self.n)

class Text(str):
    pass

class State(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    seed: int
    seeds: list
    condense: bool
    other: Any
    things: list

def nest(rng, levels, inner):
    for _ in range(levels):
        inner = {"a": inner} if rng.random() < .5 else [inner]
    return inner

def odd(rng, depth=0, room=924):
    """room: how many levels may follow. With more of them Python itself ends the run, because it has a frame for each."""
    n = rng.randrange(14 if depth < 3 else 8)
    if n == 0: return Thing(rng.randrange(9))
    if n == 1: return {(1, 2): "pair", "b": 2}
    if n == 2: return {2**70: rng.randrange(9)}
    if n == 3: return {"half \ud800": [1]}
    if n == 4: return {Thing(rng.randrange(9))}
    if n == 5: return 2**80
    if n == 6:
        ring = {"x": rng.randrange(9)}
        ring["self"] = [ring]
        return ring
    if n == 7: return Text("text")
    if n == 8: return nest(rng, min(room, rng.randrange(240, 600) if depth or rng.random() < .5 else rng.randrange(910, 924)), rng.randrange(9))
    if n == 9:
        levels = rng.randrange(300)
        return nest(rng, levels, odd(rng, depth + 1, room - levels))
    if n == 10: return [odd(rng, depth + 1, room - 4), "beside", odd(rng, depth + 1, room - 4)]
    if n == 11: return {"k": odd(rng, depth + 1, room - 4), "beside": 1.5}
    if n == 12: return HumanMessage("nested", additional_kwargs={"odd": odd(rng, depth + 1, room - 4)})
    return "plain"

def made(seed):
    rng = random.Random(seed)
    out = [AIMessage("", id=f"{seed}-call", tool_calls=[{"name": "f", "args": {}, "id": f"c{seed}"}])]
    out.append(ToolMessage("result", id=f"{seed}-tool", tool_call_id=f"c{seed}", artifact=odd(rng)))
    for i in range(rng.randrange(1, 4)):
        kwargs = {"odd": odd(rng)} if rng.random() < .7 else {}
        meta = {"odd": odd(rng)} if rng.random() < .3 else {}
        out.append(AIMessage(f"answer {i}", id=f"{seed}-{i}", additional_kwargs=kwargs, response_metadata=meta))
    return out, odd(rng), [odd(rng) for _ in range(3)]

def same(a, b):
    pairs, met = [(a, b)], set()
    while pairs:
        a, b = pairs.pop()
        if (id(a), id(b)) in met: continue
        met.add((id(a), id(b)))
        if isinstance(a, (AIMessage, HumanMessage, ToolMessage)):
            # What is nested in a message is kept as model_dump has it, which knows no classes of messages.
            b = b.__dict__ if type(a) is type(b) else b
            a = a.__dict__
        if isinstance(a, dict):
            if not isinstance(b, dict) or set(a) - set(b): return False
            pairs.extend((v, b[k]) for k, v in a.items())
        elif isinstance(a, list):
            if not isinstance(b, list) or len(a) != len(b): return False
            pairs.extend(zip(a, b))
        elif a != b or isinstance(a, Thing) and type(b) is not Thing: return False
    return True

def check(state):
    held = {m.id: m for m in state["messages"]}
    for seed in state.get("seeds") or []:
        messages, other, things = made(seed)
        for m in messages:
            if m.id in held and not same(m, held[m.id]): raise ValueError(f"{m.id} is {held[m.id]!r}")
    if state.get("seeds"):
        if not same(other, state["other"]): raise ValueError(f"other of {seed}: {state['other']!r}")
        if not same(things, state["things"]): raise ValueError(f"things of {seed}: {state['things']!r}")

def condense(state):
    check(state)
    if not state.get("condense"): return {}
    old = state["messages"][:-1]
    return {"messages": [RemoveMessage(m.id) for m in old] + [HumanMessage("summary", id=f"sum-{state['seed']}", additional_kwargs={"lc_source": "summarization"})]}

def answer(state):
    messages, other, things = made(state["seed"])
    return {"messages": messages, "other": other, "things": things, "seeds": (state.get("seeds") or []) + [state["seed"]]}

b = StateGraph(State)
b.add_node("condense", condense)
b.add_node("answer", answer)
b.add_edge(START, "condense")
b.add_edge("condense", "answer")
b.add_edge("answer", END)
graph = b.compile()
`

// TestOddLeaves: whatever objects messages and channels hold, every message is there and looks the same live, in state, in history and after a
// restart, and the graph gets back what it had.
func TestOddLeaves(t *testing.T) {
	pr := newProject(t)
	pr.write("agent.py", oddGraph)
	data := t.TempDir()
	config := filepath.Join(pr.dir, "langgraph.json")
	p := serve(t, data, "--config", config)
	type talk struct {
		id, state string
		ids       []string
	}
	var talks []*talk
	for range 12 {
		talks = append(talks, &talk{id: field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)})
	}
	state := func(c *talk) any { return field(p.call("GET", "/threads/"+c.id+"/state", nil, 200), "values") }
	text := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	alike := func(want, got, what string) {
		t.Helper()
		at := 0
		for at < min(len(want), len(got)) && want[at] == got[at] {
			at++
		}
		if at < max(len(want), len(got)) {
			t.Fatalf("%s: %d bytes are not %d bytes: after …%s\nwant %.200s\ngot  %.200s", what, len(got), len(want), want[max(0, at-100):at], want[at:], got[at:])
		}
	}
	for round := range 6 {
		for _, c := range talks {
			seed := rand.IntN(1 << 30)
			what := fmt.Sprintf("seed %d, round %d", seed, round)
			human := fmt.Sprint("q", seed)
			live := p.values(c.id, map[string]any{
				"seed": seed, "condense": round > 1 && rand.IntN(4) == 0,
				"messages": []any{map[string]any{"type": "human", "id": human, "content": "question"}},
			})
			now := state(c)
			alike(text(now), text(live), what+", live")
			alike(text(now), text(field(p.call("GET", "/threads/"+c.id, nil, 200), "values")), what+", thread")
			history := p.call("POST", "/threads/"+c.id+"/history", map[string]any{"limit": 1}, 200).([]any)
			alike(text(now), text(field(history[0], "values")), what+", history")
			var ids []string
			for _, m := range field(now, "messages").([]any) {
				ids = append(ids, field(m, "id").(string))
			}
			require.Equal(t, append(c.ids, human, fmt.Sprintf("%d-call", seed), fmt.Sprintf("%d-tool", seed)), ids[:len(c.ids)+3], what)
			require.Greater(t, len(ids), len(c.ids)+3, what)
			c.ids, c.state = ids, text(now)
		}
		if round%2 == 0 {
			p.kill()
			p = serve(t, data, "--config", config)
			for _, c := range talks {
				alike(c.state, text(state(c)), "after a restart")
			}
		}
	}
	for _, c := range talks {
		for _, e := range p.call("GET", "/threads/"+c.id+"/events?limit=1000", nil, 200).(map[string]any)["data"].([]any) {
			require.Nil(t, field(e, "metadata", "revises"), "what did not change: %v", e)
		}
	}
}

// values runs the graph and returns the last streamed values.
func (p *process) values(thread string, input map[string]any) (last any) {
	p.t.Helper()
	body, err := json.Marshal(map[string]any{"assistant_id": "a", "input": input, "stream_mode": []string{"values"}})
	require.NoError(p.t, err)
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/threads/"+thread+"/runs/stream", strings.NewReader(string(body)))
	require.NoError(p.t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 16<<20)
	event := ""
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = name
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		require.False(p.t, ok && event == "error", "input %v: %s", input, data)
		if ok && event == "values" {
			last = nil
			require.NoError(p.t, json.Unmarshal([]byte(data), &last))
		}
	}
	require.NoError(p.t, lines.Err())
	return last
}

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const deepGraph = `
import random
from typing import Annotated, Any
from typing_extensions import TypedDict
from langchain_core.messages import AIMessage
from langgraph.config import get_store, get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

class State(TypedDict, total=False):
    seed: int
    levels: int
    messages: Annotated[list, add_messages]
    list: list
    dict: dict
    odd: list

class Odd:
    "What msgpack has no form for."
    def __init__(self, held):
        self.held = held
    def dict(self):
        return {"held": self.held}

def nested(state, salt, most=10_000):
    rnd = random.Random(state["seed"] * 10 + salt)
    value = "core"
    for i in range(min(most, state["levels"])):
        value = [f"b{i}", value, f"a{i}"] if rnd.random() < 0.5 else {"b": f"b{i}", "v": value, "z": f"a{i}"}
    return value

def make(state):
    value = nested(state, 1)
    get_stream_writer()(["before", value, "after"])
    get_store().put(("deep", str(state["seed"])), "k", {"before": "s", "value": value, "after": "s"})
    return {
        "list": ["before", value, "after"],
        "dict": {"before": "s", "value": nested(state, 2), "after": "s"},
        "messages": [AIMessage("first", id="m1"), AIMessage("second", id="m2", additional_kwargs={"before": "s", "value": nested(state, 3), "after": "s"}),
                     AIMessage("third", id="m3")],
    } | ({"odd": ["before", Odd(nested(state, 4)), "after"]} if state["levels"] < 300 else {})

def ask(state):
    # langgraph copies interrupts with two frames of Python for each level.
    interrupt({"before": "s", "value": nested(state, 5, 400), "after": "s"})

b = StateGraph(State)
b.add_node("make", make)
b.add_node("ask", ask)
b.add_edge(START, "make")
b.add_edge("make", "ask")
b.add_edge("ask", END)
graph = b.compile()
`

// shownLevels is how many levels of a value are shown at least, and mostLevels how deep an answer may be, so that clients can read it.
const shownLevels, mostLevels = 900, 990

// spine checks a value of the graph: each level stands between its siblings, down to its core, or to null below all levels that are shown.
func spine(t *testing.T, what string, v any, levels int) {
	t.Helper()
	for n := levels - 1; ; n-- {
		if v == nil {
			require.GreaterOrEqual(t, levels-1-n, shownLevels, "%s: null above the bound", what)
			return
		}
		if n < 0 {
			require.Equal(t, "core", v, what)
			return
		}
		before, behind := fmt.Sprintf("b%d", n), fmt.Sprintf("a%d", n)
		switch c := v.(type) {
		case []any:
			require.Len(t, c, 3, what)
			require.Equal(t, []any{before, behind}, []any{c[0], c[2]}, what)
			v = c[1]
		case map[string]any:
			require.Len(t, c, 3, what)
			require.Equal(t, []any{before, behind}, []any{c["b"], c["z"]}, what)
			v = c["v"]
		default:
			require.Failf(t, "not nested", "%s: %T", what, v)
		}
	}
}

// depthOf is how deep JSON is nested.
func depthOf(text []byte) (most int) {
	d := json.NewDecoder(bytes.NewReader(text))
	for n := 0; ; {
		tok, err := d.Token()
		if err != nil {
			return most
		}
		switch tok {
		case json.Delim('['), json.Delim('{'):
			n++
			most = max(most, n)
		case json.Delim(']'), json.Delim('}'):
			n--
		}
	}
}

// TestDeepValues: what a graph nests too deeply hides nothing else, wherever it is shown, and what is less deep is shown as it was stored.
func TestDeepValues(t *testing.T) {
	pr := newProject(t)
	pr.write("agent.py", deepGraph)
	p := serve(t, t.TempDir(), "--config", filepath.Join(pr.dir, "langgraph.json"))
	read := func(method, path string, body any) []byte {
		t.Helper()
		b, err := json.Marshal(body)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, bytes.NewReader(b))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, 200, res.StatusCode, "%s %s: %.300s", method, path, text)
		return text
	}
	decode := func(what string, text []byte) (v any) {
		t.Helper()
		require.LessOrEqual(t, depthOf(text), mostLevels, what)
		require.NoError(t, json.Unmarshal(text, &v), what)
		return v
	}
	for i, levels := range []int{3, 199, 200, 201, 252, 253, 254, 255, 256, 257, 299, 450, 510, 700, 880, 895, 915, 919, 920, 921, 925, 940} {
		bracketed := func(what string, v any) {
			t.Helper()
			require.Equal(t, []any{"s", "s"}, []any{field(v, "before"), field(v, "after")}, what)
			spine(t, what, field(v, "value"), levels)
		}
		values := func(what string, v any) {
			t.Helper()
			list, _ := field(v, "list").([]any)
			require.Len(t, list, 3, what)
			require.Equal(t, []any{"before", "after"}, []any{list[0], list[2]}, what)
			spine(t, what+", list", list[1], levels)
			bracketed(what+", dict", field(v, "dict"))
			messages, _ := field(v, "messages").([]any)
			require.Len(t, messages, 3, what)
			for n, content := range []string{"first", "second", "third"} {
				require.Equal(t, content, field(messages[n], "content"), what)
			}
			bracketed(what+", message", field(messages[1], "additional_kwargs"))
			if levels < 300 {
				odd, _ := field(v, "odd").([]any)
				require.Len(t, odd, 3, what)
				require.Equal(t, []any{"before", "after"}, []any{odd[0], odd[2]}, what)
				spine(t, what+", odd", field(odd[1], "held"), levels)
			}
		}
		waits := func(what string, interrupts any) {
			t.Helper()
			list, _ := interrupts.([]any)
			require.Len(t, list, 1, what)
			v := field(list[0], "value")
			require.Equal(t, []any{"s", "s"}, []any{field(v, "before"), field(v, "after")}, what)
			spine(t, what, field(v, "value"), min(levels, 400))
		}
		id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
		stream := read("POST", "/threads/"+id+"/runs/stream", map[string]any{
			"assistant_id": "a", "input": map[string]any{"seed": i, "levels": levels},
			"stream_mode": []string{"values", "updates", "custom", "messages", "debug", "tasks", "checkpoints"},
		})
		seen := map[string]int{}
		event := ""
		lines := bufio.NewReader(bytes.NewReader(stream))
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "event: "); ok {
				event = name
			}
			text, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
			if !ok {
				continue
			}
			what := fmt.Sprintf("%d levels, stream %s", levels, event)
			v := decode(what, []byte(text))
			seen[event]++
			switch {
			case event == "error":
				require.Fail(t, what, "%.500s", text)
			case event == "values" && field(v, "dict") != nil:
				values(what, v)
			case event == "updates" && field(v, "make") != nil:
				values(what, field(v, "make"))
			case event == "updates":
				waits(what, field(v, "__interrupt__"))
			case event == "custom":
				list, _ := v.([]any)
				require.Len(t, list, 3, what)
				spine(t, what, list[1], levels)
			case event == "tasks" && field(v, "name") == "ask" && field(v, "input") != nil:
				values(what, field(v, "input"))
			case event == "tasks" && field(v, "name") == "ask":
				waits(what, field(v, "interrupts"))
			case event == "checkpoints" && field(v, "values", "dict") != nil:
				values(what, field(v, "values"))
			}
		}
		for _, mode := range []string{"values", "updates", "custom", "tasks", "checkpoints", "debug"} {
			require.NotZero(t, seen[mode], "%d levels: no %s", levels, mode)
		}

		name := func(route string) string { return fmt.Sprintf("%d levels, %s", levels, route) }
		state := decode(name("state"), read("GET", "/threads/"+id+"/state", nil))
		values(name("state"), field(state, "values"))
		waits(name("state's interrupts"), field(state, "interrupts"))
		waits(name("task's interrupts"), field(field(state, "tasks").([]any)[0], "interrupts"))
		history := decode(name("history"), read("POST", "/threads/"+id+"/history", map[string]any{"limit": 10})).([]any)
		values(name("history"), field(history[0], "values"))
		tasks := field(history[1], "tasks").([]any)
		values(name("result of a task"), field(tasks[0], "result"))
		row := decode(name("thread"), read("GET", "/threads/"+id, nil))
		values(name("thread"), field(row, "values"))
		for _, list := range field(row, "interrupts").(map[string]any) {
			waits(name("thread's interrupts"), list)
		}
		found := decode(name("search"), read("POST", "/threads/search", map[string]any{"ids": []string{id}, "extract": map[string]any{"x": "values.dict"}})).([]any)
		values(name("search"), field(found[0], "values"))
		bracketed(name("extract"), field(found[0], "extracted", "x"))
		item := decode(name("item"), read("GET", fmt.Sprintf("/store/items?namespace=deep.%d&key=k", i), nil))
		bracketed(name("item"), field(item, "value"))
		items := decode(name("items"), read("POST", "/store/items/search", map[string]any{"namespace_prefix": []string{"deep", fmt.Sprint(i)}}))
		bracketed(name("items"), field(field(items, "items").([]any)[0], "value"))
		feed := decode(name("messages"), read("GET", "/threads/"+id+"/messages", nil))
		rows := field(feed, "data").([]any)
		require.Len(t, rows, 3)
		bracketed(name("messages"), field(rows[1], "content", "additional_kwargs"))
		resumed := decode(name("wait"), read("POST", "/threads/"+id+"/runs/wait", map[string]any{"assistant_id": "a", "command": map[string]any{"resume": "yes"}}))
		require.Nil(t, field(resumed, "__error__"), "%d levels: %v", levels, field(resumed, "__error__"))
		values(name("wait"), resumed)
	}

	// What Python itself cannot walk through ends the run, and no more than that.
	id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	failed := p.call("POST", "/threads/"+id+"/runs/wait", map[string]any{"assistant_id": "a", "input": map[string]any{"seed": 99, "levels": 3000}}, 200)
	require.Equal(t, "RecursionError", field(failed, "__error__", "error"))
	for _, route := range []string{"/threads/" + id, "/threads/" + id + "/state", "/threads/" + id + "/history", "/threads/" + id + "/messages"} {
		decode(route, read("GET", route, nil))
	}
}

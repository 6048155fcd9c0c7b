package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const deltaGraph = `
from typing import Annotated
from typing_extensions import TypedDict
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer

class State(TypedDict, total=False):
    messages: Annotated[list, DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]

def answer(state):
    last = state["messages"][-1].content
    if last == "condense":
        old = state["messages"][:-1]
        return {"messages": [RemoveMessage(m.id) for m in old] + [AIMessage("a summary", additional_kwargs={"lc_source": "summarization"})]}
    return {"messages": [AIMessage("re: " + last)]}

b = StateGraph(State)
b.add_node("answer", answer)
b.add_edge(START, "answer")
b.add_edge("answer", END)
graph = b.compile()
`

// TestDeltaChannel: a conversation in a delta channel is shown as any other, as state, in history and as transcript, also after a restart.
func TestDeltaChannel(t *testing.T) {
	if exec.Command(python(t), "-c", "from langgraph.channels.delta import DeltaChannel; from langgraph.graph.message import _messages_delta_reducer").Run() != nil {
		t.Skip("this langgraph has no delta channels")
	}
	pr := newProject(t)
	pr.write("agent.py", deltaGraph)
	data := t.TempDir()
	config := filepath.Join(pr.dir, "langgraph.json")
	p := serve(t, data, "--config", config)
	id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	say := func(text string) {
		p.call("POST", "/threads/"+id+"/runs/wait", map[string]any{"assistant_id": "a", "input": map[string]any{"messages": []any{map[string]any{"role": "user", "content": text}}}}, 200)
	}
	contents := func(v any) []string {
		var out []string
		list, _ := v.([]any)
		for _, m := range list {
			if inner := field(m, "content"); inner != nil {
				if s, ok := inner.(string); ok {
					out = append(out, s)
					continue
				}
				out = append(out, field(inner, "content").(string))
			}
		}
		return out
	}
	state := func(query string) []string {
		return contents(field(p.call("GET", "/threads/"+id+"/state"+query, nil, 200), "values", "messages"))
	}
	transcript := func() []string {
		return contents(field(p.call("GET", "/threads/"+id+"/messages", nil, 200), "data"))
	}
	var want []string
	for i, text := range []string{"one", "two", "three"} {
		if i == 2 {
			p.kill()
			p = serve(t, data, "--config", config)
		}
		say(text)
		want = append(want, text, "re: "+text)
		require.Equal(t, want, state(""))
		require.Equal(t, want, transcript())
	}
	for i, s := range p.call("GET", "/threads/"+id+"/history?limit=100", nil, 200).([]any) {
		got := contents(field(s, "values", "messages"))
		require.Equal(t, append([]string(nil), want[:len(got)]...), got, "history %d", i)
	}
	p.call("POST", "/threads/"+id+"/state", map[string]any{"values": map[string]any{"messages": []any{map[string]any{"role": "assistant", "content": "by hand"}}}, "as_node": "answer"}, 200)
	want = append(want, "by hand")
	require.Equal(t, want, transcript())
	require.Equal(t, want, state(""))

	say("condense")
	require.Equal(t, []string{"condense", "a summary"}, state("?overlay=false"))
	shown := state("?markers=system")
	require.Equal(t, append(append([]string{}, want...), "a summary", "condense"), shown, "what was said, the marker with the summary, and what was kept")
}

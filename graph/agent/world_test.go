package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/scripted"
	"understudy/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory keeps checkpoints in memory.
type memory struct {
	checkpointer.Memory
	words []string // of summaries
}

func (m *memory) Save(ctx context.Context, saves ...graph.Save) error {
	for _, s := range saves {
		if s.Words != "" {
			m.words = append(m.words, s.Words)
		}
		if err := m.Memory.Save(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// items is a store that remembers one namespace.
type items struct {
	mu    sync.Mutex
	facts map[string]json.RawMessage
	space []string
}

func (s *items) Batch(_ context.Context, ops []graph.StoreOp) ([]graph.StoreResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]graph.StoreResult, len(ops))
	for i, op := range ops {
		switch {
		case op.Put != nil:
			s.facts[op.Put.Key], s.space = op.Put.Value, op.Put.Namespace
		case op.Search != nil:
			for key, value := range s.facts {
				out[i].Items = append(out[i].Items, &graph.StoreItem{Key: key, Value: value})
			}
		default:
			return nil, errors.New("not asked for here")
		}
	}
	return out, nil
}

// world is an agent on a thread.
type world struct {
	t     *testing.T
	agent *agent.Agent
	saves *memory
	store *items
}

func setup(t *testing.T, o agent.Options) *world {
	t.Helper()
	if o.Name == "" {
		o.Name = "agent"
	}
	if o.Model.LLM == nil {
		o.Model = model(t, fake)
	}
	a, err := agent.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return &world{t, a, &memory{}, &items{facts: map[string]json.RawMessage{}}}
}

func model(t *testing.T, script string) agent.Model {
	t.Helper()
	m, err := scripted.Parse([]byte(script))
	require.NoError(t, err)
	return agent.Model{LLM: m, Provider: "scripted"}
}

// fake speaks as the model of the conformance suite does.
const fake = `{"model": "fake", "answers": [
	{"from": "human", "when": "^call (search) ?(.*)$", "tool_calls": [{"id": "call_1", "name": "search", "args": "$2"}]},
	{"from": "human", "when": "^twice$", "tool_calls": [{"id": "call_1", "name": "search", "args": {"q": "a"}}, {"id": "call_2", "name": "search", "args": {"q": "b"}}]},
	{"from": "human", "when": "^use (\\w+) ?(.*)$", "tool_calls": [{"id": "call_1", "name": "any", "args": {"tool": "$1", "args": "$2"}}]},
	{"from": "tool", "when": "(?s)^(.*)$", "content": "tool said: $1"},
	{"when": "^say (\\d+)", "words": "$1"},
	{"words": "3"}]}`

type searchArgs struct {
	Q string `json:"q" jsonschema:"what to look for"`
}

var search = agent.MustTool("search", "Look something up.", func(_ context.Context, a searchArgs) (any, error) {
	return "Found 10 results for " + a.Q, nil
})

const thread = id.Thread("00000000-0000-4000-8000-000000000001")

func (w *world) invocation(input string, modes ...string) graph.Invocation {
	inv := graph.Invocation{Arguments: graph.Arguments{Modes: modes, Durability: "async"}, Run: id.Run("00000000-0000-4000-8000-000000000002")}
	inv.Thread, inv.Saver, inv.Store = thread, w.saves, w.store
	inv.Config.Config = json.RawMessage(`{"configurable":{"user_id":"me"}}`)
	if input != "" {
		inv.Input = json.RawMessage(input)
	}
	return inv
}

func (w *world) stream(inv graph.Invocation) (events []graph.Event, err error) {
	w.t.Helper()
	for e, err := range w.agent.Stream(w.t.Context(), inv) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

func says(text string) string {
	raw, _ := json.Marshal(map[string]any{"messages": []any{map[string]string{"role": "user", "content": text}}})
	return string(raw)
}

// ask runs the agent with what a person says, and returns the last state.
func (w *world) ask(text string) gjson.Result {
	w.t.Helper()
	return w.last(w.invocation(says(text), "values"))
}

func (w *world) last(inv graph.Invocation) gjson.Result {
	w.t.Helper()
	events, err := w.stream(inv)
	require.NoError(w.t, err)
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Name == "values" {
			return gjson.ParseBytes(events[i].Data)
		}
	}
	w.t.Fatal("no values")
	return gjson.Result{}
}

// resume answers an interrupt.
func (w *world) resume(answer string, modes ...string) graph.Invocation {
	inv := w.invocation("", modes...)
	inv.Command = json.RawMessage(`{"resume":` + answer + `}`)
	return inv
}

// talk writes messages as "type: text", with calls and errors.
func talk(state gjson.Result) string {
	var lines []string
	for _, m := range state.Get("messages").Array() {
		line := m.Get("type").Str + ": " + m.Get("content").String()
		for _, c := range m.Get("tool_calls").Array() {
			line += " [" + c.Get("name").Str + c.Get("args").Raw + "]"
		}
		if m.Get("status").Str == "error" {
			line += " (error)"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// nodes are the nodes that updates name, in order.
func nodes(events []graph.Event) (names []string) {
	for _, e := range events {
		if e.Name == "updates" {
			gjson.ParseBytes(e.Data).ForEach(func(k, _ gjson.Result) bool { names = append(names, k.Str); return true })
		}
	}
	return names
}

package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent"
)

// mistaken is a model of which no answer leads to anything. It fails the test when it gets a conversation that providers refuse.
type mistaken struct {
	t       *testing.T
	rnd     *rand.Rand
	answers []func(n int) *llms.ContentChoice
	asked   int
}

func (m *mistaken) Call(context.Context, string, ...llms.CallOption) (string, error) {
	panic("agents generate content")
}

func (m *mistaken) GenerateContent(_ context.Context, messages []llms.MessageContent, _ ...llms.CallOption) (*llms.ContentResponse, error) {
	open := map[string]bool{}
	for _, said := range messages {
		if said.Role != llms.ChatMessageTypeTool {
			require.Empty(m.t, open, "calls without a result")
		}
		for _, part := range said.Parts {
			switch p := part.(type) {
			case llms.ToolCall:
				open[p.ID] = true
			case llms.ToolCallResponse:
				require.True(m.t, open[p.ToolCallID], "a result without a call")
				delete(open, p.ToolCallID)
			}
		}
	}
	require.Empty(m.t, open)
	m.asked++
	return &llms.ContentResponse{Choices: []*llms.ContentChoice{m.answers[m.rnd.IntN(len(m.answers))](m.asked)}}, nil
}

// A model that answers only in ways that lead to nothing, in any order, is asked ten times at most, and the next run of the thread is possible.
func TestModelsThatNeverGetThere(t *testing.T) {
	t.Parallel()
	calls := func(kind string, named ...string) func(int) *llms.ContentChoice {
		return func(n int) *llms.ContentChoice {
			out := &llms.ContentChoice{StopReason: "tool_calls"}
			for i, name := range named {
				args := `{"q":5}`
				out.ToolCalls = append(out.ToolCalls, llms.ToolCall{ID: fmt.Sprintf("%s-%d-%d", kind, n, i), Type: "function", FunctionCall: &llms.FunctionCall{Name: name, Arguments: args}})
			}
			return out
		}
	}
	prose := func(int) *llms.ContentChoice { return &llms.ContentChoice{Content: "Seven.", StopReason: "stop"} }
	type number struct {
		Sum float64 `json:"sum"`
	}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 16))
		o := agent.Options{}
		all := []func(int) *llms.ContentChoice{calls("unknown", "nope"), calls("two", "nope", "other")}
		if rnd.IntN(2) == 0 {
			o.Tools = []agent.Tool{search}
			all = append(all, calls("invalid", "search"), calls("mixed", "search", "nope"))
		}
		if rnd.IntN(3) > 0 {
			var err error
			o.ResponseFormat, err = agent.FormatOf[number]("answer", "")
			require.NoError(t, err)
			all = append(all, calls("mismatch", "answer"), calls("both", "answer", "nope"), calls("twice", "answer", "answer"))
			if o.Tools == nil { // else the run ends, as LangChain's does
				all = append(all, prose)
			}
		}
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		m := &mistaken{t: t, rnd: rnd, answers: all[:1+rnd.IntN(len(all))]}
		o.Model = agent.Model{LLM: m, Name: "m"}
		w := setup(t, o)
		for turn := range 2 {
			before := m.asked
			events, err := w.stream(w.invocation(says(fmt.Sprint("turn ", turn)), "values"))
			require.LessOrEqual(t, m.asked-before, 10, "seed %d", seed)
			if o.ResponseFormat != nil || len(o.Tools) > 0 {
				require.Error(t, err, "seed %d: %s", seed, talk(gjson.ParseBytes(events[len(events)-1].Data)))
				require.Regexp(t, "the model (answered|called tools) [0-9]+ times", err.Error())
			}
		}
	}
}

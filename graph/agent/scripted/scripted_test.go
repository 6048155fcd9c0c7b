package scripted

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
)

const script = `{
  "model": "fake",
  "answers": [
    {"from": "human", "when": "^call (?P<tool>search)\\s*(\\{.*\\})?", "tool_calls": [{"id": "call_1", "name": "search", "args": "$2"}]},
    {"from": "human", "when": "^ask (.*)", "tool_calls": [{"name": "search", "args": {"q": "$1", "n": 2}}, {"name": "search"}]},
    {"from": "tool", "when": "(?s)(.*)", "content": "tool said: $1"},
    {"when": "^say (\\w+)", "words": "$1"},
    {"when": "^fail", "content": "I", "error": "out of order"},
    {"when": "^think", "reasoning": "so so", "content": "höre", "chunk": "2"},
    {"content": "first $1"},
    {"content": "later", "chunk": "whole"}
  ]}`

func human(texts ...string) (out []llms.MessageContent) {
	for i, text := range texts {
		if i > 0 {
			out = append(out, llms.TextParts(llms.ChatMessageTypeAI, "…"))
		}
		out = append(out, llms.TextParts(llms.ChatMessageTypeHuman, text))
	}
	return out
}

func end(reason string, in, out int) llm.Chunk {
	return llm.Chunk{Usage: &llm.Usage{Input: in, Output: out, Total: in + out}, FinishReason: reason, Model: "fake"}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	model, err := Parse([]byte(script))
	require.NoError(t, err)
	text := func(pieces ...string) (out []llm.Chunk) {
		for _, p := range pieces {
			out = append(out, llm.Chunk{Content: p})
		}
		return out
	}
	search := llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{Name: "search"}}})
	result := append(human("call search"), llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{Content: "a\nb c"}}})
	call := func(c ...llm.ToolCallDelta) (out []llm.Chunk) {
		for _, d := range c {
			out = append(out, llm.Chunk{ToolCalls: []llm.ToolCallDelta{d}})
		}
		return out
	}
	tests := []struct {
		name     string
		messages []llms.MessageContent
		options  []llms.CallOption
		want     []llm.Chunk
		err      string
	}{
		{"tool call", human(`call search {"q": "x"}`), []llms.CallOption{search}, append(call(llm.ToolCallDelta{ID: "call_1", Name: "search", Arguments: `{"q": "x"}`}), end("tool_calls", 1, 1)), ""},
		{"no arguments", human(`call search`), []llms.CallOption{search}, append(call(llm.ToolCallDelta{ID: "call_1", Name: "search", Arguments: `{}`}), end("tool_calls", 1, 1)), ""},
		{"bad arguments", human(`call search {"q`), []llms.CallOption{search}, append(call(llm.ToolCallDelta{ID: "call_1", Name: "search", Arguments: `{}`}), end("tool_calls", 1, 1)), ""},
		{
			"two calls, quotes in what was found", human("x", `ask "a"`),
			[]llms.CallOption{search},
			append(call(llm.ToolCallDelta{ID: "call_1_0", Name: "search", Arguments: `{"q": "\"a\"", "n": 2}`}, llm.ToolCallDelta{Index: 1, ID: "call_1_1", Name: "search", Arguments: "{}"}), end("tool_calls", 3, 2)), "",
		},
		{"tool not on offer", human("call search"), nil, append(text("first", " $1"), end("stop", 1, 2)), ""},
		{"tool result", result, nil, append(text("tool", " said:", " a\nb", " c"), end("stop", 2, 4)), ""},
		{"words", human("say 3"), nil, append(text("w0", " w1", " w2"), end("stop", 1, 3)), ""},
		{"no number", human("say many"), nil, nil, `words: "many" is no number`},
		{"failure in mid answer", human("fail"), nil, text("I"), "out of order"},
		{"reasoning, by characters", human("think"), nil, append([]llm.Chunk{{Reasoning: "so"}, {Reasoning: " s"}, {Reasoning: "o"}, {Content: "hö"}, {Content: "re"}}, end("stop", 1, 5)), ""},
		{"second answer", human("a", "b"), nil, append(text("later"), end("stop", 3, 1)), ""},
		{"last answer again", human("a", "b", "c"), nil, append(text("later"), end("stop", 5, 1)), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []llm.Chunk
			var end error
			for c, err := range model.StreamChunks(t.Context(), tt.messages, tt.options...) {
				if end = err; err == nil {
					got = append(got, c)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if tt.err == "" {
				require.NoError(t, end)
			} else {
				require.ErrorContains(t, end, tt.err)
				require.ErrorAs(t, end, new(*Error))
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`[]`:                               "has no answers",
		`[{"when": "("}]`:                  "answer 0: when: error parsing regexp",
		`[{"from": "me"}]`:                 `answer 0: from: "me"; write "human" or "tool"`,
		`[{"contents": "x"}]`:              `unknown field "contents"; did you mean "content"?`,
		`[{"frm": "human"}]`:               `unknown field "frm"; did you mean "from"?`,
		`[{"zzz": 1}]`:                     `unknown field "zzz"; a script has answers, model, delay, chunk; an answer when, from, content, words, reasoning, tool_calls, error, delay, chunk, finish_reason; a call name, id, args`,
		`[{"content": "x", "words": "3"}]`: "has content and words",
		`[{"words": "-1"}]`:                "is no number",
		`[{"tool_calls": [{}]}]`:           "a tool call has no name",
		`[{"tool_calls": [{"name":"a","args":1}]}]`: "is not a JSON object",
		`[{"chunk": "line"}]`:                       `chunk: "line"; write`,
		`[{"delay": "long"}]`:                       `"long" is no delay`,
		`{"answers": [{}], "chunk": "0"}`:           `chunk: "0"; write`,
		`[{}] [{}]`:                                 "more after the end",
		`3`:                                         "cannot unmarshal number",
	} {
		_, err := Parse([]byte(raw))
		require.ErrorContains(t, err, want, raw)
	}
	m, err := Parse([]byte(`[{"when": "^a$", "content": "b"}]`))
	require.NoError(t, err)
	_, err = m.Call(t.Context(), "c")
	require.ErrorContains(t, err, `no answer to "c"`)
	text, err := m.Call(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "b", text)
}

func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := New(Script{Delay: Duration(time.Second), Answers: []Answer{{Words: "3"}}})
		require.NoError(t, err)
		begin := time.Now()
		text, err := m.Call(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "w0 w1 w2", text)
		require.Equal(t, 4*time.Second, time.Since(begin), "three words, and the count")
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		for _, err := range m.StreamChunks(ctx, human("x")) {
			if err != nil {
				require.ErrorIs(t, err, gone)
			}
			cancel(gone)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(script, "say 3")
	f.Add(`[{"words":"$1","when":"(\\d+)"}]`, "7")
	f.Add(`{"answers":[{"content":"ä ö","chunk":"3"}]}`, "")
	f.Fuzz(func(t *testing.T, raw, prompt string) {
		m, err := Parse([]byte(raw))
		if err != nil {
			return
		}
		m.script.Delay = 0
		for i := range m.script.Answers {
			m.script.Answers[i].Delay = 0
		}
		var content strings.Builder
		for c := range m.StreamChunks(t.Context(), human(prompt)) {
			content.WriteString(c.Content)
			if content.Len() > 1<<20 {
				break
			}
		}
	})
}

// The script of docs/agent.md does what is said there.
func TestScriptOfTheDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/agent.md")
	require.NoError(t, err)
	_, script, _ := strings.Cut(string(page), "### Scripts")
	_, script, _ = strings.Cut(script, "```json")
	script, _, _ = strings.Cut(script, "```")
	m, err := Parse([]byte(strings.Replace(script, `"delay": "30ms"`, `"delay": "0s"`, 1)))
	require.NoError(t, err)
	for prompt, want := range map[string]string{"say 2": "w0 w1", "think": "I see.", "6 times 7": "I only know how to calculate."} {
		text, err := m.Call(t.Context(), prompt)
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	_, err = m.Call(t.Context(), "fail")
	require.EqualError(t, err, "out of order")
}

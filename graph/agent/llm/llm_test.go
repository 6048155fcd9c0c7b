package llm

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/llms"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is a model as in langchaingo: it streams text, and returns the rest at the end.
type plain struct {
	pieces   []string
	response *llms.ContentResponse
	err      error
	panics   bool
}

func (m plain) Call(context.Context, string, ...llms.CallOption) (string, error) { panic("not called") }

func (m plain) GenerateContent(ctx context.Context, _ []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	var opts llms.CallOptions
	for _, o := range options {
		o(&opts)
	}
	if m.panics {
		panic("at the disco")
	}
	for _, p := range m.pieces {
		if err := opts.StreamingReasoningFunc(ctx, []byte("("+p+")"), nil); err != nil {
			return nil, err
		}
		if err := opts.StreamingFunc(ctx, []byte(p)); err != nil {
			return nil, err
		}
	}
	return m.response, m.err
}

func collect(t *testing.T, m llms.Model) (a *Answer, err error) {
	a = &Answer{}
	for c, err := range Stream(t.Context(), m, nil) {
		if err != nil {
			return a, err
		}
		a.Add(c)
	}
	return a, nil
}

func call(id, name, args string) llms.ToolCall {
	return llms.ToolCall{ID: id, FunctionCall: &llms.FunctionCall{Name: name, Arguments: args}}
}

func TestStreamOfAPlainModel(t *testing.T) {
	t.Parallel()
	// As langchaingo's Anthropic has it: a choice for each part.
	whole := &llms.ContentResponse{Choices: []*llms.ContentChoice{
		{Content: "Let me look", StopReason: "tool_use", GenerationInfo: map[string]any{"InputTokens": 3, "OutputTokens": 4}},
		{ToolCalls: []llms.ToolCall{call("a", "f", "{}")}},
		nil,
		{ToolCalls: []llms.ToolCall{call("b", "g", `{"x":1}`), {ID: "no function"}}},
	}}
	for name, m := range map[string]plain{"streamed": {pieces: []string{"Let me", " look"}, response: whole}, "not streamed": {response: whole}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := collect(t, m)
			require.NoError(t, err)
			require.Equal(t, "Let me look", a.Content.String())
			require.Equal(t, &Usage{Input: 3, Output: 4, Total: 7}, a.Usage)
			require.Equal(t, "tool_use", a.FinishReason)
			require.Len(t, a.ToolCalls, 2)
			require.Equal(t, "g", a.ToolCalls[1].Name)
			require.JSONEq(t, `{"x":1}`, a.ToolCalls[1].Arguments.String())
		})
	}
	_, err := collect(t, plain{err: errors.New("no key")})
	require.ErrorContains(t, err, "no key")
	_, err = collect(t, plain{panics: true})
	require.ErrorContains(t, err, "at the disco")
	a, err := collect(t, plain{})
	require.NoError(t, err)
	require.Empty(t, a.Content.String())
}

// A consumer that stops reading leaves no goroutine behind; goleak checks.
func TestStreamStops(t *testing.T) {
	t.Parallel()
	for range Stream(t.Context(), plain{pieces: []string{"a", "b", "c"}}, nil) {
		break
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	gone := errors.New("gone")
	for _, err := range Stream(ctx, plain{pieces: []string{"a", "b", "c"}}, nil) {
		if err != nil {
			require.ErrorIs(t, err, gone)
		}
		cancel(gone)
	}
}

// rude is a model of langchaingo that ignores its context, or whose goroutines outlive the call.
type rude struct {
	llms.Model
	generate func(say func(text string) error) error
}

func (m rude) GenerateContent(ctx context.Context, _ []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	var opts llms.CallOptions
	for _, o := range options {
		o(&opts)
	}
	err := m.generate(func(text string) error { return opts.StreamingFunc(ctx, []byte(text)) })
	return &llms.ContentResponse{}, err
}

// A model that calls back after it returned does no harm, whether its answer was read to the end or not: the callback fails.
func TestLateCallbacks(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			returned, over := make(chan struct{}), make(chan struct{})
			late := make(chan error, 2)
			m := rude{generate: func(say func(string) error) error {
				_ = say("Hi")
				go func() { // waits for a reader when the call returns
					close(returned)
					late <- say("waiting")
				}()
				go func() {
					<-over
					late <- say("late")
				}()
				<-returned
				return nil
			}}
			for range Stream(t.Context(), m, nil) {
				if !all {
					break
				}
				synctest.Wait()
			}
			close(over)
			first, second := <-late, <-late
			require.True(t, first != nil || second != nil, "the call is over")
		})
	}
}

// A model that ignores its context is left alone: the caller continues, with the cause, soon after it canceled or stopped reading.
func TestDeafModels(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for name, stops := range map[string]bool{"canceled": false, "not read any more": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				release := make(chan struct{})
				m := rude{generate: func(say func(string) error) error {
					_ = say("Hi")
					<-release
					return nil
				}}
				began := time.Now()
				var failure error
				for _, err := range Stream(ctx, m, nil) {
					failure = err
					if stops {
						break
					}
					cancel(gone)
				}
				require.LessOrEqual(t, time.Since(began), leave)
				if !stops {
					require.ErrorIs(t, failure, gone)
				}
				close(release)
			})
		})
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	var a Answer
	a.Add(Chunk{ToolCalls: []ToolCallDelta{{Index: 1, ID: "b", Name: "g"}}})
	a.Add(Chunk{ToolCalls: []ToolCallDelta{{Index: 0, ID: "a", Name: "f", Arguments: "{"}, {Index: 1, Arguments: "[]"}}})
	a.Add(Chunk{ToolCalls: []ToolCallDelta{{Index: 0, Arguments: "}"}}, Refusal: "no", Usage: &Usage{Total: 1}, FinishReason: "stop"})
	r := a.response().Choices[0]
	require.Equal(t, []llms.ToolCall{
		{ID: "a", Type: "function", FunctionCall: &llms.FunctionCall{Name: "f", Arguments: "{}"}},
		{ID: "b", Type: "function", FunctionCall: &llms.FunctionCall{Name: "g", Arguments: "[]"}},
	}, r.ToolCalls)
	require.Equal(t, r.ToolCalls[0].FunctionCall, r.FuncCall)
	require.Equal(t, "no", r.GenerationInfo["Refusal"])
	require.Equal(t, 1, r.GenerationInfo["TotalTokens"])
}

// Reasoning is what a model thought, not what else has parts of text: results of a provider's own tools.
func TestReasoningOfBlocks(t *testing.T) {
	t.Parallel()
	var a Answer
	for _, block := range []string{
		`{"type":"mcp_tool_result","content":[{"type":"text","text":"result"}],"summary":[{"text":"result"}]}`,
		`{"content":[{"type":"reasoning_text","text":" two"}],"summary":[{"type":"summary_text","text":"one"}],"type":"reasoning"}`,
		`{"type":"thinking","thinking":" three"}`,
		`{"type":"text","text":"said"}`,
		`{"type":"refusal","refusal":"no"}`,
	} {
		a.Add(Chunk{Blocks: []json.RawMessage{json.RawMessage(block)}})
	}
	require.Equal(t, "one two three", a.Reasoning.String())
	require.Equal(t, "said", a.Content.String())
	require.Equal(t, "no", a.Refusal.String())
}

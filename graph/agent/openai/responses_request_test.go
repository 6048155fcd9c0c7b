package openai

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"
)

func TestNeedsResponses(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]bool{
		"gpt-5.1-codex-max": true, "codex-mini-latest": true, "gpt-5-pro": true, "gpt-5.2-pro-2025-12-11": true, "o1-pro": true, "o3-pro": true, "o3-deep-research": true,
		"o4-mini-deep-research-2025-06-26": true, "computer-use-preview": true, "computer-use-preview-2025-03-11": true,
		"gpt-5": false, "gpt-4o": false, "o4-mini": false, "o3": false, "gpt-5-chat-latest": false, "my-computer-use": false,
	} {
		require.Equal(t, want, NeedsResponses(model), model)
	}
}

// extraOf are members of a request body.
func extraOf(t *testing.T, text string) (extra map[string]json.RawMessage) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &extra))
	return extra
}

// sentBy returns what a client with configured members asks for, without the messages.
func sentBy(t *testing.T, model, extra string, options ...llms.CallOption) gjson.Result {
	t.Helper()
	c, err := New(Options{Model: model, Responses: true, Extra: extraOf(t, extra)})
	require.NoError(t, err)
	body, _, err := c.responsesBody([]llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, "hi")}, options, true)
	require.NoError(t, err)
	return gjson.ParseBytes(body)
}

// Configured members have the names of chat completions or of this API. null removes what is sent by default; which of several names counts does not change from request to request.
func TestConfiguredMembers(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]string{
		`{}`:                                         `{"max_output_tokens":7,"text":{"format":{"type":"json_object"}}}`,
		`{"max_tokens":null}`:                        `{"text":{"format":{"type":"json_object"}}}`,
		`{"max_completion_tokens":null}`:             `{"text":{"format":{"type":"json_object"}}}`,
		`{"max_output_tokens":null}`:                 `{"text":{"format":{"type":"json_object"}}}`,
		`{"response_format":null}`:                   `{"max_output_tokens":7}`,
		`{"response_format":null,"verbosity":"low"}`: `{"max_output_tokens":7,"text":{"verbosity":"low"}}`,
		`{"verbosity":null,"reasoning_effort":null,"stop":null,"stream_options":null,"reasoning":null}`: `{"max_output_tokens":7,"text":{"format":{"type":"json_object"}}}`,
		`{"text":null}`: `{"max_output_tokens":7}`,
		`{"max_tokens":1,"max_completion_tokens":2}`:                                                                   `{"max_output_tokens":2,"text":{"format":{"type":"json_object"}}}`,
		`{"max_tokens":1,"max_completion_tokens":2,"max_output_tokens":3}`:                                             `{"max_output_tokens":3,"text":{"format":{"type":"json_object"}}}`,
		`{"max_tokens":null,"max_completion_tokens":2}`:                                                                `{"max_output_tokens":2,"text":{"format":{"type":"json_object"}}}`,
		`{"max_tokens":2,"max_completion_tokens":null}`:                                                                `{"max_output_tokens":2,"text":{"format":{"type":"json_object"}}}`,
		`{"max_output_tokens":null,"max_tokens":2}`:                                                                    `{"max_output_tokens":2,"text":{"format":{"type":"json_object"}}}`,
		`{"reasoning":{"effort":"low","summary":"auto"},"reasoning_effort":"high"}`:                                    `{"max_output_tokens":7,"text":{"format":{"type":"json_object"}},"reasoning":{"effort":"high","summary":"auto"}}`,
		`{"text":{"verbosity":"low"},"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}}`: `{"max_output_tokens":7,"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{}}}}`,
		`{"stop":["x"],"stream_options":{},"user":"u","temperature":0}`:                                                `{"max_output_tokens":7,"text":{"format":{"type":"json_object"}},"user":"u","temperature":0}`,
	} {
		var first string
		for range 30 {
			sent := sentBy(t, "gpt-4o", extra, llms.WithMaxTokens(7), llms.WithJSONMode())
			if first == "" {
				first = sent.Raw
			}
			require.Equal(t, first, sent.Raw, extra)
			members := sent.Value().(map[string]any)
			for _, name := range []string{"model", "input", "stream"} {
				delete(members, name)
			}
			raw, err := json.Marshal(members)
			require.NoError(t, err)
			require.JSONEq(t, want, string(raw), extra)
		}
	}
}

// Models that reason refuse parameters of sampling; those that do not have no reasoning to return.
func TestSamplingOfReasoningModels(t *testing.T) {
	t.Parallel()
	for model, reasons := range map[string]bool{
		"gpt-5": true, "gpt-5.1-codex": true, "o3": true, "o4-mini": true, "o4-mini-deep-research": true, "codex-mini-latest": true, "gpt-5-pro": true,
		"gpt-4o": false, "gpt-4.1": false, "gpt-5-chat-latest": false,
	} {
		for _, sent := range []gjson.Result{
			sentBy(t, model, `{"temperature":0.5,"top_p":0.9,"store":false}`),
			sentBy(t, model, `{"store":false}`, llms.WithTemperature(0.5), llms.WithTopP(0.9)),
		} {
			require.Equal(t, !reasons, sent.Get("temperature").Exists(), model)
			require.Equal(t, !reasons, sent.Get("top_p").Exists(), model)
			require.Equal(t, reasons, sent.Get("include").Exists(), model)
		}
	}
	sent := sentBy(t, "gpt-5.1", `{"temperature":0.5,"top_p":0.9,"reasoning_effort":"none"}`)
	require.True(t, sent.Get("temperature").Exists() && sent.Get("top_p").Exists())
}

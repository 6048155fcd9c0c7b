package settings

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What goes with a request, with thinking on and off, for the providers that config.yaml knows.
func TestThinkingOptions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ model, effort, on, off string }{
		"nothing":               {``, "", `{}`, `{}`},
		"cannot think":          {`when_thinking_enabled: {extra_body: {thinking: {type: enabled}}}`, "", `{"thinking":{"type":"disabled"}}`, `{"thinking":{"type":"disabled"}}`},
		"DeepSeek, Volcengine":  {"supports_thinking: true\nsupports_reasoning_effort: true\nwhen_thinking_enabled: {extra_body: {thinking: {type: enabled}}}", "", `{"thinking":{"type":"enabled"}}`, `{"thinking":{"type":"disabled"},"reasoning_effort":"minimal"}`},
		"effort not supported":  {"supports_thinking: true\nwhen_thinking_enabled: {extra_body: {thinking: {type: enabled}}, reasoning_effort: high}", "low", `{"thinking":{"type":"enabled"}}`, `{"thinking":{"type":"disabled"}}`},
		"effort of the run":     {"supports_thinking: true\nsupports_reasoning_effort: true\nreasoning_effort: medium", "high", `{"reasoning_effort":"high"}`, `{"reasoning_effort":"high"}`},
		"effort of the model":   {"supports_reasoning_effort: true\nreasoning_effort: medium", "", `{"reasoning_effort":"medium"}`, `{"reasoning_effort":"medium"}`},
		"vLLM":                  {"supports_thinking: true\nwhen_thinking_enabled: {extra_body: {chat_template_kwargs: {enable_thinking: true, other: 1}}}", "", `{"chat_template_kwargs":{"enable_thinking":true,"other":1}}`, `{"chat_template_kwargs":{"enable_thinking":false}}`},
		"Anthropic":             {"supports_thinking: true\nwhen_thinking_enabled: {thinking: {type: enabled, budget_tokens: 1000}}", "", `{"thinking":{"type":"enabled","budget_tokens":1000}}`, `{"thinking":{"type":"disabled"}}`},
		"thinking as a key":     {"supports_thinking: true\nthinking: {type: enabled}", "", `{"thinking":{"type":"enabled"}}`, `{"thinking":{"type":"disabled"}}`},
		"both merged":           {"supports_thinking: true\nwhen_thinking_enabled: {thinking: {type: enabled}}\nthinking: {budget_tokens: 5}", "", `{"thinking":{"type":"enabled","budget_tokens":5}}`, `{"thinking":{"type":"disabled"}}`},
		"what off means":        {"supports_thinking: true\nwhen_thinking_enabled: {extra_body: {thinking: {type: enabled}}}\nwhen_thinking_disabled: {extra_body: {thinking: {type: auto}}}", "", `{"thinking":{"type":"enabled"}}`, `{"thinking":{"type":"auto"}}`},
		"off is nothing":        {"supports_thinking: true\nwhen_thinking_enabled: {extra_body: {thinking: {type: enabled}}}\nwhen_thinking_disabled: {}", "", `{"thinking":{"type":"enabled"}}`, `{}`},
		"extra body everywhere": {"supports_thinking: true\nextra_body: {top_k: 3, thinking: {a: 1}}\nmodel_kwargs: {seed: 1}\nwhen_thinking_enabled: {extra_body: {thinking: {type: enabled}}}", "", `{"seed":1,"top_k":3,"thinking":{"a":1,"type":"enabled"}}`, `{"seed":1,"top_k":3,"thinking":{"a":1,"type":"disabled"}}`},
	} {
		s, err := Parse([]byte("models:\n  - name: m\n    "+indented(tt.model)), func(string) (string, bool) { return "", false })
		require.NoError(t, err, name)
		before, err := json.Marshal(s.Models[0])
		require.NoError(t, err)
		for on, want := range map[bool]string{true: tt.on, false: tt.off} {
			got, err := s.Models[0].Options(on, tt.effort)
			require.NoError(t, err, name)
			raw, err := json.Marshal(got)
			require.NoError(t, err)
			require.JSONEq(t, want, string(raw), "%s, thinking %t", name, on)
		}
		after, err := json.Marshal(s.Models[0])
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "settings are immutable")
	}
}

func indented(text string) (out string) {
	for _, r := range text {
		if out += string(r); r == '\n' {
			out += "    "
		}
	}
	return out
}

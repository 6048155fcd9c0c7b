package provider

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/message"
	"understudy/internal/jsonobj"
)

// Messages have the form that langchain-anthropic 1.7.7, langchain-openai 1.7.3 and langchain-deepseek 1.1.1 make of the same bytes:
// testdata/langchain has the bytes, and what the chunks of these add up to.
func TestMessagesAsLangChain(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/langchain/*.json")
	require.NoError(t, err)
	require.Len(t, files, 21)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			golden := gjson.ParseBytes(raw)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, golden.Get("stream").Str)
			}))
			defer srv.Close()
			spec := Spec{Name: golden.Get("kind").Str + ":claude-x-1", BaseURL: srv.URL, Key: "k", Getenv: none}
			if strings.Contains(golden.Get("stream").Str, "thinking_delta") { // else it would be thinking that was not asked for
				spec.ExtraBody = map[string]json.RawMessage{"thinking": json.RawMessage(`{"type":"adaptive"}`)}
			}
			if responses := golden.Get("responses"); responses.Exists() {
				yes := responses.Bool()
				spec.Responses = &yes
			}
			m, err := Open(spec)
			require.NoError(t, err)
			if golden.Get("tools").Bool() {
				tool := llms.Tool{Type: "function", Function: &llms.FunctionDefinition{Name: "weather", Parameters: json.RawMessage(`{"type":"object"}`)}}
				m.Options = append(m.Options, llms.WithTools([]llms.Tool{tool}))
			}
			said, err := m.Ask(t.Context(), []message.Message{message.Human("hi")}, nil)
			require.NoError(t, err)
			metadata := jsonobj.Of(said.ResponseMetadata)
			if spec.Responses != nil { // it is ours: middleware has to know why an answer ended
				require.NotEmpty(t, metadata.Text("finish_reason"))
				metadata.Delete("finish_reason")
			}
			said.ResponseMetadata = metadata.JSON()
			got := gjson.ParseBytes(said.AppendJSON(nil))
			for _, field := range []string{"content", "additional_kwargs", "response_metadata", "tool_calls", "usage_metadata"} {
				require.JSONEq(t, withoutNulls(t, golden.Get("message."+field).Raw), withoutNulls(t, got.Get(field).Raw), field)
			}
		})
	}
}

// withoutNulls removes members that are null: LangChain's clients add fields that they know and the provider did not send.
func withoutNulls(t *testing.T, raw string) string {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(raw), &v))
	var clean func(v any) any
	clean = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				if value == nil {
					delete(v, name)
				} else {
					v[name] = clean(value)
				}
			}
		case []any:
			for i := range v {
				v[i] = clean(v[i])
			}
		}
		return v
	}
	out, err := json.Marshal(clean(v))
	require.NoError(t, err)
	return string(out)
}

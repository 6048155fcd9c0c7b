package provider

import (
	"context"
	"encoding/json"
	"fmt"
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

	"understudy/graph/agent/llm"
	"understudy/graph/message"
)

func none(string) string { return "" }

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script.json"), []byte(`[{"content":"hi"}]`), 0o600))
	keys := func(name string) string {
		return map[string]string{"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k", "DEEPSEEK_API_KEY": "k"}[name]
	}
	tests := []struct {
		name           string
		spec           Spec
		provider, want string // want: of the error
	}{
		{"openai", Spec{Name: "openai:gpt-4o", Getenv: keys}, "openai", ""},
		{"gemini", Spec{Name: "googleai:gemini-2.5-flash", Getenv: keys}, "google_genai", ""},
		{"anthropic", Spec{Name: "anthropic:claude", Getenv: keys}, "anthropic", ""},
		{"ollama needs no key", Spec{Name: "ollama:llama3.2:1b"}, "ollama", ""},
		{"nor does a server of one's own", Spec{Name: "openai:x", BaseURL: "http://gpu:8000/v1"}, "openai", ""},
		{"scripted file", Spec{Name: "scripted:script.json", Dir: dir}, "", ""},
		{"scripted inline", Spec{Name: "scripted:", Script: json.RawMessage(`[{"content":"hi"}]`)}, "", ""},
		{"no key", Spec{Name: "openai:gpt-4o"}, "", "model openai:gpt-4o: has no key; set OPENAI_API_KEY"},
		{"no key of Google", Spec{Name: "googleai:x"}, "", "set GOOGLE_API_KEY or GEMINI_API_KEY"},
		{"no key of Anthropic", Spec{Name: "anthropic:x"}, "", "set ANTHROPIC_API_KEY"},
		{"no provider", Spec{Name: "gpt-4o"}, "", `write provider:model, such as "openai:gpt-4o"`},
		{"unknown provider", Spec{Name: "acme:x"}, "", `there is no provider "acme"; providers are anthropic, azure_openai`},
		{"google", Spec{Name: "google:gemini-2.5-flash"}, "", `there is no provider "google"; did you mean "googleai"?`},
		{"vertex", Spec{Name: "google_vertexai:gemini-2.5-flash"}, "", `did you mean "googleai"?`},
		{"no model", Spec{Name: "openai:", Getenv: keys}, "", "has no model name after the colon"},
		{"only colons", Spec{Name: "openai::", Getenv: keys}, "", "has no model name after the colon"},
		{"colon at the end", Spec{Name: "ollama:llama3.2:"}, "", `model ollama:llama3.2:: has a colon at its end; write "ollama:llama3.2"`},
		{"colon after a script", Spec{Name: "scripted:script.json:", Dir: dir}, "", `write "scripted:script.json"`},
		{"colons and no script", Spec{Name: "scripted::"}, "", `write "scripted:"`},
		{"colons and a script", Spec{Name: "scripted::", Script: json.RawMessage(`[{"content":"hi"}]`)}, "", `write "scripted:"`},
		{"azure", Spec{Name: "azure_openai:gpt", Key: "k"}, "", "needs a base_url"},
		{"address", Spec{Name: "openai:x", BaseURL: "gpu"}, "", "not an http or https URL"},
		{"no script", Spec{Name: "scripted:"}, "", "has no script"},
		{"two scripts", Spec{Name: "scripted:script.json", Script: json.RawMessage(`[]`)}, "", "keep one"},
		{"script is gone", Spec{Name: "scripted:none.json", Dir: dir}, "", "none.json"},
		{"a variable that is empty", Spec{Name: "openai:x", KeyVariable: "NOPE", Getenv: keys}, "", "has no key: NOPE, which api_key names, is empty"},
		{"key of two lines", Spec{Name: "openai:x", Key: "a\nb"}, "", "api_key has a line break"},
		{"variable of two lines", Spec{Name: "anthropic:x", Getenv: func(string) string { return "a\nb" }}, "", "ANTHROPIC_API_KEY has a line break"},
		{"name of a header", Spec{Name: "openai:x", Key: "k", Headers: map[string]string{"x team": "a"}}, "", `"x team" is not the name of a header`},
		{"name of the key's header", Spec{Name: "openai:x", Key: "k", KeyHeader: "api:key"}, "", `"api:key" is not the name of a header`},
		{"header of two lines", Spec{Name: "openai:x", Key: "k", Headers: map[string]string{"x-team": "a\nb"}}, "", "header x-team has a line break"},
		{"organization of two lines", Spec{Name: "openai:x", Key: "k", Organization: "a\nb"}, "", "organization has a line break"},
		{"responses of another provider", Spec{Name: "groq:x", Key: "k", Responses: &always}, "", "use_responses_api is for the providers openai and azure_openai"},
		{"responses of Anthropic", Spec{Name: "anthropic:x", Key: "k", Responses: &always}, "", "use_responses_api is for the providers openai and azure_openai"},
		{"text calls by responses", Spec{Name: "openai:x", Key: "k", Responses: &always, TextCalls: true}, "", "MindIE has no Responses API"},
		{"text calls by responses that a name needs", Spec{Name: "openai:codex-mini-latest", Key: "k", TextCalls: true}, "", "MindIE has no Responses API"},
		{"bad script", Spec{Name: "scripted:", Script: json.RawMessage(`[]`)}, "", "script: has no answers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.spec.Getenv == nil {
				tt.spec.Getenv = none
			}
			m, err := Open(tt.spec)
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.provider, m.Provider)
			require.NotNil(t, m.LLM)
		})
	}
}

// What is set arrives on the wire.
func TestSettings(t *testing.T) {
	t.Parallel()
	var body, header, query string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		body, header, query = string(raw), r.Header.Get("Authorization")+" "+r.Header.Get("X-Team"), r.URL.RawQuery
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer srv.Close()
	zero, once := 0.0, 0
	m, err := Open(Spec{
		Name: "openai:m", BaseURL: srv.URL, Key: " k\r\n", Headers: map[string]string{"x-team": "a\n"}, Query: map[string]string{"v": "1"}, Temperature: &zero, Retries: &once, MaxTokens: 7,
		ExtraBody: map[string]json.RawMessage{"top_k": json.RawMessage("3")}, MaxInputTokens: 9,
	})
	require.NoError(t, err)
	require.Equal(t, 9, m.MaxInputTokens)
	_, err = m.Ask(t.Context(), []message.Message{message.Human("x")}, nil)
	require.ErrorAs(t, err, new(*llm.Error))
	require.Equal(t, "Bearer k a", header)
	require.Equal(t, "v=1", query)
	require.JSONEq(t, `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"temperature":0,"top_k":3}`, body)
}

// A conversation with parallel calls and text next to them reaches Anthropic completely, and so does the stream of its answer.
func TestAnthropic(t *testing.T) {
	t.Parallel()
	var sent gjson.Result
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		sent = gjson.ParseBytes(raw)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"claude","content":[],"usage":{"input_tokens":5,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"ping"}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Let me"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" look"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"weather","input":{}}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"city\":"}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"Rome\"}"}}`,
			`{"type":"content_block_stop","index":1}`,
			`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t2","name":"weather","input":{}}}`,
			`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"city\":\"Bonn\"}"}}`,
			`{"type":"content_block_stop","index":2}`,
			`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":20}}`,
			`{"type":"message_stop"}`,
		} {
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", gjson.Get(event, "type").Str, event)
		}
	}))
	defer srv.Close()
	m, err := Open(Spec{Name: "anthropic:claude", BaseURL: srv.URL, Key: "k"})
	require.NoError(t, err)
	call := func(id, args string) llms.ToolCall {
		return llms.ToolCall{ID: id, Type: "function", FunctionCall: &llms.FunctionCall{Name: "weather", Arguments: args}}
	}
	messages := []llms.MessageContent{
		llms.TextParts(llms.ChatMessageTypeSystem, "Be brief."), llms.TextParts(llms.ChatMessageTypeHuman, "Compare."),
		{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{llms.TextPart("Looking"), call("a", `{"city":"Paris"}`), call("b", `{"city":"Oslo"}`)}},
		{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: "a", Content: "20"}}},
		{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: "b", Content: "10"}}},
		{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{llms.TextPart("")}},
	}
	var a llm.Answer
	for c, err := range llm.Stream(context.Background(), m.LLM, messages, m.Options...) {
		require.NoError(t, err)
		a.Add(c)
	}
	require.Equal(t, "Let me look", a.Content.String())
	require.Len(t, a.ToolCalls, 2)
	require.JSONEq(t, `{"city":"Bonn"}`, a.ToolCalls[1].Arguments.String())
	require.Equal(t, &llm.Usage{Input: 5, Output: 20, Total: 25}, a.Usage)
	require.Equal(t, "tool_use", a.FinishReason)
	require.Equal(t, "Be brief.", sent.Get("system").Str)
	require.EqualValues(t, 8192, sent.Get("max_tokens").Int())
	var kinds []string
	for _, msg := range sent.Get("messages").Array() {
		for _, c := range msg.Get("content").Array() {
			kinds = append(kinds, msg.Get("role").Str+" "+c.Get("type").Str)
		}
	}
	require.Equal(t, "user text, assistant text, assistant tool_use, assistant tool_use, user tool_result, user tool_result", strings.Join(kinds, ", "))
}

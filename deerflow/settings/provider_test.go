package settings

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A key goes to the provider that the class names, or nowhere.
func TestProvider(t *testing.T) {
	t.Parallel()
	for use, want := range map[string]string{
		"langchain_openai:ChatOpenAI": "openai", "langchain_anthropic:ChatAnthropic": "anthropic", "langchain_google_genai:ChatGoogleGenerativeAI": "google_genai",
		"langchain_ollama:ChatOllama": "ollama", "langchain_deepseek:ChatDeepSeek": "deepseek", "understudy:scripted": "scripted",
		"deerflow.models.vllm_provider:VllmChatModel": "openai", "deerflow.models.patched_openai:PatchedChatOpenAI": "openai", "deerflow.models.patched_mimo:PatchedChatMiMo": "openai",
		"deerflow.models.patched_stepfun:PatchedChatStepFun": "openai", "deerflow.models.patched_minimax:PatchedChatMiniMax": "openai",
		"deerflow.models.patched_deepseek:PatchedChatDeepSeek": "deepseek", "deerflow.models.claude_provider:ClaudeChatModel": "anthropic",
		"deerflow.models.mindie_provider:MindIEChatModel": "openai",
	} {
		m := &Model{Name: "m", Use: use}
		got, err := m.Provider()
		require.NoError(t, err, use)
		require.Equal(t, want, got, use)
	}
	for use, why := range map[string]string{
		"deerflow.models.openai_codex_provider:CodexChatModel": "no sign-in with Codex",
		"deerflow.models.new:Other":                            "not known here", "my.models:Model": "not known here", "": "not known here",
	} {
		_, err := (&Model{Name: "m", Use: use}).Provider()
		require.ErrorContains(t, err, why, use)
	}
	require.True(t, (&Model{Use: "deerflow.models.patched_mimo:PatchedChatMiMo"}).ReturnsReasoning())
	require.False(t, (&Model{Use: "deerflow.models.claude_provider:ClaudeChatModel"}).ReturnsReasoning())
}

// A model is called by the Responses API when config.yaml says so, or has a parameter that only this API knows.
func TestResponses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"use: langchain_openai:ChatOpenAI": "null {}",
		"use: langchain_openai:ChatOpenAI\nuse_responses_api: true\noutput_version: responses/v1":                       "true {}",
		"use: langchain_openai:ChatOpenAI\noutput_version: responses/v1":                                                "true {}",
		"use: langchain_openai:ChatOpenAI\nreasoning: {effort: low}\nuse_responses_api: false":                          `false {"reasoning":{"effort":"low"}}`,
		"use: langchain_openai:ChatOpenAI\nreasoning: {effort: low, summary: auto}\nstore: false":                       `true {"reasoning":{"effort":"low","summary":"auto"},"store":false}`,
		"use: langchain_openai:ChatOpenAI\ninclude: [reasoning.encrypted_content]\ntruncation: auto":                    `true {"include":["reasoning.encrypted_content"],"truncation":"auto"}`,
		"use: langchain_anthropic:ChatAnthropic\nreasoning: {effort: low}\ninclude: [a]\ntruncation: auto\nstore: true": `null {}`,
		"use: langchain_deepseek:ChatDeepSeek\nreasoning: {effort: low}\nstore: true":                                   `null {}`,
		"use: langchain_openai:ChatOpenAI\nsupports_reasoning_effort: true\nreasoning: {summary: auto}":                 `true {"reasoning":{"summary":"auto"}}`,
	} {
		s, err := Parse([]byte("models:\n  - name: m\n    "+indented(text)), func(string) (string, bool) { return "", false })
		require.NoError(t, err, text)
		body, err := s.Models[0].Options(false, "")
		require.NoError(t, err, text)
		api, err := json.Marshal(s.Models[0].Responses())
		require.NoError(t, err)
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		require.Equal(t, want, string(api)+" "+string(raw), text)
	}
}

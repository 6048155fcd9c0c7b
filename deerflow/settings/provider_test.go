package settings

import (
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
	} {
		m := &Model{Name: "m", Use: use}
		got, err := m.Provider()
		require.NoError(t, err, use)
		require.Equal(t, want, got, use)
	}
	for use, why := range map[string]string{
		"deerflow.models.openai_codex_provider:CodexChatModel": "no sign-in with Codex", "deerflow.models.mindie_provider:MindIEChatModel": "tool calls as text",
		"deerflow.models.new:Other": "not known here", "my.models:Model": "not known here", "": "not known here",
	} {
		_, err := (&Model{Name: "m", Use: use}).Provider()
		require.ErrorContains(t, err, why, use)
	}
	require.True(t, (&Model{Use: "deerflow.models.patched_mimo:PatchedChatMiMo"}).ReturnsReasoning())
	require.False(t, (&Model{Use: "deerflow.models.claude_provider:ClaudeChatModel"}).ReturnsReasoning())
}

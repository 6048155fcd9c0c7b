package provider

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent/llm"
)

// Variables with an address are those of LangChain's packages. base_url comes before them, and they are of their provider alone.
func TestAddressFromVariables(t *testing.T) {
	t.Parallel()
	tests := []struct{ model, base, variables, want, from string }{
		{"openai:m", "", "OPENAI_BASE_URL=http://a/v1", "http://a/v1", "OPENAI_BASE_URL"},
		{"openai:m", "", "OPENAI_BASE_URL=http://a/v1 OPENAI_API_BASE=http://b/v1", "http://b/v1", "OPENAI_API_BASE"},
		{"openai:m", "http://c/v1", "OPENAI_BASE_URL=http://a/v1", "http://c/v1", ""},
		{"azure_openai:m", "http://c/v1", "OPENAI_BASE_URL=http://a/v1", "http://c/v1", ""},
		{"deepseek:m", "", "OPENAI_BASE_URL=http://a/v1", "", ""},
		{"deepseek:m", "", "DEEPSEEK_API_BASE=http://a", "http://a", "DEEPSEEK_API_BASE"},
		{"mistralai:m", "", "MISTRAL_BASE_URL=http://a/v1", "http://a/v1", "MISTRAL_BASE_URL"},
		{"groq:m", "", "GROQ_API_BASE=http://a", "http://a/openai/v1", "GROQ_API_BASE"},
		{"openrouter:m", "", "OPENROUTER_API_BASE=http://a/v1", "http://a/v1", "OPENROUTER_API_BASE"},
		{"anthropic:m", "", "ANTHROPIC_BASE_URL=http://a", "http://a", "ANTHROPIC_BASE_URL"},
		{"anthropic:m", "", "ANTHROPIC_BASE_URL=http://a ANTHROPIC_API_URL=http://b", "http://b", "ANTHROPIC_API_URL"},
		{"ollama:m", "", "OLLAMA_HOST=gpu", "http://gpu:11434/v1", "OLLAMA_HOST"},
		{"ollama:m", "", "OLLAMA_HOST=gpu:8080", "http://gpu:8080/v1", "OLLAMA_HOST"},
		{"ollama:m", "", "OLLAMA_HOST=:8080", "http://127.0.0.1:8080/v1", "OLLAMA_HOST"},
		{"ollama:m", "", "OLLAMA_HOST=0.0.0.0", "http://127.0.0.1:11434/v1", "OLLAMA_HOST"},
		{"ollama:m", "", "OLLAMA_HOST=::1", "http://[::1]:11434/v1", "OLLAMA_HOST"},
		{"ollama:m", "", "OLLAMA_HOST=[::]:8080", "http://127.0.0.1:8080/v1", "OLLAMA_HOST"},
		{"ollama:m", "", "OLLAMA_HOST=https://gpu.test", "https://gpu.test:443/v1", "OLLAMA_HOST"},
		{"ollama:m", "", "OLLAMA_HOST=http://gpu.test", "http://gpu.test:80/v1", "OLLAMA_HOST"},
		{"ollama:m", "", "OLLAMA_HOST=http://gpu.test:1/sub/v1/", "http://gpu.test:1/sub/v1/", "OLLAMA_HOST"},
	}
	for _, tt := range tests {
		t.Run(tt.model+" "+tt.variables, func(t *testing.T) {
			t.Parallel()
			getenv := func(name string) string {
				for pair := range strings.SplitSeq(tt.variables, " ") {
					if value, ok := strings.CutPrefix(pair, name+"="); ok {
						return value + "\n"
					}
				}
				return ""
			}
			provider, _, _ := strings.Cut(tt.model, ":")
			log := &bytes.Buffer{}
			s := Spec{Name: tt.model, BaseURL: tt.base, Getenv: getenv, Log: slog.New(slog.NewTextHandler(log, nil))}
			var from llm.Source
			if provider == "anthropic" {
				s.fromVariable(&from, "ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL")
			} else {
				s.fromVariable(&from, services[provider].address...)
			}
			require.Equal(t, tt.want, s.BaseURL)
			require.Equal(t, tt.from, from.Base)
			require.Equal(t, tt.from != "", strings.Contains(log.String(), "variable="+tt.from+" base_url="+tt.want))

			s.BaseURL, s.Key = tt.base, "k"
			m, err := Open(s)
			require.NoError(t, err)
			require.Equal(t, tt.from, m.Source.Base)
		})
	}
	_, err := Open(Spec{Name: "openai:m", Key: "k", Getenv: func(name string) string { return map[string]string{"OPENAI_BASE_URL": "gpu"}[name] }})
	require.ErrorContains(t, err, "OPENAI_BASE_URL: base URL")
}

// Settings that do nothing are warnings at start, and so are those without which a provider refuses all requests.
func TestWarnings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spec Spec
		want string
	}{
		"caching":              {Spec{Name: "openai:m", PromptCaching: "5m"}, "prompt_caching is ignored"},
		"caching of anthropic": {Spec{Name: "anthropic:m", PromptCaching: "5m"}, ""},
		"azure":                {Spec{Name: "azure_openai:m", BaseURL: "https://x.openai.azure.com/openai/deployments/d"}, "no api-version"},
		"azure with query":     {Spec{Name: "azure_openai:m", BaseURL: "https://x.openai.azure.com/openai/deployments/d", Query: map[string]string{"api-version": "1"}}, ""},
		"azure with address":   {Spec{Name: "azure_openai:m", BaseURL: "https://x.openai.azure.com/openai/deployments/d?api-version=1"}, ""},
		"azure v1":             {Spec{Name: "azure_openai:m", BaseURL: "https://x.openai.azure.com/openai/v1/"}, ""},
		"plain":                {Spec{Name: "openai:m"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &bytes.Buffer{}
			tt.spec.Key, tt.spec.Place, tt.spec.Getenv, tt.spec.Log = "k", "graphs.a.agent.model", none, slog.New(slog.NewTextHandler(log, nil))
			_, err := Open(tt.spec)
			require.NoError(t, err)
			if tt.want == "" {
				require.Empty(t, log.String())
				return
			}
			require.Contains(t, log.String(), tt.want)
			require.Contains(t, log.String(), "place=graphs.a.agent.model")
		})
	}
}

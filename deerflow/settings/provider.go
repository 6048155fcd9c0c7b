package settings

import (
	"fmt"
	"slices"
	"strings"
)

// modelClass is what the beginning of a model's `use` says about its client.
type modelClass struct {
	use, provider string
	reasons       bool   // its server wants the reasoning of earlier answers back
	textCalls     bool   // calls of tools are text
	missing       string // why there is no such client; "": there is
	signIn        string // how DeerFlow's client also gets in, and this one does not; "": with a key alone
}

var modelClasses = []modelClass{
	{use: "langchain_openai", provider: "openai"},
	{use: "langchain_anthropic", provider: "anthropic"},
	{use: "langchain_google_genai", provider: "google_genai"},
	{use: "langchain_deepseek", provider: "deepseek"},
	{use: "langchain_ollama", provider: "ollama"},
	{use: "langchain_groq", provider: "groq"},
	{use: "langchain_mistralai", provider: "mistralai"},
	{use: "langchain_xai", provider: "xai"},
	{use: "understudy:scripted", provider: "scripted"},
	{use: "deerflow.models.vllm", provider: "openai", reasons: true},
	{use: "deerflow.models.patched_openai", provider: "openai", reasons: true},
	{use: "deerflow.models.patched_minimax", provider: "openai", reasons: true},
	{use: "deerflow.models.patched_mimo", provider: "openai", reasons: true},
	{use: "deerflow.models.patched_stepfun", provider: "openai", reasons: true},
	{use: "deerflow.models.patched_deepseek", provider: "deepseek", reasons: true},
	{use: "deerflow.models.claude_provider", provider: "anthropic", signIn: "there is no sign-in with Claude Code here: the model needs a key of Anthropic's API"},
	{use: "deerflow.models.openai_codex_provider", missing: "there is no sign-in with Codex; use langchain_openai:ChatOpenAI with a key and use_responses_api: true"},
	{use: "deerflow.models.mindie_provider", provider: "openai", textCalls: true},
}

func (m *Model) class() (modelClass, bool) {
	i := slices.IndexFunc(modelClasses, func(c modelClass) bool { return strings.HasPrefix(m.Use, c.use) })
	if i < 0 {
		return modelClass{}, false
	}
	return modelClasses[i], true
}

// Provider returns the name of the provider whose wire the model has. A class that is not known, or for which there is no client, is an error: its key must not go
// to another provider.
func (m *Model) Provider() (string, error) {
	c, ok := m.class()
	switch {
	case !ok:
		return "", fmt.Errorf("model %s: use %q is not known here", m.Name, m.Use)
	case c.missing != "":
		return "", fmt.Errorf("model %s: use %q: %s", m.Name, m.Use, c.missing)
	}
	return c.provider, nil
}

// SignIn says of a model without a key which sign-in DeerFlow would use that is not there; "" none.
func (m *Model) SignIn() string {
	c, _ := m.class()
	return c.signIn
}

// ReturnsReasoning reports whether the provider wants the reasoning of earlier answers back: DeerFlow's own clients for such servers do that.
func (m *Model) ReturnsReasoning() bool {
	c, _ := m.class()
	return c.reasons
}

// TextCalls reports whether the model's calls of tools are text.
func (m *Model) TextCalls() bool {
	c, _ := m.class()
	return c.textCalls
}

// Responses reports whether the model is called by OpenAI's Responses API; nil: if it has no other. Like LangChain's client, it is so where a parameter is set that only this API
// has.
func (m *Model) Responses() *bool {
	if m.UseResponses != nil {
		return m.UseResponses
	}
	if c, _ := m.class(); c.provider != "openai" {
		return nil
	}
	if m.OutputVersion == "responses/v1" || m.Reasoning != nil || m.Include != nil || m.Truncation != "" {
		yes := true
		return &yes
	}
	return nil
}

// ofResponses are the parameters of requests that are fields of their own. Other providers refuse requests with them.
func (m *Model) ofResponses() map[string]any {
	out := map[string]any{}
	if c, _ := m.class(); c.provider != "openai" {
		return out
	}
	if m.Reasoning != nil {
		out["reasoning"] = m.Reasoning
	}
	if m.Include != nil {
		out["include"] = m.Include
	}
	if m.Truncation != "" {
		out["truncation"] = m.Truncation
	}
	if m.Store != nil {
		out["store"] = *m.Store
	}
	return out
}

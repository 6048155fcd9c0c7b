// Package provider opens chat models by name: provider:model, such as openai:gpt-4o or ollama:llama3.2.
//
// Providers that speak OpenAI's chat wire, which most do, Gemini and Ollama among them, are spoken to by package openai. Anthropic comes
// through langchaingo. scripted needs neither key nor network.
package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/anthropic"

	"understudy/graph/agent"
	"understudy/graph/agent/openai"
	"understudy/graph/agent/scripted"
)

// Spec says which model, and how it is reached. Only Name is required.
type Spec struct {
	Name                  string // provider:model. scripted:FILE reads a script; scripted: alone takes Script
	BaseURL               string // "": the provider's own
	Key                   string // "": the provider's variable, such as OPENAI_API_KEY
	Organization, Project string
	Headers, Query        map[string]string
	ExtraBody             map[string]json.RawMessage // members of the request
	Temperature           *float64
	MaxTokens             int           // of an answer
	MaxInputTokens        int           // input size of the model, for fractions
	Timeout               time.Duration // until an answer begins
	Retries               *int
	Script                json.RawMessage

	Dir    string                   // where relative files are
	Getenv func(name string) string // nil: the environment
}

// service is a provider that speaks OpenAI's wire.
type service struct {
	name     string // as LangChain names it
	base     string
	key      []string // variables that may hold the key
	optional bool     // no key is fine
}

var services = map[string]service{
	"openai":       {"openai", openai.DefaultBaseURL, []string{"OPENAI_API_KEY"}, false},
	"azure_openai": {"azure", "", []string{"AZURE_OPENAI_API_KEY"}, false},
	"googleai":     {"google_genai", "https://generativelanguage.googleapis.com/v1beta/openai", []string{"GOOGLE_API_KEY", "GEMINI_API_KEY"}, false},
	"google_genai": {"google_genai", "https://generativelanguage.googleapis.com/v1beta/openai", []string{"GOOGLE_API_KEY", "GEMINI_API_KEY"}, false},
	"ollama":       {"ollama", "http://127.0.0.1:11434/v1", []string{"OLLAMA_API_KEY"}, true},
	"deepseek":     {"deepseek", "https://api.deepseek.com/v1", []string{"DEEPSEEK_API_KEY"}, false},
	"groq":         {"groq", "https://api.groq.com/openai/v1", []string{"GROQ_API_KEY"}, false},
	"mistralai":    {"mistralai", "https://api.mistral.ai/v1", []string{"MISTRAL_API_KEY"}, false},
	"openrouter":   {"openrouter", "https://openrouter.ai/api/v1", []string{"OPENROUTER_API_KEY"}, false},
	"xai":          {"xai", "https://api.x.ai/v1", []string{"XAI_API_KEY"}, false},
}

// Names are the providers there are.
func Names() []string {
	names := []string{"anthropic", "scripted"}
	for name := range services {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Open makes a model. It connects to nothing, but reads the script of a scripted one.
func Open(s Spec) (agent.Model, error) {
	if s.Getenv == nil {
		s.Getenv = os.Getenv
	}
	provider, model, ok := strings.Cut(s.Name, ":")
	if !ok {
		return agent.Model{}, fmt.Errorf(`model %q: write provider:model, such as "openai:gpt-4o"; providers are %s`, s.Name, strings.Join(Names(), ", "))
	}
	m := agent.Model{Provider: provider, Name: model, MaxInputTokens: s.MaxInputTokens}
	if s.MaxTokens > 0 {
		m.Options = append(m.Options, llms.WithMaxTokens(s.MaxTokens))
	}
	var err error
	if provider == "scripted" {
		m.Provider, m.Name = "", "" // its messages say nothing of where they come from
		m.LLM, err = s.scripted(model)
	} else if model == "" {
		err = errors.New("names no model behind the colon")
	} else if provider == "anthropic" {
		m.LLM, err = s.anthropic(model)
		if s.Temperature != nil {
			m.Options = append(m.Options, llms.WithTemperature(*s.Temperature))
		}
	} else if svc, known := services[provider]; known {
		m.Provider = svc.name
		m.LLM, err = s.openai(svc, model)
	} else {
		err = fmt.Errorf("there is no provider %q; providers are %s", provider, strings.Join(Names(), ", "))
	}
	if err != nil {
		return agent.Model{}, fmt.Errorf("model %s: %w", s.Name, err)
	}
	return m, nil
}

func (s Spec) scripted(file string) (llms.Model, error) {
	script := s.Script
	switch {
	case file != "" && script != nil:
		return nil, errors.New("has a script in a file and another in its settings; keep one")
	case file != "":
		if !filepath.IsAbs(file) {
			file = filepath.Join(s.Dir, file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		script = text
	case script == nil:
		return nil, errors.New(`has no script; write "scripted:FILE", or give "script": [{"content": "…"}]`)
	}
	return scripted.Parse(script)
}

// key looks for the key of a provider.
func (s Spec) key(optional bool, variables ...string) (string, error) {
	if s.Key != "" {
		return s.Key, nil
	}
	for _, name := range variables {
		if v := s.Getenv(name); v != "" {
			return v, nil
		}
	}
	// A server of one's own mostly asks for none.
	if optional || s.BaseURL != "" {
		return "", nil
	}
	return "", fmt.Errorf("has no key; set %s", strings.Join(variables, " or "))
}

func (s Spec) openai(svc service, model string) (llms.Model, error) {
	key, err := s.key(svc.optional, svc.key...)
	if err != nil {
		return nil, err
	}
	o := openai.Options{
		Model: model, Key: key, BaseURL: s.BaseURL, Organization: s.Organization, Project: s.Project, Timeout: s.Timeout, Extra: s.ExtraBody,
		Header: http.Header{}, Query: url.Values{},
	}
	if o.BaseURL == "" {
		if o.BaseURL = svc.base; o.BaseURL == "" {
			return nil, errors.New("needs a base_url")
		}
	}
	for k, v := range s.Headers {
		o.Header.Set(k, v)
	}
	for k, v := range s.Query {
		o.Query.Set(k, v)
	}
	if s.Retries != nil {
		if o.Retries = *s.Retries; o.Retries == 0 {
			o.Retries = -1
		}
	}
	if s.Temperature != nil {
		raw, err := json.Marshal(*s.Temperature)
		if err != nil {
			return nil, err
		}
		extra := map[string]json.RawMessage{"temperature": raw} // zero too, which langchaingo's options cannot say
		for k, v := range s.ExtraBody {
			extra[k] = v
		}
		o.Extra = extra
	}
	return openai.New(o)
}

// maxAnswer is the default maximum length of Anthropic's answers: their API requires a number.
const maxAnswer = 8192

func (s Spec) anthropic(model string) (llms.Model, error) {
	key, err := s.key(false, "ANTHROPIC_API_KEY")
	if err != nil {
		return nil, err
	}
	options := []anthropic.Option{anthropic.WithModel(model), anthropic.WithToken(key)}
	if s.BaseURL != "" {
		options = append(options, anthropic.WithBaseURL(s.BaseURL))
	}
	llm, err := anthropic.New(options...)
	if err != nil {
		return nil, err
	}
	if s.MaxTokens == 0 {
		return claude{llm, []llms.CallOption{llms.WithMaxTokens(maxAnswer)}}, nil
	}
	return claude{llm, nil}, nil
}

// Package provider opens chat models by name: provider:model, such as openai:gpt-4o or ollama:llama3.2.
//
// Providers that speak OpenAI's chat wire, which most do, Gemini and Ollama among them, are spoken to by package openai, Anthropic by package
// anthropic. scripted needs neither key nor network.
package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent"
	"understudy/graph/agent/anthropic"
	"understudy/graph/agent/internal/wire"
	"understudy/graph/agent/llm"
	"understudy/graph/agent/openai"
	"understudy/graph/agent/scripted"
	"understudy/internal/shell"
)

// Spec says which model, and how it is reached. Only Name is required.
type Spec struct {
	Name                  string // provider:model. scripted:FILE reads a script; scripted: alone takes Script
	BaseURL               string // "": the provider's variable, such as OPENAI_BASE_URL, or its own
	Key                   string // "": the provider's variable, such as OPENAI_API_KEY. White space around it is removed
	KeyVariable           string // the variable that Key is from, for errors; if Key is "" then, there is no key
	Organization, Project string
	Headers, Query        map[string]string
	ExtraBody             map[string]json.RawMessage // members of the request
	Temperature           *float64
	MaxTokens             int           // of an answer
	MaxInputTokens        int           // input size of the model, for fractions
	Timeout               time.Duration // until an answer begins; 0: ten minutes
	IdleTimeout           time.Duration // between two signs of life of an answer; 0: ten minutes
	Retries               *int
	MaxEventSize          int    // bytes of one event of an answer; 0: 8 MiB
	KeyHeader             string // header of the key; "": the provider's
	MaxCompletionTokens   *bool  // max_completion_tokens in place of max_tokens; nil: as the provider has it
	ReturnReasoning       *bool  // return reasoning_content; nil: as the provider wants it
	Responses             *bool  // of openai and azure_openai: the Responses API in place of chat completions; nil: for models of OpenAI that have no other
	TextCalls             bool   // of openai: calls of tools are text, as MindIE has them
	Images                bool   // it reads images: it gets those that tools return, too
	PromptCaching         string // Anthropic's: "5m" or "1h"; "": none
	Script                json.RawMessage
	Log                   *slog.Logger // nil: slog.Default

	Place  string                   // where the settings are, for errors, such as graphs.chat.agent.model; "": unknown
	Dir    string                   // where relative files are
	Getenv func(name string) string // nil: the environment
}

// service is a provider that speaks OpenAI's wire.
type service struct {
	name     string // as LangChain names it
	base     string
	key      []string // variables that may hold the key
	optional bool     // no key is fine
	quirks   openai.Quirks
	header   string   // of the key; "": Authorization
	address  []string // variables that may hold the address, as the provider's package for LangChain reads them
}

const gemini = "https://generativelanguage.googleapis.com/v1beta/openai"

var always = true

// fileID is what providers lack that keep no files for their chat API.
const fileID = "file ID"

var services = map[string]service{
	"openai":       {"openai", openai.DefaultBaseURL, []string{"OPENAI_API_KEY"}, false, openai.Quirks{}, "", []string{"OPENAI_API_BASE", "OPENAI_BASE_URL"}},
	"azure_openai": {"azure", "", []string{"AZURE_OPENAI_API_KEY"}, false, openai.Quirks{MaxCompletionTokens: &always}, "api-key", nil},
	"googleai":     {"google_genai", gemini, []string{"GOOGLE_API_KEY", "GEMINI_API_KEY"}, false, openai.Quirks{ReturnExtra: true, Lacks: []string{fileID}}, "", nil},
	"google_genai": {"google_genai", gemini, []string{"GOOGLE_API_KEY", "GEMINI_API_KEY"}, false, openai.Quirks{ReturnExtra: true, Lacks: []string{fileID}}, "", nil},
	"ollama":       {"ollama", "http://127.0.0.1:11434/v1", []string{"OLLAMA_API_KEY"}, true, openai.Quirks{Lacks: []string{"audio", "video", "file", fileID}}, "", []string{"OLLAMA_HOST"}},
	"deepseek":     {"deepseek", "https://api.deepseek.com/v1", []string{"DEEPSEEK_API_KEY"}, false, openai.Quirks{ReturnReasoning: true, Lacks: []string{"image", "audio", "video", "file", fileID}}, "", []string{"DEEPSEEK_API_BASE"}},
	"groq":         {"groq", "https://api.groq.com/openai/v1", []string{"GROQ_API_KEY"}, false, openai.Quirks{Lacks: []string{"audio", "video", "file", fileID}}, "", []string{"GROQ_API_BASE"}},
	"mistralai":    {"mistralai", "https://api.mistral.ai/v1", []string{"MISTRAL_API_KEY"}, false, openai.Quirks{NoUsage: true, ShortIDs: true, Lacks: []string{"video", "file", fileID}}, "", []string{"MISTRAL_BASE_URL"}},
	"openrouter":   {"openrouter", "https://openrouter.ai/api/v1", []string{"OPENROUTER_API_KEY"}, false, openai.Quirks{ReturnDetails: true, Lacks: []string{fileID}}, "", []string{"OPENROUTER_API_BASE"}},
	"xai":          {"xai", "https://api.x.ai/v1", []string{"XAI_API_KEY"}, false, openai.Quirks{Lacks: []string{"audio", "video", "file", fileID}}, "", nil},
}

// Names returns the known providers.
func Names() []string {
	names := []string{"anthropic", "scripted"}
	for name := range services {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// others are names of providers that people write, and ours.
var others = map[string]string{
	"google": "googleai", "gemini": "googleai", "google_vertexai": "googleai", "vertexai": "googleai", "azure": "azure_openai", "azureopenai": "azure_openai",
	"mistral": "mistralai", "claude": "anthropic", "grok": "xai", "open_router": "openrouter", "chatgpt": "openai",
}

// meant suggests the provider that a name stands for; "" if it is not known.
func meant(name string) string {
	if known := others[strings.ToLower(strings.ReplaceAll(name, "-", "_"))]; known != "" {
		return fmt.Sprintf("; did you mean %q?", known)
	}
	return ""
}

// colonAtEnd returns an error for a model name that ends in a colon: of a service it is unknown, and of a script there is no such file.
func colonAtEnd(provider, model string) error {
	bare := strings.TrimRight(model, ":")
	switch {
	case bare == model:
		return nil
	case bare == "" && provider != "scripted":
		return errors.New("has no model name after the colon")
	}
	return fmt.Errorf("has a colon at its end; write %q", provider+":"+bare)
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
	m := agent.Model{Provider: provider, Name: model, MaxInputTokens: s.MaxInputTokens, Source: llm.Source{Name: s.Name, Place: s.Place}}
	if s.MaxTokens > 0 {
		m.Options = append(m.Options, llms.WithMaxTokens(s.MaxTokens))
	}
	err := s.checkHeaders()
	if err == nil && s.Responses != nil && *s.Responses && provider != "openai" && provider != "azure_openai" {
		err = errors.New("use_responses_api is for the providers openai and azure_openai; write openai with base_url for another server that has this API")
	}
	if err == nil {
		err = colonAtEnd(provider, model)
	}
	if err != nil {
		return agent.Model{}, fmt.Errorf("model %s: %w", s.Name, err)
	}
	if provider == "scripted" {
		m.Provider, m.Name = "", "" // its messages say nothing of where they come from
		m.Source = llm.Source{}     // its errors are those that the script has
		m.LLM, err = s.scripted(model)
	} else if model == "" {
		err = errors.New("has no model name after the colon")
	} else if provider == "anthropic" {
		m.LLM, err = s.anthropic(model, &m.Source)
	} else if svc, known := services[provider]; known {
		m.Provider = svc.name
		m.LLM, err = s.openai(svc, model, &m.Source)
	} else {
		err = fmt.Errorf("there is no provider %q%s; providers are %s", provider, meant(provider), strings.Join(Names(), ", "))
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
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("%w; let the user of the server read it: chmod a+r %s", err, shell.Quote(file))
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%w; a path in scripted:FILE begins at the folder of the configuration", err)
		case err != nil:
			return nil, err
		}
		script = text
	case script == nil:
		return nil, errors.New(`has no script; write "scripted:FILE", or give "script": [{"content": "…"}]`)
	}
	return scripted.Parse(script)
}

// key looks for the key of a provider, and notes in from where it is.
func (s Spec) key(from *llm.Source, optional bool, variables ...string) (string, error) {
	key := strings.TrimSpace(s.Key) // mounted secrets end with a newline
	from.Key = s.KeyVariable
	for _, name := range variables {
		if key != "" || s.KeyVariable != "" {
			break
		}
		if key = strings.TrimSpace(s.Getenv(name)); key != "" {
			from.Key = name
		}
	}
	switch {
	case key != "" && !headerText(key):
		return "", fmt.Errorf("%s has a line break or another control character, which no header can have", cmp.Or(from.Key, "api_key"))
	case key != "":
		return key, nil
	case optional || s.BaseURL != "": // a server of one's own mostly asks for none
		from.NoKey = true
		return "", nil
	case s.KeyVariable != "":
		return "", fmt.Errorf("has no key: %s, which api_key names, is empty; set it", s.KeyVariable)
	}
	return "", fmt.Errorf("has no key; set %s", strings.Join(variables, " or "))
}

// headerText reports whether a text can be the value of a header.
func headerText(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// headerName are names of headers.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// checkHeaders returns an error that names a header which cannot be sent.
func (s Spec) checkHeaders() error {
	if s.KeyHeader != "" && !headerName.MatchString(s.KeyHeader) {
		return fmt.Errorf("%q is not the name of a header", s.KeyHeader)
	}
	for name, value := range map[string]string{"organization": s.Organization, "project": s.Project} {
		if !headerText(value) {
			return fmt.Errorf("%s has a line break or another control character", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if !headerName.MatchString(name) {
			return fmt.Errorf("%q is not the name of a header", name)
		}
		if !headerText(strings.TrimSpace(s.Headers[name])) {
			return fmt.Errorf("header %s has a line break or another control character", name)
		}
	}
	return nil
}

// fromVariable sets the address from the first of some variables that is set, unless there is a base_url, and notes it in from.
func (s *Spec) fromVariable(from *llm.Source, variables ...string) {
	s.BaseURL = strings.TrimSpace(s.BaseURL)
	for _, name := range variables {
		value := strings.TrimSpace(s.Getenv(name))
		if s.BaseURL != "" || value == "" {
			continue
		}
		switch name {
		case "OLLAMA_HOST":
			value = ollamaHost(value)
		case "GROQ_API_BASE": // Groq's own package adds the path
			if u, err := url.Parse(value); err == nil && strings.Trim(u.Path, "/") == "" {
				value = u.JoinPath("openai", "v1").String()
			}
		}
		s.BaseURL, from.Base = value, name
		log := cmp.Or(s.Log, slog.Default())
		log.Info("address of a model from a variable", "model", s.Name, "place", s.Place, "variable", name, "base_url", wire.URL(value))
	}
}

// ollamaHost returns the address for a value of OLLAMA_HOST, which may lack scheme, host and port. The one on which a server listens on all
// interfaces is this machine.
func ollamaHost(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	if !ok {
		scheme, rest, port = "http", value, "11434"
	}
	if strings.Count(rest, ":") > 1 && !strings.HasPrefix(rest, "[") {
		rest = "[" + rest + "]" // an IPv6 address alone
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		return value
	}
	host := cmp.Or(u.Hostname(), "127.0.0.1")
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	u.Host = net.JoinHostPort(host, cmp.Or(u.Port(), port))
	if strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1") {
		return u.String()
	}
	return u.JoinPath("v1").String()
}

// warn logs settings that do nothing, or without which requests will fail.
func (s Spec) warn(provider string) {
	log := cmp.Or(s.Log, slog.Default()).With("model", s.Name, "place", s.Place)
	if s.PromptCaching != "" {
		log.Warn("prompt_caching is ignored: only anthropic has it; others cache on their own")
	}
	u, err := url.Parse(s.BaseURL)
	if provider != "azure" || err != nil || u.Query().Has("api-version") || strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1") {
		return
	}
	if _, ok := s.Query["api-version"]; !ok {
		log.Warn(`no api-version: Azure answers 404 without it; set query to {"api-version": "…"}`)
	}
}

// named adds the variable that has the address to an error of a client.
func named(model llms.Model, err error, from *llm.Source) (llms.Model, error) {
	if err != nil && from.Base != "" {
		return nil, fmt.Errorf("%s: %w", from.Base, err)
	}
	return model, err
}

func (s Spec) openai(svc service, model string, from *llm.Source) (llms.Model, error) {
	s.fromVariable(from, svc.address...)
	key, err := s.key(from, svc.optional, svc.key...)
	if err != nil {
		return nil, err
	}
	header, query := s.sent()
	o := openai.Options{
		Model: model, Key: key, KeyHeader: cmp.Or(s.KeyHeader, svc.header), BaseURL: s.BaseURL, Organization: s.Organization, Project: s.Project, Header: header, Query: query,
		Extra: s.extra(), Quirks: svc.quirks, Timeout: s.Timeout, Idle: s.IdleTimeout, Retries: s.retries(), MaxEvent: s.MaxEventSize, Log: s.Log,
	}
	if o.BaseURL == "" {
		if o.BaseURL = svc.base; o.BaseURL == "" {
			return nil, errors.New("needs a base_url")
		}
	}
	if s.MaxCompletionTokens != nil {
		o.Quirks.MaxCompletionTokens = s.MaxCompletionTokens
	}
	if s.ReturnReasoning != nil {
		o.Quirks.ReturnReasoning = *s.ReturnReasoning
	}
	if s.Images {
		o.Quirks.Lacks = slices.DeleteFunc(slices.Clone(o.Quirks.Lacks), func(kind string) bool { return kind == "image" })
	}
	o.Quirks.TextCalls = s.TextCalls
	if o.Responses = s.BaseURL == "" && svc.name == "openai" && openai.NeedsResponses(model); s.Responses != nil {
		o.Responses = *s.Responses
	}
	if o.Responses && s.TextCalls {
		return nil, errors.New("MindIE has no Responses API; remove use_responses_api, output_version, reasoning, include and truncation")
	}
	o.Quirks.ToolImages = s.Images && svc.name != "mistralai" // which refuses a user's message behind a tool's
	if svc.name == "openai" && s.BaseURL != "" {
		o.Quirks.ReturnExtra = true // Gemini may be behind it, at Vertex for one
	}
	if strings.HasPrefix(svc.name, "google") {
		o.Quirks.Signatures = !strings.HasPrefix(model, "gemini-1") && !strings.HasPrefix(model, "gemini-2")
	}
	s.warn(svc.name)
	client, err := openai.New(o)
	return named(client, err, from)
}

func (s Spec) anthropic(model string, from *llm.Source) (llms.Model, error) {
	s.fromVariable(from, "ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL")
	key, err := s.key(from, false, "ANTHROPIC_API_KEY")
	if err != nil {
		return nil, err
	}
	header, query := s.sent()
	client, err := anthropic.New(anthropic.Options{
		Model: model, Key: key, KeyHeader: s.KeyHeader, BaseURL: s.BaseURL, Header: header, Query: query, Extra: s.extra(), Caching: s.PromptCaching,
		Timeout: s.Timeout, Idle: s.IdleTimeout, Retries: s.retries(), MaxEvent: s.MaxEventSize, Log: s.Log,
	})
	return named(client, err, from)
}

// sent returns the configured headers and query.
func (s Spec) sent() (http.Header, url.Values) {
	header, query := http.Header{}, url.Values{}
	for k, v := range s.Headers {
		header.Set(k, strings.TrimSpace(v))
	}
	for k, v := range s.Query {
		query.Set(k, v)
	}
	return header, query
}

// retries returns the retries as clients count them: 0 is their default.
func (s Spec) retries() int {
	switch {
	case s.Retries == nil:
		return 0
	case *s.Retries == 0:
		return -1
	}
	return *s.Retries
}

// extra returns the configured members of the request, with the temperature: langchaingo's options cannot say zero.
func (s Spec) extra() map[string]json.RawMessage {
	if s.Temperature == nil {
		return s.ExtraBody
	}
	extra := map[string]json.RawMessage{"temperature": strconv.AppendFloat(nil, *s.Temperature, 'f', -1, 64)}
	maps.Copy(extra, s.ExtraBody)
	return extra
}

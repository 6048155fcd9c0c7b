package settings

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Newest is the config_version that this package knows.
const Newest = 34

// Settings are the contents of a config.yaml, with defaults. They are immutable.
type Settings struct {
	Version    int     `yaml:"config_version"`
	Models     []Model `yaml:"models"`
	ToolGroups []struct {
		Name string `yaml:"name"`
	} `yaml:"tool_groups"`
	Tools          []Tool        `yaml:"tools"`
	Sandbox        Sandbox       `yaml:"sandbox"`
	TokenUsage     Switch        `yaml:"token_usage"`
	Skills         Skills        `yaml:"skills"`
	SkillScan      Switch        `yaml:"skill_scan"`
	Uploads        Uploads       `yaml:"uploads"`
	Memory         Memory        `yaml:"memory"`
	Suggestions    Suggestions   `yaml:"suggestions"`
	InputPolish    InputPolish   `yaml:"input_polish"`
	AgentsAPI      Switch        `yaml:"agents_api"`
	SkillEvolution Evolution     `yaml:"skill_evolution"`
	Title          Title         `yaml:"title"`
	Scheduler      Scheduler     `yaml:"scheduler"`
	Summarization  Summarization `yaml:"summarization"`
	LoopDetection  LoopDetection `yaml:"loop_detection"`
	Guardrails     Guardrails    `yaml:"guardrails"`
	ToolSearch     Switch        `yaml:"tool_search"`
	ToolOutput     ToolOutput    `yaml:"tool_output"`

	// What guards the agent against text that pretends to be the agent's own, and against replacing files that it does not know.
	InputSanitization      Switch `yaml:"input_sanitization"`
	ToolResultSanitization Switch `yaml:"tool_result_sanitization"`
	ReadBeforeWrite        Switch `yaml:"read_before_write"`

	SafetyFinishReason SafetyFinishReason `yaml:"safety_finish_reason"`
	TokenBudget        TokenBudget        `yaml:"token_budget"`
	ToolProgress       ToolProgress       `yaml:"tool_progress"`

	CircuitBreaker    CircuitBreaker `yaml:"circuit_breaker"`
	Subagents         Subagents      `yaml:"subagents"`
	MaxRecursionLimit int            `yaml:"max_recursion_limit"`

	ACP map[string]ACPAgent `yaml:"acp_agents"`

	Authorization Switch `yaml:"authorization"` // refused when it is on

	Auth struct {
		Local struct {
			AllowRegistration *bool `yaml:"allow_registration"`
		} `yaml:"local"`
		OIDC OIDC `yaml:"oidc"`
	} `yaml:"auth"`

	// Extensions are middleware in Python for DeerFlow's own agent; see Classes.
	Extensions struct {
		Middlewares []any `yaml:"middlewares"`
	} `yaml:"extensions"`

	// Warnings are what is suspicious, but no mistake.
	Warnings []string `yaml:"-"`
	Unused   []string `yaml:"-"` // keys of DeerFlow that have no effect here
}

// Switch turns a part on or off.
type Switch struct {
	Enabled bool `yaml:"enabled" json:"enabled"`
}

// Model is one entry of models.
type Model struct {
	Name            string   `yaml:"name"`
	DisplayName     *string  `yaml:"display_name"`
	Description     *string  `yaml:"description"`
	Use             string   `yaml:"use"`
	Model           string   `yaml:"model"`
	Thinking        bool     `yaml:"supports_thinking"`
	Vision          bool     `yaml:"supports_vision"`
	ReasoningEffort bool     `yaml:"supports_reasoning_effort"`
	APIKey          string   `yaml:"api_key"`
	BaseURL         string   `yaml:"base_url"`
	APIBase         string   `yaml:"api_base"` // another name of base_url
	MaxTokens       int      `yaml:"max_tokens"`
	Temperature     *float64 `yaml:"temperature"`
	ContextWindow   int      `yaml:"context_window"`
	ReadTimeout     float64  `yaml:"read_timeout"` // seconds, of MindIE

	// Parameters of requests: always, and with thinking on and off. See Options.
	Effort          string         `yaml:"reasoning_effort"`
	ExtraBody       map[string]any `yaml:"extra_body"`
	ModelKwargs     map[string]any `yaml:"model_kwargs"`
	WhenOn          map[string]any `yaml:"when_thinking_enabled"`
	WhenOff         map[string]any `yaml:"when_thinking_disabled"`
	ThinkingOptions map[string]any `yaml:"thinking"`

	// OpenAI's Responses API, and parameters of its requests. See Responses.
	UseResponses  *bool          `yaml:"use_responses_api"`
	OutputVersion string         `yaml:"output_version"`
	Reasoning     map[string]any `yaml:"reasoning"`
	Include       []string       `yaml:"include"`
	Truncation    string         `yaml:"truncation"`
	Store         *bool          `yaml:"store"`

	Pricing any `yaml:"pricing"` // see PricesOf; a mistake in it only means that costs are not shown
}

// Tool is one entry of tools.
type Tool struct {
	Name  string `yaml:"name"`
	Group string `yaml:"group"`
	Use   string `yaml:"use"`

	// Of tools for the web and for searches.
	APIKey     string  `yaml:"api_key"`
	BaseURL    string  `yaml:"base_url"`
	MaxResults int     `yaml:"max_results"`
	Timeout    float64 `yaml:"timeout"` // seconds
}

// Skills says where skills are.
type Skills struct {
	Path          string `yaml:"path"` // folder with public and custom; "": skills next to config.yaml
	ContainerPath string `yaml:"container_path"`
}

// Uploads bounds uploads; sizes in bytes.
type Uploads struct {
	MaxFiles     int   `yaml:"max_files"`
	MaxFileSize  int64 `yaml:"max_file_size"`
	MaxTotalSize int64 `yaml:"max_total_size"`
	Convert      bool  `yaml:"auto_convert_documents"`

	// Older names.
	MaxFileCount      int   `yaml:"max_file_count"`
	MaxSingleFileSize int64 `yaml:"max_single_file_size"`
}

// Memory is what is remembered of users.
type Memory struct {
	Enabled    bool    `yaml:"enabled"`
	Mode       string  `yaml:"mode"`
	Path       string  `yaml:"storage_path"`
	Injection  bool    `yaml:"injection_enabled"`
	Debounce   int     `yaml:"debounce_seconds"`
	MaxFacts   int     `yaml:"max_facts"`
	Confidence float64 `yaml:"fact_confidence_threshold"`
	MaxTokens  int     `yaml:"max_injection_tokens"`
	Flush      float64 `yaml:"shutdown_flush_timeout_seconds"`
	Manager    string  `yaml:"manager_class"`
	// Backend are values of newer releases, in place of those above.
	Backend struct {
		Debounce   *int     `yaml:"debounce_seconds"`
		MaxFacts   *int     `yaml:"max_facts"`
		Confidence *float64 `yaml:"fact_confidence_threshold"`
		MaxTokens  *int     `yaml:"max_injection_tokens"`
		Path       string   `yaml:"storage_path"`
	} `yaml:"backend_config"`
}

// check puts the values of newer releases in their places. What is not known here is reported by warn.
func (m *Memory) check(warn func(text string)) {
	b := m.Backend
	if b.Debounce != nil {
		m.Debounce = *b.Debounce
	}
	if b.MaxFacts != nil {
		m.MaxFacts = *b.MaxFacts
	}
	if b.Confidence != nil {
		m.Confidence = *b.Confidence
	}
	if b.MaxTokens != nil {
		m.MaxTokens = *b.MaxTokens
	}
	if b.Path != "" {
		warn("memory.backend_config.storage_path is not used here: memories are in DEER_FLOW_HOME")
	}
	switch m.Manager {
	case "", "deermem":
	case "noop":
		m.Enabled = false
	default:
		warn(fmt.Sprintf("memory.manager_class %q is not known here: memories are files in DEER_FLOW_HOME", m.Manager))
	}
	if m.Mode != "" && m.Mode != "middleware" && m.Mode != "tool" {
		warn(fmt.Sprintf("memory.mode %q is not known; middleware is used", m.Mode))
		m.Mode = "middleware"
	}
}

// Suggestions are follow-up questions.
type Suggestions struct {
	Enabled bool   `yaml:"enabled"`
	Max     int    `yaml:"max_suggestions"`
	Model   string `yaml:"model_name"`
}

// InputPolish rewrites drafts.
type InputPolish struct {
	Enabled  bool   `yaml:"enabled"`
	MaxChars int    `yaml:"max_chars"`
	Model    string `yaml:"model_name"`
}

// Evolution names the model that judges skills.
type Evolution struct {
	Enabled bool   `yaml:"enabled"`
	Model   string `yaml:"moderation_model_name"`
}

// Scheduler says whether scheduled tasks are due by themselves.
type Scheduler struct {
	Enabled  bool `yaml:"enabled"`
	MaxRuns  int  `yaml:"max_concurrent_runs"`
	MinDelay int  `yaml:"min_once_delay_seconds"` // how far ahead a single time has to be
}

// Title is how threads are named.
type Title struct {
	Enabled  bool   `yaml:"enabled"`
	MaxWords int    `yaml:"max_words"`  // 1 to 20
	MaxChars int    `yaml:"max_chars"`  // 10 to 200
	Model    string `yaml:"model_name"` // that writes titles; "": threads are named after their first question
}

// Summarization is when old messages are condensed, and how much is kept.
type Summarization struct {
	Enabled bool     `yaml:"enabled"`
	Model   string   `yaml:"model_name"`
	Trigger []Amount `yaml:"trigger"`
	Keep    Amount   `yaml:"keep"`

	// The newest reads of skills that stay when the conversation is condensed: how many, their tokens together and of each, and the tools that read them.
	SkillCount  int      `yaml:"preserve_recent_skill_count"`
	SkillTokens int      `yaml:"preserve_recent_skill_tokens"`
	SkillEach   int      `yaml:"preserve_recent_skill_tokens_per_skill"`
	SkillTools  []string `yaml:"skill_file_read_tool_names"`
}

// LoopDetection says how often a model may repeat itself in a run. 0: no limit.
type LoopDetection struct {
	Enabled  bool `yaml:"enabled"`
	Warn     int  `yaml:"warn_threshold"` // equal answers before a warning
	Hard     int  `yaml:"hard_limit"`     // equal answers that end the run
	FreqWarn int  `yaml:"tool_freq_warn"` // calls of one tool before a warning
	FreqHard int  `yaml:"tool_freq_hard_limit"`
	// Tools are limits of single tools in place of these.
	Tools map[string]struct {
		Warn int `yaml:"warn"`
		Hard int `yaml:"hard_limit"`
	} `yaml:"tool_freq_overrides"`
}

// SafetyFinishReason recognizes answers that a provider stopped for safety, whose tool calls are not made.
type SafetyFinishReason struct {
	Enabled   bool             `yaml:"enabled"`
	Detectors []SafetyDetector `yaml:"detectors"` // nil: the built-in ones
}

// SafetyDetector is a built-in detector with values of its own.
type SafetyDetector struct {
	Use    string `yaml:"use"`
	Config struct {
		FinishReasons []string `yaml:"finish_reasons"` // nil: the detector's
		StopReasons   []string `yaml:"stop_reasons"`
	} `yaml:"config"`
}

// ToolProgress says when a tool makes no progress.
type ToolProgress struct {
	Enabled bool     `yaml:"enabled"`
	Warn    int      `yaml:"stagnation_threshold"`  // problems in a row before a warning
	Block   int      `yaml:"warn_escalation_count"` // further ones before the tool is blocked
	Inject  bool     `yaml:"inject_assessment"`     // the model is warned
	Similar float64  `yaml:"jaccard_similarity_threshold"`
	Words   int      `yaml:"min_word_count_for_similarity"`
	Exempt  []string `yaml:"exempt_tools"` // nil: those of the conversation
}

// TokenBudget limits the tokens of a run. 0: no limit.
type TokenBudget struct {
	Enabled bool    `yaml:"enabled"`
	Total   int64   `yaml:"max_tokens"`
	Input   int64   `yaml:"max_input_tokens"`
	Output  int64   `yaml:"max_output_tokens"`
	Warn    float64 `yaml:"warn_threshold"`      // part of a limit at which the model is warned
	Stop    float64 `yaml:"hard_stop_threshold"` // part of a limit at which the run ends
}

// Subagents are agents that work for the lead agent.
type Subagents struct {
	Timeout  float64                     `yaml:"timeout_seconds"` // of the built-in ones
	Turns    int                         `yaml:"max_turns"`       // of the built-in ones; 0: their own
	MaxTotal int                         `yaml:"max_total_per_run"`
	Budget   *SubagentBudget             `yaml:"token_budget"` // of each task; nil: BudgetOf has the default
	Agents   map[string]SubagentOverride `yaml:"agents"`       // by name
	Custom   map[string]Subagent         `yaml:"custom_agents"`
}

// SubagentOverride changes a subagent. What it does not say stays.
type SubagentOverride struct {
	Timeout float64  `yaml:"timeout_seconds"`
	Turns   int      `yaml:"max_turns"`
	Model   string   `yaml:"model"`
	Skills  []string `yaml:"skills"` // nil: not said

	Budget *SubagentBudget `yaml:"token_budget"`
}

// SubagentBudget is a budget that is on unless it says that it is off.
type SubagentBudget TokenBudget

// UnmarshalYAML puts the defaults of a budget in place of what is not written.
func (b *SubagentBudget) UnmarshalYAML(read func(any) error) error {
	all := defaults().TokenBudget
	all.Enabled = true
	err := read(&all)
	*b = SubagentBudget(all)
	return err
}

// BudgetOf returns the tokens that a subagent may use for a task. Where none are configured it may use more if its messages are never condensed.
func (s *Settings) BudgetOf(subagent string) TokenBudget {
	if own := s.Subagents.Agents[subagent].Budget; own != nil {
		return TokenBudget(*own)
	}
	if all := s.Subagents.Budget; all != nil {
		return TokenBudget(*all)
	}
	b := TokenBudget{Enabled: true, Total: 2_000_000, Warn: 0.7, Stop: 1}
	if s.Summarization.Enabled {
		b.Total = 1_000_000
	}
	return b
}

// Subagent is one that the settings define.
type Subagent struct {
	Description string   `yaml:"description"`
	Prompt      string   `yaml:"system_prompt"`
	Tools       []string `yaml:"tools"`            // nil: all
	Disallowed  []string `yaml:"disallowed_tools"` // nil: ask_clarification and present_files
	Skills      []string `yaml:"skills"`           // nil: all, which it reads when they fit
	Model       string   `yaml:"model"`            // "", inherit: the run's
	Turns       int      `yaml:"max_turns"`        // 0: 50
	Timeout     float64  `yaml:"timeout_seconds"`  // 0: 900
}

// ACPAgent is a program that speaks the Agent Client Protocol.
type ACPAgent struct {
	Command     string            `yaml:"command"`
	Args        []string          `yaml:"args"`
	Env         map[string]string `yaml:"env"`
	Description string            `yaml:"description"`
	Model       string            `yaml:"model"`
	Approve     bool              `yaml:"auto_approve_permissions"`
	Timeout     float64           `yaml:"timeout_seconds"` // 0: 1800
}

// CircuitBreaker says when calls of a model that fails are refused for a while.
type CircuitBreaker struct {
	Failures int     `yaml:"failure_threshold"` // in a row; 0: never
	Recovery float64 `yaml:"recovery_timeout_sec"`
}

// Guardrails decide before each call of a tool whether it may be made.
type Guardrails struct {
	Enabled    bool   `yaml:"enabled"`
	FailClosed bool   `yaml:"fail_closed"`
	Passport   string `yaml:"passport"`
	Provider   struct {
		Use    string `yaml:"use"`
		Config struct {
			Allowed []string          `yaml:"allowed_tools"`
			Denied  []string          `yaml:"denied_tools"`
			URL     string            `yaml:"url"`
			Headers map[string]string `yaml:"headers"`
			Timeout float64           `yaml:"timeout"` // seconds
		} `yaml:"config"`
	} `yaml:"provider"`

	unknown []unknownKey
}

// Check refuses keys that are not known, except those in the config of a guard that is switched off or is no list of tools: they are for the guard.
func (g Guardrails) Check() error {
	for _, u := range g.unknown {
		ofGuard := strings.HasPrefix(u.path, "guardrails.provider.config.")
		if !ofGuard || g.Enabled && g.Provider.Config.URL == "" {
			return errors.New(u.String())
		}
	}
	return nil
}

// ToolOutput bounds results of tools in the conversation, in characters. What is larger is kept in a file.
type ToolOutput struct {
	Enabled bool     `yaml:"enabled"`
	Limit   int      `yaml:"externalize_min_chars"`
	Head    int      `yaml:"preview_head_chars"`
	Tail    int      `yaml:"preview_tail_chars"`
	Exempt  []string `yaml:"exempt_tools"`
}

// Amount is a number of messages or tokens, or a fraction of the model's context.
type Amount struct {
	Type  string  `yaml:"type"`
	Value float64 `yaml:"value"`
}

// Default returns the settings of an empty config.yaml.
func Default() *Settings {
	s := defaults()
	return &s
}

func defaults() Settings {
	s := Settings{MaxRecursionLimit: 1000}
	s.Skills.ContainerPath = "/mnt/skills"
	s.SkillScan.Enabled = true
	s.InputSanitization.Enabled, s.ToolResultSanitization.Enabled, s.ReadBeforeWrite.Enabled = true, true, true
	s.Uploads = Uploads{MaxFiles: 10, MaxFileSize: 50 << 20, MaxTotalSize: 100 << 20}
	s.Memory = Memory{Enabled: true, Mode: "middleware", Injection: true, Debounce: 30, MaxFacts: 100, Confidence: 0.7, MaxTokens: 2000, Flush: 30, Manager: "deermem"}
	s.Suggestions = Suggestions{Enabled: true, Max: 3}
	s.InputPolish = InputPolish{Enabled: true, MaxChars: 4000}
	s.Scheduler = Scheduler{MaxRuns: 3, MinDelay: 60}
	s.Title = Title{Enabled: true, MaxWords: 6, MaxChars: 60}
	s.LoopDetection = LoopDetection{Enabled: true, Warn: 3, Hard: 5, FreqWarn: 30, FreqHard: 50}
	s.Guardrails.FailClosed = true
	s.ToolOutput = ToolOutput{Enabled: true, Limit: 12_000, Head: 2_000, Tail: 1_000, Exempt: []string{"read_file"}}
	s.SafetyFinishReason.Enabled = true
	s.ToolProgress = ToolProgress{Warn: 3, Block: 2, Inject: true, Similar: 0.8, Words: 10}
	s.TokenBudget = TokenBudget{Total: 200_000, Warn: 0.8, Stop: 1}
	s.CircuitBreaker = CircuitBreaker{Failures: 5, Recovery: 60}
	s.Summarization = Summarization{
		Keep: Amount{"messages", 20}, SkillCount: 5, SkillTokens: 25_000, SkillEach: 5_000, SkillTools: []string{"read_file", "read", "view", "cat"},
	}
	s.Subagents = Subagents{Timeout: 1800, MaxTotal: 6}
	return s
}

// Model returns a model by name; nil when there is none.
func (s *Settings) Model(name string) *Model {
	for i := range s.Models {
		if s.Models[i].Name == name {
			return &s.Models[i]
		}
	}
	return nil
}

// Registration reports whether anybody may register.
func (s *Settings) Registration() bool {
	a := s.Auth.Local.AllowRegistration
	return a == nil || *a
}

// Parse reads a config.yaml. lookup returns environment variables, for values that are `$NAME`. Errors name line and column.
func Parse(text []byte, lookup func(string) (string, bool)) (*Settings, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", tidy(err), syntaxFix(text))
	}
	s := defaults()
	for _, doc := range file.Docs[:min(len(file.Docs), 1)] {
		if doc.Body == nil {
			continue
		}
		v := &variables{lookup: lookup}
		ast.Walk(v, doc.Body)
		if len(v.missing) > 0 {
			return nil, errors.New(strings.Join(v.missing, "\n") + "; set it in the environment, or in the file .env next to config.yaml")
		}
		if err := decode(doc.Body, &s); err != nil {
			return nil, err
		}
		var unused unusedKeys
		unused.add(doc.Body, reflect.TypeFor[Settings](), "")
		s.report(unused.unknown)
		s.Unused = unused.theirs
	}
	return &s, s.check()
}

// decode reads settings from a document. The library panics at some odd values, such as `!!binary x` for a list.
func decode(body ast.Node, s *Settings) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a value has a form that cannot be read, such as a tag !!: %v", p)
		}
	}()
	if err := yaml.NewDecoder(bytes.NewReader(nil)).DecodeFromNode(body, s); err != nil {
		return tidy(err)
	}
	return nil
}

// report warns of unknown keys. Those of guardrails are kept: with a misspelt one, a guard would let through what it should deny.
func (s *Settings) report(list []unknownKey) {
	for _, u := range list {
		s.Warnings = append(s.Warnings, u.String())
		if strings.HasPrefix(u.path, "guardrails.") {
			s.Guardrails.unknown = append(s.Guardrails.unknown, u)
		}
	}
}

// tidy returns an error of the YAML library without colors, in words of YAML.
func tidy(err error) error {
	var wrong *yaml.TypeError
	var large *yaml.OverflowError
	text := ""
	switch {
	case errors.As(err, &wrong):
		text = yaml.FormatErrorWithToken(wanted(wrong.DstType)+" is needed here", wrong.Token, false, true)
	case errors.As(err, &large):
		text = yaml.FormatErrorWithToken(large.SrcNum+" is too large or too small for "+wanted(large.DstType), large.Token, false, true)
	default:
		text = yaml.FormatError(err, false, true)
	}
	return errors.New(text)
}

var (
	bareKey = regexp.MustCompile(`^( *)((?:- )?)([A-Za-z_][\w.-]*)\s*(?:#.*)?$`)
	keyLine = regexp.MustCompile(`^( *)(?:- |["']?[\w.-]+["']?:(?:\s|$))`)
)

// syntaxFix returns what to do about a text that is no YAML. The library names the place where it noticed, which may be far behind the mistake.
func syntaxFix(text []byte) string {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "\t") {
			return fmt.Sprintf("line %d: write spaces in place of the tab in front", i+1)
		}
		m := bareKey.FindStringSubmatch(line)
		if m == nil || m[2] != "" && i == 0 {
			continue
		}
		for _, next := range lines[i+1:] { // what belongs to a key is indented, or a list
			if trimmed := strings.TrimSpace(next); trimmed == "" || strings.HasPrefix(trimmed, "#") {
				continue
			}
			if under := keyLine.FindStringSubmatch(next); under != nil && (len(under[1]) > len(m[1]) || len(under[1]) == len(m[1]) && strings.HasPrefix(next[len(under[1]):], "- ") && m[2] == "") {
				return fmt.Sprintf("line %d: write a colon after %s", i+1, m[3])
			}
			break
		}
	}
	return "correct it there, or in a line above: a colon and a space after each key, the same number of spaces before keys of one section, and quotes around text with special characters"
}

// wanted names what a value of type t is written as.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint64:
		return "a whole number that is not negative"
	case reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a section with keys"
	default:
		return "text"
	}
}

// variables puts environment variables in place of the values that name them.
type variables struct {
	lookup  func(string) (string, bool)
	missing []string
}

func (v *variables) Visit(n ast.Node) ast.Visitor {
	text, ok := n.(*ast.StringNode)
	if !ok {
		return v
	}
	name, ok := strings.CutPrefix(text.Value, "$")
	if !ok || !isName(name) {
		return v
	}
	value, ok := v.lookup(name)
	if !ok {
		at := text.GetToken().Position
		v.missing = append(v.missing, fmt.Sprintf("line %d, column %d: the environment variable %s is not set", at.Line, at.Column, name))
	}
	text.Value = value
	return v
}

func isName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// check refuses what cannot be meant, and puts defaults in place of bounds that make no sense.
func (s *Settings) check() error {
	seen := map[string]bool{}
	for i, m := range s.Models {
		switch {
		case m.Name == "":
			return fmt.Errorf("models[%d] has no name", i)
		case seen[m.Name]:
			return fmt.Errorf("models[%d]: there are two models named %q", i, m.Name)
		}
		seen[m.Name] = true
	}
	if err := s.Sandbox.check(); err != nil {
		return err
	}
	if s.Authorization.Enabled {
		return errors.New("authorization.enabled is true, and this server enforces no roles: every user would have all tools, models and routes. Set it to false, or deny tools to all users with guardrails")
	}
	if err := s.Auth.OIDC.check(func(text string) { s.Warnings = append(s.Warnings, text) }); err != nil {
		return err
	}
	s.Memory.check(func(text string) { s.Warnings = append(s.Warnings, text) })
	u, def := &s.Uploads, defaults().Uploads
	if u.MaxFileCount > 0 && u.MaxFiles == def.MaxFiles {
		u.MaxFiles = u.MaxFileCount
	}
	if u.MaxSingleFileSize > 0 && u.MaxFileSize == def.MaxFileSize {
		u.MaxFileSize = u.MaxSingleFileSize
	}
	if u.MaxFiles <= 0 {
		u.MaxFiles = def.MaxFiles
	}
	if u.MaxFileSize <= 0 {
		u.MaxFileSize = def.MaxFileSize
	}
	if u.MaxTotalSize <= 0 {
		u.MaxTotalSize = def.MaxTotalSize
	}
	if c := &s.Scheduler; c.MaxRuns < 1 || c.MaxRuns > 32 {
		return fmt.Errorf("scheduler.max_concurrent_runs is %d; it has to be from 1 to 32", c.MaxRuns)
	} else if c.MinDelay < 1 || c.MinDelay > 86400 {
		return fmt.Errorf("scheduler.min_once_delay_seconds is %d; it has to be from 1 to 86400", c.MinDelay)
	}
	for name, a := range s.ACP {
		if strings.TrimSpace(name) == "" || a.Command == "" || a.Description == "" {
			return fmt.Errorf("acp_agents.%s needs a command and a description", name)
		}
	}
	for name, a := range s.Subagents.Custom {
		if strings.TrimSpace(name) == "" || a.Description == "" || a.Prompt == "" {
			return fmt.Errorf("subagents.custom_agents.%s needs a description and a system_prompt", name)
		}
	}
	if s.Subagents.MaxTotal < 1 || s.Subagents.MaxTotal > 50 {
		s.Subagents.MaxTotal = defaults().Subagents.MaxTotal
	}
	if s.Subagents.Timeout <= 0 {
		s.Subagents.Timeout = defaults().Subagents.Timeout
	}
	if t := &s.Title; t.MaxWords < 1 || t.MaxWords > 20 {
		t.MaxWords = 6
	}
	if t := &s.Title; t.MaxChars < 10 || t.MaxChars > 200 {
		t.MaxChars = 60
	}
	if s.Suggestions.Max < 1 || s.Suggestions.Max > 5 {
		s.Suggestions.Max = 3
	}
	if s.Version < Newest {
		s.Warnings = append(s.Warnings, fmt.Sprintf("config_version is %d, and the newest is %d: compare the file with DeerFlow's config.example.yaml", s.Version, Newest))
	}
	return nil
}

// Find returns the path of the config.yaml to use: given, DEER_FLOW_CONFIG_PATH, or one in the working directory or in backend/ of it. "" when there is none.
func Find(given string, lookup func(string) (string, bool)) string {
	if given != "" {
		return given
	}
	if path, ok := lookup("DEER_FLOW_CONFIG_PATH"); ok && path != "" {
		return path
	}
	for _, path := range []string{"config.yaml", "backend/config.yaml", "../config.yaml"} {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
	}
	return ""
}

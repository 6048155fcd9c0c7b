package config

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/graph/agent"
	"understudy/graph/agent/mcp"
	"understudy/graph/agent/middleware"
	"understudy/graph/agent/provider"
	"understudy/internal/jsonobj"
)

// Agent is a declared agent: a graph that langgraph.json describes, as options of package agent. What only exists while it runs is left out: models,
// loggers and the environment.
type Agent struct {
	Key            string        // graphs.<id>.agent, for errors at building
	Model          provider.Spec // Place is the key of the model, as in all others
	Prompt         string
	Tools          []string // built-in ones, and those of the program
	MCP            []mcp.Options
	Middleware     []AgentMiddleware     // in the order of the file
	ResponseFormat *agent.ResponseFormat // nil: none
	// Scripts are the digests of the files of scripted models: an agent whose script has changed is another one.
	Scripts map[string][sha256.Size]byte
}

// AgentMiddleware is one middleware; Kind selects the field that is set.
type AgentMiddleware struct {
	Kind          string         // as in the file: summarization, human_in_the_loop, …
	Model         *provider.Spec // of Summarization, Title and Memory; nil: the agent's
	Summarization *agent.SummarizationOptions
	Approvals     map[string]agent.Approval
	Title         *agent.TitleOptions
	ToolErrors    *AgentToolErrors
	ModelLimit    *agent.CallLimits
	ToolLimits    []AgentToolLimit
	ModelErrors   *middleware.ModelErrorOptions
	Guardrails    *AgentGuardrails
	ToolOutput    *middleware.ToolOutputOptions
	Loops         *middleware.LoopOptions
	Budget        *middleware.BudgetOptions
	Progress      *middleware.ProgressOptions
	Foreign       []string // tools whose results strangers write, of tool_result_sanitization
	Sandbox       *AgentSandbox
	Skills        string // absolute path of their folder
	Memory        *AgentMemory
	Subagents     *AgentSubagents
}

// AgentGuardrails decide before each call of a tool: by lists, or by a service.
type AgentGuardrails struct {
	middleware.GuardrailOptions
	List    middleware.ToolList
	Service middleware.RemoteGuard // in place of List, if its URL is set
}

// AgentToolErrors is the text that the model gets instead of errors of tools.
type AgentToolErrors struct {
	Message string
	Tools   []string
}

// AgentToolLimit bounds the calls of a tool.
type AgentToolLimit struct {
	Tool string // "": all
	agent.CallLimits
}

const modelExample = "openai:gpt-4o"

// declared reads {"agent": {…}, "description"?}. It may name variables, so it is read after env.
func (f *file) declared(g *Graph, v value, key string) bool {
	before := len(f.mistakes)
	g.Agent = &Agent{Key: join(key, "agent")}
	f.section(v, key, map[string]func(value, string){
		"agent": func(v value, key string) {
			if _, ok := v.data.([]member); !ok {
				f.wrong(v, key, `is %s; write an object: {"model": %q}`, v.kind(), modelExample)
				return
			}
			a := g.Agent
			f.later = append(f.later, func() { f.agent(a, v, key) })
		},
		"description": f.setText(&g.Description, "What the graph is for."),
		"concurrency": f.concurrency(g.ID),
	})
	return len(f.mistakes) == before
}

func (f *file) agent(a *Agent, v value, key string) {
	hasModel := false
	f.scripts = nil
	f.section(v, key, map[string]func(value, string){
		"model":           func(v value, key string) { hasModel = true; f.model(&a.Model, v, key) },
		"prompt":          func(v value, key string) { a.Prompt = f.textOrFile(v, key) },
		"tools":           f.setTexts(&a.Tools, "calculator"),
		"mcp":             func(v value, key string) { f.mcpServers(a, v, key) },
		"middleware":      func(v value, key string) { f.middleware(a, v, key) },
		"response_format": func(v value, key string) { a.ResponseFormat = f.responseFormat(v, key) },
	})
	a.Scripts = f.scripts
	if !hasModel {
		f.missing(v, join(key, "model"), `write provider:model, such as %q`, modelExample)
	}
	for i, name := range a.Tools {
		if slices.Contains(a.Tools[:i], name) {
			f.wrong(v, join(key, "tools"), "names %q twice", name)
		}
	}
}

// textOrFile reads a text, or {"file": name}.
func (f *file) textOrFile(v value, key string) (text string) {
	if _, isObject := v.data.([]member); !isObject {
		return f.text(v, key, "You are a helpful assistant.")
	}
	f.section(v, key, map[string]func(value, string){"file": func(v value, key string) {
		name := f.text(v, key, "prompt.md")
		if name == "" {
			return
		}
		raw, err := f.read(f.abs(name))
		if errors.Is(err, fs.ErrNotExist) {
			f.wrong(v, key, "there is no file %s; create it, or write the text here", f.abs(name))
		} else if err != nil {
			f.wrong(v, key, "cannot be read: %v; name a file of text", err)
		}
		text = strings.TrimSpace(string(raw))
	}})
	return text
}

// filled reads text and replaces variables in it.
func (f *file) filled(v value, key, example string) string {
	text, _ := f.fill(f.text(v, key, example), v, key)
	return text
}

func (f *file) setFilled(to *string, example string) func(value, string) {
	return func(v value, key string) { *to = f.filled(v, key, example) }
}

// setFilledMap reads an object of texts with variables.
func (f *file) setFilledMap(to *map[string]string, example string) func(value, string) {
	return func(v value, key string) {
		members, ok := v.data.([]member)
		if !ok {
			f.wrong(v, key, "is %s; write an object: %s", v.kind(), example)
			return
		}
		*to = make(map[string]string, len(members))
		for _, m := range members {
			(*to)[m.key] = f.filled(m.value, join(key, m.key), "text")
		}
	}
}

// headers reads headers of the requests to a model.
func (f *file) headers(to *map[string]string, v value, key string) {
	f.setFilledMap(to, `{"x-team": "search"}`)(v, key)
	members, _ := v.data.([]member)
	for _, m := range members {
		at := join(key, m.key)
		if !headerName.MatchString(m.key) {
			f.wrong(m.value, at, "%q is not the name of a header", m.key)
		}
		(*to)[m.key] = f.headerText((*to)[m.key], m.value, at)
	}
}

// headerText returns the value of a header without the white space around it, which mounted secrets have at their end.
func (f *file) headerText(text string, v value, key string) string {
	text = strings.TrimSpace(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		f.wrong(v, key, "has a line break or another control character, which no header can have")
	}
	return text
}

func (f *file) setDuration(to *time.Duration, most time.Duration) func(value, string) {
	return func(v value, key string) {
		text, _ := v.data.(string)
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > most {
			f.wrong(v, key, `write a time of at most %s, such as "30s"`, most)
			return
		}
		*to = d
	}
}

func (f *file) setInt(to *int, least, most int64) func(value, string) {
	return func(v value, key string) { *to = int(f.integer(v, key, least, most)) }
}

func (f *file) number(v value, key string, least, most float64) float64 {
	n, _ := v.data.(json.Number)
	x, err := n.Float64()
	if err != nil || x < least || x > most {
		f.wrong(v, key, "write a number from %v to %v", least, most)
	}
	return x
}

// maxTokens of anything.
const maxTokens = 100_000_000

// model reads "provider:model", or an object that has it as name.
func (f *file) model(m *provider.Spec, v value, key string) {
	m.Place = key
	if _, isObject := v.data.([]member); !isObject {
		m.Name = f.modelName(v, key)
		return
	}
	named := false
	f.section(v, key, map[string]func(value, string){
		"name":     func(v value, key string) { named = true; m.Name = f.modelName(v, key) },
		"base_url": func(v value, key string) { m.BaseURL = f.baseURL(v, key) },
		"api_key": func(v value, key string) {
			m.Key = f.headerText(f.filled(v, key, "${OPENAI_API_KEY}"), v, key)
			if text, _ := v.data.(string); variable.MatchString(text) {
				m.KeyVariable = variable.FindStringSubmatch(text)[1]
			}
		},
		"organization": func(v value, key string) { m.Organization = f.headerText(f.filled(v, key, "org-1"), v, key) },
		"project":      func(v value, key string) { m.Project = f.headerText(f.filled(v, key, "proj-1"), v, key) },
		"headers":      func(v value, key string) { f.headers(&m.Headers, v, key) },
		"query":        f.setFilledMap(&m.Query, `{"api-version": "2024-10-21"}`),
		"extra_body":   func(v value, key string) { m.ExtraBody = f.rawMembers(v, key) },
		"temperature": func(v value, key string) {
			x := f.number(v, key, 0, 10)
			m.Temperature = &x
		},
		"max_tokens":       f.setInt(&m.MaxTokens, 1, maxTokens),
		"max_input_tokens": f.setInt(&m.MaxInputTokens, 1, maxTokens),
		"timeout":          f.setDuration(&m.Timeout, 24*time.Hour),
		"idle_timeout":     f.setDuration(&m.IdleTimeout, 24*time.Hour),
		"max_event_size": func(v value, key string) {
			var bytes ByteSize
			if f.setSize(&bytes, GiB)(v, key); bytes > 0 && bytes < KiB {
				f.wrong(v, key, "write at least %s", KiB)
			}
			m.MaxEventSize = int(bytes)
		},
		"images": f.setBool(&m.Images),
		"api_key_header": func(v value, key string) {
			if m.KeyHeader = f.text(v, key, "api-key"); m.KeyHeader != "" && !headerName.MatchString(m.KeyHeader) {
				f.wrong(v, key, "%q is not the name of a header", m.KeyHeader)
			}
		},
		"max_completion_tokens": func(v value, key string) {
			m.MaxCompletionTokens = new(bool)
			f.setBool(m.MaxCompletionTokens)(v, key)
		},
		"return_reasoning": func(v value, key string) {
			m.ReturnReasoning = new(bool)
			f.setBool(m.ReturnReasoning)(v, key)
		},
		"prompt_caching": func(v value, key string) {
			switch text, _ := v.data.(string); {
			case v.data == true:
				m.PromptCaching = "5m"
			case text == "5m", text == "1h":
				m.PromptCaching = text
			case v.data != false:
				f.wrong(v, key, `write true, "5m" or "1h"`)
			}
		},
		"retries": func(v value, key string) {
			n := int(f.integer(v, key, 0, 10))
			m.Retries = &n
		},
		"script": func(v value, _ string) { m.Script = appendRaw(nil, v) },
	})
	if !named {
		f.missing(v, join(key, "name"), "write provider:model, such as %q", modelExample)
	}
}

func (f *file) modelName(v value, key string) string {
	name := f.text(v, key, modelExample)
	if _, isText := v.data.(string); isText && strings.Index(name, ":") < 1 {
		f.wrong(v, key, "%q names no provider; write provider:model, such as %q", name, modelExample)
	}
	if script, _ := strings.CutPrefix(name, "scripted:"); script != name && script != "" {
		if f.scripts == nil {
			f.scripts = map[string][sha256.Size]byte{}
		}
		text, _ := f.read(f.abs(script)) // opening the model reports an error
		f.scripts[script] = sha256.Sum256(text)
	}
	return name
}

func (f *file) baseURL(v value, key string) string {
	text := strings.TrimSpace(f.filled(v, key, "http://127.0.0.1:8000/v1"))
	if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		f.wrong(v, key, "is not the URL of a server; write one such as %q", "http://127.0.0.1:8000/v1")
	}
	return text
}

func (f *file) rawMembers(v value, key string) map[string]json.RawMessage {
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write an object: {"top_k": 3}`, v.kind())
		return nil
	}
	out := make(map[string]json.RawMessage, len(members))
	for _, m := range members {
		out[m.key] = appendRaw(nil, m.value)
	}
	return out
}

// appendRaw writes a value as JSON again.
func appendRaw(b []byte, v value) []byte {
	switch d := v.data.(type) {
	case []member:
		b = append(b, '{')
		for i, m := range d {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(jsonobj.AppendText(b, m.key), ':')
			b = appendRaw(b, m.value)
		}
		return append(b, '}')
	case []value:
		b = append(b, '[')
		for i, item := range d {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendRaw(b, item)
		}
		return append(b, ']')
	case string:
		return jsonobj.AppendText(b, d)
	case json.Number:
		return append(b, d...)
	case bool:
		return strconv.AppendBool(b, d)
	}
	return append(b, "null"...)
}

func (f *file) mcpServers(a *Agent, v value, key string) {
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write an object: {"time": {"command": "mcp-server-time"}}`, v.kind())
		return
	}
	for _, m := range members {
		at := join(key, m.key)
		s, transport := mcp.Options{Name: m.key, Dir: f.c.Dir}, ""
		f.section(m.value, at, map[string]func(value, string){
			"command":       f.setFilled(&s.Command, "mcp-server-time"),
			"args":          func(v value, key string) { s.Args = f.filledList(v, key) },
			"env":           f.setFilledMap(&s.Env, `{"TOKEN": "${TOKEN}"}`),
			"cwd":           func(v value, key string) { s.Dir = f.abs(f.filled(v, key, ".")) },
			"tools":         f.setTexts(&s.Only, "get_current_time"),
			"prefix":        f.setBool(&s.Prefix),
			"start_timeout": f.setDuration(&s.Start, time.Hour),
			"call_timeout":  f.setDuration(&s.Call, 24*time.Hour),
			"url": func(v value, key string) {
				if s.URL = f.filled(v, key, "https://mcp.example.com/mcp"); s.URL != "" && !isHTTP(s.URL) {
					f.wrong(v, key, "%q is no address; write one that begins with https://", s.URL)
				}
			},
			"headers":   func(v value, key string) { f.headers(&s.Headers, v, key) },
			"transport": func(v value, key string) { transport = f.text(v, key, "http") },
		})
		_, isObject := m.data.([]member)
		switch s.SSE = transport == "sse"; {
		case !isObject:
		case !slices.Contains([]string{"", "stdio", "http", "streamable_http", "sse"}, transport):
			f.wrong(m.value, join(at, "transport"), `%q is none; write "stdio", "http" or "sse"`, transport)
		case s.Command == "" && s.URL == "":
			f.missing(m.value, join(at, "command"), `write the program to start, such as "mcp-server-time", or a url`)
		case s.Command != "" && s.URL != "":
			f.wrong(m.value, join(at, "url"), "and command are two servers; write one of them")
		case s.URL == "" && transport != "" && transport != "stdio", s.URL != "" && transport == "stdio":
			f.wrong(m.value, join(at, "transport"), `%q does not go with it: "stdio" is for a command, "http" and "sse" are for a url`, transport)
		}
		a.MCP = append(a.MCP, s)
	}
}

func (f *file) filledList(v value, key string) []string {
	items, ok := v.data.([]value)
	if !ok {
		f.wrong(v, key, `is %s; write a list, such as ["--local-timezone", "UTC"]`, v.kind())
		return nil
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		out = append(out, f.filled(item, key+"["+strconv.Itoa(i)+"]", "text"))
	}
	return out
}

// middleware reads an object whose order is that of the middleware.
func (f *file) middleware(a *Agent, v value, key string) {
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write an object: {"summarization": {"trigger": {"messages": 50}}}`, v.kind())
		return
	}
	for _, m := range members {
		at := join(key, m.key)
		if m.data == nil || m.data == false {
			continue
		}
		mw := AgentMiddleware{Kind: m.key}
		switch m.key {
		case "summarization":
			f.summarization(&mw, m.value, at)
		case "human_in_the_loop":
			mw.Approvals = f.approvals(m.value, at)
		case "title":
			mw.Title = &agent.TitleOptions{}
			f.switched(m.value, at, map[string]func(value, string){
				"model":      func(v value, key string) { mw.Model = f.otherModel(v, key) },
				"prompt":     func(v value, key string) { mw.Title.Prompt = f.template(v, key, "{conversation}") },
				"key":        f.setText(&mw.Title.Key, "title"),
				"max_length": f.setInt(&mw.Title.MaxLen, 1, 1000),
			})
		case "tool_errors":
			mw.ToolErrors = &AgentToolErrors{}
			f.section(m.value, at, map[string]func(value, string){
				"message": f.setText(&mw.ToolErrors.Message, "The tool failed; try another way."),
				"tools":   f.setTexts(&mw.ToolErrors.Tools, "search"),
			})
			if _, isObject := m.data.([]member); isObject && mw.ToolErrors.Message == "" {
				f.missing(m.value, join(at, "message"), `write the text for the model, such as "The tool failed; try another way."`)
			}
		case "repair_tool_calls":
			f.switched(m.value, at, nil)
		case "model_call_limit":
			limit := f.limit(m.value, at, "end", "error")
			mw.ModelLimit = &limit.CallLimits
		case "tool_call_limit":
			mw.ToolLimits = f.toolLimits(m.value, at)
		case "model_errors":
			mw.ModelErrors = &middleware.ModelErrorOptions{}
			f.switched(m.value, at, map[string]func(value, string){
				"failures": f.setInt(&mw.ModelErrors.Failures, 1, 1_000_000),
				"recovery": f.setDuration(&mw.ModelErrors.Recovery, 24*time.Hour),
			})
		case "guardrails":
			mw.Guardrails = f.guardrails(m.value, at)
		case "tool_output":
			mw.ToolOutput = f.toolOutput(m.value, at)
		case "loop_detection":
			mw.Loops = f.loops(m.value, at)
		case "token_budget":
			mw.Budget = f.budget(m.value, at)
		case "tool_progress":
			mw.Progress = f.progress(m.value, at)
		case "tool_result_sanitization":
			f.switched(m.value, at, map[string]func(value, string){"tools": f.setTexts(&mw.Foreign, "search_tickets")})
		case "sandbox":
			mw.Sandbox = f.sandbox(m.value, at)
		case "skills":
			mw.Skills = f.skills(m.value, at)
		case "memory":
			f.memory(&mw, m.value, at)
		case "subagents":
			mw.Subagents = f.subagents(m.value, at)
		case "todos", "date", "token_usage", "clarification", "tool_search", "uploads", "view_image", "input_sanitization", "read_before_write",
			"terminal_response", "model_length", "safety_finish_reason":
			f.switched(m.value, at, nil)
		default:
			f.wrong(m.value, at, "unknown middleware%s; choose from %s", suggestion(m.key, middlewareKeys), list(middlewareNames))
			continue
		}
		a.Middleware = append(a.Middleware, mw)
	}
	f.needSandbox(a, members, key)
	f.needImages(a, members, key)
	slices.SortStableFunc(a.Middleware, func(x, y AgentMiddleware) int { return place[x.Kind] - place[y.Kind] })
}

// place has middleware that works in one place only, wherever the file has it: outside of what adds to messages of people, next to the tools, or next to the model.
var place = map[string]int{
	"input_sanitization": -1, "tool_result_sanitization": 1, "read_before_write": 2, "tool_progress": 3, "token_budget": 4, "terminal_response": 5, "model_length": 6, "safety_finish_reason": 7,
}

var (
	middlewareNames = []string{
		"summarization", "human_in_the_loop", "title", "tool_errors", "repair_tool_calls", "model_call_limit", "tool_call_limit",
		"model_errors", "guardrails", "tool_output", "loop_detection", "todos", "date", "token_usage", "clarification", "tool_search",
		"sandbox", "uploads", "view_image", "skills", "memory", "subagents", "input_sanitization", "tool_result_sanitization", "read_before_write",
		"tool_progress", "token_budget", "terminal_response", "model_length", "safety_finish_reason",
	}
	middlewareKeys = func() map[string]func(value, string) {
		keys := map[string]func(value, string){}
		for _, name := range middlewareNames {
			keys[name] = nil
		}
		return keys
	}()
)

// switched reads true, or an object.
func (f *file) switched(v value, key string, fields map[string]func(value, string)) {
	if v.data == true {
		return
	}
	if _, isObject := v.data.([]member); !isObject {
		f.wrong(v, key, "is %s; write true, or an object: {…}", v.kind())
		return
	}
	f.section(v, key, fields)
}

func (f *file) otherModel(v value, key string) *provider.Spec {
	m := &provider.Spec{}
	f.model(m, v, key)
	return m
}

// template reads a prompt that must contain a placeholder.
func (f *file) template(v value, key, place string) string {
	text := f.textOrFile(v, key)
	if text != "" && !strings.Contains(text, place) {
		f.wrong(v, key, "has no %s in it, where the conversation goes", place)
	}
	return text
}

func (f *file) summarization(m *AgentMiddleware, v value, key string) {
	s := &agent.SummarizationOptions{}
	m.Summarization = s
	f.section(v, key, map[string]func(value, string){
		"model": func(v value, key string) { m.Model = f.otherModel(v, key) },
		"trigger": func(v value, key string) {
			items, isList := v.data.([]value)
			if !isList {
				items = []value{v}
			}
			for i, item := range items {
				at := key
				if isList {
					at += "[" + strconv.Itoa(i) + "]"
				}
				s.Trigger = append(s.Trigger, f.size(item, at))
			}
		},
		"keep": func(v value, key string) {
			s.Keep = f.size(v, key)
			if members, ok := v.data.([]member); ok && len(members) > 1 {
				f.wrong(v, key, "write one of messages, tokens and fraction")
			}
		},
		"prompt":     func(v value, key string) { s.Prompt = f.template(v, key, "{messages}") },
		"max_tokens": f.setInt(&s.MaxTokens, 1, maxTokens),
		"quiet":      f.setBool(&s.Quiet),
	})
	if len(s.Trigger) == 0 {
		f.missing(v, join(key, "trigger"), `write when, such as {"messages": 50} or {"tokens": 8000}`)
	}
}

func (f *file) size(v value, key string) (s agent.Size) {
	f.section(v, key, map[string]func(value, string){
		"messages": f.setInt(&s.Messages, 1, 1_000_000),
		"tokens":   f.setInt(&s.Tokens, 1, maxTokens),
		"fraction": func(v value, key string) { s.Fraction = f.number(v, key, math.SmallestNonzeroFloat64, 1) },
	})
	if members, ok := v.data.([]member); ok && len(members) == 0 {
		f.wrong(v, key, `is empty; write an amount, such as {"messages": 50}`)
	}
	return s
}

// approvals reads {tool: true | false | {"allowed_decisions", "description"}}.
func (f *file) approvals(v value, key string) map[string]agent.Approval {
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write an object of tools: {"search": true}`, v.kind())
		return nil
	}
	out := map[string]agent.Approval{}
	for _, m := range members {
		if m.data == false || m.data == nil {
			continue
		}
		at := join(key, m.key)
		var a agent.Approval
		f.switched(m.value, at, map[string]func(value, string){
			"allowed_decisions": f.setTexts(&a.Decisions, "approve"),
			"description":       f.setText(&a.Description, "Please look at this call."),
		})
		for _, d := range a.Decisions {
			if !slices.Contains(decisions, d) {
				f.wrong(m.value, join(at, "allowed_decisions"), "%q is not a decision; choose from %s", d, list(decisions))
			}
		}
		out[m.key] = a
	}
	if len(out) == 0 {
		f.wrong(v, key, `names no tool; write {"search": true}`)
	}
	return out
}

var decisions = []string{"approve", "edit", "reject", "respond"}

func (f *file) limit(v value, key string, exits ...string) (l AgentToolLimit) {
	f.section(v, key, map[string]func(value, string){
		"thread": f.setInt(&l.Thread, 1, maxTokens),
		"run":    f.setInt(&l.Run, 1, maxTokens),
		"tool":   f.setText(&l.Tool, "search"),
		"exit": func(v value, key string) {
			l.Exit = f.text(v, key, exits[0])
			if _, isText := v.data.(string); isText && !slices.Contains(exits, l.Exit) {
				f.wrong(v, key, "%q; write one of %s", l.Exit, list(exits))
			}
		},
	})
	if _, isObject := v.data.([]member); isObject && l.Thread == 0 && l.Run == 0 {
		f.wrong(v, key, `has no limit; write {"run": 10}, {"thread": 100}, or both`)
	}
	return l
}

func (f *file) toolLimits(v value, key string) []AgentToolLimit {
	exits := []string{"continue", "end", "error"}
	items, isList := v.data.([]value)
	if !isList {
		return []AgentToolLimit{f.limit(v, key, exits...)}
	}
	var out []AgentToolLimit
	for i, item := range items {
		l := f.limit(item, key+"["+strconv.Itoa(i)+"]", exits...)
		if slices.ContainsFunc(out, func(o AgentToolLimit) bool { return o.Tool == l.Tool }) {
			f.wrong(item, key, "limits the same tool twice")
		}
		out = append(out, l)
	}
	return out
}

// responseFormat reads a JSON Schema, or {"name"?, "description"?, "schema", "strict"?}.
func (f *file) responseFormat(v value, key string) *agent.ResponseFormat {
	out := &agent.ResponseFormat{Name: "response_format"}
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write a JSON Schema: {"title": "Weather", "type": "object", "properties": {…}}`, v.kind())
		return nil
	}
	schema := v
	if slices.ContainsFunc(members, func(m member) bool { return m.key == "schema" }) {
		f.section(v, key, map[string]func(value, string){
			"name":        f.setText(&out.Name, "Weather"),
			"description": f.setText(&out.Description, "What the answer says."),
			"schema":      func(v value, _ string) { schema = v },
			"strict":      f.setBool(&out.Strict),
		})
	} else {
		for _, m := range members {
			text, _ := m.data.(string)
			switch {
			case m.key == "title" && text != "":
				out.Name = text
			case m.key == "description":
				out.Description = text
			}
		}
	}
	inner, ok := schema.data.([]member)
	if !ok || !slices.ContainsFunc(inner, func(m member) bool { return m.key == "type" && m.data == "object" }) {
		f.wrong(schema, key, `is not a JSON Schema of an object; write {"type": "object", "properties": {…}}`)
		return nil
	}
	out.Schema = appendRaw(nil, schema)
	out.Name = noToolName.ReplaceAllString(out.Name, "_")
	return out
}

// noToolName is what models do not take in the name of a tool, as which they see the format.
var noToolName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

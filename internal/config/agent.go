package config

import (
	"crypto/sha256"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"understudy/graph/agent"
	"understudy/graph/agent/mcp"
	"understudy/graph/agent/provider"
	"understudy/internal/serverurl"
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
	f.section(f.besideModel(v, key), key, map[string]func(value, string){
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

// maxTokens of anything.
const maxTokens = 100_000_000

// besideModel warns of keys of a model that stand next to it, and returns the agent without them.
func (f *file) besideModel(v value, key string) value {
	members, _ := v.data.([]member)
	if members == nil {
		return v
	}
	name := "provider:model"
	for _, m := range members {
		if text, isText := m.data.(string); m.key == "model" && isText {
			name = text
		}
	}
	fields := f.modelFields(&provider.Spec{}, new(bool))
	v.data = slices.DeleteFunc(slices.Clone(members), func(m member) bool {
		if fields[m.key] == nil || m.key == "name" {
			return false
		}
		f.warn(join(key, m.key), "ignored: it belongs to the model; write \"model\": {\"name\": %q, %q: …}", name, m.key)
		return true
	})
	return v
}

// model reads "provider:model", or an object that has it as name.
func (f *file) model(m *provider.Spec, v value, key string) {
	m.Place = key
	if _, isObject := v.data.([]member); !isObject {
		m.Name = f.modelName(v, key)
		return
	}
	named := false
	f.section(v, key, f.modelFields(m, &named))
	if !named {
		f.missing(v, join(key, "name"), "write provider:model, such as %q", modelExample)
	}
}

// modelFields read the keys of a model.
func (f *file) modelFields(m *provider.Spec, named *bool) map[string]func(value, string) {
	return map[string]func(value, string){
		"name":     func(v value, key string) { *named = true; m.Name = f.modelName(v, key) },
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
		"use_responses_api": func(v value, key string) {
			m.Responses = new(bool)
			f.setBool(m.Responses)(v, key)
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
		"script": func(v value, _ string) { m.Script = v.append(nil) },
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
					f.wrong(v, key, "%s is no address; write one that begins with https://", serverurl.Shown(s.URL))
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
	out.Schema = schema.append(nil)
	out.Name = noToolName.ReplaceAllString(out.Name, "_")
	return out
}

// noToolName is what models do not take in the name of a tool, as which they see the format.
var noToolName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

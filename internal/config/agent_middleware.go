package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/graph/agent/provider"
)

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

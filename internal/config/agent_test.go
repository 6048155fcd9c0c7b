package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/agent/mcp"
	"understudy/graph/agent/middleware"
	"understudy/graph/agent/provider"
)

const declaredAgent = `{"graphs": {"chat": {"description": "Talks.", "agent": {
  "model": {"name": "openai:gpt-4o", "base_url": "http://${HOST}:8000/v1", "api_key": "${MY_KEY}", "organization": "o", "project": "p",
    "headers": {"x-team": "${TEAM}"}, "query": {"api-version": "1"}, "extra_body": {"top_k": 3, "nested": {"a": [true, null, "<b>"]}}, "temperature": 0,
    "max_tokens": 100, "max_input_tokens": 8000, "timeout": "20s", "idle_timeout": "2h", "retries": 0, "max_event_size": "2KiB",
    "api_key_header": "api-key", "max_completion_tokens": true, "return_reasoning": false, "use_responses_api": true, "prompt_caching": "1h", "images": true},
  "prompt": {"file": "prompt.md"},
  "tools": ["calculator", "search"],
  "mcp": {"time": {"command": "mcp-server-time", "args": ["--tz", "${TZ_NAME}"], "env": {"TOKEN": "${MY_KEY}"}, "cwd": "sub", "tools": ["now"], "prefix": true,
    "start_timeout": "10s", "call_timeout": "1m", "transport": "stdio"}},
  "middleware": {
    "repair_tool_calls": true,
    "summarization": {"model": "scripted:", "trigger": [{"messages": 6, "tokens": 10}, {"fraction": 0.8}], "keep": {"messages": 2}, "prompt": "Sum up {messages}", "max_tokens": 5, "quiet": true},
    "human_in_the_loop": {"search": true, "calculator": false, "remember": {"allowed_decisions": ["approve", "reject"], "description": "Look."}},
    "title": {"key": "name", "max_length": 20, "prompt": "Name {conversation}"},
    "tool_errors": {"message": "It broke.", "tools": ["search"]},
    "model_call_limit": {"run": 5, "thread": 50, "exit": "error"},
    "tool_call_limit": [{"run": 3}, {"tool": "search", "thread": 9, "exit": "end"}],
    "model_errors": {"failures": 4, "recovery": "30s"},
    "guardrails": {"allowed_tools": ["search"], "denied_tools": ["calculator"], "passport": "${TEAM}", "fail_closed": false},
    "safety_finish_reason": true, "model_length": {}, "terminal_response": true, "tool_progress": {"warn": 2, "block": 1, "quiet": true, "similar": 0.5, "words": 4, "exempt": ["search"]}, "token_budget": {"total": 900, "input": 800, "output": 70, "warn": 0.5, "stop": 0.9},
    "read_before_write": false, "input_sanitization": true, "tool_result_sanitization": {"tools": ["search"]},
    "tool_output": {"limit": 900, "head": 200, "tail": 100, "exempt": ["search"]},
    "loop_detection": {"warn": 2, "stop": 4, "calls": {"warn": 8, "stop": 9}, "tools": {"search": {"warn": 1}}},
    "todos": true, "date": {}, "token_usage": true, "clarification": true, "tool_search": true,
    "sandbox": {"folder": "files", "tools": ["ls", "read_file"], "bash": true, "confine": "required", "readable": ["bin"], "timeout": "30s"},
    "uploads": true, "view_image": {}, "skills": {"path": "know"},
    "memory": {"model": "scripted:", "folder": "files", "wait": "5s", "max_facts": 9, "confidence": 0.5, "max_tokens": 300},
    "subagents": {"total": 9, "types": {"reviewer": {"description": "reviews", "prompt": "You review.", "model": "scripted:", "tools": ["search"], "max_turns": 7, "timeout": "1m"}}}
  },
  "response_format": {"title": "Weather now", "description": "What it is like.", "type": "object", "properties": {"degrees": {"type": "number"}}}
}}}, "env": {"MY_KEY": "secret", "TEAM": "a", "TZ_NAME": "UTC"}}`

func TestDeclaredAgent(t *testing.T) {
	t.Parallel()
	src := setup(t, declaredAgent, map[string]string{"HOST": "gpu"})
	dir := filepath.Dir(src.File)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prompt.md"), []byte("Be brief.\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "know"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	c, warnings, err := Load(src)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Empty(t, c.Workers.Python, "no graph needs it")
	zero, none, yes, no := 0.0, 0, true, false
	want := Graph{ID: "chat", Description: "Talks.", Agent: &Agent{
		Key: "graphs.chat.agent",
		Model: provider.Spec{
			Place: "graphs.chat.agent.model", Name: "openai:gpt-4o", BaseURL: "http://gpu:8000/v1", Key: "secret", KeyVariable: "MY_KEY", Organization: "o", Project: "p",
			Headers: map[string]string{"x-team": "a"}, Query: map[string]string{"api-version": "1"},
			ExtraBody:   map[string]json.RawMessage{"top_k": json.RawMessage("3"), "nested": json.RawMessage(`{"a":[true,null,"<b>"]}`)},
			Temperature: &zero, MaxTokens: 100, MaxInputTokens: 8000, Timeout: 20 * time.Second, Retries: &none,
			IdleTimeout: 2 * time.Hour, MaxEventSize: 2048, KeyHeader: "api-key", MaxCompletionTokens: &yes, ReturnReasoning: &no, Responses: &yes, PromptCaching: "1h", Images: true,
		},
		Prompt: "Be brief.", Tools: []string{"calculator", "search"},
		MCP: []mcp.Options{{
			Name: "time", Command: "mcp-server-time", Args: []string{"--tz", "UTC"}, Env: map[string]string{"TOKEN": "secret"}, Dir: filepath.Join(dir, "sub"),
			Only: []string{"now"}, Prefix: true, Start: 10 * time.Second, Call: time.Minute,
		}},
		Middleware: []AgentMiddleware{
			{Kind: "input_sanitization"},
			{Kind: "repair_tool_calls"},
			{Kind: "summarization", Model: &provider.Spec{Place: "graphs.chat.agent.middleware.summarization.model", Name: "scripted:"}, Summarization: &agent.SummarizationOptions{
				Trigger: []agent.Size{{Messages: 6, Tokens: 10}, {Fraction: 0.8}}, Keep: agent.Size{Messages: 2},
				Prompt: "Sum up {messages}", MaxTokens: 5, Quiet: true,
			}},
			{Kind: "human_in_the_loop", Approvals: map[string]agent.Approval{
				"search": {}, "remember": {Decisions: []string{"approve", "reject"}, Description: "Look."},
			}},
			{Kind: "title", Title: &agent.TitleOptions{Key: "name", MaxLen: 20, Prompt: "Name {conversation}"}},
			{Kind: "tool_errors", ToolErrors: &AgentToolErrors{Message: "It broke.", Tools: []string{"search"}}},
			{Kind: "model_call_limit", ModelLimit: &agent.CallLimits{Run: 5, Thread: 50, Exit: "error"}},
			{Kind: "tool_call_limit", ToolLimits: []AgentToolLimit{{CallLimits: agent.CallLimits{Run: 3}}, {Tool: "search", CallLimits: agent.CallLimits{Thread: 9, Exit: "end"}}}},
			{Kind: "model_errors", ModelErrors: &middleware.ModelErrorOptions{Failures: 4, Recovery: 30 * time.Second}},
			{Kind: "guardrails", Guardrails: &AgentGuardrails{
				GuardrailOptions: middleware.GuardrailOptions{Passport: "a", FailOpen: true}, List: middleware.ToolList{Allowed: []string{"search"}, Denied: []string{"calculator"}},
			}},
			{Kind: "tool_output", ToolOutput: &middleware.ToolOutputOptions{Limit: 900, Head: 200, Tail: 100, Exempt: []string{"search"}}},
			{Kind: "loop_detection", Loops: &middleware.LoopOptions{
				Warn: 2, Hard: 4, Calls: middleware.Frequency{Warn: 8, Hard: 9}, Tools: map[string]middleware.Frequency{"search": {Warn: 1, Hard: 9}},
			}},
			{Kind: "todos"},
			{Kind: "date"},
			{Kind: "token_usage"},
			{Kind: "clarification"},
			{Kind: "tool_search"},
			{Kind: "sandbox", Sandbox: &AgentSandbox{
				Folder: filepath.Join(dir, "files"), Tools: []string{"ls", "read_file"}, Bash: true, Confine: "required", Readable: []string{filepath.Join(dir, "bin")}, Timeout: 30 * time.Second,
			}},
			{Kind: "uploads"},
			{Kind: "view_image"},
			{Kind: "skills", Skills: filepath.Join(dir, "know")},
			{
				Kind: "memory", Model: &provider.Spec{Place: "graphs.chat.agent.middleware.memory.model", Name: "scripted:"},
				Memory: &AgentMemory{Folder: filepath.Join(dir, "files"), Wait: 5 * time.Second, MaxFacts: 9, Confidence: 0.5, MaxTokens: 300},
			},
			{Kind: "subagents", Subagents: &AgentSubagents{Total: 9, Types: []AgentSubagent{{
				Name: "reviewer", Description: "reviews", Prompt: "You review.", Model: &provider.Spec{Place: "graphs.chat.agent.middleware.subagents.types.reviewer.model", Name: "scripted:"},
				Tools: []string{"search"}, Turns: 7, Timeout: time.Minute,
			}}}},
			{Kind: "tool_result_sanitization", Foreign: []string{"search"}},
			{Kind: "tool_progress", Progress: &middleware.ProgressOptions{Warn: 2, Block: 1, Quiet: true, Similar: 0.5, Words: 4, Exempt: []string{"search"}}},
			{Kind: "token_budget", Budget: &middleware.BudgetOptions{Total: 900, Input: 800, Output: 70, Warn: 0.5, Stop: 0.9}},
			{Kind: "terminal_response"},
			{Kind: "model_length"},
			{Kind: "safety_finish_reason"},
		},
		ResponseFormat: &agent.ResponseFormat{
			Name: "Weather_now", Description: "What it is like.",
			Schema: json.RawMessage(`{"title":"Weather now","description":"What it is like.","type":"object","properties":{"degrees":{"type":"number"}}}`),
		},
	}}
	if diff := cmp.Diff([]Graph{want}, c.Graphs, cmpopts.IgnoreUnexported(middleware.ModelErrorOptions{})); diff != "" {
		t.Error(diff)
	}
}

func TestMistakesInAgents(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, agent, want string }{
		{"not an object", `"openai:x"`, `graphs.a.agent: is text; write an object: {"model": "openai:gpt-4o"}`},
		{"no model", `{}`, "graphs.a.agent.model: is missing"},
		{"whose model", `{"model": "gpt-4o"}`, `graphs.a.agent.model: "gpt-4o" names no provider`},
		{"model is a list", `{"model": []}`, "graphs.a.agent.model: is a list"},
		{"model without name", `{"model": {"api_key": "x"}}`, "graphs.a.agent.model.name: is missing"},
		{"key of two lines", `{"model": {"name": "a:b", "api_key": "x\ny"}}`, "graphs.a.agent.model.api_key: has a line break"},
		{"header of two lines", `{"model": {"name": "a:b", "headers": {"x": "x\ny"}}}`, "graphs.a.agent.model.headers.x: has a line break"},
		{"name of a header", `{"model": {"name": "a:b", "headers": {"x y": "x"}}}`, `graphs.a.agent.model.headers.x y: "x y" is not the name of a header`},
		{"name of the key's header", `{"model": {"name": "a:b", "api_key_header": "x:"}}`, `graphs.a.agent.model.api_key_header: "x:" is not the name of a header`},
		{"organization of two lines", `{"model": {"name": "a:b", "organization": "x\ny"}}`, "graphs.a.agent.model.organization: has a line break"},
		{"small event", `{"model": {"name": "a:b", "max_event_size": "1B"}}`, "graphs.a.agent.model.max_event_size: write at least 1KiB"},
		{"large event", `{"model": {"name": "a:b", "max_event_size": "2GiB"}}`, "graphs.a.agent.model.max_event_size: write a number of bytes"},
		{"unset variable", `{"model": {"name": "a:b", "api_key": "${NOT_THERE}"}}`, `graphs.a.agent.model.api_key: variable NOT_THERE is not set`},
		{"address", `{"model": {"name": "a:b", "base_url": "localhost"}}`, "graphs.a.agent.model.base_url: is not the URL"},
		{"temperature", `{"model": {"name": "a:b", "temperature": "hot"}}`, "graphs.a.agent.model.temperature: write a number from 0 to 10"},
		{"timeout", `{"model": {"name": "a:b", "timeout": 5}}`, "graphs.a.agent.model.timeout: write a time"},
		{"prompt file", `{"model": "a:b", "prompt": {"file": "none.md"}}`, "graphs.a.agent.prompt.file: there is no file"},
		{"tools", `{"model": "a:b", "tools": "calculator"}`, `graphs.a.agent.tools: is text; write a list, such as ["calculator"]`},
		{"a tool twice", `{"model": "a:b", "tools": ["x", "x"]}`, `graphs.a.agent.tools: names "x" twice`},
		{"mcp", `{"model": "a:b", "mcp": {"t": {"args": []}}}`, "graphs.a.agent.mcp.t.command: is missing"},
		{"mcp transport", `{"model": "a:b", "mcp": {"t": {"command": "c", "transport": "http"}}}`, "graphs.a.agent.mcp.t.transport: \"http\" does not go with it"},
		{"mcp transport of a url", `{"model": "a:b", "mcp": {"t": {"url": "https://c", "transport": "stdio"}}}`, "graphs.a.agent.mcp.t.transport: \"stdio\" does not go with it"},
		{"unknown mcp transport", `{"model": "a:b", "mcp": {"t": {"url": "https://c", "transport": "carrier pigeon"}}}`, "graphs.a.agent.mcp.t.transport: \"carrier pigeon\" is none"},
		{"mcp command and url", `{"model": "a:b", "mcp": {"t": {"url": "https://c", "command": "c"}}}`, "graphs.a.agent.mcp.t.url: and command are two servers"},
		{"mcp url", `{"model": "a:b", "mcp": {"t": {"url": "c"}}}`, "graphs.a.agent.mcp.t.url: \"c\" is no address"},
		{"mcp header", `{"model": "a:b", "mcp": {"t": {"url": "https://c", "headers": {"a b": "c"}}}}`, "is not the name of a header"},
		{"mcp list", `{"model": "a:b", "mcp": []}`, "graphs.a.agent.mcp: is a list"},
		{"middleware list", `{"model": "a:b", "middleware": ["title"]}`, "graphs.a.agent.middleware: is a list"},
		{"unknown middleware", `{"model": "a:b", "middleware": {"sumarization": {}}}`, `graphs.a.agent.middleware.sumarization: unknown middleware; did you mean "summarization"?`},
		{"no trigger", `{"model": "a:b", "middleware": {"summarization": {}}}`, "graphs.a.agent.middleware.summarization.trigger: is missing"},
		{"trigger", `{"model": "a:b", "middleware": {"summarization": {"trigger": [{"messages": 0}]}}}`, "graphs.a.agent.middleware.summarization.trigger[0].messages: write a whole number"},
		{"keep", `{"model": "a:b", "middleware": {"summarization": {"trigger": {"messages": 3}, "keep": {"messages": 3, "tokens": 4}}}}`, "summarization.keep: write one of"},
		{"fraction", `{"model": "a:b", "middleware": {"summarization": {"trigger": {"fraction": 2}}}}`, "summarization.trigger.fraction: write a number"},
		{"prompt without place", `{"model": "a:b", "middleware": {"title": {"prompt": "x"}}}`, "middleware.title.prompt: has no {conversation} in it"},
		{"decision", `{"model": "a:b", "middleware": {"human_in_the_loop": {"s": {"allowed_decisions": ["ok"]}}}}`, `human_in_the_loop.s.allowed_decisions: "ok" is not a decision`},
		{"no approvals", `{"model": "a:b", "middleware": {"human_in_the_loop": {"s": false}}}`, "human_in_the_loop: names no tool"},
		{"no limit", `{"model": "a:b", "middleware": {"model_call_limit": {}}}`, "model_call_limit: has no limit"},
		{"exit", `{"model": "a:b", "middleware": {"model_call_limit": {"run": 1, "exit": "continue"}}}`, `model_call_limit.exit: "continue"; write one of end, error`},
		{"limits twice", `{"model": "a:b", "middleware": {"tool_call_limit": [{"run": 1}, {"run": 2}]}}`, "tool_call_limit: limits the same tool twice"},
		{"switch", `{"model": "a:b", "middleware": {"repair_tool_calls": 1}}`, "repair_tool_calls: is a number; write true"},
		{"guardrails", `{"model": "a:b", "middleware": {"guardrails": {}}}`, "guardrails: says nothing of what is allowed"},
		{"guards twice", `{"model": "a:b", "middleware": {"guardrails": {"url": "https://x", "denied_tools": ["y"]}}}`, "guardrails: has lists and a url; keep one"},
		{"address of a guard", `{"model": "a:b", "middleware": {"guardrails": {"url": "x"}}}`, "guardrails.url: is not the address of a service"},
		{"tool output", `{"model": "a:b", "middleware": {"tool_output": {"limit": 10, "head": 9, "tail": 9}}}`, "tool_output: head and tail must fit into limit"},
		{"late warning", `{"model": "a:b", "middleware": {"loop_detection": {"warn": 9}}}`, "loop_detection: warns after 9, but stops at 5; warn earlier"},
		{"late warning of a budget", `{"model": "a:b", "middleware": {"token_budget": {"warn": 0.9, "stop": 0.5}}}`, "token_budget: warns at 0.9 of a limit, but stops at 0.5; warn earlier"},
		{"progress without a warning", `{"model": "a:b", "middleware": {"tool_progress": {"warn": 0}}}`, "tool_progress.warn"},
		{"budget of nothing", `{"model": "a:b", "middleware": {"token_budget": {"total": 0}}}`, "token_budget.total"},
		{"late warning of a tool", `{"model": "a:b", "middleware": {"loop_detection": {"tools": {"x": {"warn": 9, "stop": 2}}}}}`, "loop_detection.tools.x: warns after 9, but stops at 2"},
		{"limits of a tool", `{"model": "a:b", "middleware": {"loop_detection": {"tools": ["x"]}}}`, "loop_detection.tools: is a list"},
		{"recovery", `{"model": "a:b", "middleware": {"model_errors": {"recovery": 5}}}`, "model_errors.recovery: write a time"},
		{"tool of the sandbox", `{"model": "a:b", "middleware": {"sandbox": {"tools": ["rm"]}}}`, `sandbox.tools: "rm" is no tool of the sandbox; choose from glob, grep, ls`},
		{"bash as a tool", `{"model": "a:b", "middleware": {"sandbox": {"tools": ["bash"]}}}`, `sandbox.tools: "bash" runs commands on this machine; write "bash": true`},
		{"confine", `{"model": "a:b", "middleware": {"sandbox": {"confine": "yes"}}}`, `sandbox.confine: "yes"; write "auto", "off" or "required"`},
		{"time of a command", `{"model": "a:b", "middleware": {"sandbox": {"timeout": 5}}}`, "sandbox.timeout: write a time"},
		{"uploads without a sandbox", `{"model": "a:b", "middleware": {"uploads": true}}`, `middleware.uploads: works in the folders of a sandbox, and there is none; add "sandbox": true`},
		{"images without a sandbox", `{"model": "a:b", "middleware": {"sandbox": false, "view_image": true}}`, "middleware.view_image: works in the folders of a sandbox"},
		{"no skills", `{"model": "a:b", "middleware": {"skills": {"path": "none"}}}`, "middleware.skills.path: there is no folder"},
		{"skills", `{"model": "a:b", "middleware": {"skills": "none"}}`, "middleware.skills: is text; write true, or an object"},
		{"confidence", `{"model": "a:b", "middleware": {"memory": {"confidence": 2}}}`, "middleware.memory.confidence: write a number from 0 to 1"},
		{"facts", `{"model": "a:b", "middleware": {"memory": {"max_facts": 0}}}`, "middleware.memory.max_facts: write a whole number"},
		{"subagents", `{"model": "a:b", "middleware": {"subagents": {"types": ["x"]}}}`, "middleware.subagents.types: is a list; write an object"},
		{"name of a subagent", `{"model": "a:b", "middleware": {"subagents": {"types": {"A b": {"description": "x", "prompt": "y"}}}}}`, `subagents.types.A b: "A b" is not the name of a subagent`},
		{"built-in subagent", `{"model": "a:b", "middleware": {"subagents": {"types": {"bash": {"description": "x", "prompt": "y"}}}}}`, "subagents.types.bash: there is a built-in subagent of this name"},
		{"subagent without a prompt", `{"model": "a:b", "middleware": {"subagents": {"types": {"x": {"description": "y"}}}}}`, "subagents.types.x.prompt: is missing"},
		{"model of a subagent", `{"model": "a:b", "middleware": {"subagents": {"types": {"x": {"description": "y", "prompt": "z", "model": "gpt"}}}}}`, `subagents.types.x.model: "gpt" names no provider`},
		{"many subagents", `{"model": "a:b", "middleware": {"subagents": {"total": 51}}}`, "subagents.total: write a whole number"},
		{"tool errors", `{"model": "a:b", "middleware": {"tool_errors": {}}}`, "tool_errors.message: is missing"},
		{"format", `{"model": "a:b", "response_format": {"type": "string"}}`, "response_format: is not a JSON Schema of an object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Load(setup(t, `{"graphs": {"a": {"agent": `+tt.agent+`}}}`, nil))
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "langgraph.json:1:")
		})
	}
}

// One mistake is reported once: a key that cannot be read is not missing too.
func TestOneMistakeInParts(t *testing.T) {
	t.Parallel()
	for middleware, want := range map[string]string{
		`{"skills": "none"}`:                `langgraph.json:1:82: graphs.a.agent.middleware.skills: is text; write true, or an object: {…}`,
		`{"skills": {"path": 3}}`:           `graphs.a.agent.middleware.skills.path: is a number; write text, such as "skills"`,
		`{"skills": {"path": "f"}}`:         `graphs.a.agent.middleware.skills.path: DIR/f is a file; name the folder`,
		`{"tool_errors": {"message": 3}}`:   `tool_errors.message: is a number; write text`,
		`{"summarization": {"trigger": 3}}`: `summarization.trigger: is a number; write an object`,
		`{"subagents": {"types": {"x": {"description": "y", "prompt": {"file": "none.md"}}}}}`: `types.x.prompt.file: there is no file DIR/none.md; create it, or write the text here`,
		`{"subagents": {"types": {"x": {"description": "y", "prompt": {"file": "d"}}}}}`:       `types.x.prompt.file: cannot be read: it is a folder; name a file of text`,
		`{"subagents": {"types": {"x": {"description": 3, "prompt": "z"}}}}`:                   `types.x.description: is a number; write text`,
		`{"sandbox": {"folder": "f"}}`:    `sandbox.folder: DIR/f is a file; name a folder in which this server may write`,
		`{"sandbox": {"folder": "f/g"}}`:  `sandbox.folder: DIR/f is a file; name a folder in which this server may write`,
		`{"memory": {"folder": "f/g/h"}}`: `memory.folder: DIR/f is a file; name a folder in which this server may write`,
	} {
		src := setup(t, `{"graphs": {"a": {"agent": {"model": "scripted:x.json", "middleware": `+middleware+`}}}}`, nil)
		dir := filepath.Dir(src.File)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
		_, _, err := Load(src)
		var mistakes Mistakes
		require.ErrorAs(t, err, &mistakes)
		require.Len(t, mistakes, 1, "%s: %v", middleware, err)
		require.Contains(t, mistakes[0].String(), strings.ReplaceAll(want, "DIR", dir))
	}
}

// What has no effect is warned of, with what would have one.
func TestWarningsOfParts(t *testing.T) {
	t.Parallel()
	for middleware, want := range map[string]string{
		`{"sandbox": {"fodler": "x"}}`:                      `sandbox.fodler: unknown key, ignored; did you mean "folder"?`,
		`{"memory": {"fact_confidence_threshold": 1}}`:      `memory.fact_confidence_threshold: unknown key, ignored; choose from confidence, folder, max_facts, max_tokens, model, wait`,
		`{"sandbox": true, "uploads": {"path": "x"}}`:       `uploads.path: unknown key, ignored; there are no keys here: write true or {}`,
		`{"sandbox": {"timeout": "1m"}}`:                    `sandbox.timeout: without an effect: it is for commands, which need "bash": true`,
		`{"sandbox": {"bash": true, "readable": ["none"]}}`: `sandbox.readable[0]: commands cannot read it: stat DIR/none: no such file or directory`,
		`{"sandbox": true, "view_image": true}`:             `view_image: the model does not get images; if it reads them, write "model": {"name": "deepseek:x", "images": true}`,
	} {
		src := setup(t, `{"graphs": {"a": {"agent": {"model": "deepseek:x", "middleware": `+middleware+`}}}}`, nil)
		_, warnings, err := Load(src)
		require.NoError(t, err)
		require.Len(t, warnings, 1, middleware)
		require.Equal(t, "graphs.a.agent.middleware."+strings.ReplaceAll(want, "DIR", filepath.Dir(src.File)), warnings[0].String())
	}
}

// Keys of a model that stand next to it are no unknown keys: the warning shows where they belong.
func TestKeysBesideTheModel(t *testing.T) {
	t.Parallel()
	f := &file{}
	for key := range f.modelFields(&provider.Spec{}, new(bool)) {
		if key == "name" {
			continue
		}
		src := setup(t, `{"graphs": {"a": {"agent": {"model": "scripted:", "`+key+`": "x"}}}}`, nil)
		_, warnings, err := Load(src)
		require.NoError(t, err, key)
		require.Len(t, warnings, 1, key)
		require.Equal(t, `graphs.a.agent.`+key+`: ignored: it belongs to the model; write "model": {"name": "scripted:", "`+key+`": …}`, warnings[0].String())
	}
	_, warnings, err := Load(setup(t, `{"graphs": {"a": {"agent": {"model": "scripted:", "promt": "x"}}}}`, nil))
	require.NoError(t, err)
	require.Contains(t, warnings[0].String(), `promt: unknown key, ignored; did you mean "prompt"?`)
}

// What serves without Python is served where there is none; a file with nothing else is a mistake.
func TestWithoutPython(t *testing.T) {
	t.Parallel()
	src := setup(t, `{"graphs": {"p": "./agent.py:g", "chat": {"agent": {"model": "scripted:x.json"}}}}`, nil)
	src.Flags = map[string]string{"python": "no-such-python"}
	c, warnings, err := Load(src)
	require.NoError(t, err)
	require.Len(t, c.Graphs, 1)
	require.Equal(t, "chat", c.Graphs[0].ID)
	require.Contains(t, warnings[len(warnings)-1].String(), "graphs.p: not served, it needs Python")
	src = setup(t, `{"graphs": {"p": "./agent.py:g"}}`, nil)
	src.Flags = map[string]string{"python": "no-such-python"}
	_, _, err = Load(src)
	require.ErrorContains(t, err, "no-such-python")
}

// The agent of docs/agent.md loads, its tables have every key of a model, and middleware has the defaults that it says.
func TestAgentOfTheDocs(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/agent.md")
	require.NoError(t, err)
	page := string(raw)
	section := func(from, to string) string {
		_, text, found := strings.Cut(page, from)
		require.True(t, found, from)
		text, _, found = strings.Cut(text, to)
		require.True(t, found, to)
		return text
	}
	load := func(text string) ([]Warning, error) {
		src := setup(t, text, map[string]string{"OPENAI_API_KEY": "k"})
		dir := filepath.Dir(src.File)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "skills"), 0o755))
		for name, text := range map[string]string{"prompt.md": "Hi", ".env": "A=1\n", "agent.py": "graph = 1\n"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		_, warnings, err := Load(src)
		return warnings, err
	}
	warnings, err := load(section("```json\n", "```"))
	require.NoError(t, err)
	require.Empty(t, warnings)

	for i, part := range strings.Split(page, "```json\n{\"middleware\"")[1:] { // examples of single keys
		example, _, _ := strings.Cut(part, "```")
		example = strings.NewReplacer("${GUARD_KEY}", "k").Replace(`{"graphs": {"a": {"agent": {"model": "scripted:x.json", "middleware"` + strings.TrimSpace(example) + `}}}`)
		warnings, err := load(example)
		require.NoError(t, err, "example %d", i)
		require.Empty(t, warnings, "example %d", i)
	}

	var documented, known []string
	for _, line := range strings.Split(section("An object has these keys", "**Retries.**"), "\n") {
		if cell, isRow := strings.CutPrefix(line, "| `"); isRow {
			cell, _, _ = strings.Cut(cell, " |")
			documented = append(documented, strings.Split(strings.ReplaceAll(cell, "`", ""), ", ")...)
		}
	}
	gjson.Get(declaredAgent, "graphs.chat.agent.model").ForEach(func(key, _ gjson.Result) bool {
		if key.Str != "name" {
			known = append(known, key.Str)
		}
		return true
	})
	require.ElementsMatch(t, known, documented)

	needs := map[string]bool{"summarization": true, "tool_errors": true, "human_in_the_loop": true, "model_call_limit": true, "tool_call_limit": true, "guardrails": true, "uploads": true, "view_image": true, "read_before_write": true}
	for _, line := range strings.Split(section("| key | node |", "Before-hooks"), "\n") {
		cell, isRow := strings.CutPrefix(line, "| `")
		if !isRow {
			continue
		}
		kind, _, _ := strings.Cut(cell, "`")
		for value, works := range map[string]bool{"false": true, "true": !needs[kind], "{}": !needs[kind]} {
			_, err := load(`{"graphs": {"a": {"agent": {"model": "scripted:x.json", "tools": ["calculator"], "middleware": {"` + kind + `": ` + value + `}}}}}`)
			require.Equal(t, works, err == nil, "%s: %s: %v", kind, value, err)
		}
	}
}

package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"understudy/internal/jsonobj"
)

// Tools runs tools of LangChain for agents in Go, in a process of their own: authentication does not wait for them. Its methods are safe for concurrent use.
type Tools struct{ alone }

// Tool is a tool that Options.Tools names.
type Tool struct {
	Spec, Name, Description string
	Schema                  json.RawMessage // of the arguments that the model gives
	Direct                  bool            // its result ends the agent
	Problem                 *StartError     // why there is no such tool; nil: there is
}

// ToolCall is a call of a tool.
type ToolCall struct {
	Spec, ID     string
	Args         json.RawMessage
	Configurable json.RawMessage // what a function with a parameter RunnableConfig sees
}

// ToolResult is what a tool returned.
type ToolResult struct {
	Content  json.RawMessage // a text, or a list of blocks
	Failed   bool            // the tool itself made a message of its error
	Artifact json.RawMessage // nil: none
}

// ToolError is what a tool raised.
type ToolError struct{ Type, Message string }

func (e *ToolError) Error() string { return e.Message }

// ErrorName is the class of the exception.
func (e *ToolError) ErrorName() string { return e.Type }

var (
	errToolsDown = errors.New("the process of Python tools is not available at the moment; try again")
	errToolsFull = errors.New("too many Python tools are called at the moment; try again")
)

const (
	// toolSilence is how long the process may not answer: an async function that blocks holds up all others.
	toolSilence = 2 * time.Minute
	// longestCall bounds calls of tools. Callers have limits of their own.
	longestCall = 24 * time.Hour
)

// StartTools starts the process with tools and waits until they are loaded. A tool that cannot be loaded is no error: see List. The error is a *StartError when the process does not
// start at all. Call Close after use.
func StartTools(ctx context.Context, o Options) (*Tools, error) {
	g := New(toolsAlone(o))
	g.grace = longestCall // runs that began with the tools before a reload keep them
	a, err := startAlone(ctx, g)
	if err != nil {
		return nil, err
	}
	return &Tools{a}, nil
}

func toolsAlone(o Options) Options {
	o.Auth, o.App, o.Embed, o.Encryption, o.Timeout = "", "", "", "", toolSilence
	return o
}

// Reload replaces the tools, as Gate.Reload does. The process before ends when its last call has ended.
func (t *Tools) Reload(ctx context.Context, o Options) error {
	return t.gate.Reload(ctx, toolsAlone(o))
}

// List returns the tools of the process that answers. It waits some seconds for one that is starting; without one there are none.
func (t *Tools) List(ctx context.Context) []Tool {
	p, err := t.gate.process(ctx)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	found := p.hello.Tools
	p.mu.Unlock()
	var list []Tool
	for _, f := range found {
		one := Tool{Spec: f.Spec, Name: f.Name, Description: f.Description, Schema: f.Schema, Direct: f.Direct}
		if f.Problem != nil {
			one.Problem = f.Problem.explain(&p.program)
			one.Problem.Part, one.Problem.Spec = "tools", f.Spec
			one.Problem.Fix = p.program.fixTool(f.Spec, f.Problem, one.Problem.Fix)
		}
		list = append(list, one)
	}
	return list
}

// foundTool is a tool as the process describes it.
type foundTool struct {
	Spec, Name, Description string
	Schema                  json.RawMessage
	Direct                  bool
	Problem                 *problem
}

// toolAnswer is what the process answers to a call.
type toolAnswer struct {
	Content, Artifact json.RawMessage
	Failed            bool
	Error             *struct{ Type, Message, Trace string }
}

// Call calls a tool. The error is a *ToolError for what the tool raised, and the cause of ctx when that ends: then a coroutine is cancelled, and of a function in a thread, which
// nothing can end, the result is dropped.
func (t *Tools) Call(ctx context.Context, c ToolCall) (ToolResult, error) {
	a, err := t.gate.ask(ctx, "tool", func(b []byte, _ *process) []byte {
		b = append(jsonobj.AppendText(append(b, `,"spec":`...), c.Spec), `,"id":`...)
		b = append(jsonobj.AppendText(b, c.ID), `,"args":`...)
		b = append(append(b, orObject(c.Args)...), `,"configurable":`...)
		return append(b, orObject(c.Configurable)...)
	})
	switch {
	case ctx.Err() != nil:
		return ToolResult{}, context.Cause(ctx)
	case errors.Is(err, errFull):
		return ToolResult{}, errToolsFull
	case errors.Is(err, errSlow), errors.Is(err, errDown):
		return ToolResult{}, errToolsDown
	case err != nil:
		return ToolResult{}, fmt.Errorf("call Python tool %s: %w", c.Spec, err)
	case a.Refusal != nil:
		t.gate.logRefusal(a.Refusal)
		return ToolResult{}, &ToolError{"RuntimeError", firstLine(a.Refusal.Log)}
	case a.Tool == nil:
		return ToolResult{}, fmt.Errorf("call Python tool %s: the process answered nothing", c.Spec)
	case a.Tool.Error != nil:
		e := a.Tool.Error
		t.gate.opts.Logger.WarnContext(ctx, "a Python tool raised an error", "tool", c.Spec, "error", e.Type+": "+firstLine(e.Message), "traceback", e.Trace)
		return ToolResult{}, &ToolError{e.Type, e.Message}
	}
	return ToolResult{Content: a.Tool.Content, Failed: a.Tool.Failed, Artifact: a.Tool.Artifact}, nil
}

func orObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

// fixTool returns what to do about a tool that cannot be loaded, from the advice for parts that langgraph.json names.
func (o *Options) fixTool(spec string, p *problem, advice string) string {
	module, _, _ := strings.Cut(spec, ":")
	root, _, _ := strings.Cut(module, ".")
	if p.Type == "ModuleNotFoundError" && strings.Contains(p.Message, "'"+root) {
		return fmt.Sprintf("put the module %s below %s, or install its package for %s", module, strings.Join(o.dirs(), " or "), o.Python)
	}
	advice, _, _ = strings.Cut(advice, "; if the module is yours")
	return strings.ReplaceAll(advice, "to dependencies in langgraph.json", "to PYTHONPATH in the environment of the server") // there may be no langgraph.json
}

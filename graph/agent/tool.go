package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/pytext"
)

// Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON Schema of the arguments, an object. Calls that do not match never reach Run.
	Schema json.RawMessage
	// Direct ends the agent with the tool's result, without another call of the model.
	Direct bool
	// Remote marks a tool of a server, such as an MCP server: middleware may hold it back until the model looks for it.
	Remote bool
	// Timeout is how long a call may take; 0: as long as the run. Then the context of Run ends, and the model gets an error that says so. Run must end
	// when its context does: until then the run waits for it, and the log says so.
	Timeout time.Duration
	// Run executes a call. What it returns becomes the content of a tool message: text as it is; a message.Content; a message.Message
	// of type tool; anything else as JSON. A *pregel.Command, or an []any of commands and messages, updates the state; one of its
	// messages has to answer the call. An error, or a panic, becomes a message for the model, unless Options.FailOnToolError is set; the log has it
	// in both cases, a panic with its stack. The error of pregel.Interrupt must be returned unchanged.
	Run func(ctx context.Context, call message.ToolCall) (any, error)
	// Unwatched disables the check of arguments: the tool checks them itself.
	Unwatched bool
}

// NewTool makes a tool of a function. The schema is derived from A, a struct: json tags name the arguments (omitempty makes one
// optional), jsonschema tags describe them. In the function, ctx works with StateOf, CallOf, pregel.StoreOf, pregel.Emit and
// pregel.Interrupt.
func NewTool[A any](name, description string, run func(ctx context.Context, args A) (any, error)) (Tool, error) {
	if run == nil {
		return Tool{}, fmt.Errorf("tool %s has no function", name)
	}
	schema, err := jsonschema.For[A](nil)
	if err != nil {
		return Tool{}, fmt.Errorf("tool %s: %w", name, err)
	}
	if t := reflect.TypeFor[A](); t.Kind() == reflect.Struct && t.NumField() > 0 && len(schema.Properties) == 0 && !isMarshaler(t) {
		return Tool{}, fmt.Errorf("tool %s: no field of its arguments is exported, so the model could not set any: begin their names with a capital", name)
	}
	if schema.Type != "object" {
		return Tool{}, fmt.Errorf("tool %s: its arguments are %T; they have to be a struct", name, *new(A))
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		return Tool{}, fmt.Errorf("tool %s: %w", name, err)
	}
	return Tool{Name: name, Description: description, Schema: raw, Run: func(ctx context.Context, call message.ToolCall) (any, error) {
		var args A
		if err := json.Unmarshal(orEmpty(call.Args), &args); err != nil {
			return nil, &invalidArgs{err}
		}
		return run(ctx, args)
	}}, nil
}

// MustTool is NewTool for tools known to be valid. It panics on an error.
func MustTool[A any](name, description string, run func(ctx context.Context, args A) (any, error)) Tool {
	t, err := NewTool(name, description, run)
	if err != nil {
		panic(err)
	}
	return t
}

// isMarshaler reports whether a type reads its JSON itself.
func isMarshaler(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

// definition returns the tool in the form sent to models.
func (t Tool) definition() llms.Tool {
	schema := t.Schema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return llms.Tool{Type: "function", Function: &llms.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: schema}}
}

// boundTool is a tool with its parsed schema.
type boundTool struct {
	Tool
	schema *jsonschema.Resolved // nil: accepts anything
}

func bind(t Tool) (*boundTool, error) {
	switch {
	case t.Name == "":
		return nil, errors.New("a tool has no name")
	case t.Run == nil:
		return nil, fmt.Errorf("tool %s has no function", t.Name)
	case t.Timeout < 0:
		return nil, fmt.Errorf("tool %s: its timeout is negative", t.Name)
	}
	b := &boundTool{Tool: t}
	if len(t.Schema) == 0 || t.Unwatched {
		return b, nil
	}
	schema, err := resolve(t.Schema)
	if err != nil {
		return nil, fmt.Errorf("tool %s: its schema: %w", t.Name, err)
	}
	b.schema = schema
	return b, nil
}

// resolve parses a JSON Schema. It does not load external references.
func resolve(raw json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// invalidArgs is the error for arguments that do not match the tool's schema.
type invalidArgs struct{ err error }

func (e *invalidArgs) Error() string { return e.err.Error() }

// check returns the error of a call's arguments.
func (t *boundTool) check(args json.RawMessage) error {
	if t.schema == nil {
		return nil
	}
	if err := validate(t.schema, args); err != nil {
		return &invalidArgs{err}
	}
	return nil
}

// validate checks a JSON object against a schema. Missing properties are reported in pydantic's words, which models know.
func validate(schema *jsonschema.Resolved, raw json.RawMessage) error {
	var args map[string]any
	if err := json.Unmarshal(orEmpty(raw), &args); err != nil {
		return err
	}
	var missing []string
	for _, name := range schema.Schema().Required {
		if _, ok := args[name]; !ok {
			missing = append(missing, name+": Field required")
		}
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "\n"))
	}
	return schema.Validate(args)
}

// ToolRequest is a call on the way to its tool.
type ToolRequest struct {
	Call message.ToolCall
	// Tool is the called tool; nil when the agent has none with this name.
	Tool  *Tool
	State pregel.Values
	tools *toolSet
}

// Tools returns all tools of the agent.
func (r ToolRequest) Tools() []Tool { return r.tools.all() }

// With returns the request for another call, with the tool of that call.
func (r ToolRequest) With(call message.ToolCall) ToolRequest {
	r.Call, r.Tool = call, nil
	if t := r.tools.byName[call.Name]; t != nil {
		r.Tool = &t.Tool
	}
	return r
}

// ToolResult is the result of a call: a tool message, or commands and messages that update the state.
type ToolResult struct {
	Message *message.Message // nil: see Updates
	Updates []any            // *pregel.Command, message.Message
}

// toolSet is the set of tools of an agent.
type toolSet struct {
	byName map[string]*boundTool
	names  []string // in their order
}

func newToolSet(tools []Tool) (*toolSet, error) {
	s := &toolSet{byName: make(map[string]*boundTool, len(tools))}
	return s, s.add(tools)
}

func (s *toolSet) add(tools []Tool) error {
	for _, t := range tools {
		b, err := bind(t)
		if err != nil {
			return err
		}
		if s.byName[t.Name] != nil {
			return fmt.Errorf("two tools are named %q", t.Name)
		}
		s.byName[t.Name] = b
		s.names = append(s.names, t.Name)
	}
	return nil
}

func (s *toolSet) clone() *toolSet {
	return &toolSet{byName: maps.Clone(s.byName), names: slices.Clone(s.names)}
}

func (s *toolSet) all() []Tool {
	out := make([]Tool, len(s.names))
	for i, name := range s.names {
		out[i] = s.byName[name].Tool
	}
	return out
}

type ctxKey int

const (
	callKey ctxKey = iota
	stateKey
)

// CallOf returns the call that the running tool answers.
func CallOf(ctx context.Context) message.ToolCall {
	call, _ := ctx.Value(callKey).(message.ToolCall)
	return call
}

// StateOf returns the state of the agent to a running tool. It must not be modified: return a *pregel.Command.
func StateOf(ctx context.Context) pregel.Values {
	state, _ := ctx.Value(stateKey).(pregel.Values)
	return state
}

// Texts of LangGraph's ToolNode.
const (
	toolErrorText       = "Error: %s\n Please fix your mistakes."
	toolInvocationStart = "Error invoking tool '%s' with kwargs "
	toolInvocationText  = toolInvocationStart + "%s with error:\n %s\n Please fix the error and try again."
)

// unknownTool is the beginning of the answer to a call of a tool that does not exist. The names of those that do follow.
func unknownTool(name string) string {
	return fmt.Sprintf("Error: %s is not a valid tool, try one of [", name)
}

// toolError returns the message for a failed call.
func toolError(call message.ToolCall, text string) *message.Message {
	m := message.Tool(text, call.ID).WithName(call.Name)
	m.Status = message.StatusError
	return &m
}

// runTool executes a call. Its error is that of the tool.
func (a *build) runTool(ctx context.Context, r ToolRequest) (ToolResult, error) {
	tool := r.tools.byName[r.Call.Name]
	if tool == nil {
		return ToolResult{Message: toolError(r.Call, unknownTool(r.Call.Name)+strings.Join(r.tools.names, ", ")+"].")}, nil
	}
	ctx = context.WithValue(context.WithValue(ctx, callKey, r.Call), stateKey, r.State)
	ctx, span := pregel.StartTool(ctx, r.Call.Name, r.Call.Args)
	result, err := a.runKnown(ctx, tool, r)
	span.End(result.spanOutput, result.Message != nil && result.Message.Status == message.StatusError, err)
	return result, err
}

// runKnown executes a call of a tool that exists.
func (a *build) runKnown(ctx context.Context, tool *boundTool, r ToolRequest) (ToolResult, error) {
	shown := startShowing(ctx, r.Call)
	err := tool.check(r.Call.Args)
	var out any
	if err == nil {
		out, err = call(ctx, tool, r.Call)
	}
	var invalid *invalidArgs
	if errors.As(err, &invalid) {
		shown.failed(ctx, err)
		text := fmt.Sprintf(toolInvocationText, r.Call.Name, pytext.Repr(r.Call.Args), invalid)
		return ToolResult{Message: toolError(r.Call, text)}, nil
	}
	if err != nil {
		shown.failed(ctx, err)
		return ToolResult{}, err
	}
	result, err := normalize(r.Call, out)
	if err != nil {
		shown.failed(ctx, err)
		return result, err
	}
	shown.finished(ctx, &result)
	return result, nil
}

// spanOutput is what traces show of a result; nil: nothing.
func (r ToolResult) spanOutput() json.RawMessage {
	if r.Message == nil {
		return nil
	}
	return r.Message.AppendJSON(nil)
}

// panicError is a panic of a tool. It wraps a *pregel.PanicError.
type panicError struct {
	tool string
	*pregel.PanicError
}

func (e *panicError) Error() string { return fmt.Sprintf("tool %s panicked: %v", e.tool, e.Value) }
func (e *panicError) Unwrap() error { return e.PanicError }

// lateAfter is how long after its timeout, or after its run was cancelled, a call of a tool is reported in the log.
const lateAfter = time.Second

// call runs a tool within its timeout, and logs its error; a panic becomes an error of the tool.
func call(ctx context.Context, t *boundTool, c message.ToolCall) (out any, err error) {
	log := pregel.LogOf(ctx).With("tool", t.Name, "call_id", c.ID)
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{t.Name, &pregel.PanicError{Value: p, Stack: debug.Stack()}}
			log.Error("tool panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	outer, returned := ctx, make(chan struct{})
	defer close(returned)
	defer context.AfterFunc(outer, func() {
		select {
		case <-returned:
		case <-time.After(lateAfter):
			log.Warn("tool still running after its run was cancelled; it ignores its context")
		}
	})()
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.Timeout)
		defer cancel()
		late := time.AfterFunc(t.Timeout+lateAfter, func() {
			log.Warn("tool still running after its timeout; it ignores its context", "timeout", t.Timeout)
		})
		defer late.Stop()
	}
	out, err = t.Run(ctx, c)
	var invalid *invalidArgs
	switch {
	case err == nil, errors.Is(err, pregel.ErrInterrupted), errors.As(err, &invalid), outer.Err() != nil:
		return out, err
	case t.Timeout > 0 && ctx.Err() != nil:
		err = pregel.Errorf("TimeoutError", "tool %s exceeded its timeout of %s: %w", t.Name, t.Timeout, err)
	}
	log.Info("tool failed", "error", err)
	return out, err
}

// normalize converts a tool's return value to a result.
func normalize(call message.ToolCall, out any) (ToolResult, error) {
	switch out := out.(type) {
	case message.Message:
		return ToolResult{Message: answering(call, out)}, nil
	case *message.Message:
		if out != nil {
			return ToolResult{Message: answering(call, *out)}, nil
		}
	case *pregel.Command:
		return ToolResult{Updates: []any{out}}, checkAnswered(call, []any{out})
	case pregel.Command:
		return ToolResult{Updates: []any{&out}}, checkAnswered(call, []any{&out})
	case []any:
		if len(out) > 0 && !slices.ContainsFunc(out, func(x any) bool { return !isUpdate(x) }) {
			return ToolResult{Updates: out}, checkAnswered(call, out)
		}
	}
	content, err := contentOf(out)
	if err != nil {
		return ToolResult{}, fmt.Errorf("tool %s: its result: %w", call.Name, err)
	}
	m := message.Tool("", call.ID).WithName(call.Name)
	m.Content = content
	return ToolResult{Message: &m}, nil
}

func isUpdate(x any) bool {
	switch x.(type) {
	case *pregel.Command, message.Message:
		return true
	}
	return false
}

// answering fills in missing fields of a tool's own message.
func answering(call message.ToolCall, m message.Message) *message.Message {
	m.Type = message.TypeTool
	if m.ToolCallID == "" {
		m.ToolCallID = call.ID
	}
	if m.Name == "" {
		m.Name = call.Name
	}
	return &m
}

// contentOf returns a value as the content of a message: text, blocks, or JSON in Python's notation.
func contentOf(out any) (message.Content, error) {
	switch out := out.(type) {
	case string:
		return message.Text(out), nil
	case message.Content:
		return out, nil
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return message.Content{}, err
	}
	return message.Text(pytext.Dumps(raw)), nil
}

// checkAnswered returns an error if no update answers the call: a model refuses such a conversation.
func checkAnswered(call message.ToolCall, updates []any) error {
	for _, u := range updates {
		if m, ok := u.(message.Message); ok && m.ToolCallID == call.ID {
			return nil
		}
		cmd, ok := u.(*pregel.Command)
		if !ok {
			continue
		}
		if cmd.Graph == pregel.Parent {
			return nil // it leaves the agent
		}
		for _, m := range messagesIn(cmd.Update) {
			if m.Type == message.TypeTool && m.ToolCallID == call.ID || m.Type == message.TypeRemove && m.ID == message.RemoveAll {
				return nil
			}
		}
	}
	return pregel.Errorf("ValueError", "Expected to have a matching ToolMessage in Command.update for tool '%s', got none for call %s", call.Name, call.ID)
}

// messagesIn finds the messages of an update.
func messagesIn(update any) []message.Message {
	values, ok := update.(pregel.Values)
	if !ok {
		return nil
	}
	switch m := values[messagesKey].(type) {
	case []message.Message:
		return m
	case message.Message:
		return []message.Message{m}
	case []any:
		var out []message.Message
		for _, x := range m {
			if m, ok := x.(message.Message); ok {
				out = append(out, m)
			}
		}
		return out
	}
	return nil
}

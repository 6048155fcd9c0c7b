package agent

import (
	"context"
	"encoding/json"

	"github.com/tmc/langchaingo/llms"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

// Middleware changes how an agent works. Its hooks have LangChain's names, order and nodes: BeforeAgent, BeforeModel and AfterModel are
// separate nodes, `<Name>.before_model`; before-hooks run first to last, after-hooks last to first, and the first wrapping hook is
// outermost. A nil hook is skipped.
type Middleware struct {
	// Name prefixes its nodes; unique within an agent.
	Name string
	// Tools are added to the agent.
	Tools []Tool
	// State are keys added to the agent's state.
	State map[string]pregel.Channel
	// Private excludes State from the graph's input and output: LangChain's PrivateStateAttr.
	Private bool

	BeforeAgent Hook // once, before anything else
	BeforeModel Hook // before each call of the model
	AfterModel  Hook // after each
	AfterAgent  Hook // once, at the end

	WrapModelCall func(ctx context.Context, r ModelRequest, next ModelHandler) (ModelResponse, error)
	WrapToolCall  func(ctx context.Context, r ToolRequest, next ToolHandler) (ToolResult, error)
}

// Hook is a node of a middleware. Run returns what a node returns: nil, or an update of the state. With CanJump the update may set
// JumpTo, to continue at one of these: JumpModel, JumpTools, JumpEnd.
type Hook struct {
	Run     func(ctx context.Context, state pregel.Values) (any, error)
	CanJump []string
}

// JumpTo is the key of the state that a hook sets to jump.
const JumpTo = "jump_to"

// Jump targets.
const (
	JumpModel = "model"
	JumpTools = "tools"
	JumpEnd   = "end"
)

// Keys of the state that every agent has.
const (
	messagesKey   = "messages"
	structuredKey = "structured_response"
)

// ModelHandler calls the model, or the next middleware before it.
type ModelHandler func(ctx context.Context, r ModelRequest) (ModelResponse, error)

// ToolHandler executes a tool call, or passes it to the next middleware.
type ToolHandler func(ctx context.Context, r ToolRequest) (ToolResult, error)

// ModelRequest is a call of the model. It is a value: a wrapper changes its copy.
type ModelRequest struct {
	Model      Model
	System     *message.Message // nil: none
	Messages   []message.Message
	Tools      []Tool
	ToolChoice any // nil, "auto", "any", "none", or a tool's name
	Options    []llms.CallOption
	State      pregel.Values
}

// ModelResponse is the model's answer with its effects on the state.
type ModelResponse struct {
	Messages   []message.Message // the answer, and the agent's tool messages for it
	Structured json.RawMessage   // nil: none
	Updates    []any             // further *pregel.Command
}

// Messages returns the conversation of a state.
func Messages(state pregel.Values) []message.Message {
	m, _ := state[messagesKey].([]message.Message)
	return m
}

// lastAI returns the index of the last message of the model; -1 when there is none.
func lastAI(messages []message.Message) (at int) {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Type == message.TypeAI {
			return i
		}
	}
	return -1
}

// chainModel wraps call with the middleware; the first is outermost.
func chainModel(middleware []Middleware, call ModelHandler) ModelHandler {
	for i := len(middleware) - 1; i >= 0; i-- {
		if wrap, next := middleware[i].WrapModelCall, call; wrap != nil {
			call = func(ctx context.Context, r ModelRequest) (ModelResponse, error) { return wrap(ctx, r, next) }
		}
	}
	return call
}

func chainTool(middleware []Middleware, run ToolHandler) ToolHandler {
	for i := len(middleware) - 1; i >= 0; i-- {
		if wrap, next := middleware[i].WrapToolCall, run; wrap != nil {
			run = func(ctx context.Context, r ToolRequest) (ToolResult, error) { return wrap(ctx, r, next) }
		}
	}
	return run
}

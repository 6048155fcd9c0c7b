package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tmc/langchaingo/llms"

	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// Options configure an agent. Only Model is required.
type Options struct {
	Name   string // of the graph, and of the messages of its model
	Model  Model
	Prompt string // the system message; "": none
	Tools  []Tool
	// Sources are tools that are only known at run time, such as those of MCP servers. The agent owns them: Close closes those that
	// are io.Closers.
	Sources    []Source
	Middleware []Middleware
	// Closers are what Close closes besides sources, such as what middleware started.
	Closers []io.Closer
	// ResponseFormat requests an answer in a given form, stored in the state as structured_response.
	ResponseFormat *ResponseFormat
	// State are keys in addition to messages, jump_to and structured_response.
	State map[string]pregel.Channel
	// FailOnToolError makes an error of a tool fail the run. Otherwise the error is sent to the model.
	FailOnToolError bool
	// Compile has options such as interrupts before and after nodes, and limits.
	Compile []pregel.CompileOption
}

// Source provides tools. Tools is called with each call of the model and of a tool, so it should cache its result.
type Source interface {
	Tools(ctx context.Context) ([]Tool, error)
}

// Agent is a graph in which a model calls tools until it has an answer. It is LangChain's create_agent: the same nodes, state and
// messages. It is safe for concurrent use.
type Agent struct {
	*pregel.Graph
	sources []Source
	closers []io.Closer
}

// Close ends the sources of tools, such as their processes, and Options.Closers.
func (a *Agent) Close() error {
	var errs []error
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	for _, s := range a.sources {
		if c, ok := s.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// Names of nodes.
const (
	modelNode = "model"
	toolsNode = "tools"
)

// build is an agent while its graph is built.
type build struct {
	Options
	static *toolSet // without those of sources
	system *message.Message
	format *boundFormat // nil: none
	model  ModelHandler
	run    ToolHandler
	direct bool // a tool may be Direct

	g                        *pregel.StateGraph[pregel.Values]
	entry, loop, leave, exit string // first node, start and end of the loop, and the node after it
}

// New returns an agent.
func New(o Options) (*Agent, error) {
	a := &build{Options: o}
	if err := a.prepare(); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.TrimSpace("agent "+o.Name), err)
	}
	a.addNodes()
	a.addEdges()
	options := []pregel.CompileOption{}
	if o.Name != "" {
		options = append(options, pregel.WithName(o.Name))
	}
	g, err := a.g.Compile(append(options, o.Compile...)...)
	if err != nil {
		return nil, err
	}
	return &Agent{Graph: g, sources: o.Sources, closers: o.Closers}, nil
}

func (a *build) prepare() (err error) {
	if a.Model.LLM == nil {
		return errors.New("Options.Model is required")
	}
	var tools []Tool
	names := map[string]bool{}
	for _, m := range a.Middleware {
		if m.Name == "" || names[m.Name] {
			return fmt.Errorf("every middleware needs a name of its own, and %q is none", m.Name)
		}
		names[m.Name] = true
		tools = append(tools, m.Tools...)
	}
	if a.static, err = newToolSet(append(tools, a.Tools...)); err != nil {
		return err
	}
	if a.format, err = bindFormat(a.ResponseFormat); err != nil {
		return err
	}
	if a.format != nil && a.static.byName[a.format.Name] != nil {
		return fmt.Errorf("a tool and the response format are both named %q", a.format.Name)
	}
	if a.Prompt != "" {
		m := message.System(a.Prompt)
		a.system = &m
	}
	a.model = chainModel(a.Middleware, a.callModel)
	a.run = chainTool(a.Middleware, a.runTool)
	a.direct = len(a.Sources) == 0 && slices.ContainsFunc(a.static.all(), func(t Tool) bool { return t.Direct })
	return nil
}

// hasTools reports whether the agent has a node for tools: when any could run in it.
func (a *build) hasTools() bool {
	wraps := func(m Middleware) bool { return m.WrapToolCall != nil }
	return len(a.static.names) > 0 || len(a.Sources) > 0 || slices.ContainsFunc(a.Middleware, wraps)
}

// tools returns all tools currently available.
func (a *build) tools(ctx context.Context) (*toolSet, error) {
	if len(a.Sources) == 0 {
		return a.static, nil
	}
	all := a.static.clone()
	for _, s := range a.Sources {
		tools, err := s.Tools(ctx)
		if err != nil {
			return nil, err
		}
		if err := all.add(tools); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// The schemas of input and output.
type (
	agentInput struct {
		Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages,required"`
	}
	agentOutput struct {
		Messages   []message.Message `json:"messages" graph:"messages,reducer=add_messages,required"`
		Structured json.RawMessage   `json:"structured_response"`
	}
)

func (a *build) addNodes() {
	options := []pregel.GraphOption{
		pregel.WithChannel(messagesKey, pregel.Messages()),
		pregel.WithChannel(JumpTo, pregel.Ephemeral()),
		pregel.WithChannel(structuredKey, pregel.LastValue()),
		pregel.WithInput[agentInput](), pregel.WithOutput[agentOutput](),
	}
	var shown []string
	add := func(state map[string]pregel.Channel, private bool) {
		for _, name := range sortedKeys(state) {
			options = append(options, pregel.WithChannel(name, state[name]))
			if !private && !slices.Contains(shown, name) && name != messagesKey && name != structuredKey {
				shown = append(shown, name)
			}
		}
	}
	for _, m := range a.Middleware {
		add(m.State, m.Private)
	}
	add(a.State, false)
	options = append(options, pregel.WithMoreInput(shown...), pregel.WithMoreOutput(shown...))
	a.g = pregel.NewStateGraph[pregel.Values](options...)
	metadata := map[string]any{"ls_integration": "langchain_create_agent"}
	if a.Name != "" {
		metadata["lc_agent_name"] = a.Name
	}
	described := pregel.WithMetadata(metadata)

	a.g.AddNode(modelNode, a.runModelNode, described)
	if a.hasTools() {
		pregel.AddNode(a.g, toolsNode, a.runToolsNode, described)
	}
	for _, m := range a.Middleware {
		for _, h := range m.hooks() {
			if h.Run != nil {
				a.g.AddNode(m.node(h.kind), h.Run, described)
			}
		}
	}
}

type namedHook struct {
	kind string
	Hook
}

func (m *Middleware) hooks() []namedHook {
	return []namedHook{{beforeAgent, m.BeforeAgent}, {beforeModel, m.BeforeModel}, {afterModel, m.AfterModel}, {afterAgent, m.AfterAgent}}
}

func (m *Middleware) node(kind string) string { return m.Name + "." + kind }

const (
	beforeAgent = "before_agent"
	beforeModel = "before_model"
	afterModel  = "after_model"
	afterAgent  = "after_agent"
)

// step is a hook's node.
type step struct {
	node    string
	canJump []string
}

// steps are the nodes of a kind of hook, in the order in which they run.
func (a *build) steps(kind string) (out []step) {
	for _, m := range a.Middleware {
		for _, h := range m.hooks() {
			if h.kind == kind && h.Run != nil {
				out = append(out, step{m.node(kind), h.CanJump})
			}
		}
	}
	if kind == afterModel || kind == afterAgent {
		slices.Reverse(out)
	}
	return out
}

// addEdges connects the nodes as create_agent does.
func (a *build) addEdges() {
	before, beforeEach := a.steps(beforeAgent), a.steps(beforeModel)
	afterEach, after := a.steps(afterModel), a.steps(afterAgent)
	a.loop, a.leave, a.exit = modelNode, modelNode, pregel.END
	if len(beforeEach) > 0 {
		a.loop = beforeEach[0].node
	}
	if len(afterEach) > 0 {
		a.leave = afterEach[len(afterEach)-1].node
	}
	if len(after) > 0 {
		a.exit = after[0].node
	}
	a.entry = a.loop
	if len(before) > 0 {
		a.entry = before[0].node
	}
	a.g.AddEdge(pregel.START, a.entry)
	a.chain(before, a.loop)
	a.chain(beforeEach, modelNode)
	if len(afterEach) > 0 {
		a.g.AddEdge(modelNode, afterEach[0].node)
		last := len(afterEach) - 1
		a.chain(afterEach[:last], afterEach[last].node)
	}
	a.chain(after, pregel.END)
	a.leaveLoop(afterEach)
}

// chain connects hooks in sequence, and the last of them with next.
func (a *build) chain(steps []step, next string) {
	for i, s := range steps {
		to := next
		if i+1 < len(steps) {
			to = steps[i+1].node
		}
		a.jump(s, to)
	}
}

// jump adds the edge of a hook: to next, or to the target of its jump.
func (a *build) jump(s step, next string) {
	if len(s.canJump) == 0 {
		a.g.AddEdge(s.node, next)
		return
	}
	targets := []string{next}
	for place, node := range map[string]string{JumpEnd: a.exit, JumpTools: toolsNode, JumpModel: a.loop} {
		if slices.Contains(s.canJump, place) && node != s.node && (node != toolsNode || a.hasTools()) {
			targets = append(targets, node)
		}
	}
	slices.Sort(targets[1:])
	a.g.AddConditionalEdges(s.node, func(_ context.Context, state pregel.Values) (any, error) {
		if to := a.jumpOf(state); to != "" {
			return to, nil
		}
		return next, nil
	}, slices.Compact(targets)...)
}

// jumpOf returns the jump target in the state; "" when there is none.
func (a *build) jumpOf(state pregel.Values) string {
	place, _, _ := pregel.Get[string](state, JumpTo)
	switch place {
	case JumpModel:
		return a.loop
	case JumpEnd:
		return a.exit
	case JumpTools:
		return toolsNode
	}
	return ""
}

// leaveLoop adds the edges after the model and its hooks, and after the tools.
func (a *build) leaveLoop(afterEach []step) {
	switch {
	case a.hasTools():
		targets := []string{toolsNode, a.exit}
		wraps := func(m Middleware) bool { return m.WrapModelCall != nil }
		if a.format != nil || a.leave != modelNode || slices.ContainsFunc(a.Middleware, wraps) {
			targets = append(targets, a.loop)
		}
		a.g.AddConditionalEdges(a.leave, a.afterModel, targets...)
		targets = []string{a.loop}
		if a.direct || len(a.Sources) > 0 || a.format != nil {
			targets = append(targets, a.exit)
		}
		a.g.AddConditionalEdges(toolsNode, a.afterTools, targets...)
	case a.format != nil:
		a.g.AddConditionalEdges(a.leave, a.afterFormat, a.loop, a.exit)
	case a.leave == modelNode:
		a.g.AddEdge(modelNode, a.exit)
	default:
		a.jump(afterEach[len(afterEach)-1], a.exit)
	}
}

// afterModel chooses what follows an answer: its tool calls, another attempt, or the end.
func (a *build) afterModel(_ context.Context, state pregel.Values) (any, error) {
	if to := a.jumpOf(state); to != "" {
		return to, nil
	}
	messages := Messages(state)
	at := lastAI(messages)
	if at < 0 || len(messages[at].ToolCalls) == 0 {
		return a.exit, nil
	}
	answered := map[string]bool{}
	for _, m := range messages[at+1:] {
		if m.Type == message.TypeTool {
			answered[m.ToolCallID] = true
		}
	}
	var sends []pregel.Send
	for _, c := range messages[at].ToolCalls {
		if !answered[c.ID] && !a.format.is(c.Name) {
			sends = append(sends, pregel.Send{Node: toolsNode, Arg: []any{callJSON(c)}})
		}
	}
	switch {
	case len(sends) > 0:
		return sends, nil
	case hasStructured(state):
		return a.exit, nil
	}
	return a.loop, nil
}

// callJSON returns a tool call in the form of messages.
func callJSON(c message.ToolCall) json.RawMessage {
	b := jsonobj.AppendText([]byte(`{"name":`), c.Name)
	b = append(append(b, `,"args":`...), orEmpty(c.Args)...)
	b = jsonobj.AppendText(append(b, `,"id":`...), c.ID)
	return append(b, `,"type":"tool_call"}`...)
}

func hasStructured(state pregel.Values) bool {
	raw, ok, err := pregel.Get[json.RawMessage](state, structuredKey)
	return ok && err == nil && len(raw) > 0 && string(raw) != "null"
}

// afterFormat is afterModel for agents without tools.
func (a *build) afterFormat(_ context.Context, state pregel.Values) (any, error) {
	if to := a.jumpOf(state); to != "" {
		return to, nil
	}
	if hasStructured(state) {
		return a.exit, nil
	}
	return a.loop, nil
}

// afterTools returns to the model, unless it has answered in the format next to its calls, or all tools that ran are Direct.
func (a *build) afterTools(ctx context.Context, state pregel.Values) (any, error) {
	if a.format != nil && hasStructured(state) {
		return a.exit, nil
	}
	messages := Messages(state)
	at := lastAI(messages)
	if at < 0 {
		return a.loop, nil
	}
	tools, err := a.tools(ctx)
	if err != nil {
		return nil, err
	}
	ran := map[string]string{}
	for _, m := range messages[at+1:] {
		if m.Type != message.TypeTool {
			continue
		}
		if tools.byName[m.Name] != nil {
			ran[m.ToolCallID] = m.Name
		}
	}
	direct := false
	for _, c := range messages[at].ToolCalls {
		name := c.Name
		if n, ok := ran[c.ID]; ok {
			name = n // an approval may have replaced the tool
		}
		if t := tools.byName[name]; t != nil {
			if !t.Direct {
				return a.loop, nil
			}
			direct = true
		}
	}
	if direct {
		return a.exit, nil
	}
	return a.loop, nil
}

// runModelNode is the node that calls the model.
func (a *build) runModelNode(ctx context.Context, state pregel.Values) (any, error) {
	tools, err := a.tools(ctx)
	if err != nil {
		return nil, err
	}
	before := Messages(state)
	if err := a.patience(before, ModelResponse{}); err != nil {
		return nil, err
	}
	messages := answerInvalid(before)
	r := ModelRequest{Model: a.Model, System: a.system, Messages: messages, Tools: tools.all(), State: state}
	answer, err := a.model(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := a.patience(before, answer); err != nil {
		return nil, err
	}
	said := answer.Messages
	if len(messages) != len(before) {
		said = slices.Concat([]message.Message{message.Remove(message.RemoveAll)}, messages, said)
	}
	update := pregel.Values{messagesKey: said}
	switch {
	case answer.Structured != nil:
		update[structuredKey] = answer.Structured
	case a.format != nil:
		update[structuredKey] = nil // none of an earlier run
	}
	return append([]any{&pregel.Command{Update: update}}, answer.Updates...), nil
}

// answerInvalid adds results for calls that could not be parsed: models refuse a conversation with a call that has no
// result.
func answerInvalid(messages []message.Message) []message.Message {
	if !slices.ContainsFunc(messages, func(m message.Message) bool { return len(m.InvalidToolCalls) > 0 }) {
		return messages
	}
	answered := answeredCalls(messages)
	var out []message.Message
	for _, m := range messages {
		out = append(out, m)
		for _, c := range m.InvalidToolCalls {
			if c.ID == "" || answered[c.ID] {
				continue
			}
			answered[c.ID] = true
			name := c.Name
			if name == "" {
				name = "unknown"
			}
			text := fmt.Sprintf("Tool call %s with id %s could not be executed - arguments were malformed or truncated.", name, c.ID)
			out = append(out, *toolError(message.ToolCall{Name: name, ID: c.ID}, text))
		}
	}
	return out
}

// answeredCalls returns the ids of the calls that have a result.
func answeredCalls(messages []message.Message) map[string]bool {
	answered := map[string]bool{}
	for _, m := range messages {
		if m.Type == message.TypeTool {
			answered[m.ToolCallID] = true
		}
	}
	return answered
}

// callModel is the innermost ModelHandler.
func (a *build) callModel(ctx context.Context, r ModelRequest) (ModelResponse, error) {
	// A call without a result, such as of a model that had no tools, would be refused with each turn.
	content, err := forModel(r.System, a.format.remind(repair(r.Messages)))
	if err != nil {
		return ModelResponse{}, pregel.Errorf("ValueError", "%w", err)
	}
	options := slices.Clone(r.Model.Options)
	tools := make([]llms.Tool, 0, len(r.Tools)+1)
	for _, t := range r.Tools {
		tools = append(tools, t.definition())
	}
	choice := r.ToolChoice
	if a.format != nil {
		tools = append(tools, a.format.definition())
		choice = "any"
	}
	if len(tools) > 0 {
		options = append(options, llms.WithTools(tools))
	}
	if choice != nil {
		options = append(options, llms.WithToolChoice(choice))
	}
	answer, err := r.Model.ask(ctx, content, append(options, r.Options...), nil, nil)
	if err != nil {
		return ModelResponse{}, err
	}
	answer.Name = a.Name
	out, err := a.format.response(answer)
	return a.refuseUnknown(out), err
}

// sentCall is a call as the argument of a Send.
type sentCall struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
	ID   string          `json:"id"`
}

// runToolsNode executes one call.
func (a *build) runToolsNode(ctx context.Context, calls []sentCall) (any, error) {
	state, err := pregel.ReadState(ctx)
	if err != nil {
		return nil, err
	}
	tools, err := a.tools(ctx)
	if err != nil {
		return nil, err
	}
	var messages []message.Message
	var updates []any
	for _, c := range calls {
		r, err := a.runCall(ctx, ToolRequest{State: state, tools: tools}.With(message.ToolCall(c)))
		if err != nil {
			return nil, err
		}
		if r.Message != nil {
			messages = append(messages, *r.Message)
		}
		for _, u := range r.Updates {
			if m, ok := u.(message.Message); ok {
				u = pregel.Values{messagesKey: []message.Message{m}}
			}
			updates = append(updates, u)
		}
	}
	if len(updates) == 0 {
		return pregel.Values{messagesKey: messages}, nil
	}
	if len(messages) > 0 {
		updates = append([]any{pregel.Values{messagesKey: messages}}, updates...)
	}
	return updates, nil
}

// runCall executes a call. Errors become results for the model.
func (a *build) runCall(ctx context.Context, r ToolRequest) (ToolResult, error) {
	out, err := a.run(ctx, r)
	if err == nil || a.FailOnToolError || errors.Is(err, pregel.ErrInterrupted) || context.Cause(ctx) != nil {
		return out, err
	}
	return ToolResult{Message: toolError(r.Call, fmt.Sprintf(toolErrorText, errorRepr(err)))}, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

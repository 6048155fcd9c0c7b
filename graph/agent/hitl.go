package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/pytext"
)

// Decisions that a person may take about a tool call.
const (
	Approve = "approve" // it runs unchanged
	Edit    = "edit"    // another call runs instead
	Reject  = "reject"  // it does not run, and the model gets a rejection
	Respond = "respond" // it does not run; the person's text is its result
)

// Approval configures how a tool's calls are approved.
type Approval struct {
	Decisions   []string // allowed ones; none: all four
	Description string   // shown to the person; "": the name and the arguments
	// When selects the calls to ask about; nil: all. It is called again on resume and must return the same.
	When func(call message.ToolCall, state pregel.Values) bool
}

// HumanInTheLoop asks a person before tools run. The run stops at an interrupt whose value lists the calls, {"action_requests": [{name,
// args, description}], "review_configs": [{action_name, allowed_decisions}]}, and resumes with {"decisions": [{"type": …}]}, one for
// each call in order.
func HumanInTheLoop(tools map[string]Approval) (Middleware, error) {
	h := hitl{}
	for name, a := range tools {
		if len(a.Decisions) == 0 {
			a.Decisions = []string{Approve, Edit, Reject, Respond}
		}
		for _, d := range a.Decisions {
			if !slices.Contains([]string{Approve, Edit, Reject, Respond}, d) {
				return Middleware{}, fmt.Errorf("human in the loop: %s: %q is no decision", name, d)
			}
		}
		h[name] = a
	}
	if len(h) == 0 {
		return Middleware{}, errors.New("human in the loop: names no tool")
	}
	return Middleware{
		Name:         "HumanInTheLoopMiddleware",
		Private:      true,
		State:        map[string]pregel.Channel{editedKey: pregel.LastValue()},
		AfterModel:   Hook{Run: h.afterModel},
		WrapToolCall: h.wrapToolCall,
	}, nil
}

// editedKey holds the calls by which a person replaced the model's, by id.
const editedKey = "hitl_edited_tool_calls"

type hitl map[string]Approval

type (
	action struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	}
	actionRequest struct {
		action
		Description string `json:"description"`
	}
	reviewConfig struct {
		ActionName       string   `json:"action_name"`
		AllowedDecisions []string `json:"allowed_decisions"`
	}
	hitlRequest struct {
		ActionRequests []actionRequest `json:"action_requests"`
		ReviewConfigs  []reviewConfig  `json:"review_configs"`
	}
	decision struct {
		Type         string  `json:"type"`
		Message      string  `json:"message"`
		EditedAction *action `json:"edited_action"`
	}
	hitlResponse struct {
		Decisions []json.RawMessage `json:"decisions"`
	}
)

func (h hitl) afterModel(ctx context.Context, state pregel.Values) (any, error) {
	messages := Messages(state)
	at := lastAI(messages)
	if at < 0 || len(messages[at].ToolCalls) == 0 {
		return nil, nil
	}
	var request hitlRequest
	var asked []message.ToolCall
	for _, c := range messages[at].ToolCalls {
		a, ok := h[c.Name]
		if !ok || a.When != nil && !a.When(c, state) {
			continue
		}
		description := a.Description
		if description == "" {
			description = fmt.Sprintf("Tool execution requires approval\n\nTool: %s\nArgs: %s", c.Name, pytext.Repr(c.Args))
		}
		request.ActionRequests = append(request.ActionRequests, actionRequest{action{c.Name, orEmpty(c.Args)}, description})
		request.ReviewConfigs = append(request.ReviewConfigs, reviewConfig{c.Name, a.Decisions})
		asked = append(asked, c)
	}
	if len(asked) == 0 {
		if len(edits(state)) > 0 {
			return pregel.Values{editedKey: map[string]action{}}, nil // those of an earlier turn
		}
		return nil, nil
	}
	value, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	resumed, err := pregel.Interrupt[json.RawMessage](ctx, json.RawMessage(value))
	if err != nil {
		return nil, err
	}
	return h.decide(messages[at], asked, resumed)
}

// decide parses a person's answer.
func (h hitl) decide(said message.Message, asked []message.ToolCall, resumed json.RawMessage) (any, error) {
	var response hitlResponse
	if err := json.Unmarshal(resumed, &response); err != nil || response.Decisions == nil {
		return nil, pregel.Errorf("ValueError", `resume with {"decisions": [{"type": "approve"}, …]}, one for each of the %d calls`, len(asked))
	}
	if len(response.Decisions) != len(asked) {
		return nil, pregel.Errorf("ValueError", "Number of human decisions (%d) does not match number of hanging tool calls (%d).", len(response.Decisions), len(asked))
	}
	update := []message.Message{said}
	edited := map[string]action{}
	for i, raw := range response.Decisions {
		c := asked[i]
		var d decision
		if err := json.Unmarshal(raw, &d); err != nil || !slices.Contains(h[c.Name].Decisions, d.Type) {
			return nil, pregel.Errorf("ValueError",
				"Unexpected human decision: %s. Decision type '%s' is not allowed for tool '%s'. Expected one of %s based on the tool's configuration.",
				pytext.Repr(raw), d.Type, c.Name, pyList(h[c.Name].Decisions))
		}
		switch d.Type {
		case Edit:
			if d.EditedAction == nil || d.EditedAction.Name == "" || !gjson.ParseBytes(orEmpty(d.EditedAction.Args)).IsObject() {
				return nil, pregel.Errorf("ValueError", `decision %d: "edit" needs "edited_action": {"name": …, "args": {…}}`, i)
			}
			edited[c.ID] = action{d.EditedAction.Name, orEmpty(d.EditedAction.Args)}
		case Reject:
			text := fmt.Sprintf("User rejected the tool call for `%s` with id %s. The tool was not executed. Do not retry this tool "+
				"call unless the user explicitly requests it.", c.Name, c.ID)
			if d.Message != "" {
				text = fmt.Sprintf("User rejected the tool call for `%s` with reason: %s", c.Name, d.Message)
			}
			update = append(update, *toolError(c, text))
		case Respond:
			update = append(update, message.Tool(d.Message, c.ID).WithName(c.Name))
		}
	}
	// Always written, to remove the edits of an earlier turn.
	return pregel.Values{messagesKey: update, editedKey: edited}, nil
}

func pyList(names []string) string {
	raw, _ := json.Marshal(names)
	return pytext.Repr(raw)
}

func edits(state pregel.Values) map[string]action {
	raw, _, _ := pregel.Get[json.RawMessage](state, editedKey)
	var edited map[string]action
	_ = json.Unmarshal(raw, &edited) // absent: none
	return edited
}

// wrapToolCall runs the person's edited call, and reports the decision to the model.
func (h hitl) wrapToolCall(ctx context.Context, r ToolRequest, next ToolHandler) (ToolResult, error) {
	run, ok := edits(r.State)[r.Call.ID]
	if !ok || r.Call.ID == "" {
		return next(ctx, r)
	}
	original := r.Call
	r = r.With(message.ToolCall{Name: run.Name, Args: run.Args, ID: r.Call.ID})
	if r.Tool == nil && run.Name != original.Name {
		var names []string
		for _, t := range r.Tools() {
			names = append(names, t.Name)
		}
		slices.Sort(names)
		return ToolResult{}, pregel.Errorf("ValueError", "Reviewer edited tool call '%s' to '%s', which is not an available tool. Available tools: %s.",
			original.ID, run.Name, strings.Join(names, ", "))
	}
	out, err := next(ctx, r)
	if err != nil {
		return out, err
	}
	if out.Message != nil {
		m := noted(*out.Message, run)
		out.Message = &m
	}
	for i, u := range out.Updates {
		cmd, ok := u.(*pregel.Command)
		values, isValues := pregel.Values(nil), false
		if ok {
			values, isValues = cmd.Update.(pregel.Values)
		}
		list, isList := values[messagesKey].([]message.Message)
		if !isValues || !isList {
			continue
		}
		list = slices.Clone(list)
		for j, m := range list {
			if m.Type == message.TypeTool && m.ToolCallID == r.Call.ID {
				list[j] = noted(m, run)
			}
		}
		changed := *cmd
		changed.Update = with(values, messagesKey, list)
		out.Updates[i] = &changed
	}
	return out, nil
}

func with(values pregel.Values, key string, v any) pregel.Values {
	out := make(pregel.Values, len(values))
	for k, old := range values {
		out[k] = old
	}
	out[key] = v
	return out
}

const editNotice = "Note: a human reviewer replaced this tool call before it ran. The call recorded in your message is the one you produced, " +
	"not the one that executed. This was intentional and authorized. Do not re-issue your original call."

// noted puts the notice before a result.
func noted(m message.Message, run action) message.Message {
	notice := fmt.Sprintf("%s Executed instead: %s with arguments %s.", editNotice, run.Name, pytext.Dumps(run.Args))
	if !m.Content.Empty() {
		notice += "\n\nTool response:"
	}
	if m.Content.Blocks != nil {
		block, _ := json.Marshal(map[string]string{"type": "text", "text": notice})
		m.Content.Blocks = append([]json.RawMessage{block}, m.Content.Blocks...)
		return m
	}
	if m.Content.Text != "" {
		notice += "\n"
	}
	m.Content = message.Text(notice + m.Content.Text)
	return m
}

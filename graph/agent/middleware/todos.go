package middleware

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/pytext"
)

// Todo is one step of a plan.
type Todo struct {
	Content string `json:"content"`
	Status  string `json:"status"` // pending, in_progress or completed
}

// TodoOptions control Todos.
type TodoOptions struct {
	// Active reports whether a run plans; nil: each does. The tool is not offered to others.
	Active func(ctx context.Context) bool
}

const (
	todosKey      = "todos"
	maxSentBack   = 2 // times in a run
	todosTool     = "write_todos"
	parallelTodos = "Error: The `write_todos` tool should never be called multiple times in parallel. Please call it only once per model invocation to update the todo list."
)

// Todos gives an agent the tool write_todos, with which it keeps a plan in the state (`todos`). The model is reminded of a plan that is not in the conversation any
// more, and sent back, at most twice in a run, when it wants to end with open steps. Both reminders are in requests only.
func Todos(o TodoOptions) agent.Middleware {
	t := todos{o}
	if t.Active == nil {
		t.Active = func(context.Context) bool { return true }
	}
	return agent.Middleware{
		Name:          "TodoMiddleware",
		Tools:         []agent.Tool{WriteTodos()},
		State:         map[string]pregel.Channel{todosKey: pregel.LastValue()},
		AfterModel:    agent.Hook{CanJump: []string{agent.JumpModel}, Run: t.afterModel},
		WrapModelCall: t.remind,
	}
}

// WriteTodos returns the tool write_todos, which replaces the plan in the state.
func WriteTodos() agent.Tool {
	return agent.Tool{
		Name: todosTool,
		Description: "Keeps your plan for a task with three steps or more, and shows it to the user. Each call replaces the whole list. " +
			"Set a step to in_progress before you begin it, and to completed as soon as it is done. Do not use it for simple requests.",
		Schema: json.RawMessage(`{"type":"object","properties":{"todos":{"type":"array","items":{"type":"object","properties":{"content":{"type":"string"},"status":{"type":"string","enum":["pending","in_progress","completed"]}},"required":["content","status"]},"description":"The steps."}},"required":["todos"]}`),
		Run: func(_ context.Context, call message.ToolCall) (any, error) {
			var a struct {
				Todos []Todo `json:"todos"`
			}
			if err := json.Unmarshal(call.Args, &a); err != nil {
				return nil, fmt.Errorf("arguments: %w", err)
			}
			if a.Todos == nil {
				a.Todos = []Todo{}
			}
			raw, err := json.Marshal(a.Todos)
			if err != nil {
				return nil, err
			}
			result := message.Tool("Updated todo list to "+pytext.Repr(raw), call.ID).WithName(call.Name)
			return &pregel.Command{Update: pregel.Values{todosKey: a.Todos, "messages": []message.Message{result}}}, nil
		},
	}
}

type todos struct{ TodoOptions }

// open returns the steps that are not completed, as lines; "": none.
func open(state pregel.Values) (all, left string) {
	list, _, _ := pregel.Get[[]Todo](state, todosKey)
	for _, t := range list {
		line := "- [" + t.Status + "] " + t.Content + "\n"
		all += line
		if t.Status != "completed" {
			left += line
		}
	}
	return all, left
}

// afterModel refuses several plans in one answer, and sends the model back that wants to end with open steps.
func (t todos) afterModel(ctx context.Context, state pregel.Values) (any, error) {
	list := agent.Messages(state)
	if len(list) == 0 || list[len(list)-1].Type != message.TypeAI || !t.Active(ctx) {
		return nil, nil
	}
	last := list[len(list)-1]
	var plans []message.Message
	for _, c := range last.ToolCalls {
		if c.Name == todosTool {
			m := message.Tool(parallelTodos, c.ID).WithName(c.Name)
			m.Status = message.StatusError
			plans = append(plans, m)
		}
	}
	if len(plans) > 1 {
		return pregel.Values{"messages": plans}, nil
	}
	if len(last.ToolCalls) > 0 || over(last) {
		return nil, nil
	}
	if _, left := open(state); left == "" || ends(list) > maxSentBack {
		return nil, nil
	}
	return pregel.Values{agent.JumpTo: agent.JumpModel}, nil
}

// ends returns how often the model wanted to end since a person spoke.
func ends(list []message.Message) (n int) {
	for _, m := range slices.Backward(list) {
		switch {
		case m.Type == message.TypeHuman && !m.HiddenFromPeople():
			return n
		case m.Type == message.TypeAI && len(m.ToolCalls) == 0:
			n++
		}
	}
	return n
}

// remind adds what the model must not forget to its request.
func (t todos) remind(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
	if !t.Active(ctx) {
		r.Tools = slices.DeleteFunc(slices.Clone(r.Tools), func(one agent.Tool) bool { return one.Name == todosTool })
		return next(ctx, r)
	}
	all, left := open(r.State)
	n := len(r.Messages)
	switch {
	case left != "" && n > 0 && r.Messages[n-1].Type == message.TypeAI && len(r.Messages[n-1].ToolCalls) == 0:
		r.Messages = append(slices.Clip(r.Messages), reminder("todo_completion_reminder", "Your plan has steps that are not completed:\n\n"+left+
			"\nFinish them before you answer. Call `write_todos` whenever a step changes; steps that are not needed any more are removed."))
	case all != "" && !slices.ContainsFunc(r.Messages, plans):
		r.Messages = append(slices.Clip(r.Messages), reminder("todo_reminder", "Your plan is not in the conversation any more, and still counts:\n\n"+all+"\nCall `write_todos` whenever a step changes."))
	}
	return next(ctx, r)
}

// plans reports whether a message has a call of write_todos.
func plans(m message.Message) bool {
	return slices.ContainsFunc(m.ToolCalls, func(c message.ToolCall) bool { return c.Name == todosTool })
}

// reminder is a message of the program to the model.
func reminder(name, text string) message.Message {
	m := message.Human("<system-reminder>\n" + text + "\n</system-reminder>").WithName(name)
	m.AdditionalKwargs = json.RawMessage(`{"hide_from_ui":true}`)
	return m
}

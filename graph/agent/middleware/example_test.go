package middleware_test

import (
	"context"
	"fmt"
	"strings"

	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/graph/agent/scripted"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// office is a guard of one's own.
type office struct{}

func (office) Evaluate(_ context.Context, r middleware.GuardRequest) (middleware.GuardDecision, error) {
	if strings.Contains(string(r.Input), "private") {
		return middleware.GuardDecision{Reasons: []middleware.GuardReason{{Code: "office.private", Message: "this folder is private"}}}, nil
	}
	return middleware.GuardDecision{Allow: true}, nil
}

func ExampleGuardrails() {
	model, err := scripted.Parse([]byte(`[{"from": "human", "when": "^open (.*)$", "tool_calls": [{"name": "open", "args": {"path": "$1"}}]},
		{"from": "tool", "when": "(?s)^(.*)$", "content": "$1"}]`))
	if err != nil {
		panic(err)
	}
	open := agent.MustTool("open", "Opens a file.", func(_ context.Context, a struct {
		Path string `json:"path"`
	},
	) (any, error) {
		return "contents of " + a.Path, nil
	})
	guards, err := middleware.Guardrails(middleware.GuardrailOptions{Guard: office{}})
	if err != nil {
		panic(err)
	}
	clerk, err := agent.New(agent.Options{Model: agent.Model{LLM: model}, Tools: []agent.Tool{open}, Middleware: []agent.Middleware{guards}})
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"open menu.txt", "open private/diary.txt"} {
		r, err := pregel.Invoke[pregel.Values](context.Background(), clerk.Graph, pregel.Values{"messages": []message.Message{message.Human(text)}})
		if err != nil {
			panic(err)
		}
		list := agent.Messages(r.State)
		fmt.Println(list[len(list)-1].Text())
	}
	// Output:
	// contents of menu.txt
	// Guardrail denied: tool 'open' was blocked (office.private). Reason: this folder is private. Choose an alternative approach.
}

package agent_test

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/agent/provider"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// An agent with a tool. Its model is scripted; provider.Spec{Name: "openai:gpt-4o"} is a real one.
func ExampleNew() {
	model, err := provider.Open(provider.Spec{Name: "scripted:", Script: []byte(`[
		{"from": "tool", "when": "(.*)", "content": "It is $1 there."},
		{"when": "in (\\w+)", "tool_calls": [{"name": "weather", "args": {"city": "$1"}}]}]`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	weather := agent.MustTool("weather", "Tells the weather of a city.", func(_ context.Context, args struct {
		City string `json:"city" jsonschema:"name of the city"`
	},
	) (any, error) {
		return "sunny in " + args.City, nil
	})
	chat, err := agent.New(agent.Options{Name: "chat", Model: model, Tools: []agent.Tool{weather}})
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := chat.Invoke(context.Background(), pregel.Values{"messages": []message.Message{message.Human("How is it in Rome?")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range gjson.GetBytes(state, "messages").Array() {
		fmt.Printf("%s: %q\n", m.Get("type").Str, m.Get("content").Str)
	}
	// Output:
	// human: "How is it in Rome?"
	// ai: ""
	// tool: "sunny in Rome"
	// ai: "It is sunny in Rome there."
}

// Middleware is a struct of hooks; those that are nil are none.
func ExampleMiddleware() {
	polite := agent.Middleware{
		Name: "polite",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			system := message.System("Be polite.")
			r.System = &system
			return next(ctx, r)
		},
	}
	fmt.Println(polite.Name)
	// Output: polite
}

package agent_test

import (
	"context"
	"fmt"

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
	type conversation struct {
		Messages []message.Message `json:"messages"`
	}
	result, err := pregel.Invoke[conversation](context.Background(), chat, conversation{[]message.Message{message.Human("How is it in Rome?")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range result.State.Messages {
		fmt.Printf("%s: %q\n", m.Type, m.Text())
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

// An agent is a node of a graph: they share the messages.
func ExampleAgent_subgraph() {
	model, err := provider.Open(provider.Spec{Name: "scripted:", Script: []byte(`[{"content": "It is sunny."}]`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	chat, err := agent.New(agent.Options{Name: "chat", Model: model})
	if err != nil {
		fmt.Println(err)
		return
	}
	type conversation struct {
		Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
		Turns    int               `json:"turns"`
	}
	g := pregel.NewStateGraph[conversation]()
	g.AddSubgraph("chat", chat)
	g.AddNode("count", func(_ context.Context, s conversation) (any, error) { return conversation{Turns: s.Turns + 1}, nil })
	g.AddSequence(pregel.START, "chat", "count", pregel.END)
	result, err := pregel.Invoke[conversation](context.Background(), g.MustCompile(), conversation{Messages: []message.Message{message.Human("How is it?")}})
	fmt.Println(len(result.State.Messages), result.State.Messages[1].Text(), result.State.Turns, err)
	// Output: 2 It is sunny. 1 <nil>
}

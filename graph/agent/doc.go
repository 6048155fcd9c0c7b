// Package agent is a prebuilt agent: a model calls tools until it has an answer. It is LangChain's create_agent in Go, with the same nodes,
// state, messages and middleware hooks, on langchaingo's models and package pregel, so that clients see no difference.
//
//	model, err := provider.Open(provider.Spec{Name: "openai:gpt-4o"})
//	…
//	search := agent.MustTool("search", "Looks something up.", func(ctx context.Context, args struct {
//		Query string `json:"query" jsonschema:"what to look for"`
//	}) (any, error) {
//		return lookUp(ctx, args.Query)
//	})
//	a, err := agent.New(agent.Options{Name: "chat", Model: model, Tools: []agent.Tool{search}})
//
// Models are opened by package provider, tools of MCP servers come from package mcp. Agents without code are declared in langgraph.json.
package agent

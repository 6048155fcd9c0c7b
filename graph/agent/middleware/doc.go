// Package middleware has ready-made middleware for agents that work for a long time without a person: answers in place of errors of the model, guardrails for tool calls,
// bounds of what tools return, detection of loops, plans, and the date.
//
// It is what DeerFlow's agent is made of, with its names and texts. Each works in any agent: as a key of `middleware` in langgraph.json, or in agent.Options.Middleware.
package middleware

package middleware

import (
	"fmt"

	"understudy/graph/agent"
	"understudy/graph/message"
)

// maxDetail bounds what the model sees of an error, in characters.
const maxDetail = 500

// ToolErrors sends errors of tools to the model, with what to do next. Interrupts pass.
func ToolErrors() agent.Middleware {
	m := agent.ToolErrors(func(err error, c message.ToolCall) string {
		detail := []rune(err.Error())
		if len(detail) > maxDetail {
			detail = append(detail[:maxDetail-3:maxDetail-3], []rune("...")...)
		}
		return fmt.Sprintf("Error: Tool '%s' failed with %s: %s. Continue with available context, or choose an alternative tool.", c.Name, agent.ErrorName(err), string(detail))
	})
	m.Name = "ToolErrorHandlingMiddleware"
	return m
}

package server

import (
	"github.com/gofiber/fiber/v2"

	"understudy/server/deerflow/gateway"
)

// gatewayRoutes serve DeerFlow's Gateway API. They are the last: they answer whatever is left below their prefixes.
func (s *Server) gatewayRoutes() {
	commands := &commandHandlers{s.Transport, s.Completer, s.opts.Threads, s.opts.Runs, s.opts.Assistants}
	gateway.Routes(gateway.Options{
		Transport: s.Transport, Completer: s.Completer, DeerFlow: s.opts.DeerFlow,
		Threads: s.opts.Threads, Runs: s.opts.Runs, Events: s.opts.Events, Tasks: s.opts.Tasks,
		Route: s.routeUnder, Rest: func(prefix string, h fiber.Handler) { s.app.All(prefix+"/*", h) },
		Send: commands.send, Client: func(c *fiber.Ctx) string { return host(s.client(c)) }, Addressed: s.addressed,
	})
}

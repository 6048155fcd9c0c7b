package server

import (
	"cmp"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
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

// gatewayOperations describe the Gateway's routes under /api.
func gatewayOperations() (list []described) {
	for _, r := range gateway.Reference() {
		o := operation{method: strings.ToLower(r.Method), path: strings.Replace(r.Path, "/*", "/{path}", 1), tag: "DeerFlow: " + r.Tag, summary: r.Summary}
		for _, name := range r.Query {
			o.query = append(o.query, name+":string")
		}
		if len(r.Body) > 0 {
			o.body = &compat.Schema{Types: []string{"object"}}
			for _, name := range r.Body {
				o.body.Props = append(o.body.Props, compat.Prop{Name: name, Schema: formField(r.Form)})
			}
		}
		if strings.HasSuffix(r.Path, "/stream") || strings.HasSuffix(r.Path, "/join") {
			o.answer = sse
		}
		list = append(list, described{o, cmp.Or(r.Form, fiber.MIMEApplicationJSON), r.Who})
	}
	return list
}

// formField returns the schema of a field: files of a form with several parts, texts of another one, anything in JSON.
func formField(form string) *compat.Schema {
	switch form {
	case "":
		return &compat.Schema{}
	case fiber.MIMEMultipartForm:
		return &compat.Schema{Types: []string{"array"}, Items: &compat.Schema{Types: []string{"string"}, Format: "binary"}}
	}
	return &compat.Schema{Types: []string{"string"}}
}

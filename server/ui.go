package server

import (
	"net/http"

	"github.com/gofiber/fiber/v2"
)

// uiRoutes answer as LangGraph Server does for graphs without components of their own.
func (s *Server) uiRoutes() {
	s.route("POST", "/ui/{graph}", noUI)
	s.route("GET", "/ui/{graph}", noUI)
	s.route("GET", "/ui/{graph}/{asset}", noUI)
}

func noUI(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, "text/plain; charset=utf-8") // a browser must not take the name for a page
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return c.Status(http.StatusNotFound).SendString("UI not found for graph '" + c.Params("graph") + "'")
}

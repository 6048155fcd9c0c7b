package server

import (
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/finding"
	"understudy/server/internal/web"
)

// doctorHandlers serve what doctor finds on this server.
type doctorHandlers struct{ doctor Doctor }

// A POST, because it starts processes and asks other servers.
func (h *doctorHandlers) routes(route register) {
	route("POST", "/understudy/doctor", h.examine)
}

func (h *doctorHandlers) examine(c *fiber.Ctx) error {
	list, err := h.doctor.Examine(c.UserContext())
	if err != nil {
		return err
	}
	body, err := json.Marshal(struct {
		Findings []finding.Finding `json:"findings"`
	}{list})
	if err != nil {
		return err
	}
	return web.SendJSON(c, body)
}

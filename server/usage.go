package server

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/run/usage"
	"understudy/server/internal/web"
)

// usageHandlers serve what runs used.
type usageHandlers struct{ usage Usage }

func (h *usageHandlers) routes(route register) {
	route("GET", "/understudy/usage", h.report)
}

func (h *usageHandlers) report(c *fiber.Ctx) error {
	q, err := compat.UsageQuery(func(name string) []string { return web.Queries(c, name) })
	if err != nil {
		return err
	}
	report, err := web.WhileConnected(c, func(ctx context.Context) (*usage.Report, error) { return h.usage.Report(ctx, q) })
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendUsed(nil, report))
}

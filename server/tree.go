package server

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/id"
	"understudy/server/internal/web"
	"understudy/thread"
)

// treeOf lists the checkpoints of a thread without their values.
func (h *threadHandlers) treeOf(c *fiber.Ctx, t id.Thread) error {
	before, limit, err := compat.TreeQuery(func(name string) []string { return web.Queries(c, name) })
	if err != nil {
		return err
	}
	steps, err := web.WhileConnected(c, func(ctx context.Context) ([]thread.Step, error) { return h.threads.Tree(ctx, t, before, limit) })
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendList(nil, steps, compat.AppendStep))
}

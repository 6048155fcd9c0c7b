package server

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/internal/cursor"
	"understudy/server/internal/web"
)

// readModelHandlers serve the read models of the log.
type readModelHandlers struct {
	models  ReadModels
	cursors *cursor.Sealer
}

func (h *readModelHandlers) routes(route register) {
	route("GET", "/understudy/threads/{thread_id}/branches", withThread(h.branches))
	route("GET", "/understudy/threads/{thread_id}/messages/{message_id}", withThread(h.message))
	route("GET", "/understudy/timeline", h.recent(readmodel.Timeline, compat.AppendTimeline))
	route("GET", "/understudy/heads", h.recent(readmodel.Heads, compat.AppendHeads))
}

func (h *readModelHandlers) branches(c *fiber.Ctx, t id.Thread) error {
	after, limit, err := compat.BranchesQuery(queriesOf(c, h.cursors))
	if err != nil {
		return err
	}
	l, err := web.WhileConnected(c, func(ctx context.Context) (*readmodel.Lineage, error) { return h.models.Branches(ctx, t, after, limit) })
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendBranches(nil, t, l, h.cursors.Seal(string(l.Next))))
}

func (h *readModelHandlers) message(c *fiber.Ctx, t id.Thread) error {
	message, err := compat.MessageID(web.Param(c, "message_id"))
	if err != nil {
		return err
	}
	m, err := web.WhileConnected(c, func(ctx context.Context) (*readmodel.Message, error) { return h.models.Message(ctx, t, message) })
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendMessagePlace(nil, t, m))
}

func (h *readModelHandlers) recent(model string, answer func([]byte, []readmodel.Row, string) []byte) fiber.Handler {
	return func(c *fiber.Ctx) error {
		before, limit, err := compat.PlaceQuery(queriesOf(c, h.cursors))
		if err != nil {
			return err
		}
		var next readmodel.Place
		page, err := web.WhileConnected(c, func(ctx context.Context) (page []readmodel.Row, err error) {
			page, next, err = h.models.Recent(ctx, model, before, limit)
			return page, err
		})
		if err != nil {
			return err
		}
		return web.SendJSON(c, answer(nil, page, h.cursors.Seal(compat.PlaceText(next))))
	}
}

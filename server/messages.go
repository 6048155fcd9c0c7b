package server

import (
	"context"
	"slices"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/eventstore"
	"understudy/id"
	"understudy/server/internal/web"
)

// eventHandlers serve the transcript and the log of threads, page by page.
type eventHandlers struct {
	*web.Transport
	events Events
	runs   bool // there are routes for those of a run
}

func (h *eventHandlers) routes(route register) {
	if h.events == nil {
		return
	}
	route("GET", "/threads/{thread_id}/messages", withThread(h.messagesOf))
	route("GET", "/threads/{thread_id}/events", withThread(h.eventsOf))
	if !h.runs {
		return
	}
	route("GET", "/threads/{thread_id}/runs/{run_id}/messages", withThread(h.messagesOf))
	route("GET", "/threads/{thread_id}/runs/{run_id}/events", withThread(h.eventsOf))
}

func (h *eventHandlers) messagesOf(c *fiber.Ctx, t id.Thread) error {
	return h.sendRows(c, t, false, h.events.Messages)
}

func (h *eventHandlers) eventsOf(c *fiber.Ctx, t id.Thread) error {
	return h.sendRows(c, t, true, h.events.Events)
}

func (h *eventHandlers) sendRows(c *fiber.Ctx, t id.Thread, types bool, read func(context.Context, eventstore.PageQuery) (*eventstore.Page, error)) error {
	var r id.Run
	if named := web.Param(c, "run_id"); named != "" {
		var err error
		if r, err = compat.RunID(named); err != nil {
			return err
		}
	}
	q, err := compat.RowQuery(func(name string) []string { return web.Queries(c, name) }, types)
	if err != nil {
		return err
	}
	q.Thread, q.Run = t, r
	q.Bytes = web.WholeBytes
	page, err := web.WhileConnected(c, func(ctx context.Context) (*eventstore.Page, error) { return read(ctx, q) })
	if err != nil {
		return err
	}
	before, after := compat.AroundRows(page)
	return h.SendList(c, &web.List{
		Before: before, After: after,
		Next: func(ctx context.Context, dst []byte) ([]byte, error) {
			row, err := page.Next(ctx, web.PieceBytes)
			if err != nil {
				return dst, err
			}
			return compat.AppendEvent(slices.Grow(dst, len(row.Content)+1024), row), nil
		},
	})
}

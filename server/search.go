package server

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/cursor"
	"understudy/server/internal/web"
	"understudy/thread/search"
)

// searchHandlers serve the search for messages.
type searchHandlers struct {
	*web.Transport
	search  Search
	cursors *cursor.Sealer
}

func (h *searchHandlers) routes(route register) {
	route("GET", "/understudy/threads/search", h.find)
}

func (h *searchHandlers) find(c *fiber.Ctx) error {
	q, limit, err := compat.SearchQuery(queriesOf(c, h.cursors))
	if err != nil {
		return err
	}
	var next search.Place
	page, err := web.WhileConnected(c, func(ctx context.Context) (page []search.Result, err error) {
		page, next, err = h.search.Search(ctx, q, limit)
		return page, err
	})
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendResults(nil, page, h.cursors.Seal(compat.ResultPlace(next, q.Thread))))
}

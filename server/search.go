package server

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/thread/search"
)

// searchHandlers serve the search for messages.
type searchHandlers struct {
	*transport
	search Search
}

func (h *searchHandlers) routes(route register) {
	route("GET", "/understudy/threads/search", h.find)
}

func (h *searchHandlers) find(c *fiber.Ctx) error {
	q, limit, err := compat.SearchQuery(func(name string) []string { return queries(c, name) })
	if err != nil {
		return err
	}
	var next search.Place
	page, err := reading(c, func(ctx context.Context) (page []search.Result, err error) {
		page, next, err = h.search.Search(ctx, q, limit)
		return page, err
	})
	if err != nil {
		return err
	}
	return sendJSON(c, compat.AppendResults(nil, page, next, q.Thread))
}

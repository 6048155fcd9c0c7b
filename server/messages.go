package server

import (
	"context"
	"slices"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/eventstore"
	"understudy/id"
)

// eventRoutes registers the routes for a thread's transcript and log, which answer page by page.
func (s *Server) eventRoutes() {
	if s.opts.Events == nil {
		return
	}
	s.route("GET", "/threads/{thread_id}/messages", withThread(s.messagesOf))
	s.route("GET", "/threads/{thread_id}/events", withThread(s.eventsOf))
	if s.opts.Disable.Runs {
		return
	}
	s.route("GET", "/threads/{thread_id}/runs/{run_id}/messages", withThread(s.messagesOf))
	s.route("GET", "/threads/{thread_id}/runs/{run_id}/events", withThread(s.eventsOf))
}

func (s *Server) messagesOf(c *fiber.Ctx, t id.Thread) error {
	return s.sendRows(c, t, false, s.opts.Events.Messages)
}

func (s *Server) eventsOf(c *fiber.Ctx, t id.Thread) error {
	return s.sendRows(c, t, true, s.opts.Events.Events)
}

func (s *Server) sendRows(c *fiber.Ctx, t id.Thread, types bool, read func(context.Context, eventstore.PageQuery) (*eventstore.Page, error)) error {
	var r id.Run
	if named := param(c, "run_id"); named != "" {
		var err error
		if r, err = compat.RunID(named); err != nil {
			return err
		}
	}
	q, err := compat.RowQuery(func(name string) []string { return queries(c, name) }, types)
	if err != nil {
		return err
	}
	q.Thread, q.Run = t, r
	q.Bytes = wholeBytes
	page, err := reading(c, func(ctx context.Context) (*eventstore.Page, error) { return read(ctx, q) })
	if err != nil {
		return err
	}
	before, after := compat.AroundRows(page)
	return s.sendList(c, &list{
		before: before, after: after,
		next: func(ctx context.Context, dst []byte) ([]byte, error) {
			row, err := page.Next(ctx, pieceBytes)
			if err != nil {
				return dst, err
			}
			return compat.AppendEvent(slices.Grow(dst, len(row.Content)+1024), row), nil
		},
	})
}

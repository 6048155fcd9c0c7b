package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/gofiber/fiber/v2"

	"understudy/checkpointer"
	"understudy/compat"
	"understudy/graph"
	"understudy/id"
	"understudy/thread"
)

func (s *Server) stateRoutes() {
	s.route("GET", "/threads/{thread_id}/state", withThread(func(c *fiber.Ctx, t id.Thread) error {
		return s.sendState(c, checkpointer.Key{Thread: t}, compat.True(c.Query("subgraphs")), false)
	}))
	s.route("POST", "/threads/{thread_id}/state", withThread(s.updateState))
	s.route("POST", "/threads/{thread_id}/state/checkpoint", withThread(s.stateAt))
	s.route("GET", "/threads/{thread_id}/state/{checkpoint_id}", withThread(func(c *fiber.Ctx, t id.Thread) error {
		at := checkpointer.Key{Thread: t, ID: id.Checkpoint(param(c, "checkpoint_id"))}
		return s.sendState(c, at, compat.True(c.Query("subgraphs")), true)
	}))
	s.route("GET", "/threads/{thread_id}/history", withThread(s.getHistory))
	s.route("POST", "/threads/{thread_id}/history", withThread(s.searchHistory))
}

func (s *Server) sendState(c *fiber.Ctx, at checkpointer.Key, subgraphs, noNS bool) error {
	snap, err := s.opts.Threads.State(c.UserContext(), at, subgraphs)
	if err != nil {
		return err
	}
	return sendJSON(c, compat.AppendState(nil, snap, compat.StateParts{Asked: at, NoNS: noNS}))
}

func (s *Server) stateAt(c *fiber.Ctx, t id.Thread) error {
	return s.withBody(c, func(body []byte) error {
		at, subgraphs, noNS, err := compat.StateAt(t, body)
		if err != nil {
			return err
		}
		return s.sendState(c, at, subgraphs, noNS)
	})
}

func (s *Server) updateState(c *fiber.Ctx, t id.Thread) error {
	return s.withBody(c, func(body []byte) error {
		at, updates, err := compat.UpdateState(t, body)
		if err != nil {
			return err
		}
		k, err := s.opts.Threads.UpdateState(c.UserContext(), at, [][]graph.StateUpdate{updates})
		if err != nil {
			return err
		}
		return sendJSON(c, compat.AppendUpdated(nil, k))
	})
}

func (s *Server) getHistory(c *fiber.Ctx, t id.Thread) error {
	q, err := compat.HistoryFrom(t, given(c, "limit"), c.Query("before"))
	if err != nil {
		return err
	}
	return s.sendHistory(c, q)
}

func (s *Server) searchHistory(c *fiber.Ctx, t id.Thread) error {
	return s.withBody(c, func(body []byte) error {
		q, err := compat.History(t, body)
		if err != nil {
			return err
		}
		return s.sendHistory(c, q)
	})
}

func (s *Server) sendHistory(c *fiber.Ctx, q thread.HistoryQuery) error {
	if q.Limit == 0 { // services take 0 as no limit
		return sendJSON(c, []byte("[]"))
	}
	q.Metadata = slices.Clone(q.Metadata) // it is read after the body was released
	room := &reads{budget: &s.reads}
	q.Room = room
	h, err := reading(c, func(ctx context.Context) (thread.Entries, error) { return s.opts.Threads.ReadHistory(ctx, q) })
	if err != nil {
		return err
	}
	return s.sendList(c, &list{
		next: func(ctx context.Context, dst []byte) ([]byte, error) {
			snap, err := h.Next(ctx)
			if err != nil {
				return dst, err
			}
			dst = slices.Grow(dst, len(snap.Values)+len(snap.Metadata)+2048)
			return compat.AppendState(dst, snap, compat.StateParts{}), nil
		},
		head: func(ctx context.Context) (bool, error) {
			entries, partial, known, err := h.Partial(ctx)
			if err != nil {
				return false, fmt.Errorf("values of thread %s: %w", q.Thread, err)
			}
			if partial {
				c.Set(compat.OverlayHeader, compat.PartialOverlay(entries))
			}
			return known, nil
		},
		close: h.Close, room: true, reads: room, loads: func() bool { return h.Loaded() == 0 },
	})
}

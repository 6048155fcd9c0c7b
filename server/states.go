package server

import (
	"github.com/gofiber/fiber/v2"

	"understudy/checkpointer"
	"understudy/compat"
	"understudy/graph"
	"understudy/id"
)

func (s *Server) stateRoutes() {
	s.route("GET", "/threads/{thread_id}/state", s.withThread(func(c *fiber.Ctx, t id.Thread) error {
		return s.sendState(c, checkpointer.Key{Thread: t}, compat.True(c.Query("subgraphs")), false)
	}))
	s.route("POST", "/threads/{thread_id}/state", s.withThread(s.updateState))
	s.route("POST", "/threads/{thread_id}/state/checkpoint", s.withThread(s.stateAt))
	s.route("GET", "/threads/{thread_id}/state/{checkpoint_id}", s.withThread(func(c *fiber.Ctx, t id.Thread) error {
		at := checkpointer.Key{Thread: t, ID: id.Checkpoint(param(c, "checkpoint_id"))}
		return s.sendState(c, at, compat.True(c.Query("subgraphs")), true)
	}))
	s.route("GET", "/threads/{thread_id}/history", s.withThread(s.getHistory))
	s.route("POST", "/threads/{thread_id}/history", s.withThread(s.searchHistory))
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

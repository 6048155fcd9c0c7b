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
	"understudy/server/internal/web"
	"understudy/thread"
)

func (h *threadHandlers) stateRoutes(route register) {
	route("GET", "/threads/{thread_id}/state", withThread(func(c *fiber.Ctx, t id.Thread) error {
		return h.sendState(c, checkpointer.Key{Thread: t}, compat.True(c.Query("subgraphs")), false)
	}))
	route("POST", "/threads/{thread_id}/state", withThread(h.updateState))
	route("POST", "/threads/{thread_id}/state/checkpoint", withThread(h.stateAt))
	route("GET", "/threads/{thread_id}/state/{checkpoint_id}", withThread(func(c *fiber.Ctx, t id.Thread) error {
		at := checkpointer.Key{Thread: t, ID: id.Checkpoint(web.Param(c, "checkpoint_id"))}
		return h.sendState(c, at, compat.True(c.Query("subgraphs")), true)
	}))
	route("GET", "/threads/{thread_id}/history", withThread(h.getHistory))
	route("POST", "/threads/{thread_id}/history", withThread(h.searchHistory))
}

func (h *threadHandlers) sendState(c *fiber.Ctx, at checkpointer.Key, subgraphs, noNS bool) error {
	snap, err := h.threads.State(c.UserContext(), at, subgraphs)
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendState(nil, snap, compat.StateParts{Asked: at, NoNS: noNS}))
}

func (h *threadHandlers) stateAt(c *fiber.Ctx, t id.Thread) error {
	return h.WithBody(c, func(body []byte) error {
		at, subgraphs, noNS, err := compat.StateAt(t, body)
		if err != nil {
			return err
		}
		return h.sendState(c, at, subgraphs, noNS)
	})
}

func (h *threadHandlers) updateState(c *fiber.Ctx, t id.Thread) error {
	return h.WithBody(c, func(body []byte) error {
		at, updates, err := compat.UpdateState(t, body)
		if err != nil {
			return err
		}
		k, err := h.threads.UpdateState(c.UserContext(), at, [][]graph.StateUpdate{updates})
		if err != nil {
			return err
		}
		return web.SendJSON(c, compat.AppendUpdated(nil, k))
	})
}

func (h *threadHandlers) getHistory(c *fiber.Ctx, t id.Thread) error {
	q, err := compat.HistoryFrom(t, web.Given(c, "limit"), c.Query("before"))
	if err != nil {
		return err
	}
	return h.sendHistory(c, q)
}

func (h *threadHandlers) searchHistory(c *fiber.Ctx, t id.Thread) error {
	return h.WithBody(c, func(body []byte) error {
		q, err := compat.History(t, body)
		if err != nil {
			return err
		}
		return h.sendHistory(c, q)
	})
}

func (h *threadHandlers) sendHistory(c *fiber.Ctx, q thread.HistoryQuery) error {
	if q.Limit == 0 { // services take 0 as no limit
		return web.SendJSON(c, []byte("[]"))
	}
	q.Metadata = slices.Clone(q.Metadata) // it is read after the body was released
	memory := &web.AnswerMemory{Budget: &h.Reads}
	q.Memory = memory
	entries, err := web.WhileConnected(c, func(ctx context.Context) (thread.Entries, error) { return h.threads.ReadHistory(ctx, q) })
	if err != nil {
		return err
	}
	return h.SendList(c, &web.List{
		Next: func(ctx context.Context, dst []byte) ([]byte, error) {
			snap, err := entries.Next(ctx)
			if err != nil {
				return dst, err
			}
			dst = slices.Grow(dst, len(snap.Values)+len(snap.Metadata)+2048)
			return compat.AppendState(dst, snap, compat.StateParts{}), nil
		},
		Head: func(ctx context.Context) (bool, error) {
			whole, partial, known, err := entries.Partial(ctx)
			if err != nil {
				return false, fmt.Errorf("values of thread %s: %w", q.Thread, err)
			}
			if partial {
				c.Set(compat.OverlayHeader, compat.PartialOverlay(whole))
			}
			return known, nil
		},
		Close: entries.Close, SourceReserves: true, Memory: memory, Loads: func() bool { return entries.Loaded() == 0 },
	})
}

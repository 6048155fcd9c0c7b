package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/server/internal/web"
	"understudy/thread"
)

// threadHandlers serve threads and their states.
type threadHandlers struct {
	*web.Transport
	threads Threads
	runs    Runs // nil: runs cannot be followed
	guarded bool // threads that a caller may not see are answered as absent
}

func (h *threadHandlers) routes(route register) {
	route("POST", "/threads", h.createThread)
	route("POST", "/threads/search", h.searchThreads)
	route("POST", "/threads/count", h.countThreads)
	route("POST", "/threads/prune", h.pruneThreads)
	route("GET", "/threads/{thread_id}", withThread(h.getThread))
	route("PATCH", "/threads/{thread_id}", withThread(h.patchThread))
	route("DELETE", "/threads/{thread_id}", withThread(func(c *fiber.Ctx, t id.Thread) error {
		if err := h.threads.Delete(c.UserContext(), t); err != nil {
			return err
		}
		return web.SendNothing(c)
	}))
	route("POST", "/threads/{thread_id}/copy", h.copyThread)
	route("GET", "/threads/{thread_id}/storage", withThread(h.threadStorage))
	route("GET", "/understudy/threads/{thread_id}/tree", withThread(h.treeOf))
	if h.runs != nil {
		route("GET", "/threads/{thread_id}/stream", withThread(h.followThread))
	}
	h.stateRoutes(route)
}

func withThread(h func(*fiber.Ctx, id.Thread) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		t, err := compat.ThreadID(web.Param(c, "thread_id"))
		if err != nil {
			return err
		}
		return h(c, t)
	}
}

// oneThread returns a function that answers with a thread.
func oneThread(c *fiber.Ctx, parts compat.ThreadParts) func(*thread.View, error) error {
	return func(v *thread.View, err error) error {
		if err != nil {
			return err
		}
		return web.SendJSON(c, compat.AppendThread(nil, v, nil, parts))
	}
}

func (h *threadHandlers) createThread(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		n, err := compat.NewThread(body)
		if err != nil {
			return err
		}
		if n.Key, err = idempotencyKey(c, "thread", "", body); err != nil {
			return err
		}
		v, err := h.threads.Create(c.UserContext(), n)
		if made := (*thread.NotUpdated)(nil); errors.As(err, &made) {
			_, text, _ := web.Explain(made.Err)
			return web.SendJSON(c.Status(http.StatusCreated), compat.AppendDetail(nil,
				"Thread "+string(made.Thread)+" was created, but there were problems updating the state: "+text))
		}
		repeated(c, n.Key)
		return oneThread(c, compat.ThreadParts{})(v, err)
	})
}

func (h *threadHandlers) getThread(c *fiber.Ctx, t id.Thread) error {
	ttl := false
	for _, v := range web.Queries(c, "include") {
		ttl = ttl || slices.Contains(strings.Split(v, ","), "ttl")
	}
	return oneThread(c, compat.ThreadParts{TTL: ttl})(h.threads.Get(c.UserContext(), t))
}

func (h *threadHandlers) threadStorage(c *fiber.Ctx, t id.Thread) error {
	u, err := web.WhileConnected(c, func(ctx context.Context) (thread.Usage, error) { return h.threads.Usage(ctx, t) })
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendUsage(nil, t, u))
}

func (h *threadHandlers) patchThread(c *fiber.Ctx, t id.Thread) error {
	return h.WithBody(c, func(body []byte) error {
		p, err := compat.PatchThread(body)
		if err != nil {
			return err
		}
		v, err := h.threads.Patch(c.UserContext(), t, p)
		if err == nil && strings.Contains(c.Get("Prefer"), "return=minimal") {
			return web.SendNothing(c)
		}
		return oneThread(c, compat.ThreadParts{})(v, err)
	})
}

// copyThread answers 409 when there is no such thread, as LangGraph Server does.
func (h *threadHandlers) copyThread(c *fiber.Ctx) error {
	t, err := compat.PlainThreadID(web.Param(c, "thread_id"))
	if err != nil {
		return err
	}
	v, err := h.threads.Copy(c.UserContext(), t)
	if fault.Is(err, fault.NotFound) {
		err = fault.New(fault.Conflict, "Conflict")
	}
	return oneThread(c, compat.ThreadParts{NoValues: true})(v, err)
}

func (h *threadHandlers) searchThreads(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		q, cols, err := compat.SearchThreads(body)
		if err != nil {
			return err
		}
		more := false
		q.Bytes = web.WholeBytes
		page, err := web.WhileConnected(c, func(ctx context.Context) (page []*thread.View, err error) {
			page, more, err = h.threads.Search(ctx, q)
			return page, err
		})
		if err != nil {
			return err
		}
		paginate(c, q.Limit, q.Offset, len(page), more)
		return h.SendList(c, web.Each(page, func(ctx context.Context, dst []byte, v *thread.View) ([]byte, error) {
			if err := h.threads.Show(ctx, q, v); err != nil {
				return nil, web.PassOver(err)
			}
			dst = slices.Grow(dst, len(v.Values)+len(v.Metadata)+1024)
			return compat.AppendThread(dst, v, cols, compat.ThreadParts{}), nil
		}))
	})
}

func (h *threadHandlers) countThreads(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		q, err := compat.CountThreads(body)
		if err != nil {
			return err
		}
		return sendCount(c)(web.WhileConnected(c, func(ctx context.Context) (int, error) { return h.threads.Count(ctx, q) }))
	})
}

func (h *threadHandlers) pruneThreads(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		ids, strategy, where, err := compat.PruneThreads(body)
		if err != nil {
			return err
		}
		pruned, err := h.threads.Prune(c.UserContext(), ids, strategy, where)
		if err != nil {
			return err
		}
		return web.SendJSON(c, compat.AppendPruned(nil, pruned, where))
	})
}

// followThread streams the events of a thread, run after run, until the client leaves. Every event has its id.
func (h *threadHandlers) followThread(c *fiber.Ctx, t id.Thread) error {
	modes, err := compat.ThreadModes(web.Queries(c, "stream_modes"))
	if err != nil {
		return err
	}
	after, err := compat.ThreadOffset(c.Get("Last-Event-Id"))
	if err != nil {
		return err
	}
	if err := h.Slot(); err != nil {
		return err
	}
	f, err := h.runs.StreamThread(c.UserContext(), t, after, modes)
	if h.guarded {
		f, err = orAbsent(f, err)
	}
	if err != nil {
		h.Slots.Give(1)
		return err
	}
	return h.WatchEvents(c, f, func(*bridge.Record) bool { return true })
}

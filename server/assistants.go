package server

import (
	"encoding/json"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"understudy/assistant"
	"understudy/compat"
	"understudy/id"
	"understudy/server/internal/web"
)

// assistantHandlers serve assistants.
type assistantHandlers struct {
	*web.Transport
	assistants Assistants
	changed    func() // is called after each change
}

func (h *assistantHandlers) routes(route register) {
	route("POST", "/assistants", h.changing(h.createAssistant))
	route("POST", "/assistants/search", h.searchAssistants)
	route("POST", "/assistants/count", h.countAssistants)
	route("GET", "/assistants/{assistant_id}", withAssistant(func(c *fiber.Ctx, a id.Assistant) error {
		return oneAssistant(c)(h.assistants.Get(c.UserContext(), a))
	}))
	route("PATCH", "/assistants/{assistant_id}", h.changing(withAssistant(h.patchAssistant)))
	route("DELETE", "/assistants/{assistant_id}", h.changing(withAssistant(func(c *fiber.Ctx, a id.Assistant) error {
		if err := h.assistants.Delete(c.UserContext(), a, compat.True(c.Query("delete_threads"))); err != nil {
			return err
		}
		return web.SendNothing(c)
	})))
	route("GET", "/assistants/{assistant_id}/graph", h.drawing)
	route("GET", "/assistants/{assistant_id}/schemas", withAssistant(func(c *fiber.Ctx, a id.Assistant) error {
		return sendRaw(c)(h.assistants.Schemas(c.UserContext(), a))
	}))
	route("GET", "/understudy/graphs", func(c *fiber.Ctx) error {
		return web.SendJSON(c, compat.AppendGraphs(nil, h.assistants.Graphs()))
	})
	route("GET", "/understudy/assistants/{assistant_id}/nodes", withAssistant(func(c *fiber.Ctx, a id.Assistant) error {
		return sendRaw(c)(h.assistants.Nodes(c.UserContext(), a))
	}))
	route("GET", "/assistants/{assistant_id}/subgraphs", withAssistant(h.subgraphs))
	route("GET", "/assistants/{assistant_id}/subgraphs/{namespace}", withAssistant(h.subgraphs))
	route("POST", "/assistants/{assistant_id}/versions", withAssistant(h.versions))
	route("POST", "/assistants/{assistant_id}/latest", h.changing(withAssistant(h.setLatest)))
}

// changing notifies MCP clients after a handler has changed an assistant.
func (h *assistantHandlers) changing(handle fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := handle(c)
		if err == nil {
			h.changed()
		}
		return err
	}
}

func withAssistant(h func(*fiber.Ctx, id.Assistant) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		a, err := compat.AssistantID(web.Param(c, "assistant_id"))
		if err != nil {
			return err
		}
		return h(c, a)
	}
}

// oneAssistant returns a function that answers with an assistant. Its parameters are the results of a service.
func oneAssistant(c *fiber.Ctx) func(*assistant.Assistant, error) error {
	return func(a *assistant.Assistant, err error) error {
		if err != nil {
			return err
		}
		return web.SendJSON(c, compat.AppendAssistant(nil, a, nil))
	}
}

// sendRaw returns a function that answers with JSON from a service.
func sendRaw(c *fiber.Ctx) func(json.RawMessage, error) error {
	return func(v json.RawMessage, err error) error {
		if err != nil {
			return err
		}
		return web.SendJSON(c, v)
	}
}

func (h *assistantHandlers) createAssistant(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		n, err := compat.NewAssistant(body)
		if err != nil {
			return err
		}
		return oneAssistant(c)(h.assistants.Create(c.UserContext(), n))
	})
}

func (h *assistantHandlers) patchAssistant(c *fiber.Ctx, a id.Assistant) error {
	return h.WithBody(c, func(body []byte) error {
		p, err := compat.PatchAssistant(body)
		if err != nil {
			return err
		}
		return oneAssistant(c)(h.assistants.Update(c.UserContext(), a, p))
	})
}

func (h *assistantHandlers) searchAssistants(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		q, cols, err := compat.SearchAssistants(body)
		if err != nil {
			return err
		}
		page, more, err := h.assistants.Search(c.UserContext(), q)
		if err != nil {
			return err
		}
		paginate(c, q.Limit, q.Offset, len(page), more)
		return web.SendJSON(c, compat.AppendList(nil, page, func(dst []byte, a *assistant.Assistant) []byte {
			return compat.AppendAssistant(dst, a, cols)
		}))
	})
}

// paginate sets the headers of searches. The total is not exact: it is at least one more than the rows seen so far.
func paginate(c *fiber.Ctx, limit, offset, rows int, more bool) {
	total := offset + rows
	if more {
		total = offset + limit + 1
		c.Set("X-Pagination-Next", strconv.Itoa(offset+limit))
	}
	c.Set("X-Pagination-Total", strconv.Itoa(total))
}

func (h *assistantHandlers) countAssistants(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		q, err := compat.CountAssistants(body)
		if err != nil {
			return err
		}
		return sendCount(c)(h.assistants.Count(c.UserContext(), q))
	})
}

// sendCount returns a function that answers with a number.
func sendCount(c *fiber.Ctx) func(int, error) error {
	return func(n int, err error) error {
		if err != nil {
			return err
		}
		return web.SendJSON(c, strconv.AppendInt(nil, int64(n), 10))
	}
}

func (h *assistantHandlers) drawing(c *fiber.Ctx) error {
	xray, err := compat.XRay(c.Query("xray"))
	if err != nil {
		return err
	}
	return sendRaw(c)(h.assistants.Drawing(c.UserContext(), web.Param(c, "assistant_id"), xray))
}

func (h *assistantHandlers) subgraphs(c *fiber.Ctx, a id.Assistant) error {
	return sendRaw(c)(h.assistants.Subgraphs(c.UserContext(), a, web.Param(c, "namespace"), compat.True(c.Query("recurse"))))
}

func (h *assistantHandlers) versions(c *fiber.Ctx, a id.Assistant) error {
	return h.WithBody(c, func(body []byte) error {
		metadata, p, err := compat.SearchVersions(body)
		if err != nil {
			return err
		}
		list, err := h.assistants.Versions(c.UserContext(), a, metadata, p.Limit, p.Offset)
		if err != nil {
			return err
		}
		return web.SendJSON(c, compat.AppendList(nil, list, compat.AppendVersion))
	})
}

func (h *assistantHandlers) setLatest(c *fiber.Ctx, a id.Assistant) error {
	return h.WithBody(c, func(body []byte) error {
		version, err := compat.LatestVersion(body)
		if err != nil {
			return err
		}
		return oneAssistant(c)(h.assistants.SetLatest(c.UserContext(), a, version))
	})
}

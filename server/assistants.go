package server

import (
	"encoding/json"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"understudy/assistant"
	"understudy/compat"
	"understudy/id"
)

func (s *Server) assistantRoutes() {
	s.route("POST", "/assistants", s.changing(s.createAssistant))
	s.route("POST", "/assistants/search", s.searchAssistants)
	s.route("POST", "/assistants/count", s.countAssistants)
	s.route("GET", "/assistants/{assistant_id}", withAssistant(func(c *fiber.Ctx, a id.Assistant) error {
		return oneAssistant(c)(s.opts.Assistants.Get(c.UserContext(), a))
	}))
	s.route("PATCH", "/assistants/{assistant_id}", s.changing(withAssistant(s.patchAssistant)))
	s.route("DELETE", "/assistants/{assistant_id}", s.changing(withAssistant(func(c *fiber.Ctx, a id.Assistant) error {
		if err := s.opts.Assistants.Delete(c.UserContext(), a, compat.True(c.Query("delete_threads"))); err != nil {
			return err
		}
		return sendNothing(c)
	})))
	s.route("GET", "/assistants/{assistant_id}/graph", s.drawing)
	s.route("GET", "/assistants/{assistant_id}/schemas", withAssistant(func(c *fiber.Ctx, a id.Assistant) error {
		return sendRaw(c)(s.opts.Assistants.Schemas(c.UserContext(), a))
	}))
	s.route("GET", "/assistants/{assistant_id}/subgraphs", withAssistant(s.subgraphs))
	s.route("GET", "/assistants/{assistant_id}/subgraphs/{namespace}", withAssistant(s.subgraphs))
	s.route("POST", "/assistants/{assistant_id}/versions", withAssistant(s.versions))
	s.route("POST", "/assistants/{assistant_id}/latest", s.changing(withAssistant(s.setLatest)))
}

// changing notifies MCP clients after h has changed an assistant.
func (s *Server) changing(h fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := h(c)
		if err == nil {
			s.tools.change()
		}
		return err
	}
}

func withAssistant(h func(*fiber.Ctx, id.Assistant) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		a, err := compat.AssistantID(param(c, "assistant_id"))
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
		return sendJSON(c, compat.AppendAssistant(nil, a, nil))
	}
}

// sendRaw returns a function that answers with JSON from a service.
func sendRaw(c *fiber.Ctx) func(json.RawMessage, error) error {
	return func(v json.RawMessage, err error) error {
		if err != nil {
			return err
		}
		return sendJSON(c, v)
	}
}

func (s *Server) createAssistant(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		n, err := compat.NewAssistant(body)
		if err != nil {
			return err
		}
		return oneAssistant(c)(s.opts.Assistants.Create(c.UserContext(), n))
	})
}

func (s *Server) patchAssistant(c *fiber.Ctx, a id.Assistant) error {
	return s.withBody(c, func(body []byte) error {
		p, err := compat.PatchAssistant(body)
		if err != nil {
			return err
		}
		return oneAssistant(c)(s.opts.Assistants.Update(c.UserContext(), a, p))
	})
}

func (s *Server) searchAssistants(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		q, cols, err := compat.SearchAssistants(body)
		if err != nil {
			return err
		}
		page, more, err := s.opts.Assistants.Search(c.UserContext(), q)
		if err != nil {
			return err
		}
		paginate(c, q.Limit, q.Offset, len(page), more)
		return sendJSON(c, compat.AppendList(nil, page, func(dst []byte, a *assistant.Assistant) []byte {
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

func (s *Server) countAssistants(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		q, err := compat.CountAssistants(body)
		if err != nil {
			return err
		}
		return sendCount(c)(s.opts.Assistants.Count(c.UserContext(), q))
	})
}

// sendCount returns a function that answers with a number.
func sendCount(c *fiber.Ctx) func(int, error) error {
	return func(n int, err error) error {
		if err != nil {
			return err
		}
		return sendJSON(c, strconv.AppendInt(nil, int64(n), 10))
	}
}

func (s *Server) drawing(c *fiber.Ctx) error {
	xray, err := compat.XRay(c.Query("xray"))
	if err != nil {
		return err
	}
	return sendRaw(c)(s.opts.Assistants.Drawing(c.UserContext(), param(c, "assistant_id"), xray))
}

func (s *Server) subgraphs(c *fiber.Ctx, a id.Assistant) error {
	return sendRaw(c)(s.opts.Assistants.Subgraphs(c.UserContext(), a, param(c, "namespace"), compat.True(c.Query("recurse"))))
}

func (s *Server) versions(c *fiber.Ctx, a id.Assistant) error {
	return s.withBody(c, func(body []byte) error {
		metadata, p, err := compat.SearchVersions(body)
		if err != nil {
			return err
		}
		list, err := s.opts.Assistants.Versions(c.UserContext(), a, metadata, p.Limit, p.Offset)
		if err != nil {
			return err
		}
		return sendJSON(c, compat.AppendList(nil, list, compat.AppendVersion))
	})
}

func (s *Server) setLatest(c *fiber.Ctx, a id.Assistant) error {
	return s.withBody(c, func(body []byte) error {
		version, err := compat.LatestVersion(body)
		if err != nil {
			return err
		}
		return oneAssistant(c)(s.opts.Assistants.SetLatest(c.UserContext(), a, version))
	})
}

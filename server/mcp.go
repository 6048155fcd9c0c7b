package server

import (
	"context"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/assistant"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/server/internal/web"
	"understudy/server/mcp"
)

// mcpHandlers serve the Model Context Protocol: an assistant is a tool. Without a session GET, for a stream of the server's own messages, and DELETE, which ends
// a session, are refused as by LangGraph Server, which has none.
type mcpHandlers struct {
	*web.Transport
	*web.Completer
	assistants Assistants
	runs       Runs
	threads    Threads
	tools      *toolWatch
	version    string                              // of the API
	fail       func(c *fiber.Ctx, err error) error // answers with an error
	claimed    func(method, path string) bool      // it is the application's
}

func (h *mcpHandlers) routes(route register) {
	route("POST", "/mcp", h.mcp)
	route("GET", "/mcp", h.mcpEvents)
	route("DELETE", "/mcp", func(c *fiber.Ctx) error {
		if _, ok := mcp.ParseSession(c.Get(mcp.SessionHeader)); ok {
			return web.SendNothing(c) // there is nothing to forget; calls end with their connections
		}
		return c.Status(fiber.StatusNotFound).Send(nil)
	})
	for _, method := range []string{"POST", "GET", "DELETE"} {
		route(method, "/mcp/", func(c *fiber.Ctx) error {
			path := strings.TrimSuffix(c.Path(), "/")
			if h.claimed(c.Method(), path) {
				return h.fail(c, fault.New(fault.NotFound, "Not Found"))
			}
			return c.Redirect(path, fiber.StatusTemporaryRedirect)
		})
	}
}

func (h *mcpHandlers) mcp(c *fiber.Ctx) error {
	refuse := func(text string) error {
		return web.SendJSON(c.Status(fiber.StatusBadRequest), append(jsonobj.AppendText([]byte(`{"error":`), text), '}'))
	}
	if !mcp.Accepts(c.Get(fiber.HeaderAccept)) {
		return refuse("Accept header must include application/json or text/event-stream")
	}
	return h.WithBody(c, func(body []byte) error {
		m, err := mcp.Read(body)
		if err != nil {
			return refuse(err.Error())
		}
		session, _ := mcp.ParseSession(c.Get(mcp.SessionHeader))
		if m.ID == nil {
			if err := h.mcpNotified(c, m, session); err != nil {
				return err
			}
			return c.Status(fiber.StatusAccepted).Send(nil)
		}
		switch m.Method {
		case "initialize":
			c.Set(mcp.SessionHeader, mcp.NewSession(m).ID)
			if names := c.GetRespHeader(fiber.HeaderAccessControlExposeHeaders); names != "" {
				c.Set(fiber.HeaderAccessControlExposeHeaders, names+", "+strings.ToLower(mcp.SessionHeader))
			}
			return web.SendJSON(c, m.Result(m.Initialize(h.version)))
		case "ping":
			return web.SendJSON(c, m.Result([]byte("{}")))
		case "tools/list":
			err = h.listTools(c, m)
		case "tools/call":
			err = h.callTool(c, m, session)
		default:
			return web.SendJSON(c, m.Fail(mcp.MethodNotFound, "Method not found: "+m.Method))
		}
		if err != nil && h.fail(c, err) == nil { // with the status of the error, and a body that clients show
			_, text, _ := web.Explain(err)
			return web.SendJSON(c, m.Fail(mcp.InternalError, text))
		}
		return err
	})
}

// toolPage is how many assistants one list of tools has: each asks its graph for its schemas.
const toolPage = 100

// listTools answers with a page of tools. The cursor is the number of assistants before it.
func (h *mcpHandlers) listTools(c *fiber.Ctx, m mcp.Message) error {
	offset, err := strconv.Atoi(m.Params.Get("cursor").String())
	if err != nil || offset < 0 {
		offset = 0
	}
	seen := map[string]bool{} // of equal names the first is listed
	page, more, err := h.assistants.Search(c.UserContext(), assistant.Query{Limit: toolPage, Offset: offset})
	if err != nil {
		return err
	}
	b := []byte(`{"tools":[`)
	none := len(b)
	for _, a := range page {
		name := mcp.Name(a)
		if seen[name] {
			continue
		}
		seen[name] = true
		schemas, err := h.assistants.Schemas(c.UserContext(), a.ID)
		if fault.Is(err, fault.Unavailable) || c.UserContext().Err() != nil {
			return err
		}
		if err != nil {
			h.Log.WarnContext(c.UserContext(), "an assistant is no MCP tool: its graph has no schemas", "assistant_id", a.ID, "graph", a.GraphID, "error", err)
			continue
		}
		was := len(b)
		if was > none {
			b = append(b, ',')
		}
		tool, ok := mcp.AppendTool(b, a, schemas)
		if b = tool; !ok {
			b = b[:was]
		}
	}
	b = append(b, ']')
	if more {
		b = append(append(b, `,"nextCursor":"`...), strconv.Itoa(offset+len(page))...)
		b = append(b, '"')
	}
	return web.SendJSON(c, m.Result(append(b, '}')))
}

// toolsNamed returns the assistants whose tool has a name, at most two. Names are made of those of assistants, so all are looked at.
func (h *mcpHandlers) toolsNamed(ctx context.Context, name string) (found []*assistant.Assistant, err error) {
	const page = 1000
	for offset, more := 0, true; more && len(found) < 2; offset += page {
		var list []*assistant.Assistant
		if list, more, err = h.assistants.Search(ctx, assistant.Query{Limit: page, Offset: offset}); err != nil {
			return nil, err
		}
		for _, a := range list {
			if mcp.Name(a) == name {
				found = append(found, a)
			}
		}
	}
	return found, nil
}

package server

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/compat"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/mcp"
)

// mcpRoutes serve the Model Context Protocol without sessions: GET, for a stream of the server's own messages, and DELETE, which ends a session, are refused.
func (s *Server) mcpRoutes() {
	s.route("POST", "/mcp", s.mcp)
	s.route("GET", "/mcp", func(c *fiber.Ctx) error { return c.Status(fiber.StatusMethodNotAllowed).Send(nil) })
	s.route("DELETE", "/mcp", func(c *fiber.Ctx) error { return c.Status(fiber.StatusNotFound).Send(nil) })
	for _, method := range []string{"POST", "GET", "DELETE"} {
		s.route(method, "/mcp/", func(c *fiber.Ctx) error {
			path := c.Path()
			return c.Redirect(path[:len(path)-1], fiber.StatusTemporaryRedirect)
		})
	}
}

func (s *Server) mcp(c *fiber.Ctx) error {
	refuse := func(text string) error {
		return sendJSON(c.Status(fiber.StatusBadRequest), append(jsonobj.AppendText([]byte(`{"error":`), text), '}'))
	}
	if !mcp.Accepts(c.Get(fiber.HeaderAccept)) {
		return refuse("Accept header must include application/json or text/event-stream")
	}
	return s.withBody(c, func(body []byte) error {
		m, err := mcp.Read(body)
		if err != nil {
			return refuse(err.Error())
		}
		if m.ID == nil {
			return c.Status(fiber.StatusAccepted).Send(nil)
		}
		switch m.Method {
		case "initialize":
			return sendJSON(c, m.Result(m.Initialize(s.opts.APIVersion)))
		case "ping":
			return sendJSON(c, m.Result([]byte("{}")))
		case "tools/list":
			return s.listTools(c, m)
		case "tools/call":
			return s.callTool(c, m)
		}
		return sendJSON(c, m.Fail(mcp.MethodNotFound, "Method not found: "+m.Method))
	})
}

// toolPage is how many assistants one list of tools has: each asks its graph for its schemas.
const toolPage = 100

// listTools answers with a page of tools. The cursor is the number of assistants before it.
func (s *Server) listTools(c *fiber.Ctx, m mcp.Message) error {
	offset, err := strconv.Atoi(m.Params.Get("cursor").String())
	if err != nil || offset < 0 {
		offset = 0
	}
	seen := map[string]bool{} // of equal names the first is listed
	page, more, err := s.opts.Assistants.Search(c.UserContext(), assistant.Query{Limit: toolPage, Offset: offset})
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
		schemas, err := s.opts.Assistants.Schemas(c.UserContext(), a.ID)
		if fault.Is(err, fault.Unavailable) || c.UserContext().Err() != nil {
			return err
		}
		if err != nil {
			s.log.WarnContext(c.UserContext(), "an assistant is no MCP tool: its graph has no schemas", "assistant_id", a.ID, "graph", a.GraphID, "error", err)
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
	return sendJSON(c, m.Result(append(b, '}')))
}

// toolsNamed returns the assistants whose tool has a name, at most two. Names are made of those of assistants, so all are looked at.
func (s *Server) toolsNamed(ctx context.Context, name string) (found []*assistant.Assistant, err error) {
	const page = 1000
	for offset, more := 0, true; more && len(found) < 2; offset += page {
		var list []*assistant.Assistant
		if list, more, err = s.opts.Assistants.Search(ctx, assistant.Query{Limit: page, Offset: offset}); err != nil {
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

// callTool executes an assistant without a thread, with the arguments as its input, and answers with its result.
func (s *Server) callTool(c *fiber.Ctx, m mcp.Message) error {
	name := m.Params.Get("name")
	found, err := s.toolsNamed(c.UserContext(), name.String())
	if err != nil {
		return err
	}
	switch len(found) {
	case 0:
		text := name.String()
		if !name.Exists() {
			text = "None"
		}
		return sendJSON(c, m.Fail(mcp.InvalidParams, "Unknown tool: "+text))
	case 1:
	default:
		return sendJSON(c, m.Fail(mcp.InvalidParams, "Multiple tools found with the same name."))
	}
	input := json.RawMessage(`{}`)
	if given := m.Params.Get("arguments"); given.IsObject() {
		input = json.RawMessage(given.Raw)
	} else if given.Exists() && given.Type != gjson.Null {
		return sendJSON(c, m.Fail(mcp.InvalidParams, "The arguments of a tool are an object"))
	}
	body := append(jsonobj.AppendText([]byte(`{"assistant_id":`), string(found[0].ID)), `,"input":`...)
	body = append(append(body, input...), '}')
	req, err := compat.NewRun(body, compat.RunForm{Stateless: true, Followed: true})
	if err == nil {
		err = s.complete(c, &req)
	}
	if err != nil {
		return s.toolRefused(c, m, err)
	}
	if err := s.slot(); err != nil {
		return err
	}
	x, f, err := s.opts.Runs.BeginWait(c.UserContext(), "", req)
	if err != nil {
		s.slots.give(1)
		return s.toolRefused(c, m, err)
	}
	requestOf(c).made(x)
	request := mcp.Message{ID: m.ID} // not the arguments, for as long as the run takes
	return s.waitResult(c, f, func(dst []byte, res run.Result) []byte { return append(dst, request.Called(res)...) })
}

// toolRefused answers that a call cannot be executed. Errors of the server are answered as everywhere.
func (s *Server) toolRefused(c *fiber.Ctx, m mcp.Message, err error) error {
	var refused *fault.Error
	if errors.As(err, &refused) && (fault.Is(err, fault.Invalid) || fault.Is(err, fault.Unprocessable) || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict)) {
		return sendJSON(c, m.Fail(mcp.InvalidParams, refused.Message))
	}
	return err
}

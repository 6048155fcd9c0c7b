package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"understudy/access"
	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/idempotency"
	"understudy/run"
	"understudy/server/internal/web"
)

// protocolHandlers serve event streaming ("protocol v2"): events of a thread by SSE, commands by HTTP, and both by WebSocket.
type protocolHandlers struct {
	*web.Transport
	*web.Completer
	runs       Runs
	threads    Threads
	assistants Assistants
	allows     func(origin string) (allowed, any bool) // who may open a WebSocket
}

func (h *protocolHandlers) routes(route register) {
	route("POST", "/threads/{thread_id}/stream/events", withThread(h.threadEvents))
	route("POST", "/threads/{thread_id}/commands", h.command)
	route("GET", "/threads/{thread_id}/stream/events", func(c *fiber.Ctx) error {
		switch {
		case strings.EqualFold(c.Get(fiber.HeaderUpgrade), "websocket"):
		case c.Get(fiber.HeaderUpgrade) == "" && c.Get("Sec-WebSocket-Key") != "":
			return web.ErrUpgrade
		default:
			return fiber.ErrMethodNotAllowed
		}
		return h.socket(c)
	})
}

// threadEvents streams the events of a thread that a filter selects, until the client leaves.
func (h *protocolHandlers) threadEvents(c *fiber.Ctx, t id.Thread) error {
	return h.WithBody(c, func(body []byte) error {
		filter, err := compat.EventFilter(body)
		if err != nil {
			return err
		}
		if err := h.Slot(); err != nil {
			return err
		}
		f, err := h.runs.StreamEvents(c.UserContext(), t, filter)
		if err != nil {
			h.Slots.Give(1)
			return err
		}
		return h.StreamEvents(c, f, func(*bridge.Record) bool { return false }) // their frames have ids
	})
}

// command executes a command. Its errors are answers with status 200, except those that are not the client's.
func (h *protocolHandlers) command(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		cmd, err := compat.DecodeCommand(body)
		refused := (*compat.CommandError)(nil)
		if errors.As(err, &refused) {
			return web.SendJSON(c.Status(http.StatusBadRequest), compat.AppendCommandError(nil, &cmd, refused))
		}
		if err != nil {
			return err
		}
		r := web.Of(c)
		seen, err := h.seen(c.UserContext(), web.Param(c, "thread_id"), &cmd)
		if err != nil {
			return err
		}
		name := web.Param(c, "thread_id")
		key, err := idempotencyKey(c, "command", id.Thread(name), body)
		if err != nil {
			return err
		}
		result, err := h.execute(c.UserContext(), caller{name, r.ID, h.Configurable(c), r.Made, key}, &cmd)
		if err == nil {
			if repeated(c, key); key != nil && key.Repeated {
				seen = 0 // not what came since: that is no history for who repeats the command
			}
			return web.SendJSON(c, compat.AppendCommandSuccess(nil, &cmd, result, seen))
		}
		if refused = commandError(err); refused == nil {
			return err
		}
		if fault.Is(err, fault.NotFound) {
			r.Miss(c)
		}
		r.Reason = web.Bounded(refused.Message, web.MaxReason)
		return web.SendJSON(c, compat.AppendCommandError(nil, &cmd, refused))
	})
}

// commandError returns an error of a command as its client sees it; nil: it is the server's, and has a status.
func commandError(err error) *compat.CommandError {
	refused, unknown := (*compat.CommandError)(nil), (*run.UnknownInterrupt)(nil)
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &unknown):
		return &compat.CommandError{Code: compat.NoSuchInterrupt, Message: web.Bounded(unknown.Error(), web.MaxReason)}
	case errors.Is(err, run.ErrNotInterrupted):
		return &compat.CommandError{Code: compat.NoSuchRun, Message: run.ErrNotInterrupted.Message}
	case errors.Is(err, run.ErrNoRun):
		return &compat.CommandError{Code: compat.NoSuchRun, Message: run.ErrNoRun.Message}
	}
	if at := (*run.UnknownCheckpoint)(nil); errors.As(err, &at) {
		return &compat.CommandError{Code: compat.NoSuchCheckpoint, Message: at.Error()}
	}
	status, text, _ := web.Explain(err)
	if denied := (*access.Refusal)(nil); status >= http.StatusInternalServerError && !errors.As(err, &denied) { // of a handler it is an answer, whatever it says
		return nil
	}
	return &compat.CommandError{Code: compat.UnknownError, Message: strconv.Itoa(status) + ": " + text}
}

var errNoActiveRun = &compat.CommandError{Code: compat.NoSuchRun, Message: "No active run is bound to this thread."}

// caller is who sends commands: a request, or a WebSocket after its request.
type caller struct {
	thread    string // as in the path
	requestID string
	headers   map[string]string // that runs see
	made      func(*run.Run)    // notes a run that was made
	key       *idempotency.Key  // of the request; nil: none
}

// seen returns the seq of the last event that is history for the client of a command, before it is executed: 0 for commands that make no run.
func (h *protocolHandlers) seen(ctx context.Context, name string, cmd *compat.Command) (int64, error) {
	switch cmd.Method {
	case "run.start", "input.respond", "state.fork", "input.inject":
		if t, err := compat.PlainThreadID(name); err == nil { // else execute says so
			seen, err := h.runs.Seen(ctx, t)
			if denied := (*access.Refusal)(nil); errors.As(err, &denied) {
				return 0, nil // who may not read a thread may run it all the same, and has no history
			}
			return seen, err
		}
	}
	return 0, nil
}

// execute returns the result of a command.
func (h *protocolHandlers) execute(ctx context.Context, by caller, cmd *compat.Command) (json.RawMessage, error) {
	switch cmd.Method {
	case "run.start":
		req, err := cmd.RunStart()
		if err != nil {
			return nil, err
		}
		t, err := compat.RunThreadID(by.thread)
		if err != nil {
			return nil, err
		}
		if err := h.CompleteFor(by.requestID, by.headers, &req); err != nil {
			return nil, err
		}
		req.Key = by.key
		x, err := h.runs.StartOrResume(ctx, t, req)
		if err != nil {
			return nil, err
		}
		by.made(x)
		return json.RawMessage(`{"run_id":"` + string(x.ID) + `"}`), nil
	case "input.respond":
		req, responses, err := cmd.RunResponse()
		if err != nil {
			return nil, err
		}
		t, err := compat.RunThreadID(by.thread)
		if err != nil {
			return nil, err
		}
		if err := h.CompleteFor(by.requestID, by.headers, &req); err != nil {
			return nil, err
		}
		x, err := h.runs.Respond(ctx, t, req, responses)
		if err != nil {
			return nil, err
		}
		by.made(x)
		return json.RawMessage(`{}`), nil
	case "state.get", "state.listCheckpoints", "state.fork", "input.inject":
		return h.executeState(ctx, by, cmd)
	// The rest is about a connection, which a request over HTTP does not have.
	case "subscription.subscribe":
		if _, err := cmd.Filter(); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"subscription_id":"` + uuid.NewString() + `","replayed_events":0}`), nil
	case "subscription.unsubscribe":
		name, err := cmd.Unsubscribe()
		if err != nil {
			return nil, err
		}
		return nil, compat.UnknownSubscription(web.Bounded(name, web.MaxReason))
	case "subscription.reconnect", "agent.getTree":
		return nil, errNoActiveRun
	}
	return nil, &compat.CommandError{Code: compat.UnknownCommand, Message: "Unknown protocol command: " + web.Bounded(cmd.Method, web.MaxReason)}
}

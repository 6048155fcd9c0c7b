package server

import (
	"context"
	"errors"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/a2a"
	"understudy/server/internal/web"
)

// commandHandlers serve conversations as a tree: fork one at an event, send a message to one. The answers say what was committed; the rest is in events.
type commandHandlers struct {
	*web.Transport
	*web.Completer
	threads    Threads
	runs       Runs
	assistants Assistants
}

func (h *commandHandlers) routes(route register) {
	route("POST", "/commands/fork-thread", h.forkThread)
	route("POST", "/commands/send-message", h.sendMessage)
}

func (h *commandHandlers) forkThread(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		from, at, err := compat.ForkThread(body)
		if err != nil {
			return err
		}
		v, err := h.threads.ForkAt(c.UserContext(), from, at)
		if err != nil {
			return err
		}
		web.Of(c).Thread = string(v.ID)
		return web.SendJSON(c, compat.AppendFork(nil, from, at, v))
	})
}

func (h *commandHandlers) sendMessage(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		m, err := compat.SendMessage(body)
		if err == nil {
			err = h.Complete(c, &m.Run)
		}
		if err != nil {
			return err
		}
		return h.send(c, m, func(x *run.Run) string { return runPath(x.Thread, x.ID) })
	})
}

// send creates the run that answers a message, behind the current one of the thread. path returns where the run is found.
func (h *commandHandlers) send(c *fiber.Ctx, m *compat.Message, path func(*run.Run) string) error {
	named := m.Run.AssistantID != ""
	x, err := h.runs.Inject(c.UserContext(), m.Thread, m.Run, func(a id.Assistant) error { return h.takesMessages(c.UserContext(), a) })
	switch {
	case errors.Is(err, run.ErrNoRun):
		return fault.Newf(fault.NotFound, "Thread with ID %s not found, or it has had no run: then name an assistant_id", m.Thread)
	case errors.Is(err, run.ErrAsks):
		return fault.New(fault.Conflict, "The thread waits at an interrupt. Answer it with a run whose command has resume; then send the message.")
	case named && fault.Is(err, fault.NotFound):
		return fault.Newf(fault.NotFound, "Thread with ID %s or assistant not found", m.Thread)
	case err != nil:
		return err
	}
	web.Of(c).Made(x)
	locate(c, path(x), "")
	return web.SendJSON(c, compat.AppendSent(nil, m, x))
}

// takesMessages refuses assistants whose graphs have no messages in their input.
func (h *commandHandlers) takesMessages(ctx context.Context, a id.Assistant) error {
	graph, others, err := speechless(ctx, h.assistants, a)
	if err == nil && others != nil {
		err = fault.Newf(fault.Unprocessable, "The input of graph %s has no messages; it has: %s", graph, web.Bounded(strings.Join(others, ", "), web.MaxReason))
	}
	return err
}

// speechless returns the graph of an assistant, and the keys of its input if messages are not among them; else nil.
func speechless(ctx context.Context, assistants Assistants, name id.Assistant) (graph string, others []string, err error) {
	a, err := assistants.Get(ctx, name)
	if err != nil {
		return "", nil, err
	}
	schemas, err := schemasOf(ctx, assistants, a)
	if err != nil {
		return "", nil, err
	}
	if ok, names := a2a.Speaks(schemas); !ok {
		return a.GraphID, append([]string{}, names...), nil
	}
	return a.GraphID, nil, nil
}

package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/openai"
	"understudy/thread"
)

// openaiRoutes serve OpenAI's API, for programs that chat by it.
func (s *Server) openaiRoutes() {
	s.route("GET", "/v1/models", s.listModels)
	s.route("GET", "/v1/models/{model}", s.getModel)
	s.route("POST", "/v1/chat/completions", s.turn(openai.ReadChat, openai.NewChat, openai.AppendChat))
}

// failOpenAI returns the status and the body of an error in OpenAI's form; nil for routes of other APIs. OpenAI has no 422 for bodies.
func (s *Server) failOpenAI(c *fiber.Ctx, status int, text string, err error) (int, []byte) {
	if s.opts.Disable.OpenAI {
		return 0, nil
	}
	if status == fiber.StatusUnprocessableEntity {
		status = fiber.StatusBadRequest
	}
	path := c.Path()
	for _, prefix := range append([]string{s.opts.MountPrefix}, routePrefixes...) {
		if rest, ok := strings.CutPrefix(path, prefix); !ok || !openai.Serves(rest) {
			continue
		}
		var e *openai.Error
		if !errors.As(err, &e) {
			e = &openai.Error{}
		}
		return status, openai.AppendError(nil, text, openai.ErrorType(status), e.Param, e.Code)
	}
	return 0, nil
}

// maxModels bounds the list of models, which has no pages.
const maxModels = 10_000

func (s *Server) listModels(c *fiber.Ctx) error {
	const page = 1000
	b := []byte(`{"object":"list","data":[`)
	for offset, more := 0, true; more && offset < maxModels; offset += page {
		var list []*assistant.Assistant
		var err error
		if list, more, err = s.opts.Assistants.Search(c.UserContext(), assistant.Query{Limit: page, Offset: offset}); err != nil {
			return err
		}
		for i, a := range list {
			if offset+i > 0 {
				b = append(b, ',')
			}
			b = openai.AppendModel(b, a)
		}
	}
	return sendJSON(c, append(b, "]}"...))
}

func (s *Server) getModel(c *fiber.Ctx) error {
	a, err := s.model(c.UserContext(), param(c, "model"))
	if err != nil {
		return err
	}
	return sendJSON(c, openai.AppendModel(nil, a))
}

// model returns the assistant that has an id, or is the default one of a graph.
func (s *Server) model(ctx context.Context, model string) (*assistant.Assistant, error) {
	key := id.Assistant(id.Canonical(model))
	if key == "" {
		key = id.DefaultAssistant(model)
	}
	a, err := s.opts.Assistants.Get(ctx, key)
	if fault.Is(err, fault.NotFound) {
		return nil, openai.NoModel(model)
	}
	return a, err
}

// turn answers a request of one kind: read reads it, stream and whole write both forms of the answer.
func (s *Server) turn(read func(body []byte, thread string) (*openai.Turn, error), stream func(*openai.Turn, *run.Run, *openai.Answer) openai.Events,
	whole func([]byte, *openai.Turn, *run.Run, *openai.Answer) []byte,
) fiber.Handler {
	return func(c *fiber.Ctx) error {
		return s.withBody(c, func(body []byte) error {
			body, err := compat.Prepare(body)
			if err != nil {
				return err
			}
			t, err := read(body, c.Get(openai.ThreadHeader))
			if err != nil {
				return err
			}
			x, f, a, err := s.beginTurn(c, t)
			if err != nil {
				return err
			}
			if t.Thread != "" {
				c.Set(openai.ThreadHeader, string(t.Thread))
			}
			locate(c, runPath(t.Thread, x.ID), "")
			if t.Stream {
				return s.streamForm(c, f, stream(t, x, a))
			}
			if err := s.collect(c, f, a); err != nil {
				unlocate(c)
				return err
			}
			if why := a.Failed(); why != "" {
				return failedRun(c, why)
			}
			return sendJSON(c, whole(nil, t, x, a))
		})
	}
}

// failedRun answers that a run failed. Clients are not to try again by themselves: it would most likely fail again, and a thread has the message already.
func failedRun(c *fiber.Ctx, why string) error {
	c.Set("X-Should-Retry", "false")
	requestOf(c).reason = bounded(why, maxReason)
	return sendJSON(c.Status(fiber.StatusInternalServerError), openai.AppendError(nil, why, openai.ErrorType(fiber.StatusInternalServerError), "", openai.RunFailed))
}

// beginTurn begins the run of a turn. It has reserved a slot, which the caller gives back.
func (s *Server) beginTurn(c *fiber.Ctx, t *openai.Turn) (*run.Run, run.Follower, *openai.Answer, error) {
	ctx := c.UserContext()
	assistant, err := s.model(ctx, t.Model)
	if err != nil {
		return nil, nil, nil, err
	}
	memory, had, err := s.memory(ctx, t)
	if err != nil {
		return nil, nil, nil, err
	}
	body, err := t.Body(assistant.ID, memory)
	if err != nil {
		return nil, nil, nil, err
	}
	req, err := compat.NewRun(body, compat.RunForm{Stateless: t.Thread == "", Followed: true})
	if err == nil {
		err = s.complete(c, &req)
	}
	if err == nil {
		err = s.slot()
	}
	if err != nil {
		return nil, nil, nil, err
	}
	x, f, err := s.opts.Runs.Begin(ctx, t.Thread, req)
	if err != nil {
		s.slots.give(1)
		return nil, nil, nil, err
	}
	requestOf(c).made(x)
	if err := f.Settle(ctx); err != nil {
		f.Close(false)
		s.slots.give(1)
		return nil, nil, nil, err
	}
	return x, f, openai.NewAnswer(t, had), nil
}

// memory returns what the thread of a turn has, and if it waits for an answer, its messages.
func (s *Server) memory(ctx context.Context, t *openai.Turn) (m openai.Memory, had json.RawMessage, err error) {
	if t.Thread == "" {
		return m, nil, nil
	}
	page, _, err := s.opts.Threads.Search(ctx, thread.Search{Query: thread.Query{IDs: []id.Thread{t.Thread}, Limit: 1}, NoValues: true})
	if err != nil || len(page) == 0 { // the run makes it
		return m, nil, err
	}
	if m.Exists, m.Interrupts = page[0].Head != "", page[0].Interrupts; !m.Waits() {
		return m, nil, nil
	}
	v, err := s.opts.Threads.Get(ctx, t.Thread)
	if err != nil {
		return m, nil, err
	}
	return m, json.RawMessage(gjson.GetBytes(v.Values, "messages").Raw), nil
}

// collect adds all records of a run to an answer. Unlike other waits it sends nothing before the end, because the status says whether the run failed. A client
// that leaves ends the run.
func (s *Server) collect(c *fiber.Ctx, f run.Follower, a *openai.Answer) (err error) {
	defer s.slots.give(1)
	defer func() {
		f.Close(errors.Is(err, errLeft))
		s.metrics.ended.WithLabelValues(ended(err)).Inc()
	}()
	ctx, cancel := context.WithCancelCause(c.UserContext())
	defer cancel(nil)
	defer context.AfterFunc(s.streaming, func() { cancel(context.Cause(s.streaming)) })()
	defer watch(c.Context().Conn(), func() { cancel(errLeft) })()
	for {
		records, err := f.Next(ctx)
		for _, r := range records {
			a.Add(r)
		}
		switch {
		case errors.Is(err, io.EOF):
			a.End()
			return nil
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
}

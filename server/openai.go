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
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/answer"
	"understudy/server/internal/connection"
	"understudy/server/internal/web"
	"understudy/server/openai"
	"understudy/thread"
)

// openaiHandlers serve OpenAI's API, for programs that chat by it.
type openaiHandlers struct {
	*web.Transport
	*web.Completer
	assistants Assistants
	runs       Runs
	threads    Threads
	events     Events // nil: answers cannot be read again
}

func (h *openaiHandlers) routes(route register) {
	route("GET", "/v1/models", h.listModels)
	route("GET", "/v1/models/{model}", h.getModel)
	route("POST", "/v1/chat/completions", h.turn(openai.ReadChat, openai.NewChat, openai.AppendChat))
	route("POST", "/v1/responses", h.turn(openai.ReadResponse, openai.NewResponse, openai.AppendResponse))
	if h.events != nil {
		route("GET", "/v1/responses/{response}", h.getResponse)
		route("POST", "/v1/responses/{response}/cancel", h.cancelResponse)
	}
	route("POST", "/v1/conversations", h.createConversation)
	route("GET", "/v1/conversations/{conversation}", withConversation(func(c *fiber.Ctx, t id.Thread) error {
		v, err := h.threads.Get(c.UserContext(), t)
		if err != nil {
			return err
		}
		return web.SendJSON(c, openai.AppendConversation(nil, &v.Thread))
	}))
	route("DELETE", "/v1/conversations/{conversation}", withConversation(func(c *fiber.Ctx, t id.Thread) error {
		if err := h.threads.Delete(c.UserContext(), t); err != nil {
			return err
		}
		return web.SendJSON(c, openai.AppendConversationDeleted(nil, t))
	}))
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
	for _, prefix := range append([]string{s.opts.MountPrefix}, s.prefixes()...) {
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

func (h *openaiHandlers) listModels(c *fiber.Ctx) error {
	b := []byte(`{"object":"list","data":[`)
	for offset, more := 0, true; more && offset < maxModels; offset += openai.ModelsAtOnce {
		var list []*assistant.Assistant
		var err error
		if list, more, err = h.assistants.Search(c.UserContext(), assistant.Query{Limit: openai.ModelsAtOnce, Offset: offset}); err != nil {
			return err
		}
		for i, a := range list {
			if offset+i > 0 {
				b = append(b, ',')
			}
			b = openai.AppendModel(b, a)
		}
	}
	return web.SendJSON(c, append(b, "]}"...))
}

func (h *openaiHandlers) getModel(c *fiber.Ctx) error {
	a, err := h.model(c.UserContext(), web.Param(c, "model"))
	if err != nil {
		return err
	}
	return web.SendJSON(c, openai.AppendModel(nil, a))
}

// model returns the assistant that has an id, or is the default one of a graph.
func (h *openaiHandlers) model(ctx context.Context, model string) (*assistant.Assistant, error) {
	a, err := h.assistants.Get(ctx, openai.AssistantOf(model))
	if fault.Is(err, fault.NotFound) {
		return nil, openai.NoModel(model)
	}
	return a, err
}

// turn answers a request of one kind: read reads it, stream and whole write both forms of the answer.
func (h *openaiHandlers) turn(read func(body []byte, thread string) (*openai.Turn, error), stream func(*openai.Turn, *run.Run, *answer.Answer) openai.Events,
	whole func([]byte, *openai.Turn, *run.Run, *answer.Answer) []byte,
) fiber.Handler {
	return func(c *fiber.Ctx) error {
		return h.WithBody(c, func(body []byte) error {
			body, err := compat.Prepare(body)
			if err != nil {
				return err
			}
			t, err := read(body, c.Get(openai.ThreadHeader))
			if err != nil {
				return err
			}
			x, f, a, err := h.beginTurn(c, t)
			if err != nil {
				return err
			}
			if t.Thread != "" {
				c.Set(openai.ThreadHeader, string(t.Thread))
			}
			locate(c, runPath(t.Thread, x.ID), "")
			if t.Stream {
				return h.StreamForm(c, f, stream(t, x, a))
			}
			if err := h.collect(c, f, a); err != nil {
				web.Unlocate(c)
				if t.Thread != "" {
					c.Set(shouldRetry, "false") // the thread has the message
				}
				return err
			}
			if why := a.Failed(); why != "" {
				return failedRun(c, why)
			}
			return web.SendJSON(c, whole(nil, t, x, a))
		})
	}
}

// shouldRetry is the header by which SDKs know whether to repeat a request.
const shouldRetry = "X-Should-Retry"

// failedRun answers that a run failed. Clients are not to try again by themselves: it would most likely fail again, and a thread has the message already.
func failedRun(c *fiber.Ctx, why string) error {
	c.Set(shouldRetry, "false")
	web.Of(c).Reason = web.Bounded(why, web.MaxReason)
	return web.SendJSON(c.Status(fiber.StatusInternalServerError), openai.AppendError(nil, why, openai.ErrorType(fiber.StatusInternalServerError), "", openai.RunFailed))
}

// beginTurn begins the run of a turn. It has reserved a slot, which the caller returns.
func (h *openaiHandlers) beginTurn(c *fiber.Ctx, t *openai.Turn) (*run.Run, run.Follower, *answer.Answer, error) {
	ctx := c.UserContext()
	assistant, err := h.model(ctx, t.Model)
	if err != nil {
		return nil, nil, nil, err
	}
	memory, had, err := h.memory(ctx, t)
	if err != nil {
		return nil, nil, nil, err
	}
	body, err := t.Body(assistant.ID, memory)
	if err != nil {
		return nil, nil, nil, err
	}
	req, err := compat.NewRun(body, compat.RunForm{Stateless: t.Thread == "", Followed: true})
	if err == nil {
		err = h.Complete(c, &req)
	}
	if err == nil {
		err = h.Slot()
	}
	if err != nil {
		return nil, nil, nil, err
	}
	x, f, err := h.runs.Begin(ctx, t.Thread, req)
	if err != nil {
		h.Slots.Give(1)
		return nil, nil, nil, err
	}
	web.Of(c).Made(x)
	if err := f.EnsureDurable(ctx); err != nil {
		f.Close(false)
		h.Slots.Give(1)
		return nil, nil, nil, err
	}
	return x, f, openai.NewAnswer(t, had), nil
}

// memory returns what the thread of a turn has, and if it waits for an answer, its messages.
func (h *openaiHandlers) memory(ctx context.Context, t *openai.Turn) (m openai.Memory, had json.RawMessage, err error) {
	if t.Thread == "" {
		return m, nil, nil
	}
	page, _, err := h.threads.Search(ctx, thread.Search{Query: thread.Query{IDs: []id.Thread{t.Thread}, Limit: 1}, NoValues: true})
	if err == nil && len(page) == 0 && t.After() != "" {
		err = openai.NoResponse()
	}
	if err != nil || len(page) == 0 { // the run makes it
		return m, nil, err
	}
	// A thread that is busy is being answered, and one whose run failed keeps the answer on which it failed: there another one changes nothing.
	if m.Exists = page[0].Head != ""; page[0].Status == thread.Interrupted {
		m.Interrupts = page[0].Interrupts
	}
	if after := t.After(); after != "" {
		end, err := h.endOf(ctx, t.Thread, after)
		if err != nil {
			return m, nil, err
		}
		if end != "" && end != page[0].Head { // the thread has gone on: this is another way on from there
			m.Interrupts, m.Checkpoint = nil, end
		}
	}
	if !m.Waits() {
		return m, nil, nil
	}
	v, err := h.threads.Get(ctx, t.Thread)
	if err != nil {
		return m, nil, err
	}
	return m, json.RawMessage(gjson.GetBytes(v.Values, "messages").Raw), nil
}

// collect adds all records of a run to an answer. Unlike other waits it sends nothing before the end, because the status says whether the run failed. A client
// that leaves ends the run.
func (h *openaiHandlers) collect(c *fiber.Ctx, f run.Follower, a *answer.Answer) (err error) {
	defer h.Slots.Give(1)
	defer func() {
		f.Close(errors.Is(err, web.ErrLeft))
		h.Metrics.Ended.WithLabelValues(web.Ended(err)).Inc()
	}()
	ctx, cancel := context.WithCancelCause(c.UserContext())
	defer cancel(nil)
	life := h.Life(web.Of(c))
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	defer connection.Watch(c.Context().Conn(), func() { cancel(web.ErrLeft) })()
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

// endOf returns the last checkpoint of a run; "" when there is none, as the run has not saved one, or it was pruned.
func (h *openaiHandlers) endOf(ctx context.Context, t id.Thread, r id.Run) (id.Checkpoint, error) {
	if _, err := h.runs.Get(ctx, t, r); err != nil {
		if fault.Is(err, fault.NotFound) {
			err = openai.NoResponse()
		}
		return "", err
	}
	return answer.LastCheckpoint(ctx, h.threads, t, r)
}

// response returns the thread and the run of a response in the path.
func response(c *fiber.Ctx) (id.Thread, id.Run, error) {
	t, r, ok := openai.ParseResponseID(web.Param(c, "response"))
	if !ok {
		return "", "", fault.New(fault.NotFound, "Response not found")
	}
	return t, r, nil
}

// maxRows bounds the messages of a run that a stored response shows, the last ones.
const maxRows = 1000

// getResponse answers with a response that is stored: the messages that its run has written so far.
func (h *openaiHandlers) getResponse(c *fiber.Ctx) error {
	if compat.True(c.Query("stream")) {
		return fault.New(fault.Invalid, "A response is not streamed again: get it without stream=true, or follow its run on the thread that conversation names")
	}
	t, r, err := response(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	x, err := h.runs.Get(ctx, t, r)
	if err != nil {
		return err
	}
	end, err := h.endOf(ctx, t, r)
	if err != nil {
		return err
	}
	rows, err := h.events.Messages(ctx, eventstore.PageQuery{Thread: t, Run: r, At: end, Backward: true, Limit: maxRows, Bytes: web.WholeBytes})
	if err != nil {
		return err
	}
	var messages []json.RawMessage
	for {
		row, err := rows.Next(ctx, web.PieceBytes)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		messages = append(messages, row.Content)
	}
	var interrupts json.RawMessage
	if page, _, err := h.threads.Search(ctx, thread.Search{Query: thread.Query{IDs: []id.Thread{t}, Limit: 1}, NoValues: true}); err != nil {
		return err
	} else if len(page) > 0 && page[0].Head == end {
		interrupts = page[0].Interrupts
	}
	return web.SendJSON(c, openai.AppendStored(nil, x, messages, interrupts))
}

func (h *openaiHandlers) cancelResponse(c *fiber.Ctx) error {
	t, r, err := response(c)
	if err != nil {
		return err
	}
	if err := h.runs.Cancel(c.UserContext(), t, []id.Run{r}, run.CancelInterrupt, true); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return h.getResponse(c) // also of a run that has ended
}

func withConversation(h func(*fiber.Ctx, id.Thread) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		t, ok := openai.ParseConversationID(web.Param(c, "conversation"))
		if !ok {
			return fault.New(fault.NotFound, "Conversation not found")
		}
		return h(c, t)
	}
}

func (h *openaiHandlers) createConversation(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		if len(body) == 0 {
			body = []byte("{}")
		}
		body, err := compat.Prepare(body)
		if err != nil {
			return err
		}
		metadata, err := openai.ReadConversation(body)
		if err != nil {
			return err
		}
		v, err := h.threads.Create(c.UserContext(), thread.New{Metadata: metadata})
		if err != nil {
			return err
		}
		return web.SendJSON(c, openai.AppendConversation(nil, &v.Thread))
	})
}

package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/answer"
	"understudy/server/internal/web"
	"understudy/server/mcp"
	"understudy/thread"
)

// callTool executes an assistant with the arguments as its input, and answers with its result.
func (h *mcpHandlers) callTool(c *fiber.Ctx, m mcp.Message, session mcp.Session) error {
	name := m.Params.Get("name")
	found, err := h.toolsNamed(c.UserContext(), name.String())
	if err != nil {
		return err
	}
	switch len(found) {
	case 0:
		text := name.String()
		if !name.Exists() {
			text = "None"
		}
		return web.SendJSON(c, m.Fail(mcp.InvalidParams, "Unknown tool: "+text))
	case 1:
	default:
		return web.SendJSON(c, m.Fail(mcp.InvalidParams, "Multiple tools found with the same name."))
	}
	input := json.RawMessage(`{}`)
	if given := m.Params.Get("arguments"); given.IsObject() {
		input = json.RawMessage(given.Raw)
	} else if given.Exists() && given.Type != gjson.Null {
		return web.SendJSON(c, m.Fail(mcp.InvalidParams, "The arguments of a tool are an object"))
	}
	request := mcp.Message{ID: m.ID} // not the arguments, for as long as the run takes
	call := &toolCall{s: h, request: request, token: m.ProgressToken(), elicits: session.Elicits, last: time.Now()}
	streamed := (call.token != nil || call.elicits && m.HasID()) && strings.Contains(c.Get(fiber.HeaderAccept), "text/event-stream")
	stateless := !streamed && (session.ID == "" || !m.HasID())

	body := append(jsonobj.AppendText([]byte(`{"assistant_id":`), string(found[0].ID)), `,"on_disconnect":"cancel","input":`...)
	body = append(body, input...)
	if streamed { // the result is read from the thread, and without one from the values
		body = append(body, `,"stream_mode":["updates","custom"]`...)
	}
	body = append(body, '}')
	req, err := compat.NewRun(body, compat.RunForm{Stateless: stateless, Followed: true})
	if err == nil {
		err = h.Complete(c, &req)
	}
	if err != nil {
		return h.toolRefused(c, m, err)
	}
	if !stateless {
		call.thread = call.place(c, session)
		req.IfNotExists, req.NewThread = "create", &thread.TTL{Strategy: thread.Delete, After: callTTL}
	}
	if err := h.Slot(); err != nil {
		return err
	}
	var x *run.Run
	var f run.Follower
	switch {
	case streamed:
		if call.Follower, err = h.runs.StreamThread(c.UserContext(), call.thread, nil, nil); err == nil {
			x, err = h.runs.Create(c.UserContext(), call.thread, req)
		}
	default:
		if x, f, err = h.runs.BeginWait(c.UserContext(), call.thread, req); err == nil {
			call.Follower = f
		}
	}
	if err != nil {
		call.thread = "" // that of another call, if there is one
		call.Close(false)
		h.Slots.Give(1)
		return h.toolRefused(c, m, err)
	}
	web.Of(c).Made(x)
	if streamed {
		return h.StreamForm(c, call, toolEvents{})
	}
	return h.WaitResult(c, call, func(dst []byte, res run.Result) []byte { return append(dst, request.Called(res)...) })
}

// toolRefused answers that a call cannot be executed, which the model of the client sees. Errors of the server are answered as everywhere.
func (h *mcpHandlers) toolRefused(c *fiber.Ctx, m mcp.Message, err error) error {
	var refused *fault.Error
	var denied *access.Refusal
	switch {
	case errors.As(err, &denied) && denied.Status < fiber.StatusInternalServerError:
		err = fault.New(fault.Forbidden, denied.Text())
		fallthrough
	case errors.As(err, &refused) && refused.Kind != fault.Internal && refused.Kind != fault.Unavailable:
		_, text, _ := web.Explain(err)
		web.Of(c).Reason = web.Bounded(text, web.MaxReason)
		return web.SendJSON(c, m.Failed(text))
	}
	return err
}

// callTTL is how long the thread of a call stays if its server dies, or its question has no answer.
const callTTL = 24 * time.Hour

// toolCall follows a call of a tool, whose run has a thread until it ends: by its id any server finds it, to cancel it or to take the answer to its question. The
// records of a stream are messages for the client.
type toolCall struct {
	run.Follower
	s       *mcpHandlers
	request mcp.Message
	thread  id.Thread // "": none
	token   json.RawMessage
	elicits bool

	progress int
	last     time.Time // of the last notification
	ended    id.Run    // whose result is not read yet
	asked    bool      // a question has no answer yet
	over     bool
}

// place returns the thread of a call: one that any server finds by the id of the call, if the client can name it.
func (t *toolCall) place(c *fiber.Ctx, session mcp.Session) id.Thread {
	if session.ID != "" && t.request.HasID() {
		return session.Thread(owner(c.UserContext()), t.request.ID)
	}
	return id.NewThread()
}

// Result implements run.Follower.
func (t *toolCall) Result(ctx context.Context) (run.Result, error) {
	res, err := t.Follower.Result(ctx)
	if fault.Is(err, fault.NotFound) && t.thread != "" {
		return run.Result{Error: run.ErrorJSON("", "The call was cancelled")}, nil
	}
	if err == nil {
		t.drop()
	}
	return res, err
}

// progressEvery is the time between notifications of progress while a run makes none: clients give up on calls without.
const progressEvery = 10 * time.Second

// Next implements run.Follower: its records are messages for the client.
func (t *toolCall) Next(ctx context.Context) ([]*bridge.Record, error) {
	for !t.over {
		if t.ended != "" {
			return t.settled(ctx)
		}
		if t.token != nil && !t.asked && time.Since(t.last) >= progressEvery {
			return []*bridge.Record{t.notify("working")}, nil
		}
		records, err := t.Follower.Next(ctx)
		if errors.Is(err, io.EOF) { // the thread was deleted
			t.over = true
			if t.asked {
				return []*bridge.Record{message(t.request.Failed("The question was not answered"))}, nil
			}
			return nil, io.EOF // it was cancelled, which has no answer
		}
		if err != nil {
			return nil, err
		}
		var out []*bridge.Record
		for _, r := range records {
			t.asked = false // a run has begun
			if r.Kind == bridge.Terminal {
				t.ended = r.Run
			} else if text := mcp.ProgressOf(r.Event, r.Data); t.token != nil && text != "" {
				out = append(out, t.notify(text))
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, io.EOF
}

// settled returns the result of the run that has ended, or its question.
func (t *toolCall) settled(ctx context.Context) ([]*bridge.Record, error) {
	f, err := t.s.runs.Join(ctx, t.thread, t.ended)
	var res run.Result
	if err == nil {
		defer f.Close(false)
		res, err = f.Result(ctx)
	}
	if fault.Is(err, fault.NotFound) {
		t.over = true
		return nil, io.EOF
	}
	if err != nil {
		return nil, err // asked again when only the time was over
	}
	t.ended = ""
	if asked := mcp.Interrupts(res.Values); t.elicits && asked != nil && t.request.HasID() {
		questions := answer.Questions(append(append([]byte(`{"":`), asked...), '}'))
		t.asked = true
		return []*bridge.Record{message(mcp.Elicit(t.request.ID, questions[0]))}, nil
	}
	t.over = true
	t.drop()
	return []*bridge.Record{message(t.request.CalledInEvent(res))}, nil
}

func (t *toolCall) notify(text string) *bridge.Record {
	t.progress++
	t.last = time.Now()
	return message(mcp.Progress(t.token, t.progress, text))
}

func message(data []byte) *bridge.Record { return &bridge.Record{Event: "message", Data: data} }

// Close implements run.Follower.
func (t *toolCall) Close(left bool) {
	if t.Follower != nil {
		t.Follower.Close(left)
	}
	t.drop()
}

// drop deletes the thread of a call, before its result is sent or when the client has left, which then cannot get it any more.
func (t *toolCall) drop() {
	if t.thread == "" {
		return
	}
	ctx, cancel := context.WithTimeout(access.With(t.s.Requests, access.System), composeTime)
	defer cancel()
	if err := t.s.threads.Delete(ctx, t.thread); err != nil && !fault.Is(err, fault.NotFound) {
		t.s.Log.Warn("the thread of an MCP call was not deleted; it expires", "thread_id", t.thread, "after", callTTL, "error", err)
	}
	t.thread = ""
}

// toolEvents writes messages as events.
type toolEvents struct{}

// Append implements openai.Events.
func (toolEvents) Append(dst []byte, r *bridge.Record) []byte {
	return compat.AppendRecord(dst, r, false)
}

// End implements openai.Events.
func (toolEvents) End(dst []byte) []byte { return dst }

// mcpNotified acts on a message that wants no answer: a cancelled call, or the answer to a question of one. Others are ignored.
func (h *mcpHandlers) mcpNotified(c *fiber.Ctx, m mcp.Message, session mcp.Session) error {
	if session.ID == "" {
		return nil
	}
	ctx := c.UserContext()
	end := func(t id.Thread) error { return web.PassOver(h.threads.Delete(access.With(ctx, access.System), t)) } // it is that of a call of the client
	if call := m.Cancelled(); call != nil {
		return end(session.Thread(owner(ctx), call))
	}
	e, ok := mcp.ReadElicited(m)
	if !ok {
		return nil
	}
	t := session.Thread(owner(ctx), e.Call)
	asked, err := h.asks(ctx, t, e.Question)
	if err != nil || asked == nil {
		return err // the call has ended
	}
	value, ok := e.Reply(*asked)
	if !ok {
		return end(t)
	}
	req, err := compat.NewRun([]byte(`{"assistant_id":"","stream_mode":["updates","custom"]}`), compat.RunForm{Followed: true})
	if err == nil {
		err = h.Complete(c, &req)
	}
	if err != nil {
		return err
	}
	x, err := h.runs.Respond(ctx, t, req, []run.Response{{Interrupt: e.Question, Value: value}})
	var unknown *run.UnknownInterrupt
	switch {
	case errors.As(err, &unknown), errors.Is(err, run.ErrNotInterrupted): // it was answered already
		return nil
	case err != nil:
		return err
	}
	web.Of(c).Made(x)
	return nil
}

// asks returns a question that a thread waits for; nil when it does not.
func (h *mcpHandlers) asks(ctx context.Context, t id.Thread, question string) (*answer.Question, error) {
	page, _, err := h.threads.Search(ctx, thread.Search{Query: thread.Query{IDs: []id.Thread{t}, Limit: 1}, NoValues: true})
	if err != nil || len(page) == 0 {
		return nil, err
	}
	for _, q := range answer.Questions(page[0].Interrupts) {
		if q.ID == question {
			return &q, nil
		}
	}
	return nil, nil
}

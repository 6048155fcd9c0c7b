package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/assistant"
	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/a2a"
	"understudy/server/a2a/tasks"
	"understudy/server/answer"
	"understudy/server/internal/web"
)

// a2aHandlers serve the Agent2Agent protocol: an assistant is an agent.
type a2aHandlers struct {
	*web.Transport
	*web.Completer
	assistants Assistants
	runs       Runs
	threads    Threads
	tasks      tasks.Reader
	version    string // of the API
	// addressed is how the client reaches this server.
	addressed func(c *fiber.Ctx) (scheme, host string)
}

func (h *a2aHandlers) routes(route register) {
	route("POST", "/a2a/{assistant_id}", h.a2a)
	card := func(c *fiber.Ctx) error { return h.card(c, web.Param(c, "assistant_id")) }
	route("GET", "/a2a/{assistant_id}", card)
	route("GET", "/a2a/{assistant_id}/.well-known/agent-card.json", card)
	route("GET", "/a2a/{assistant_id}/.well-known/agent.json", card)
	route("GET", "/.well-known/agent-card.json", func(c *fiber.Ctx) error {
		name := web.Given(c, "assistant_id")
		if name == nil {
			return web.SendJSON(c.Status(fiber.StatusBadRequest), a2a.CardError("Missing required query parameter: assistant_id"))
		}
		return h.card(c, *name)
	})
}

// agent returns the assistant that has an ID.
func (h *a2aHandlers) agent(ctx context.Context, name string) (*assistant.Assistant, error) {
	key := id.Assistant(id.Canonical(name))
	if key == "" {
		return nil, a2a.ErrAssistantID
	}
	a, err := h.assistants.Get(ctx, key)
	denied := refusedBy(err)
	switch {
	case fault.Is(err, fault.NotFound), denied != nil && denied.Status == fiber.StatusNotFound:
		return nil, a2a.NoAssistant(name)
	case denied != nil:
		return nil, &a2a.Error{Code: a2a.InvalidParams, Message: "Failed to get assistant '" + name + "': " + denied.Text()}
	}
	return a, err
}

// refusedBy returns the refusal of a handler of auth, or of a scope; nil: err is another error. That of a limit is one, because it says when to try again.
func refusedBy(err error) *access.Refusal {
	denied := (*access.Refusal)(nil)
	if errors.As(err, &denied) && denied.Status != fiber.StatusTooManyRequests {
		return denied
	}
	return nil
}

// notBegun is why the run of a message was not created.
func notBegun(err error, a *assistant.Assistant) error {
	denied := refusedBy(err)
	switch {
	case denied == nil:
		return err
	case denied.Status == fiber.StatusForbidden:
		return &a2a.Error{Code: a2a.InvalidParams, Message: "Access denied to assistant or thread"}
	case denied.Status == fiber.StatusNotFound:
		return a2a.NoAssistant(string(a.ID))
	case denied.Detail == nil: // the handler failed
		return errInternal
	}
	return &a2a.Error{Code: a2a.InvalidParams, Message: "Failed to create run: " + denied.Text()}
}

var errInternal = &a2a.Error{Code: a2a.InternalError, Message: "Internal server error"}

// baseURL is how the client reaches this server, without a path.
func (h *a2aHandlers) baseURL(c *fiber.Ctx) string {
	scheme, host := h.addressed(c)
	return scheme + "://" + host
}

// card answers with the card of an assistant.
func (h *a2aHandlers) card(c *fiber.Ctx, name string) error {
	a, err := h.agent(c.UserContext(), name)
	if refused := (*a2a.Error)(nil); errors.As(err, &refused) {
		text := refused.Message
		if errors.Is(err, a2a.ErrAssistantID) {
			text = "Failed to get assistant '" + web.Bounded(name, 100) + "': " + text
		}
		return web.SendJSON(c.Status(fiber.StatusBadRequest), a2a.CardError(text))
	}
	if err != nil {
		return err
	}
	schemas, err := schemasOf(c.UserContext(), h.assistants, a)
	if err != nil {
		return err
	}
	path := c.Path()
	for _, route := range []string{"/a2a/", "/.well-known/"} { // what is before it is the prefix under which the client sees the API
		if at := strings.Index(path, route); at >= 0 {
			path = path[:at]
		}
	}
	return web.SendJSON(c, a2a.AppendCard(nil, a, h.baseURL(c)+path+"/a2a/"+string(a.ID), h.version, h.Webhooks, schemas))
}

// schemasOf returns the schemas of an assistant's graph; nil when it has none.
func schemasOf(ctx context.Context, assistants Assistants, a *assistant.Assistant) (json.RawMessage, error) {
	schemas, err := assistants.Schemas(ctx, a.ID)
	if err != nil && (fault.Is(err, fault.Unavailable) || ctx.Err() != nil) {
		return nil, err
	}
	return schemas, nil //nolint:nilerr // graphs of which no schema can be made are served without
}

func (h *a2aHandlers) a2a(c *fiber.Ctx) error {
	if !a2a.Accepts(c.Get(fiber.HeaderAccept)) {
		return web.SendJSON(c.Status(fiber.StatusBadRequest), []byte(`{"error":"Accept header must include application/json"}`))
	}
	return h.WithBody(c, func(body []byte) error {
		call, err := a2a.Read(body)
		if err == nil {
			err = h.a2aCall(c, call)
		}
		if err == nil {
			return nil
		}
		if refusedBy(err) != nil {
			err = errInternal
		}
		code, text := refusal(err)
		if known := (*a2a.Error)(nil); code == a2a.InternalError && !errors.As(err, &known) {
			return err
		}
		web.Of(c).Reason = web.Bounded(text, web.MaxReason)
		if call.Streams() && !errors.Is(err, a2a.ErrAssistantID) { // clients read nothing else then
			return web.SendEvents(c, call.AppendFailedStream(nil, code, text))
		}
		return web.SendJSON(c, call.AppendFailure(nil, code, text))
	})
}

// refusal returns the form of an error that clients see. Those of the server itself are internal errors.
func refusal(err error) (code int, text string) {
	var refused *a2a.Error
	var unknown *run.UnknownInterrupt
	var f *fault.Error
	switch {
	case refusedBy(err) != nil:
		return errInternal.Code, errInternal.Message
	case errors.As(err, &refused):
		return refused.Code, refused.Message
	case errors.As(err, &unknown), errors.Is(err, run.ErrNotInterrupted):
		return a2a.Unsupported, "The question has been answered already"
	case errors.As(err, &f) && (f.Kind == fault.Invalid || f.Kind == fault.Unprocessable || f.Kind == fault.NotFound || f.Kind == fault.Conflict):
		return a2a.InvalidParams, f.Message
	}
	_, text, _ = web.Explain(err)
	return a2a.InternalError, text
}

func (h *a2aHandlers) a2aCall(c *fiber.Ctx, call a2a.Call) error {
	a, err := h.agent(c.UserContext(), web.Param(c, "assistant_id"))
	if err != nil {
		return err
	}
	switch call.Method {
	case a2a.Send, a2a.Stream:
		return h.sendMessage(c, call, a)
	case a2a.Get:
		return h.getTask(c, call, a)
	case a2a.List:
		return h.listTasks(c, call, a)
	case a2a.Cancel:
		return h.cancelTask(c, call, a)
	case a2a.Resubscribe:
		return h.resubscribe(c, call, a)
	case a2a.SetPush, a2a.GetPush, a2a.ListPush, a2a.DeletePush:
		return h.pushConfig(c, call, a)
	}
	return call.Unknown()
}

// sendMessage begins a task, or answers a question of one.
func (h *a2aHandlers) sendMessage(c *fiber.Ctx, call a2a.Call, a *assistant.Assistant) error {
	ctx := c.UserContext()
	m, err := call.ReadSend(call.Params)
	if err != nil {
		return err
	}
	var t *tasks.Task // that it continues
	var responses []run.Response
	if m.Task != nil {
		if t, err = h.tasks.Find(ctx, a, *m.Task); err == nil {
			responses, err = replies(t, m)
		}
	} else if m.Speaks() {
		err = h.checkSpeaks(ctx, a)
	}
	if err != nil {
		return err
	}
	if m.Thread == "" {
		m.Thread = id.NewThread()
	}
	streamed, first := call.Method == a2a.Stream, id.Run("")
	if t != nil {
		first = t.ID.Run
	}
	body, err := m.Body(a.ID, first, streamed || !m.Wait)
	if err != nil {
		return err
	}
	req, err := compat.NewRun(body, compat.RunForm{Followed: true})
	if err == nil {
		err = h.Complete(c, &req)
	}
	if err == nil {
		err = h.notify(&req, m, t)
	}
	if err == nil && (streamed || m.Wait) {
		err = h.Slot()
	}
	if err != nil {
		return err
	}
	x, f, err := h.beginTask(ctx, m, req, responses, streamed)
	if x != nil {
		web.Of(c).Made(x)
	}
	if err != nil {
		if streamed || m.Wait {
			h.Slots.Give(1)
		}
		return notBegun(err, a)
	}
	show := tasks.View{Agent: a, History: m.History, Scope: scopeOf(c)}
	if t == nil {
		t = &tasks.Task{ID: a2a.TaskID{Thread: m.Thread, Run: x.ID}}
	}
	key := t.ID
	switch {
	case streamed:
		had := json.RawMessage(nil)
		if first != "" {
			if had, err = h.said(ctx, m.Thread); err != nil {
				f.Close(true)
				h.Slots.Give(1)
				return err
			}
		}
		own := m.Own()
		begun := &a2a.Task{ID: key, State: a2a.Submitted, At: x.CreatedAt, History: []a2a.Message{own}, NoArtifacts: true, NoHistory: m.History != nil && *m.History == 0}
		return h.streamTask(c, call, begun, x.ID, f, answer.Options{Live: true, Resumable: true, Resumes: first != "", Had: had}, show)
	case m.Wait:
		return h.WaitResult(c, f, h.taskSent(ctx, call, key, show))
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(h.taskSent(ctx, call, key, show)(nil, run.Result{}))
	return nil
}

// notify adds the push notifications of a task to the run that begins or continues it.
func (h *a2aHandlers) notify(req *run.Request, m *a2a.Sent, t *tasks.Task) error {
	if t != nil {
		req.Push = slices.Clone(t.Last.Kwargs.Push)
		for i := range req.Push {
			req.Push[i].Task = t.ID.String()
		}
	}
	if m.Push == nil {
		return nil
	}
	if !h.Webhooks {
		return a2a.NoPush()
	}
	if t != nil {
		m.Push.Task = t.ID.String()
	}
	req.Push = withPush(req.Push, *m.Push)
	return nil
}

// beginTask creates the run of a message, and follows it if the client does: its records if it is streamed, else its result.
func (h *a2aHandlers) beginTask(ctx context.Context, m *a2a.Sent, req run.Request, responses []run.Response, streamed bool) (x *run.Run, f run.Follower, err error) {
	runs := h.runs
	switch {
	case responses != nil: // of simultaneous answers one is accepted
		x, err = runs.Respond(ctx, m.Thread, req, responses)
		switch {
		case err != nil:
		case streamed:
			f, err = runs.JoinStream(ctx, m.Thread, x.ID, &bridge.Offset{}, nil, false)
		case m.Wait:
			f, err = runs.Join(ctx, m.Thread, x.ID)
		}
	case streamed:
		if x, f, err = runs.Begin(ctx, m.Thread, req); err == nil {
			if err = f.EnsureDurable(ctx); err != nil {
				f.Close(false)
			}
		}
	case m.Wait:
		x, f, err = runs.BeginWait(ctx, m.Thread, req)
	default:
		x, err = runs.Create(ctx, m.Thread, req)
	}
	return x, f, err
}

// taskSent returns what writes the answer to a message after its run has ended.
func (h *a2aHandlers) taskSent(ctx context.Context, call a2a.Call, key a2a.TaskID, show tasks.View) web.AppendResult {
	ctx = context.WithoutCancel(ctx) // of a request whose client may have left
	call.Params = gjson.Result{}     // not for as long as the run takes
	return func(dst []byte, _ run.Result) []byte {
		t, err := h.composed(ctx, key, show)
		if err != nil {
			code, text := h.refusalInStream(ctx, err)
			return call.AppendFailure(dst, code, text)
		}
		return call.AppendResult(dst, call.AppendSent(nil, t))
	}
}

// refusalInStream is refusal for answers that have begun: errors of the server are logged here.
func (h *a2aHandlers) refusalInStream(ctx context.Context, err error) (code int, text string) {
	if code, text = refusal(err); code == a2a.InternalError {
		h.Log.ErrorContext(ctx, "a task could not be read", "error", err)
	}
	return code, text
}

// streamTask answers with the stream of a run of a task. The caller has reserved the slot.
func (h *a2aHandlers) streamTask(c *fiber.Ctx, call a2a.Call, begun *a2a.Task, r id.Run, f run.Follower, o answer.Options, show tasks.View) error {
	ctx := context.WithoutCancel(c.UserContext())
	key := begun.ID
	final := func() (*a2a.Task, error) { return h.composed(ctx, key, show) }
	return h.StreamForm(c, f, a2a.NewEvents(call, begun, string(r), answer.New(o), final, func(err error) (int, string) { return h.refusalInStream(ctx, err) }))
}

// composed returns a task as it is now. Reading it may take some seconds.
func (h *a2aHandlers) composed(ctx context.Context, key a2a.TaskID, show tasks.View) (*a2a.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, composeTime)
	defer cancel()
	t, err := h.tasks.Find(ctx, show.Agent, key)
	if err != nil {
		return nil, err
	}
	return h.tasks.Compose(ctx, t, show)
}

// composeTime bounds reading a task after its run has ended.
const composeTime = 30 * time.Second

// said returns the messages of a thread.
func (h *a2aHandlers) said(ctx context.Context, t id.Thread) (json.RawMessage, error) {
	v, err := h.threads.Get(ctx, t)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(gjson.GetBytes(v.Values, "messages").Raw), nil
}

// checkSpeaks refuses texts for a graph that has no channel for them.
func (h *a2aHandlers) checkSpeaks(ctx context.Context, a *assistant.Assistant) error {
	schemas, err := schemasOf(ctx, h.assistants, a)
	if err != nil {
		return err
	}
	if ok, names := a2a.Speaks(schemas); !ok {
		return &a2a.Error{Code: a2a.InvalidParams, Message: "Assistant '" + string(a.ID) + "' (graph '" + a.GraphID + "') does not support A2A conversational messages. " +
			"Graph input schema must include a 'messages' field to accept text or file parts. Available input fields: ['" + strings.Join(names, "', '") + "']"}
	}
	return nil
}

// replies returns what a message answers the questions of a task with.
func replies(t *tasks.Task, m *a2a.Sent) ([]run.Response, error) {
	switch state := t.State(); {
	case state.Terminal():
		return nil, &a2a.Error{Code: a2a.Unsupported, Message: "A terminal task cannot accept another message"}
	case state != a2a.InputRequired:
		return nil, &a2a.Error{Code: a2a.Unsupported, Message: "The task asks nothing: it is " + string(state) + ". Wait for it, or send the message without taskId"}
	}
	data, text, err := m.Reply()
	if err != nil {
		return nil, err
	}
	asked := t.Questions()
	if data == nil {
		return []run.Response{{Interrupt: asked[0].ID, Value: asked[0].Reply(text)}}, nil
	}
	// An object by the IDs of questions answers each of them.
	var all []run.Response
	if gjson.ParseBytes(data).IsObject() {
		jsonobj.Of(data).Each(func(k string, v json.RawMessage) {
			if slices.ContainsFunc(asked, func(q answer.Question) bool { return q.ID == k }) {
				all = append(all, run.Response{Interrupt: k, Value: v})
			}
		})
		if len(all) > 0 && len(all) == jsonobj.Of(data).Len() {
			return all, nil
		}
	}
	return []run.Response{{Interrupt: asked[0].ID, Value: data}}, nil
}

// taskIn reads the ID of the task of a request.
func taskIn(params gjson.Result, member string) (a2a.TaskID, error) {
	v, context := params.Get(member), params.Get("contextId")
	switch {
	case !v.Exists(), v.Type == gjson.Null, v.Type == gjson.String && v.Str == "":
		return a2a.TaskID{}, &a2a.Error{Code: a2a.InvalidParams, Message: "Missing required parameter: " + member + " (task_id)"}
	case v.Type != gjson.String, context.Exists() && context.Type != gjson.String && context.Type != gjson.Null:
		return a2a.TaskID{}, &a2a.Error{Code: a2a.InvalidParams, Message: "Task id and contextId must be strings"}
	}
	key, err := a2a.ParseTaskID(v.Str)
	if err == nil && context.Str != "" && id.Canonical(context.Str) != string(key.Thread) {
		err = a2a.NoTaskIn(key.String(), web.Bounded(context.Str, 100))
	}
	return key, err
}

// scopeOf reports whether the client wants the history of the task alone.
func scopeOf(c *fiber.Ctx) bool { return strings.EqualFold(c.Get(a2a.HistoryScope), "task") }

func (h *a2aHandlers) getTask(c *fiber.Ctx, call a2a.Call, a *assistant.Assistant) error {
	key, err := taskIn(call.Params, "id")
	if err != nil {
		return err
	}
	show := tasks.View{Agent: a, Scope: scopeOf(c), Says: true}
	if show.History, err = a2a.HistoryLength(call.Params); err != nil {
		return err
	}
	t, err := h.tasks.Find(c.UserContext(), a, key)
	if err != nil {
		return err
	}
	shown, err := h.tasks.Compose(c.UserContext(), t, show)
	if err != nil {
		return err
	}
	return web.SendJSON(c, call.AppendResult(nil, call.AppendTask(nil, shown)))
}

// namedTask returns the task that a parameter of a call names.
func (h *a2aHandlers) namedTask(ctx context.Context, call a2a.Call, a *assistant.Assistant, param string) (a2a.TaskID, *tasks.Task, error) {
	key, err := taskIn(call.Params, param)
	if err != nil {
		return key, nil, err
	}
	t, err := h.tasks.Find(ctx, a, key)
	return key, t, err
}

var errNotCancelable = &a2a.Error{Code: a2a.NotCancelable, Message: "Task is not cancelable in its current state"}

// cancelTask ends the run of a task. One that waits for an answer has no run to end.
func (h *a2aHandlers) cancelTask(c *fiber.Ctx, call a2a.Call, a *assistant.Assistant) error {
	ctx := c.UserContext()
	key, t, err := h.namedTask(ctx, call, a, "id")
	if err != nil {
		return err
	}
	if t.Last.Status.Over() {
		return errNotCancelable
	}
	if err := h.runs.Cancel(ctx, key.Thread, []id.Run{t.Last.ID}, run.CancelInterrupt, true); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	shown, err := h.composed(ctx, key, tasks.View{Agent: a, Scope: scopeOf(c)})
	if err != nil {
		return err
	}
	if shown.State != a2a.Canceled { // it ended by itself
		return errNotCancelable
	}
	return web.SendJSON(c, call.AppendResult(nil, call.AppendTask(nil, shown)))
}

// resubscribe answers with the stream of a task from its beginning. One that has ended is shown once more in version 0.3; version 1.0 has an error for it.
func (h *a2aHandlers) resubscribe(c *fiber.Ctx, call a2a.Call, a *assistant.Assistant) error {
	ctx := c.UserContext()
	key, t, err := h.namedTask(ctx, call, a, "id")
	if err != nil {
		return err
	}
	if call.V1 && t.State().Terminal() {
		return &a2a.Error{Code: a2a.Unsupported, Message: "The task has ended, and has no more events: get it"}
	}
	show := tasks.View{Agent: a, Scope: scopeOf(c)}
	begun, err := h.tasks.Compose(ctx, t, show)
	if err != nil {
		return err
	}
	if err := h.Slot(); err != nil {
		return err
	}
	f, err := h.runs.JoinStream(ctx, key.Thread, t.Last.ID, &bridge.Offset{}, nil, false)
	if err != nil {
		h.Slots.Give(1)
		return err
	}
	web.Of(c).Made(t.Last)
	return h.streamTask(c, call, begun, t.Last.ID, f, answer.Options{Live: true, Resumable: true, Resumes: true}, show)
}

// Bounds of lists of tasks.
const (
	taskPage    = 50
	maxTaskPage = 100
)

// listTasks answers with the tasks of an assistant, those that changed last first.
func (h *a2aHandlers) listTasks(c *fiber.Ctx, call a2a.Call, a *assistant.Assistant) error {
	ctx, p := c.UserContext(), call.Params
	show := tasks.View{Agent: a, Scope: !strings.EqualFold(c.Get(a2a.HistoryScope), "context"), NoArtifacts: !p.Get("includeArtifacts").Bool(), Says: true}
	var err error
	if show.History, err = a2a.HistoryLength(p); err != nil {
		return err
	}
	size := taskPage
	if v := p.Get("pageSize"); v.Exists() && v.Type != gjson.Null {
		if size = int(v.Num); v.Type != gjson.Number || v.Num < 1 || v.Num > maxTaskPage || v.Num != float64(size) {
			return &a2a.Error{Code: a2a.InvalidParams, Message: "pageSize must be an integer between 1 and " + strconv.Itoa(maxTaskPage) + "."}
		}
	}
	offset := 0
	if v := p.Get("pageToken").String(); v != "" {
		if offset, err = strconv.Atoi(v); err != nil || offset < 0 {
			return &a2a.Error{Code: a2a.InvalidParams, Message: "Invalid pageToken."}
		}
	}
	all, err := h.tasks.List(ctx, a, p)
	if err != nil {
		return err
	}
	offset = min(offset, len(all))
	page := all[offset:min(offset+size, len(all))]
	b := []byte(`{"tasks":[`)
	for i, t := range page {
		shown, err := h.tasks.Compose(ctx, t, show)
		if err != nil {
			return err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = call.AppendTask(b, shown)
	}
	next := ""
	if offset+len(page) < len(all) {
		next = strconv.Itoa(offset + len(page))
	}
	b = append(b, `],"totalSize":`+strconv.Itoa(len(all))+`,"pageSize":`+strconv.Itoa(len(page))+`,"nextPageToken":"`+next+`"}`...)
	return web.SendJSON(c, call.AppendResult(nil, b))
}

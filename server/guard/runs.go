package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"understudy/access"
	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/run/protocol"
	"understudy/run/spans"
	"understudy/run/webhook"
	"understudy/server"
)

// runs guards server.Runs.
type runs struct {
	*Guard
	inner      server.Runs
	assistants *assistants
}

var _ server.Runs = (*runs)(nil)

// may asks whether a run may be created, and lets it act as the actor. The run counts against their limit.
func (g *runs) may(ctx context.Context, t id.Thread, req *run.Request) (context.Context, error) {
	ctx, err := g.mayOne(ctx, t, req)
	if err == nil {
		err = g.pace(ctx, 1)
	}
	return ctx, err
}

// mayOne is may for one of several runs, which are counted together.
func (g *runs) mayOne(ctx context.Context, t id.Thread, req *run.Request) (context.Context, error) {
	narrow, err := g.Admit(ctx, t, req)
	if err == nil {
		err = g.assistants.use(ctx, req.AssistantID)
	}
	if err != nil {
		return nil, err
	}
	if ctx = narrow; g.hidden(ctx, t) {
		return nil, run.ErrNoThread
	}
	return ctx, nil
}

// pace counts runs that a client creates, when they may be created otherwise.
func (g *runs) pace(ctx context.Context, n int) error {
	who := access.From(ctx)
	if who == nil || who == access.System {
		return nil
	}
	return g.Pace.take(who.Identity, n)
}

// resume is may for a run of the assistant that the thread has had. On a thread that the actor cannot reach the service answers as on one that does not
// exist, and creates nothing.
func (g *runs) resume(ctx context.Context, t id.Thread, req *run.Request) (context.Context, error) {
	ctx, err := g.resumeOne(ctx, t, req)
	if err == nil {
		err = g.pace(ctx, 1)
	}
	return ctx, err
}

func (g *runs) resumeOne(ctx context.Context, t id.Thread, req *run.Request) (context.Context, error) {
	named := req.AssistantID != ""
	if err := g.continues(ctx, t, req); err != nil {
		return nil, err
	}
	ctx, err := g.Admit(ctx, t, req)
	if err != nil || req.AssistantID == "" {
		return ctx, err
	}
	if g.hidden(ctx, t) {
		if named {
			return nil, run.ErrNoThread
		}
		req.AssistantID = ""
		return ctx, nil
	}
	return ctx, g.assistants.use(ctx, req.AssistantID)
}

// continues names the assistant that the thread has had in a request without one.
func (g *Guard) continues(ctx context.Context, t id.Thread, req *run.Request) error {
	if req.AssistantID != "" {
		return nil
	}
	row, err := g.Rows.Thread(access.Everything(ctx), t)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err == nil {
		req.AssistantID = jsonobj.Of(row.Metadata).Text("assistant_id")
	}
	return err
}

// Admit asks threads.create_run for the actor of a context, applies what a handler changed, and writes the actor into the configuration of the run.
func (g *Guard) Admit(ctx context.Context, t id.Thread, req *run.Request) (context.Context, error) {
	config, err := withoutActors(req)
	if err != nil {
		return nil, err
	}
	actor := access.From(ctx)
	stamper, stamps := g.policy(ctx).(access.Stamper)
	if actor == access.System || stamps && actor != nil {
		req.Metadata, req.Actor = orEmpty(req.Metadata), actor
		if config.Len() > 0 {
			req.Config = config.JSON()
		}
		if actor == access.System {
			return ctx, nil
		}
		var f *access.Filter
		if req.Metadata, f, err = stamper.Stamp(actor, access.Threads, "create_run", req.Metadata); err != nil {
			g.denied(ctx, actor, access.Threads, "create_run", &jsonobj.Object{}, err)
			return nil, err
		}
		return access.Narrow(ctx, access.Threads, f), nil
	}
	req.ID = newID(ctx, access.Threads, "create_run", id.NewRun) // which handlers see
	kwargs := kwargsOf(t, req, config, actor)
	ctx, v, err := g.ask(ctx, access.Threads, "create_run", runCreated(t, req, kwargs))
	if err != nil {
		return nil, err
	}
	req.Metadata = metadataOf(v)
	changed, err := jsonobj.Parse(orEmpty(v.Get("kwargs")))
	if err != nil {
		return nil, errChanged
	}
	if err := applyKwargs(req, &change{asked: kwargs, now: changed}); err != nil {
		return nil, err
	}
	if config, err = jsonobj.Parse(orEmpty(changed.Get("config"))); err != nil {
		return nil, errChanged
	}
	withoutActor(config, "configurable")
	req.Config, req.Actor = config.JSON(), actor
	return ctx, nil
}

// withoutActors removes from a request what only the server may say, and returns its configuration.
func withoutActors(req *run.Request) (config *jsonobj.Object, err error) {
	if config, err = jsonobj.Parse(orEmpty(req.Config)); err != nil {
		return nil, fault.New(fault.Unprocessable, "config must be an object")
	}
	withoutActor(config, "configurable")
	req.Context = noActor(req.Context)
	return config, nil
}

// runCreated is what handlers see of a new run.
func runCreated(t id.Thread, req *run.Request, kwargs *jsonobj.Object) *jsonobj.Object {
	return object(
		"thread_id", named(string(t)), "assistant_id", jsonobj.Quote(assistantOf(req.AssistantID)), "run_id", jsonobj.Quote(string(req.ID)), "status", jsonobj.Quote("pending"), "metadata", orEmpty(req.Metadata),
		"multitask_strategy", jsonobj.Quote(string(req.Strategy)), "prevent_insert_if_inflight", encoded(req.Strategy == run.Reject), "if_not_exists", jsonobj.Quote(ifNotExists(t, req)),
		"after_seconds", encoded(req.After.Seconds()), "kwargs", kwargs.JSON())
}

// kwargsOf are the arguments of a run as handlers see them. actor is nil when it is not known yet, and goes where actorAt says.
func kwargsOf(t id.Thread, req *run.Request, config *jsonobj.Object, actor *access.Actor) *jsonobj.Object {
	configurable := jsonobj.Of(config.Get("configurable"))
	if actor != nil {
		access.WriteUser(configurable, actor)
	}
	config.Set("configurable", configurable.JSON())
	durability := cmp.Or(req.Durability, "async")
	return object(
		"input", orNull(req.Input), "command", orNull(req.Command), "config", config.JSON(), "context", orEmpty(req.Context), "stream_mode", encoded(req.Modes),
		"interrupt_before", orNull(req.InterruptBefore), "interrupt_after", orNull(req.InterruptAfter), "webhook", named(req.Webhook), "feedback_keys", orNull(req.FeedbackKeys),
		"subgraphs", encoded(req.Subgraphs), "resumable", encoded(req.Resumable), "temporary", encoded(t == "" && req.OnCompletion != "keep"),
		"durability", jsonobj.Quote(durability), "checkpoint_during", encoded(durability != "exit"))
}

// actorAt is where kwargsOf writes the actor in what handlers see of a new run.
var actorAt = []string{"kwargs", "config", "configurable"}

// applyKwargs changes a request to what a handler made of its arguments.
func applyKwargs(req *run.Request, v *change) error {
	for key, to := range map[string]*json.RawMessage{
		"input": &req.Input, "command": &req.Command, "context": &req.Context, "interrupt_before": &req.InterruptBefore, "interrupt_after": &req.InterruptAfter, "feedback_keys": &req.FeedbackKeys,
	} {
		if v.made(key) {
			if *to = v.now.Get(key); string(*to) == "null" {
				*to = nil
			}
		}
	}
	modes := req.Modes
	err := errors.Join(v.read(&modes, "stream_mode"), v.read(&req.Webhook, "webhook"), v.read(&req.Subgraphs, "subgraphs"), v.read(&req.Resumable, "resumable"), v.read(&req.Durability, "durability"))
	if err != nil || !slices.Contains([]string{"", "sync", "async", "exit"}, req.Durability) {
		return errChanged
	}
	if len(modes) > 0 {
		req.Modes = modes
	}
	return nil
}

// assistantOf is the ID of the assistant of a run, which may name a graph.
func assistantOf(idOrGraph string) string {
	if a := id.Canonical(idOrGraph); a != "" || idOrGraph == "" {
		return a
	}
	return string(id.DefaultAssistant(idOrGraph))
}

// ifNotExists is what becomes of a thread that does not exist: that of a stateless run is created.
func ifNotExists(t id.Thread, req *run.Request) string {
	if t == "" {
		return "create"
	}
	return req.IfNotExists
}

// AdmitAgain is Admit for a run without a client, such as that of a cron. A thread that the actor cannot reach any more refuses it.
func (g *Guard) AdmitAgain(ctx context.Context, t id.Thread, req *run.Request) error {
	narrow, err := g.Admit(ctx, t, req)
	if err == nil && g.hidden(narrow, t) {
		err = run.ErrNoThread
	}
	return err
}

// actorKeys are the keys of a run's configuration that only the server writes.
var actorKeys = []string{access.UserKey, access.IdentityKey, access.PermissionsKey, access.ApartKey}

// noActor returns a context or configurable of a client without what only the server may say.
func noActor(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return raw
	}
	o := jsonobj.Of(raw)
	n := o.Len()
	for _, k := range actorKeys {
		o.Delete(k)
	}
	if o.Len() == n {
		return raw
	}
	return o.JSON()
}

func withoutActor(o *jsonobj.Object, key string) {
	if raw := o.Get(key); raw != nil {
		o.Set(key, noActor(raw))
	}
}

func (g *runs) Create(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	ctx, err := g.may(ctx, t, &req)
	if err != nil {
		return nil, err
	}
	return g.inner.Create(ctx, t, req)
}

// CreateBatch asks for each run, and creates none unless all may be.
func (g *runs) CreateBatch(ctx context.Context, reqs []run.Request) ([]*run.Run, error) {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		if _, err := g.mayOne(ctx, "", &reqs[i]); err != nil {
			return nil, err
		}
	}
	if err := g.pace(ctx, len(reqs)); err != nil {
		return nil, err
	}
	return g.inner.CreateBatch(ctx, reqs) // of threads that are made now
}

func (g *runs) Begin(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error) {
	ctx, err := g.may(ctx, t, &req)
	if err != nil {
		return nil, nil, err
	}
	return g.inner.Begin(ctx, t, req)
}

func (g *runs) BeginWait(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error) {
	ctx, err := g.may(ctx, t, &req)
	if err != nil {
		return nil, nil, err
	}
	return g.inner.BeginWait(ctx, t, req)
}

func (g *runs) StartOrResume(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	ctx, err := g.may(ctx, t, &req)
	if err != nil {
		return nil, err
	}
	return g.inner.StartOrResume(ctx, t, req)
}

func (g *runs) Respond(ctx context.Context, t id.Thread, req run.Request, responses []run.Response) (*run.Run, error) {
	ctx, err := g.resume(ctx, t, &req)
	if err != nil {
		return nil, err
	}
	return g.inner.Respond(ctx, t, req, responses)
}

func (g *runs) Fork(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	ctx, err := g.resume(ctx, t, &req)
	if err != nil {
		return nil, err
	}
	return g.inner.Fork(ctx, t, req)
}

func (g *runs) Inject(ctx context.Context, t id.Thread, req run.Request, check func(id.Assistant) error) (*run.Run, error) {
	ctx, err := g.resume(ctx, t, &req)
	if err != nil {
		return nil, err
	}
	return g.inner.Inject(ctx, t, req, check)
}

func (g *runs) Get(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	return g.inner.Get(ctx, t, r)
}

func (g *runs) Completions(ctx context.Context, list ...*run.Run) (map[id.Run]*run.Completion, error) {
	asked := map[id.Thread]bool{}
	for _, r := range list {
		if asked[r.Thread] {
			continue
		}
		asked[r.Thread] = true
		if _, err := g.read(ctx, r.Thread); err != nil {
			return nil, err
		}
	}
	return g.inner.Completions(ctx, list...)
}

func (g *runs) Progress(ctx context.Context, r *run.Run) (*run.Completion, error) {
	ctx, err := g.read(ctx, r.Thread)
	if err != nil {
		return nil, err
	}
	return g.inner.Progress(ctx, r)
}

// List asks for both, as LangGraph Server does.
func (g *runs) List(ctx context.Context, t id.Thread, q run.Query) ([]*run.Run, error) {
	ctx, err := g.read(ctx, t)
	if err == nil {
		ctx, err = g.on(ctx, access.Threads, "search", "thread_id", string(t))
	}
	if err != nil {
		return nil, err
	}
	return g.inner.List(ctx, t, q)
}

// Recent asks as for a search of threads.
func (g *runs) Recent(ctx context.Context, q run.Recent) (page []*run.Run, next id.Run, err error) {
	ctx, _, err = g.ask(ctx, access.Threads, "search", anyThreads())
	if err != nil {
		return nil, "", err
	}
	return g.inner.Recent(ctx, q)
}

// Spans asks as for reading the run.
func (g *runs) Spans(ctx context.Context, r id.Run) (*run.Run, []spans.Span, error) {
	ctx, err := g.read(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	return g.inner.Spans(ctx, r)
}

// Newest asks as for the search that has found the threads.
func (g *runs) Newest(ctx context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error {
	ctx, _, err := g.ask(ctx, access.Threads, "search", anyThreads())
	if err != nil {
		return err
	}
	return g.inner.Newest(ctx, threads, limit, fn)
}

// runDeleted is what handlers see of the end of a run.
func runDeleted(t id.Thread, r id.Run) json.RawMessage {
	return object("thread_id", jsonobj.Quote(string(t)), "run_id", jsonobj.Quote(string(r))).JSON()
}

func (g *runs) Delete(ctx context.Context, t id.Thread, r id.Run) error {
	ctx, err := g.about(ctx, access.Threads, "delete", func() json.RawMessage { return runDeleted(t, r) })
	if err != nil {
		return err
	}
	return g.inner.Delete(ctx, t, r)
}

func (g *runs) Join(ctx context.Context, t id.Thread, r id.Run) (run.Follower, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	return g.inner.Join(ctx, t, r)
}

func (g *runs) JoinStream(ctx context.Context, t id.Thread, r id.Run, after *bridge.Offset, modes []string, cancelOnLeave bool) (run.Follower, error) {
	ctx, err := g.read(ctx, t)
	if err == nil && t != "" {
		err = g.exists(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	return g.inner.JoinStream(ctx, t, r, after, modes, cancelOnLeave)
}

// errNoThread is the error of streams of a thread that the actor does not have.
var errNoThread = fault.New(fault.NotFound, "Thread not found")

// exists returns errNoThread unless a thread exists for the actor.
func (g *runs) exists(ctx context.Context, t id.Thread) error {
	if access.From(ctx) == access.System {
		return nil
	}
	_, err := g.Rows.Thread(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return errNoThread
	}
	return err
}

func (g *runs) StreamThread(ctx context.Context, t id.Thread, after *bridge.Offset, modes []string) (run.Follower, error) {
	ctx, err := g.read(ctx, t)
	if err == nil {
		err = g.exists(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	return g.inner.StreamThread(ctx, t, after, modes)
}

// StreamEvents follows a thread that may not exist yet. One that is hidden has no events for the actor: it is followed under an id that nothing has.
func (g *runs) StreamEvents(ctx context.Context, t id.Thread, filter protocol.Filter) (run.Follower, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	if g.hidden(ctx, t) {
		t = id.NewThread()
	}
	return g.inner.StreamEvents(ctx, t, filter)
}

func (g *runs) FollowEvents(ctx context.Context, t id.Thread, filters ...protocol.Filter) (protocol.Follower, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return nil, err
	}
	if g.hidden(ctx, t) {
		t = id.NewThread()
	}
	return g.inner.FollowEvents(ctx, t, filters...)
}

func (g *runs) Seen(ctx context.Context, t id.Thread) (int64, error) {
	ctx, err := g.read(ctx, t)
	if err != nil {
		return 0, err
	}
	if g.hidden(ctx, t) {
		return 0, nil
	}
	return g.inner.Seen(ctx, t)
}

func (g *runs) SetPush(ctx context.Context, t id.Thread, r id.Run, change func(list []webhook.Push, over bool) ([]webhook.Push, error)) error {
	ctx, err := g.on(ctx, access.Threads, "update", "thread_id", string(t))
	if err != nil {
		return err
	}
	return g.inner.SetPush(ctx, t, r, change)
}

// cancelled is what handlers see of a cancel.
func cancelled(t id.Thread, ids []id.Run, status string, action run.Action) *jsonobj.Object {
	list := json.RawMessage(nil)
	if len(ids) > 0 {
		list = encoded(ids)
	}
	return object("thread_id", named(string(t)), "action", jsonobj.Quote(string(action)), "metadata", object("run_ids", list, "status", named(status)).JSON())
}

func (g *runs) Cancel(ctx context.Context, t id.Thread, ids []id.Run, action run.Action, wait bool) error {
	ctx, err := g.about(ctx, access.Threads, "update", func() json.RawMessage { return cancelled(t, ids, "", action).JSON() })
	if err != nil {
		return err
	}
	return g.inner.Cancel(ctx, t, ids, action, wait)
}

// CancelAll cancels the actor's own runs.
func (g *runs) CancelAll(ctx context.Context, status string, action run.Action) error {
	ctx, _, err := g.ask(ctx, access.Threads, "update", cancelled("", nil, status, action))
	if err != nil {
		return err
	}
	return g.inner.CancelAll(ctx, status, action)
}

// CountActive asks as for the cancel of what it counts.
func (g *runs) CountActive(ctx context.Context, of run.Active) (run.ActiveCount, error) {
	ctx, err := g.activeOf(ctx, of, run.CancelInterrupt)
	if err != nil {
		return run.ActiveCount{}, err
	}
	return g.inner.CountActive(ctx, of)
}

// CancelSome cancels the actor's own runs.
func (g *runs) CancelSome(ctx context.Context, of run.Active, above id.Thread, action run.Action) (cancelled int, last id.Thread, err error) {
	if ctx, err = g.activeOf(ctx, of, action); err != nil {
		return 0, "", err
	}
	return g.inner.CancelSome(ctx, of, above, action)
}

// activeOf asks as CancelAll does.
func (g *runs) activeOf(ctx context.Context, of run.Active, action run.Action) (context.Context, error) {
	ctx, _, err := g.ask(ctx, access.Threads, "update", activeCancelled(of, action))
	return ctx, err
}

// activeCancelled is what handlers see of a cancel of many runs.
func activeCancelled(of run.Active, action run.Action) *jsonobj.Object {
	return cancelled("", nil, cmp.Or(string(of.Status), "all"), action)
}

// Queue and Load are of the server.
func (g *runs) Queue(ctx context.Context) (run.Queue, error) { return g.inner.Queue(ctx) }
func (g *runs) Load() (most, used int)                       { return g.inner.Load() }

package proxy

import (
	"context"
	"log/slog"
	"runtime/debug"

	"understudy/eventstore/overlay"
	"understudy/id"
)

// guarded keeps a Recorder that panics from breaking a call: its input passes unchanged. A Run that has panicked is not called again.
type guarded struct {
	r   Recorder
	log *slog.Logger
}

// caught is deferred around a call of the recorder. After a panic it calls then.
func (g guarded) caught(what string, then func()) {
	if p := recover(); p != nil {
		g.log.Error("panic while recording; response passed unchanged", "in", what, "panic", p, "stack", string(debug.Stack()))
		then()
	}
}

func (g guarded) State(ctx context.Context, c *Call, t id.Thread, live bool, body []byte) (out []byte) {
	defer g.caught("state", func() { out = body })
	return g.r.State(ctx, c, t, live, body)
}

func (g guarded) History(ctx context.Context, c *Call, t id.Thread, body []byte) (out []byte, entries int, partial bool) {
	defer g.caught("history", func() { out, entries, partial = body, 0, false })
	return g.r.History(ctx, c, t, body)
}

func (g guarded) Threads(ctx context.Context, c *Call, body []byte) (out []byte) {
	defer g.caught("threads", func() { out = body })
	return g.r.Threads(ctx, c, body)
}

func (g guarded) Begin(ctx context.Context, c *Call, t id.Thread, body []byte) (x Run, out []byte) {
	defer g.caught("begin", func() { x, out = nil, body })
	x, out = g.r.Begin(ctx, c, t, body)
	return g.run(x), out
}

func (g guarded) Join(ctx context.Context, c *Call, t id.Thread, r id.Run) (x Run) {
	defer g.caught("join", func() { x = nil })
	return g.run(g.r.Join(ctx, c, t, r))
}

func (g guarded) Watch(ctx context.Context, c *Call, t id.Thread) (x Run) {
	defer g.caught("watch", func() { x = nil })
	return g.run(g.r.Watch(ctx, c, t))
}

func (g guarded) Update(ctx context.Context, c *Call, t id.Thread, body []byte) (u Update, out []byte) {
	defer g.caught("update", func() { u, out = nil, body })
	u, out = g.r.Update(ctx, c, t, body)
	if u == nil {
		return nil, out
	}
	return guardedUpdate{g, u}, out
}

func (g guarded) Input(ctx context.Context, c *Call, t id.Thread, body []byte) (u Update, out []byte) {
	defer g.caught("input", func() { u, out = nil, body })
	u, out = g.r.Input(ctx, c, t, body)
	if u == nil {
		return nil, out
	}
	return guardedUpdate{g, u}, out
}

func (g guarded) Gone(ctx context.Context, t id.Thread) {
	defer g.caught("gone", func() {})
	g.r.Gone(ctx, t)
}

func (g guarded) run(x Run) Run {
	if x == nil {
		return nil
	}
	return &guardedRun{g: g, x: x}
}

type guardedRun struct {
	g      guarded
	x      Run
	broken bool
}

func (r *guardedRun) fail() { r.broken = true }

func (r *guardedRun) Created(ctx context.Context, run []byte) {
	defer r.g.caught("created", r.fail)
	if !r.broken {
		r.x.Created(ctx, run)
	}
}

func (r *guardedRun) Result(ctx context.Context, body []byte) (out []byte) {
	if r.broken {
		return body
	}
	defer r.g.caught("result", func() { r.fail(); out = body })
	return r.x.Result(ctx, body)
}

func (r *guardedRun) Event(ctx context.Context, event string, data []byte) (out []byte, fate overlay.Fate) {
	if r.broken {
		return nil, overlay.Shown
	}
	defer r.g.caught("event", func() { r.fail(); out, fate = nil, overlay.Shown })
	return r.x.Event(ctx, event, data)
}

func (r *guardedRun) Ended() {
	defer r.g.caught("ended", r.fail)
	r.x.Ended()
}

func (r *guardedRun) End(ctx context.Context) {
	defer r.g.caught("end", r.fail)
	r.x.End(ctx)
}

type guardedUpdate struct {
	g guarded
	u Update
}

func (u guardedUpdate) Done(ctx context.Context, answer []byte) {
	defer u.g.caught("done", func() {})
	u.u.Done(ctx, answer)
}

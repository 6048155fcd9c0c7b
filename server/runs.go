package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/cursor"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/internal/web"
)

// runHandlers serve runs, on threads and without.
type runHandlers struct {
	*web.Transport
	*web.Completer
	runs    Runs
	guarded bool // runs that a caller may not see are answered as absent
	cursors *cursor.Sealer
	ratings *Ratings // nil: feedback keys get no addresses
	// addressed is how the client reaches this server.
	addressed func(c *fiber.Ctx) (scheme, host string)
	gateway   bool // DeerFlow's API is served
}

func (h *runHandlers) routes(route register) {
	route("POST", "/threads/{thread_id}/runs", h.createRun(false))
	route("POST", "/threads/{thread_id}/runs/stream", h.startRun(false, false))
	route("POST", "/threads/{thread_id}/runs/wait", h.startRun(false, true))
	route("GET", "/threads/{thread_id}/runs", withThread(h.listRuns))
	route("GET", "/threads/{thread_id}/runs/{run_id}", withRun(func(c *fiber.Ctx, t id.Thread, r id.Run) error {
		x, err := h.runs.Get(c.UserContext(), t, r)
		if err != nil {
			return err
		}
		return web.SendJSON(c, compat.AppendRun(nil, x, nil))
	}))
	route("DELETE", "/threads/{thread_id}/runs/{run_id}", withRun(func(c *fiber.Ctx, t id.Thread, r id.Run) error {
		if err := h.runs.Delete(c.UserContext(), t, r); err != nil {
			return err
		}
		return web.SendNothing(c)
	}))
	route("GET", "/threads/{thread_id}/runs/{run_id}/join", withRun(h.joinRun))
	route("GET", "/threads/{thread_id}/runs/{run_id}/stream", withRun(h.joinStream))
	route("POST", "/threads/{thread_id}/runs/{run_id}/cancel", withRun(h.cancelRun))

	route("GET", "/understudy/runs", h.recentRuns)
	route("GET", "/understudy/runs/count", h.countActive)
	route("POST", "/understudy/runs/cancel", h.cancelSome)

	route("POST", "/runs", h.createRun(true))
	route("POST", "/runs/stream", h.startRun(true, false))
	route("POST", "/runs/wait", h.startRun(true, true))
	route("POST", "/runs/batch", h.createRuns)
	route("POST", "/runs/cancel", h.cancelRuns)
	// The Location of a stateless stream. On this route the run is identified by its id alone.
	route("GET", "/runs/{run_id}/stream", func(c *fiber.Ctx) error {
		r, err := compat.RunID(web.Param(c, "run_id"))
		if err != nil {
			return err
		}
		return h.joinStream(c, "", r)
	})
}

func withRun(h func(*fiber.Ctx, id.Thread, id.Run) error) fiber.Handler {
	return withThread(func(c *fiber.Ctx, t id.Thread) error {
		r, err := compat.RunID(web.Param(c, "run_id"))
		if err != nil {
			return err
		}
		return h(c, t, r)
	})
}

// runPath returns the path of a run.
func runPath(t id.Thread, r id.Run) string {
	if t == "" {
		return "/runs/" + string(r)
	}
	return "/threads/" + string(t) + "/runs/" + string(r)
}

// locate sets the headers with the path of a created or joined run. With a suffix, also the path to reconnect to.
func locate(c *fiber.Ctx, path, suffix string) {
	c.Set("Content-Location", path)
	if suffix != "" {
		c.Set(fiber.HeaderLocation, path+suffix)
		expose(c, "location") // without it, SDKs in browsers cannot reconnect to a stream that was cut off
	}
}

// runThread reads the thread of a new run; empty when it is stateless. followed reports that the client waits for the stream or the
// result.
func runThread(c *fiber.Ctx, stateless, followed bool) (id.Thread, error) {
	switch {
	case stateless:
		return "", nil
	case followed:
		return compat.PlainThreadID(web.Param(c, "thread_id"))
	}
	return compat.RunThreadID(web.Param(c, "thread_id"))
}

// createRun creates a background run.
func (h *runHandlers) createRun(stateless bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		t, err := runThread(c, stateless, false)
		if err != nil {
			return err
		}
		return h.WithBody(c, func(body []byte) error {
			req, err := compat.NewRun(body, compat.RunForm{Stateless: stateless})
			if err != nil {
				return err
			}
			if err := h.Complete(c, &req); err != nil {
				return err
			}
			if req.Key, err = idempotencyKey(c, "run", t, body); err != nil {
				return err
			}
			x, err := h.runs.Create(c.UserContext(), t, req)
			if err != nil {
				return err
			}
			web.Of(c).Made(x)
			repeated(c, req.Key)
			locate(c, runPath(t, x.ID), "")
			return web.SendJSON(c, compat.AppendRun(nil, x, nil))
		})
	}
}

// startRun creates a run and answers with its stream, or if wait is set with its result.
func (h *runHandlers) startRun(stateless, wait bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		t, err := runThread(c, stateless, true)
		if err != nil {
			return err
		}
		return h.WithBody(c, func(body []byte) error {
			req, err := compat.NewRun(body, compat.RunForm{Stateless: stateless, Followed: true})
			if err != nil {
				return err
			}
			if err := h.Complete(c, &req); err != nil {
				return err
			}
			if req.Key, err = idempotencyKey(c, "run", t, body); err != nil {
				return err
			}
			if err := h.Slot(); err != nil {
				return err
			}
			begin := h.runs.Begin
			if wait {
				begin = h.runs.BeginWait
			}
			x, f, err := begin(c.UserContext(), t, req)
			if err != nil {
				h.Slots.Give(1)
				return err
			}
			web.Of(c).Made(x)
			repeated(c, req.Key)
			f = h.rated(c, x, f)
			if wait {
				// Unlike a stream, a stateless wait names the thread created for it.
				locate(c, runPath(x.Thread, x.ID), "/join")
				return h.WaitResult(c, f, compat.AppendResult)
			}
			if err := f.EnsureDurable(c.UserContext()); err != nil {
				f.Close(false)
				h.Slots.Give(1)
				return err
			}
			locate(c, runPath(t, x.ID), "/stream")
			return h.StreamEvents(c, f, kept)
		})
	}
}

// kept reports whether to show a record's id: only records that can be replayed have a usable one.
func kept(r *bridge.Record) bool { return r.Kept }

func (h *runHandlers) createRuns(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		reqs, err := compat.NewRuns(body)
		if err != nil {
			return err
		}
		for i := range reqs {
			if err := h.Complete(c, &reqs[i]); err != nil {
				return err
			}
		}
		if reqs[0].Key, err = idempotencyKey(c, "runs", "", body); err != nil {
			return err
		}
		runs, err := h.runs.CreateBatch(c.UserContext(), reqs)
		if err != nil {
			return err
		}
		repeated(c, reqs[0].Key)
		return sendRuns(c, runs, nil)
	})
}

func sendRuns(c *fiber.Ctx, runs []*run.Run, cols compat.Columns) error {
	return web.SendJSON(c, compat.AppendList(nil, runs, func(dst []byte, x *run.Run) []byte { return compat.AppendRun(dst, x, cols) }))
}

func (h *runHandlers) listRuns(c *fiber.Ctx, t id.Thread) error {
	q := run.Query{Limit: 10}
	var err error
	if limit := web.Given(c, "limit"); limit != nil {
		if q.Limit, err = compat.Limit(*limit, "limit"); err != nil {
			return err
		}
	}
	if offset := web.Given(c, "offset"); offset != nil {
		if q.Offset, err = compat.Limit(*offset, "offset"); err != nil {
			return err
		}
	}
	cols, err := compat.RunColumns(web.Queries(c, "select"))
	if err != nil {
		return err
	}
	q.Limit = min(q.Limit, 1000)
	none := q.Limit == 0 // services take 0 as no limit
	if status := web.Given(c, "status"); status != nil {
		q.Status = run.Status(*status)
		none = none || q.Status == "" // no run has it; services take it as any
	}
	if none {
		q.Limit = 1
	}
	q.Bytes = web.WholeBytes
	runs, err := h.runs.List(c.UserContext(), t, q)
	if err != nil {
		return err
	}
	if none {
		runs = nil
	}
	return h.SendList(c, web.Each(runs, func(ctx context.Context, dst []byte, x *run.Run) (_ []byte, err error) {
		if x.Left {
			if x, err = h.runs.Get(ctx, t, x.ID); err != nil {
				return nil, web.PassOver(err)
			}
		}
		return compat.AppendRun(slices.Grow(dst, len(x.Kwargs.Input)+1024), x, cols), nil
	}))
}

// recentRuns lists the runs of all threads, newest first.
func (h *runHandlers) recentRuns(c *fiber.Ctx) error {
	q, err := compat.RecentQuery(queriesOf(c, h.cursors))
	if err != nil {
		return err
	}
	var next id.Run
	page, err := web.WhileConnected(c, func(ctx context.Context) (page []*run.Run, err error) {
		page, next, err = h.runs.Recent(ctx, q)
		return page, err
	})
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendRecent(nil, page, h.cursors.Seal(string(next)), time.Now()))
}

// countActive answers how many runs cancelSome would cancel.
func (h *runHandlers) countActive(c *fiber.Ctx) error {
	of, err := compat.ActiveQuery(queriesOf(c, nil))
	if err != nil {
		return err
	}
	n, err := web.WhileConnected(c, func(ctx context.Context) (run.ActiveCount, error) { return h.runs.CountActive(ctx, of) })
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendActiveCount(nil, n))
}

// cancelSome cancels runs of all threads that a filter selects, those of some threads with each call.
func (h *runHandlers) cancelSome(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		x, err := compat.CancelSome(body, h.cursors.Open)
		if err != nil {
			return err
		}
		n, last, err := h.runs.CancelSome(c.UserContext(), x.Of, x.Above, compat.CancelAction(c.Query("action")))
		if err != nil {
			return err
		}
		x.Above = last
		return web.SendJSON(c, compat.AppendCancelled(nil, n, h.cursors.Seal(x.Next())))
	})
}

// joinRun answers with the result of a run once it is over. An unknown run is reported in the result.
func (h *runHandlers) joinRun(c *fiber.Ctx, t id.Thread, r id.Run) error {
	if err := h.Slot(); err != nil {
		return err
	}
	f, err := h.runs.Join(c.UserContext(), t, r)
	if err != nil && (h.guarded || !fault.Is(err, fault.NotFound)) { // with authentication the thread is looked for first
		h.Slots.Give(1)
		return err
	}
	locate(c, runPath(t, r), "/join")
	if err != nil {
		web.Of(c).Miss(c)
		h.Slots.Give(1)
		return web.SendJSON(c, compat.AppendError(nil, compat.HTTPError(404, "Run not found")))
	}
	return h.WaitResult(c, leaver{h.joined(c, f), compat.True(c.Query("cancel_on_disconnect")), h.canceller(c.UserContext(), t, r)}, compat.AppendResult)
}

// joinStream streams the records of a run. An unknown run is reported as an event.
func (h *runHandlers) joinStream(c *fiber.Ctx, t id.Thread, r id.Run) error {
	if err := h.Slot(); err != nil {
		return err
	}
	f, err := h.runs.JoinStream(c.UserContext(), t, r, compat.RunOffset(c.Get("Last-Event-Id")), compat.JoinModes(web.Queries(c, "stream_mode")), compat.True(c.Query("cancel_on_disconnect")))
	if f, err = orAbsent(f, err); err != nil {
		h.Slots.Give(1)
		return err
	}
	if _, none := f.(*absent); none {
		web.Of(c).Miss(c)
	}
	locate(c, runPath(t, r), "/stream")
	return h.StreamEvents(c, h.joined(c, f), kept)
}

// errNoThreadHere is the error for a run that is joined through a thread that the caller does not have.
var errNoThreadHere = fault.New(fault.NotFound, "Thread not found")

// orAbsent returns a follower in place of errors that a stream reports as its only event: that there is nothing to follow, or that the caller may not.
func orAbsent(f run.Follower, err error) (run.Follower, error) {
	refusal := (*access.Refusal)(nil)
	switch {
	case errors.As(err, &refusal):
		return &absent{data: compat.HTTPError(refusal.Status, refusal.Text())}, nil
	case fault.Is(err, fault.NotFound) && err.Error() == errNoThreadHere.Message:
		return &absent{data: compat.HTTPError(404, errNoThreadHere.Message)}, nil
	case fault.Is(err, fault.NotFound):
		return &absent{data: compat.HTTPError(404, "Run not found")}, nil
	}
	return f, err
}

// absent follows a run that does not exist. Its only event is an error.
type absent struct {
	data json.RawMessage
	sent bool
}

// Next implements run.Follower.
func (a *absent) Next(context.Context) ([]*bridge.Record, error) {
	if a.sent {
		return nil, io.EOF
	}
	a.sent = true
	return []*bridge.Record{{Event: "error", Data: a.data, Ephemeral: true}}, nil
}

// Result implements run.Follower.
func (*absent) Result(context.Context) (run.Result, error) {
	return run.Result{}, fault.New(fault.NotFound, "Run not found")
}

// EnsureDurable implements run.Follower.
func (*absent) EnsureDurable(context.Context) error { return nil }

// Close implements run.Follower.
func (*absent) Close(bool) {}

// leaver cancels a run when its reader leaves (?cancel_on_disconnect=true).
type leaver struct {
	run.Follower
	wanted bool
	cancel func()
}

func (l leaver) Close(left bool) {
	l.Follower.Close(left)
	if left && l.wanted {
		l.cancel()
	}
}

// canceller returns a function that interrupts a run if it has not ended, on behalf of the actor of ctx.
func (h *runHandlers) canceller(ctx context.Context, t id.Thread, r id.Run) func() {
	ctx = access.With(h.Requests, access.From(ctx)) // the request has ended by then
	return func() {
		if t == "" {
			return
		}
		if err := h.runs.Cancel(ctx, t, []id.Run{r}, run.CancelInterrupt, false); err != nil && !fault.Is(err, fault.NotFound) {
			h.Log.Error("cancel after disconnect failed", "thread_id", t, "run_id", r, "error", err)
		}
	}
}

func (h *runHandlers) cancelRun(c *fiber.Ctx, t id.Thread, r id.Run) error {
	wait := compat.True(c.Query("wait"))
	if err := h.runs.Cancel(c.UserContext(), t, []id.Run{r}, compat.CancelAction(c.Query("action")), wait); err != nil {
		return err
	}
	if !wait {
		c.Status(fiber.StatusAccepted).Response().ResetBody()
		return nil
	}
	locate(c, runPath(t, r), "/join")
	return web.SendJSON(c, []byte("{}"))
}

func (h *runHandlers) cancelRuns(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		x, err := compat.CancelRuns(body)
		if err != nil {
			return err
		}
		action := compat.CancelAction(c.Query("action"))
		if x.Status != "" {
			err = h.runs.CancelAll(c.UserContext(), x.Status, action)
		} else {
			err = h.runs.Cancel(c.UserContext(), x.Thread, x.Runs, action, false)
		}
		if err != nil {
			return err
		}
		return web.SendNothing(c)
	})
}

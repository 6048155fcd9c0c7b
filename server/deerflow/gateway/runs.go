package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
	"understudy/thread"
)

// runHandlers serve the runs of threads.
type runHandlers struct {
	*base
	*web.Completer
	*ownership
	*states
}

func (s *runHandlers) routes() {
	const runs = "/threads/{thread_id}/runs"
	s.handle("POST", runs, members, s.onThread(s.withRun(s.backgroundRun)))
	s.handle("POST", runs+"/stream", members, s.onThread(s.withRun(s.streamRun)))
	s.handle("POST", runs+"/wait", members, s.onThread(s.withRun(s.waitRun)))
	s.handle("POST", "/runs/stream", members, s.withRun(s.streamRun))
	s.handle("POST", "/runs/wait", members, s.withRun(s.waitRun))
	s.handle("GET", runs, members, s.ownThread(s.listRuns))
	s.handle("GET", runs+"/{run_id}", members, s.ownRun(func(c *fiber.Ctx, _ *caller, x *run.Run) error {
		return s.sendRun(c, x)
	}))
	s.handle("POST", runs+"/{run_id}/cancel", members, s.onThread(s.ownRun(s.cancelRun)))
	s.handle("GET", runs+"/{run_id}/join", members, s.ownRun(s.joinRun))
	s.handle("GET", runs+"/{run_id}/stream", members, s.ownRun(s.joinRun))
	s.handle("POST", runs+"/{run_id}/stream", members, s.ownRun(s.cancelAndStream))
}

// newRun is a run to be created.
type newRun struct {
	thread *thread.View
	alone  bool // the thread was made for this run, and its client does not know it yet
	req    run.Request
}

// withRun reads a request for a run, and makes its thread when it is missing.
func (s *runHandlers) withRun(h func(c *fiber.Ctx, n *newRun) error) handler {
	return func(c *fiber.Ctx, who *caller) error {
		set, err := s.DeerFlow.Settings()
		if err != nil {
			return err
		}
		return s.WithBody(c, func(body []byte) error {
			if err := jsonOnly(c, body); err != nil {
				return err
			}
			b, err := deerflow.ReadRun(body, set, who.id, web.Param(c, "thread_id"))
			if err != nil {
				return err
			}
			if b.Checkpoint != "" && id.Canonical(b.Checkpoint) != b.Checkpoint {
				return noCheckpoint(b.Checkpoint)
			}
			req, err := compat.NewRun(b.LangGraph, compat.RunForm{Followed: true})
			if err != nil {
				return err
			}
			req.KeepUndone = true
			req.Tentative = gjson.GetBytes(req.Metadata, "replay_kind").String() == editReplay
			if err := s.DeerFlow.Describe(set, who.id, &req); err != nil {
				return err
			}
			if err := s.Complete(c, &req); err != nil {
				return err
			}
			named := cmp.Or(web.Param(c, "thread_id"), b.Thread)
			v, err := s.threadFor(c, who, named, b.Checkpoint)
			if err != nil {
				return err
			}
			return h(c, &newRun{v, named == "", req})
		})
	}
}

// threadFor returns the thread of a new run; t "" is a new one. It makes the thread when it is missing, except for a run from a checkpoint, which must exist.
func (s *runHandlers) threadFor(c *fiber.Ctx, who *caller, t, checkpoint string) (*thread.View, error) {
	switch {
	case checkpoint == "":
		return s.ensure(c, who, cmp.Or(id.Thread(t), id.NewThread()), nil)
	case t == "":
		return nil, noCheckpoint(checkpoint)
	}
	v, err := s.owned(c, who, t)
	if err == nil {
		err = s.checkpoint(c, v.ID, checkpoint)
	}
	return v, err
}

// runPath is where a run is found.
func runPath(x *run.Run) string {
	return "/api/threads/" + string(x.Thread) + "/runs/" + string(x.ID)
}

// refused explains why a run was not created, as the Gateway does. A thread that was made for it alone is deleted.
func (s *runHandlers) refused(c *fiber.Ctx, n *newRun, err error) error {
	if n.alone {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), time.Minute) // also for a client that has left
		defer cancel()
		if failed := s.Threads.Delete(ctx, n.thread.ID); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	if fault.Is(err, fault.Conflict) {
		return fault.Wrap(fault.Conflict, "Thread is already running a task. Wait for it to finish or choose another multitask strategy.", err)
	}
	return err
}

func (s *runHandlers) backgroundRun(c *fiber.Ctx, n *newRun) error {
	x, err := s.Runs.Create(c.UserContext(), n.thread.ID, n.req)
	if err != nil {
		return s.refused(c, n, err)
	}
	web.Of(c).Made(x)
	c.Set("Content-Location", runPath(x))
	return s.sendRun(c, x)
}

func (s *runHandlers) streamRun(c *fiber.Ctx, n *newRun) error {
	c.Set(fiber.HeaderCacheControl, web.AsItIs)
	if err := s.Slot(); err != nil {
		return s.refused(c, n, err)
	}
	x, f, err := s.Runs.Begin(c.UserContext(), n.thread.ID, n.req)
	if err != nil {
		s.Slots.Give(1)
		return s.refused(c, n, err)
	}
	web.Of(c).Made(x)
	if err := f.EnsureDurable(c.UserContext()); err != nil {
		f.Close(false)
		s.Slots.Give(1)
		return err
	}
	c.Set("Content-Location", runPath(x))
	return s.StreamForm(c, f, &deerflow.Stream{Run: x})
}

// waitRun answers with the values at the end, of a run that failed too: the error is in the run.
func (s *runHandlers) waitRun(c *fiber.Ctx, n *newRun) error {
	if err := s.Slot(); err != nil {
		return s.refused(c, n, err)
	}
	ctx := c.UserContext()
	x, f, err := s.Runs.BeginWait(ctx, n.thread.ID, n.req)
	if err != nil {
		s.Slots.Give(1)
		return s.refused(c, n, err)
	}
	web.Of(c).Made(x)
	c.Set("Content-Location", runPath(x))
	return s.WaitResult(c, f, func(dst []byte, res run.Result) []byte {
		if len(res.Error) == 0 {
			return compat.AppendResult(dst, res)
		}
		v, err := s.Threads.Get(ctx, x.Thread)
		if err == nil && len(v.Values) > 0 && v.Values[0] == '{' {
			return append(dst, v.Values...)
		}
		o := &jsonobj.Object{}
		o.SetText("status", string(run.Error))
		o.Set("error", res.Error)
		return append(dst, o.JSON()...)
	})
}

func (s *runHandlers) sendRun(c *fiber.Ctx, x *run.Run) error {
	done, err := s.Runs.Completions(c.UserContext(), x)
	if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.Run(x, done[x.ID]))
}

const maxRuns = 100

func (s *runHandlers) listRuns(c *fiber.Ctx, _ *caller, t string) error {
	list, err := s.Runs.List(c.UserContext(), id.Thread(t), run.Query{Limit: maxRuns})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	out, err := s.runForms(c, list)
	if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.Of(out))
}

// runForms returns runs as the Gateway shows them.
func (s *runHandlers) runForms(c *fiber.Ctx, list []*run.Run) ([]json.RawMessage, error) {
	done, err := s.Runs.Completions(c.UserContext(), list...)
	if err != nil {
		return nil, err
	}
	out := make([]json.RawMessage, len(list))
	for i, x := range list {
		out[i] = deerflow.Run(x, done[x.ID])
	}
	return out, nil
}

func (s *runHandlers) cancelRun(c *fiber.Ctx, _ *caller, x *run.Run) error {
	f := query(c, "wait", "action")
	wait := f.Bool("wait", false)
	f.Among("action", "interrupt", "rollback")
	if err := f.Err(); err != nil {
		return err
	}
	if x.Status.Over() {
		return deerflow.NotCancellable(x)
	}
	if err := s.cancelOwn(c, x, wait); err != nil {
		return err
	}
	if wait {
		return web.SendNothing(c)
	}
	c.Status(http.StatusAccepted).Response().ResetBody()
	return nil
}

// cancelAndStream cancels a run on request, and streams what is left of it.
func (s *runHandlers) cancelAndStream(c *fiber.Ctx, who *caller, x *run.Run) error {
	f := query(c, "action", "wait")
	f.Among("action", "interrupt", "rollback")
	wait := f.Int("wait", 0, math.MinInt, math.MaxInt) != 0
	if err := f.Err(); err != nil {
		return err
	}
	if !f.Has("action") {
		return s.joinRun(c, who, x)
	}
	if x.Status.Over() {
		return deerflow.NotCancellable(x)
	}
	if err := s.cancelOwn(c, x, wait); err != nil {
		return err
	}
	if wait {
		return web.SendNothing(c)
	}
	return s.joinRun(c, who, x)
}

// cancelOwn cancels a run. One that has ended meanwhile is refused.
func (s *runHandlers) cancelOwn(c *fiber.Ctx, x *run.Run, wait bool) error {
	err := s.Runs.Cancel(c.UserContext(), x.Thread, []id.Run{x.ID}, compat.CancelAction(c.Query("action")), wait)
	if fault.Is(err, fault.NotFound) {
		now, err := s.findRun(c, string(x.Thread), string(x.ID))
		if err != nil {
			return err
		}
		return deerflow.NotCancellable(now)
	}
	return err
}

// joinRun streams a run from its first kept record, or behind the one that the client has.
func (s *runHandlers) joinRun(c *fiber.Ctx, _ *caller, x *run.Run) error {
	c.Set(fiber.HeaderCacheControl, web.AsItIs)
	if err := s.Slot(); err != nil {
		return err
	}
	after := compat.RunOffset(c.Get("Last-Event-Id"))
	if after == nil {
		after = &bridge.Offset{}
	}
	cancel := compat.True(c.Query("cancel_on_disconnect"))
	f, err := s.Runs.JoinStream(c.UserContext(), x.Thread, x.ID, after, compat.JoinModes(web.Queries(c, "stream_mode")), cancel)
	if err != nil {
		s.Slots.Give(1)
		return err
	}
	c.Set("Content-Location", runPath(x))
	return s.StreamForm(c, f, &deerflow.Stream{Run: x})
}

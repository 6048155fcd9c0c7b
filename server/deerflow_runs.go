package server

import (
	"encoding/json"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/thread"
)

func (s gateway) runRoutes() {
	const runs = "/threads/{thread_id}/runs"
	s.handle("POST", runs, members, s.onThread(s.gatewayRun(s.backgroundRun)))
	s.handle("POST", runs+"/stream", members, s.onThread(s.gatewayRun(s.streamRun)))
	s.handle("POST", runs+"/wait", members, s.onThread(s.gatewayRun(s.waitRun)))
	s.handle("POST", "/runs/stream", members, s.gatewayRun(s.streamRun))
	s.handle("POST", "/runs/wait", members, s.gatewayRun(s.waitRun))
	s.handle("GET", runs, members, s.ownThread(s.listGatewayRuns))
	s.handle("GET", runs+"/{run_id}", members, s.ownRun(func(c *fiber.Ctx, _ *gatewayCaller, x *run.Run) error {
		return s.sendGatewayRun(c, x)
	}))
	s.handle("POST", runs+"/{run_id}/cancel", members, s.ownRun(s.cancelGatewayRun))
	s.handle("GET", runs+"/{run_id}/join", members, s.ownRun(s.joinGatewayRun))
	s.handle("GET", runs+"/{run_id}/stream", members, s.ownRun(s.joinGatewayRun))
	s.handle("POST", runs+"/{run_id}/stream", members, s.ownRun(func(c *fiber.Ctx, who *gatewayCaller, x *run.Run) error {
		if c.Query("action") != "" && !x.Status.Over() {
			if err := s.cancelOwn(c, x, false); err != nil {
				return err
			}
		}
		return s.joinGatewayRun(c, who, x)
	}))
}

// onThread reads the thread of the path before the body, and refuses another user's.
func (s gateway) onThread(h gatewayHandler) gatewayHandler {
	return s.ownThread(func(c *fiber.Ctx, who *gatewayCaller, _ string) error { return h(c, who) })
}

// newRun is a run to be created.
type newRun struct {
	thread *thread.View
	req    run.Request
}

// gatewayRun reads a request for a run, and makes its thread when it is missing.
func (s gateway) gatewayRun(h func(c *fiber.Ctx, n *newRun) error) gatewayHandler {
	return func(c *fiber.Ctx, who *gatewayCaller) error {
		set, err := s.opts.DeerFlow.Settings()
		if err != nil {
			return err
		}
		return s.withBody(c, func(body []byte) error {
			b, err := deerflow.ReadRun(body, set, who.id)
			if err != nil {
				return err
			}
			req, err := compat.NewRun(b.LangGraph, compat.RunForm{Followed: true})
			if err != nil {
				return err
			}
			req.KeepUndone = true
			if err := s.complete(c, &req); err != nil {
				return err
			}
			t := param(c, "thread_id")
			if t == "" {
				if t = b.Thread; t == "" {
					t = string(id.NewThread())
				} else if !deerflow.ThreadPattern.MatchString(t) {
					return deerflow.Problems{deerflow.Mismatch(deerflow.ThreadPattern, "body", "thread_id", t)}
				}
			}
			v, err := s.ensure(c, who, id.Thread(t), nil)
			if err != nil {
				return err
			}
			return h(c, &newRun{v, req})
		})
	}
}

// gatewayRunPath is where a run is found.
func gatewayRunPath(x *run.Run) string {
	return "/api/threads/" + string(x.Thread) + "/runs/" + string(x.ID)
}

// busyText explains a refusal as the Gateway does.
func busyText(err error) error {
	if fault.Is(err, fault.Conflict) {
		return fault.Wrap(fault.Conflict, "Thread is already running a task. Wait for it to finish or choose another multitask strategy.", err)
	}
	return err
}

func (s gateway) backgroundRun(c *fiber.Ctx, n *newRun) error {
	x, err := s.opts.Runs.Create(c.UserContext(), n.thread.ID, n.req)
	if err != nil {
		return busyText(err)
	}
	requestOf(c).made(x)
	c.Set("Content-Location", gatewayRunPath(x))
	return s.sendGatewayRun(c, x)
}

func (s gateway) streamRun(c *fiber.Ctx, n *newRun) error {
	if err := s.slot(); err != nil {
		return err
	}
	x, f, err := s.opts.Runs.Begin(c.UserContext(), n.thread.ID, n.req)
	if err != nil {
		s.slots.give(1)
		return busyText(err)
	}
	requestOf(c).made(x)
	if err := f.Settle(c.UserContext()); err != nil {
		f.Close(false)
		s.slots.give(1)
		return err
	}
	c.Set("Content-Location", gatewayRunPath(x))
	return s.streamForm(c, f, &deerflow.Stream{Run: x})
}

// waitRun answers with the values at the end, of a run that failed too: the error is in the run.
func (s gateway) waitRun(c *fiber.Ctx, n *newRun) error {
	if err := s.slot(); err != nil {
		return err
	}
	ctx := c.UserContext()
	x, f, err := s.opts.Runs.BeginWait(ctx, n.thread.ID, n.req)
	if err != nil {
		s.slots.give(1)
		return busyText(err)
	}
	requestOf(c).made(x)
	c.Set("Content-Location", gatewayRunPath(x))
	return s.waitResult(c, f, func(dst []byte, res run.Result) []byte {
		if len(res.Error) == 0 {
			return compat.AppendResult(dst, res)
		}
		v, err := s.opts.Threads.Get(ctx, x.Thread)
		if err == nil && len(v.Values) > 0 && v.Values[0] == '{' {
			return append(dst, v.Values...)
		}
		o := &jsonobj.Object{}
		o.SetText("status", string(run.Error))
		o.Set("error", res.Error)
		return append(dst, o.JSON()...)
	})
}

// ownRun lets a handler see a run of the caller's thread.
func (s gateway) ownRun(h func(c *fiber.Ctx, who *gatewayCaller, x *run.Run) error) gatewayHandler {
	return s.ownThread(func(c *fiber.Ctx, who *gatewayCaller, t string) error {
		x, err := s.findRun(c, t, param(c, "run_id"))
		if err != nil {
			return err
		}
		return h(c, who, x)
	})
}

// findRun returns a run of a thread.
func (s gateway) findRun(c *fiber.Ctx, t, r string) (*run.Run, error) {
	if id.Canonical(r) != r {
		return nil, deerflow.NoRun(r)
	}
	x, err := s.opts.Runs.Get(c.UserContext(), id.Thread(t), id.Run(r))
	if fault.Is(err, fault.NotFound) {
		return nil, deerflow.NoRun(r)
	}
	return x, err
}

func (s gateway) sendGatewayRun(c *fiber.Ctx, x *run.Run) error {
	done, err := s.opts.Runs.Completions(c.UserContext(), x)
	if err != nil {
		return err
	}
	return sendJSON(c, deerflow.Run(x, done[x.ID]))
}

const maxGatewayRuns = 100

func (s gateway) listGatewayRuns(c *fiber.Ctx, _ *gatewayCaller, t string) error {
	list, err := s.opts.Runs.List(c.UserContext(), id.Thread(t), run.Query{Limit: maxGatewayRuns})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	out, err := s.gatewayRuns(c, list)
	if err != nil {
		return err
	}
	return sendJSON(c, deerflow.Of(out))
}

// gatewayRuns returns runs as the Gateway shows them.
func (s gateway) gatewayRuns(c *fiber.Ctx, list []*run.Run) ([]json.RawMessage, error) {
	done, err := s.opts.Runs.Completions(c.UserContext(), list...)
	if err != nil {
		return nil, err
	}
	out := make([]json.RawMessage, len(list))
	for i, x := range list {
		out[i] = deerflow.Run(x, done[x.ID])
	}
	return out, nil
}

func (s gateway) cancelGatewayRun(c *fiber.Ctx, _ *gatewayCaller, x *run.Run) error {
	f := deerflow.Query(func(name string) (string, bool) { v := given(c, name); return value(v), v != nil }, "wait", "action")
	wait := f.Bool("wait", false)
	if a := c.Query("action", "interrupt"); a != "interrupt" && a != "rollback" {
		f.Fail("action", "literal_error", "Input should be 'interrupt' or 'rollback'")
	}
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
		return sendNothing(c)
	}
	c.Status(http.StatusAccepted).Response().ResetBody()
	return nil
}

func value(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}

// cancelOwn cancels a run. One that has ended meanwhile is refused.
func (s gateway) cancelOwn(c *fiber.Ctx, x *run.Run, wait bool) error {
	err := s.opts.Runs.Cancel(c.UserContext(), x.Thread, []id.Run{x.ID}, compat.CancelAction(c.Query("action")), wait)
	if fault.Is(err, fault.NotFound) {
		now, err := s.findRun(c, string(x.Thread), string(x.ID))
		if err != nil {
			return err
		}
		return deerflow.NotCancellable(now)
	}
	return err
}

// joinGatewayRun streams a run from its first kept record, or behind the one that the client has.
func (s gateway) joinGatewayRun(c *fiber.Ctx, _ *gatewayCaller, x *run.Run) error {
	if err := s.slot(); err != nil {
		return err
	}
	after := compat.RunOffset(c.Get("Last-Event-Id"))
	if after == nil {
		after = &bridge.Offset{}
	}
	cancel := compat.True(c.Query("cancel_on_disconnect"))
	f, err := s.opts.Runs.JoinStream(c.UserContext(), x.Thread, x.ID, after, compat.JoinModes(queries(c, "stream_mode")), cancel)
	if err != nil {
		s.slots.give(1)
		return err
	}
	c.Set("Content-Location", gatewayRunPath(x))
	return s.streamForm(c, f, &deerflow.Stream{Run: x})
}

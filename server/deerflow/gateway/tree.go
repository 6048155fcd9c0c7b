package gateway

import (
	"encoding/json"
	"errors"
	"math"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/compat"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
	"understudy/thread"
)

// treeHandlers serve conversations as a tree: branches of the web UI, and the commands.
type treeHandlers struct {
	*base
	*web.Completer
	*ownership
	*turns
	Send func(c *fiber.Ctx, m *compat.Message, path func(*run.Run) string) error // as in Options
}

func (s *treeHandlers) routes() {
	s.handle("POST", "/threads/{thread_id}/branches", members, s.existing(s.branch))
	s.handle("POST", "/commands/fork-thread", members, s.forkThread)
	s.handle("POST", "/commands/send-message", members, s.sendMessage)
}

// ownChannels are those of a thread whose values a fork must not have: paths and the sandbox of its source, and what that works towards.
var ownChannels = []string{"thread_data", "sandbox", "goal"}

// forkThread makes a thread that begins with the conversation of another one up to an event.
func (s *treeHandlers) forkThread(c *fiber.Ctx, who *caller) error {
	return s.form(c, func(f *deerflow.Form) error {
		from := f.Required("source_thread_id", 1, 64)
		at := thread.Fork{Seq: eventstore.Seq(f.RequiredInt("event_number", 1, math.MaxInt)), Without: ownChannels}
		if f.Err() == nil {
			f.Thread("source_thread_id")
		}
		if err := f.Err(); err != nil {
			return err
		}
		source, err := s.owned(c, who, from)
		if err != nil {
			return err
		}
		v, err := s.Threads.ForkAt(c.UserContext(), source.ID, at)
		if fault.Is(err, fault.NotFound) {
			return deerflow.NoThread(from)
		} else if err != nil {
			return err
		}
		web.Of(c).Thread = string(v.ID)
		return web.SendJSON(c, compat.AppendFork(nil, source.ID, at, v))
	})
}

// sendMessage lets the agent answer a message, behind the current run of the thread.
func (s *treeHandlers) sendMessage(c *fiber.Ctx, who *caller) error {
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return err
	}
	return s.form(c, func(f *deerflow.Form) error {
		t := f.Required("thread_id", 1, 64)
		if f.Raw("message") == nil {
			f.Fail("message", "missing", "Field required")
		}
		if f.Err() == nil {
			f.Thread("thread_id")
		}
		if err := f.Err(); err != nil {
			return err
		}
		message, name, err := compat.ReadMessage(f.Raw("message"))
		if err != nil {
			return err
		}
		v, err := s.owned(c, who, t)
		if err != nil {
			return err
		}
		o := &jsonobj.Object{}
		o.Set("input", slices.Concat(json.RawMessage(`{"messages":[`), message, json.RawMessage(`]}`)))
		for _, key := range []string{"assistant_id", "config", "context", "metadata"} {
			if raw := f.Raw(key); raw != nil {
				o.Set(key, raw)
			}
		}
		b, err := deerflow.ReadRun(o.JSON(), set, who.id, t)
		if err != nil {
			return err
		}
		m := &compat.Message{Thread: v.ID, ID: name}
		if m.Run, err = compat.NewRun(b.LangGraph, compat.RunForm{}); err != nil {
			return err
		}
		m.Run.Strategy, m.Run.KeepUndone = run.Enqueue, true
		if err := s.Complete(c, &m.Run); err != nil {
			return err
		}
		return s.Send(c, m, runPath)
	})
}

// errBranch: the checkpoint behind a turn is gone.
var errBranch = fault.New(fault.Conflict, "This turn can no longer be branched from.")

// branch makes a thread that begins with the conversation up to the end of a turn. Files are copied when it is the last turn: those of an earlier
// one are not kept.
func (s *treeHandlers) branch(c *fiber.Ctx, who *caller, v *thread.View) error {
	return s.form(c, func(f *deerflow.Form) error {
		message, title := f.Required("message_id", 1, 1000), f.Text("title", 0, 256)
		f.Texts("message_ids")
		if err := f.Err(); err != nil {
			return err
		}
		of, err := s.idleTurn(c, v, message)
		if errors.Is(err, errTurn) {
			return errBranch
		} else if err != nil {
			return err
		}
		end, err := s.endOf(c.UserContext(), v.ID, of)
		if err != nil {
			return err
		}
		next, err := s.Threads.ForkAt(c.UserContext(), v.ID, thread.Fork{Seq: end, Without: ownChannels})
		switch {
		case fault.Is(err, fault.Conflict) || err == nil && next.Head == "":
			return errBranch
		case fault.Is(err, fault.NotFound):
			return deerflow.NoThread(string(v.ID))
		case err != nil:
			return err
		}
		if err := s.nameBranch(c, who, v, next, message, title, of.last); err != nil {
			return errors.Join(err, s.Threads.Delete(c.UserContext(), next.ID))
		}
		clone := "none"
		if of.last {
			clone = "copied"
		}
		out := &jsonobj.Object{}
		out.SetText("thread_id", string(next.ID))
		out.SetText("parent_thread_id", string(v.ID))
		out.SetText("parent_checkpoint_id", string(next.Head))
		out.SetText("branched_from_message_id", message)
		out.SetText("workspace_clone_mode", clone)
		out.SetText("history_seed_mode", "seeded")
		return web.SendJSON(c, out.JSON())
	})
}

// nameBranch notes on a branch where it comes from, and gives it a title and, on request, the files of its source.
func (s *treeHandlers) nameBranch(c *fiber.Ctx, who *caller, from, to *thread.View, message string, title *string, files bool) error {
	o := &jsonobj.Object{}
	o.SetText("branch_parent_thread_id", string(from.ID))
	o.SetText("branch_parent_checkpoint_id", string(to.Head))
	o.SetText("branched_from_message_id", message)
	if _, err := s.Threads.Patch(c.UserContext(), to.ID, thread.Patch{Metadata: o.JSON()}); err != nil {
		return err
	}
	if title != nil && *title != "" && gjson.GetBytes(to.Values, "title").String() != *title {
		values := &jsonobj.Object{}
		values.SetText("title", *title)
		at := thread.Place{Key: checkpointer.Key{Thread: to.ID}}
		if _, err := s.Threads.UpdateState(c.UserContext(), at, [][]graph.StateUpdate{{{Values: values.JSON()}}}); err != nil {
			return err
		}
	}
	if !files {
		return nil
	}
	return s.DeerFlow.Home.Copy(who.id, string(from.ID), string(to.ID))
}

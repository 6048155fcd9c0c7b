package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	domain "understudy/deerflow"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
	"understudy/thread"
)

// turnHandlers serve what the web UI does with single turns: answer again, edit, branch.
type turnHandlers struct {
	*base
	*ownership
	*states
	*turns
}

func (s *turnHandlers) routes() {
	s.handle("POST", "/threads/{thread_id}/runs/regenerate/prepare", members, s.existing(s.prepareRegenerate))
	s.handle("POST", "/threads/{thread_id}/runs/edit-regenerate/prepare", members, s.existing(s.prepareEdit))
	s.handle("POST", "/threads/{thread_id}/compact", members, s.existing(s.compact))
}

// turn is a question, its answers and the run that gave them.
type turn struct {
	question *eventstore.Event
	answers  []*eventstore.Event
	run      id.Run
	last     bool // of the thread
}

// errTurn: no message of the transcript has the id, or its turn has no question of a person.
var errTurn = fault.New(fault.NotFound, "no such turn")

// turns finds the turns of conversations.
type turns struct {
	*ownership
	*feeds
}

// turnOf finds the turn of a message, from the end of the transcript on.
func (s *turns) turnOf(c *fiber.Ctx, t id.Thread, message string) (*turn, error) {
	var later []*eventstore.Event // of the turn, newest first
	last, found := true, false
	for before := eventstore.Seq(0); ; {
		page, more, err := s.messages(c.UserContext(), eventstore.PageQuery{Thread: t, Before: before, Backward: true}, 200)
		if err != nil {
			return nil, err
		}
		for i := len(page) - 1; i >= 0; i-- {
			e := page[i]
			content := gjson.ParseBytes(e.Content)
			found = found || content.Get("id").String() == message
			if e.Type != eventstore.TypeHuman || content.Get("additional_kwargs.hide_from_ui").Bool() {
				later = append(later, e)
				continue
			}
			if found {
				out := &turn{question: e, run: e.Run, last: last}
				for j := len(later) - 1; j >= 0; j-- {
					out.answers = append(out.answers, later[j])
				}
				return out, nil
			}
			later, last = nil, false
		}
		if !more || len(page) == 0 {
			return nil, errTurn
		}
		before = page[0].Seq
	}
}

// idleTurn is turnOf for a thread on which no run is in flight.
func (s *turns) idleTurn(c *fiber.Ctx, v *thread.View, message string) (*turn, error) {
	if busy, err := s.busy(c, string(v.ID)); err != nil {
		return nil, err
	} else if busy {
		return nil, fault.New(fault.Conflict, "Thread has a run in flight. Try again after the run finishes.")
	}
	return s.turnOf(c, v.ID, message)
}

// endOf returns the last event of a turn: that of its run, if it has one.
func (s *turns) endOf(ctx context.Context, t id.Thread, of *turn) (eventstore.Seq, error) {
	end := of.question.Seq
	if n := len(of.answers); n > 0 {
		end = of.answers[n-1].Seq
	}
	if of.run == "" {
		return end, nil
	}
	page, err := s.Events.Events(ctx, eventstore.PageQuery{Thread: t, Run: of.run, Backward: true, Limit: 1, Bytes: web.WholeBytes})
	if err != nil {
		return 0, err
	}
	last, err := page.Next(ctx, web.WholeBytes)
	if errors.Is(err, io.EOF) {
		return end, nil
	} else if err != nil {
		return 0, err
	}
	return last.Seq, nil
}

// checkpointOf returns the newest checkpoint of a run with this source; "": of any.
func (s *turnHandlers) checkpointOf(c *fiber.Ctx, t id.Thread, r id.Run, source string) (*checkpointer.Snapshot, error) {
	where := &jsonobj.Object{}
	where.SetText("run_id", string(r))
	if source != "" {
		where.SetText("source", source)
	}
	entries, err := s.Threads.ReadHistory(c.UserContext(), thread.HistoryQuery{Thread: t, Metadata: where.JSON(), Limit: 1})
	if err != nil {
		return nil, err
	}
	defer entries.Close()
	at, err := entries.Next(c.UserContext())
	if errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Conflict, "This turn has no checkpoint any more.")
	}
	return at, err
}

// serverKwargs are additional_kwargs of a message that its next run writes again.
var serverKwargs = []string{"run_id", "timestamp"}

// again returns the question of a turn as the input of another run. It gets an ID of its own: it belongs to that run, not to the one before.
func again(content json.RawMessage) *jsonobj.Object {
	m := jsonobj.Of(content)
	extra := jsonobj.Of(m.Get("additional_kwargs"))
	for _, key := range serverKwargs {
		extra.Delete(key)
	}
	m.Set("additional_kwargs", extra.JSON())
	m.Delete("response_metadata")
	m.SetText("id", uuid.NewString())
	return m
}

// editReplay marks, in its metadata, the run of an edited question. When it fails or is stopped, the turn that was edited is there again.
const editReplay = "edit"

// replay is what a client sends to let a turn run again: from the checkpoint before its question. The title is the one of now: the checkpoint may have an older
// one. Where it has none, because the title is made of the question, an edited question gets another.
func (s *turnHandlers) replay(c *fiber.Ctx, now *checkpointer.Snapshot, of *turn, message string, question json.RawMessage, more map[string]string) (*jsonobj.Object, error) {
	at, err := s.checkpointOf(c, now.Thread, of.run, "input")
	if err != nil {
		return nil, err
	}
	input, checkpoint, metadata, out := &jsonobj.Object{}, &jsonobj.Object{}, &jsonobj.Object{}, &jsonobj.Object{}
	input.Set("messages", append(append(json.RawMessage("["), question...), ']'))
	named := func(values json.RawMessage) string { return gjson.GetBytes(values, "title").String() }
	if title := named(now.Values); title != "" && (more == nil || named(at.Values) != "") {
		input.SetText("title", title)
	}
	checkpoint.SetText("checkpoint_ns", "")
	checkpoint.SetText("checkpoint_id", string(at.ID))
	checkpoint.Set("checkpoint_map", json.RawMessage("{}"))
	metadata.SetText("regenerate_from_message_id", message)
	metadata.SetText("regenerate_from_run_id", string(of.run))
	metadata.SetText("regenerate_checkpoint_id", string(at.ID))
	for key, value := range more {
		metadata.SetText(key, value)
	}
	out.Set("input", input.JSON())
	out.Set("checkpoint", checkpoint.JSON())
	out.Set("metadata", metadata.JSON())
	out.SetText("target_run_id", string(of.run))
	return out, nil
}

func (s *turnHandlers) prepareRegenerate(c *fiber.Ctx, _ *caller, v *thread.View) error {
	return s.form(c, func(f *deerflow.Form) error {
		message := f.Required("message_id", 1, 1000)
		if err := f.Err(); err != nil {
			return err
		}
		of, err := s.idleTurn(c, v, message)
		if errors.Is(err, errTurn) {
			return deerflow.Fail(http.StatusNotFound, "Message "+message+" not found")
		} else if err != nil {
			return err
		}
		now, err := s.Threads.State(c.UserContext(), checkpointer.Key{Thread: v.ID}, false)
		if err != nil {
			return err
		}
		out, err := s.replay(c, now, of, message, again(json.RawMessage(of.question.Content)).JSON(), nil)
		if err != nil {
			return err
		}
		return web.SendJSON(c, out.JSON())
	})
}

// editable refuses to edit the question of a turn to a text if that would change nothing, or if there is nothing to return to when the edited turn fails.
func (s *turnHandlers) editable(c *fiber.Ctx, now *checkpointer.Snapshot, of *turn, text string) error {
	x, err := s.Runs.Get(c.UserContext(), now.Thread, of.run)
	switch {
	case fault.Is(err, fault.NotFound): // imported conversations have no runs
	case err != nil:
		return err
	case x.Status != run.Success:
		return fault.New(fault.Conflict, "Only successful assistant runs can be edited and rerun")
	}
	asked := gjson.GetBytes(of.question.Content, "additional_kwargs.original_user_content").String()
	switch {
	case gjson.GetBytes(now.Values, "goal.status").String() == "active":
		return fault.New(fault.Conflict, "Cannot edit while a goal is active")
	case strings.TrimSpace(cmp.Or(asked, eventstore.Text(of.question.Content))) == text:
		return fault.New(fault.Conflict, "Edited message is unchanged")
	}
	return nil
}

// prepareEdit is prepareRegenerate with another question.
func (s *turnHandlers) prepareEdit(c *fiber.Ctx, _ *caller, v *thread.View) error {
	return s.form(c, func(f *deerflow.Form) error {
		message, text := f.Required("human_message_id", 1, 1000), f.Required("replacement_text", 1, maxText)
		if err := f.Err(); err != nil {
			return err
		}
		if text = strings.TrimSpace(text); text == "" {
			return fault.New(fault.Conflict, "Edited message cannot be empty")
		}
		of, err := s.idleTurn(c, v, message)
		if errors.Is(err, errTurn) || err == nil && gjson.GetBytes(of.question.Content, "id").String() != message {
			return fault.New(fault.Conflict, "Only the latest completed user turn can be edited")
		} else if err != nil {
			return err
		}
		now, err := s.Threads.State(c.UserContext(), checkpointer.Key{Thread: v.ID}, false)
		if err != nil {
			return err
		}
		if err := s.editable(c, now, of, text); err != nil {
			return err
		}
		question := again(json.RawMessage(of.question.Content))
		question.SetText("content", text)
		next := question.Text("id")
		out, err := s.replay(c, now, of, message, question.JSON(), map[string]string{"replay_kind": editReplay, "edit_source_message_id": message})
		if err != nil {
			return err
		}
		sources := []string{message}
		for _, a := range of.answers {
			sources = append(sources, gjson.GetBytes(a.Content, "id").String())
		}
		list, err := json.Marshal(sources)
		if err != nil {
			return err
		}
		out.SetText("replacement_human_message_id", next)
		out.Set("source_message_ids", list)
		return web.SendJSON(c, out.JSON())
	})
}

// compact replaces the older part of a conversation by a summary, for the model: people see all of it as before.
func (s *turnHandlers) compact(c *fiber.Ctx, _ *caller, v *thread.View) error {
	return s.form(c, func(f *deerflow.Form) error {
		how := domain.Condensing{Force: f.Bool("force", true), Keep: f.Amount("keep")}
		if name := f.Text("model_name", 0, 128); name != nil {
			how.Model = *name
		}
		f.Text("agent_name", 0, 128) // the summary is written by the same model for every agent
		if err := f.Err(); err != nil {
			return err
		}
		if busy, err := s.busy(c, string(v.ID)); err != nil {
			return err
		} else if busy {
			return fault.New(fault.Conflict, "Thread has a run in flight. Compact the context after the run finishes.")
		} else if len(jsonobj.Of(v.Interrupts).Keys()) > 0 { // an update would take the question back
			return fault.New(fault.Conflict, "Thread waits for an answer. Compact the context after it.")
		}
		if err := s.attach(c, v); err != nil {
			return err
		}
		done, err := s.DeerFlow.Condense(c.UserContext(), v.ID, how)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Compacted(v.ID, done))
	})
}

package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	domain "understudy/deerflow"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

func (s gateway) feedRoutes() {
	s.handle("GET", "/threads/{thread_id}/messages", members, s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		p, err := readPage(c, true)
		if err != nil {
			return err
		}
		rows, _, err := s.feed(c, who, t, "", p)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Rows(nil, rows))
	}))
	s.handle("GET", "/threads/{thread_id}/messages/page", members, s.ownThread(s.feedPage))
	s.handle("GET", "/threads/{thread_id}/runs/{run_id}/messages", members, s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		return s.runMessages(c, who, t, web.Param(c, "run_id"))
	}))
	s.handle("GET", "/runs/{run_id}/messages", members, s.anyRun(func(c *fiber.Ctx, who *caller, x *run.Run) error {
		return s.runMessages(c, who, string(x.Thread), string(x.ID))
	}))
	s.handle("GET", "/threads/{thread_id}/runs/{run_id}/events", members, s.ownThread(s.runEvents))
	s.handle("GET", "/threads/{thread_id}/runs/{run_id}/workspace-changes", members, s.ownThread(s.workspaceChanges))
	s.handle("GET", "/threads/{thread_id}/token-usage", members, s.ownThread(s.tokenUsage))
}

// anyRun finds a run by its id alone. One on another user's thread is not found.
func (s gateway) anyRun(h func(c *fiber.Ctx, who *caller, x *run.Run) error) handler {
	return func(c *fiber.Ctx, who *caller) error {
		x, err := s.findRun(c, "", web.Param(c, "run_id"))
		if err == nil {
			err = s.checkRun(c, who, x)
		}
		if err != nil {
			return err
		}
		return h(c, who, x)
	}
}

// page is which part of a feed is wanted.
type feedPart struct {
	limit         int
	before, after eventstore.Seq // 0: no bound
}

// readPage reads the cursors of a page. With both, after counts and before is the upper end.
func readPage(c *fiber.Ctx, forward bool) (p feedPart, err error) {
	f := query(c, "limit", "before_seq", "after_seq")
	if !forward && f.Has("after_seq") {
		return p, fault.New(fault.Unprocessable, "after_seq is not supported by this backward-only endpoint")
	}
	p.limit = f.Int("limit", 50, 1, 200)
	p.before = eventstore.Seq(f.Int("before_seq", 0, 1, math.MaxInt))
	p.after = eventstore.Seq(f.Int("after_seq", 0, 1, math.MaxInt))
	return p, f.Err()
}

func (s gateway) feedPage(c *fiber.Ctx, who *caller, t string) error {
	p, err := readPage(c, false)
	if err != nil {
		return err
	}
	rows, more, err := s.feed(c, who, t, "", p)
	if err != nil {
		return err
	}
	next := "null"
	if more && len(rows) > 0 {
		next = strconv.FormatInt(int64(rows[0].Seq), 10)
	}
	b := deerflow.Rows([]byte(`{"data":`), rows)
	return web.SendJSON(c, append(b, `,"has_more":`+strconv.FormatBool(more)+`,"next_before_seq":`+next+`}`...))
}

func (s gateway) runMessages(c *fiber.Ctx, who *caller, t, r string) error {
	p, err := readPage(c, true)
	if err != nil {
		return err
	}
	rows, more := []*deerflow.Row(nil), false
	if id.Canonical(r) == r {
		if rows, more, err = s.feed(c, who, t, id.Run(r), p); err != nil {
			return err
		}
	}
	b := deerflow.Rows([]byte(`{"data":`), rows)
	return web.SendJSON(c, append(b, `,"has_more":`+strconv.FormatBool(more)+`}`...))
}

// feed returns the messages of a thread, or of one run, ascending. more: there are others in the direction of reading.
func (s gateway) feed(c *fiber.Ctx, who *caller, t string, r id.Run, p feedPart) (rows []*deerflow.Row, more bool, err error) {
	ctx := c.UserContext()
	q := eventstore.PageQuery{Thread: id.Thread(t), Run: r, After: p.after, Before: p.before, Backward: p.after == 0}
	events, more, err := s.messages(ctx, q, p.limit)
	if fault.Is(err, fault.NotFound) { // a thread without an owner, or another thread's run: it has no messages
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	for _, e := range events {
		rows = append(rows, &deerflow.Row{Event: e, Thread: id.Thread(t), User: who.id})
	}
	return rows, more, s.complement(ctx, who, id.Thread(t), rows)
}

// messages returns up to limit messages of a transcript in the direction of q, ascending, without what else is in it.
func (s gateway) messages(ctx context.Context, q eventstore.PageQuery, limit int) (list []*eventstore.Event, more bool, err error) {
	for {
		q.Limit, q.Bytes = limit-len(list)+1, web.WholeBytes
		page, err := s.Events.Messages(ctx, q)
		if err != nil {
			return nil, false, err
		}
		var got []*eventstore.Event
		for {
			e, err := page.Next(ctx, web.WholeBytes)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, false, err
			}
			got = append(got, e)
		}
		if len(got) == 0 {
			return list, false, nil
		}
		first, last := got[0].Seq, got[len(got)-1].Seq
		got = slices.DeleteFunc(got, func(e *eventstore.Event) bool { return e.Category != eventstore.CategoryMessage })
		if q.Backward {
			list, q.Before = append(got, list...), first
		} else {
			list, q.After = append(list, got...), last
		}
		if n := len(list); n > limit {
			if q.Backward {
				return list[n-limit:], true, nil
			}
			return list[:limit], true, nil
		}
		if !page.More {
			return list, false, nil
		}
	}
}

// complement puts on the last answer of each run what is shown there: what the caller thinks of it, and how long it took.
func (s gateway) complement(ctx context.Context, who *caller, t id.Thread, rows []*deerflow.Row) error {
	last := map[id.Run]*deerflow.Row{}
	var runs []id.Run
	for _, r := range rows {
		if r.Type == eventstore.TypeAI && r.Run != "" {
			if last[r.Run] == nil {
				runs = append(runs, r.Run)
			}
			last[r.Run] = r
		}
	}
	if len(runs) == 0 {
		return nil
	}
	// Runs follow each other, so only the last one on the page may continue after it.
	end := runs[len(runs)-1]
	rest, _, err := s.messages(ctx, eventstore.PageQuery{Thread: t, Run: end, After: rows[len(rows)-1].Seq}, 200)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if slices.ContainsFunc(rest, func(e *eventstore.Event) bool { return e.Type == eventstore.TypeAI }) {
		delete(last, end)
	}
	said, err := s.DeerFlow.Feedback.FeedbackOf(ctx, who.id, t, runs...)
	if err != nil {
		return err
	}
	for _, f := range said {
		if r := last[f.Run]; r != nil {
			r.Feedback = &f
		}
	}
	for r, row := range last {
		x, err := s.Runs.Get(ctx, t, r)
		if fault.Is(err, fault.NotFound) {
			continue
		} else if err != nil {
			return err
		}
		if !x.EndedAt.IsZero() {
			took := x.EndedAt.Sub(x.CreatedAt)
			row.Took = &took
		}
	}
	return nil
}

const maxRunEvents = 2000

// runEvents returns all rows of a run, of every category, or those about the task of a subagent.
func (s gateway) runEvents(c *fiber.Ctx, who *caller, t string) error {
	f := query(c, "limit", "after_seq")
	limit := f.Int("limit", 500, 1, maxRunEvents)
	q := eventstore.PageQuery{Thread: id.Thread(t), Run: id.Run(web.Param(c, "run_id")), After: eventstore.Seq(f.Int("after_seq", 0, 1, math.MaxInt)), Bytes: web.WholeBytes}
	if err := f.Err(); err != nil {
		return err
	}
	for name := range strings.SplitSeq(c.Query("event_types"), ",") {
		if name = strings.TrimSpace(name); name != "" && len(q.Types) < 50 {
			q.Types = append(q.Types, name)
		}
	}
	task := c.Query("task_id")
	rows := []*deerflow.Row{}
	err := s.eachEvent(c.UserContext(), q, limit, func(e *eventstore.Event) bool {
		if task == "" || gjson.GetBytes(e.Metadata, "task_id").String() == task {
			rows = append(rows, &deerflow.Row{Event: e, Thread: q.Thread, User: who.id})
		}
		return len(rows) < limit
	})
	if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.Rows(nil, rows))
}

// eachEvent calls fn with the events of a run, until it returns false. They are read in pages of this many rows. Of an unknown run there are none.
func (s gateway) eachEvent(ctx context.Context, q eventstore.PageQuery, size int, fn func(*eventstore.Event) bool) error {
	if id.Canonical(string(q.Run)) != string(q.Run) {
		return nil
	}
	for q.Limit = size; ; {
		page, err := s.Events.Events(ctx, q)
		if fault.Is(err, fault.NotFound) {
			return nil
		} else if err != nil {
			return err
		}
		for {
			e, err := page.Next(ctx, web.WholeBytes)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if !fn(e) {
				return nil
			}
			q.After = e.Seq
		}
		if !page.More {
			return nil
		}
	}
}

// workspaceChanges returns which files a run changed.
func (s gateway) workspaceChanges(c *fiber.Ctx, _ *caller, t string) error {
	f := query(c, "include_files", "include_diff")
	files, diff := f.Bool("include_files", true), f.Bool("include_diff", true)
	if err := f.Err(); err != nil {
		return err
	}
	var last *eventstore.Event
	q := eventstore.PageQuery{Thread: id.Thread(t), Run: id.Run(web.Param(c, "run_id")), Types: []string{deerflow.TypeWorkspaceChanges}, Bytes: web.WholeBytes}
	if err := s.eachEvent(c.UserContext(), q, 10, func(e *eventstore.Event) bool { last = e; return true }); err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.WorkspaceChanges(last, files, diff))
}

// tokenUsage sums up what the runs of a thread used.
func (s gateway) tokenUsage(c *fiber.Ctx, _ *caller, t string) error {
	f := query(c, "include_active")
	f.Bool("include_active", false) // runs that are not over have used nothing yet that is known here
	if err := f.Err(); err != nil {
		return err
	}
	ctx := c.UserContext()
	u := deerflow.NewUsage(t)
	for offset, page := 0, 1000; ; offset += page {
		list, err := s.Runs.List(ctx, id.Thread(t), run.Query{Limit: page, Offset: offset, Bytes: 1})
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		done, err := s.Runs.Completions(ctx, list...)
		if err != nil {
			return err
		}
		for _, x := range list {
			u.Add(done[x.ID])
		}
		if len(list) < page {
			break
		}
	}
	var err error
	if u.Context, err = s.contextUsage(ctx, id.Thread(t)); err != nil {
		return err
	}
	return web.SendJSON(c, u.JSON())
}

// contextUsage is how much of a model's context the conversation takes, as the next answer gets it: what was summarized does not count. The model is that of the
// newest run, else the first one.
func (s gateway) contextUsage(ctx context.Context, t id.Thread) (json.RawMessage, error) {
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return nil, err
	}
	var name string
	err = s.Runs.Newest(ctx, []id.Thread{t}, 1, func(x *run.Run) error {
		name = cmp.Or(gjson.GetBytes(x.Metadata, "model_name").String(), deerflow.ModelOf(x)) // that of its start, if it is known
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := set.Model(name)
	if m == nil && len(set.Models) > 0 {
		m = &set.Models[0]
	}
	room := 0
	if m != nil {
		room = m.ContextWindow
	}
	whole := false
	at, err := s.Threads.State(overlay.With(ctx, overlay.Choice{Overlay: &whole}), checkpointer.Key{Thread: t}, false)
	if fault.Is(err, fault.NotFound) {
		return deerflow.ContextUsage(nil, room), nil
	} else if err != nil {
		return nil, err
	}
	return deerflow.ContextUsage(at.Values, room), nil
}

func (s gateway) feedbackRoutes() {
	const feedback = "/threads/{thread_id}/runs/{run_id}/feedback"
	s.handle("PUT", feedback, members, s.onExisting(s.rate))
	s.handle("POST", feedback, members, s.onExisting(s.rate))
	s.handle("GET", feedback, members, s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		list, err := s.DeerFlow.Feedback.FeedbackOf(c.UserContext(), who.id, id.Thread(t), id.Run(web.Param(c, "run_id")))
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Feedbacks(list))
	}))
	s.handle("GET", "/runs/{run_id}/feedback", members, s.anyRun(func(c *fiber.Ctx, who *caller, x *run.Run) error {
		list, err := s.DeerFlow.Feedback.FeedbackOf(c.UserContext(), who.id, x.Thread, x.ID)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Feedbacks(list))
	}))
	s.handle("GET", feedback+"/stats", members, s.ownThread(func(c *fiber.Ctx, _ *caller, t string) error {
		r := web.Param(c, "run_id")
		tally, err := s.DeerFlow.Feedback.TallyFeedback(c.UserContext(), id.Thread(t), id.Run(r))
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Tally(r, tally))
	}))
	s.handle("DELETE", feedback, members, s.onExisting(func(c *fiber.Ctx, who *caller, t string) error {
		list, err := s.DeerFlow.Feedback.FeedbackOf(c.UserContext(), who.id, id.Thread(t), id.Run(web.Param(c, "run_id")))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fault.New(fault.NotFound, "No feedback found for this run")
		}
		return s.unrate(c, list[0])
	}))
	s.handle("DELETE", feedback+"/{feedback_id}", members, s.onExisting(func(c *fiber.Ctx, who *caller, t string) error {
		f, r := web.Param(c, "feedback_id"), web.Param(c, "run_id")
		one, err := s.DeerFlow.Feedback.Feedback(c.UserContext(), f)
		switch {
		case fault.Is(err, fault.NotFound) || err == nil && one.User != who.id:
			return fault.Newf(fault.NotFound, "Feedback %s not found", f)
		case err != nil:
			return err
		case one.Thread != id.Thread(t) || one.Run != id.Run(r):
			return fault.Newf(fault.NotFound, "Feedback %s not found in run %s", f, r)
		}
		return s.unrate(c, one)
	}))
}

func (s gateway) unrate(c *fiber.Ctx, f domain.Feedback) error {
	err := s.DeerFlow.Feedback.DeleteFeedback(c.UserContext(), f.ID)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "No feedback found for this run")
	} else if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.Success(""))
}

// elsewhere returns the error for a run that is not in thread t: if its own thread is another user's, the run does not exist for the caller.
func (s gateway) elsewhere(c *fiber.Ctx, who *caller, x *run.Run, t string) error {
	if err := s.checkRun(c, who, x); err != nil {
		return err
	}
	return fault.Newf(fault.NotFound, "Run %s not found in thread %s", x.ID, t)
}

// checkRun refuses a run whose thread is not the caller's: for them there is no such run.
func (s gateway) checkRun(c *fiber.Ctx, who *caller, x *run.Run) error {
	_, err := s.owned(c, who, string(x.Thread))
	if f := (*deerflow.Failure)(nil); errors.As(err, &f) && f.Status == http.StatusNotFound {
		return deerflow.NoRun(string(x.ID))
	}
	return err
}

// rate sets what the caller thinks of a run.
func (s gateway) rate(c *fiber.Ctx, who *caller, t string) error {
	return s.form(c, func(f *deerflow.Form) error {
		rating := f.RequiredInt("rating", math.MinInt, math.MaxInt)
		comment, message := f.Text("comment", 0, maxText), f.Text("message_id", 0, 1000)
		if err := f.Err(); err != nil {
			return err
		}
		if rating != 1 && rating != -1 {
			return fault.New(fault.Invalid, "rating must be +1 or -1")
		}
		r := web.Param(c, "run_id")
		x, err := s.findRun(c, "", r)
		if err != nil {
			return err
		}
		if string(x.Thread) != t {
			return s.elsewhere(c, who, x, t)
		}
		kept, err := s.DeerFlow.Feedback.PutFeedback(c.UserContext(), domain.Feedback{
			ID: string(id.NewRun()), Run: x.ID, Thread: x.Thread, User: who.id, Message: message, Rating: rating, Comment: comment, CreatedAt: time.Now(),
		})
		if fault.Is(err, fault.NotFound) {
			return deerflow.NoThread(t)
		} else if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Feedback(kept))
	})
}

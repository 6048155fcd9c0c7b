package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// feedHandlers serve what happened in threads and runs: messages, events, changed files and used tokens.
type feedHandlers struct {
	*base
	*ownership
	*feeds
}

func (s *feedHandlers) routes() {
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

func (s *feedHandlers) feedPage(c *fiber.Ctx, who *caller, t string) error {
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

func (s *feedHandlers) runMessages(c *fiber.Ctx, who *caller, t, r string) error {
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
func (s *feedHandlers) feed(c *fiber.Ctx, who *caller, t string, r id.Run, p feedPart) (rows []*deerflow.Row, more bool, err error) {
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

// complement puts on the last answer of each run what is shown there: what the caller thinks of it, and how long it took.
func (s *feedHandlers) complement(ctx context.Context, who *caller, t id.Thread, rows []*deerflow.Row) error {
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
func (s *feedHandlers) runEvents(c *fiber.Ctx, who *caller, t string) error {
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
	rows, err := s.runRows(c.UserContext(), q, limit, c.Query("task_id"))
	if err != nil {
		return err
	}
	for _, row := range rows {
		row.User = who.id
	}
	return web.SendJSON(c, deerflow.Rows(nil, rows))
}

// workspaceChanges returns which files a run changed.
func (s *feedHandlers) workspaceChanges(c *fiber.Ctx, _ *caller, t string) error {
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
func (s *feedHandlers) tokenUsage(c *fiber.Ctx, _ *caller, t string) error {
	f := query(c, "include_active")
	active := f.Bool("include_active", false)
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
	if active {
		if err := s.addActive(ctx, id.Thread(t), u); err != nil {
			return err
		}
	}
	var err error
	if u.Context, err = s.contextUsage(ctx, id.Thread(t)); err != nil {
		return err
	}
	return web.SendJSON(c, u.JSON())
}

// maxActive bounds the runs of a thread that run at once: there is one.
const maxActive = 10

// addActive adds the running runs of a thread.
func (s *feedHandlers) addActive(ctx context.Context, t id.Thread, u *deerflow.Usage) error {
	list, err := s.Runs.List(ctx, t, run.Query{Status: run.Running, Limit: maxActive, Bytes: 1})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	for _, x := range list {
		used, err := s.Runs.Progress(ctx, x)
		if err != nil {
			return err
		}
		u.Add(used)
	}
	return nil
}

// contextUsage is how much of a model's context the conversation takes, as the next answer gets it: what was summarized does not count. The model is that of the
// newest run, else the first one.
func (s *feedHandlers) contextUsage(ctx context.Context, t id.Thread) (json.RawMessage, error) {
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return nil, nil //nolint:nilerr // what models can take is unknown while config.yaml is broken, which its own routes say
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

// feeds reads what happened in threads and runs.
type feeds struct{ Events Events }

// instructs reports whether an event is a system message: the reminders of DeerFlow's own agent are some. They are no part of what was said.
func instructs(e *eventstore.Event) bool {
	return e.Category == eventstore.CategoryMessage && e.Type == eventstore.TypeSystem
}

// messages returns up to limit messages of a transcript in the direction of q, ascending, without what else is in it.
func (s *feeds) messages(ctx context.Context, q eventstore.PageQuery, limit int) (list []*eventstore.Event, more bool, err error) {
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
		got = slices.DeleteFunc(got, func(e *eventstore.Event) bool { return e.Category != eventstore.CategoryMessage || instructs(e) })
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

// eachEvent calls fn with the events of a run, until it returns false. They are read in pages of this many rows. Of an unknown run there are none.
func (s *feeds) eachEvent(ctx context.Context, q eventstore.PageQuery, size int, fn func(*eventstore.Event) bool) error {
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

package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/a2a"
	"understudy/server/answer"
	"understudy/thread"
)

const (
	// maxTaskRuns bounds the runs that are read to find tasks, the newest ones.
	maxTaskRuns = 1000
	// maxHistory bounds the messages of a history, the last ones, and maxHistoryBytes what they have.
	maxHistory      = 1000
	maxHistoryBytes = 32 << 20
)

// agentTask is a task: a run and those that continued it with answers to its questions.
type agentTask struct {
	id     a2a.TaskID
	runs   []id.Run // the newest first
	last   *run.Run // without what it was called with
	newest bool     // no run of the thread is newer
	thread *thread.View
}

// state returns the state of a task.
func (t *agentTask) state() a2a.State {
	switch t.last.Status {
	case run.Pending:
		return a2a.Submitted
	case run.Running:
		return a2a.Working
	case run.Interrupted:
		return a2a.Canceled
	case run.Error, run.Timeout:
		return a2a.Failed
	}
	if len(t.questions()) > 0 {
		return a2a.InputRequired
	}
	return a2a.Completed
}

// questions returns what a task waits at: its thread does, and no other run has gone on from there.
func (t *agentTask) questions() []answer.Question {
	if !t.newest || t.last.Status != run.Success || t.thread.Status != thread.Interrupted {
		return nil
	}
	return answer.Questions(t.thread.Interrupts)
}

// findTask returns a task of an assistant.
func (s *Server) findTask(ctx context.Context, a *assistant.Assistant, key a2a.TaskID) (*agentTask, error) {
	first, err := s.opts.Runs.Get(ctx, key.Thread, key.Run)
	if fault.Is(err, fault.NotFound) {
		return nil, a2a.NoTask(key.String())
	}
	if err != nil {
		return nil, err
	}
	if first.Assistant != a.ID || gjson.GetBytes(first.Metadata, a2a.TaskKey).Exists() {
		return nil, a2a.NoTask(key.String())
	}
	found, err := s.tasksOf(ctx, key.Thread, maxTaskRuns, key.Run)
	if err != nil {
		return nil, err
	}
	for _, t := range found {
		if t.id == key {
			return t, nil
		}
	}
	page, err := s.threads(ctx, thread.Query{IDs: []id.Thread{key.Thread}, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		return nil, a2a.NoTask(key.String())
	}
	return &agentTask{id: key, runs: []id.Run{key.Run}, last: slim(first), thread: page[0]}, nil
}

func (s *Server) threads(ctx context.Context, q thread.Query) ([]*thread.View, error) {
	page, _, err := s.opts.Threads.Search(ctx, thread.Search{Query: q, NoValues: true})
	return page, err
}

// slim returns a run without what it was called with.
func slim(x *run.Run) *run.Run {
	return &run.Run{ID: x.ID, Thread: x.Thread, Assistant: x.Assistant, Status: x.Status, CreatedAt: x.CreatedAt, UpdatedAt: x.UpdatedAt, EndedAt: x.EndedAt, Error: x.Error, Kwargs: run.Arguments{Push: x.Kwargs.Push}}
}

// tasksOf returns the tasks of a thread, of all assistants, whose runs are among the newest, until the run `until` was seen.
func (s *Server) tasksOf(ctx context.Context, t id.Thread, most int, until id.Run) ([]*agentTask, error) {
	for again := 0; ; again++ {
		// First the thread: a run that is created meanwhile is newer than what the thread asks.
		page, err := s.threads(ctx, thread.Query{IDs: []id.Thread{t}, Limit: 1})
		if err != nil || len(page) == 0 {
			return nil, err
		}
		tasks, err := s.tasksIn(ctx, page[0], most, until)
		// A run that ended meanwhile may ask something, which the thread has since the same commit.
		if err != nil || again == 3 || len(tasks) == 0 || tasks[0].last.Status != run.Success || page[0].Status != thread.Busy {
			return tasks, err
		}
	}
}

// tasksIn is tasksOf for the row of a thread.
func (s *Server) tasksIn(ctx context.Context, row *thread.View, most int, until id.Run) ([]*agentTask, error) {
	var tasks []*agentTask
	byID := map[id.Run]*agentTask{}
	limit := 10
	for offset := 0; offset < most; offset, limit = offset+limit, 100 {
		limit = min(limit, most-offset)
		runs, err := s.opts.Runs.List(ctx, row.ID, run.Query{Limit: limit, Offset: offset, Bytes: wholeBytes})
		if err != nil {
			return nil, err
		}
		for i, x := range runs {
			if x.Left {
				if x, err = s.opts.Runs.Get(ctx, row.ID, x.ID); fault.Is(err, fault.NotFound) {
					continue
				}
				if err != nil {
					return nil, err
				}
			}
			first := x.ID
			if of := id.Run(id.Canonical(gjson.GetBytes(x.Metadata, a2a.TaskKey).Str)); of != "" {
				first = of
			}
			task := byID[first]
			if task == nil {
				task = &agentTask{id: a2a.TaskID{Thread: row.ID, Run: first}, last: slim(x), newest: offset+i == 0, thread: row}
				byID[first] = task
				tasks = append(tasks, task)
			}
			task.runs = append(task.runs, x.ID)
			if x.ID == until {
				return tasks, nil
			}
		}
		if len(runs) < limit {
			break
		}
	}
	return tasks, nil
}

// tasks returns the tasks of an assistant that a list selects, those that changed last first: of one context, or of its contexts that changed last.
func (s *Server) tasks(ctx context.Context, a *assistant.Assistant, filter gjson.Result) ([]*agentTask, error) {
	state := a2a.State("")
	if v := filter.Get("status").Str; v != "" && v != "TASK_STATE_UNSPECIFIED" {
		if state = a2a.ParseState(v); state == "" {
			return nil, &a2a.Error{Code: a2a.InvalidParams, Message: "status is a state of tasks"}
		}
	}
	after := time.Time{}
	if v := filter.Get("statusTimestampAfter").Str; v != "" {
		var err error
		if after, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return nil, &a2a.Error{Code: a2a.InvalidParams, Message: "statusTimestampAfter is a time as 2026-01-01T00:00:00Z"}
		}
	}
	var contexts []id.Thread
	if v := filter.Get("contextId").Str; v != "" {
		if contexts = []id.Thread{id.Thread(id.Canonical(v))}; contexts[0] == "" {
			return nil, &a2a.Error{Code: a2a.InvalidParams, Message: "contextId is a UUID"}
		}
	} else {
		of := jsonobj.Object{}
		of.SetText("assistant_id", string(a.ID))
		page, err := s.threads(ctx, thread.Query{Metadata: of.JSON(), Limit: maxTaskRuns, Bytes: wholeBytes})
		if err != nil {
			return nil, err
		}
		for _, t := range page {
			contexts = append(contexts, t.ID)
		}
	}
	var all []*agentTask
	for left := maxTaskRuns; len(contexts) > 0 && left > 0; contexts = contexts[1:] {
		found, err := s.tasksOf(ctx, contexts[0], left, "")
		if err != nil {
			return nil, err
		}
		for _, t := range found {
			left -= len(t.runs)
			if t.last.Assistant == a.ID && (state == "" || t.state() == state) && t.last.UpdatedAt.After(after) {
				all = append(all, t)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *agentTask) int {
		return cmp.Or(b.last.UpdatedAt.Compare(a.last.UpdatedAt), cmp.Compare(b.id.Run, a.id.Run))
	})
	return all, nil
}

// view says how a task is shown.
type view struct {
	agent       *assistant.Assistant
	history     *int // at most so many messages, the last ones; nil: all
	scope       bool // of the task alone, not of the whole context
	noArtifacts bool
	says        bool // that it was completed, as LangGraph Server does where no answer is
}

// compose returns a task with its history and its artifacts.
func (s *Server) compose(ctx context.Context, t *agentTask, show view) (*a2a.Task, error) {
	out := &a2a.Task{ID: t.id, State: t.state(), At: t.last.UpdatedAt, NoArtifacts: show.noArtifacts, NoHistory: show.history != nil && *show.history == 0}
	if !t.last.EndedAt.IsZero() {
		out.At = t.last.EndedAt
	}
	own, err := s.history(ctx, t, show, out)
	if err != nil {
		return nil, err
	}
	about := string(t.last.ID) + "-" + string(out.State)
	switch asked := t.questions(); out.State {
	case a2a.InputRequired:
		out.Status = a2a.Says(about, asked[0].Text(true))
		var raw []json.RawMessage
		for _, q := range asked {
			raw = append(raw, q.Raw)
		}
		out.Artifacts = []a2a.Artifact{a2a.Question(t.last.ID, raw)}
	case a2a.Failed:
		out.Status = a2a.Says(about, cmp.Or(answer.Failure(t.last.Error), "The run failed: "+string(t.last.Status)))
	case a2a.Completed:
		if show.says {
			out.Status = a2a.Says(about, "Task completed successfully")
		}
		if text := answer.Stored(own, nil).Text(); text != "" {
			out.Artifacts = []a2a.Artifact{a2a.Answer(t.last.ID, show.agent.ID, a2a.Part{Text: text})}
		} else if t.newest && len(own) == 0 && !show.noArtifacts {
			if out.Artifacts, err = s.valuesOf(ctx, t, show.agent); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// valuesOf returns the values of a graph that has no messages, as its answer.
func (s *Server) valuesOf(ctx context.Context, t *agentTask, a *assistant.Assistant) ([]a2a.Artifact, error) {
	v, err := s.opts.Threads.Get(ctx, t.id.Thread)
	if err != nil {
		return nil, err
	}
	if values := gjson.ParseBytes(v.Values); !values.IsObject() || values.Get("messages").Exists() {
		return nil, nil
	}
	return []a2a.Artifact{a2a.Answer(t.last.ID, a.ID, a2a.Part{Data: v.Values})}, nil
}

// history adds the history to a task, and returns the messages of its last run.
func (s *Server) history(ctx context.Context, t *agentTask, show view, out *a2a.Task) (own []json.RawMessage, err error) {
	end := id.Checkpoint("")
	if !t.newest { // what came later is no part of it
		if end, err = s.endOf(ctx, t.id.Thread, t.last.ID); err != nil {
			return nil, err
		}
	}
	of := []id.Run{""} // all runs
	if out.NoHistory {
		of = []id.Run{t.last.ID}
	} else if show.scope {
		of = slices.Clone(t.runs)
		slices.Reverse(of)
	}
	var all []*eventstore.Event
	size := 0
	for _, r := range of {
		page, err := s.opts.Events.Messages(ctx, eventstore.PageQuery{Thread: t.id.Thread, Run: r, At: end, Backward: true, Limit: maxHistory, Bytes: wholeBytes})
		if fault.Is(err, fault.NotFound) {
			return nil, a2a.NoTask(t.id.String())
		}
		if err != nil {
			return nil, err
		}
		for {
			row, err := page.Next(ctx, pieceBytes)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			all, size = append(all, row), size+len(row.Content)
			for size > maxHistoryBytes && len(all) > 1 {
				size -= len(all[0].Content)
				all[0], all = nil, all[1:]
			}
		}
	}
	for _, row := range all {
		if row.Run == t.last.ID {
			own = append(own, row.Content)
		}
		if out.NoHistory {
			continue
		}
		key := a2a.TaskID{Thread: t.id.Thread, Run: row.Run}
		if row.Run == "" || slices.Contains(t.runs, row.Run) {
			key = t.id
		}
		if m, ok := a2a.FromGraph(row.Content, row.MessageID, key); ok {
			out.History = append(out.History, m)
		}
	}
	if show.history != nil && len(out.History) > *show.history {
		out.History = out.History[len(out.History)-*show.history:]
	}
	return own, nil
}

// Package tasks reads the tasks of agents: a task is a run, and those that continued it with answers to its questions.
package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"understudy/access"
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
	// MaxRuns bounds the runs that are read to find tasks, the newest ones.
	MaxRuns = 1000
	// maxHistory bounds the messages of a history, the last ones, and maxHistoryBytes what they have.
	maxHistory      = 1000
	maxHistoryBytes = 32 << 20
	// pageBytes bounds what is read of rows at once, approximately.
	pageBytes = 1 << 20
)

// Task is a task of an agent: a run and those that continued it with answers to its questions.
type Task struct {
	ID   a2a.TaskID
	Last *run.Run // without what it was called with

	runs   []id.Run // the newest first
	newest bool     // no run of the thread is newer
	thread *thread.View
}

// State returns the state of a task.
func (t *Task) State() a2a.State {
	switch t.Last.Status {
	case run.Pending:
		return a2a.Submitted
	case run.Running:
		return a2a.Working
	case run.Interrupted:
		return a2a.Canceled
	case run.Error, run.Timeout:
		return a2a.Failed
	}
	if len(t.Questions()) > 0 {
		return a2a.InputRequired
	}
	return a2a.Completed
}

// Questions returns what a task waits at: its thread does, and no other run has gone on from there.
func (t *Task) Questions() []answer.Question {
	if !t.newest || t.Last.Status != run.Success || t.thread.Status != thread.Interrupted {
		return nil
	}
	return answer.Questions(t.thread.Interrupts)
}

// Runs are the runs of which tasks consist.
type Runs interface {
	Get(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error)
	List(ctx context.Context, t id.Thread, q run.Query) ([]*run.Run, error)
	Newest(ctx context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error
}

// Threads are the contexts of tasks.
type Threads interface {
	Get(ctx context.Context, t id.Thread) (*thread.View, error)
	Search(ctx context.Context, q thread.Search) (page []*thread.View, more bool, err error)
	ReadHistory(ctx context.Context, q thread.HistoryQuery) (thread.Entries, error)
}

// Events has the messages of tasks.
type Events interface {
	Messages(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error)
}

// Reader finds tasks and composes what clients see of them. All of it is read from rows, so any server can answer for any task.
type Reader struct {
	Runs    Runs
	Threads Threads
	Events  Events
}

// Find returns a task of an assistant. The error is a2a.NoTask if there is none.
func (r *Reader) Find(ctx context.Context, a *assistant.Assistant, key a2a.TaskID) (*Task, error) {
	first, err := r.Runs.Get(ctx, key.Thread, key.Run)
	denied := (*access.Refusal)(nil)
	if fault.Is(err, fault.NotFound) || errors.As(err, &denied) && denied.Status == http.StatusNotFound {
		return nil, a2a.NoTask(key.String())
	}
	if err != nil {
		return nil, err
	}
	if first.Assistant != a.ID || gjson.GetBytes(first.Metadata, a2a.TaskKey).Exists() {
		return nil, a2a.NoTask(key.String())
	}
	found, err := r.tasksOf(ctx, key.Thread, MaxRuns, key.Run)
	if err != nil {
		return nil, err
	}
	for _, t := range found {
		if t.ID == key {
			return t, nil
		}
	}
	page, err := r.threads(ctx, thread.Query{IDs: []id.Thread{key.Thread}, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		return nil, a2a.NoTask(key.String())
	}
	return &Task{ID: key, runs: []id.Run{key.Run}, Last: slim(first), thread: page[0]}, nil
}

func (r *Reader) threads(ctx context.Context, q thread.Query) ([]*thread.View, error) {
	page, _, err := r.Threads.Search(ctx, thread.Search{Query: q, NoValues: true})
	return page, err
}

// slim returns a run without what it was called with.
func slim(x *run.Run) *run.Run {
	return &run.Run{ID: x.ID, Thread: x.Thread, Assistant: x.Assistant, Status: x.Status, CreatedAt: x.CreatedAt, UpdatedAt: x.UpdatedAt, EndedAt: x.EndedAt, Error: x.Error, Kwargs: run.Arguments{Push: x.Kwargs.Push}}
}

// tasksOf returns the tasks of a thread, of all assistants, whose runs are among the newest, until the run `until` was seen.
func (r *Reader) tasksOf(ctx context.Context, t id.Thread, most int, until id.Run) ([]*Task, error) {
	for again := 0; ; again++ {
		// First the thread: a run that is created meanwhile is newer than what the thread asks.
		page, err := r.threads(ctx, thread.Query{IDs: []id.Thread{t}, Limit: 1})
		if err != nil || len(page) == 0 {
			return nil, err
		}
		tasks, err := r.tasksIn(ctx, page[0], most, until)
		// A run that ended meanwhile may ask something, which the thread has since the same commit.
		if err != nil || again == 3 || len(tasks) == 0 || tasks[0].Last.Status != run.Success || page[0].Status != thread.Busy {
			return tasks, err
		}
	}
}

// tasksIn is tasksOf for the row of a thread.
func (r *Reader) tasksIn(ctx context.Context, row *thread.View, most int, until id.Run) ([]*Task, error) {
	var found groups
	limit := 10
	for offset := 0; offset < most; offset, limit = offset+limit, 100 {
		limit = min(limit, most-offset)
		runs, err := r.Runs.List(ctx, row.ID, run.Query{Limit: limit, Offset: offset, Bytes: pageBytes})
		if err != nil {
			return nil, err
		}
		for _, x := range runs {
			if x.Left {
				if x, err = r.Runs.Get(ctx, row.ID, x.ID); fault.Is(err, fault.NotFound) {
					continue
				}
				if err != nil {
					return nil, err
				}
			}
			found.add(row, x)
			if x.ID == until {
				return found.tasks, nil
			}
		}
		if len(runs) < limit {
			break
		}
	}
	return found.tasks, nil
}

// groups puts runs together to tasks.
type groups struct {
	tasks []*Task // in the order in which their last runs were added
	byID  map[id.Run]*Task
	seen  map[id.Thread]bool
}

// add adds a run of a thread. Of each thread the newest run comes first.
func (g *groups) add(row *thread.View, x *run.Run) {
	if g.byID == nil {
		g.byID, g.seen = map[id.Run]*Task{}, map[id.Thread]bool{}
	}
	first := x.ID
	if of := id.Run(id.Canonical(gjson.GetBytes(x.Metadata, a2a.TaskKey).Str)); of != "" {
		first = of
	}
	task := g.byID[first]
	if task == nil {
		task = &Task{ID: a2a.TaskID{Thread: row.ID, Run: first}, Last: slim(x), newest: !g.seen[row.ID], thread: row}
		g.byID[first] = task
		g.tasks = append(g.tasks, task)
	}
	g.seen[row.ID] = true
	task.runs = append(task.runs, x.ID)
}

// newest returns the tasks of threads whose runs are among the newest, with a number of queries that does not grow with that of threads.
func (r *Reader) newest(ctx context.Context, of thread.Query) ([]*Task, error) {
	for again := 0; ; again++ {
		// First the threads, as in tasksOf.
		page, err := r.threads(ctx, of)
		if err != nil || len(page) == 0 {
			return nil, err
		}
		rows, ids := map[id.Thread]*thread.View{}, make([]id.Thread, len(page))
		for i, row := range page {
			if row.Left { // so are those that changed before it
				ids = ids[:i]
				break
			}
			rows[row.ID], ids[i] = row, row.ID
		}
		var found groups
		changed := false // a run ended meanwhile, and may ask something
		if err := r.Runs.Newest(ctx, ids, MaxRuns, func(x *run.Run) error {
			row := rows[x.Thread]
			changed = changed || !found.seen[row.ID] && x.Status == run.Success && row.Status == thread.Busy
			found.add(row, x)
			return nil
		}); err != nil {
			return nil, err
		}
		if !changed || again == 3 {
			return found.tasks, nil
		}
	}
}

// List returns the tasks of an assistant that a list selects, those that changed last first: of one context, or of its contexts that changed last.
func (r *Reader) List(ctx context.Context, a *assistant.Assistant, filter gjson.Result) ([]*Task, error) {
	state := a2a.State("")
	if v := filter.Get("status").Str; v != "" && v != "TASK_STATE_UNSPECIFIED" {
		if state = a2a.ParseState(v); state == "" {
			return nil, &a2a.Error{Code: a2a.InvalidParams, Message: "Invalid status value: '" + v[:min(len(v), 100)] + "'."}
		}
	}
	after := time.Time{}
	if v := filter.Get("statusTimestampAfter").Str; v != "" {
		var err error
		if after, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return nil, &a2a.Error{Code: a2a.InvalidParams, Message: "statusTimestampAfter is a time as 2026-01-01T00:00:00Z"}
		}
	}
	of := thread.Query{Limit: MaxRuns, Bytes: maxHistoryBytes}
	if v := filter.Get("contextId").Str; v != "" {
		context := id.Thread(id.Canonical(v))
		if context == "" {
			return nil, &a2a.Error{Code: a2a.InvalidParams, Message: "contextId is a UUID"}
		}
		of.IDs = []id.Thread{context}
	} else {
		own := jsonobj.Object{}
		own.SetText("assistant_id", string(a.ID))
		of.Metadata = own.JSON()
	}
	found, err := r.newest(ctx, of)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(found, func(t *Task) bool {
		return t.Last.Assistant != a.ID || state != "" && t.State() != state || !t.Last.UpdatedAt.After(after)
	})
	slices.SortStableFunc(all, func(a, b *Task) int {
		return cmp.Or(b.Last.UpdatedAt.Compare(a.Last.UpdatedAt), cmp.Compare(b.ID.Run, a.ID.Run))
	})
	return all, nil
}

// View says how a task is shown.
type View struct {
	Agent       *assistant.Assistant
	History     *int // at most so many messages, the last ones; nil: all
	Scope       bool // of the task alone, not of the whole context
	NoArtifacts bool
	Says        bool // that it was completed, as LangGraph Server does where no answer is
}

// Compose returns a task with its history and its artifacts.
func (r *Reader) Compose(ctx context.Context, t *Task, show View) (*a2a.Task, error) {
	out := &a2a.Task{ID: t.ID, State: t.State(), At: t.Last.UpdatedAt, NoArtifacts: show.NoArtifacts, NoHistory: show.History != nil && *show.History == 0}
	if !t.Last.EndedAt.IsZero() {
		out.At = t.Last.EndedAt
	}
	own, err := r.history(ctx, t, show, out)
	if err != nil {
		return nil, err
	}
	about := string(t.Last.ID) + "-" + string(out.State)
	switch asked := t.Questions(); out.State {
	case a2a.InputRequired:
		out.Status = a2a.Says(about, asked[0].Text(true))
		var raw []json.RawMessage
		for _, q := range asked {
			raw = append(raw, q.Raw)
		}
		out.Artifacts = []a2a.Artifact{a2a.Question(t.Last.ID, raw)}
	case a2a.Failed:
		out.Status = a2a.Says(about, cmp.Or(answer.Failure(t.Last.Error), "The run failed: "+string(t.Last.Status)))
	case a2a.Completed:
		if show.Says {
			out.Status = a2a.Says(about, "Task completed successfully")
		}
		if text := answer.Stored(own, nil).Text(); text != "" {
			out.Artifacts = []a2a.Artifact{a2a.Answer(t.Last.ID, show.Agent.ID, a2a.Part{Text: text})}
		} else if t.newest && len(own) == 0 && !show.NoArtifacts {
			if out.Artifacts, err = r.valuesOf(ctx, t, show.Agent); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// valuesOf returns the values of a graph that has no messages, as its answer.
func (r *Reader) valuesOf(ctx context.Context, t *Task, a *assistant.Assistant) ([]a2a.Artifact, error) {
	v, err := r.Threads.Get(ctx, t.ID.Thread)
	if err != nil {
		return nil, err
	}
	if values := gjson.ParseBytes(v.Values); !values.IsObject() || values.Get("messages").Exists() {
		return nil, nil
	}
	return []a2a.Artifact{a2a.Answer(t.Last.ID, a.ID, a2a.Part{Data: v.Values})}, nil
}

// history adds the history to a task, and returns the messages of its last run.
func (r *Reader) history(ctx context.Context, t *Task, show View, out *a2a.Task) (own []json.RawMessage, err error) {
	end := id.Checkpoint("")
	if !t.newest { // what came later is no part of it
		if end, err = answer.LastCheckpoint(ctx, r.Threads, t.ID.Thread, t.Last.ID); err != nil {
			return nil, err
		}
	}
	of := []id.Run{""} // all runs
	if out.NoHistory {
		of = []id.Run{t.Last.ID}
	} else if show.Scope {
		of = slices.Clone(t.runs)
		slices.Reverse(of)
	}
	var all []*eventstore.Event
	size := 0
	for _, x := range of {
		page, err := r.Events.Messages(ctx, eventstore.PageQuery{Thread: t.ID.Thread, Run: x, At: end, Backward: true, Limit: maxHistory, Bytes: pageBytes})
		if fault.Is(err, fault.NotFound) {
			return nil, a2a.NoTask(t.ID.String())
		}
		if err != nil {
			return nil, err
		}
		for {
			row, err := page.Next(ctx, pageBytes)
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
		if row.Run == t.Last.ID {
			own = append(own, row.Content)
		}
		if out.NoHistory {
			continue
		}
		key := a2a.TaskID{Thread: t.ID.Thread, Run: row.Run}
		if row.Run == "" || slices.Contains(t.runs, row.Run) {
			key = t.ID
		}
		if m, ok := a2a.FromGraph(row.Content, row.MessageID, key); ok {
			out.History = append(out.History, m)
		}
	}
	if show.History != nil && len(out.History) > *show.History {
		out.History = out.History[len(out.History)-*show.History:]
	}
	return own, nil
}

package service

import (
	"context"
	"encoding/json"

	"understudy/bridge"
	"understudy/id"
	"understudy/run"
	"understudy/run/completion"
	"understudy/run/cron"
	"understudy/run/spans"
)

// What the parts of a Service do for its callers.

// Join follows a run to its end for its result. A run that is over answers with its thread as it is now.
func (s *Service) Join(ctx context.Context, t id.Thread, r id.Run) (run.Follower, error) {
	return s.followers.Join(ctx, t, r)
}

// JoinStream follows the records of a run above an offset; from nil: only what comes from now on. The run is not cancelled when the reader leaves
// unless cancelOnLeave.
func (s *Service) JoinStream(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset, modes []string, cancelOnLeave bool) (run.Follower, error) {
	return s.followers.JoinStream(ctx, t, r, from, modes, cancelOnLeave)
}

// StreamThread follows all runs of a thread; it never ends by itself. A thread that does not exist yet is waited for.
func (s *Service) StreamThread(ctx context.Context, t id.Thread, from *bridge.Offset, modes []string) (run.Follower, error) {
	return s.followers.StreamThread(ctx, t, from, modes)
}

// PublishState publishes, for followers of a thread, a state that a client has written, and its checkpoint. data: {"state": …, "thread_id": …}.
func (s *Service) PublishState(t id.Thread, at id.Checkpoint, data json.RawMessage) {
	s.publisher.PublishState(t, at, data)
}

// Newest calls fn with the newest runs of threads that the caller has found by a search, newest first and without arguments.
func (s *Service) Newest(ctx context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error {
	return s.Store.NewestRuns(ctx, threads, limit, fn)
}

// Recent returns runs of all threads, newest first and without arguments, and where the next page begins.
func (s *Service) Recent(ctx context.Context, q run.Recent) (page []*run.Run, next id.Run, err error) {
	return s.Store.RecentRuns(ctx, q)
}

// Spans returns the spans of a run in the order of their begins. While it runs they are those that its server knows, or, on another one, has stored.
func (s *Service) Spans(ctx context.Context, r id.Run) (*run.Run, []spans.Span, error) {
	// What its server knows comes first: it drops only what is stored.
	live := s.executions.Spans(r)
	row, err := s.Get(ctx, "", r)
	if err != nil {
		return nil, nil, err
	}
	bodies, err := s.Store.SpanBatches(ctx, row.Thread, r)
	if err != nil {
		return nil, nil, err
	}
	list, err := spans.Of(row, bodies, live)
	return row, list, err
}

// Crons are the schedules that make runs.
func (s *Service) Crons() *cron.Crons { return s.crons }

// Load returns how many runs this server executes, at most and now.
func (s *Service) Load() (most, used int) { return s.queue.Load() }

// Queue returns the state of the queue of all servers.
func (s *Service) Queue(ctx context.Context) (run.Queue, error) { return s.queue.State(ctx) }

// Completions returns the completion data of runs that are over, by run. Those that are not, that ended before it was kept, or that were never claimed have none.
func (s *Service) Completions(ctx context.Context, runs ...*run.Run) (map[id.Run]*run.Completion, error) {
	over := make([]id.Run, 0, len(runs))
	for _, r := range runs {
		if r.Status.Over() || r.Left {
			over = append(over, r.ID)
		}
	}
	if len(over) == 0 {
		return nil, nil
	}
	return s.Store.Completions(ctx, over...)
}

// Progress returns what a run that is not over has used so far, as far as it is stored: with each checkpoint.
func (s *Service) Progress(ctx context.Context, r *run.Run) (*run.Completion, error) {
	calls, err := s.Store.ModelCalls(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return completion.Sum(calls), nil
}

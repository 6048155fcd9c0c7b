package run

import (
	"context"
	"encoding/json"

	"understudy/bridge"
	"understudy/id"
)

// What the parts of a Service do for its callers.

// Join follows a run to its end for its result. A run that is over answers with its thread as it is now.
func (s *Service) Join(ctx context.Context, t id.Thread, r id.Run) (Follower, error) {
	return s.followers.join(ctx, t, r)
}

// JoinStream follows the records of a run above an offset; from nil: only what comes from now on. The run is not cancelled when the reader leaves
// unless cancelOnLeave.
func (s *Service) JoinStream(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset, modes []string, cancelOnLeave bool) (Follower, error) {
	return s.followers.joinStream(ctx, t, r, from, modes, cancelOnLeave)
}

// StreamThread follows all runs of a thread; it never ends by itself. A thread that does not exist yet is waited for.
func (s *Service) StreamThread(ctx context.Context, t id.Thread, from *bridge.Offset, modes []string) (Follower, error) {
	return s.followers.streamThread(ctx, t, from, modes)
}

// PublishState publishes, for followers of a thread, a state that a client has written, and its checkpoint. data: {"state": …, "thread_id": …}.
func (s *Service) PublishState(t id.Thread, at id.Checkpoint, data json.RawMessage) {
	s.publisher.publishState(t, at, data)
}

// Load returns how many runs this server executes, at most and now.
func (s *Service) Load() (most, used int) { return s.queue.load() }

// Queue returns the state of the queue of all servers.
func (s *Service) Queue(ctx context.Context) (Queue, error) { return s.queue.state(ctx) }

// CreateCron makes a cron.
func (s *Service) CreateCron(ctx context.Context, n NewCron) (*Cron, error) {
	return s.crons.create(ctx, n)
}

// GetCron returns a cron.
func (s *Service) GetCron(ctx context.Context, c id.Cron) (*Cron, error) {
	return s.crons.get(ctx, c)
}

// UpdateCron changes a cron. A changed schedule, zone or end counts from now.
func (s *Service) UpdateCron(ctx context.Context, c id.Cron, p CronPatch) (*Cron, error) {
	return s.crons.update(ctx, c, p)
}

// DeleteCron removes a cron. Runs that it made are not affected.
func (s *Service) DeleteCron(ctx context.Context, c id.Cron) error { return s.crons.remove(ctx, c) }

// SearchCrons returns a page, and whether there is another one behind it.
func (s *Service) SearchCrons(ctx context.Context, q CronQuery) ([]*Cron, bool, error) {
	return s.crons.search(ctx, q)
}

// CountCrons is the number that SearchCrons would find in all.
func (s *Service) CountCrons(ctx context.Context, q CronQuery) (int, error) {
	return s.Store.CountCrons(ctx, q)
}

package usage

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"understudy/eventstore"
	"understudy/eventstore/follow"
	"understudy/id"
)

// Follower is the name of the offsets. Their Position is the event behind which usage is a read model of the log: the follower began there.
const Follower = "usage"

// gather is how long ends of runs wait for others, so that many are added in one transaction.
const gather = time.Second

// NewLoop returns the loop that adds what runs used when the log says that they are over. Run it on every server of a database.
func NewLoop(store Store, changes *eventstore.Changes, now func() time.Time, log *slog.Logger) *follow.Loop {
	c := &counter{Store: store, now: now, log: log}
	l := &follow.Loop{Name: Follower, Store: c, Changes: changes, Log: log, Sync: c.sync, Gather: gather}
	l.SweepBehind(store)
	return l
}

// counter stages the runs that are over of the threads that its loop synchronizes, and counts them when the loop stores their offsets, with runs of any threads that
// were deleted before. Offsets of two servers may overtake each other: a run counts once, however often it is found.
type counter struct {
	Store
	now    func() time.Time
	log    *slog.Logger
	staged []id.Run
}

// count counts runs, and stores offsets with them; then all deleted runs that are left.
func (c *counter) count(ctx context.Context, runs []id.Run, offsets []eventstore.Offset) error {
	for more := true; more; runs, offsets = nil, nil {
		counted, err := c.CountRuns(ctx, runs, offsets)
		if err != nil {
			return err
		}
		for r, why := range counted.Unread {
			c.log.ErrorContext(ctx, "a run is not counted in the usage: its row cannot be read", "run_id", r, "error", why, "fix", "see that all keys it was encrypted with are given; delete the run")
		}
		more = counted.More
	}
	return nil
}

func (c *counter) sync(ctx context.Context, t id.Thread, was *eventstore.Offset, created time.Time, _ bool) (changed *eventstore.Offset, more bool, err error) {
	at := eventstore.Offset{Thread: t, Created: created}
	if was != nil && was.Created.Equal(created) {
		at = *was
	}
	ends, err := c.EndsOf(ctx, t, at.Seq, oldest(c.now()), batchRuns)
	if err != nil {
		return nil, false, err
	}
	if created.IsZero() {
		if was == nil && !ends.Listed {
			return nil, false, nil
		}
		return &at, false, nil // which deletes the offset
	}
	for _, e := range ends.Runs {
		c.staged = append(c.staged, e.Run)
	}
	if at.Seq = ends.Last; was != nil && *was == at && !ends.Listed {
		return nil, false, nil
	}
	return &at, ends.More, nil
}

// PutOffsets implements follow.Store.
func (c *counter) PutOffsets(ctx context.Context, _ string, offsets []eventstore.Offset) error {
	runs := c.staged
	c.staged = nil
	for len(runs) > batchRuns {
		if err := c.count(ctx, runs[:batchRuns], nil); err != nil {
			return err
		}
		runs = runs[batchRuns:]
	}
	slices.SortFunc(offsets, func(a, b eventstore.Offset) int { return cmp.Compare(a.Thread, b.Thread) }) // in the same order on all servers
	return c.count(ctx, runs, offsets)
}

// oldest is when the oldest runs ended whose usage is kept.
func oldest(now time.Time) time.Time { return Date(DayOf(now) - keepDays) }

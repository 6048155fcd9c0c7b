package readmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"understudy/eventstore"
	"understudy/eventstore/follow"
	"understudy/id"
)

const (
	// Follower is the name of the offsets. Another one makes all rows anew, in the background: change it when project changes.
	Follower  = "readmodels"
	batchRows = 500 // events of one change
	// gather is how long changes wait for others, so that a run is mostly one write.
	gather = time.Second
)

// Change replaces rows of a thread, with an offset, in one transaction.
type Change struct {
	Thread id.Thread
	// Was is the offset that it is based on, nil: none. With another one the change is refused.
	Was *eventstore.Offset
	// Now is the offset afterwards. Its Position is the first event that is the thread's own. Without Created the thread is gone.
	Now    eventstore.Offset
	Drop   bool  // delete all rows of the thread first
	Delete []Row // by their keys
	Head   *Row  // replaces the head; nil: it stays
	Put    []Row
}

// Projection is what is stored of a thread, in one state of the database.
type Projection struct {
	Offset  *eventstore.Offset // nil: nothing is
	Created time.Time          // of the thread; zero: it is gone
	Rows    []Row
}

// Store is the storage of read models.
type Store interface {
	follow.ObserverStore
	// Followed returns threads above one, in order of id: all that are there, and those that have an offset.
	Followed(ctx context.Context, follower string, after id.Thread, limit int) ([]id.Thread, error)
	// Marks returns events above a seq without their contents, in order.
	Marks(ctx context.Context, t id.Thread, after eventstore.Seq, limit int) ([]*eventstore.Event, error)
	// Projection returns the rows of a thread of one model, or with "" of all.
	Projection(ctx context.Context, follower string, t id.Thread, model string) (*Projection, error)
	// Project makes changes, and returns the threads whose changes were refused: their offset is another one, or the thread is not the one of the offset.
	Project(ctx context.Context, follower string, list []Change) (refused []id.Thread, err error)
}

// NewLoop returns the loop that updates the read models. Run it on every server of a database.
func NewLoop(store Store, changes *eventstore.Changes, log *slog.Logger) *follow.Loop {
	p := &projector{Store: store, changes: changes, staged: map[id.Thread]Change{}}
	l := &follow.Loop{Name: Follower, Store: p, Changes: changes, Log: log, Sync: p.sync, Gather: gather}
	l.SweepBehind(store)
	return l
}

// projector stages changes of the threads that its loop synchronizes, and makes them when the loop stores their offsets.
type projector struct {
	Store
	changes *eventstore.Changes
	staged  map[id.Thread]Change
}

func (p *projector) sync(ctx context.Context, t id.Thread, was *eventstore.Offset, created time.Time, _ bool) (changed *eventstore.Offset, more bool, err error) {
	c, more, err := next(ctx, p.Store, t, was, created)
	if err != nil || c == nil {
		return nil, false, err
	}
	p.staged[t] = *c
	return &c.Now, more, nil
}

// PutOffsets implements follow.Store.
func (p *projector) PutOffsets(ctx context.Context, follower string, _ []eventstore.Offset) error {
	list := make([]Change, 0, len(p.staged))
	for _, t := range slices.Sorted(maps.Keys(p.staged)) { // in the same order on all servers
		list = append(list, p.staged[t])
	}
	clear(p.staged)
	refused, err := p.Project(ctx, follower, list)
	if err == nil && len(refused) > 0 {
		p.changes.Add(refused) // another server was faster, or the thread has just gone
	}
	return err
}

// next returns the change of the next events of a thread; nil: there are none.
func next(ctx context.Context, store Store, t id.Thread, was *eventstore.Offset, created time.Time) (c *Change, more bool, err error) {
	c = &Change{Thread: t, Was: was, Now: eventstore.Offset{Thread: t, Created: created}}
	if was != nil && !was.Created.Equal(created) {
		c.Drop = true // another thread, or none, has its id
	} else if was != nil {
		c.Now = *was
	}
	if created.IsZero() {
		if was == nil {
			return nil, false, nil
		}
		return c, false, nil
	}
	events, err := store.Marks(ctx, t, c.Now.Seq, batchRows)
	if err != nil || len(events) == 0 && !c.Drop {
		return nil, false, err
	}
	if len(events) == 0 {
		return c, false, nil
	}
	var head *Row
	if c.Now.Seq == 0 {
		own, err := firstOwn(ctx, store, t, events)
		if err != nil {
			return nil, false, err
		}
		c.Now.Position = int64(own)
	} else {
		p, err := store.Projection(ctx, Follower, t, Heads)
		if err != nil {
			return nil, false, err
		}
		for i := range p.Rows {
			head = &p.Rows[i]
		}
	}
	lineages, err := lineagesOf(ctx, store, events)
	if err != nil {
		return nil, false, err
	}
	c.Put, c.Head = project(events, eventstore.Seq(c.Now.Position), head, lineages)
	c.Now.Seq = events[len(events)-1].Seq
	return c, len(events) == batchRows, nil
}

// firstOwn returns the first event that is the thread's own, 0: all are. events are its first ones.
func firstOwn(ctx context.Context, store Store, t id.Thread, events []*eventstore.Event) (own eventstore.Seq, err error) {
	if len(events) == batchRows { // its fork may come later
		return store.LastOf(ctx, t, eventstore.TypeFork)
	}
	for _, e := range events {
		if e.Type == eventstore.TypeFork {
			own = e.Seq
		}
	}
	return own, nil
}

// lineagesOf reads what events say about forks.
func lineagesOf(ctx context.Context, store Store, events []*eventstore.Event) (map[eventstore.Seq]eventstore.Lineage, error) {
	var out map[eventstore.Seq]eventstore.Lineage
	for _, e := range events {
		if e.Type != eventstore.TypeFork {
			continue
		}
		list, err := store.Events(ctx, e.Thread, e.Seq-1, 1)
		if err != nil {
			return nil, err
		}
		var l eventstore.Lineage
		if len(list) == 0 || list[0].Seq != e.Seq || json.Unmarshal(list[0].Content, &l) != nil || l.Source == "" {
			continue // it is gone meanwhile, or of another program: then it is the lineage of nothing
		}
		if out == nil {
			out = map[eventstore.Seq]eventstore.Lineage{}
		}
		out[e.Seq] = l
	}
	return out, nil
}

// catchUp brings the rows of a thread up to date, as far as another one does not do so at this moment.
func catchUp(ctx context.Context, store Store, t id.Thread) error {
	for tries := 0; tries < 3; {
		was, created, err := store.Offset(ctx, Follower, t)
		if err != nil {
			return err
		}
		c, _, err := next(ctx, store, t, was, created)
		if err != nil || c == nil {
			return err
		}
		refused, err := store.Project(ctx, Follower, []Change{*c})
		if err != nil {
			return fmt.Errorf("read models of thread %s: %w", t, err)
		}
		if len(refused) > 0 {
			tries++
		}
	}
	return nil
}

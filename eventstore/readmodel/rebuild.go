package readmodel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"understudy/eventstore"
	"understudy/id"
)

// Rebuilding makes read models anew from the log and compares them with what is stored.
type Rebuilding struct {
	Store  Store
	Models []string // nil: all
	Check  bool     // only compare: nothing is written
	// Differs is called for each thread with rows that differ: extra are stored and should not be, missing are the reverse; a row with other columns is in both. nil: no calls.
	Differs func(t id.Thread, extra, missing []Row)
	// Progress is called after each thread with the number of threads so far; nil: no calls.
	Progress func(threads int)
}

// Rebuilt is the result.
type Rebuilt struct {
	Threads   int            // that were compared
	Rows      map[string]int // that are right now, by model
	Different int            // threads with rows that differed
	// Behind are threads with events that were not in the read models yet: the follower adds them. Only with Check.
	Behind int
}

const (
	pageThreads = 200
	// rebuildTries is how often a thread is compared that changes meanwhile.
	rebuildTries = 20
)

// errChanging: a thread changed at each try.
var errChanging = errors.New("the thread changed at each try; run it again")

// Run compares, thread by thread, and unless Check is set replaces rows that differ, until a comparison finds none. Servers may work on the database.
func (r *Rebuilding) Run(ctx context.Context) (*Rebuilt, error) {
	models := r.Models
	if len(models) == 0 {
		models = Models()
	}
	for _, m := range models {
		if !slices.Contains(Models(), m) {
			return nil, fmt.Errorf("there is no read model %q", m)
		}
	}
	out := &Rebuilt{Rows: map[string]int{}}
	for _, m := range models {
		out.Rows[m] = 0
	}
	for after := id.Thread(""); ; {
		page, err := r.Store.Followed(ctx, Follower, after, pageThreads)
		if err != nil || len(page) == 0 {
			return out, err
		}
		for _, t := range page {
			if err := r.thread(ctx, t, models, out); err != nil {
				return out, fmt.Errorf("thread %s: %w", t, err)
			}
			if out.Threads++; r.Progress != nil {
				r.Progress(out.Threads)
			}
		}
		after = page[len(page)-1]
	}
}

// thread handles one thread.
func (r *Rebuilding) thread(ctx context.Context, t id.Thread, models []string, out *Rebuilt) error {
	logged := false
	for range rebuildTries {
		if !r.Check {
			if err := catchUp(ctx, r.Store, t); err != nil {
				return err
			}
		}
		p, err := r.Store.Projection(ctx, Follower, t, "")
		if err != nil {
			return err
		}
		if p.Offset != nil && !p.Offset.Created.Equal(p.Created) {
			// The rows are of a thread that is gone; the follower lets them go.
			if r.Check {
				out.Behind++
				return nil
			}
			continue
		}
		want, behind, err := fresh(ctx, r.Store, t, p)
		if err != nil {
			return err
		}
		extra, missing := differences(p.Rows, want, models)
		if len(extra)+len(missing) > 0 {
			// The log is read later than the rows: the thread may have gone in between.
			is, created, err := r.Store.Offset(ctx, Follower, t)
			if err != nil {
				return err
			}
			if !created.Equal(p.Created) || !sameOffset(is, p.Offset) {
				continue
			}
			if !logged && r.Differs != nil {
				r.Differs(t, extra, missing)
			}
			if !logged {
				out.Different++
				logged = true
			}
			if !r.Check {
				if err := r.replace(ctx, t, p, extra, missing); err != nil {
					return err
				}
				continue // and is compared again
			}
		}
		if behind && r.Check {
			out.Behind++
		}
		for _, row := range want {
			if _, chosen := out.Rows[row.Model]; chosen {
				out.Rows[row.Model]++
			}
		}
		return nil
	}
	return errChanging
}

// fresh makes the rows of a thread from the log, up to the offset of what is stored.
func fresh(ctx context.Context, store Store, t id.Thread, p *Projection) (rows []Row, behind bool, err error) {
	upTo := eventstore.Seq(0)
	if p.Offset != nil {
		upTo = p.Offset.Seq
	}
	if p.Created.IsZero() {
		return nil, false, nil
	}
	own, err := store.LastOf(ctx, t, eventstore.TypeFork)
	if err != nil {
		return nil, false, err
	}
	var head *Row
	for at := eventstore.Seq(0); ; {
		events, err := store.Marks(ctx, t, at, batchRows)
		if err != nil || len(events) == 0 {
			return withHead(rows, head), false, err
		}
		in := events[:0:0]
		for _, e := range events {
			if e.Seq <= upTo {
				in = append(in, e)
			}
		}
		lineages, err := lineagesOf(ctx, store, in)
		if err != nil {
			return nil, false, err
		}
		var more []Row
		more, head = project(in, own, head, lineages)
		rows = append(rows, more...)
		if len(in) < len(events) {
			return withHead(rows, head), true, nil
		}
		at = events[len(events)-1].Seq
	}
}

func withHead(rows []Row, head *Row) []Row {
	if head == nil {
		return rows
	}
	return append(rows, *head)
}

func sameOffset(a, b *eventstore.Offset) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Created.Equal(b.Created) && a.Seq == b.Seq && a.Position == b.Position
}

// replace deletes and adds rows, some at a time, while the offset stays the same.
func (r *Rebuilding) replace(ctx context.Context, t id.Thread, p *Projection, extra, missing []Row) error {
	if p.Offset == nil { // there are rows of a thread without events: they go with a first offset
		c := Change{Thread: t, Now: eventstore.Offset{Thread: t, Created: p.Created}, Drop: true}
		_, err := r.Store.Project(ctx, Follower, []Change{c})
		return err
	}
	for len(extra)+len(missing) > 0 {
		c := Change{Thread: t, Was: p.Offset, Now: *p.Offset}
		n := min(batchRows, len(extra))
		c.Delete, extra = extra[:n], extra[n:]
		if len(extra) == 0 { // a row with other columns goes before it comes
			n = min(batchRows, len(missing))
			c.Put, missing = missing[:n], missing[n:]
		}
		refused, err := r.Store.Project(ctx, Follower, []Change{c})
		if err != nil || len(refused) > 0 {
			return err
		}
	}
	return nil
}

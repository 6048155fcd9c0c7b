package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
)

// Name is that of the read model.
const Name = "usage"

// Kept is a kept run, and what is to be kept of it.
type Kept struct {
	Ended
	Want *Ended // made of the rows of the run; nil: they were deleted
}

// RebuildStore is the storage that a rebuild needs.
type RebuildStore interface {
	Store
	// Followed returns threads above one, in order of id: all that are there, and those that have an offset.
	Followed(ctx context.Context, follower string, after id.Thread, limit int) ([]id.Thread, error)
	// KeptRuns returns kept runs behind another one, in order of day and run.
	KeptRuns(ctx context.Context, behind Ended, limit int) ([]Kept, error)
	// DaysOfUsage returns the days with kept runs or their sums.
	DaysOfUsage(ctx context.Context) ([]int64, error)
	// UsageOfDay returns the sums of a day, as they are stored and as what is kept of runs adds up to, in one state of the database.
	UsageOfDay(ctx context.Context, day int64) (stored, kept map[Place][]Sum, err error)
}

// Rebuilding makes what is kept of runs anew from their rows, and the sums from what is kept, and compares both with what is stored.
type Rebuilding struct {
	Store RebuildStore
	Now   func() time.Time
	Check bool // only compare: nothing is written
	// Differs is called for each day with what differs; nil: no calls.
	Differs func(day int64, runs int, sums []Difference)
}

// Difference is a sum that differs.
type Difference struct {
	Place
	Stored, Want Sum
}

// Rebuilt is the result.
type Rebuilt struct {
	Runs      int // kept runs that were compared with their rows
	Deleted   int // kept runs whose rows are deleted
	Rows      int // sums that are right now
	Different int // days on which something differed
	Behind    int // runs that the follower has yet to add; only with Check
}

// rebuildTries is how often a part is compared that changes meanwhile.
const rebuildTries = 20

const pageThreads = 200

var errChanging = errors.New("usage changed at each try; run it again")

// Run compares day by day, and unless Check is set replaces what differs, until a comparison finds nothing. Servers may work on the database.
func (r *Rebuilding) Run(ctx context.Context) (*Rebuilt, error) {
	out := &Rebuilt{}
	wrong, err := r.kept(ctx, out) // how many runs differ, by day
	if err != nil {
		return out, err
	}
	for after := id.Thread(""); ; {
		page, err := r.Store.Followed(ctx, Follower, after, pageThreads)
		if err != nil {
			return out, err
		}
		for _, t := range page {
			if err := r.ends(ctx, t, wrong, out); err != nil {
				return out, fmt.Errorf("thread %s: %w", t, err)
			}
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1]
	}
	days, err := r.Store.DaysOfUsage(ctx)
	if err != nil {
		return out, err
	}
	for day := range wrong {
		if !slices.Contains(days, day) {
			days = append(days, day)
		}
	}
	slices.Sort(days)
	for _, day := range days {
		if err := r.day(ctx, day, wrong[day], out); err != nil {
			return out, fmt.Errorf("usage of %s: %w", Date(day).Format("2006-01-02"), err)
		}
	}
	return out, nil
}

// ends looks for runs of a thread that are over and not kept. Those up to the offset of the follower were lost.
func (r *Rebuilding) ends(ctx context.Context, t id.Thread, wrong map[int64]int, out *Rebuilt) error {
	offset, created, err := r.Store.Offset(ctx, Follower, t)
	if err != nil || created.IsZero() {
		return err
	}
	var from, to eventstore.Seq
	if offset != nil && offset.Created.Equal(created) {
		from, to = eventstore.Seq(offset.Position), offset.Seq
	}
	for {
		ends, err := r.Store.EndsOf(ctx, t, from, oldest(r.Now()), batchRuns)
		if err != nil {
			return err
		}
		var runs []id.Run
		for _, e := range ends.Runs {
			if runs = append(runs, e.Run); e.Seq <= to {
				wrong[e.Day]++
			} else if r.Check {
				out.Behind++
			}
		}
		if !r.Check && len(runs) > 0 {
			counted, err := r.Store.CountRuns(ctx, runs, nil)
			for run, why := range counted.Unread {
				err = errors.Join(err, fmt.Errorf("run %s cannot be read, delete it: %w", run, why))
			}
			if err != nil {
				return err
			}
			out.Runs += counted.Runs
		}
		if !ends.More {
			return nil
		}
		from = ends.Last
	}
}

// kept compares what is kept of runs with their rows, and returns how many differed, by day.
func (r *Rebuilding) kept(ctx context.Context, out *Rebuilt) (wrong map[int64]int, err error) {
	wrong = map[int64]int{}
	behind, tries := Ended{}, 0
	for {
		list, err := r.Store.KeptRuns(ctx, behind, batchRuns)
		if err != nil || len(list) == 0 {
			return wrong, err
		}
		var c Change
		found, deleted := map[int64]int{}, 0
		for i := range list {
			k := &list[i]
			if k.Want == nil {
				deleted++
			} else if !k.same(k.Want) {
				found[k.Day]++
				c.Drop, c.Put = append(c.Drop, k.Ended), append(c.Put, *k.Want)
			}
		}
		if len(c.Drop) > 0 && !r.Check {
			err := r.Store.ChangeUsage(ctx, c)
			if fault.Is(err, fault.Conflict) && tries < rebuildTries {
				tries++ // one of them was deleted meanwhile
				continue
			}
			if err != nil {
				return wrong, err
			}
		}
		for day, n := range found {
			wrong[day] += n
		}
		out.Runs, out.Deleted = out.Runs+len(list)-deleted, out.Deleted+deleted
		behind, tries = list[len(list)-1].Ended, 0
	}
}

func (e *Ended) same(o *Ended) bool {
	return e.Day == o.Day && e.Identity == o.Identity && slices.Equal(e.Sums, o.Sums)
}

// day compares the sums of a day with what is kept, on which so many runs differed.
func (r *Rebuilding) day(ctx context.Context, day int64, wrong int, out *Rebuilt) error {
	logged := false
	for range rebuildTries {
		stored, kept, err := r.Store.UsageOfDay(ctx, day)
		if err != nil {
			return err
		}
		differ, rows := differences(stored, kept)
		if len(differ)+wrong > 0 && !logged {
			logged = true
			out.Different++
			if r.Differs != nil {
				r.Differs(day, wrong, differ)
			}
		}
		if len(differ) == 0 || r.Check {
			out.Rows += rows
			return nil
		}
		// What differs is added, so that what servers add meanwhile stays.
		add := Adder{}
		for _, d := range differ {
			missing := d.Stored.times(-1)
			missing.Add(&d.Want)
			add.addTo(d.Place, missing)
		}
		if err := r.Store.ChangeUsage(ctx, Change{Sums: add.Sums()}); err != nil {
			return err
		}
	}
	return errChanging
}

// differences compares sums, and returns how many are equal.
func differences(stored, want map[Place][]Sum) (list []Difference, equal int) {
	type key struct {
		Place
		kind, name string
	}
	left := map[key]Sum{}
	for at, sums := range want {
		for _, s := range sums {
			left[key{at, s.Kind, s.Name}] = s
		}
	}
	for at, sums := range stored {
		for _, s := range sums {
			k := key{at, s.Kind, s.Name}
			w, found := left[k]
			if delete(left, k); found && w == s {
				equal++
			} else {
				list = append(list, Difference{Place: at, Stored: s, Want: Sum{s.Kind, s.Name, w.Runs, w.Errors, w.Calls, w.Input, w.Output, w.Total}})
			}
		}
	}
	for k, w := range left {
		list = append(list, Difference{Place: k.Place, Stored: Sum{Kind: k.kind, Name: k.name}, Want: w})
	}
	return list, equal
}

package usage

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"understudy/eventstore"
	"understudy/eventstore/follow"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
)

const (
	batchRuns = 200 // of one transaction
	// keepDays is how long sums are kept; MaxDays is less, so that a report never shows a part of them.
	keepDays  = 400
	tidyEvery = time.Hour
	MaxDays   = 366 // of a report
)

// ErrChanged is the error of ChangeUsage when another server has handled some of the runs.
var ErrChanged = fault.New(fault.Conflict, "usage was changed by another server")

// Store keeps what runs used, and sums of it.
type Store interface {
	follow.ObserverStore
	// EndsOf returns runs of a thread whose end is in its log behind a seq, in order, which ended since a time and are not kept.
	EndsOf(ctx context.Context, t id.Thread, after eventstore.Seq, since time.Time, limit int) (Ends, error)
	// CountRuns keeps what runs used, and some of what those used that were deleted before they were counted, adds it to the sums, and stores offsets of the Follower,
	// in one transaction. A run that is kept already or is gone adds nothing.
	CountRuns(ctx context.Context, runs []id.Run, offsets []eventstore.Offset) (Counted, error)
	// ChangeUsage makes a change in one transaction. ErrChanged when one of Drop is not there.
	ChangeUsage(ctx context.Context, c Change) error
	// UsageOf returns the sums of an identity, "": of everyone, by day from one to another, of runs that are there and of others. A sum may come in parts.
	UsageOf(ctx context.Context, identity string, since, until int64) (map[int64][]Sum, error)
	// DeletedRuns returns kept runs behind another one, in order, whose rows were deleted and which nothing can count again.
	DeletedRuns(ctx context.Context, behind Ended, limit int) ([]Ended, error)
	// DropUsage deletes what runs used before a day, and its sums.
	DropUsage(ctx context.Context, before int64) error
}

// End is the end of a run in the log of its thread.
type End struct {
	Seq eventstore.Seq
	Run id.Run
	Day int64
}

// Ends are ends of runs.
type Ends struct {
	Runs   []End
	Last   eventstore.Seq // up to which the log was read
	More   bool           // behind Last
	Listed bool           // runs of any threads, which were deleted, are to be counted
}

// Counted is what a call of CountRuns did.
type Counted struct {
	Runs   int              // that were not counted before
	Unread map[id.Run]error // whose rows cannot be decoded, and why: they add nothing
	More   bool             // deleted runs are left
}

// Change is a change of what is stored.
type Change struct {
	Put  []Ended // are kept, in place of what is there of the same run and day
	Drop []Ended // are no longer kept
	// Sums is added to the sums of what is kept, and Final to those of which nothing else is.
	Sums, Final map[Place][]Sum
}

// Place says whose sums of which day. Identity is a digest; "": everyone.
type Place struct {
	Identity string
	Day      int64
}

// Service reports what runs used.
type Service struct {
	Store Store
	Now   func() time.Time
	Log   *slog.Logger

	past past
}

// Query says which days. Identity "" is everyone.
type Query struct {
	Identity string
	Days     int       // the last of them is that of Until
	Until    time.Time // zero: today
}

// Report reports what was used.
func (s *Service) Report(ctx context.Context, q Query) (*Report, error) {
	if q.Until.IsZero() {
		q.Until = s.Now()
	}
	until := DayOf(q.Until)
	since := until - int64(q.Days) + 1
	days, from := s.past.of(q.Identity, since, until, s.Now())
	if from <= until {
		read, err := s.Store.UsageOf(ctx, q.Identity, from, until)
		if err != nil {
			return nil, err
		}
		s.past.keep(q.Identity, from, until, read, s.Now())
		for day := from; day <= until; day++ {
			days[day] = read[day]
		}
	}
	return NewReport(since, until, days), nil
}

// warm reads the last year of everyone, so that no reader waits for it, and so that a change of past days by `understudy rebuild` shows.
func (s *Service) warm(ctx context.Context) error {
	s.past.forget("")
	_, err := s.Report(ctx, Query{Days: MaxDays})
	return err
}

// Run deletes old sums and settles those of deleted runs, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	return loop.Loop{Name: "usage", Log: s.Log, Now: time.Now}.Run(ctx, nil, func(ctx context.Context) (time.Time, error) {
		if err := s.Store.DropUsage(ctx, DayOf(s.Now())-keepDays); err != nil {
			return time.Time{}, err
		}
		if err := s.Settle(ctx); err != nil {
			return time.Time{}, err
		}
		return time.Now().Add(tidyEvery), s.warm(ctx)
	})
}

// Forget drops what is kept in memory, after the sums in the database were deleted.
func (s *Service) Forget() { s.past.clear() }

// Settle moves what deleted runs used to the final sums.
func (s *Service) Settle(ctx context.Context) error {
	for more := true; more; {
		counted, err := s.Store.CountRuns(ctx, nil, nil)
		if err != nil {
			return fmt.Errorf("usage of deleted runs: %w", err)
		}
		more = counted.More
	}
	for behind := (Ended{}); ; {
		list, err := s.Store.DeletedRuns(ctx, behind, batchRuns)
		if err != nil || len(list) == 0 {
			return err
		}
		sums, final := Adder{}, Adder{}
		for _, e := range list {
			sums.Add(e, -1)
			final.Add(e, 1)
		}
		// What another server has moved at the same time is found no more the next time.
		if err := s.Store.ChangeUsage(ctx, Change{Drop: list, Sums: sums.Sums(), Final: final.Sums()}); err != nil && !fault.Is(err, fault.Conflict) {
			return fmt.Errorf("usage of deleted runs: %w", err)
		}
		behind = list[len(list)-1]
	}
}

// Adder adds up what runs used.
type Adder map[Place]map[[2]string]*Sum

// Add adds what a run used, times 1 or -1.
func (a Adder) Add(e Ended, times int64) {
	for _, s := range e.Sums {
		s = s.times(times)
		a.addTo(Place{Day: e.Day}, s)
		if e.Identity != "" {
			a.addTo(Place{e.Identity, e.Day}, s)
		}
	}
}

func (a Adder) addTo(at Place, s Sum) {
	if a[at] == nil {
		a[at] = map[[2]string]*Sum{}
	}
	if have := a[at][[2]string{s.Kind, s.Name}]; have != nil {
		have.Add(&s)
	} else {
		a[at][[2]string{s.Kind, s.Name}] = &s
	}
}

// Sums returns the sums that are not zero.
func (a Adder) Sums() map[Place][]Sum {
	out := make(map[Place][]Sum, len(a))
	for at, part := range a {
		for _, s := range part {
			if *s != (Sum{Kind: s.Kind, Name: s.Name}) {
				out[at] = append(out[at], *s)
			}
		}
	}
	return out
}

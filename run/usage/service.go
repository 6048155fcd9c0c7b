package usage

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"understudy/internal/fault"
	"understudy/internal/loop"
)

const (
	foldEvery = 5 * time.Second
	foldStep  = 200 // ended runs of one transaction
	// keepDays is how long sums are kept; MaxDays is less, so that a report never shows a part of them.
	keepDays  = 400
	trimEvery = time.Hour
	MaxDays   = 366 // of a report
)

// ErrFolded is the error of ChangeUsage when another server has handled some of the runs.
var ErrFolded = fault.New(fault.Conflict, "usage was added to the sums by another server")

// Store keeps what runs used, and sums of it.
type Store interface {
	// EndedRuns returns the oldest runs that are listed and not in the sums.
	EndedRuns(ctx context.Context, limit int) ([]Ended, error)
	// ChangeUsage makes a change in one transaction. ErrFolded when one of Listed or Drop is not there.
	ChangeUsage(ctx context.Context, c Change) error
	// UsageOf returns the sums of an identity, "": of everyone, by day from one to another, of runs that are there and of others. A sum may come in parts.
	// Those of listed runs, which are not in other sums yet, are apart.
	UsageOf(ctx context.Context, identity string, since, until int64) (days, listed map[int64][]Sum, err error)
	// DeletedRuns returns kept runs behind another one, in order, whose rows were deleted; only their keys.
	DeletedRuns(ctx context.Context, behind Ended, limit int) ([]Ended, error)
	// DropUsage deletes what runs used before a day, and its sums.
	DropUsage(ctx context.Context, before int64) error
}

// Change is a change of what is stored.
type Change struct {
	Listed []int64 // IDs of EndedRuns: they leave the list, and are kept if their run is known
	Put    []Ended // are kept, in place of what is there of the same run and day
	Drop   []Ended // are no longer kept
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
		read, listed, err := s.Store.UsageOf(ctx, q.Identity, from, until)
		if err != nil {
			return nil, err
		}
		s.past.keep(q.Identity, from, until, read, listed, s.Now())
		for day := from; day <= until; day++ {
			days[day] = slices.Concat(read[day], listed[day])
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

// Run folds runs that have ended, and deletes old sums, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var trimmed time.Time
	return loop.Loop{Name: "usage", Log: s.Log, Now: time.Now}.Run(ctx, nil, func(ctx context.Context) (time.Time, error) {
		for {
			n, err := s.Fold(ctx)
			if err != nil {
				return time.Time{}, err
			}
			if n < foldStep {
				break
			}
		}
		if time.Since(trimmed) >= trimEvery {
			if err := s.Store.DropUsage(ctx, DayOf(s.Now())-keepDays); err != nil {
				return time.Time{}, err
			}
			if err := s.Settle(ctx); err != nil {
				return time.Time{}, err
			}
			if err := s.warm(ctx); err != nil {
				return time.Time{}, err
			}
			trimmed = time.Now()
		}
		return time.Now().Add(foldEvery), nil
	})
}

// Forget drops what is kept in memory, after the sums in the database were deleted.
func (s *Service) Forget() { s.past.clear() }

// Fold adds some runs that have ended to the sums, and returns how many. What another server adds at the same time counts once.
func (s *Service) Fold(ctx context.Context) (int, error) {
	ended, err := s.Store.EndedRuns(ctx, foldStep)
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	c, sums, final := Change{}, Adder{}, Adder{}
	for _, e := range ended {
		c.Listed = append(c.Listed, e.ID)
		if e.Run != "" {
			sums.Add(e, 1)
		} else { // listed by a server of the version before
			final.Add(e, 1)
		}
	}
	c.Sums, c.Final = sums.Sums(), final.Sums()
	if err := s.Store.ChangeUsage(ctx, c); err != nil && !fault.Is(err, fault.Conflict) {
		return 0, fmt.Errorf("add up usage: %w", err)
	} else if err != nil {
		return 0, nil //nolint:nilerr // what is left is folded the next time
	}
	return len(ended), nil
}

// Settle moves what deleted runs used to the final sums.
func (s *Service) Settle(ctx context.Context) error {
	for behind := (Ended{}); ; {
		list, err := s.Store.DeletedRuns(ctx, behind, foldStep)
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

package usage

import (
	"context"
	"fmt"
	"log/slog"
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

// ErrFolded is the error of FoldUsage when another server has folded some of the runs.
var ErrFolded = fault.New(fault.Conflict, "usage was added to the sums by another server")

// Store keeps sums.
type Store interface {
	// EndedRuns returns the oldest runs that are not in the sums.
	EndedRuns(ctx context.Context, limit int) ([]Ended, error)
	// FoldUsage removes runs from those of EndedRuns and adds sums to those of days, in one transaction. ErrFolded when one of the runs is not there.
	FoldUsage(ctx context.Context, runs []int64, sums map[Place][]Sum) error
	// UsageOf returns the sums of an identity, "": of everyone, from a day to another, folded or not: those of All and of durations by day, and others.
	UsageOf(ctx context.Context, identity string, since, until int64) (days map[int64][]Sum, named []Sum, err error)
	// DropUsage deletes sums of days before one.
	DropUsage(ctx context.Context, before int64) error
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
	days, named, err := s.Store.UsageOf(ctx, q.Identity, since, until)
	if err != nil {
		return nil, err
	}
	return NewReport(since, until, days, named), nil
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
			trimmed = time.Now()
		}
		return time.Now().Add(foldEvery), nil
	})
}

// Fold adds some runs that have ended to the sums, and returns how many. What another server adds at the same time counts once.
func (s *Service) Fold(ctx context.Context) (int, error) {
	ended, err := s.Store.EndedRuns(ctx, foldStep)
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	ids, parts := make([]int64, len(ended)), map[Place]map[[2]string]*Sum{}
	for i, e := range ended {
		ids[i] = e.ID
		for _, s := range e.Sums {
			addTo(parts, Place{Day: e.Day}, s)
			if e.Identity != "" {
				addTo(parts, Place{e.Identity, e.Day}, s)
			}
		}
	}
	sums := make(map[Place][]Sum, len(parts))
	for at, part := range parts {
		for _, s := range part {
			sums[at] = append(sums[at], *s)
		}
	}
	if err := s.Store.FoldUsage(ctx, ids, sums); err != nil && !fault.Is(err, fault.Conflict) {
		return 0, fmt.Errorf("add up usage: %w", err)
	} else if err != nil {
		return 0, nil //nolint:nilerr // what is left is folded the next time
	}
	return len(ended), nil
}

func addTo(parts map[Place]map[[2]string]*Sum, at Place, s Sum) {
	if parts[at] == nil {
		parts[at] = map[[2]string]*Sum{}
	}
	if have := parts[at][[2]string{s.Kind, s.Name}]; have != nil {
		have.Add(&s)
	} else {
		parts[at][[2]string{s.Kind, s.Name}] = &s
	}
}

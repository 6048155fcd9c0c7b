package thread

import (
	"context"
	"strings"

	"understudy/eventstore/overlay"
	"understudy/internal/contain"
	"understudy/internal/fault"
)

// scanBatch is how many rows are loaded together when values decide which of them match.
const scanBatch = 200

// Search returns a page of threads without their values, and whether there are more. Show adds the values of one thread at a time, so that a page of any
// size needs the memory of one thread.
func (s *Service) Search(ctx context.Context, q Search) ([]*View, bool, error) {
	limit := q.Limit
	var page []*View
	loaded := 0
	err := s.scan(ctx, q, limit+1, func(row *Thread) {
		if !row.Left {
			row, loaded = q.Fit(row, loaded)
		}
		page = append(page, &View{Thread: *row})
	})
	if err != nil {
		return nil, false, err
	}
	more := limit > 0 && len(page) > limit
	if more {
		page = page[:limit]
	}
	return page, more, nil
}

// Show adds the parts that the search requests to a thread that it found: its values and extracts. fault.NotFound when it was Left and has been deleted.
func (s *Service) Show(ctx context.Context, q Search, v *View) error {
	if v.Left {
		row, err := s.row(ctx, v.ID)
		if err != nil {
			return err
		}
		v.Thread = *row
	}
	if q.NoValues && len(q.Extract) > 0 {
		if done, err := s.extractParts(ctx, q.Extract, v); done || err != nil {
			return err
		}
	}
	if q.showsValues() {
		shown, err := s.view(ctx, &v.Thread, false)
		if err != nil {
			return err
		}
		v.Thread, v.Values = shown.Thread, shown.Values
		if err := s.overlayView(ctx, v, overlay.Lists); err != nil {
			return s.unlessGone(ctx, v.ID, err)
		}
	}
	if len(q.Extract) > 0 {
		v.Extracted = extract(v, q.Extract)
	}
	if q.NoValues {
		v.Values = nil
	}
	return nil
}

// showsValues reports whether values are shown or extracted from.
func (q *Search) showsValues() bool {
	for _, path := range q.Extract {
		if strings.HasPrefix(path, "values") {
			return true
		}
	}
	return !q.NoValues
}

// Count returns the number of all threads that Search would find.
func (s *Service) Count(ctx context.Context, q Search) (int, error) {
	if q.Values == nil {
		return s.Store.CountThreads(ctx, q.Query)
	}
	n := 0
	q.Offset, q.Limit = 0, 0
	err := s.scan(ctx, q, 0, func(*Thread) { n++ })
	return n, err
}

// scan calls visit for matching threads, whose values may not be loaded, in order: at most want of them (0: all), after
// the offset.
func (s *Service) scan(ctx context.Context, q Search, want int, visit func(*Thread)) error {
	if q.Values == nil {
		rows := q.Query
		rows.Limit = want
		threads, err := s.Store.Threads(ctx, rows)
		if err != nil {
			return err
		}
		for _, t := range threads {
			visit(t)
		}
		return nil
	}
	return s.Store.Scan(ctx, narrowValues, func(ctx context.Context) error { return s.scanValues(ctx, q, want, visit) })
}

// narrowValues is the answer to searches by values that took too long.
const narrowValues = "values are compared with those of every thread that the rest of the search finds: add metadata, a status or ids"

// scanValues is scan where values decide which threads match.
func (s *Service) scanValues(ctx context.Context, q Search, want int, visit func(*Thread)) error {
	skip, found := q.Offset, 0
	rows := q.Query
	rows.Offset, rows.Limit, rows.Bytes = 0, scanBatch, 0
	for {
		threads, err := s.Store.Threads(ctx, rows)
		if err != nil {
			return err
		}
		for _, t := range threads {
			v, err := s.view(ctx, t, false)
			if fault.Is(err, fault.NotFound) { // deleted since it was found
				continue
			}
			if err != nil {
				return err
			}
			if v.Values == nil || !contain.Match(v.Values, q.Values) {
				continue
			}
			if skip > 0 {
				skip--
				continue
			}
			visit(t)
			if found++; found == want {
				return nil
			}
		}
		if len(threads) < scanBatch {
			return nil
		}
		rows.Offset += scanBatch
	}
}

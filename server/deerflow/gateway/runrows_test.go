package gateway

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
)

// fakeLog is the log of a run.
type fakeLog struct {
	rows []*eventstore.Event
	read int
}

func (f *fakeLog) add(kind string, first eventstore.Seq) eventstore.Seq {
	e := &eventstore.Event{Seq: eventstore.Seq(len(f.rows) + 1), Type: kind, First: first, Category: eventstore.CategoryTrace}
	if slices.Contains(messageTypes, kind) {
		e.Category = eventstore.CategoryMessage
	}
	f.rows = append(f.rows, e)
	return e.Seq
}

func (f *fakeLog) Events(_ context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	page := &eventstore.Page{}
	for _, e := range f.rows {
		switch {
		case e.Seq <= q.After || len(q.Types) > 0 && !slices.Contains(q.Types, e.Type):
			continue
		case len(page.Rows) == q.Limit:
			page.More = true
			return page, nil
		}
		page.Rows = append(page.Rows, e)
		f.read++
	}
	return page, nil
}

func (f *fakeLog) Messages(context.Context, eventstore.PageQuery) (*eventstore.Page, error) {
	return &eventstore.Page{}, nil
}

// Who reads page by page gets every row of the types that are asked for, however many of others lie between them, and a page is short only at the end.
func TestRowsOfTypesThatLieFarApart(t *testing.T) {
	t.Parallel()
	log := &fakeLog{}
	var want []eventstore.Seq
	for range 4 {
		for range 600 {
			log.add("trace", 0)
			log.add(eventstore.TypeTool, 0)
			log.add(eventstore.TypeSystem, 0)
		}
		want = append(want, log.add(eventstore.TypeAI, 0))
	}
	changed := log.add(eventstore.TypeHuman, 0) // becomes one
	log.add(eventstore.TypeAI, changed)
	left := log.add(eventstore.TypeAI, 0) // is none in the end
	log.add(eventstore.TypeSystem, left)
	want = append(want, changed, log.add(eventstore.TypeAI, 0))
	for _, limit := range []int{1, 2, 3, 500} {
		var got []eventstore.Seq
		for q := (eventstore.PageQuery{Types: []string{eventstore.TypeAI}}); ; {
			rows, err := (&feeds{Events: log}).runRows(t.Context(), q, limit, "")
			require.NoError(t, err)
			for _, row := range rows {
				require.Equal(t, eventstore.TypeAI, row.Type)
				got = append(got, row.Seq)
			}
			if len(rows) < limit {
				break
			}
			q.After = got[len(got)-1]
		}
		require.Equal(t, want, got, limit)
	}
}

// Reading ends soon after the rows that are asked for.
func TestReadingEndsAfterTheRows(t *testing.T) {
	t.Parallel()
	log := &fakeLog{}
	for range 10_000 {
		log.add(eventstore.TypeAI, 0)
		log.add("trace", 0)
	}
	for _, types := range [][]string{nil, {"trace"}, {eventstore.TypeAI}} {
		log.read = 0
		rows, err := (&feeds{Events: log}).runRows(t.Context(), eventstore.PageQuery{Types: types}, 100, "")
		require.NoError(t, err)
		require.Len(t, rows, 100)
		require.LessOrEqual(t, log.read, 100+revisedWithin)
	}
}

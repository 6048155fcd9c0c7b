package postgres

import (
	"context"
	"fmt"
	"slices"

	"understudy/eventstore"
	"understudy/id"
)

var _ eventstore.Pager = (*Store)(nil)

// The seqs of a page are found in an index alone; then its rows are read.
const (
	pageOf       = " AND seq > $2 AND seq < $3 ORDER BY seq LIMIT $4"
	pageBefore   = " AND seq > $2 AND seq < $3 ORDER BY seq DESC LIMIT $4"
	seqsOfThread = "SELECT seq FROM events WHERE thread_id = $1"
	seqsOfType   = "SELECT seq FROM events WHERE thread_id = $1 AND type = $5"
	seqsOfRun    = "SELECT seq FROM events WHERE thread_id = $1 AND run_id = $5"
	seqsOfRunIn  = seqsOfRun + " AND type = ANY($6)"

	allSeqsOfRun = "SELECT seq FROM events WHERE thread_id = $1 AND run_id = $2 ORDER BY seq"
	revisions    = "SELECT seq, first_seq FROM events WHERE thread_id = $1 AND first_seq > 0"
	newestRow    = "SELECT " + rowColumns + " FROM transcripts WHERE thread_id = $1 ORDER BY checkpoint_id DESC LIMIT 1"
	sizesAt      = "SELECT seq, octet_length(content) FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND seq = ANY($2)"
	knowsRun     = "SELECT 1 WHERE EXISTS (SELECT 1 FROM runs WHERE run_id = $1 AND thread_id = $2) OR EXISTS (SELECT 1 FROM events WHERE thread_id = $2 AND run_id = $1)"
)

// LogPage is eventstore.Pager.LogPage.
func (s *Store) LogPage(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	page := &eventstore.Page{}
	err := s.snapshot(ctx, func(c *reader) error {
		seqs, err := logSeqs(c, q)
		if err != nil {
			return err
		}
		if page.More = len(seqs) > q.Limit; page.More {
			seqs = seqs[:q.Limit]
		}
		slices.Sort(seqs)
		return s.fillPage(c, q, page, eventstore.LogPlaces(seqs))
	})
	if err != nil {
		return nil, fmt.Errorf("page of events of thread %s: %w", q.Thread, err)
	}
	return page, nil
}

// logSeqs gives the seqs of a page in the order in which it is read, and one more when there is one.
func logSeqs(c querier, q eventstore.PageQuery) (seqs []eventstore.Seq, err error) {
	order := pageOf
	if q.Backward {
		order = pageBefore
	}
	add := func(text string, more ...any) {
		c.ask(text+order, func(r *row) error {
			seqs = append(seqs, eventstore.Seq(r.Int(0)))
			return nil
		}, append([]any{q.Thread, q.After, q.Bound(), q.Limit + 1}, more...)...)
	}
	types := eventstore.Spellings(q.Types)
	switch {
	case len(types) == 0 && q.Run == "":
		add(seqsOfThread)
	case len(types) == 0:
		add(seqsOfRun, q.Run)
	case q.Run != "":
		add(seqsOfRunIn, q.Run, types)
	default:
		for _, name := range types {
			add(seqsOfType, name)
		}
	}
	if err := c.send(); err != nil {
		return nil, err
	}
	slices.Sort(seqs)
	if q.Backward {
		slices.Reverse(seqs)
	}
	return seqs[:min(len(seqs), q.Limit+1)], nil
}

// eventsAt gives events by their seqs, which ascend.
func eventsAt(c querier, t id.Thread, seqs []eventstore.Seq) (map[eventstore.Seq]*eventstore.Event, error) {
	entries := make([]eventstore.Entry, len(seqs))
	for i, seq := range seqs {
		entries[i].Seq = seq
	}
	rows := make(map[eventstore.Seq]*eventstore.Event, len(seqs))
	err := eachContent(c, t, eventstore.Ranges(entries), func(e *eventstore.Event) error {
		rows[e.Seq] = e
		return nil
	})
	if err == nil && len(rows) != len(seqs) {
		err = fmt.Errorf("%d of %d events are missing", len(seqs)-len(rows), len(seqs))
	}
	return rows, err
}

// fillPage loads the rows of a page that q.Bytes lets in, and names the rest.
func (s *Store) fillPage(c querier, q eventstore.PageQuery, page *eventstore.Page, places []eventstore.Place) (err error) {
	if q.Bytes > 0 && len(places) > 1 {
		if err := measurePlaces(c, q.Thread, places); err != nil {
			return err
		}
	}
	n := eventstore.Fit(places, q.Bytes)
	page.Rest = places[n:]
	page.Load = func(ctx context.Context, places []eventstore.Place) ([]*eventstore.Event, error) {
		return s.rowsOf(ctx, q.Thread, places)
	}
	page.Rows, err = rowsAt(c, q.Thread, places[:n])
	return err
}

// measurePlaces sets Size of places, without reading contents.
func measurePlaces(c querier, t id.Thread, places []eventstore.Place) error {
	sizes := make(map[eventstore.Seq]int, len(places))
	c.ask(sizesAt, func(r *row) error {
		sizes[eventstore.Seq(r.Int(0))] = int(r.Int(1))
		return nil
	}, t, eventstore.SeqsOf(places))
	err := c.send()
	eventstore.SetSizes(places, sizes)
	return err
}

func rowsAt(c querier, t id.Thread, places []eventstore.Place) ([]*eventstore.Event, error) {
	events, err := eventsAt(c, t, eventstore.SeqsOf(places))
	if err != nil || len(places) == 0 {
		return nil, err
	}
	rows := make([]*eventstore.Event, len(places))
	for i := range places {
		p := &places[i]
		rows[i] = p.Row(events[p.First], events[p.Now])
	}
	return rows, nil
}

// rowsOf is eventstore.Page.Load.
func (s *Store) rowsOf(ctx context.Context, t id.Thread, places []eventstore.Place) (rows []*eventstore.Event, err error) {
	err = s.snapshot(ctx, func(c *reader) (err error) {
		rows, err = rowsAt(c, t, places)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("events of thread %s: %w", t, err)
	}
	return rows, nil
}

// MessagePage is eventstore.Pager.MessagePage.
func (s *Store) MessagePage(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	page := &eventstore.Page{}
	err := s.snapshot(ctx, func(c *reader) error {
		tr, err := pageTranscript(c, q)
		if err != nil || tr == nil {
			return err
		}
		var places []eventstore.Place
		if places, page.More, err = placesOf(c, tr, q); err != nil {
			return err
		}
		return s.fillPage(c, q, page, places)
	})
	if err != nil {
		return nil, fmt.Errorf("page of messages of thread %s: %w", q.Thread, err)
	}
	return page, nil
}

// pageTranscript is that of the root checkpoint that a page is read at; nil when nothing was recorded, or what it holds are no messages.
func pageTranscript(c querier, q eventstore.PageQuery) (*eventstore.Transcript, error) {
	var found *eventstore.Row
	text, args := newestRow, []any{q.Thread}
	if q.At != "" {
		text, args = rowOf, append(args, q.At)
	}
	if _, err := one(c, text, func(r *row) error {
		found = scanRow(r, q.Thread)
		return nil
	}, args...); err != nil || found == nil || found.Opaque || found.Node == 0 {
		return nil, err
	}
	chain, err := nodes(c, q.Thread, found.Node)
	if err != nil {
		return nil, err
	}
	return eventstore.Fold(found, chain)
}

// placesOf gives a page of a transcript. What it reads besides is in indexes: few messages are revised, and a run has few events.
func placesOf(c querier, tr *eventstore.Transcript, q eventstore.PageQuery) (places []eventstore.Place, more bool, err error) {
	firsts := map[eventstore.Seq]eventstore.Seq{}
	c.ask(revisions, func(r *row) error {
		firsts[eventstore.Seq(r.Int(0))] = eventstore.Seq(r.Int(1))
		return nil
	}, q.Thread)
	of := map[eventstore.Seq]bool{}
	if q.Run != "" {
		c.ask(allSeqsOfRun, func(r *row) error {
			of[eventstore.Seq(r.Int(0))] = true
			return nil
		}, q.Thread, q.Run)
	}
	if err := c.send(); err != nil {
		return nil, false, err
	}
	places, more = tr.Places(q, firsts, of)
	return places, more, nil
}

// KnowsRun is eventstore.Pager.KnowsRun.
func (s *Store) KnowsRun(ctx context.Context, t id.Thread, r id.Run) (known bool, err error) {
	err = s.read(ctx, func(q *reader) error {
		known, err = one(q, knowsRun, nil, r, t)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for run %s of thread %s: %w", r, t, err)
	}
	return known, nil
}

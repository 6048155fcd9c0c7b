package relational

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"understudy/eventstore"
	"understudy/id"
)

// The seqs of a page are found in an index alone; then its rows are read.
const (
	ofPage       = " AND seq > $2 AND seq < $3 ORDER BY seq LIMIT $4"
	ofPageBefore = " AND seq > $2 AND seq < $3 ORDER BY seq DESC LIMIT $4"
	seqsOfRun    = "SELECT seq FROM events%s WHERE thread_id = $1 AND run_id = $5"
)

// pageOf is a statement that returns the seqs of a page, ascending and descending.
type pageOf [2]Statement

// paged returns both orders of a statement; SQLite gets the name of the index to use.
func paged(index, format string) pageOf {
	if index == "" {
		return pageOf{same(format + ofPage), same(format + ofPageBefore)}
	}
	return pageOf{indexed(index, format+ofPage), indexed(index, format+ofPageBefore)}
}

var (
	SeqsOfThread = paged("", "SELECT seq FROM events WHERE thread_id = $1")
	SeqsOfType   = paged("events_type", "SELECT seq FROM events%s WHERE thread_id = $1 AND type = $5")
	SeqsOfRun    = paged("events_run", seqsOfRun)
	seqsOfRunIn  = pageOf{seqsOfRunOfTypes(ofPage), seqsOfRunOfTypes(ofPageBefore)}

	AllSeqsOfRun = indexed("events_run", "SELECT seq FROM events%s WHERE thread_id = $1 AND run_id = $2 ORDER BY seq")
	Revisions    = indexed("events_revised", "SELECT seq, first_seq FROM events%s WHERE thread_id = $1 AND first_seq > 0")
	KnowsRun     = indexed("events_run", "SELECT 1 WHERE EXISTS (SELECT 1 FROM runs WHERE run_id = $1 AND thread_id = $2) OR EXISTS (SELECT 1 FROM events%s WHERE thread_id = $2 AND run_id = $1)")
	sizesAt      = differing("SELECT seq, octet_length(content) FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND seq = ANY($2)",
		"SELECT seq, octet_length(content) FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND seq IN (SELECT value FROM json_each($2))")
)

// seqsOfRunOfTypes selects the events of a run by several types.
func seqsOfRunOfTypes(order string) Statement {
	return differing(fmt.Sprintf(seqsOfRun, "")+" AND type = ANY($6)"+order,
		fmt.Sprintf(seqsOfRun, " INDEXED BY events_run")+" AND type IN (SELECT value FROM json_each($6))"+order)
}

// LogPage implements eventstore.Pager.
func (s eventStore) LogPage(ctx context.Context, of eventstore.PageQuery) (*eventstore.Page, error) {
	page := &eventstore.Page{}
	err := s.db.Snapshot(ctx, func(q Querier) (err error) {
		if of.Thread, err = InReach(ctx, q, of.Thread); err != nil {
			return err
		}
		seqs, err := logSeqs(q, of)
		if err != nil {
			return err
		}
		if page.More = len(seqs) > of.Limit; page.More {
			seqs = seqs[:of.Limit]
		}
		slices.Sort(seqs)
		return s.fillPage(q, of, page, eventstore.LogPlaces(seqs))
	})
	if err != nil {
		return nil, fmt.Errorf("page of events of thread %s: %w", of.Thread, err)
	}
	return page, nil
}

// logSeqs returns the seqs of a page in reading order, and one more if there is one, which
// decides has_more.
func logSeqs(q Querier, of eventstore.PageQuery) (seqs []eventstore.Seq, err error) {
	add := func(s pageOf, more ...any) {
		text := s[0]
		if of.Backward {
			text = s[1]
		}
		if err == nil {
			err = q.Ask(text, func(r Row) error {
				seqs = append(seqs, eventstore.Seq(r.Int(0)))
				return nil
			}, append([]any{of.Thread, of.After, of.Bound(), of.Limit + 1}, more...)...)
		}
	}
	types := eventstore.Spellings(of.Types)
	switch {
	case len(types) == 0 && of.Run == "":
		add(SeqsOfThread)
	case len(types) == 0:
		add(SeqsOfRun, of.Run)
	case of.Run != "":
		add(seqsOfRunIn, of.Run, types)
	default:
		for _, name := range types {
			add(SeqsOfType, name)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := q.Send(); err != nil {
		return nil, err
	}
	slices.Sort(seqs)
	if of.Backward {
		slices.Reverse(seqs)
	}
	return seqs[:min(len(seqs), of.Limit+1)], nil
}

// eventsAt returns events by their ascending seqs.
func eventsAt(q Querier, t id.Thread, seqs []eventstore.Seq) (map[eventstore.Seq]*eventstore.Event, error) {
	entries := make([]eventstore.Entry, len(seqs))
	for i, seq := range seqs {
		entries[i].Seq = seq
	}
	events := make(map[eventstore.Seq]*eventstore.Event, len(seqs))
	err := eachContent(q, t, eventstore.Ranges(entries), func(e *eventstore.Event) error {
		own := *e
		own.Content, own.Metadata, own.Digest = bytes.Clone(e.Content), bytes.Clone(e.Metadata), bytes.Clone(e.Digest)
		events[e.Seq] = &own
		return nil
	})
	if err == nil && len(events) != len(seqs) {
		err = fmt.Errorf("%d of %d events are missing", len(seqs)-len(events), len(seqs))
	}
	return events, err
}

// fillPage loads the rows of a page that fit into Bytes, and the places of the others.
func (s eventStore) fillPage(q Querier, of eventstore.PageQuery, page *eventstore.Page, places []eventstore.Place) (err error) {
	if of.Bytes > 0 && len(places) > 1 {
		if err := measurePlaces(q, of.Thread, places); err != nil {
			return err
		}
	}
	n := eventstore.Fit(places, of.Bytes)
	page.Rest = places[n:]
	page.Load = func(ctx context.Context, places []eventstore.Place) ([]*eventstore.Event, error) {
		list, err := fromThread(ctx, s.base, of.Thread, s.db.Snapshot, func(q Querier, t id.Thread) ([]*eventstore.Event, error) { return eventsOf(q, t, places) })
		if err != nil {
			return nil, fmt.Errorf("events of thread %s: %w", of.Thread, err)
		}
		return list, nil
	}
	page.Rows, err = eventsOf(q, of.Thread, places[:n])
	return err
}

// measurePlaces sets Size of places without reading contents.
func measurePlaces(q Querier, t id.Thread, places []eventstore.Place) error {
	sizes := make(map[eventstore.Seq]int, len(places))
	err := q.Query(sizesAt, func(r Row) error {
		sizes[eventstore.Seq(r.Int(0))] = int(r.Int(1))
		return nil
	}, t, eventstore.SeqsOf(places))
	eventstore.SetSizes(places, sizes)
	return err
}

// eventsOf loads the events at places, in their order.
func eventsOf(q Querier, t id.Thread, places []eventstore.Place) ([]*eventstore.Event, error) {
	events, err := eventsAt(q, t, eventstore.SeqsOf(places))
	if err != nil || len(places) == 0 {
		return nil, err
	}
	list := make([]*eventstore.Event, len(places))
	for i := range places {
		p := &places[i]
		list[i] = p.Row(events[p.First], events[p.Now])
	}
	return list, nil
}

// MessagePage implements eventstore.Pager.
func (s eventStore) MessagePage(ctx context.Context, of eventstore.PageQuery) (*eventstore.Page, error) {
	page := &eventstore.Page{}
	err := s.db.Snapshot(ctx, func(q Querier) (err error) {
		if of.Thread, err = InReach(ctx, q, of.Thread); err != nil {
			return err
		}
		tr, err := pageTranscript(q, of)
		if err != nil || tr == nil {
			return err
		}
		var places []eventstore.Place
		if places, page.More, err = placesOf(q, tr, of); err != nil {
			return err
		}
		return s.fillPage(q, of, page, places)
	})
	if err != nil {
		return nil, fmt.Errorf("page of messages of thread %s: %w", of.Thread, err)
	}
	return page, nil
}

// pageTranscript returns the transcript of the root checkpoint at which a page is read; nil if
// none was recorded, or if its channel holds no messages.
func pageTranscript(q Querier, of eventstore.PageQuery) (*eventstore.Transcript, error) {
	text, args := NewestRow, []any{of.Thread}
	if of.At != "" {
		text, args = RowOf, append(args, of.At)
	}
	row, found, err := first(q, text, ScanRow(of.Thread), args...)
	if err != nil || !found || row.Opaque || row.Node == 0 {
		return nil, err
	}
	chain, err := nodes(q, of.Thread, row.Node)
	if err != nil {
		return nil, err
	}
	return eventstore.Fold(row, chain)
}

// placesOf returns a page of a transcript. What else it reads is in indexes: few messages are
// revised, and a run has few events.
func placesOf(q Querier, tr *eventstore.Transcript, of eventstore.PageQuery) (places []eventstore.Place, more bool, err error) {
	firsts := map[eventstore.Seq]eventstore.Seq{}
	if err := q.Ask(Revisions, func(r Row) error {
		firsts[eventstore.Seq(r.Int(0))] = eventstore.Seq(r.Int(1))
		return nil
	}, of.Thread); err != nil {
		return nil, false, err
	}
	ofRun := map[eventstore.Seq]bool{}
	if of.Run != "" {
		if err := q.Ask(AllSeqsOfRun, func(r Row) error {
			ofRun[eventstore.Seq(r.Int(0))] = true
			return nil
		}, of.Thread, of.Run); err != nil {
			return nil, false, err
		}
	}
	if err := q.Send(); err != nil {
		return nil, false, err
	}
	places, more = tr.Places(of, firsts, ofRun)
	return places, more, nil
}

// KnowsRun implements eventstore.Pager.
func (s eventStore) KnowsRun(ctx context.Context, t id.Thread, r id.Run) (bool, error) {
	known, err := fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) (bool, error) { return has(q, KnowsRun, r, t) })
	if err != nil {
		return false, fmt.Errorf("look for run %s of thread %s: %w", r, t, err)
	}
	return known, nil
}

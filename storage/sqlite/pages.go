package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/id"
)

var _ eventstore.Pager = (*Store)(nil)

// The seqs of a page are found in an index alone; then its rows are read.
const (
	pageOf       = " AND seq > ? AND seq < ? ORDER BY seq LIMIT ?"
	pageBefore   = " AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?"
	seqsOfThread = "SELECT seq FROM events WHERE thread_id = ?"
	seqsOfType   = "SELECT seq FROM events INDEXED BY events_type WHERE thread_id = ? AND type = ?"
	seqsOfRun    = "SELECT seq FROM events INDEXED BY events_run WHERE thread_id = ? AND run_id = ?"
	seqsOfRunIn  = seqsOfRun + " AND type IN (SELECT value FROM json_each(?))"

	allSeqsOfRun = seqsOfRun + " ORDER BY seq"
	revisions    = "SELECT seq, first_seq FROM events INDEXED BY events_revised WHERE thread_id = ? AND first_seq > 0"
	newestRow    = "SELECT " + rowColumns + " FROM transcripts WHERE thread_id = ? ORDER BY checkpoint_id DESC LIMIT 1"
	sizesAt      = "SELECT seq, octet_length(content) FROM events JOIN event_bodies USING (body) WHERE thread_id = ? AND seq IN (SELECT value FROM json_each(?))"
	runIsKnown   = "SELECT 1 FROM runs WHERE run_id = ? AND thread_id = ?"
	runHasEvents = "SELECT 1 FROM events INDEXED BY events_run WHERE thread_id = ? AND run_id = ? LIMIT 1"
)

// LogPage is eventstore.Pager.LogPage.
func (s *Store) LogPage(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	page := &eventstore.Page{}
	err := s.snapshot(ctx, func(c *sqlite.Conn) error {
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
func logSeqs(c *sqlite.Conn, q eventstore.PageQuery) (seqs []eventstore.Seq, err error) {
	order := pageOf
	if q.Backward {
		order = pageBefore
	}
	add := func(text string, args ...any) error {
		return query(c, text+order, func(st *sqlite.Stmt) error {
			seqs = append(seqs, eventstore.Seq(st.ColumnInt64(0)))
			return nil
		}, append(args, q.After, q.Bound(), q.Limit+1)...)
	}
	types := eventstore.Spellings(q.Types)
	switch {
	case len(types) == 0 && q.Run == "":
		err = add(seqsOfThread, q.Thread)
	case len(types) == 0:
		err = add(seqsOfRun, q.Thread, q.Run)
	case q.Run != "":
		names, jerr := jsonTexts(types)
		if jerr != nil {
			return nil, jerr
		}
		err = add(seqsOfRunIn, q.Thread, q.Run, names)
	default:
		for _, name := range types {
			if err = add(seqsOfType, q.Thread, name); err != nil {
				break
			}
		}
		slices.Sort(seqs)
		if q.Backward {
			slices.Reverse(seqs)
		}
		seqs = seqs[:min(len(seqs), q.Limit+1)]
	}
	return seqs, err
}

// eventsAt gives events by their seqs, which ascend.
func eventsAt(c *sqlite.Conn, t id.Thread, seqs []eventstore.Seq) (map[eventstore.Seq]*eventstore.Event, error) {
	entries := make([]eventstore.Entry, len(seqs))
	for i, seq := range seqs {
		entries[i].Seq = seq
	}
	rows := make(map[eventstore.Seq]*eventstore.Event, len(seqs))
	err := eachContent(c, t, eventstore.Ranges(entries), func(e *eventstore.Event) error {
		row := *e
		row.Content, row.Metadata, row.Digest = bytes.Clone(e.Content), bytes.Clone(e.Metadata), bytes.Clone(e.Digest)
		rows[e.Seq] = &row
		return nil
	})
	if err == nil && len(rows) != len(seqs) {
		err = fmt.Errorf("%d of %d events are missing", len(seqs)-len(rows), len(seqs))
	}
	return rows, err
}

// fillPage loads the rows of a page that q.Bytes lets in, and names the rest.
func (s *Store) fillPage(c *sqlite.Conn, q eventstore.PageQuery, page *eventstore.Page, places []eventstore.Place) (err error) {
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
func measurePlaces(c *sqlite.Conn, t id.Thread, places []eventstore.Place) error {
	sizes := make(map[eventstore.Seq]int, len(places))
	list, jerr := json.Marshal(eventstore.SeqsOf(places))
	if jerr != nil {
		return jerr
	}
	err := query(c, sizesAt, func(st *sqlite.Stmt) error {
		sizes[eventstore.Seq(st.ColumnInt64(0))] = st.ColumnInt(1)
		return nil
	}, t, string(list))
	eventstore.SetSizes(places, sizes)
	return err
}

func rowsAt(c *sqlite.Conn, t id.Thread, places []eventstore.Place) ([]*eventstore.Event, error) {
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
	err = s.snapshot(ctx, func(c *sqlite.Conn) (err error) {
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
	err := s.snapshot(ctx, func(c *sqlite.Conn) error {
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
func pageTranscript(c *sqlite.Conn, q eventstore.PageQuery) (*eventstore.Transcript, error) {
	var row *eventstore.Row
	text, args := newestRow, []any{q.Thread}
	if q.At != "" {
		text, args = rowOf, append(args, q.At)
	}
	if _, err := one(c, text, func(st *sqlite.Stmt) error {
		row = scanRow(st, q.Thread)
		return nil
	}, args...); err != nil || row == nil || row.Opaque || row.Node == 0 {
		return nil, err
	}
	chain, err := nodes(c, q.Thread, row.Node)
	if err != nil {
		return nil, err
	}
	return eventstore.Fold(row, chain)
}

// placesOf gives a page of a transcript. What it reads besides is in indexes: few messages are revised, and a run has few events.
func placesOf(c *sqlite.Conn, tr *eventstore.Transcript, q eventstore.PageQuery) (places []eventstore.Place, more bool, err error) {
	firsts := map[eventstore.Seq]eventstore.Seq{}
	if err := query(c, revisions, func(st *sqlite.Stmt) error {
		firsts[eventstore.Seq(st.ColumnInt64(0))] = eventstore.Seq(st.ColumnInt64(1))
		return nil
	}, q.Thread); err != nil {
		return nil, false, err
	}
	of := map[eventstore.Seq]bool{}
	if q.Run != "" {
		if err := query(c, allSeqsOfRun, func(st *sqlite.Stmt) error {
			of[eventstore.Seq(st.ColumnInt64(0))] = true
			return nil
		}, q.Thread, q.Run); err != nil {
			return nil, false, err
		}
	}
	places, more = tr.Places(q, firsts, of)
	return places, more, nil
}

// KnowsRun is eventstore.Pager.KnowsRun.
func (s *Store) KnowsRun(ctx context.Context, t id.Thread, r id.Run) (known bool, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		if known, err = one(c, runIsKnown, nil, r, t); known || err != nil {
			return err
		}
		known, err = one(c, runHasEvents, nil, t, r)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for run %s of thread %s: %w", r, t, err)
	}
	return known, nil
}

package relational

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"understudy/eventstore"
	"understudy/id"
	"understudy/transfer"
)

// Log implements transfer.Target.
func (s logStore) Log(ctx context.Context, t id.Thread) (*transfer.Log, error) {
	l := &transfer.Log{}
	var count []int
	err := s.db.Snapshot(ctx, func(q Querier) error {
		*l, count = transfer.Log{}, nil
		return errors.Join(
			ask(q, &count, countEvents, number, t),
			ask(q, &l.Rows, rowsOfThread, ScanRow(t), t),
			ask(q, &l.Nodes, nodesOfThread, func(r Row) *eventstore.Node {
				n := scanNode(r)
				return &n
			}, t),
			ask(q, &l.Lineages, LineagesOf, scanLineage, t),
			q.Send(),
		)
	})
	if err != nil {
		return nil, fmt.Errorf("log of thread %s: %w", t, err)
	}
	l.Events = s.eventsOf(ctx, t, count[0])
	return l, nil
}

const (
	// logBatch is how many events are read and sent at once, and logBytes their size without the last.
	logBatch = 1000
	logBytes = 4 << 20
)

// eventsOf are the first events of a thread, so many. They are never deleted but with their thread.
func (s logStore) eventsOf(ctx context.Context, t id.Thread, count int) iter.Seq2[*eventstore.Event, error] {
	return func(yield func(*eventstore.Event, error) bool) {
		after := eventstore.Seq(0)
		for left := count; left > 0; {
			page, err := from(ctx, s.db.Snapshot, func(q Querier) ([]*eventstore.Event, error) {
				return within(q, logBytes, sizeOf, EventsAfter, scanEvent(t), t, after, min(left, logBatch))
			})
			if err == nil && len(page) == 0 {
				err = fmt.Errorf("log of thread %s: %d of %d events are gone: the thread was deleted while it was read", t, left, count)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			left -= len(page)
			for i, e := range page {
				page[i], after = nil, e.Seq
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

func sizeOf(e *eventstore.Event) int { return len(e.Content) + len(e.Metadata) }

// batches are the events of a log, as many as are sent at once.
func batches(events iter.Seq2[*eventstore.Event, error]) iter.Seq2[[]*eventstore.Event, error] {
	return func(yield func([]*eventstore.Event, error) bool) {
		var batch []*eventstore.Event
		size := 0
		for e, err := range events {
			if err != nil {
				yield(nil, err)
				return
			}
			batch = append(batch, e)
			if size += sizeOf(e); len(batch) < logBatch && size < logBytes {
				continue
			}
			if !yield(batch, nil) {
				return
			}
			batch, size = nil, 0
		}
		if len(batch) > 0 {
			yield(batch, nil)
		}
	}
}

// PutLog implements transfer.Target.
func (s logStore) PutLog(ctx context.Context, t id.Thread, l *transfer.Log) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		tx.Lock(t)
		known, err := has(tx, hasLog, t)
		if err != nil || known {
			return err
		}
		var of relative
		begun := false
		for batch, err := range batches(l.Events) {
			if err != nil {
				return err
			}
			if !begun { // a log without events has nothing to share, and a family may have many of them
				begun = true
				if of, err = nearest(tx, t, l.Lineages); err != nil {
					return err
				}
			}
			// The seqs are kept: transcripts are made of them.
			if err = tx.putBeside(t, of, batch); err == nil {
				err = tx.Send()
			}
			if err != nil {
				return fmt.Errorf("events from %d: %w", batch[0].Seq, err)
			}
		}
		for _, n := range l.Nodes {
			if err := tx.Exec(putNode, nodeArgs(t, n)...); err != nil {
				return fmt.Errorf("transcript node %d: %w", n.ID, err)
			}
		}
		for _, r := range l.Rows {
			own := *r
			own.Thread = t
			if err := tx.PutTranscriptRow(&own); err != nil {
				return fmt.Errorf("transcript of checkpoint %s: %w", r.Checkpoint, err)
			}
		}
		if !begun {
			return nil // without events it is no relative of others
		}
		return tx.putLineages(t, l.Lineages)
	})
}

package relational

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"understudy/eventstore"
	"understudy/id"
	"understudy/transfer"
)

// Log is transfer.Target.Log.
func (s *Store) Log(ctx context.Context, t id.Thread) (*transfer.Log, error) {
	l := &transfer.Log{}
	err := s.db.Snapshot(ctx, func(q Querier) error {
		*l = transfer.Log{}
		return errors.Join(
			ask(q, &l.Events, EventsAfter, scanEvent(t), t, 0, unlimited),
			ask(q, &l.Rows, rowsOfThread, scanRow(t), t),
			ask(q, &l.Nodes, nodesOfThread, func(r Row) *eventstore.Node {
				n := scanNode(r)
				return &n
			}, t),
			q.Send(),
		)
	})
	if err != nil {
		return nil, fmt.Errorf("log of thread %s: %w", t, err)
	}
	return l, nil
}

// logBatch is how many events are sent at once.
const logBatch = 1000

// PutLog is transfer.Target.PutLog.
func (s *Store) PutLog(ctx context.Context, t id.Thread, l *transfer.Log) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		tx.Lock(t)
		known, err := has(tx, hasLog, t)
		if err != nil || known {
			return err
		}
		for batch := range slices.Chunk(l.Events, logBatch) {
			// The seqs are kept: transcripts are made of them.
			err := tx.PutEvents(t, batch)
			if err == nil {
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
		return nil
	})
}

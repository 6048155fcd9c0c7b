package relational

import (
	"context"
	"fmt"
	"time"

	"understudy/id"
	"understudy/run"
)

var (
	putSpans = same("INSERT INTO run_spans (run_id, number, spans, at, body) VALUES ($1, $2, $3, $4, $5) " +
		"ON CONFLICT (run_id, number) DO UPDATE SET spans = excluded.spans, at = excluded.at, body = excluded.body WHERE excluded.spans >= run_spans.spans")
	SpansOfRun = same("SELECT s.body FROM run_spans s JOIN runs ON runs.run_id = s.run_id " + OfThreads + "s.run_id = $1 AND runs.thread_id = $2 ORDER BY s.number")
	// SweepSpans reads the oldest rows only.
	SweepSpans = differing("DELETE FROM run_spans WHERE ctid = ANY (ARRAY(SELECT ctid FROM run_spans WHERE at < $1 ORDER BY at LIMIT $2))",
		"DELETE FROM run_spans WHERE at < $1 AND id IN (SELECT id FROM run_spans ORDER BY id LIMIT $2)")
)

// SpanBatches implements run.Store.
func (s runStore) SpanBatches(ctx context.Context, t id.Thread, r id.Run) ([][]byte, error) {
	bodies, err := fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) ([][]byte, error) { return all(q, SpansOfRun, bytesOf, r, t) })
	if err != nil {
		return nil, fmt.Errorf("spans of run %s: %w", r, err)
	}
	return bodies, nil
}

// PutSpans implements run.Tx.
func (tx *Tx) PutSpans(r id.Run, b *run.SpanBatch) error {
	tx.LockRun(r)
	if err := tx.Exec(putSpans, r, b.Number, b.Spans, micros(b.At), b.Body); err != nil {
		return fmt.Errorf("spans of run %s: %w", r, err)
	}
	return nil
}

// DeleteSpans implements run.Tx.
func (tx *Tx) DeleteSpans(before time.Time, limit int) (int, error) {
	n, err := tx.Affected(SweepSpans, micros(before), limit)
	if err != nil {
		return 0, fmt.Errorf("delete spans: %w", err)
	}
	return int(n), nil
}

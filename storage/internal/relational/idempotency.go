package relational

import (
	"fmt"
	"strings"
	"time"

	"understudy/internal/idempotency"
)

const idempotencyColumns = "id, digest, at, thread_id, runs"

var (
	IdempotencyRecord = same("SELECT " + idempotencyColumns + " FROM idempotency_keys WHERE id = $1 AND at > $2")
	// insertIdempotencyRecord waits for a transaction that is storing the same key.
	insertIdempotencyRecord = same(insertInto("idempotency_keys", idempotencyColumns) + ` ON CONFLICT (id) DO UPDATE
		SET digest = excluded.digest, at = excluded.at, thread_id = excluded.thread_id, runs = excluded.runs WHERE idempotency_keys.at <= $6`)
	SweepIdempotencyRecords = differing("DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(SELECT ctid FROM idempotency_keys WHERE at <= $1 ORDER BY at LIMIT $2))",
		"DELETE FROM idempotency_keys WHERE id IN (SELECT id FROM idempotency_keys WHERE at <= $1 ORDER BY at LIMIT $2)")
)

// IdempotencyRecord implements idempotency.Tx.
func (tx *Tx) IdempotencyRecord(key string, expired time.Time) (*idempotency.Record, error) {
	r, found, err := first(tx, IdempotencyRecord, func(r Row) *idempotency.Record {
		return &idempotency.Record{ID: r.Text(0), Digest: r.Bytes(1), At: r.Time(2), Thread: r.Text(3), Runs: strings.Fields(r.Text(4))}
	}, key, micros(expired))
	if err != nil {
		return nil, fmt.Errorf("idempotency key: %w", err)
	}
	if !found {
		return nil, nil
	}
	return r, nil
}

// InsertIdempotencyRecord implements idempotency.Tx.
func (tx *Tx) InsertIdempotencyRecord(r *idempotency.Record, expired time.Time) error {
	n, err := tx.Affected(insertIdempotencyRecord, r.ID, r.Digest, micros(r.At), r.Thread, strings.Join(r.Runs, " "), micros(expired))
	if err != nil {
		return fmt.Errorf("idempotency key: %w", err)
	}
	if n == 0 {
		return idempotency.ErrRace
	}
	return nil
}

// DeleteIdempotencyRecords implements run.Tx.
func (tx *Tx) DeleteIdempotencyRecords(expired time.Time, limit int) (int, error) {
	n, err := tx.Affected(SweepIdempotencyRecords, micros(expired), limit)
	if err != nil {
		return 0, fmt.Errorf("delete idempotency keys: %w", err)
	}
	return int(n), nil
}

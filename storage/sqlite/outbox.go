package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run/webhook"
)

var errNoDelivery = fault.New(fault.NotFound, "delivery not found")

const (
	// dueDeliveries walks from origin to origin by the index and takes the first of each, so that a long queue of one costs no more than a short one.
	dueDeliveries = `WITH RECURSIVE origins (origin) AS (
			SELECT min(origin) FROM outbox
			UNION ALL
			SELECT (SELECT min(o.origin) FROM outbox o WHERE o.origin > origins.origin) FROM origins WHERE origins.origin IS NOT NULL
		)
		SELECT o.id, o.thread_id, o.run_id, o.url, o.origin, o.body, o.attempts, o.due FROM origins CROSS JOIN outbox o
		WHERE origins.origin NOT IN (SELECT value FROM json_each(?2)) AND o.id IN (
			SELECT id FROM outbox WHERE origin = origins.origin AND due <= ?1 ORDER BY due, id LIMIT ?3
		) ORDER BY o.due, o.id LIMIT ?4`
	nextDelivery = "SELECT due FROM outbox WHERE due > ? ORDER BY due LIMIT 1"
)

// Deliveries is run.Store.Deliveries; the one due longest comes first.
func (s *Store) Deliveries(ctx context.Context, q webhook.Query) (due []*webhook.Delivery, next time.Time, err error) {
	skip, err := json.Marshal(append([]string{}, q.Skip...))
	if err != nil {
		return nil, time.Time{}, err
	}
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		if err := query(c, dueDeliveries, func(st *sqlite.Stmt) error {
			due = append(due, &webhook.Delivery{
				ID:       st.ColumnInt64(0),
				Thread:   id.Thread(st.ColumnText(1)),
				Run:      id.Run(st.ColumnText(2)),
				URL:      st.ColumnText(3),
				Origin:   st.ColumnText(4),
				Body:     columnBytes(st, 5),
				Attempts: st.ColumnInt(6),
				Due:      columnTime(st, 7),
			})
			return nil
		}, micros(q.By), string(skip), q.PerOrigin, q.Limit); err != nil {
			return err
		}
		_, err := one(c, nextDelivery, func(st *sqlite.Stmt) error {
			next = columnTime(st, 0)
			return nil
		}, micros(q.By))
		return err
	})
	return due, next, err
}

// InsertDelivery is run.Tx.InsertDelivery. It sets the delivery's id.
func (tx *Tx) InsertDelivery(d *webhook.Delivery) error {
	if err := tx.exec("INSERT INTO outbox (thread_id, run_id, url, origin, body, attempts, due) VALUES (?, ?, ?, ?, ?, ?, ?)",
		d.Thread, d.Run, d.URL, d.Origin, d.Body, d.Attempts, micros(d.Due)); err != nil {
		return fmt.Errorf("insert delivery for run %s: %w", d.Run, err)
	}
	d.ID = tx.conn.LastInsertRowID()
	return nil
}

// UpdateDelivery is run.Tx.UpdateDelivery.
func (tx *Tx) UpdateDelivery(d *webhook.Delivery) error {
	if err := tx.exec("UPDATE outbox SET thread_id = ?, run_id = ?, url = ?, origin = ?, body = ?, attempts = ?, due = ? WHERE id = ?",
		d.Thread, d.Run, d.URL, d.Origin, d.Body, d.Attempts, micros(d.Due), d.ID); err != nil {
		return fmt.Errorf("update delivery %d: %w", d.ID, err)
	}
	if tx.conn.Changes() == 0 {
		return errNoDelivery
	}
	return nil
}

// DeleteDelivery is run.Tx.DeleteDelivery.
func (tx *Tx) DeleteDelivery(d int64) error {
	if err := tx.exec("DELETE FROM outbox WHERE id = ?", d); err != nil {
		return fmt.Errorf("delete delivery %d: %w", d, err)
	}
	if tx.conn.Changes() == 0 {
		return errNoDelivery
	}
	return nil
}

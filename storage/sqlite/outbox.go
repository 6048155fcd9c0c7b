package sqlite

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

var errNoDelivery = fault.New(fault.NotFound, "delivery not found")

const (
	dueDeliveries = "SELECT id, thread_id, run_id, url, body, attempts, due FROM outbox WHERE due <= ? ORDER BY due, id LIMIT ?"
	nextDelivery  = "SELECT due FROM outbox WHERE due > ? ORDER BY due LIMIT 1"
)

// Deliveries is run.Store.Deliveries; the one due longest comes first.
func (s *Store) Deliveries(ctx context.Context, by time.Time, limit int) (due []*run.Delivery, next time.Time, err error) {
	if limit <= 0 {
		limit = -1
	}
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		if err := query(c, dueDeliveries, func(st *sqlite.Stmt) error {
			due = append(due, &run.Delivery{
				ID:       st.ColumnInt64(0),
				Thread:   id.Thread(st.ColumnText(1)),
				Run:      id.Run(st.ColumnText(2)),
				URL:      st.ColumnText(3),
				Body:     columnBytes(st, 4),
				Attempts: st.ColumnInt(5),
				Due:      columnTime(st, 6),
			})
			return nil
		}, micros(by), limit); err != nil {
			return err
		}
		_, err := one(c, nextDelivery, func(st *sqlite.Stmt) error {
			next = columnTime(st, 0)
			return nil
		}, micros(by))
		return err
	})
	return due, next, err
}

// InsertDelivery is run.Tx.InsertDelivery. It sets the delivery's id.
func (tx *Tx) InsertDelivery(d *run.Delivery) error {
	if err := tx.exec("INSERT INTO outbox (thread_id, run_id, url, body, attempts, due) VALUES (?, ?, ?, ?, ?, ?)",
		d.Thread, d.Run, d.URL, d.Body, d.Attempts, micros(d.Due)); err != nil {
		return fmt.Errorf("insert delivery for run %s: %w", d.Run, err)
	}
	d.ID = tx.conn.LastInsertRowID()
	return nil
}

// UpdateDelivery is run.Tx.UpdateDelivery.
func (tx *Tx) UpdateDelivery(d *run.Delivery) error {
	if err := tx.exec("UPDATE outbox SET thread_id = ?, run_id = ?, url = ?, body = ?, attempts = ?, due = ? WHERE id = ?",
		d.Thread, d.Run, d.URL, d.Body, d.Attempts, micros(d.Due), d.ID); err != nil {
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

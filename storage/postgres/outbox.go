package postgres

import (
	"context"
	"fmt"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

var errNoDelivery = fault.New(fault.NotFound, "delivery not found")

const (
	dueDeliveries = "SELECT id, thread_id, run_id, url, body, attempts, due FROM outbox WHERE due <= $1 ORDER BY due, id LIMIT $2"
	nextDelivery  = "SELECT due FROM outbox WHERE due > $1 ORDER BY due LIMIT 1"
)

func scanDelivery(r *row) *run.Delivery {
	return &run.Delivery{
		ID: r.int(0), Thread: id.Thread(r.text(1)), Run: id.Run(r.text(2)), URL: r.text(3), Body: r.bytes(4), Attempts: int(r.int(5)), Due: r.time(6),
	}
}

// Deliveries is run.Store.Deliveries; the one due longest comes first.
func (s *Store) Deliveries(ctx context.Context, by time.Time, limit int) (due []*run.Delivery, next time.Time, err error) {
	err = s.snapshot(ctx, func(c *reader) error {
		if err := c.query(dueDeliveries, func(r *row) error {
			due = append(due, scanDelivery(r))
			return nil
		}, micros(by), limitOf(limit)); err != nil {
			return err
		}
		_, err := one(c, nextDelivery, func(r *row) error {
			next = r.time(0)
			return nil
		}, micros(by))
		return err
	})
	return due, next, err
}

// InsertDelivery is run.Tx.InsertDelivery. It sets the delivery's id.
func (tx *Tx) InsertDelivery(d *run.Delivery) error {
	if _, err := one(tx, "INSERT INTO outbox (thread_id, run_id, url, body, attempts, due) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id", func(r *row) error {
		d.ID = r.int(0)
		return nil
	}, d.Thread, d.Run, d.URL, d.Body, d.Attempts, micros(d.Due)); err != nil {
		return fmt.Errorf("insert delivery for run %s: %w", d.Run, err)
	}
	return nil
}

// UpdateDelivery is run.Tx.UpdateDelivery.
func (tx *Tx) UpdateDelivery(d *run.Delivery) error {
	n, err := tx.affected("UPDATE outbox SET thread_id = $1, run_id = $2, url = $3, body = $4, attempts = $5, due = $6 WHERE id = $7",
		d.Thread, d.Run, d.URL, d.Body, d.Attempts, micros(d.Due), d.ID)
	if err != nil {
		return fmt.Errorf("update delivery %d: %w", d.ID, err)
	}
	if n == 0 {
		return errNoDelivery
	}
	return nil
}

// DeleteDelivery is run.Tx.DeleteDelivery.
func (tx *Tx) DeleteDelivery(d int64) error {
	n, err := tx.affected("DELETE FROM outbox WHERE id = $1", d)
	if err != nil {
		return fmt.Errorf("delete delivery %d: %w", d, err)
	}
	if n == 0 {
		return errNoDelivery
	}
	return nil
}

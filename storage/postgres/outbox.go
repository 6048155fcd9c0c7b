package postgres

import (
	"context"
	"fmt"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run/webhook"
)

var errNoDelivery = fault.New(fault.NotFound, "delivery not found")

// firstOfOrigins walks from origin to origin by the index and takes the first due of each, so that a long queue of one costs no more than a short one.
const firstOfOrigins = `WITH RECURSIVE origins (origin) AS (
		(SELECT origin FROM outbox ORDER BY origin LIMIT 1)
		UNION ALL
		SELECT (SELECT o.origin FROM outbox o WHERE o.origin > origins.origin ORDER BY o.origin LIMIT 1) FROM origins WHERE origins.origin IS NOT NULL
	), firsts AS (
		SELECT o.* FROM origins CROSS JOIN LATERAL (
			SELECT * FROM outbox WHERE outbox.origin = origins.origin AND due <= $1 ORDER BY due, id LIMIT $3
		) o WHERE origins.origin <> ALL($2::text[]) ORDER BY o.due, o.id LIMIT $4
	)`

const (
	deliveryColumns = "o.id, o.thread_id, o.run_id, o.url, o.origin, o.body, o.attempts"
	dueDeliveries   = firstOfOrigins + " SELECT " + deliveryColumns + ", o.due FROM firsts o ORDER BY o.due, o.id"
	nextDelivery    = "SELECT due FROM outbox WHERE due > $1 ORDER BY due LIMIT 1"
)

func scanDelivery(r *row) *webhook.Delivery {
	return &webhook.Delivery{
		ID: r.int(0), Thread: id.Thread(r.text(1)), Run: id.Run(r.text(2)), URL: r.text(3), Origin: r.text(4), Body: r.bytes(5), Attempts: int(r.int(6)), Due: r.time(7),
	}
}

// Deliveries is run.Store.Deliveries; the one due longest comes first.
func (s *Store) Deliveries(ctx context.Context, q webhook.Query) (due []*webhook.Delivery, next time.Time, err error) {
	err = s.snapshot(ctx, func(c *reader) error {
		if err := c.query(dueDeliveries, func(r *row) error {
			due = append(due, scanDelivery(r))
			return nil
		}, micros(q.By), append([]string{}, q.Skip...), q.PerOrigin, q.Limit); err != nil {
			return err
		}
		_, err := one(c, nextDelivery, func(r *row) error {
			next = r.time(0)
			return nil
		}, micros(q.By))
		return err
	})
	return due, next, err
}

// InsertDelivery is run.Tx.InsertDelivery. It sets the delivery's id.
func (tx *Tx) InsertDelivery(d *webhook.Delivery) error {
	if _, err := one(tx, "INSERT INTO outbox (thread_id, run_id, url, origin, body, attempts, due) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id", func(r *row) error {
		d.ID = r.int(0)
		return nil
	}, d.Thread, d.Run, d.URL, d.Origin, d.Body, d.Attempts, micros(d.Due)); err != nil {
		return fmt.Errorf("insert delivery for run %s: %w", d.Run, err)
	}
	return nil
}

// UpdateDelivery is run.Tx.UpdateDelivery.
func (tx *Tx) UpdateDelivery(d *webhook.Delivery) error {
	n, err := tx.affected("UPDATE outbox SET thread_id = $1, run_id = $2, url = $3, origin = $4, body = $5, attempts = $6, due = $7 WHERE id = $8",
		d.Thread, d.Run, d.URL, d.Origin, d.Body, d.Attempts, micros(d.Due), d.ID)
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

package relational

import (
	"context"
	"fmt"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run/webhook"
)

// errNoDelivery: there is no such delivery.
var errNoDelivery = fault.New(fault.NotFound, "delivery not found")

const (
	deliveryColumns = "thread_id, run_id, url, origin, body, attempts, due"
	// DeliveryColumns are the columns of a delivery, of the table o; due is selected after them.
	DeliveryColumns = "o.id, o.thread_id, o.run_id, o.url, o.origin, o.body, o.attempts"

	// FirstOfOrigins walks from origin to origin in the index and takes the first deliveries of
	// each, so that a long queue of one origin costs no more than a short one: those due by $1, not
	// of the origins $2, at most $3 of each and $4 in all.
	FirstOfOrigins = `WITH RECURSIVE origins (origin) AS (
			(SELECT origin FROM outbox ORDER BY origin LIMIT 1)
			UNION ALL
			SELECT (SELECT o.origin FROM outbox o WHERE o.origin > origins.origin ORDER BY o.origin LIMIT 1) FROM origins WHERE origins.origin IS NOT NULL
		), firsts AS (
			SELECT o.* FROM origins CROSS JOIN LATERAL (
				SELECT * FROM outbox WHERE outbox.origin = origins.origin AND due <= $1 ORDER BY due, id LIMIT $3
			) o WHERE origins.origin <> ALL($2::text[]) ORDER BY o.due, o.id LIMIT $4
		)`
)

// deliveryArgs returns the values of a delivery that change.
func deliveryArgs(d *webhook.Delivery) []any {
	return []any{d.Thread, d.Run, d.URL, d.Origin, d.Body, d.Attempts, micros(d.Due)}
}

// scanDelivery reads a row of DeliveryColumns and due.
func scanDelivery(r Row) *webhook.Delivery {
	return &webhook.Delivery{
		ID: r.Int(0), Thread: id.Thread(r.Text(1)), Run: id.Run(r.Text(2)), URL: r.Text(3), Origin: r.Text(4), Body: r.Bytes(5), Attempts: int(r.Int(6)), Due: r.Time(7),
	}
}

var (
	DueDeliveries = differing(FirstOfOrigins+" SELECT "+DeliveryColumns+", o.due FROM firsts o ORDER BY o.due, o.id",
		`WITH RECURSIVE origins (origin) AS (
			SELECT min(origin) FROM outbox
			UNION ALL
			SELECT (SELECT min(o.origin) FROM outbox o WHERE o.origin > origins.origin) FROM origins WHERE origins.origin IS NOT NULL
		)
		SELECT `+DeliveryColumns+`, o.due FROM origins CROSS JOIN outbox o
		WHERE origins.origin NOT IN (SELECT value FROM json_each($2)) AND o.id IN (
			SELECT id FROM outbox WHERE origin = origins.origin AND due <= $1 ORDER BY due, id LIMIT $3
		) ORDER BY o.due, o.id LIMIT $4`)
	NextDelivery   = same("SELECT due FROM outbox WHERE due > $1 ORDER BY due LIMIT 1")
	insertDelivery = same(insertInto("outbox", deliveryColumns) + " RETURNING id")
	updateDelivery = same("UPDATE outbox SET (" + deliveryColumns + ") = (" + marks(1, deliveryColumns) + ") WHERE id = $8")
	deleteDelivery = same("DELETE FROM outbox WHERE id = $1")
)

// Deliveries implements run.Store; the one due longest comes first.
func (s runStore) Deliveries(ctx context.Context, of webhook.Query) (due []*webhook.Delivery, next time.Time, err error) {
	err = s.db.Snapshot(ctx, func(q Querier) (err error) {
		due, next, err = Deliveries(q, DueDeliveries, of)
		return err
	})
	return due, next, err
}

// Deliveries reads due deliveries with a statement that has the parameters of FirstOfOrigins and
// more, and returns when the next one becomes due.
func Deliveries(q Querier, due Statement, of webhook.Query, more ...any) (list []*webhook.Delivery, next time.Time, err error) {
	args := append([]any{micros(of.By), append([]string{}, of.Skip...), of.PerOrigin, of.Limit}, more...)
	if err := ask(q, &list, due, scanDelivery, args...); err != nil {
		return nil, time.Time{}, err
	}
	next, _, err = first(q, NextDelivery, moment, micros(of.By))
	return list, next, err
}

// InsertDelivery implements run.Tx. It sets the ID of the delivery.
func (tx *Tx) InsertDelivery(d *webhook.Delivery) error {
	number, _, err := first(tx, insertDelivery, number[int64], deliveryArgs(d)...)
	if err != nil {
		return fmt.Errorf("insert delivery for run %s: %w", d.Run, err)
	}
	d.ID = number
	return nil
}

// UpdateDelivery implements run.Tx.
func (tx *Tx) UpdateDelivery(d *webhook.Delivery) error {
	return tx.change(errNoDelivery, fmt.Sprintf("update delivery %d", d.ID), updateDelivery, append(deliveryArgs(d), d.ID)...)
}

// DeleteDelivery implements run.Tx.
func (tx *Tx) DeleteDelivery(d int64) error {
	return tx.change(errNoDelivery, fmt.Sprintf("delete delivery %d", d), deleteDelivery, d)
}

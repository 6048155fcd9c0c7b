package service

import (
	"context"
	"time"

	"understudy/run"
	"understudy/run/webhook"
)

// outbox is the Store as the sender of webhooks needs it.
type outbox struct {
	store  run.Store
	shared run.Shared // the Store, when other instances send from it too; nil else
}

// Due implements webhook.Outbox.
func (o outbox) Due(ctx context.Context, q webhook.Query) ([]*webhook.Delivery, time.Time, error) {
	if o.shared != nil {
		return o.shared.TakeDeliveries(ctx, q, q.By.Add(webhook.TakeTime))
	}
	return o.store.Deliveries(ctx, q)
}

// Update implements webhook.Outbox.
func (o outbox) Update(ctx context.Context, d *webhook.Delivery) error {
	return o.store.Write(ctx, func(tx run.Tx) error { return tx.UpdateDelivery(d) })
}

// Delete implements webhook.Outbox.
func (o outbox) Delete(ctx context.Context, d *webhook.Delivery) error {
	return o.store.Write(ctx, func(tx run.Tx) error { return tx.DeleteDelivery(d.ID) })
}

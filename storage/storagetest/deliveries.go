package storagetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/webhook"
)

var deliveryCases = map[string]func(*testing.T, Backend){
	"due ones in order, and when the next is due": func(t *testing.T, b Backend) {
		list := []*webhook.Delivery{
			{Thread: threadID(1), Run: runID(1), URL: "https://example.com/1", Body: raw(`{"a": 1}`), Due: at(2)},
			{Thread: threadID(1), Run: runID(2), URL: "https://example.com/2", Body: raw(`{}`), Due: at(1), Attempts: 3},
			{Thread: threadID(1), Run: runID(3), URL: "https://example.com/3", Body: raw(`{}`), Due: at(7)},
			{Thread: threadID(1), Run: runID(4), URL: "https://example.com/4", Body: raw(`{}`), Due: at(9)},
		}
		write(t, b, func(tx run.Tx) error {
			for _, d := range list {
				if err := tx.InsertDelivery(d); err != nil {
					return err
				}
			}
			return nil
		})
		got, next, err := b.Runs.Deliveries(ctx, webhook.Query{By: at(2), PerOrigin: 10, Limit: 10})
		require.NoError(t, err)
		same(t, []*webhook.Delivery{list[1], list[0]}, got)
		require.Equal(t, at(7), next)
		got, _, err = b.Runs.Deliveries(ctx, webhook.Query{By: at(2), PerOrigin: 10, Limit: 1})
		require.NoError(t, err)
		require.Len(t, got, 1)

		list[1].Attempts, list[1].Due = 4, at(20)
		write(t, b, func(tx run.Tx) error {
			return firstError(tx.UpdateDelivery(list[1]), tx.DeleteDelivery(list[0].ID))
		})
		got, next, err = b.Runs.Deliveries(ctx, webhook.Query{By: at(8), PerOrigin: 10, Limit: 10})
		require.NoError(t, err)
		same(t, []*webhook.Delivery{list[2]}, got)
		require.Equal(t, at(9), next)
		_, next, err = b.Runs.Deliveries(ctx, webhook.Query{By: at(20), PerOrigin: 10, Limit: 10})
		require.NoError(t, err)
		require.True(t, next.IsZero())
		isKind(t, b.Runs.Write(ctx, func(tx run.Tx) error { return tx.UpdateDelivery(list[0]) }), fault.NotFound)
		isKind(t, b.Runs.Write(ctx, func(tx run.Tx) error { return tx.DeleteDelivery(list[0].ID) }), fault.NotFound)
	},
	"no origin takes the places of others": func(t *testing.T, b Backend) {
		var want []*webhook.Delivery
		write(t, b, func(tx run.Tx) error {
			want = nil // it may run twice
			for i := range 60 {
				d := &webhook.Delivery{Thread: threadID(1), Run: runID(1), Origin: []string{"", "http://a", "http://b:81"}[i%3], Body: raw(`{}`), Due: at(i)}
				if err := tx.InsertDelivery(d); err != nil {
					return err
				}
				if i < 6 && d.Origin != "http://a" {
					want = append(want, d)
				}
			}
			return nil
		})
		q := webhook.Query{By: at(50), Skip: []string{"http://a", "http://unknown"}, PerOrigin: 2, Limit: 10}
		got, next, err := b.Runs.Deliveries(ctx, q)
		require.NoError(t, err)
		same(t, want, got)
		require.Equal(t, at(51), next)
		q.By = at(-1)
		got, _, err = b.Runs.Deliveries(ctx, q)
		require.NoError(t, err)
		require.Empty(t, got)
		if shared, ok := b.Runs.(run.Shared); ok {
			q.By, q.Limit = at(50), 3
			got, _, err := shared.TakeDeliveries(ctx, q, at(100))
			require.NoError(t, err)
			same(t, want[:3], got)
			got, _, err = shared.TakeDeliveries(ctx, q, at(100))
			require.NoError(t, err)
			require.Len(t, got, 3)
			same(t, want[3:], got[:1])
		}
	},
}

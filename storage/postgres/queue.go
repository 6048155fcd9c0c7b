package postgres

import (
	"context"
	"time"

	"understudy/run"
)

// queueStands reads as many rows as it may count, and those by an index alone.
const queueStands = `SELECT r.n, p.n, p.first, p.middle, d.n, d.first
	FROM (SELECT count(*) AS n FROM (SELECT FROM runs ` + ofThreads + `status = 'running' LIMIT $2) all_running) r,
		(SELECT count(*) AS n, min(created_at) AS first, percentile_disc(0.5) WITHIN GROUP (ORDER BY created_at) AS middle
			FROM (SELECT created_at FROM runs ` + ofThreads + `status = 'pending' LIMIT $2) all_pending) p,
		(SELECT count(*) AS n, min(created_at) AS first FROM (SELECT created_at FROM run_heads WHERE created_at <= $1 ORDER BY created_at LIMIT $2) all_due) d`

// Queue is run.Store.Queue.
func (s *Store) Queue(ctx context.Context, now time.Time, bound int) (stands run.Queue, err error) {
	err = s.read(ctx, func(q *reader) error {
		_, err := one(q, queueStands, func(r *row) error {
			stands = run.Queue{
				Running: int(r.Int(0)), Pending: int(r.Int(1)), First: r.Time(2), Middle: r.Time(3), Due: int(r.Int(4)), FirstDue: r.Time(5),
			}
			return nil
		}, micros(now), bound)
		return err
	})
	return stands, err
}

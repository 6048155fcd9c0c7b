package sqlite

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/run"
)

const (
	queueStands = `SELECT (SELECT count(*) FROM (SELECT 1 FROM runs ` + ofThreads + `status = 'running' LIMIT ?2)), p.n, p.first, d.n, d.first
		FROM (SELECT count(*) AS n, min(created_at) AS first FROM (SELECT created_at FROM runs ` + ofThreads + `status = 'pending' LIMIT ?2)) p,
			(SELECT count(*) AS n, min(created_at) AS first FROM (SELECT created_at FROM run_heads WHERE created_at <= ?1 LIMIT ?2)) d`
	middleDue = "SELECT created_at FROM (SELECT created_at FROM runs " + ofThreads + "status = 'pending' LIMIT ?1) ORDER BY created_at LIMIT 1 OFFSET ?2"
)

// Queue is run.Store.Queue.
func (s *Store) Queue(ctx context.Context, now time.Time, bound int) (stands run.Queue, err error) {
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, queueStands, func(st *sqlite.Stmt) error {
			stands = run.Queue{
				Running: st.ColumnInt(0), Pending: st.ColumnInt(1), First: columnTime(st, 2), Due: st.ColumnInt(3), FirstDue: columnTime(st, 4),
			}
			return nil
		}, now, bound)
		if err != nil || stands.Pending == 0 {
			return err
		}
		_, err = one(c, middleDue, func(st *sqlite.Stmt) error {
			stands.Middle = columnTime(st, 0)
			return nil
		}, bound, (stands.Pending-1)/2)
		return err
	})
	return stands, err
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.read(ctx, func(c *sqlite.Conn) error { return exec(c, "SELECT 1 FROM sqlite_schema LIMIT 1") }); err != nil {
		return err
	}
	if err := s.disk.check(1); err != nil { // the log goes when the store is closed, perhaps just now
		return err
	}
	return s.disk.refuses(false)
}

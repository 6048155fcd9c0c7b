package sqlite

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/internal/rows"
)

var errNoCron = fault.New(fault.NotFound, "cron not found")

const cronColumns = "cron_id, assistant_id, thread_id, schedule, timezone, end_time, payload, next_run_date, metadata, on_run_completed, " +
	"enabled, created_at, updated_at"

func scanCron(s *sqlite.Stmt) *run.Cron {
	return &run.Cron{
		ID:             id.Cron(s.ColumnText(0)),
		Assistant:      id.Assistant(s.ColumnText(1)),
		Thread:         id.Thread(s.ColumnText(2)),
		Schedule:       s.ColumnText(3),
		Timezone:       s.ColumnText(4),
		EndTime:        columnTimePtr(s, 5),
		Payload:        columnBytes(s, 6),
		Next:           columnTimePtr(s, 7),
		Metadata:       columnBytes(s, 8),
		OnRunCompleted: s.ColumnText(9),
		Enabled:        s.ColumnBool(10),
		CreatedAt:      columnTime(s, 11),
		UpdatedAt:      columnTime(s, 12),
	}
}

func cronArgs(c *run.Cron) []any {
	return []any{
		c.ID, c.Assistant, c.Thread, c.Schedule, c.Timezone, timePtr(c.EndTime), c.Payload, timePtr(c.Next), c.Metadata,
		c.OnRunCompleted, c.Enabled, micros(c.CreatedAt), micros(c.UpdatedAt),
	}
}

func columnTimePtr(s *sqlite.Stmt, col int) *time.Time {
	if s.ColumnIsNull(col) {
		return nil
	}
	t := columnTime(s, col)
	return &t
}

func timePtr(t *time.Time) any {
	if t == nil {
		return nil
	}
	return micros(*t)
}

func loadCron(conn *sqlite.Conn, c id.Cron) (out *run.Cron, err error) {
	found, err := one(conn, "SELECT "+cronColumns+" FROM crons WHERE cron_id = ?", func(s *sqlite.Stmt) error {
		out = scanCron(s)
		return nil
	}, c)
	if err == nil && !found {
		err = errNoCron
	}
	return out, err
}

// Cron is run.Store.Cron.
func (s *Store) Cron(ctx context.Context, c id.Cron) (out *run.Cron, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		out, err = loadCron(conn, c)
		return err
	})
	return out, err
}

var (
	cronSorts    = []string{"cron_id", "assistant_id", "thread_id", "created_at", "updated_at", "next_run_date", "end_time"}
	cronOrders   = rows.Orders("SELECT "+cronColumns+" FROM crons", "cron_id", cronSorts...)
	cronOrdersOf = map[string]map[string][2]string{
		"thread_id":    rows.Orders("SELECT "+cronColumns+" FROM crons WHERE thread_id = ?", "cron_id", cronSorts...),
		"assistant_id": rows.Orders("SELECT "+cronColumns+" FROM crons WHERE assistant_id = ?", "cron_id", cronSorts...),
	}
)

// Crons is run.Store.Crons. Crons are few: what the thread or assistant leaves is filtered in order until the page is full.
func (s *Store) Crons(ctx context.Context, q run.CronQuery) (out []*run.Cron, err error) {
	p := rows.Page{Limit: q.Limit, Offset: q.Offset}
	err = s.eachCron(ctx, q, func(c *run.Cron) error {
		in, last := p.Take()
		if in {
			out = append(out, c)
		}
		if last {
			return errStop
		}
		return nil
	})
	return out, err
}

// CountCrons is run.Store.CountCrons.
func (s *Store) CountCrons(ctx context.Context, q run.CronQuery) (n int, err error) {
	err = s.eachCron(ctx, q, func(*run.Cron) error {
		n++
		return nil
	})
	return n, err
}

func (s *Store) eachCron(ctx context.Context, q run.CronQuery, row func(*run.Cron) error) error {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	by, args := cronOrders, []any(nil)
	switch {
	case q.Thread != "":
		by, args = cronOrdersOf["thread_id"], []any{q.Thread}
	case q.Assistant != "":
		by, args = cronOrdersOf["assistant_id"], []any{q.Assistant}
	}
	text, err := rows.Ordered(by, q.SortBy, "created_at", q.Ascending)
	if err != nil {
		return err
	}
	search := func(conn *sqlite.Conn) error {
		return query(conn, text, func(st *sqlite.Stmt) error {
			c := scanCron(st)
			if q.Assistant != "" && c.Assistant != q.Assistant || q.Enabled != nil && c.Enabled != *q.Enabled ||
				!match.Everything() && !match.Match(c.Metadata) {
				return nil
			}
			return row(c)
		}, args...)
	}
	if q.Thread != "" || q.Assistant != "" {
		return s.read(ctx, search)
	}
	return s.scan(ctx, rows.NarrowCrons, search)
}

const nextCron = "SELECT next_run_date FROM crons WHERE enabled = 1 AND next_run_date IS NOT NULL ORDER BY next_run_date, cron_id LIMIT 1"

// NextCron is run.Store.NextCron.
func (s *Store) NextCron(ctx context.Context) (next time.Time, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		_, err := one(conn, nextCron, func(st *sqlite.Stmt) error {
			next = columnTime(st, 0)
			return nil
		})
		return err
	})
	return next, err
}

// Cron is run.Tx.Cron.
func (tx *Tx) Cron(c id.Cron) (*run.Cron, error) { return loadCron(tx.conn, c) }

// InsertCron is run.Tx.InsertCron.
func (tx *Tx) InsertCron(c *run.Cron) error {
	if err := tx.exec("INSERT INTO crons ("+cronColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", cronArgs(c)...); err != nil {
		return fmt.Errorf("insert cron %s: %w", c.ID, err)
	}
	return nil
}

// UpdateCron is run.Tx.UpdateCron.
func (tx *Tx) UpdateCron(c *run.Cron) error {
	if err := tx.exec(`UPDATE crons SET (`+cronColumns+`) = (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
		WHERE cron_id = ?1`, cronArgs(c)...); err != nil {
		return fmt.Errorf("update cron %s: %w", c.ID, err)
	}
	if tx.conn.Changes() == 0 {
		return errNoCron
	}
	return nil
}

// DeleteCron is run.Tx.DeleteCron.
func (tx *Tx) DeleteCron(c id.Cron) error {
	if err := tx.exec("DELETE FROM crons WHERE cron_id = ?", c); err != nil {
		return fmt.Errorf("delete cron %s: %w", c, err)
	}
	if tx.conn.Changes() == 0 {
		return errNoCron
	}
	return nil
}

const dueCrons = "SELECT " + cronColumns + " FROM crons WHERE enabled = 1 AND next_run_date IS NOT NULL AND next_run_date <= ? " +
	"ORDER BY next_run_date, cron_id LIMIT ?"

// DueCrons is run.Tx.DueCrons; the one due longest comes first.
func (tx *Tx) DueCrons(now time.Time, limit int) (out []*run.Cron, err error) {
	err = tx.query(dueCrons, func(s *sqlite.Stmt) error {
		out = append(out, scanCron(s))
		return nil
	}, micros(now), limit)
	return out, err
}

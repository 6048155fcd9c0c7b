package postgres

import (
	"context"
	"fmt"
	"time"

	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/internal/rows"
)

var errNoCron = fault.New(fault.NotFound, "cron not found")

const cronColumns = "cron_id, assistant_id, thread_id, schedule, timezone, end_time, payload, next_run_date, metadata, on_run_completed, " +
	"enabled, created_at, updated_at"

func scanCron(r *row) *run.Cron {
	return &run.Cron{
		ID:             id.Cron(r.text(0)),
		Assistant:      id.Assistant(r.text(1)),
		Thread:         id.Thread(r.text(2)),
		Schedule:       r.text(3),
		Timezone:       r.text(4),
		EndTime:        r.timePtr(5),
		Payload:        r.bytes(6),
		Next:           r.timePtr(7),
		Metadata:       r.bytes(8),
		OnRunCompleted: r.text(9),
		Enabled:        r.bool(10),
		CreatedAt:      r.time(11),
		UpdatedAt:      r.time(12),
	}
}

func cronArgs(c *run.Cron) []any {
	return []any{
		c.ID, c.Assistant, c.Thread, c.Schedule, c.Timezone, c.EndTime, c.Payload, c.Next, c.Metadata,
		c.OnRunCompleted, c.Enabled, micros(c.CreatedAt), micros(c.UpdatedAt),
	}
}

func loadCron(q querier, text string, c id.Cron) (out *run.Cron, err error) {
	found, err := one(q, text, func(r *row) error {
		out = scanCron(r)
		return nil
	}, c)
	if err == nil && !found {
		err = errNoCron
	}
	return out, err
}

// Cron is run.Store.Cron.
func (s *Store) Cron(ctx context.Context, c id.Cron) (out *run.Cron, err error) {
	err = s.read(ctx, func(conn *reader) error {
		out, err = loadCron(conn, selectCron, c)
		return err
	})
	return out, err
}

var (
	cronSorts    = []string{"cron_id", "assistant_id", "thread_id", "created_at", "updated_at", "next_run_date", "end_time"}
	cronOrders   = rows.Orders("SELECT "+cronColumns+" FROM crons", "cron_id", cronSorts...)
	cronOrdersOf = map[string]map[string][2]string{
		"thread_id":    rows.Orders("SELECT "+cronColumns+" FROM crons WHERE thread_id = $1", "cron_id", cronSorts...),
		"assistant_id": rows.Orders("SELECT "+cronColumns+" FROM crons WHERE assistant_id = $1", "cron_id", cronSorts...),
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

func (s *Store) eachCron(ctx context.Context, q run.CronQuery, fn func(*run.Cron) error) error {
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
	search := func(conn *reader) error {
		return conn.query(text, func(r *row) error {
			c := scanCron(r)
			if q.Assistant != "" && c.Assistant != q.Assistant || q.Enabled != nil && c.Enabled != *q.Enabled ||
				!match.Everything() && !match.Match(c.Metadata) {
				return nil
			}
			return fn(c)
		}, args...)
	}
	if q.Thread != "" || q.Assistant != "" {
		return s.read(ctx, search)
	}
	return s.scan(ctx, rows.NarrowCrons, search)
}

const nextCron = "SELECT next_run_date FROM crons WHERE enabled AND next_run_date IS NOT NULL ORDER BY next_run_date, cron_id LIMIT 1"

// NextCron is run.Store.NextCron.
func (s *Store) NextCron(ctx context.Context) (next time.Time, err error) {
	err = s.read(ctx, func(conn *reader) error {
		_, err := one(conn, nextCron, func(r *row) error {
			next = r.time(0)
			return nil
		})
		return err
	})
	return next, err
}

const selectCron = "SELECT " + cronColumns + " FROM crons WHERE cron_id = $1"

// Cron is run.Tx.Cron. It is the transaction's own until its end.
func (tx *Tx) Cron(c id.Cron) (*run.Cron, error) {
	return loadCron(tx, selectCron+" FOR UPDATE", c)
}

var insertCron = insertInto("crons", cronColumns)

// InsertCron is run.Tx.InsertCron.
func (tx *Tx) InsertCron(c *run.Cron) error {
	if err := tx.exec(insertCron, cronArgs(c)...); err != nil {
		return fmt.Errorf("insert cron %s: %w", c.ID, err)
	}
	return nil
}

// UpdateCron is run.Tx.UpdateCron.
func (tx *Tx) UpdateCron(c *run.Cron) error {
	n, err := tx.affected("UPDATE crons SET ("+cronColumns+") = ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) WHERE cron_id = $1", cronArgs(c)...)
	if err != nil {
		return fmt.Errorf("update cron %s: %w", c.ID, err)
	}
	if n == 0 {
		return errNoCron
	}
	return nil
}

// DeleteCron is run.Tx.DeleteCron.
func (tx *Tx) DeleteCron(c id.Cron) error {
	n, err := tx.affected("DELETE FROM crons WHERE cron_id = $1", c)
	if err != nil {
		return fmt.Errorf("delete cron %s: %w", c, err)
	}
	if n == 0 {
		return errNoCron
	}
	return nil
}

// dueCrons leaves those alone that another transaction is about to fire.
const dueCrons = "SELECT " + cronColumns + " FROM crons WHERE enabled AND next_run_date IS NOT NULL AND next_run_date <= $1 " +
	"ORDER BY next_run_date, cron_id LIMIT $2 FOR UPDATE SKIP LOCKED"

// DueCrons is run.Tx.DueCrons; the one due longest comes first.
func (tx *Tx) DueCrons(now time.Time, limit int) (out []*run.Cron, err error) {
	err = tx.query(dueCrons, func(r *row) error {
		out = append(out, scanCron(r))
		return nil
	}, micros(now), limit)
	return out, err
}

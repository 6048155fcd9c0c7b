package relational

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"understudy/access"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/internal/rows"
)

// errNoCron: there is no such cron.
var errNoCron = fault.New(fault.NotFound, "cron not found")

// cronColumns are the columns of crons.
const cronColumns = "cron_id, assistant_id, thread_id, schedule, timezone, end_time, payload, next_run_date, metadata, on_run_completed, " +
	"enabled, created_at, updated_at, account_id, task"

// scanCron reads a row of cronColumns.
func scanCron(r Row) *run.Cron {
	c := &run.Cron{
		ID:             id.Cron(r.Text(0)),
		Assistant:      id.Assistant(r.Text(1)),
		Thread:         id.Thread(r.Text(2)),
		Schedule:       r.Text(3),
		Timezone:       r.Text(4),
		EndTime:        pointer(r, 5, r.Time),
		Payload:        r.Bytes(6),
		Next:           pointer(r, 7, r.Time),
		Metadata:       r.Bytes(8),
		OnRunCompleted: r.Text(9),
		Enabled:        r.Bool(10),
		CreatedAt:      r.Time(11),
		UpdatedAt:      r.Time(12),
		Account:        r.Text(13),
	}
	if c.Account != "" {
		c.Task = &run.Task{}
		if err := json.Unmarshal(r.Bytes(14), c.Task); err != nil {
			c.Task.Status, c.Enabled = run.TaskFailed, false // damaged: it is shown, and never due
		}
	}
	return c
}

// cronArgs returns the values of cronColumns.
func cronArgs(c *run.Cron) ([]any, error) {
	var task []byte
	if c.Task != nil {
		var err error
		if task, err = json.Marshal(c.Task); err != nil {
			return nil, fmt.Errorf("cron %s: %w", c.ID, err)
		}
	}
	return []any{
		c.ID, c.Assistant, c.Thread, c.Schedule, c.Timezone, c.EndTime, c.Payload, c.Next, c.Metadata,
		c.OnRunCompleted, c.Enabled, micros(c.CreatedAt), micros(c.UpdatedAt), c.Account, task,
	}, nil
}

var (
	insertCron = same(insertInto("crons", cronColumns))
	updateCron = same("UPDATE crons SET (" + cronColumns + ") = (" + marks(1, cronColumns) + ") WHERE cron_id = $1")
	deleteCron = same("DELETE FROM crons WHERE cron_id = $1")
	selectCron = same("SELECT " + cronColumns + " FROM crons WHERE cron_id = $1")
	// holdCron locks the row until the end of the transaction.
	holdCron = selectCron.Then(differing(" FOR UPDATE", ""))

	NextCron = differing("SELECT next_run_date FROM crons WHERE enabled AND next_run_date IS NOT NULL AND ($1 OR account_id = '') ORDER BY next_run_date, cron_id LIMIT 1",
		"SELECT next_run_date FROM crons WHERE enabled = 1 AND next_run_date IS NOT NULL AND ($1 OR account_id = '') ORDER BY next_run_date, cron_id LIMIT 1")
	dueCrons = differing("SELECT "+cronColumns+" FROM crons WHERE enabled AND next_run_date IS NOT NULL AND next_run_date <= $1 AND ($3 OR account_id = '') "+
		"ORDER BY next_run_date, cron_id LIMIT $2",
		"SELECT "+cronColumns+" FROM crons WHERE enabled = 1 AND next_run_date IS NOT NULL AND next_run_date <= $1 AND ($3 OR account_id = '') ORDER BY next_run_date, cron_id LIMIT $2")
	// DueCrons skips crons that another transaction is about to fire, so that each fires once.
	DueCrons = dueCrons.Then(differing(" FOR UPDATE SKIP LOCKED", ""))

	cronSorts         = []string{"cron_id", "assistant_id", "thread_id", "created_at", "updated_at", "next_run_date", "end_time"}
	cronsInOrder      = inOrder(same("SELECT "+cronColumns+" FROM crons WHERE account_id = ''"), "cron_id", cronSorts...)
	cronsOfThread     = inOrder(same("SELECT "+cronColumns+" FROM crons WHERE thread_id = $1 AND account_id = ''"), "cron_id", cronSorts...)
	cronsOfAssistants = inOrder(same("SELECT "+cronColumns+" FROM crons WHERE assistant_id = $1 AND account_id = ''"), "cron_id", cronSorts...)
	// cronsOfAccount leaves out the payloads, which repeat the prompts.
	cronsOfAccount = inOrder(same("SELECT "+strings.Replace(cronColumns, "payload", "NULL", 1)+" FROM crons WHERE account_id = $1 AND account_id <> ''"), "cron_id", cronSorts...)
	cronsOfAll     = inOrder(same("SELECT "+strings.Replace(cronColumns, "payload", "NULL", 1)+" FROM crons WHERE account_id <> ''"), "cron_id", cronSorts...)
	CountOfAccount = same("SELECT count(*) FROM crons WHERE account_id = $1 AND account_id <> ''")

	insertOccurrence  = same(insertInto("cron_occurrences", occurrenceColumns))
	SelectOccurrences = same("SELECT o." + strings.ReplaceAll(occurrenceColumns, ", ", ", o.") + ", r.run_id, r.status, r.cancel, r.error, r.ended_at FROM cron_occurrences o LEFT JOIN runs r ON r.run_id = o.run_id " +
		"WHERE o.cron_id = $1 ORDER BY o.created_at DESC, o.occurrence_id DESC LIMIT $2 OFFSET $3")
	// OldOccurrences deletes those of a task below the newest ones.
	OldOccurrences = same("DELETE FROM cron_occurrences WHERE cron_id = $1 AND (created_at, occurrence_id) <= " +
		"(SELECT created_at, occurrence_id FROM cron_occurrences WHERE cron_id = $1 ORDER BY created_at DESC, occurrence_id DESC LIMIT 1 OFFSET $2)")
	deleteOccurrences = same("DELETE FROM cron_occurrences WHERE cron_id = $1")
	// ActiveOccurrences begins at the indexes of active runs, and looks each up in the partial index of occurrences. SQLite keeps to the order of a CROSS JOIN.
	ActiveOccurrences = same(activeOccurrences("pending") + " UNION ALL " + activeOccurrences("running"))
)

func activeOccurrences(status string) string {
	return "SELECT o.cron_id FROM runs r CROSS JOIN cron_occurrences o WHERE r.status = '" + status + "' AND o.run_id = r.run_id AND o.run_id <> ''"
}

const occurrenceColumns = "occurrence_id, cron_id, thread_id, run_id, manual, status, error, created_at"

func scanOccurrence(r Row) *run.Occurrence {
	o := &run.Occurrence{
		ID: r.Text(0), Cron: id.Cron(r.Text(1)), Thread: id.Thread(r.Text(2)), Run: id.Run(r.Text(3)), Manual: r.Bool(4), Status: run.OccurrenceStatus(r.Text(5)), Error: string(r.Bytes(6)), At: r.Time(7),
	}
	if o.Run == "" {
		o.Ended = o.At
		return o
	}
	var of *run.Run
	if !r.Null(8) {
		of = &run.Run{Status: run.Status(r.Text(9)), Cancel: run.Action(r.Text(10)), Error: r.Bytes(11)}
		o.Ended = r.Time(12)
	}
	o.Status, o.Error = run.Outcome(of)
	return o
}

// Occurrences implements run.CronReader.
func (s cronStore) Occurrences(ctx context.Context, c id.Cron, limit, offset int) ([]*run.Occurrence, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]*run.Occurrence, error) {
		return all(q, SelectOccurrences, scanOccurrence, c, limitOf(limit), offset)
	})
}

// InsertOccurrence implements run.Tx.
func (tx *Tx) InsertOccurrence(o *run.Occurrence) error {
	var why []byte
	if o.Error != "" {
		why = []byte(o.Error)
	}
	if err := tx.Exec(insertOccurrence, o.ID, o.Cron, o.Thread, o.Run, o.Manual, string(o.Status), why, micros(o.At)); err != nil {
		return fmt.Errorf("occurrence of cron %s: %w", o.Cron, err)
	}
	if err := tx.Exec(OldOccurrences, o.Cron, run.MaxOccurrences); err != nil {
		return fmt.Errorf("old occurrences of cron %s: %w", o.Cron, err)
	}
	return nil
}

// ActiveOccurrences implements run.Tx.
func (tx *Tx) ActiveOccurrences() ([]id.Cron, error) {
	if _, err := tx.Affected(holdIdentity, "runs of scheduled tasks"); err != nil {
		return nil, fmt.Errorf("active runs of scheduled tasks: %w", err)
	}
	return all(tx, ActiveOccurrences, func(r Row) id.Cron { return id.Cron(r.Text(0)) })
}

// CountTasks implements run.Tx.
func (tx *Tx) CountTasks(account string) (int, error) {
	if _, err := tx.Affected(holdIdentity, "scheduled tasks of "+identityKey(account)); err != nil {
		return 0, fmt.Errorf("scheduled tasks of an account: %w", err)
	}
	n, _, err := first(tx, CountOfAccount, number[int64], account)
	return int(n), err
}

// Cron implements run.Store.
func (s cronStore) Cron(ctx context.Context, c id.Cron) (*run.Cron, error) {
	reach := access.Reach(ctx, access.Crons)
	return from(ctx, s.db.Read, func(q Querier) (*run.Cron, error) { return cronIn(reach)(the(q, errNoCron, selectCron, scanCron, c)) })
}

// Crons implements run.Store. Crons are few: those of the thread or assistant are filtered in
// order until the page is full.
func (s cronStore) Crons(ctx context.Context, q run.CronQuery) (out []*run.Cron, err error) {
	p := rows.Page{Limit: q.Limit, Offset: q.Offset}
	err = s.eachCron(ctx, q, func(c *run.Cron) error { return take(&p, func() { out = append(out, c) }) })
	return out, err
}

// CountCrons implements run.Store.
func (s cronStore) CountCrons(ctx context.Context, q run.CronQuery) (n int, err error) {
	if q.Account != "" && q.Thread == "" && q.Assistant == "" && q.Enabled == nil && len(q.Metadata) == 0 && access.Reach(ctx, access.Crons) == nil {
		return from(ctx, s.db.Read, func(r Querier) (int, error) {
			n, _, err := first(r, CountOfAccount, number[int64], q.Account)
			return int(n), err
		})
	}
	err = s.eachCron(ctx, q, func(*run.Cron) error {
		n++
		return nil
	})
	return n, err
}

// eachCron calls fn for the crons that match the query.
func (s cronStore) eachCron(ctx context.Context, of run.CronQuery, fn func(*run.Cron) error) error {
	match, err := contain.Parse(of.Metadata)
	if err != nil {
		return fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	by, args := cronsInOrder, []any(nil)
	switch {
	case of.Account != "":
		by, args = cronsOfAccount, []any{of.Account}
	case of.Tasks:
		by = cronsOfAll
	case of.Thread != "":
		by, args = cronsOfThread, []any{of.Thread}
	case of.Assistant != "":
		by, args = cronsOfAssistants, []any{of.Assistant}
	}
	text, err := by.pick(of.SortBy, "created_at", of.Ascending)
	if err != nil {
		return err
	}
	reach := access.Reach(ctx, access.Crons)
	search := func(q Querier) error {
		return q.Query(text, func(r Row) error {
			c := scanCron(r)
			if of.Thread != "" && c.Thread != of.Thread || of.Assistant != "" && c.Assistant != of.Assistant || of.Enabled != nil && c.Enabled != *of.Enabled ||
				!match.Everything() && !match.Match(c.Metadata) || !reach.Match(c.Metadata) {
				return nil
			}
			return fn(c)
		}, args...)
	}
	if of.Account != "" || of.Thread != "" || of.Assistant != "" {
		return s.db.Read(ctx, search)
	}
	return s.db.Scan(ctx, rows.NarrowCrons, search)
}

// NextCron implements run.Store.
func (s cronStore) NextCron(ctx context.Context, tasks bool) (time.Time, error) {
	return from(ctx, s.db.Read, func(q Querier) (time.Time, error) {
		next, _, err := first(q, NextCron, moment, tasks)
		return next, err
	})
}

// DueCrons implements run.CronReader.
func (s cronStore) DueCrons(ctx context.Context, now time.Time, limit int, tasks bool) ([]*run.Cron, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]*run.Cron, error) { return all(q, dueCrons, scanCron, micros(now), limit, tasks) })
}

// Cron implements run.Tx. It locks the row.
func (tx *Tx) Cron(c id.Cron) (*run.Cron, error) {
	return cronIn(tx.Reach.Crons)(the(tx, errNoCron, holdCron, scanCron, c))
}

// cronIn returns a function that returns a cron that was found, if it is in reach.
func cronIn(reach *access.Filter) func(*run.Cron, error) (*run.Cron, error) {
	return func(c *run.Cron, err error) (*run.Cron, error) {
		if err == nil && !reach.Match(c.Metadata) {
			return nil, errNoCron
		}
		return c, err
	}
}

// InsertCron implements run.Tx.
func (tx *Tx) InsertCron(c *run.Cron) error {
	args, err := cronArgs(c)
	if err == nil {
		err = tx.Exec(insertCron, args...)
	}
	if err != nil {
		return fmt.Errorf("insert cron %s: %w", c.ID, err)
	}
	return nil
}

// UpdateCron implements run.Tx.
func (tx *Tx) UpdateCron(c *run.Cron) error {
	args, err := cronArgs(c)
	if err != nil {
		return err
	}
	return tx.change(errNoCron, fmt.Sprintf("update cron %s", c.ID), updateCron, args...)
}

// DeleteCron implements run.Tx.
func (tx *Tx) DeleteCron(c id.Cron) error {
	if err := tx.Exec(deleteOccurrences, c); err != nil {
		return fmt.Errorf("delete cron %s: %w", c, err)
	}
	return tx.change(errNoCron, fmt.Sprintf("delete cron %s", c), deleteCron, c)
}

// DueCrons implements run.Tx; the one due longest comes first.
func (tx *Tx) DueCrons(now time.Time, limit int, tasks bool) ([]*run.Cron, error) {
	return all(tx, DueCrons, scanCron, micros(now), limit, tasks)
}

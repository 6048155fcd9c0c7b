package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/internal/rows"
)

var errNoRun = fault.New(fault.NotFound, "run not found")

const (
	runColumns = "run_id, thread_id, assistant_id, graph_id, metadata, status, strategy, created_at, updated_at, started_at, ended_at, " +
		"attempt, failures, passed, owner, lease_until, cancel, error, on_completion, on_disconnect, cron_id, crashes, turn"
	kwargsColumns = "input, command, config, context, options"
	selectRuns    = "SELECT " + runColumns + ", " + kwargsColumns + " FROM runs JOIN run_kwargs USING (run_id) "

	colKwargs = 23 // where kwargsColumns begin
)

// kwargsArgs are the columns of the arguments, and a digest that tells whether they changed.
func kwargsArgs(k *run.Arguments) (args []any, digest []byte, err error) {
	small, digest, err := rows.EncodeKwargs(k)
	return []any{k.Input, k.Command, k.Config, k.Context, small}, digest, err
}

func runArgs(r *run.Run) []any {
	return []any{
		r.ID, r.Thread, r.Assistant, r.Graph, r.Metadata, string(r.Status), string(r.Strategy), micros(r.CreatedAt), micros(r.UpdatedAt),
		r.StartedAt, r.EndedAt, r.Attempt, r.Failures, r.Passed, r.Owner, r.LeaseUntil, string(r.Cancel), r.Error, r.OnCompletion,
		r.OnDisconnect, r.Cron, r.Crashes, int(r.Turn),
	}
}

func scanRun(s *sqlite.Stmt) (*run.Run, error) {
	r := &run.Run{
		ID:           id.Run(s.ColumnText(0)),
		Thread:       id.Thread(s.ColumnText(1)),
		Assistant:    id.Assistant(s.ColumnText(2)),
		Graph:        s.ColumnText(3),
		Metadata:     columnBytes(s, 4),
		Status:       run.Status(s.ColumnText(5)),
		Strategy:     run.Strategy(s.ColumnText(6)),
		CreatedAt:    columnTime(s, 7),
		UpdatedAt:    columnTime(s, 8),
		StartedAt:    columnTime(s, 9),
		EndedAt:      columnTime(s, 10),
		Attempt:      s.ColumnInt(11),
		Failures:     s.ColumnInt(12),
		Passed:       s.ColumnBool(13),
		Owner:        s.ColumnText(14),
		LeaseUntil:   columnTime(s, 15),
		Cancel:       run.Action(s.ColumnText(16)),
		Error:        columnBytes(s, 17),
		OnCompletion: s.ColumnText(18),
		OnDisconnect: s.ColumnText(19),
		Cron:         id.Cron(s.ColumnText(20)),
		Crashes:      s.ColumnInt(21),
		Turn:         run.Turn(s.ColumnInt(22)),
	}
	r.Kwargs.Input, r.Kwargs.Command = columnBytes(s, colKwargs), columnBytes(s, colKwargs+1)
	r.Kwargs.Config, r.Kwargs.Context = columnBytes(s, colKwargs+2), columnBytes(s, colKwargs+3)
	if err := rows.DecodeKwargs(columnBytes(s, colKwargs+4), &r.Kwargs); err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	return r, nil
}

func loadRun(conn *sqlite.Conn, where string, args ...any) (r *run.Run, err error) {
	found, err := one(conn, selectRuns+where, func(s *sqlite.Stmt) error {
		r, err = scanRun(s)
		return err
	}, args...)
	if err == nil && !found {
		err = errNoRun
	}
	return r, err
}

func loadRuns(conn *sqlite.Conn, where string, args ...any) (out []*run.Run, err error) {
	return loadPage(conn, &run.Query{}, where, args...)
}

// loadPage is loadRuns within the bound of q.
func loadPage(conn *sqlite.Conn, q *run.Query, where string, args ...any) (out []*run.Run, err error) {
	loaded := 0
	err = query(conn, selectRuns+where, func(s *sqlite.Stmt) error {
		r, err := scanRun(s)
		if err != nil {
			return err
		}
		r, loaded = q.Fit(r, loaded)
		out = append(out, r)
		return nil
	}, args...)
	return out, err
}

const (
	// ofThreads leaves out the runs of threads that were removed and whose rows are being deleted.
	ofThreads      = "WHERE NOT EXISTS (SELECT 1 FROM thread_remains gone WHERE gone.thread_id = runs.thread_id) AND "
	byRunAlone     = ofThreads + "run_id = ?"
	byRun          = ofThreads + "run_id = ? AND thread_id = ?"
	threadsRuns    = ofThreads + "thread_id = ? ORDER BY created_at DESC, run_id DESC LIMIT ? OFFSET ?"
	threadsRunsIn  = ofThreads + "thread_id = ? AND status = ? ORDER BY created_at DESC, run_id DESC LIMIT ? OFFSET ?"
	pendingRuns    = ofThreads + "status = 'pending'"
	runningRuns    = ofThreads + "status = 'running'"
	activeOfThread = ofThreads + "run_id IN (SELECT run_id FROM runs WHERE thread_id = ?1 AND status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE thread_id = ?1 AND status = 'pending') ORDER BY created_at, run_id"
	activeThreads = "SELECT thread_id FROM (SELECT DISTINCT thread_id FROM runs " + ofThreads + "status = 'running' AND thread_id > ?1 ORDER BY thread_id LIMIT ?2) running " +
		"UNION SELECT thread_id FROM (SELECT DISTINCT thread_id FROM runs " + ofThreads + "status = 'pending' AND thread_id > ?1 ORDER BY thread_id LIMIT ?2) pending " +
		"ORDER BY thread_id LIMIT ?2"
	activeOfAll = ofThreads + "run_id IN (SELECT run_id FROM runs WHERE status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE status = 'pending') ORDER BY created_at, run_id"
	firstHead = "SELECT run_id, thread_id, created_at FROM run_heads WHERE created_at <= ? ORDER BY created_at, run_id LIMIT 1"
	// headBeside is firstHead, but passes over graphs. It goes from graph to graph in the index, and looks at the first head of each.
	headBeside = `WITH RECURSIVE graphs(name) AS (
			SELECT min(graph_id) FROM run_heads
			UNION ALL
			SELECT (SELECT min(graph_id) FROM run_heads WHERE graph_id > graphs.name) FROM graphs WHERE graphs.name IS NOT NULL
		)
		SELECT h.run_id, h.thread_id, h.created_at FROM graphs CROSS JOIN run_heads h ON h.thread_id = (
			SELECT thread_id FROM run_heads WHERE graph_id = graphs.name AND created_at <= ?1 ORDER BY created_at, run_id LIMIT 1
		) WHERE graphs.name NOT IN (SELECT value FROM json_each(?2)) ORDER BY h.created_at, h.run_id LIMIT 1`
	fence = "SELECT attempt, status, cancel FROM runs " + ofThreads + "run_id = ?"
)

// Run is run.Store.Run.
func (s *Store) Run(ctx context.Context, t id.Thread, r id.Run) (out *run.Run, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		if t == "" {
			out, err = loadRun(c, byRunAlone, r)
		} else {
			out, err = loadRun(c, byRun, r, t)
		}
		return err
	})
	return out, err
}

// listRuns is run.Store.Runs (the name is taken by the adapter).
func (s *Store) listRuns(ctx context.Context, t id.Thread, q run.Query) (out []*run.Run, err error) {
	limit := q.Limit
	if limit <= 0 {
		limit = -1
	}
	err = s.read(ctx, func(c *sqlite.Conn) error {
		if q.Status == "" {
			out, err = loadPage(c, &q, threadsRuns, t, limit, q.Offset)
		} else {
			out, err = loadPage(c, &q, threadsRunsIn, t, string(q.Status), limit, q.Offset)
		}
		return err
	})
	return out, err
}

// ActiveRuns is run.Store.ActiveRuns.
func (s *Store) ActiveRuns(ctx context.Context, t id.Thread) (out []*run.Run, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		out, err = activeRuns(c, t)
		return err
	})
	return out, err
}

// ActiveThreads is run.Store.ActiveThreads.
func (s *Store) ActiveThreads(ctx context.Context, above id.Thread, limit int) (out []id.Thread, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, activeThreads, func(s *sqlite.Stmt) error {
			out = append(out, id.Thread(s.ColumnText(0)))
			return nil
		}, above, limit)
	})
	return out, err
}

// ActiveRuns is run.Tx.ActiveRuns.
func (tx *Tx) ActiveRuns(t id.Thread) ([]*run.Run, error) { return activeRuns(tx.conn, t) }

func activeRuns(conn *sqlite.Conn, t id.Thread) ([]*run.Run, error) {
	if t == "" {
		return loadRuns(conn, activeOfAll)
	}
	return loadRuns(conn, activeOfThread, t)
}

// NextDue is run.Store.NextDue.
func (s *Store) NextDue(ctx context.Context, beside ...string) (due time.Time, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := head(c, math.MaxInt64, beside, func(st *sqlite.Stmt) { due = columnTime(st, 2) })
		return err
	})
	return due, err
}

// head finds the first head of the queue that is due by a time, beside the graphs that are named.
func head(c *sqlite.Conn, by int64, beside []string, fn func(*sqlite.Stmt)) (found bool, err error) {
	text, args := firstHead, []any{by}
	if len(beside) > 0 {
		names, err := json.Marshal(beside)
		if err != nil {
			return false, err
		}
		text, args = headBeside, append(args, string(names))
	}
	return one(c, text, func(s *sqlite.Stmt) error {
		fn(s)
		return nil
	}, args...)
}

// Run is run.Tx.Run.
func (tx *Tx) Run(t id.Thread, r id.Run) (*run.Run, error) { return loadRun(tx.conn, byRun, r, t) }

// InsertRun is run.Tx.InsertRun.
func (tx *Tx) InsertRun(r *run.Run) error {
	kwargs, digest, err := kwargsArgs(&r.Kwargs)
	if err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	if err := tx.exec("INSERT INTO runs ("+runColumns+", kwargs_digest) VALUES "+
		"(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", append(runArgs(r), digest)...); err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	if err := tx.exec("INSERT INTO run_kwargs (run_id, "+kwargsColumns+") VALUES (?, ?, ?, ?, ?, ?)",
		append([]any{r.ID}, kwargs...)...); err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	return tx.queue(r.Thread, r.Status)
}

// UpdateRun is run.Tx.UpdateRun. The arguments are written only if they changed.
func (tx *Tx) UpdateRun(r *run.Run) error {
	kwargs, digest, err := kwargsArgs(&r.Kwargs)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	var sameKwargs, sameStatus, samePlace bool
	found, err := tx.one("SELECT kwargs_digest, status, created_at, thread_id FROM runs "+byRunAlone, func(s *sqlite.Stmt) error {
		sameKwargs = bytes.Equal(columnBytes(s, 0), digest)
		sameStatus = s.ColumnText(1) == string(r.Status)
		samePlace = s.ColumnInt64(2) == micros(r.CreatedAt) && s.ColumnText(3) == string(r.Thread)
		return nil
	}, r.ID)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	if !found {
		return errNoRun
	}
	// A column that an index has is named only if it changed: SQLite writes all indexes of the columns that are named.
	text := `UPDATE runs SET assistant_id = ?, graph_id = ?, metadata = ?, strategy = ?, updated_at = ?, started_at = ?, ended_at = ?, attempt = ?,
		failures = ?, passed = ?, owner = ?, lease_until = ?, cancel = ?, error = ?, on_completion = ?, on_disconnect = ?, cron_id = ?, crashes = ?, turn = ?, kwargs_digest = ?`
	args := []any{
		r.Assistant, r.Graph, r.Metadata, string(r.Strategy), micros(r.UpdatedAt), r.StartedAt, r.EndedAt, r.Attempt, r.Failures, r.Passed,
		r.Owner, r.LeaseUntil, string(r.Cancel), r.Error, r.OnCompletion, r.OnDisconnect, r.Cron, r.Crashes, int(r.Turn), digest,
	}
	if !sameStatus {
		text, args = text+", status = ?", append(args, string(r.Status))
	}
	if !samePlace {
		text, args = text+", created_at = ?, thread_id = ?", append(args, micros(r.CreatedAt), r.Thread)
	}
	if err := tx.exec(text+" WHERE run_id = ?", append(args, r.ID)...); err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	if !sameKwargs {
		if err := tx.exec("UPDATE run_kwargs SET ("+kwargsColumns+") = (?, ?, ?, ?, ?) WHERE run_id = ?",
			append(kwargs, r.ID)...); err != nil {
			return fmt.Errorf("update run %s: %w", r.ID, err)
		}
	}
	if sameStatus && samePlace {
		return nil
	}
	return tx.queue(r.Thread, r.Status)
}

// DeleteRun is run.Tx.DeleteRun.
func (tx *Tx) DeleteRun(t id.Thread, r id.Run) error {
	if err := tx.exec("DELETE FROM runs "+byRun, r, t); err != nil {
		return fmt.Errorf("delete run %s: %w", r, err)
	}
	if tx.conn.Changes() == 0 {
		return errNoRun
	}
	if err := tx.exec("DELETE FROM run_kwargs WHERE run_id = ?", r); err != nil {
		return fmt.Errorf("delete run %s: %w", r, err)
	}
	if _, err := tx.deleteRecords(r); err != nil {
		return fmt.Errorf("delete records of run %s: %w", r, err)
	}
	return tx.queue(t, "")
}

// queue brings the head of a thread's queue up to date: its oldest pending run, unless one is running, as one is that was written now as
// running.
func (tx *Tx) queue(t id.Thread, written run.Status) (err error) {
	running := written == run.Running
	if !running {
		if running, err = tx.one("SELECT 1 FROM runs WHERE thread_id = ? AND status = 'running' LIMIT 1", nil, t); err != nil {
			return fmt.Errorf("queue of thread %s: %w", t, err)
		}
	}
	var head, graph string
	var due int64
	if !running {
		if _, err := tx.one(`SELECT run_id, created_at, graph_id FROM runs WHERE thread_id = ? AND status = 'pending'
			ORDER BY created_at, run_id LIMIT 1`, func(s *sqlite.Stmt) error {
			head, due, graph = s.ColumnText(0), s.ColumnInt64(1), s.ColumnText(2)
			return nil
		}, t); err != nil {
			return fmt.Errorf("queue of thread %s: %w", t, err)
		}
	}
	if head == "" {
		err = tx.exec("DELETE FROM run_heads WHERE thread_id = ?", t)
	} else {
		err = tx.exec(`INSERT INTO run_heads (thread_id, run_id, created_at, graph_id) VALUES (?, ?, ?, ?)
			ON CONFLICT (thread_id) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at, graph_id = excluded.graph_id
			WHERE run_id <> excluded.run_id OR created_at <> excluded.created_at`, t, head, due, graph)
	}
	if err != nil {
		return fmt.Errorf("queue of thread %s: %w", t, err)
	}
	return nil
}

// DueRun is run.Tx.DueRun.
func (tx *Tx) DueRun(now time.Time, beside ...string) (*run.Run, error) {
	var r, t string
	found, err := head(tx.conn, micros(now), beside, func(s *sqlite.Stmt) { r, t = s.ColumnText(0), s.ColumnText(1) })
	if err != nil {
		return nil, fmt.Errorf("due run: %w", err)
	}
	if !found {
		return nil, errNoRun
	}
	return loadRun(tx.conn, byRun, r, t)
}

// MarkPassed is run.Tx.MarkPassed.
func (tx *Tx) MarkPassed(r id.Run) error {
	if err := tx.exec("UPDATE runs SET passed = 1, failures = 0, crashes = 0, turn = 0 "+byRunAlone+" AND (passed = 0 OR failures > 0 OR crashes > 0)", r); err != nil {
		return fmt.Errorf("mark run %s: %w", r, err)
	}
	if tx.conn.Changes() > 0 {
		return nil
	}
	_, _, _, err := tx.Fence(r)
	return err
}

// Fence is run.Tx.Fence.
func (tx *Tx) Fence(r id.Run) (attempt int, status run.Status, cancel run.Action, err error) {
	found, err := tx.one(fence, func(s *sqlite.Stmt) error {
		attempt, status, cancel = s.ColumnInt(0), run.Status(s.ColumnText(1)), run.Action(s.ColumnText(2))
		return nil
	}, r)
	if err != nil {
		return 0, "", "", fmt.Errorf("fence of run %s: %w", r, err)
	}
	if !found {
		return 0, "", "", errNoRun
	}
	return attempt, status, cancel, nil
}

var _ run.Store = runs{}

package sqlite

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/run"
	"understudy/storage/internal/relational"
)

const storedRun = "SELECT kwargs_digest, status, created_at, thread_id FROM runs " + relational.OfThreads + "run_id = ?"

// updateRun takes the parameters of relational.RunColumns.
var updateRun = "UPDATE runs SET " + setters(relational.RunColumns, "run_id", "thread_id", "status", "created_at")

// setters returns assignments of columns, except some, to the parameters at their positions.
// SQLite rewrites every index of a named column even if the value is the same, so indexed columns
// are named only when they changed.
func setters(columns string, but ...string) string {
	var set []string
	for i, column := range strings.Split(columns, ", ") {
		if !slices.Contains(but, column) {
			set = append(set, fmt.Sprintf("%s = ?%d", column, i+1))
		}
	}
	return strings.Join(set, ", ")
}

// RunInserted implements relational.Writer.
func (tx *Tx) RunInserted(r *run.Run, _ []byte) error { return tx.queue(r.Thread, r.Status) }

// UpdateRun implements run.Tx. It writes the arguments, which can be large, only if their digest
// changed.
func (tx *Tx) UpdateRun(r *run.Run) error {
	args, kwargs, digest, err := relational.RunArgs(r)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	var sameKwargs, sameStatus, samePlace bool
	found, err := tx.one(storedRun, func(s *sqlite.Stmt) error {
		sameKwargs = bytes.Equal(columnBytes(s, 0), digest)
		sameStatus = s.ColumnText(1) == string(r.Status)
		samePlace = s.ColumnInt64(2) == r.CreatedAt.UnixMicro() && s.ColumnText(3) == string(r.Thread)
		return nil
	}, r.ID)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	if !found {
		return relational.ErrNoRun
	}
	text := updateRun
	if !sameStatus {
		text += ", status = ?6"
	}
	if !samePlace {
		text += ", created_at = ?8, thread_id = ?2"
	}
	if err := tx.exec(text+" WHERE run_id = ?1", args...); err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	if !sameKwargs {
		if err := tx.Exec(relational.UpdateKwargs, append([]any{r.ID}, kwargs...)...); err != nil {
			return fmt.Errorf("update run %s: %w", r.ID, err)
		}
	}
	if sameStatus && samePlace {
		return nil
	}
	tx.Touch(r.Thread, r.ID)
	return tx.queue(r.Thread, r.Status)
}

// DeleteRun implements run.Tx. relational.ErrNoRun if there is no such run on the thread.
func (tx *Tx) DeleteRun(t id.Thread, r id.Run) error {
	if err := tx.ListEnds(t, r); err != nil {
		return err
	}
	if err := tx.exec("DELETE FROM runs "+relational.OfThreads+"run_id = ? AND thread_id = ?", r, t); err != nil {
		return fmt.Errorf("delete run %s: %w", r, err)
	}
	if tx.conn.Changes() == 0 {
		return relational.ErrNoRun
	}
	if err := tx.exec("DELETE FROM run_kwargs WHERE run_id = ?", r); err != nil {
		return fmt.Errorf("delete run %s: %w", r, err)
	}
	if _, err := tx.deleteRecords(r); err != nil {
		return fmt.Errorf("delete records of run %s: %w", r, err)
	}
	tx.Touch(t, r)
	return tx.queue(t, "")
}

// queue updates the head of a thread's queue: its oldest pending run, or none while a run is
// running. Claims read run_heads only, so their cost does not grow with the number of waiting
// runs. written is the status that was just written; running saves a query.
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

// DueRun implements run.Tx. exclude are graphs to exclude.
func (tx *Tx) DueRun(now time.Time, exclude ...string) (*run.Run, error) {
	t, r, err := tx.Claim(now, exclude)
	if err != nil {
		return nil, err
	}
	return tx.Run(t, r)
}

// MarkPassed implements run.Tx.
func (tx *Tx) MarkPassed(r id.Run) error {
	n, err := tx.Affected(relational.MarkPassed, r)
	if err != nil {
		return fmt.Errorf("mark run %s: %w", r, err)
	}
	if n == 0 {
		_, _, _, err = tx.Fence(r)
	}
	return err
}

package postgres

import (
	"bytes"
	"fmt"
	"time"

	"understudy/id"
	"understudy/run"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

// settleHead brings the head of a thread's queue up to date: its oldest pending run, unless one is running.
const settleHead = `WITH head AS (
			SELECT run_id, created_at, graph_id FROM runs WHERE thread_id = $1 AND status = 'pending'
				AND NOT EXISTS (SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'running')
			ORDER BY created_at, run_id LIMIT 1
		), gone AS (
			DELETE FROM run_heads WHERE thread_id = $1 AND NOT EXISTS (SELECT 1 FROM head)
		)
		INSERT INTO run_heads (thread_id, run_id, created_at, graph_id) SELECT $1, run_id, created_at, graph_id FROM head
		ON CONFLICT (thread_id) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at, graph_id = excluded.graph_id
			WHERE (run_heads.run_id, run_heads.created_at) IS DISTINCT FROM (excluded.run_id, excluded.created_at)`

// ActiveRuns is run.Tx.ActiveRuns.
func (tx *Tx) ActiveRuns(t id.Thread) (list []*run.Run, err error) {
	if t == "" {
		tx.lockEverything()
		return tx.loadRuns(relational.ActiveOfAll)
	}
	tx.lock(t)
	return tx.loadRuns(relational.ActiveOfThread, t)
}

// loadRuns loads runs of threads that are locked, and remembers them.
func (tx *Tx) loadRuns(selection relational.Statement, args ...any) (list []*run.Run, err error) {
	err = tx.Query(selection, func(r relational.Row) error {
		found, err := relational.ScanRun(r)
		if err != nil {
			return err
		}
		tx.runs[found.ID] = &runRow{*found, r.Bytes(relational.ColDigest)}
		list = append(list, found)
		return nil
	}, args...)
	return list, err
}

// Run is run.Tx.Run.
func (tx *Tx) Run(t id.Thread, r id.Run) (*run.Run, error) {
	known, err := tx.run(t, r)
	if err != nil {
		return nil, err
	}
	if known == nil || known.run.Thread != t {
		return nil, relational.ErrNoRun
	}
	out := known.run
	return &out, nil
}

// run gives what is known of a run, and learns it; nil when it is not there.
func (tx *Tx) run(t id.Thread, r id.Run) (*runRow, error) {
	if known := tx.runs[r]; known != nil {
		return known, nil
	}
	tx.lock(t)
	_, err := tx.loadRuns(relational.RunOfThread, r, t)
	return tx.runs[r], err
}

// InsertRun is run.Tx.InsertRun.
func (tx *Tx) InsertRun(r *run.Run) error {
	_, digest, err := rows.EncodeKwargs(&r.Kwargs)
	if err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	if err := tx.Tx.InsertRun(r); err != nil {
		return err
	}
	tx.runs[r.ID] = &runRow{*r, digest}
	// One that begins at once, where there was none, is in nobody's way.
	if tx.heads[r.Thread] = tx.heads[r.Thread] || r.Status != run.Running || !tx.idle[r.Thread]; !tx.heads[r.Thread] {
		delete(tx.heads, r.Thread)
	}
	tx.idle[r.Thread], tx.ending = false, ""
	return nil
}

// UpdateRun is run.Tx.UpdateRun. The arguments are written only if they changed.
func (tx *Tx) UpdateRun(r *run.Run) error {
	args, kwargs, digest, err := relational.RunArgs(r)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	was, err := tx.run(r.Thread, r.ID)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	if was == nil {
		return relational.ErrNoRun
	}
	if err := tx.Exec(relational.UpdateRun, args...); err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	if !bytes.Equal(was.digest, digest) {
		if err := tx.Exec(relational.UpdateKwargs, append([]any{r.ID}, kwargs...)...); err != nil {
			return fmt.Errorf("update run %s: %w", r.ID, err)
		}
	}
	if tx.ending != r.ID {
		tx.ending = ""
	}
	tx.idle[r.Thread] = false
	if was.run.Status != r.Status || !was.run.CreatedAt.Equal(r.CreatedAt) {
		tx.heads[r.Thread] = true
	}
	tx.runs[r.ID] = &runRow{*r, digest}
	return nil
}

// DeleteRun is run.Tx.DeleteRun.
func (tx *Tx) DeleteRun(t id.Thread, r id.Run) error {
	was, err := tx.run(t, r)
	if err != nil {
		return fmt.Errorf("delete run %s: %w", r, err)
	}
	if was == nil || was.run.Thread != t {
		return relational.ErrNoRun
	}
	for _, text := range []string{
		"DELETE FROM runs WHERE run_id = $1", "DELETE FROM run_kwargs WHERE run_id = $1", "DELETE FROM run_completions WHERE run_id = $1",
		relational.DropCalls.Postgres,
		deleteRecords, "DELETE FROM stream_runs WHERE run_id = $1",
	} {
		if err := tx.exec(text, r); err != nil {
			return fmt.Errorf("delete run %s: %w", r, err)
		}
	}
	delete(tx.runs, r)
	tx.heads[t], tx.ending = true, ""
	return nil
}

// settleHeads puts the threads whose runs changed in their places in the queue.
func (tx *Tx) settleHeads() {
	for t := range tx.heads {
		tx.batch.Queue(settleHead, clean(string(t)))
	}
	clear(tx.heads)
}

// DueRun is run.Tx.DueRun. It passes over threads that other transactions hold: they are looked at again when those end.
func (tx *Tx) DueRun(now time.Time, beside ...string) (*run.Run, error) {
	tx.settleHeads()
	tx.passGate()
	t, r, err := tx.Claim(now, beside)
	if err != nil {
		return nil, err
	}
	tx.locked[t] = true
	return tx.Run(t, r)
}

// lockRun takes the lock of the thread of a run.
func (tx *Tx) lockRun(r id.Run) {
	if tx.runs[r] != nil || tx.all {
		return
	}
	tx.passGate()
	tx.batch.Queue(lockByRun, clean(string(r)))
}

// MarkPassed is run.Tx.MarkPassed.
func (tx *Tx) MarkPassed(r id.Run) error {
	if tx.passed == r {
		return nil
	}
	if known := tx.runs[r]; known != nil {
		known.run.Passed, known.run.Failures, known.run.Crashes, known.run.Turn = true, 0, 0, run.NoTurn
	} else if tx.fenced != r {
		if _, _, _, err := tx.Fence(r); err != nil {
			return err
		}
	}
	tx.passed = r
	if err := tx.Exec(relational.MarkPassed, r); err != nil {
		return fmt.Errorf("mark run %s: %w", r, err)
	}
	return nil
}

// Fence is run.Tx.Fence.
func (tx *Tx) Fence(r id.Run) (attempt int, status run.Status, cancel run.Action, err error) {
	if !tx.expects(relational.Fence.Postgres, r) { // then the thread is locked already
		tx.lockRun(r)
	}
	t, attempt, status, cancel, err := tx.FenceOf(r)
	if err == nil {
		tx.locked[t], tx.fenced = true, r
	}
	return attempt, status, cancel, err
}

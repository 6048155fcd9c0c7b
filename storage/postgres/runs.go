package postgres

import (
	"bytes"
	"fmt"
	"time"

	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/storage/internal/relational"
)

// settleHead updates the head of a thread's queue: its oldest pending run, or none while a run is
// running. Claims read run_heads only, so their cost does not grow with the number of waiting
// runs.
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

// ActiveRuns implements run.Tx.
func (tx *Tx) ActiveRuns(t id.Thread) (list []*run.Run, err error) {
	if t == "" {
		tx.lockEverything()
		return tx.loadRuns(relational.ActiveOfAll)
	}
	tx.lock(t)
	if ok, err := tx.Reaches(t); !ok {
		return nil, err
	}
	return tx.loadRuns(relational.ActiveOfThread, t)
}

// loadRuns loads runs of locked threads and caches them for this transaction.
func (tx *Tx) loadRuns(selection relational.Statement, args ...any) (list []*run.Run, err error) {
	err = tx.Query(selection, func(r relational.Row) error {
		found, err := scanRun(r)
		if err != nil {
			return err
		}
		tx.runs[found.run.ID] = found
		own := found.run
		list = append(list, &own)
		return nil
	}, args...)
	return list, err
}

func scanRun(r relational.Row) (*runRow, error) {
	found, err := relational.ScanRun(r)
	if err != nil {
		return nil, err
	}
	return &runRow{*found, r.Bytes(relational.ColDigest)}, nil
}

// Run implements run.Tx. It returns a copy.
func (tx *Tx) Run(t id.Thread, r id.Run) (*run.Run, error) {
	if err := tx.MustReach(t); err != nil {
		return nil, err
	}
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

// run returns the cached row of a run, loading it if needed; nil if there is none. The thread's
// lock makes the cache valid until the end of the transaction.
func (tx *Tx) run(t id.Thread, r id.Run) (*runRow, error) {
	if known := tx.runs[r]; known != nil {
		return known, nil
	}
	tx.lock(t)
	found, asked, err := take(tx, tx.ahead.runs, r)
	if !asked {
		_, err = tx.loadRuns(relational.RunOfThread, r, t)
	} else if found != nil {
		tx.runs[r] = found
	}
	return tx.runs[r], err
}

// RunInserted implements relational.Writer.
func (tx *Tx) RunInserted(r *run.Run, digest []byte) error {
	tx.runs[r.ID] = &runRow{*r, digest}
	delete(tx.ahead.active, r.Thread)
	delete(tx.ahead.fences, r.ID)
	// A run that starts at once on an idle thread changes no queue, which saves the statement.
	if r.Status != run.Running || !tx.idle[r.Thread] {
		tx.heads[r.Thread] = true
	}
	tx.idle[r.Thread], tx.ending = false, ""
	return nil
}

// UpdateRun implements run.Tx. It writes the arguments, which can be large, only if their digest
// changed.
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
		tx.Touch(r.Thread, r.ID)
	}
	tx.runs[r.ID] = &runRow{*r, digest}
	delete(tx.ahead.active, r.Thread)
	delete(tx.ahead.fences, r.ID)
	return nil
}

// DeleteRun implements run.Tx. relational.ErrNoRun if there is no such run on the thread.
func (tx *Tx) DeleteRun(t id.Thread, r id.Run) error {
	was, err := tx.run(t, r)
	if err != nil {
		return fmt.Errorf("delete run %s: %w", r, err)
	}
	if was == nil || was.run.Thread != t {
		return relational.ErrNoRun
	}
	if err := tx.ListEnds(t, r); err != nil {
		return err
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
	delete(tx.ahead.active, t)
	delete(tx.ahead.fences, r)
	delete(tx.ahead.messages, r)
	delete(tx.ahead.calls, r)
	tx.heads[t], tx.ending = true, ""
	tx.Touch(t, r)
	return nil
}

// settleHeads updates the queues of the threads whose runs changed, once before the commit.
func (tx *Tx) settleHeads() {
	for t := range tx.heads {
		tx.batch.Queue(settleHead, clean(string(t)))
	}
	clear(tx.heads)
}

// DueRun implements run.Tx. It skips threads that other transactions have locked; they are checked
// again when these end. exclude are graphs to exclude.
func (tx *Tx) DueRun(now time.Time, exclude ...string) (*run.Run, error) {
	tx.settleHeads()
	tx.passGate()
	t, r, err := tx.Claim(now, exclude)
	if err != nil {
		return nil, err
	}
	tx.locked[t] = true
	return tx.Run(t, r)
}

// lockRun locks the thread of a run whose thread is not known yet.
func (tx *Tx) lockRun(r id.Run) {
	if tx.runs[r] != nil || tx.all {
		return
	}
	tx.passGate()
	tx.batch.Queue(lockByRun, clean(string(r)))
}

// RunMessages implements run.Tx.
func (tx *Tx) RunMessages(t id.Thread, r id.Run, fn func(*eventstore.Event) error) error {
	messages, asked, err := take(tx, tx.ahead.messages, r)
	if !asked {
		return tx.Tx.RunMessages(t, r, fn)
	}
	for i := range messages {
		if err == nil {
			err = fn(&messages[i])
		}
	}
	if err != nil {
		return fmt.Errorf("messages of run %s: %w", r, err)
	}
	return nil
}

// PutModelCalls implements run.Tx.
func (tx *Tx) PutModelCalls(r id.Run, calls []graph.ModelCall) error {
	delete(tx.ahead.calls, r)
	return tx.Tx.PutModelCalls(r, calls)
}

// TakeModelCalls implements run.Tx.
func (tx *Tx) TakeModelCalls(r id.Run) ([]graph.ModelCall, error) {
	calls, asked, err := take(tx, tx.ahead.calls, r)
	if !asked {
		return tx.Tx.TakeModelCalls(r)
	}
	if err == nil && len(calls) > 0 {
		err = tx.Exec(relational.DropCalls, r)
	}
	if err != nil {
		return nil, fmt.Errorf("model calls of run %s: %w", r, err)
	}
	return calls, nil
}

// MarkPassed implements run.Tx.
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

// Fence implements run.Tx.
func (tx *Tx) Fence(r id.Run) (attempt int, status run.Status, cancel run.Action, err error) {
	f, asked, err := take(tx, tx.ahead.fences, r)
	if !asked {
		tx.lockRun(r)
		f, err = tx.FenceOf(r)
	}
	switch {
	case err != nil:
		return 0, "", "", err
	case f == nil:
		return 0, "", "", relational.ErrNoRun
	}
	tx.locked[f.Thread], tx.fenced = true, r
	return f.Attempt, f.Status, f.Cancel, nil
}

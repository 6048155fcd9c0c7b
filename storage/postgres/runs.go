package postgres

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

var errNoRun = fault.New(fault.NotFound, "run not found")

const (
	runColumns = "run_id, thread_id, assistant_id, graph_id, metadata, status, strategy, created_at, updated_at, started_at, ended_at, " +
		"attempt, failures, passed, owner, lease_until, cancel, error, on_completion, on_disconnect, cron_id, kwargs_digest, crashes, turn"
	kwargsColumns = "input, command, config, context, options"
	selectRuns    = "SELECT " + runColumns + ", " + kwargsColumns + " FROM runs JOIN run_kwargs USING (run_id) "

	colDigest = 21
	colKwargs = 24 // where kwargsColumns begin
)

var (
	insertRun    = insertInto("runs", runColumns)
	insertKwargs = insertInto("run_kwargs", "run_id, "+kwargsColumns)
)

const (
	updateRun = "UPDATE runs SET (" + runColumns + ") = ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24) WHERE run_id = $1"

	updateKwargs = "UPDATE run_kwargs SET (run_id, " + kwargsColumns + ") = ($1, $2, $3, $4, $5, $6) WHERE run_id = $1"
)

func runArgs(r *run.Run, digest []byte) []any {
	return []any{
		r.ID, r.Thread, r.Assistant, r.Graph, r.Metadata, r.Status, r.Strategy, micros(r.CreatedAt), micros(r.UpdatedAt),
		r.StartedAt, r.EndedAt, r.Attempt, r.Failures, r.Passed, r.Owner, r.LeaseUntil, r.Cancel, r.Error, r.OnCompletion,
		r.OnDisconnect, r.Cron, digest, r.Crashes, int(r.Turn),
	}
}

func scanRun(r *row) (*run.Run, error) {
	out := &run.Run{
		ID:           id.Run(r.Text(0)),
		Thread:       id.Thread(r.Text(1)),
		Assistant:    id.Assistant(r.Text(2)),
		Graph:        r.Text(3),
		Metadata:     r.Bytes(4),
		Status:       run.Status(r.Text(5)),
		Strategy:     run.Strategy(r.Text(6)),
		CreatedAt:    r.Time(7),
		UpdatedAt:    r.Time(8),
		StartedAt:    r.Time(9),
		EndedAt:      r.Time(10),
		Attempt:      int(r.Int(11)),
		Failures:     int(r.Int(12)),
		Passed:       r.Bool(13),
		Owner:        r.Text(14),
		LeaseUntil:   r.Time(15),
		Cancel:       run.Action(r.Text(16)),
		Error:        r.Bytes(17),
		OnCompletion: r.Text(18),
		OnDisconnect: r.Text(19),
		Cron:         id.Cron(r.Text(20)),
		Crashes:      int(r.Int(22)),
		Turn:         run.Turn(r.Int(23)),
	}
	out.Kwargs.Input, out.Kwargs.Command, out.Kwargs.Config, out.Kwargs.Context = r.Bytes(colKwargs), r.Bytes(colKwargs+1), r.Bytes(colKwargs+2), r.Bytes(colKwargs+3)
	if err := rows.DecodeKwargs(r.Bytes(colKwargs+4), &out.Kwargs); err != nil {
		return nil, fmt.Errorf("run %s: %w", out.ID, err)
	}
	return out, nil
}

func loadRuns(q querier, where string, args ...any) (out []*run.Run, err error) {
	return loadPage(q, &run.Query{}, where, args...)
}

// loadPage is loadRuns within the bound of page.
func loadPage(q querier, page *run.Query, where string, args ...any) (out []*run.Run, err error) {
	loaded := 0
	err = q.query(selectRuns+where, func(r *row) error {
		found, err := scanRun(r)
		if err != nil {
			return err
		}
		found, loaded = page.Fit(found, loaded)
		out = append(out, found)
		return nil
	}, args...)
	return out, err
}

const (
	// ofThreads leaves out the runs of threads that were removed and whose rows are being deleted.
	ofThreads      = "WHERE NOT EXISTS (SELECT 1 FROM thread_remains gone WHERE gone.thread_id = runs.thread_id) AND "
	byRunAlone     = ofThreads + "run_id = $1"
	byRun          = ofThreads + "run_id = $1 AND thread_id = $2"
	threadsRuns    = ofThreads + "thread_id = $1 ORDER BY created_at DESC, run_id DESC LIMIT $2 OFFSET $3"
	threadsRunsIn  = ofThreads + "thread_id = $1 AND status = $2 ORDER BY created_at DESC, run_id DESC LIMIT $3 OFFSET $4"
	activeOfThread = ofThreads + "run_id IN (SELECT run_id FROM runs WHERE thread_id = $1 AND status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE thread_id = $1 AND status = 'pending') ORDER BY created_at, run_id"
	activeThreads = "SELECT thread_id FROM (SELECT DISTINCT thread_id FROM runs " + ofThreads + "status = 'running' AND thread_id > $1 ORDER BY thread_id LIMIT $2) running " +
		"UNION SELECT thread_id FROM (SELECT DISTINCT thread_id FROM runs " + ofThreads + "status = 'pending' AND thread_id > $1 ORDER BY thread_id LIMIT $2) pending " +
		"ORDER BY thread_id LIMIT $2"
	activeOfAll = ofThreads + "run_id IN (SELECT run_id FROM runs WHERE status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE status = 'pending') ORDER BY created_at, run_id"
	nextDue = "SELECT created_at FROM run_heads ORDER BY created_at, run_id LIMIT 1"
	// nextBeside goes from graph to graph in the index, and looks at the first head of each.
	nextBeside = `WITH RECURSIVE graphs AS (
			(SELECT graph_id FROM run_heads ORDER BY graph_id LIMIT 1)
			UNION ALL
			SELECT (SELECT h.graph_id FROM run_heads h WHERE h.graph_id > g.graph_id ORDER BY h.graph_id LIMIT 1) FROM graphs g WHERE g.graph_id IS NOT NULL
		)
		SELECT min(first.created_at) FROM graphs g
		CROSS JOIN LATERAL (SELECT h.created_at FROM run_heads h WHERE h.graph_id = g.graph_id ORDER BY h.created_at, h.run_id LIMIT 1) first
		WHERE g.graph_id <> ALL ($1::text[])`
	claimHead = "SELECT thread, run FROM claim_head($1)"
	// claimBeside is claimHead, but passes over graphs.
	claimBeside = "SELECT thread, run FROM claim_head($1, $2)"
	fence       = "SELECT attempt, status, cancel, thread_id FROM runs " + ofThreads + "run_id = $1"
	// settleHead brings the head of a thread's queue up to date: its oldest pending run, unless one is running.
	settleHead = `WITH head AS (
			SELECT run_id, created_at, graph_id FROM runs WHERE thread_id = $1 AND status = 'pending'
				AND NOT EXISTS (SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'running')
			ORDER BY created_at, run_id LIMIT 1
		), gone AS (
			DELETE FROM run_heads WHERE thread_id = $1 AND NOT EXISTS (SELECT 1 FROM head)
		)
		INSERT INTO run_heads (thread_id, run_id, created_at, graph_id) SELECT $1, run_id, created_at, graph_id FROM head
		ON CONFLICT (thread_id) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at, graph_id = excluded.graph_id
			WHERE (run_heads.run_id, run_heads.created_at) IS DISTINCT FROM (excluded.run_id, excluded.created_at)`
)

// limitOf is a LIMIT: NULL is none.
func limitOf(n int) any {
	if n <= 0 {
		return nil
	}
	return n
}

// Run is run.Store.Run.
func (s *Store) Run(ctx context.Context, t id.Thread, r id.Run) (out *run.Run, err error) {
	err = s.read(ctx, func(q *reader) error {
		where, args := byRun, []any{r, t}
		if t == "" {
			where, args = byRunAlone, args[:1]
		}
		list, err := loadRuns(q, where, args...)
		if err == nil && len(list) == 0 {
			return errNoRun
		}
		if err == nil {
			out = list[0]
		}
		return err
	})
	return out, err
}

// listRuns is run.Store.Runs (the name is taken by the adapter).
func (s *Store) listRuns(ctx context.Context, t id.Thread, q run.Query) (out []*run.Run, err error) {
	err = s.read(ctx, func(c *reader) error {
		if q.Status == "" {
			out, err = loadPage(c, &q, threadsRuns, t, limitOf(q.Limit), q.Offset)
		} else {
			out, err = loadPage(c, &q, threadsRunsIn, t, q.Status, limitOf(q.Limit), q.Offset)
		}
		return err
	})
	return out, err
}

// ActiveRuns is run.Store.ActiveRuns.
func (s *Store) ActiveRuns(ctx context.Context, t id.Thread) (out []*run.Run, err error) {
	err = s.read(ctx, func(q *reader) error {
		if t == "" {
			out, err = loadRuns(q, activeOfAll)
		} else {
			out, err = loadRuns(q, activeOfThread, t)
		}
		return err
	})
	return out, err
}

// ActiveThreads is run.Store.ActiveThreads.
func (s *Store) ActiveThreads(ctx context.Context, above id.Thread, limit int) (out []id.Thread, err error) {
	err = s.read(ctx, func(q *reader) error {
		return q.query(activeThreads, func(r *row) error {
			out = append(out, id.Thread(r.Text(0)))
			return nil
		}, above, limit)
	})
	return out, err
}

// ActiveRuns is run.Tx.ActiveRuns.
func (tx *Tx) ActiveRuns(t id.Thread) (list []*run.Run, err error) {
	where, args := activeOfThread, []any{t}
	if t == "" {
		tx.lockEverything()
		where, args = activeOfAll, nil
	} else {
		tx.lock(t)
	}
	return tx.loadRuns(where, args...)
}

// loadRuns loads runs of threads that are locked, and remembers them.
func (tx *Tx) loadRuns(where string, args ...any) (list []*run.Run, err error) {
	err = tx.query(selectRuns+where, func(r *row) error {
		found, err := scanRun(r)
		if err != nil {
			return err
		}
		tx.runs[found.ID] = &runRow{*found, r.Bytes(colDigest)}
		list = append(list, found)
		return nil
	}, args...)
	return list, err
}

// NextDue is run.Store.NextDue.
func (s *Store) NextDue(ctx context.Context, beside ...string) (due time.Time, err error) {
	text, args := nextDue, []any{}
	if len(beside) > 0 {
		text, args = nextBeside, []any{beside}
	}
	err = s.read(ctx, func(q *reader) error {
		_, err := one(q, text, func(r *row) error {
			due = r.Time(0)
			return nil
		}, args...)
		return err
	})
	return due, err
}

// Run is run.Tx.Run.
func (tx *Tx) Run(t id.Thread, r id.Run) (*run.Run, error) {
	known, err := tx.run(t, r)
	if err != nil {
		return nil, err
	}
	if known == nil || known.run.Thread != t {
		return nil, errNoRun
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
	_, err := tx.loadRuns(byRun, r, t)
	return tx.runs[r], err
}

// InsertRun is run.Tx.InsertRun.
func (tx *Tx) InsertRun(r *run.Run) error {
	small, digest, err := rows.EncodeKwargs(&r.Kwargs)
	if err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	tx.lock(r.Thread)
	k := &r.Kwargs
	if err := tx.exec(insertRun, runArgs(r, digest)...); err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	if err := tx.exec(insertKwargs, r.ID, k.Input, k.Command, k.Config, k.Context, small); err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
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
	small, digest, err := rows.EncodeKwargs(&r.Kwargs)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	was, err := tx.run(r.Thread, r.ID)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	if was == nil {
		return errNoRun
	}
	if err := tx.exec(updateRun, runArgs(r, digest)...); err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	if k := &r.Kwargs; !bytes.Equal(was.digest, digest) {
		if err := tx.exec(updateKwargs, r.ID, k.Input, k.Command, k.Config, k.Context, small); err != nil {
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
		return errNoRun
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
	text, args := claimHead, []any{micros(now)}
	if len(beside) > 0 {
		text, args = claimBeside, append(args, beside)
	}
	var t id.Thread
	var r id.Run
	found, err := one(tx, text, func(row *row) error {
		t, r = id.Thread(row.Text(0)), id.Run(row.Text(1))
		return nil
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("due run: %w", err)
	}
	if !found {
		return nil, errNoRun
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
	if err := tx.exec("UPDATE runs SET passed = true, failures = 0, crashes = 0, turn = 0 "+byRunAlone+" AND (NOT passed OR failures > 0 OR crashes > 0)", r); err != nil {
		return fmt.Errorf("mark run %s: %w", r, err)
	}
	return nil
}

// Fence is run.Tx.Fence.
func (tx *Tx) Fence(r id.Run) (attempt int, status run.Status, cancel run.Action, err error) {
	if !tx.expects(fence, r) { // then the thread is locked already
		tx.lockRun(r)
	}
	found, err := one(tx, fence, func(row *row) error {
		attempt, status, cancel = int(row.Int(0)), run.Status(row.Text(1)), run.Action(row.Text(2))
		tx.locked[id.Thread(row.Text(3))] = true
		return nil
	}, r)
	if err != nil {
		return 0, "", "", fmt.Errorf("fence of run %s: %w", r, err)
	}
	if !found {
		return 0, "", "", errNoRun
	}
	tx.fenced = r
	return attempt, status, cancel, nil
}

var _ run.Store = runs{}

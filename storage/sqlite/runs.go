package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

var errNoRun = fault.New(fault.NotFound, "run not found")

const (
	runColumns = "run_id, thread_id, assistant_id, graph_id, metadata, status, strategy, created_at, updated_at, started_at, ended_at, " +
		"attempt, failures, passed, owner, lease_until, cancel, error, on_completion, on_disconnect, cron_id"
	kwargsColumns = "input, command, config, context, options"
	selectRuns    = "SELECT " + runColumns + ", " + kwargsColumns + " FROM runs JOIN run_kwargs USING (run_id) "

	colKwargs = 21 // where kwargsColumns begin
)

// options are the small arguments of a run, as they are kept.
type options struct {
	StreamMode      []string        `json:"stream_mode,omitempty"`
	InterruptBefore json.RawMessage `json:"interrupt_before,omitempty"`
	InterruptAfter  json.RawMessage `json:"interrupt_after,omitempty"`
	Webhook         string          `json:"webhook,omitempty"`
	FeedbackKeys    json.RawMessage `json:"feedback_keys,omitempty"`
	Temporary       bool            `json:"temporary,omitempty"`
	Subgraphs       bool            `json:"subgraphs,omitempty"`
	Resumable       bool            `json:"resumable,omitempty"`
	Durability      string          `json:"durability,omitempty"`
	CheckpointNS    string          `json:"checkpoint_ns,omitempty"`
	CheckpointID    id.Checkpoint   `json:"checkpoint_id,omitempty"`
	CheckpointMap   json.RawMessage `json:"checkpoint_map,omitempty"`
	ContextKeys     []string        `json:"context_keys,omitempty"`
}

// kwargsArgs are the columns of the arguments, and a digest that tells whether they changed.
func kwargsArgs(k *run.Kwargs) (args []any, digest []byte, err error) {
	small, err := json.Marshal(options{
		k.StreamMode, k.InterruptBefore, k.InterruptAfter, k.Webhook, k.FeedbackKeys, k.Temporary, k.Subgraphs, k.Resumable,
		k.Durability, k.CheckpointNS, k.CheckpointID, k.CheckpointMap, k.ContextKeys,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("arguments: %w", err)
	}
	h := sha256.New()
	for _, part := range [][]byte{k.Input, k.Command, k.Config, k.Context, small} {
		length := int64(len(part))
		if part == nil {
			length = -1
		}
		_ = binary.Write(h, binary.BigEndian, length) // a hash does not fail
		_, _ = h.Write(part)
	}
	return []any{k.Input, k.Command, k.Config, k.Context, small}, h.Sum(nil)[:16], nil
}

func runArgs(r *run.Run) []any {
	return []any{
		r.ID, r.Thread, r.Assistant, r.Graph, r.Metadata, string(r.Status), string(r.Strategy), micros(r.CreatedAt), micros(r.UpdatedAt),
		r.StartedAt, r.EndedAt, r.Attempt, r.Failures, r.Passed, r.Owner, r.LeaseUntil, string(r.Cancel), r.Error, r.OnCompletion,
		r.OnDisconnect, r.Cron,
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
	}
	var o options
	if err := json.Unmarshal(columnBytes(s, colKwargs+4), &o); err != nil {
		return nil, fmt.Errorf("arguments of run %s: %w", r.ID, err)
	}
	r.Kwargs = run.Kwargs{
		Input:           columnBytes(s, colKwargs),
		Command:         columnBytes(s, colKwargs+1),
		Config:          columnBytes(s, colKwargs+2),
		Context:         columnBytes(s, colKwargs+3),
		StreamMode:      o.StreamMode,
		InterruptBefore: o.InterruptBefore,
		InterruptAfter:  o.InterruptAfter,
		Webhook:         o.Webhook,
		FeedbackKeys:    o.FeedbackKeys,
		Temporary:       o.Temporary,
		Subgraphs:       o.Subgraphs,
		Resumable:       o.Resumable,
		Durability:      o.Durability,
		CheckpointNS:    o.CheckpointNS,
		CheckpointID:    o.CheckpointID,
		CheckpointMap:   o.CheckpointMap,
		ContextKeys:     o.ContextKeys,
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
	err = query(conn, selectRuns+where, func(s *sqlite.Stmt) error {
		r, err := scanRun(s)
		out = append(out, r)
		return err
	}, args...)
	return out, err
}

const (
	byRunAlone     = "WHERE run_id = ?"
	byRun          = "WHERE run_id = ? AND thread_id = ?"
	threadsRuns    = "WHERE thread_id = ? ORDER BY created_at DESC, run_id DESC LIMIT ? OFFSET ?"
	threadsRunsIn  = "WHERE thread_id = ? AND status = ? ORDER BY created_at DESC, run_id DESC LIMIT ? OFFSET ?"
	pendingRuns    = "WHERE status = 'pending'"
	runningRuns    = "WHERE status = 'running'"
	activeOfThread = "WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = ?1 AND status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE thread_id = ?1 AND status = 'pending') ORDER BY created_at, run_id"
	activeOfAll = "WHERE run_id IN (SELECT run_id FROM runs WHERE status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE status = 'pending') ORDER BY created_at, run_id"
	firstHead = "SELECT run_id, thread_id FROM run_heads WHERE created_at <= ? ORDER BY created_at, run_id LIMIT 1"
	fence     = "SELECT attempt, status, cancel FROM runs WHERE run_id = ?"
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
			out, err = loadRuns(c, threadsRuns, t, limit, q.Offset)
		} else {
			out, err = loadRuns(c, threadsRunsIn, t, string(q.Status), limit, q.Offset)
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

// ActiveRuns is run.Tx.ActiveRuns.
func (tx *Tx) ActiveRuns(t id.Thread) ([]*run.Run, error) { return activeRuns(tx.conn, t) }

func activeRuns(conn *sqlite.Conn, t id.Thread) ([]*run.Run, error) {
	if t == "" {
		return loadRuns(conn, activeOfAll)
	}
	return loadRuns(conn, activeOfThread, t)
}

// NextDue is run.Store.NextDue.
func (s *Store) NextDue(ctx context.Context) (due time.Time, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, "SELECT created_at FROM run_heads ORDER BY created_at, run_id LIMIT 1", func(st *sqlite.Stmt) error {
			due = columnTime(st, 0)
			return nil
		})
		return err
	})
	return due, err
}

// CountRuns is run.Store.CountRuns.
func (s *Store) CountRuns(ctx context.Context) (pending, running int, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, "SELECT (SELECT count(*) FROM runs "+pendingRuns+"), (SELECT count(*) FROM runs "+runningRuns+")",
			func(st *sqlite.Stmt) error {
				pending, running = st.ColumnInt(0), st.ColumnInt(1)
				return nil
			})
		return err
	})
	return pending, running, err
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
		"(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", append(runArgs(r), digest)...); err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	if err := tx.exec("INSERT INTO run_kwargs (run_id, "+kwargsColumns+") VALUES (?, ?, ?, ?, ?, ?)",
		append([]any{r.ID}, kwargs...)...); err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	return tx.queue(r.Thread)
}

// UpdateRun is run.Tx.UpdateRun. The arguments are written only if they changed.
func (tx *Tx) UpdateRun(r *run.Run) error {
	kwargs, digest, err := kwargsArgs(&r.Kwargs)
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.ID, err)
	}
	var sameKwargs, sameStatus, samePlace bool
	found, err := tx.one("SELECT kwargs_digest, status, created_at, thread_id FROM runs WHERE run_id = ?", func(s *sqlite.Stmt) error {
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
		failures = ?, passed = ?, owner = ?, lease_until = ?, cancel = ?, error = ?, on_completion = ?, on_disconnect = ?, cron_id = ?, kwargs_digest = ?`
	args := []any{
		r.Assistant, r.Graph, r.Metadata, string(r.Strategy), micros(r.UpdatedAt), r.StartedAt, r.EndedAt, r.Attempt, r.Failures, r.Passed,
		r.Owner, r.LeaseUntil, string(r.Cancel), r.Error, r.OnCompletion, r.OnDisconnect, r.Cron, digest,
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
	return tx.queue(r.Thread)
}

// DeleteRun is run.Tx.DeleteRun.
func (tx *Tx) DeleteRun(t id.Thread, r id.Run) error {
	if err := tx.exec("DELETE FROM runs WHERE run_id = ? AND thread_id = ?", r, t); err != nil {
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
	return tx.queue(t)
}

// queue brings the head of a thread's queue up to date: its oldest pending run, unless one is running.
func (tx *Tx) queue(t id.Thread) error {
	running, err := tx.one("SELECT 1 FROM runs WHERE thread_id = ? AND status = 'running' LIMIT 1", nil, t)
	if err != nil {
		return fmt.Errorf("queue of thread %s: %w", t, err)
	}
	var head string
	var due int64
	if !running {
		if _, err := tx.one(`SELECT run_id, created_at FROM runs WHERE thread_id = ? AND status = 'pending'
			ORDER BY created_at, run_id LIMIT 1`, func(s *sqlite.Stmt) error {
			head, due = s.ColumnText(0), s.ColumnInt64(1)
			return nil
		}, t); err != nil {
			return fmt.Errorf("queue of thread %s: %w", t, err)
		}
	}
	if head == "" {
		err = tx.exec("DELETE FROM run_heads WHERE thread_id = ?", t)
	} else {
		err = tx.exec(`INSERT INTO run_heads (thread_id, run_id, created_at) VALUES (?, ?, ?)
			ON CONFLICT (thread_id) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at
			WHERE run_id <> excluded.run_id OR created_at <> excluded.created_at`, t, head, due)
	}
	if err != nil {
		return fmt.Errorf("queue of thread %s: %w", t, err)
	}
	return nil
}

// DueRun is run.Tx.DueRun.
func (tx *Tx) DueRun(now time.Time) (*run.Run, error) {
	var r, t string
	found, err := tx.one(firstHead, func(s *sqlite.Stmt) error {
		r, t = s.ColumnText(0), s.ColumnText(1)
		return nil
	}, micros(now))
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
	if err := tx.exec("UPDATE runs SET passed = 1 WHERE run_id = ? AND passed = 0", r); err != nil {
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

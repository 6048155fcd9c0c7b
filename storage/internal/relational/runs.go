package relational

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"understudy/access"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/internal/rows"
)

// ErrNoRun: there is no such run.
var ErrNoRun = fault.New(fault.NotFound, "run not found")

const (
	RunColumns = "run_id, thread_id, assistant_id, graph_id, metadata, status, strategy, created_at, updated_at, started_at, ended_at, " +
		"attempt, failures, passed, owner, lease_until, cancel, error, on_completion, on_disconnect, cron_id, crashes, turn, kwargs_digest"
	// KwargsColumns are the arguments of a run. They are written once and can be large, so they
	// have a table of their own.
	KwargsColumns = "input, command, config, context, options"

	// ColDigest is the column of SelectRuns with the digest of the arguments.
	ColDigest = 23
	colKwargs = ColDigest + 1
)

// RunArgs returns the values of RunColumns and KwargsColumns, and the digest that shows whether
// the arguments changed.
func RunArgs(r *run.Run) (of, kwargs []any, digest []byte, err error) {
	small, digest, err := rows.EncodeKwargs(&r.Kwargs)
	of = []any{
		r.ID, r.Thread, r.Assistant, r.Graph, r.Metadata, string(r.Status), string(r.Strategy), micros(r.CreatedAt), micros(r.UpdatedAt),
		r.StartedAt, r.EndedAt, r.Attempt, r.Failures, r.Passed, r.Owner, r.LeaseUntil, string(r.Cancel), r.Error, r.OnCompletion,
		r.OnDisconnect, r.Cron, r.Crashes, int(r.Turn), digest,
	}
	return of, []any{r.Kwargs.Input, r.Kwargs.Command, r.Kwargs.Config, r.Kwargs.Context, small}, digest, err
}

// ScanRun reads a row of SelectRuns.
func ScanRun(r Row) (*run.Run, error) {
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
		Crashes:      int(r.Int(21)),
		Turn:         run.Turn(r.Int(22)),
	}
	out.Kwargs.Input, out.Kwargs.Command = r.Bytes(colKwargs), r.Bytes(colKwargs+1)
	out.Kwargs.Config, out.Kwargs.Context = r.Bytes(colKwargs+2), r.Bytes(colKwargs+3)
	if options := r.Bytes(colKwargs + 4); options != nil { // see NewestRuns
		if err := rows.DecodeKwargs(options, &out.Kwargs); err != nil {
			return nil, fmt.Errorf("run %s: %w", out.ID, err)
		}
	}
	return out, nil
}

const (
	selectNewest = "SELECT " + RunColumns + ", NULL, NULL, NULL, NULL, NULL "

	selectRuns = "SELECT " + RunColumns + ", " + KwargsColumns + " FROM runs JOIN run_kwargs USING (run_id) "

	// OfThreads excludes runs of removed threads, whose rows are still being deleted.
	OfThreads = "WHERE NOT EXISTS (SELECT 1 FROM thread_remains gone WHERE gone.thread_id = runs.thread_id) AND "

	ofThread = OfThreads + "run_id IN (SELECT run_id FROM runs WHERE thread_id = $1 AND status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE thread_id = $1 AND status = 'pending') ORDER BY created_at, run_id"
	ofAllThreads = OfThreads + "run_id IN (SELECT run_id FROM runs WHERE status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE status = 'pending') ORDER BY created_at, run_id"
)

// activeOf is where runs with a status are selected by run.Active: $1 is its status, $2 its graph, $3 its last run or afterRuns.
// IS TRUE keeps SQLite from reading the key of all runs up to $3 in place of the index of the few that are active.
func activeOf(status run.Status) string {
	return OfThreads + "status = '" + string(status) + "' AND cancel = '' AND ($1 = '' OR $1 = '" + string(status) + "') AND ($2 = '' OR graph_id = $2) AND (run_id <= $3) IS TRUE"
}

func countOfActive(status run.Status) string {
	return "SELECT count(*), max(run_id) FROM (SELECT run_id FROM runs " + activeOf(status) + " LIMIT $4) " + string(status)
}

func metadataOfActive(status run.Status) string {
	return "SELECT run_id, status, metadata FROM (SELECT run_id, status, (SELECT t.metadata FROM threads t WHERE t.thread_id = runs.thread_id) AS metadata FROM runs " +
		activeOf(status) + " LIMIT $4) " + string(status)
}

// SelectRuns returns a statement with the columns of ScanRun.
func SelectRuns(where string) Statement { return same(selectRuns + where) }

var (
	RunAlone       = SelectRuns(OfThreads + "run_id = $1")
	RunOfThread    = SelectRuns(OfThreads + "run_id = $1 AND thread_id = $2")
	RunsOfThread   = SelectRuns(OfThreads + "thread_id = $1 ORDER BY created_at DESC, run_id DESC LIMIT $2 OFFSET $3")
	RunsWithStatus = SelectRuns(OfThreads + "thread_id = $1 AND status = $2 ORDER BY created_at DESC, run_id DESC LIMIT $3 OFFSET $4")
	// NewestRuns has NULL in place of arguments. Of each thread at most $2 rows are read.
	NewestRuns = differing(selectNewest+`FROM unnest($1::text[]) t(thread) CROSS JOIN LATERAL (
			SELECT * FROM runs `+OfThreads+`thread_id = t.thread ORDER BY created_at DESC, run_id DESC LIMIT $2
		) r ORDER BY created_at DESC, run_id DESC LIMIT $2`,
		selectNewest+`FROM json_each($1) t CROSS JOIN runs ON run_id IN (
			SELECT run_id FROM runs `+OfThreads+`thread_id = t.value ORDER BY created_at DESC, run_id DESC LIMIT $2
		) ORDER BY created_at DESC, run_id DESC LIMIT $2`)
	// DueOfThread compares a run with its own times first: the clock of the server that created it may be ahead of the reader's. Only a delayed run that was never claimed
	// is due later than its row was written.
	DueOfThread = same("SELECT run_id FROM runs WHERE thread_id = $1 AND status = 'running' " +
		"UNION ALL SELECT run_id FROM runs WHERE thread_id = $1 AND status = 'pending' AND (attempt > 0 OR created_at <= updated_at OR created_at <= $2)")
	ActiveOfThread = SelectRuns(ofThread)
	ActiveOfAll    = SelectRuns(ofAllThreads)
	ActiveThreads  = same("SELECT thread_id FROM (SELECT DISTINCT thread_id FROM runs " + activeOf("running") + " AND thread_id > $4 ORDER BY thread_id LIMIT $5) running " +
		"UNION SELECT thread_id FROM (SELECT DISTINCT thread_id FROM runs " + activeOf("pending") + " AND thread_id > $4 ORDER BY thread_id LIMIT $5) pending " +
		"ORDER BY thread_id LIMIT $5")
	// CountActive has a row for each status.
	CountActive = same(countOfActive("running") + " UNION ALL " + countOfActive("pending"))
	// ActiveMetadata returns what CountActive counts, with the metadata of the threads.
	ActiveMetadata = same(metadataOfActive("running") + " UNION ALL " + metadataOfActive("pending"))
	Fence          = same("SELECT attempt, status, cancel, thread_id FROM runs " + OfThreads + "run_id = $1")
	insertRun      = same(insertInto("runs", RunColumns))
	insertKwargs   = same(insertInto("run_kwargs", "run_id, "+KwargsColumns))
	UpdateRun      = same("UPDATE runs SET (" + RunColumns + ") = (" + marks(1, RunColumns) + ") WHERE run_id = $1")
	UpdateKwargs   = same("UPDATE run_kwargs SET (" + KwargsColumns + ") = (" + marks(2, KwargsColumns) + ") WHERE run_id = $1")
	// MarkPassed writes nothing for a run that is already marked.
	MarkPassed = differing("UPDATE runs SET passed = true, failures = 0, crashes = 0, turn = 0 "+OfThreads+"run_id = $1 AND (NOT passed OR failures > 0 OR crashes > 0)",
		"UPDATE runs SET passed = 1, failures = 0, crashes = 0, turn = 0 "+OfThreads+"run_id = $1 AND (passed = 0 OR failures > 0 OR crashes > 0)")
)

// The heads of the queues of threads: the oldest pending run of each, unless one is running. Those
// that pass over graphs go from graph to graph in the index, and look at the first head of each.
const (
	graphsPostgres = `WITH RECURSIVE graphs AS (
			(SELECT graph_id FROM run_heads ORDER BY graph_id LIMIT 1)
			UNION ALL
			SELECT (SELECT h.graph_id FROM run_heads h WHERE h.graph_id > g.graph_id ORDER BY h.graph_id LIMIT 1) FROM graphs g WHERE g.graph_id IS NOT NULL
		) `
	graphsSQLite = `WITH RECURSIVE graphs(name) AS (
			SELECT min(graph_id) FROM run_heads
			UNION ALL
			SELECT (SELECT min(graph_id) FROM run_heads WHERE graph_id > graphs.name) FROM graphs WHERE graphs.name IS NOT NULL
		) `
)

var (
	NextDue    = same("SELECT created_at FROM run_heads ORDER BY created_at, run_id LIMIT 1")
	NextBeside = differing(graphsPostgres+`SELECT min(first.created_at) FROM graphs g
		CROSS JOIN LATERAL (SELECT h.created_at FROM run_heads h WHERE h.graph_id = g.graph_id ORDER BY h.created_at, h.run_id LIMIT 1) first
		WHERE g.graph_id <> ALL ($1::text[])`,
		graphsSQLite+`SELECT min(h.created_at) FROM graphs CROSS JOIN run_heads h ON h.thread_id = (
			SELECT thread_id FROM run_heads WHERE graph_id = graphs.name ORDER BY created_at, run_id LIMIT 1
		) WHERE graphs.name NOT IN (SELECT value FROM json_each($1))`)
	// ClaimHead skips threads that other transactions have locked, on Postgres, and locks the one
	// that it returns.
	ClaimHead = differing("SELECT thread, run FROM claim_head($1)",
		"SELECT thread_id, run_id FROM run_heads WHERE created_at <= $1 ORDER BY created_at, run_id LIMIT 1")
	ClaimBeside = differing("SELECT thread, run FROM claim_head($1, $2)",
		graphsSQLite+`SELECT h.thread_id, h.run_id FROM graphs CROSS JOIN run_heads h ON h.thread_id = (
			SELECT thread_id FROM run_heads WHERE graph_id = graphs.name AND created_at <= $1 ORDER BY created_at, run_id LIMIT 1
		) WHERE graphs.name NOT IN (SELECT value FROM json_each($2)) ORDER BY h.created_at, h.run_id LIMIT 1`)
	// QueueStands reads at most as many rows as it may count, from indexes only.
	QueueStands = differing(`SELECT r.n, p.n, p.first, d.n, d.first, p.middle
		FROM (SELECT count(*) AS n FROM (SELECT FROM runs `+OfThreads+`status = 'running' LIMIT $2) all_running) r,
			(SELECT count(*) AS n, min(created_at) AS first, percentile_disc(0.5) WITHIN GROUP (ORDER BY created_at) AS middle
				FROM (SELECT created_at FROM runs `+OfThreads+`status = 'pending' LIMIT $2) all_pending) p,
			(SELECT count(*) AS n, min(created_at) AS first FROM (SELECT created_at FROM run_heads WHERE created_at <= $1 ORDER BY created_at LIMIT $2) all_due) d`,
		`SELECT (SELECT count(*) FROM (SELECT 1 FROM runs `+OfThreads+`status = 'running' LIMIT $2)), p.n, p.first, d.n, d.first,
			(SELECT created_at FROM (SELECT created_at FROM runs `+OfThreads+`status = 'pending' LIMIT $2) ORDER BY created_at
				LIMIT 1 OFFSET (SELECT (count(*) - 1) / 2 FROM (SELECT 1 FROM runs `+OfThreads+`status = 'pending' LIMIT $2)))
		FROM (SELECT count(*) AS n, min(created_at) AS first FROM (SELECT created_at FROM runs `+OfThreads+`status = 'pending' LIMIT $2)) p,
			(SELECT count(*) AS n, min(created_at) AS first FROM (SELECT created_at FROM run_heads WHERE created_at <= $1 LIMIT $2)) d`)
)

// loadRuns reads runs within the bounds of a page.
func loadRuns(q Querier, page *run.Query, s Statement, args ...any) (list []*run.Run, err error) {
	loaded := 0
	err = q.Query(s, func(r Row) error {
		found, err := ScanRun(r)
		if err != nil {
			return err
		}
		found, loaded = page.Fit(found, loaded)
		list = append(list, found)
		return nil
	}, args...)
	return list, err
}

// loadRun reads one run; ErrNoRun if there is none.
func loadRun(q Querier, s Statement, args ...any) (*run.Run, error) {
	list, err := loadRuns(q, &run.Query{}, s, args...)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, ErrNoRun
	}
	return list[0], nil
}

// Run implements run.Store.
func (s runStore) Run(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error) {
	if t != "" {
		return fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) (*run.Run, error) { return loadRun(q, RunOfThread, r, t) })
	}
	reach, read := access.Reach(ctx, access.Threads), s.db.Read
	if reach != nil {
		read = s.db.Snapshot
	}
	return from(ctx, read, func(q Querier) (*run.Run, error) {
		found, err := loadRun(q, RunAlone, r)
		if err != nil || reach == nil {
			return found, err
		}
		if t, err := reached(q, reach, found.Thread); err != nil || t == hidden {
			return nil, cmp.Or(err, error(ErrNoRun))
		}
		return found, nil
	})
}

// ListRuns implements the list of run.Store.
func (s runStore) ListRuns(ctx context.Context, t id.Thread, of run.Query) ([]*run.Run, error) {
	return fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) ([]*run.Run, error) {
		if of.Status == "" {
			return loadRuns(q, &of, RunsOfThread, t, limitOf(of.Limit), of.Offset)
		}
		return loadRuns(q, &of, RunsWithStatus, t, string(of.Status), limitOf(of.Limit), of.Offset)
	})
}

// NewestRuns implements run.Store.
func (s runStore) NewestRuns(ctx context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error {
	list := make([]string, len(threads))
	for i, t := range threads {
		list[i] = string(t)
	}
	return s.db.Read(ctx, func(q Querier) error {
		return q.Query(NewestRuns, func(r Row) error {
			found, err := ScanRun(r)
			if err != nil {
				return err
			}
			return fn(found)
		}, list, limit)
	})
}

// SelectedRuns returns the runs that a statement selects.
func (s runStore) SelectedRuns(ctx context.Context, selection Statement, args ...any) ([]*run.Run, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]*run.Run, error) { return loadRuns(q, &run.Query{}, selection, args...) })
}

// ActiveRuns implements run.Store.
func (s runStore) ActiveRuns(ctx context.Context, t id.Thread) ([]*run.Run, error) {
	if t == "" {
		return s.SelectedRuns(ctx, ActiveOfAll)
	}
	return fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) ([]*run.Run, error) {
		return loadRuns(q, &run.Query{}, ActiveOfThread, t)
	})
}

// DueRuns implements thread.Store.
func (s runStore) DueRuns(ctx context.Context, t id.Thread, now time.Time) ([]id.Run, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]id.Run, error) { return all(q, DueOfThread, text[id.Run], t, micros(now)) })
}

// ActiveThreads implements run.Store.
func (s runStore) ActiveThreads(ctx context.Context, of run.Active, above id.Thread, limit int) ([]id.Thread, error) {
	reach := access.Reach(ctx, access.Threads)
	status, until := string(of.Status), cmp.Or(of.Until, afterRuns)
	if reach == nil {
		return s.threadIDs(ctx, ActiveThreads, status, of.Graph, until, above, limit)
	}
	return from(ctx, s.db.Snapshot, func(q Querier) (list []id.Thread, err error) {
		for { // those in reach may be far apart
			active, err := all(q, ActiveThreads, text[id.Thread], status, of.Graph, until, above, limit)
			if err != nil {
				return nil, err
			}
			for _, t := range active {
				above = t
				if t, err := reached(q, reach, t); err != nil {
					return nil, err
				} else if t != hidden {
					list = append(list, t)
				}
			}
			if len(active) < limit || len(list) > 0 {
				return list, nil
			}
		}
	})
}

// CountActive implements run.Store.
func (s runStore) CountActive(ctx context.Context, of run.Active) (run.ActiveCount, error) {
	reach := access.Reach(ctx, access.Threads)
	args := []any{string(of.Status), of.Graph, cmp.Or(of.Until, afterRuns), run.MaxActive}
	return from(ctx, s.db.Read, func(q Querier) (n run.ActiveCount, err error) {
		looked := map[string]int{}
		text, count := CountActive, func(r Row) error {
			n.Runs, n.More, n.Last = n.Runs+int(r.Int(0)), n.More || r.Int(0) == run.MaxActive, max(n.Last, id.Run(r.Text(1)))
			return nil
		}
		if reach != nil {
			text, count = ActiveMetadata, func(r Row) error {
				status := r.Text(1)
				looked[status]++
				n.More = n.More || looked[status] == run.MaxActive
				if reach.Match(r.Bytes(2)) {
					n.Runs, n.Last = n.Runs+1, max(n.Last, id.Run(r.Text(0)))
				}
				return nil
			}
		}
		if err = q.Query(text, count, args...); n.More {
			n.Last = ""
		}
		return n, err
	})
}

// NextDue implements run.Store.
func (s runStore) NextDue(ctx context.Context, exclude ...string) (time.Time, error) {
	text, args := NextDue, []any(nil)
	if len(exclude) > 0 {
		text, args = NextBeside, []any{exclude}
	}
	return from(ctx, s.db.Read, func(q Querier) (time.Time, error) {
		due, _, err := first(q, text, moment, args...)
		return due, err
	})
}

// Queue implements run.Store.
func (s runStore) Queue(ctx context.Context, now time.Time, bound int) (run.Queue, error) {
	return from(ctx, s.db.Read, func(q Querier) (run.Queue, error) {
		stands, _, err := first(q, QueueStands, func(r Row) run.Queue {
			return run.Queue{
				Running: int(r.Int(0)), Pending: int(r.Int(1)), First: r.Time(2), Due: int(r.Int(3)), FirstDue: r.Time(4), Middle: r.Time(5),
			}
		}, micros(now), bound)
		return stands, err
	})
}

// ActiveRuns implements run.Tx.
func (tx *Tx) ActiveRuns(t id.Thread) ([]*run.Run, error) {
	if t == "" {
		return loadRuns(tx, &run.Query{}, ActiveOfAll)
	}
	if ok, err := tx.Reaches(t); !ok {
		return nil, err
	}
	return loadRuns(tx, &run.Query{}, ActiveOfThread, t)
}

// Run implements run.Tx.
func (tx *Tx) Run(t id.Thread, r id.Run) (*run.Run, error) {
	if err := tx.MustReach(t); err != nil {
		return nil, err
	}
	return loadRun(tx, RunOfThread, r, t)
}

// InsertRun implements run.Tx.
func (tx *Tx) InsertRun(r *run.Run) error {
	of, kwargs, digest, err := RunArgs(r)
	if err == nil {
		tx.Lock(r.Thread)
		err = tx.Exec(insertRun, of...)
	}
	if err == nil {
		err = tx.Exec(insertKwargs, append([]any{r.ID}, kwargs...)...)
	}
	if err != nil {
		return fmt.Errorf("insert run %s: %w", r.ID, err)
	}
	tx.Touch(r.Thread, r.ID)
	return tx.RunInserted(r, digest)
}

// Claim returns the oldest head of the queue that is due, excluding graphs; ErrNoRun if there is
// none.
func (tx *Tx) Claim(now time.Time, exclude []string) (t id.Thread, r id.Run, err error) {
	text, args := ClaimHead, []any{micros(now)}
	if len(exclude) > 0 {
		text, args = ClaimBeside, append(args, exclude)
	}
	found, err := one(tx, text, func(row Row) error {
		t, r = id.Thread(row.Text(0)), id.Run(row.Text(1))
		return nil
	}, args...)
	if err != nil {
		return "", "", fmt.Errorf("due run: %w", err)
	}
	if !found {
		return "", "", ErrNoRun
	}
	return t, r, nil
}

// Fence implements run.Tx.
func (tx *Tx) Fence(r id.Run) (attempt int, status run.Status, cancel run.Action, err error) {
	f, err := tx.FenceOf(r)
	if err != nil {
		return 0, "", "", err
	}
	return f.Attempt, f.Status, f.Cancel, nil
}

// Fenced is what decides whether an execution may write: its run as it is now.
type Fenced struct {
	Thread  id.Thread
	Attempt int
	Status  run.Status
	Cancel  run.Action
}

// ScanFence reads a row of Fence.
func ScanFence(r Row) Fenced {
	return Fenced{Attempt: int(r.Int(0)), Status: run.Status(r.Text(1)), Cancel: run.Action(r.Text(2)), Thread: id.Thread(r.Text(3))}
}

// FenceOf is Fence with the thread of the run; ErrNoRun if there is no such run.
func (tx *Tx) FenceOf(r id.Run) (*Fenced, error) {
	f, found, err := first(tx, Fence, ScanFence, r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("fence of run %s: %w", r, err)
	case !found:
		return nil, ErrNoRun
	}
	return &f, nil
}

package relational

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/usage"
)

const sumColumns = "kind, name, runs, errors, calls, input, output, total"

// One rule decides that each run counts once: it is counted by the transaction that inserts its row of usage_runs, and this row stays as long as another transaction
// could count it. Only countRuns inserts it and adds it to usage_sums: from the row of the run, which it locks so that it is not deleted meanwhile, or from the list
// usage_ended, where who deletes a run that is not counted yet has put what it used (ListEnds). When neither is left, Settle moves the row of usage_runs to
// usage_days. So deletions never wait at sums of a day, nor do others for them.
//
// Postgres may have rows of usage_ended without a run, of servers before usage_runs: they are added to usage_days.
var (
	// usageEnds are the ends of runs in the log of a thread, behind a seq, which are not in usage_runs: of runs of the thread itself, for the log of a fork begins
	// with that of its source, and of those with completion data, which imported runs do not have.
	usageEnds = "SELECT e.seq, r.ended_at / 86400000000, e.run_id FROM events e JOIN runs r ON r.run_id = e.run_id AND r.thread_id = e.thread_id " +
		"WHERE e.thread_id = $1 AND e.type IN ('run.end', 'run.error') AND e.seq > $2 AND EXISTS (SELECT 1 FROM run_completions c WHERE c.run_id = e.run_id) " +
		"AND NOT EXISTS (SELECT 1 FROM usage_runs u WHERE u.day = r.ended_at / 86400000000 AND u.run_id = e.run_id)"
	UsageEnds = same(usageEnds + " AND r.ended_at >= $3 ORDER BY e.seq LIMIT $4")
	// endsOfThread and endsOfRun are behind the offset of the follower, and not listed either.
	endsOfThread = same(strings.Replace(usageEnds, "$2", usageOffset, 1) + unlisted)
	endsOfRun    = same(strings.Replace(usageEnds, "$2", usageOffset, 1) + unlisted + " AND e.run_id = $2")
	// keepRuns and takeRuns lock runs against deletions, and against countRuns: in one order, which is that of a transaction that deletes several threads.
	keepRuns = differing("SELECT run_id FROM runs WHERE run_id = ANY($1) ORDER BY thread_id, run_id FOR KEY SHARE", "")
	takeRuns = differing("SELECT run_id FROM runs WHERE run_id = ANY($1) ORDER BY thread_id, run_id FOR UPDATE", "")
	listRun  = same(insertInto("usage_ended", "run_id, identity, day, sums"))
	// takeList has an array in Postgres, which is made once: a subquery of IN may be read again for each row, and then its limit is none.
	takeList = differing("DELETE FROM usage_ended WHERE id = ANY(ARRAY(SELECT id FROM usage_ended ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING identity, day, sums, run_id",
		"DELETE FROM usage_ended WHERE id IN (SELECT id FROM usage_ended ORDER BY id LIMIT $1) RETURNING identity, day, sums, run_id")
	hasListed   = same("SELECT 1 FROM usage_ended LIMIT 1")
	keepUsage   = same(insertInto("usage_runs", "day, run_id, identity, sums") + " ON CONFLICT DO NOTHING")
	putKept     = same(upsert("usage_runs", "day, run_id", "identity, sums"))
	dropKept    = same("DELETE FROM usage_runs WHERE day = $1 AND run_id = $2")
	addFinal    = same(addUsage("usage_days"))
	addSums     = same(addUsage("usage_sums"))
	dropNothing = same("DELETE FROM usage_sums WHERE identity = $1 AND day = $2 AND kind = $3 AND name = $4 AND runs = 0 AND errors = 0 AND calls = 0 AND input = 0 AND output = 0 AND total = 0")
	// UsageOfDays reads the rows of one identity.
	UsageOfDays = same(usageOfDays("usage_days") + " UNION ALL " + usageOfDays("usage_sums"))
	dropUsage   = []Statement{
		same("DELETE FROM usage_days WHERE day < $1"), same("DELETE FROM usage_sums WHERE day < $1"), same("DELETE FROM usage_runs WHERE day < $1"),
		same("DELETE FROM usage_ended WHERE day < $1"),
	}

	KeptUsage    = same("SELECT identity, day, sums, run_id FROM usage_runs WHERE (day, run_id) > ($1, $2) ORDER BY day, run_id LIMIT $3")
	DeletedUsage = same("SELECT identity, day, sums, run_id FROM usage_runs WHERE (day, run_id) > ($1, $2) AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = usage_runs.run_id) " +
		"AND NOT EXISTS (SELECT 1 FROM usage_ended e WHERE e.run_id = usage_runs.run_id) " +
		"ORDER BY day, run_id LIMIT $3")
	keptOfDay = same("SELECT identity, day, sums, run_id FROM usage_runs WHERE day = $1")
	sumsOfDay = same("SELECT " + sumColumns + ", identity FROM usage_sums WHERE day = $1")
	usageDays = same("SELECT day FROM usage_sums UNION SELECT day FROM usage_runs ORDER BY day")
	// endedRuns has NULL in place of arguments except for the configuration, which says whose a run is.
	endedRuns = differing("SELECT "+RunColumns+", NULL, NULL, config, NULL, NULL FROM runs JOIN run_kwargs USING (run_id) WHERE run_id = ANY($1)",
		"SELECT "+RunColumns+", NULL, NULL, config, NULL, NULL FROM runs JOIN run_kwargs USING (run_id) WHERE run_id IN (SELECT value FROM json_each($1))")
)

const usageOffset = "COALESCE((SELECT o.seq FROM log_offsets o JOIN threads t ON t.thread_id = o.thread_id AND t.created_at = o.created_at " +
	"WHERE o.follower = '" + usage.Follower + "' AND o.thread_id = $1), 0)"

const unlisted = " AND NOT EXISTS (SELECT 1 FROM usage_ended l WHERE l.run_id = e.run_id)"

func addUsage(table string) string {
	text := insertInto(table, "identity, day, "+sumColumns) + " ON CONFLICT (identity, day, kind, name) DO UPDATE SET "
	for i, column := range strings.Split(sumColumns, ", ")[2:] {
		if i > 0 {
			text += ", "
		}
		text += column + " = " + table + "." + column + " + excluded." + column
	}
	return text
}

func usageOfDays(table string) string {
	return "SELECT " + sumColumns + ", day FROM " + table + " WHERE identity = $1 AND day BETWEEN $2 AND $3"
}

func scanSum(r Row) usage.Sum {
	return usage.Sum{Kind: r.Text(0), Name: r.Text(1), Runs: r.Int(2), Errors: r.Int(3), Calls: r.Int(4), Input: r.Int(5), Output: r.Int(6), Total: r.Int(7)}
}

func scanEnded(r Row) (usage.Ended, error) {
	e := usage.Ended{Run: id.Run(r.Text(3)), Identity: r.Text(0), Day: r.Int(1)}
	err := json.Unmarshal(r.Bytes(2), &e.Sums)
	return e, err
}

// EndsOf implements usage.Store.
func (s usageStore) EndsOf(ctx context.Context, t id.Thread, after eventstore.Seq, since time.Time, limit int) (ends usage.Ends, err error) {
	err = s.db.Snapshot(ctx, func(q Querier) (err error) {
		if ends.Last, _, err = first(q, LastSeq, number[eventstore.Seq], t); err != nil {
			return err
		}
		if _, ends.Listed, err = first(q, hasListed, number[int], nil...); err != nil {
			return err
		}
		ends.Runs, err = all(q, UsageEnds, func(r Row) usage.End {
			return usage.End{Seq: eventstore.Seq(r.Int(0)), Day: r.Int(1), Run: id.Run(r.Text(2))}
		}, t, after, since, limit)
		if ends.More = len(ends.Runs) == limit; ends.More {
			ends.Last = ends.Runs[limit-1].Seq
		}
		return err
	})
	if err != nil {
		return usage.Ends{}, fmt.Errorf("ends of runs of thread %s: %w", t, err)
	}
	return ends, nil
}

// CountRuns implements usage.Store.
func (s usageStore) CountRuns(ctx context.Context, runs []id.Run, offsets []eventstore.Offset) (counted usage.Counted, err error) {
	err = s.db.Write(ctx, func(tx *Tx) (err error) {
		if counted, err = tx.countRuns(runs); err != nil {
			return err
		}
		return tx.putOffsets(usage.Follower, offsets)
	})
	return counted, err
}

// maxListed is how many runs of the list one transaction counts.
const maxListed = 200

// countRuns counts runs, and some of those that are listed.
func (tx *Tx) countRuns(runs []id.Run) (out usage.Counted, err error) {
	if len(runs) > 0 {
		if _, err := tx.Affected(keepRuns, runs); err != nil {
			return out, fmt.Errorf("lock runs: %w", err)
		}
	}
	known, unread, err := readableUsageOf(tx, runs)
	if err != nil {
		return out, err
	}
	taken, sums, final := 0, usage.Adder{}, usage.Adder{}
	if err := tx.Query(takeList, func(r Row) error {
		taken++
		e, err := scanEnded(r)
		switch {
		case err != nil: // it must not keep others from being counted
			if unread == nil {
				unread = map[id.Run]error{}
			}
			unread[e.Run] = fmt.Errorf("what it used: %w", err)
		case e.Run == "":
			final.Add(e, 1)
		case known[e.Run] == nil:
			known[e.Run] = &e
		}
		return nil
	}, maxListed); err != nil {
		return out, fmt.Errorf("listed runs: %w", err)
	}
	out.Unread, out.More = unread, taken == maxListed
	// In one order, as in addAll.
	for _, e := range slices.SortedFunc(maps.Values(known), func(a, b *usage.Ended) int { return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Run, b.Run)) }) {
		body, err := json.Marshal(e.Sums)
		if err != nil {
			return out, err
		}
		added, err := tx.Affected(keepUsage, e.Day, e.Run, e.Identity, body)
		if err != nil {
			return out, fmt.Errorf("usage of run %s: %w", e.Run, err)
		}
		if added == 1 {
			sums.Add(*e, 1)
			out.Runs++
		}
	}
	if err := addAll(tx, addFinal, final.Sums()); err != nil {
		return out, err
	}
	return out, addAll(tx, addSums, sums.Sums())
}

// ListEnds lists what the runs of a thread used that are not counted yet, before they are deleted: one of them, or with "" all.
func (tx *Tx) ListEnds(t id.Thread, r id.Run) error {
	statement, args := endsOfThread, []any{t}
	if r != "" {
		statement, args = endsOfRun, []any{t, r}
	}
	ends := func() ([]id.Run, error) {
		return all(tx, statement, func(r Row) id.Run { return id.Run(r.Text(2)) }, args...)
	}
	runs, err := ends()
	if err == nil && len(runs) > 0 {
		err = tx.listRuns(runs, ends)
	}
	if err != nil {
		return fmt.Errorf("usage of thread %s: %w", t, err)
	}
	return nil
}

// listRuns locks runs, and lists those of them that are not counted.
func (tx *Tx) listRuns(runs []id.Run, ends func() ([]id.Run, error)) error {
	if _, err := tx.Affected(takeRuns, runs); err != nil {
		return fmt.Errorf("lock runs: %w", err)
	}
	runs, err := ends()
	if err != nil {
		return err
	}
	known, _, err := readableUsageOf(tx, runs) // what cannot be read can be deleted
	if err != nil {
		return err
	}
	for _, e := range known {
		body, err := json.Marshal(e.Sums)
		if err == nil {
			err = tx.Exec(listRun, e.Run, e.Identity, e.Day, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readableUsageOf is usageOf without the runs whose rows cannot be decoded: one of them must not keep others from being counted, or its thread from being deleted.
func readableUsageOf(q Querier, runs []id.Run) (known map[id.Run]*usage.Ended, unread map[id.Run]error, err error) {
	if known, err = usageOf(q, runs); err == nil || !isUnreadable(err) {
		return known, nil, err
	}
	known, unread = map[id.Run]*usage.Ended{}, map[id.Run]error{}
	for _, r := range runs {
		one, err := usageOf(q, []id.Run{r})
		switch {
		case err == nil:
			maps.Copy(known, one)
		case isUnreadable(err):
			unread[r] = err
		default:
			return nil, nil, err
		}
	}
	return known, unread, nil
}

// isUnreadable reports whether an error is that of a row, not of the database.
func isUnreadable(err error) bool {
	return fault.KindOf(err) == fault.Internal && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// usageOf returns what runs used that are over, from their rows and completion data. Those without are left out: their thread is being deleted.
func usageOf(q Querier, ids []id.Run) (map[id.Run]*usage.Ended, error) {
	runs, err := loadRuns(q, &run.Query{}, endedRuns, ids)
	if err != nil {
		return nil, err
	}
	completions, err := loadCompletions(q, ids)
	if err != nil {
		return nil, err
	}
	out := map[id.Run]*usage.Ended{}
	for _, r := range runs {
		if c := completions[r.ID]; c != nil {
			of := usage.IdentityOf(r)
			if of != "" {
				of = identityKey(of)
			}
			out[r.ID] = &usage.Ended{Run: r.ID, Identity: of, Day: usage.DayOf(r.EndedAt), Sums: usage.Of(r, c)}
		}
	}
	return out, nil
}

func ended(q Querier, s Statement, args ...any) (list []usage.Ended, err error) {
	err = q.Query(s, func(r Row) error {
		e, err := scanEnded(r)
		list = append(list, e)
		return err
	}, args...)
	return list, err
}

// ChangeUsage implements usage.Store.
func (s usageStore) ChangeUsage(ctx context.Context, c usage.Change) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, e := range c.Drop {
			if n, err := tx.Affected(dropKept, e.Day, e.Run); err != nil || n != 1 {
				return cmp.Or(err, error(usage.ErrChanged))
			}
		}
		for _, e := range c.Put {
			sums, err := json.Marshal(e.Sums)
			if err == nil {
				err = tx.Exec(putKept, e.Day, e.Run, e.Identity, sums)
			}
			if err != nil {
				return err
			}
		}
		if err := addAll(tx, addFinal, c.Final); err != nil {
			return err
		}
		return addAll(tx, addSums, c.Sums)
	})
}

// addAll adds sums, and deletes those which are nothing afterwards.
func addAll(tx *Tx, add Statement, sums map[usage.Place][]usage.Sum) error {
	// In one order, so that servers which fold other runs at the same time do not wait for each other.
	for _, at := range slices.SortedFunc(maps.Keys(sums), func(a, b usage.Place) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Day, b.Day))
	}) {
		list := slices.SortedFunc(slices.Values(sums[at]), func(a, b usage.Sum) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
		for _, u := range list {
			if err := tx.Exec(add, at.Identity, at.Day, u.Kind, u.Name, u.Runs, u.Errors, u.Calls, u.Input, u.Output, u.Total); err != nil {
				return err
			}
			if min(u.Runs, u.Errors, u.Calls, u.Input, u.Output, u.Total) < 0 {
				if err := tx.Exec(dropNothing, at.Identity, at.Day, u.Kind, u.Name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// UsageOf implements usage.Store.
func (s usageStore) UsageOf(ctx context.Context, identity string, since, until int64) (days map[int64][]usage.Sum, err error) {
	if identity != "" {
		identity = identityKey(identity)
	}
	err = s.db.Read(ctx, func(q Querier) error {
		days = map[int64][]usage.Sum{}
		return q.Query(UsageOfDays, func(r Row) error {
			day := r.Int(8)
			days[day] = append(days[day], scanSum(r))
			return nil
		}, identity, since, until)
	})
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	return days, nil
}

// DropUsage implements usage.Store.
func (s usageStore) DropUsage(ctx context.Context, before int64) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, drop := range dropUsage {
			if _, err := tx.Affected(drop, before); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeletedRuns implements usage.Store.
func (s usageStore) DeletedRuns(ctx context.Context, behind usage.Ended, limit int) ([]usage.Ended, error) {
	list, err := from(ctx, s.db.Read, func(q Querier) ([]usage.Ended, error) {
		return ended(q, DeletedUsage, behind.Day, behind.Run, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("usage of deleted runs: %w", err)
	}
	return list, nil
}

// KeptRuns implements usage.RebuildStore.
func (s usageStore) KeptRuns(ctx context.Context, behind usage.Ended, limit int) ([]usage.Kept, error) {
	list, err := from(ctx, s.db.Snapshot, func(q Querier) ([]usage.Kept, error) {
		kept, err := ended(q, KeptUsage, behind.Day, behind.Run, limit)
		if err != nil || len(kept) == 0 {
			return nil, err
		}
		ids := make([]id.Run, len(kept))
		for i, e := range kept {
			ids[i] = e.Run
		}
		want, err := usageOf(q, ids)
		if err != nil {
			return nil, err
		}
		list := make([]usage.Kept, len(kept))
		for i, e := range kept {
			list[i] = usage.Kept{Ended: e, Want: want[e.Run]}
		}
		return list, nil
	})
	if err != nil {
		return nil, fmt.Errorf("usage of runs: %w", err)
	}
	return list, nil
}

// DaysOfUsage implements usage.RebuildStore.
func (s usageStore) DaysOfUsage(ctx context.Context) ([]int64, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]int64, error) {
		return all(q, usageDays, func(r Row) int64 { return r.Int(0) })
	})
}

// UsageOfDay implements usage.RebuildStore.
func (s usageStore) UsageOfDay(ctx context.Context, day int64) (stored, kept map[usage.Place][]usage.Sum, err error) {
	err = s.db.Snapshot(ctx, func(q Querier) error {
		stored = map[usage.Place][]usage.Sum{}
		if err := q.Query(sumsOfDay, func(r Row) error {
			at := usage.Place{Identity: r.Text(8), Day: day}
			stored[at] = append(stored[at], scanSum(r))
			return nil
		}, day); err != nil {
			return err
		}
		sums := usage.Adder{}
		defer func() { kept = sums.Sums() }()
		return q.Query(keptOfDay, func(r Row) error {
			e, err := scanEnded(r)
			sums.Add(e, 1)
			return err
		}, day)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("usage of a day: %w", err)
	}
	return stored, kept, nil
}

package relational

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"understudy/id"
	"understudy/run"
	"understudy/run/usage"
)

const sumColumns = "kind, name, runs, errors, calls, input, output, total"

// What runs used whose rows are there is in usage_runs and usage_sums, of others in usage_days.
var (
	putEnded   = same(insertInto("usage_ended", "run_id, identity, day, sums"))
	EndedUsage = same("SELECT id, identity, day, sums, run_id FROM usage_ended ORDER BY id LIMIT $1")
	// endedOf reads all that is listed, which is folded every few seconds.
	endedOf   = same("SELECT id, identity, day, sums, run_id FROM usage_ended WHERE ($1 = '' OR identity = $1) AND day BETWEEN $2 AND $3")
	keepEnded = differing("INSERT INTO usage_runs (day, run_id, identity, sums) SELECT day, run_id, identity, sums FROM usage_ended WHERE id = ANY($1) AND run_id <> ''",
		"INSERT INTO usage_runs (day, run_id, identity, sums) SELECT day, run_id, identity, sums FROM usage_ended WHERE id IN (SELECT value FROM json_each($1)) AND run_id <> ''")
	foldEnded   = differing("DELETE FROM usage_ended WHERE id = ANY($1)", "DELETE FROM usage_ended WHERE id IN (SELECT value FROM json_each($1))")
	putKept     = same(upsert("usage_runs", "day, run_id", "identity, sums"))
	dropKept    = same("DELETE FROM usage_runs WHERE day = $1 AND run_id = $2")
	addFinal    = same(addUsage("usage_days"))
	addSums     = same(addUsage("usage_sums"))
	dropNothing = same("DELETE FROM usage_sums WHERE identity = $1 AND day = $2 AND kind = $3 AND name = $4 AND runs = 0 AND errors = 0 AND calls = 0 AND input = 0 AND output = 0 AND total = 0")
	// UsageOfDays reads the rows of one identity.
	UsageOfDays = same(usageOfDays("usage_days") + " UNION ALL " + usageOfDays("usage_sums"))
	dropUsage   = []Statement{same("DELETE FROM usage_days WHERE day < $1"), same("DELETE FROM usage_sums WHERE day < $1"), same("DELETE FROM usage_runs WHERE day < $1")}

	KeptUsage    = same("SELECT 0, identity, day, sums, run_id FROM usage_runs WHERE (day, run_id) > ($1, $2) ORDER BY day, run_id LIMIT $3")
	DeletedUsage = same("SELECT 0, identity, day, sums, run_id FROM usage_runs WHERE (day, run_id) > ($1, $2) AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = usage_runs.run_id) " +
		"ORDER BY day, run_id LIMIT $3")
	keptOfDay = same("SELECT 0, identity, day, sums, run_id FROM usage_runs WHERE day = $1")
	sumsOfDay = same("SELECT " + sumColumns + ", identity FROM usage_sums WHERE day = $1")
	usageDays = same("SELECT day FROM usage_sums UNION SELECT day FROM usage_runs ORDER BY day")
	// endedRuns has NULL in place of arguments except for the configuration, which says whose a run is.
	endedRuns = differing("SELECT "+RunColumns+", NULL, NULL, config, NULL, NULL FROM runs JOIN run_kwargs USING (run_id) WHERE run_id = ANY($1)",
		"SELECT "+RunColumns+", NULL, NULL, config, NULL, NULL FROM runs JOIN run_kwargs USING (run_id) WHERE run_id IN (SELECT value FROM json_each($1))")
)

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
	e := usage.Ended{ID: r.Int(0), Run: id.Run(r.Text(4)), Identity: r.Text(1), Day: r.Int(2)}
	err := json.Unmarshal(r.Bytes(3), &e.Sums)
	return e, err
}

// PutUsage implements run.Tx.
func (tx *Tx) PutUsage(r id.Run, identity string, day int64, sums []byte) error {
	if identity != "" {
		identity = identityKey(identity)
	}
	if err := tx.Exec(putEnded, r, identity, day, sums); err != nil {
		return fmt.Errorf("usage of run %s: %w", r, err)
	}
	return nil
}

// EndedRuns implements usage.Store.
func (s usageStore) EndedRuns(ctx context.Context, limit int) (list []usage.Ended, err error) {
	err = s.db.Read(ctx, func(q Querier) error {
		list, err = ended(q, EndedUsage, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("usage of ended runs: %w", err)
	}
	return list, nil
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
		if len(c.Listed) > 0 {
			if err := tx.Exec(keepEnded, c.Listed); err != nil {
				return err
			}
			if n, err := tx.Affected(foldEnded, c.Listed); err != nil || int(n) != len(c.Listed) {
				return cmp.Or(err, error(usage.ErrFolded))
			}
		}
		for _, e := range c.Drop {
			if n, err := tx.Affected(dropKept, e.Day, e.Run); err != nil || n != 1 {
				return cmp.Or(err, error(usage.ErrFolded))
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
func (s usageStore) UsageOf(ctx context.Context, identity string, since, until int64) (days, listed map[int64][]usage.Sum, err error) {
	if identity != "" {
		identity = identityKey(identity)
	}
	err = s.db.Snapshot(ctx, func(q Querier) error {
		days, listed = map[int64][]usage.Sum{}, map[int64][]usage.Sum{}
		if err := q.Query(UsageOfDays, func(r Row) error {
			day := r.Int(8)
			days[day] = append(days[day], scanSum(r))
			return nil
		}, identity, since, until); err != nil {
			return err
		}
		list, err := ended(q, endedOf, identity, since, until)
		for _, e := range list {
			listed[e.Day] = append(listed[e.Day], e.Sums...)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("usage: %w", err)
	}
	return days, listed, nil
}

// DropUsage implements usage.Store.
func (s usageStore) DropUsage(ctx context.Context, before int64) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, drop := range dropUsage {
			if err := tx.Exec(drop, before); err != nil {
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
		runs, err := loadRuns(q, &run.Query{}, endedRuns, ids)
		if err != nil {
			return nil, err
		}
		completions, err := loadCompletions(q, ids)
		if err != nil {
			return nil, err
		}
		want := map[id.Run]*usage.Ended{}
		for _, r := range runs {
			if c := completions[r.ID]; c != nil { // else its thread is being deleted
				of := usage.IdentityOf(r)
				if of != "" {
					of = identityKey(of)
				}
				want[r.ID] = &usage.Ended{Run: r.ID, Identity: of, Day: usage.DayOf(r.EndedAt), Sums: usage.Of(r, c)}
			}
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

package relational

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"understudy/run/usage"
)

var (
	putEnded   = same(insertInto("usage_ended", "identity, day, sums"))
	EndedUsage = same("SELECT id, identity, day, sums FROM usage_ended ORDER BY id LIMIT $1")
	// endedOf reads all that is listed, which is folded every few seconds.
	endedOf   = same("SELECT id, identity, day, sums FROM usage_ended WHERE ($1 = '' OR identity = $1) AND day BETWEEN $2 AND $3")
	foldEnded = differing("DELETE FROM usage_ended WHERE id = ANY($1)", "DELETE FROM usage_ended WHERE id IN (SELECT value FROM json_each($1))")
	addUsage  = same("INSERT INTO usage_days (identity, day, kind, name, runs, errors, calls, input, output, total) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) " +
		"ON CONFLICT (identity, day, kind, name) DO UPDATE SET runs = usage_days.runs + excluded.runs, errors = usage_days.errors + excluded.errors, calls = usage_days.calls + excluded.calls, " +
		"input = usage_days.input + excluded.input, output = usage_days.output + excluded.output, total = usage_days.total + excluded.total")
	// UsageOfDays and UsageOfNames read the rows of one identity.
	UsageOfDays  = same("SELECT kind, name, runs, errors, calls, input, output, total, day FROM usage_days WHERE identity = $1 AND day BETWEEN $2 AND $3 AND kind IN ('all', 'took')")
	UsageOfNames = differing(usageOfNames("::bigint"), usageOfNames(""))
	dropUsage    = same("DELETE FROM usage_days WHERE day < $1")
)

func usageOfNames(as string) string {
	text := "SELECT kind, name"
	for _, column := range []string{"runs", "errors", "calls", "input", "output", "total"} {
		text += ", sum(" + column + ")" + as
	}
	return text + " FROM usage_days WHERE identity = $1 AND day BETWEEN $2 AND $3 AND kind NOT IN ('all', 'took') GROUP BY kind, name"
}

func scanSum(r Row) usage.Sum {
	return usage.Sum{Kind: r.Text(0), Name: r.Text(1), Runs: r.Int(2), Errors: r.Int(3), Calls: r.Int(4), Input: r.Int(5), Output: r.Int(6), Total: r.Int(7)}
}

func scanEnded(r Row) (usage.Ended, error) {
	e := usage.Ended{ID: r.Int(0), Identity: r.Text(1), Day: r.Int(2)}
	err := json.Unmarshal(r.Bytes(3), &e.Sums)
	return e, err
}

// PutUsage implements run.Tx.
func (tx *Tx) PutUsage(identity string, day int64, sums []byte) error {
	if identity != "" {
		identity = identityKey(identity)
	}
	if err := tx.Exec(putEnded, identity, day, sums); err != nil {
		return fmt.Errorf("usage of a run: %w", err)
	}
	return nil
}

// EndedRuns implements usage.Store.
func (s *Store) EndedRuns(ctx context.Context, limit int) (list []usage.Ended, err error) {
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

// FoldUsage implements usage.Store.
func (s *Store) FoldUsage(ctx context.Context, runs []int64, sums map[usage.Place][]usage.Sum) error {
	places := make([]usage.Place, 0, len(sums))
	for at, list := range sums {
		places = append(places, at)
		slices.SortFunc(list, func(a, b usage.Sum) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	}
	// In one order, so that servers which fold other runs at the same time do not wait for each other.
	slices.SortFunc(places, func(a, b usage.Place) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Day, b.Day))
	})
	return s.db.Write(ctx, func(tx *Tx) error {
		n, err := tx.Affected(foldEnded, runs)
		if err != nil {
			return err
		}
		if int(n) != len(runs) {
			return usage.ErrFolded
		}
		for _, at := range places {
			for _, u := range sums[at] {
				if err := tx.Exec(addUsage, at.Identity, at.Day, u.Kind, u.Name, u.Runs, u.Errors, u.Calls, u.Input, u.Output, u.Total); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// UsageOf implements usage.Store.
func (s *Store) UsageOf(ctx context.Context, identity string, since, until int64) (days map[int64][]usage.Sum, named []usage.Sum, err error) {
	if identity != "" {
		identity = identityKey(identity)
	}
	err = s.db.Snapshot(ctx, func(q Querier) error {
		days, named = map[int64][]usage.Sum{}, nil
		if err := q.Query(UsageOfDays, func(r Row) error {
			day := r.Int(8)
			days[day] = append(days[day], scanSum(r))
			return nil
		}, identity, since, until); err != nil {
			return err
		}
		if named, err = all(q, UsageOfNames, scanSum, identity, since, until); err != nil {
			return err
		}
		list, err := ended(q, endedOf, identity, since, until)
		for _, e := range list {
			days[e.Day] = append(days[e.Day], e.Sums...)
			named = append(named, e.Sums...)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("usage: %w", err)
	}
	return days, named, nil
}

// DropUsage implements usage.Store.
func (s *Store) DropUsage(ctx context.Context, before int64) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		_, err := tx.Affected(dropUsage, before)
		return err
	})
}

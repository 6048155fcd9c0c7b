package relational

import (
	"cmp"
	"context"
	"fmt"

	"understudy/access"
	"understudy/id"
	"understudy/run"
)

var (
	// RecentWindow counts the newest runs before one, up to a number, and returns the oldest of them.
	RecentWindow = same("SELECT count(*), min(run_id) FROM (SELECT run_id FROM runs WHERE run_id < $1 ORDER BY run_id DESC LIMIT $2) newest")
	// RecentChosen returns those of a window with a status and of a graph, with the metadata of their threads. A thread that is gone has none.
	RecentChosen = same("SELECT run_id, (SELECT t.metadata FROM threads t WHERE t.thread_id = runs.thread_id) FROM runs " + OfThreads +
		"run_id < $1 AND run_id >= $2 AND ($3 = '' OR status = $3) AND ($4 = '' OR graph_id = $4) AND ($5 = '' OR cron_id = $5) " +
		"ORDER BY run_id DESC LIMIT $6")
	// RecentRuns returns rows of SelectRuns without arguments.
	RecentRuns = differing(recentRuns("= ANY($1)"), recentRuns("IN (SELECT value FROM json_each($1))"))
	// RecentBehind returns the runs that wait for another one of their thread, among pending ones.
	RecentBehind = differing(recentBehind("= ANY($1)"), recentBehind("IN (SELECT value FROM json_each($1))"))
)

func recentBehind(among string) string {
	// Each status has an index of its own, which one EXISTS for both would not use.
	return "SELECT r.run_id FROM runs r WHERE r.run_id " + among + ` AND (EXISTS (SELECT 1 FROM runs b WHERE b.thread_id = r.thread_id AND b.status = 'running')
		OR EXISTS (SELECT 1 FROM runs b WHERE b.thread_id = r.thread_id AND b.status = 'pending' AND (b.created_at, b.run_id) < (r.created_at, r.run_id)))`
}

func recentRuns(among string) string {
	return "SELECT " + RunColumns + ", NULL, NULL, NULL, NULL, NULL FROM runs WHERE run_id " + among + " ORDER BY run_id DESC"
}

const (
	recentAtMost = 5_000       // runs that one call looks at
	afterRuns    = id.Run("g") // is above every UUID
)

// RecentRuns implements run.Store.
func (s runStore) RecentRuns(ctx context.Context, q run.Recent) (page []*run.Run, next id.Run, err error) {
	reach := access.Reach(ctx, access.Threads)
	before := cmp.Or(q.Before, afterRuns)
	window, limit := recentAtMost, q.Limit
	switch {
	case reach != nil:
		limit = window // what is not in reach does not count
	case q.Status == "" && q.Graph == "" && q.Cron == "":
		window = q.Limit // all are chosen
	}
	err = s.db.Snapshot(ctx, func(db Querier) error {
		page, next = nil, ""
		var oldest id.Run
		if err := db.Query(RecentWindow, func(r Row) error {
			oldest = id.Run(r.Text(1))
			if int(r.Int(0)) == window {
				next = oldest
			}
			return nil
		}, before, window); err != nil || oldest == "" {
			return err
		}
		var chosen []id.Run
		if err := db.Query(RecentChosen, func(r Row) error {
			if reach == nil || reach.Match(r.Bytes(1)) {
				chosen = append(chosen, id.Run(r.Text(0)))
			}
			if len(chosen) < q.Limit {
				return nil
			}
			next = chosen[len(chosen)-1]
			return ErrStop
		}, before, oldest, string(q.Status), q.Graph, string(q.Cron), limit); err != nil || chosen == nil {
			return err
		}
		if err := db.Query(RecentRuns, func(r Row) error {
			found, err := ScanRun(r)
			page = append(page, found)
			return err
		}, chosen); err != nil {
			return err
		}
		return findBehind(db, page)
	})
	if err != nil {
		return nil, "", fmt.Errorf("recent runs: %w", err)
	}
	return page, next, nil
}

// findBehind finds the runs of a page that wait for another one of their thread.
func findBehind(db Querier, page []*run.Run) error {
	var pending []id.Run
	for _, r := range page {
		if r.Status == run.Pending {
			pending = append(pending, r.ID)
		}
	}
	if pending == nil {
		return nil
	}
	behind := map[id.Run]bool{}
	if err := db.Query(RecentBehind, func(r Row) error {
		behind[id.Run(r.Text(0))] = true
		return nil
	}, pending); err != nil {
		return err
	}
	for _, r := range page {
		r.Behind = behind[r.ID]
	}
	return nil
}

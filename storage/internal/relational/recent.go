package relational

import (
	"context"
	"fmt"

	"understudy/access"
	"understudy/id"
	"understudy/run"
)

// RecentRuns returns rows of SelectRuns without arguments and with the metadata of the thread, newest first. A run of a thread that is gone has none.
var RecentRuns = same("SELECT " + RunColumns + ", NULL, NULL, NULL, NULL, NULL, (SELECT t.metadata FROM threads t WHERE t.thread_id = runs.thread_id) FROM runs " +
	OfThreads + "run_id < $1 ORDER BY run_id DESC LIMIT $2")

const (
	recentAtOnce = 500         // rows that one statement reads to select from
	recentAtMost = 10_000      // rows that one call looks at
	afterRuns    = id.Run("g") // is above every UUID
)

// RecentRuns implements run.Store.
func (s *Store) RecentRuns(ctx context.Context, q run.Recent) (page []*run.Run, next id.Run, err error) {
	reach := access.Reach(ctx, access.Threads)
	at := q.Before
	if at == "" {
		at = afterRuns
	}
	atOnce := recentAtOnce
	if q.Status == "" && q.Graph == "" && reach == nil {
		atOnce = q.Limit // all are selected
	}
	err = s.db.Snapshot(ctx, func(db Querier) error {
		page = nil
		for seen := 0; seen < recentAtMost; {
			read, full := 0, false
			if err := db.Query(RecentRuns, func(r Row) error {
				read++
				if full {
					return nil
				}
				found, err := ScanRun(r)
				if err != nil {
					return err
				}
				at = found.ID
				if (q.Status == "" || found.Status == q.Status) && (q.Graph == "" || found.Graph == q.Graph) && (reach == nil || reach.Match(r.Bytes(colKwargs+5))) {
					page = append(page, found)
					full = len(page) == q.Limit
				}
				return nil
			}, at, atOnce); err != nil {
				return err
			}
			next = at
			if full {
				return nil
			}
			if read < atOnce {
				next = ""
				return nil
			}
			seen += read
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("recent runs: %w", err)
	}
	return page, next, nil
}

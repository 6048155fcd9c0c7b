package sqlite

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/access"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/cputest"
	"understudy/storage/internal/relational"
	"understudy/storage/storagetest"
	"understudy/thread"
)

// fullScan is a step of a plan that reads a whole table or index: "SCAN threads", "SCAN t USING
// INDEX …".
var fullScan = regexp.MustCompile(`^SCAN (\S+)(.*)`)

// plan returns SQLite's query plan of a statement.
func plan(t *testing.T, c *sqlite.Conn, text string) (steps []string) {
	t.Helper()
	require.NoError(t, query(c, "EXPLAIN QUERY PLAN "+text, func(s *sqlite.Stmt) error {
		steps = append(steps, s.ColumnText(3))
		return nil
	}))
	return steps
}

// A query without an index behind it is a bug. Statements that walk an index in order until their
// page is full may do so (ordered); the others may read only what they look up, and neither may
// sort a table.
func TestPlans(t *testing.T) {
	s := setup(t)
	ordered := map[string]string{
		"next due run":     relational.NextDue.SQLite,
		"claim":            relational.ClaimHead.SQLite,
		"pending runs":     "SELECT count(*) FROM runs " + relational.OfThreads + "status = 'pending'",
		"running runs":     "SELECT count(*) FROM runs " + relational.OfThreads + "status = 'running'",
		"next cron":        relational.NextCron.SQLite,
		"store items, all": relational.ItemsOfAll.SQLite,
	}
	for _, by := range []string{"", "thread_id", "status", "created_at", "updated_at", "state_updated_at"} {
		for _, ascending := range []bool{true, false} {
			plan, err := relational.PlanThreads(querier{}, thread.Query{SortBy: by, Ascending: ascending}, nil, nil)
			require.NoError(t, err)
			ordered[plan.Text.SQLite] = plan.Text.SQLite
		}
	}
	lookups := map[string]string{
		"run":                    relational.RunOfThread.SQLite,
		"runs of a thread":       relational.RunsOfThread.SQLite,
		"fence":                  relational.Fence.SQLite,
		"mark":                   "UPDATE runs SET passed = 1 WHERE run_id = ? AND passed = 0",
		"delete runs":            "DELETE FROM runs WHERE thread_id = ?",
		"kwargs of a thread":     "DELETE FROM run_kwargs WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = ?)",
		"old occurrences":        relational.OldOccurrences.SQLite,
		"tasks of an account":    relational.CountOfAccount.SQLite,
		"due crons":              relational.DueCrons.SQLite,
		"occurrences":            relational.SelectOccurrences.SQLite,
		"forks of a thread":      relational.ForksOf.SQLite,
		"lineages":               relational.LineagesOf.SQLite,
		"next delivery":          relational.NextDelivery.SQLite,
		"records":                relational.SelectRecords.SQLite,
		"records of a run":       relational.RecordsOfRun.SQLite,
		"delete records":         deleteRecordsOfRun,
		"latest checkpoint":      relational.LatestCheckpoint.SQLite,
		"checkpoint":             relational.OneCheckpoint.SQLite,
		"checkpoints, namespace": keysOfNS,
		"blob":                   selectBlob,
		"writes":                 selectWrites,
		"metadata":               "SELECT thread_id FROM thread_metadata WHERE key = ? AND value = ? ORDER BY updated_at DESC, thread_id DESC",
		"store items, namespace": relational.ItemsOfOne.SQLite,
		"next namespace":         relational.NextNamespace.SQLite,
		"expired threads":        relational.ExpiredThreads.SQLite,
		"turn":                   relational.LastTurn.SQLite,
		"expired items":          relational.SweepItems.SQLite,
		"value of a channel":     hasValue,
		"upstream checkpoint":    relational.LinkOf.SQLite,
		"upstream siblings":      relational.SiblingOf.SQLite,
		"upstream by content":    relational.LinkOfVersion.SQLite,
		"branches":               relational.BranchesOf.SQLite,
		"heads":                  relational.RecentHeads.SQLite,
		"timeline":               relational.RecentTimeline.SQLite,
		"model of a thread":      relational.ModelOf.SQLite,
		"models of a thread":     relational.ModelsOf.SQLite,
		"events of a message":    relational.EventsOfMessage.SQLite,
		"marks":                  relational.Marks.SQLite,
		"due runs of a thread":   relational.DueOfThread.SQLite,
	}
	for _, texts := range relational.Seeks {
		for _, s := range texts {
			lookups[s.SQLite] = s.SQLite
		}
	}
	// This sorts, but only one head of each graph, the first of each origin, or two pages.
	graphwise := map[string]string{"deliveries": relational.DueDeliveries.SQLite, "claim beside graphs": relational.ClaimBeside.SQLite, "next beside graphs": relational.NextBeside.SQLite, "upstream ancestors": relational.BeforeRun.SQLite, "namespaces": relational.ListNamespaces.SQLite}
	// These sort, but only what they looked up before.
	sorting := map[string]string{
		"active runs":            relational.ActiveOfThread.SQLite,
		"active runs of all":     relational.ActiveOfAll.SQLite,
		"runs with a status":     relational.RunsWithStatus.SQLite,
		"active occurrences":     relational.ActiveOccurrences.SQLite,
		"checkpoints, all":       keysOfAll,
		"checkpoints by id":      keysOfID,
		"store items, below":     relational.ItemsBelow.SQLite,
		"prune":                  relational.PruneRows.SQLite,
		"ancestors":              relational.AncestorsOf.SQLite,
		"delete run checkpoints": "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? AND run_id = ?",
	}
	for n, s := range relational.RemainsOf {
		if s.SQLite != "" {
			sorting[fmt.Sprint("remains ", n)] = s.SQLite
		}
	}
	require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
		for name, text := range ordered {
			for _, step := range plan(t, c, text) {
				require.NotContains(t, step, "TEMP B-TREE", name)
				if m := fullScan.FindStringSubmatch(step); m != nil && m[1] != "CONSTANT" {
					require.Contains(t, m[2], "INDEX", name)
				}
			}
		}
		for name, text := range lookups {
			for _, step := range plan(t, c, text) {
				require.NotContains(t, step, "TEMP B-TREE", name)
				require.NotRegexp(t, fullScan, step, name)
			}
		}
		for name, text := range graphwise {
			for _, step := range plan(t, c, text) {
				if m := fullScan.FindStringSubmatch(step); m != nil {
					require.Contains(t, []string{"graphs", "origins", "json_each", "running", "pending", "up", "chain", "c", "list", "CONSTANT"}, m[1], "%s: %s", name, step)
				}
			}
		}
		for name, text := range sorting {
			for _, step := range plan(t, c, text) {
				if m := fullScan.FindStringSubmatch(step); m != nil {
					// Indexes of active runs hold nothing else.
					require.True(t, strings.Contains(m[2], "runs_running") || strings.Contains(m[2], "runs_pending"), "%s: %s", name, step)
				}
			}
		}
		return nil
	}))
}

// What is asked of the runs that are active reads the index of these few, not the runs of all time.
func TestPlansOfActiveRuns(t *testing.T) {
	s := setup(t)
	require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
		for name, text := range map[string]string{"threads": relational.ActiveThreads.SQLite, "count": relational.CountActive.SQLite, "metadata": relational.ActiveMetadata.SQLite} {
			of := 0
			for _, step := range plan(t, c, text) {
				if strings.Contains(step, " runs ") {
					require.Regexp(t, "INDEX runs_(running|pending)", step, name)
					of++
				}
			}
			require.Equal(t, 2, of, name)
		}
		return nil
	}))
}

// Whatever is asked of threads, the statement walks an index in the order of the page, or reads
// the few it looked up.
func TestPlansOfThreadSearches(t *testing.T) {
	s := setup(t)
	require.NoError(t, s.write(context.Background(), func(tx *Tx) error {
		for n := range 2100 { // more than few
			terms := []contain.Term{{Key: "common", Value: "true"}}
			if n == 0 {
				terms = append(terms, contain.Term{Key: "rare", Value: "true"})
			}
			if err := tx.IndexThread(id.Thread(string(rune('a'+n))), terms, int64(n)); err != nil {
				return err
			}
		}
		return nil
	}))
	metadata := map[string]bool{``: false, `{"common":true}`: false, `{"rare":true}`: true, `{"common":true,"rare":true}`: true, `{"o":{"x":1}}`: false}
	for filter, few := range metadata {
		for _, status := range []thread.Status{"", thread.Idle} {
			for _, by := range []string{"", "thread_id", "status", "created_at", "updated_at", "state_updated_at"} {
				require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
					p, err := relational.PlanThreads(querier{c}, thread.Query{Metadata: []byte(filter), Status: status, SortBy: by}, nil, nil)
					require.NoError(t, err)
					if p.Terms != nil { // see Seeks in TestPlans
						return nil
					}
					for _, step := range plan(t, c, p.Text.SQLite) {
						if m := fullScan.FindStringSubmatch(step); m != nil {
							require.Contains(t, m[2], "INDEX", p.Text.SQLite)
						}
						if !few {
							require.NotContains(t, step, "TEMP B-TREE", p.Text.SQLite)
						}
					}
					return nil
				}))
			}
		}
	}
}

// The few threads that a filter of access control selects are found by the index of metadata, however many others there are, whatever else is asked, and in every
// order.
func TestPlansOfFilteredSearches(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.write(context.Background(), func(tx *Tx) error {
		for n := range 12_000 { // more than few have the common terms
			if err := tx.InsertThread(storagetest.FilteredThread(n)); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, of := range storagetest.FilteredSearches(t) {
		if !of.Rare {
			continue
		}
		require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
			p, err := relational.PlanThreads(querier{c}, of.Query, of.Filter, nil)
			require.NoError(t, err)
			if p.Terms != nil { // see Seeks in TestPlans
				return nil
			}
			steps := strings.Join(plan(t, c, p.Text.SQLite), "\n")
			require.Regexp(t, `SEARCH (m0|thread_metadata) USING PRIMARY KEY \(key=\? AND value=\?`, steps, "%s: %s", of.Name, p.Text.SQLite)
			require.NotRegexp(t, `SCAN t\b|SCAN threads`, steps, "%s: %s", of.Name, p.Text.SQLite)
			return nil
		}))
	}
}

// Twice the threads do not cost a search by an item of a list twice the time.
func TestSearchesByItemsDoNotScan(t *testing.T) {
	s := setup(t)
	insert := func(threads ...*thread.Thread) {
		require.NoError(t, s.write(context.Background(), func(tx *Tx) error {
			for _, row := range threads {
				if err := tx.InsertThread(row); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	const size = 5000
	fill := func(from int) {
		var threads []*thread.Thread
		for n := from; n < from+size; n++ {
			threads = append(threads, storagetest.FilteredThread(n))
		}
		insert(threads...)
	}
	for n := range 12 { // older than all others
		row := storagetest.FilteredThread(n)
		row.ID = id.Thread(fmt.Sprint("mine", n))
		row.UpdatedAt = row.UpdatedAt.Add(-time.Hour)
		row.Metadata = []byte(`{"members":["someone","me","me"]}`)
		insert(row)
	}
	filters := []string{`{"members":{"$contains":"me"}}`, `{"members":{"$contains":["me","someone"]}}`, `{"$or":[{"owner":"me"},{"members":{"$contains":"me"}}]}`}
	cost := func(source string) time.Duration {
		filter, err := access.ParseFilter([]byte(source))
		require.NoError(t, err)
		ctx := access.Narrow(context.Background(), access.Threads, filter)
		best := time.Hour
		for range 15 {
			best = min(best, cputest.Time(func() {
				found, err := s.Threads().Threads(ctx, thread.Query{Limit: 10})
				require.NoError(t, err)
				require.Len(t, found, 10)
			}))
		}
		return best
	}
	fill(0)
	var before []time.Duration
	for _, f := range filters {
		before = append(before, cost(f))
	}
	fill(size)
	for i, f := range filters {
		require.Less(t, cost(f), before[i]*8/5, f)
	}
}

// A statement is planned when it is prepared, and not again in each execution, however its parameters change: that takes longer than most of them.
func TestStatementsArePlannedOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.read(t.Context(), func(c *sqlite.Conn) error {
		planned := 0
		require.NoError(t, c.SetAuthorizer(sqlite.AuthorizeFunc(func(sqlite.Action) sqlite.AuthResult {
			planned++
			return sqlite.AuthResultOK
		})))
		q := querier{c}
		for _, of := range []struct {
			text relational.Statement
			args func(n int) []any
		}{
			{relational.CountTerm, func(n int) []any { return []any{"a", "b", n} }},
			{relational.CountUnlisted, func(n int) []any { return []any{n} }},
			{relational.SeekUnlisted[0], func(n int) []any { return []any{n, "t", n} }},
			{relational.Seeks[0][0], func(n int) []any { return []any{"a", "b", n, "t"} }},
			{relational.MessageBodies, func(n int) []any { return []any{n, n} }},
			{relational.NewestBodies, func(n int) []any { return []any{n, n} }},
			{relational.MatchWords, func(n int) []any { return []any{"word", n, n} }},
		} {
			for n := range 3 {
				planned = 0
				require.NoError(t, q.Query(of.text, func(relational.Row) error { return nil }, of.args(n+1)...))
				require.Equal(t, n == 0, planned > 0, of.text.SQLite)
			}
		}
		return c.SetAuthorizer(nil)
	}))
}

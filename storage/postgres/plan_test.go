package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/internal/postgrestest"
	"understudy/storage/internal/relational"
	"understudy/storage/storagetest"
	"understudy/thread"
)

// fill makes threads with ten events, two checkpoints and a run each, most of them over.
func fill(t testing.TB, conn *pgx.Conn, threads int) {
	t.Helper()
	for _, text := range []string{
		`INSERT INTO threads (thread_id, created_at, updated_at, state_updated_at, metadata, status, touched)
			SELECT 't' || lpad(n::text, 8, '0'), n, n, n, '{}', CASE WHEN n %% 100 = 0 THEN 'busy' ELSE 'idle' END, true FROM generate_series(1, %d) n`,
		`INSERT INTO thread_metadata (key, value, updated_at, thread_id)
			SELECT k, CASE k WHEN 'owner' THEN '"u' || n %% 1000 ELSE '"g' END, n, 't' || lpad(n::text, 8, '0') FROM generate_series(1, %d) n, unnest(ARRAY['owner', 'graph_id']) k`,
		`INSERT INTO runs (run_id, thread_id, assistant_id, graph_id, status, strategy, created_at, updated_at, ended_at, kwargs_digest)
			SELECT 'r' || n, 't' || lpad(n::text, 8, '0'), 'a', 'g', CASE WHEN n %% 100 = 0 THEN 'pending' WHEN n %% 100 = 50 THEN 'running' ELSE 'success' END,
			'enqueue', n, n, n, '' FROM generate_series(1, %d) n`,
		`INSERT INTO run_kwargs (run_id, options) SELECT 'r' || n, '{}' FROM generate_series(1, %d) n`,
		`INSERT INTO run_heads (thread_id, run_id, created_at) SELECT 't' || lpad(n::text, 8, '0'), 'r' || n, n FROM generate_series(100, %d, 100) n`,
		`INSERT INTO events (thread_id, seq, run_id, type, category, body, first_seq, created_at)
			SELECT 't' || lpad(n::text, 8, '0'), s, 'r' || n, CASE s %% 3 WHEN 0 THEN 'run.start' ELSE 'llm.human.input' END, 'message', n * 10 + s, 0, 0
			FROM generate_series(1, %d) n, generate_series(1, 10) s`,
		`INSERT INTO event_bodies (body, refs) SELECT n * 10 + s, 1 FROM generate_series(1, %d) n, generate_series(1, 10) s`,
		`INSERT INTO search_pending SELECT n FROM generate_series(1, %d) n`,
		`INSERT INTO message_words SELECT n * 10 + s, array_to_tsvector(ARRAY['w' || n %% 500]) FROM generate_series(1, %d) n, generate_series(1, 10) s`,
		`INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint, metadata) SELECT 't' || lpad(n::text, 8, '0'), s::text, '{}', '{}' FROM generate_series(1, %d) n, generate_series(1, 2) s`,
		`INSERT INTO checkpoint_blobs (thread_id, channel, version, type) SELECT 't' || lpad(n::text, 8, '0'), 'messages', s::text, 'list' FROM generate_series(1, %d) n, generate_series(1, 2) s`,
		`INSERT INTO checkpoint_writes (thread_id, checkpoint_id, task_id, idx, channel, blob) SELECT 't' || lpad(n::text, 8, '0'), s::text, 'x', 0, 'c', '' FROM generate_series(1, %d) n, generate_series(1, 2) s`,
		`INSERT INTO snapshots (thread_id, checkpoint_ns, checkpoint_id, run_id) SELECT 't' || lpad(n::text, 8, '0'), '', s::text, 'r' || n FROM generate_series(1, %d) n, generate_series(1, 2) s`,
		`INSERT INTO transcripts SELECT 't' || lpad(n::text, 8, '0'), s::text, 1, 1, s::text, '', '', 'r' || n, false FROM generate_series(1, %d) n, generate_series(1, 2) s`,
		`INSERT INTO transcript_nodes SELECT 't' || lpad(n::text, 8, '0'), s, s - 1, 1, 1, 1, '' FROM generate_series(1, %d) n, generate_series(1, 2) s`,
		`INSERT INTO list_owners (thread_id) SELECT 't' || lpad(n::text, 8, '0') FROM generate_series(1, %d) n`,
		`INSERT INTO list_parts SELECT (n::bigint << 28) + s, '', '' FROM generate_series(1, %d) n, generate_series(1, 5) s`,
		`INSERT INTO stream_records SELECT 't' || lpad(n::text, 8, '0'), n, s, 'r' || n, 0, 1, 'values', '', '' FROM generate_series(1, %d) n, generate_series(1, 2) s`,
		`INSERT INTO stream_runs SELECT 'r' || n, 't' || lpad(n::text, 8, '0'), n, n FROM generate_series(1, %d) n`,
		`INSERT INTO store_items (namespace, key, value, created_at, updated_at) SELECT 'a' || n %% 1000, n::text, '{}', n, n FROM generate_series(1, %d) n`,
		`INSERT INTO run_completions (run_id) SELECT 'r' || n FROM generate_series(1, %d) n`,
		`INSERT INTO model_calls (run_id, call_id, message_id, caller, model) SELECT 'r' || n, 'c', '', '', '' FROM generate_series(1, %d) n`,
		`INSERT INTO run_spans SELECT 'r' || n, 1, 1, n, '' FROM generate_series(1, %d) n`,
		`INSERT INTO log_offsets SELECT 'f', 't' || lpad(n::text, 8, '0'), 1, 1, 1 FROM generate_series(1, %d) n`,
		`INSERT INTO read_models SELECT 'branches', 't' || lpad(n::text, 8, '0'), 't' || lpad((n / 5)::text, 8, '0'), 1, n, '', '', 1 FROM generate_series(1, %d) n`,
		`INSERT INTO read_models SELECT m, 't' || lpad(n::text, 8, '0'), CASE m WHEN 'messages' THEN 'm' || s ELSE 'completed' END, s, n * 10 + s, '', '', 0
			FROM generate_series(1, %d) n, generate_series(1, 5) s, unnest(ARRAY['heads', 'messages', 'timeline']) m WHERE m <> 'heads' OR s = 5`,
		`INSERT INTO crons (cron_id, assistant_id, schedule, enabled, created_at, updated_at, next_run_date) SELECT 'c' || n, 'a', '', true, n, n, n FROM generate_series(1, %d) n`,
		`INSERT INTO cron_occurrences (occurrence_id, cron_id, thread_id, run_id, manual, created_at) SELECT 'o' || n, 'c' || n / 5, 't' || lpad(n::text, 8, '0'), 'r' || n, true, n FROM generate_series(1, %d) n`,
		`INSERT INTO audit_log (at, event, identity, source, resource, outcome, detail, count) SELECT n, 'access.denied', '', '', '', '', '', 1 FROM generate_series(1, %d) n`,
		`INSERT INTO runs_of SELECT 'i' || n / 5, 'r' || n FROM generate_series(1, %d) n`,
		`INSERT INTO outbox (thread_id, run_id, url, origin, due) SELECT 't', 'r', '', 'http://' || n %% 50, n FROM generate_series(1, %d) n`,
	} {
		_, err := conn.Exec(context.Background(), fmt.Sprintf(text, threads))
		require.NoError(t, err, text)
	}
	execAll(t, conn, "ANALYZE")
}

// whole is a step that reads a table from end to end, or sorts.
var whole = regexp.MustCompile(`Seq Scan on \w+|\bSort\b`)

// Every statement that searches finds what it looks for by an index, and those that stop early in
// its order. LARGE=1: on 100,000 threads and 1,000,000 events.
func TestPlans(t *testing.T) {
	threads := 5_000
	if os.Getenv("LARGE") != "" {
		threads = 100_000
	}
	address := postgrestest.Database(t)
	s, conn := open(t, Options{URL: address}), connect(t, address)
	fill(t, conn, threads)
	ctx := t.Context()
	// What is asked is whether there is an index that does it: on the tables of a test a scan may
	// be as good.
	execAll(t, conn, "SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off")
	explain := func(text string) string {
		prepared, err := conn.Prepare(ctx, "plan", text)
		require.NoError(t, err, text)
		args := make([]string, len(prepared.ParamOIDs))
		for i := range args {
			args[i] = "NULL"
		}
		require.NoError(t, conn.Deallocate(ctx, "plan"))
		_, err = conn.Exec(ctx, "PREPARE p AS "+text)
		require.NoError(t, err, text)
		list := ""
		if len(args) > 0 {
			list = "(" + strings.Join(args, ", ") + ")"
		}
		rows, err := conn.Query(ctx, "EXPLAIN EXECUTE p"+list, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, text)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, text)
		execAll(t, conn, "DEALLOCATE p")
		return strings.Join(lines, "\n")
	}
	// sorted: those that read what belongs to one thread, run or checkpoint may sort it; it is little.
	sorted := []string{
		relational.QueueStands.Postgres, relational.DueDeliveries.Postgres,
		relational.SelectThread.Postgres, relational.HasActive.Postgres, relational.DueOfThread.Postgres, relational.RunOfThread.Postgres, relational.RunAlone.Postgres, relational.ActiveOfThread.Postgres, relational.ActiveThreads.Postgres, relational.CountActive.Postgres, relational.ActiveMetadata.Postgres, relational.Fence.Postgres, lockByRun, settleHead,
		relational.LastSeq.Postgres, relational.RowOf.Postgres, relational.RowsAndLog.Postgres, relational.ChainsOf.Postgres, relational.RowOfVersion.Postgres, relational.NewestRow.Postgres, relational.ChainOf.Postgres, relational.HeadsIn.Postgres, relational.ClientWrites.Postgres, relational.EventsAfter.Postgres, relational.EventsWithin.Postgres, relational.KnowsRun.Postgres, relational.MessagesOfRun.Postgres, relational.CallsOfRun.Postgres, relational.DropCalls.Postgres, relational.SpansOfRun.Postgres, relational.SelectCompletion.Postgres,
		relational.AllSeqsOfRun.Postgres, relational.Revisions.Postgres, relational.OneCheckpoint.Postgres, relational.LatestCheckpoint.Postgres, checkpointsOfNS.Postgres, checkpointsOfAll.Postgres, checkpointsOfID.Postgres, olderOfNS.Postgres, olderOfAll.Postgres,
		selectBlobs, someBlobs, selectWrites, someWrites, latestWrites, hasBlobs, hasOthers, sameAssistant, moveThread, versionsIn, dropBlobs, ownerOf, digestsOf, selectParts, deleteParts, relational.ListsOf.Postgres, relational.UsedByCheckpoints.Postgres, relational.UsedByWrites.Postgres, relational.UsedByChannels.Postgres, relational.SizesOfParts.Postgres, relational.Unrecorded.Postgres, relational.Lineage.Postgres,
		relational.SelectRecords.Postgres, relational.RecordsOfRun.Postgres, deleteRecords, relational.SelectOffset.Postgres, relational.ForksOf.Postgres, relational.LineagesOf.Postgres, unindexThread, relational.Followed.Postgres, relational.OldAudit.Postgres, relational.ManyAudit.Postgres, relational.RunsOf.Postgres, relational.ForgetRunsOf.Postgres,
		relational.ActiveOccurrences.Postgres, relational.OldOccurrences.Postgres, relational.CountOfAccount.Postgres, relational.UnindexedBodies.Postgres, relational.MessagesOfBodies.Postgres, relational.MessagesOfThread.Postgres, relational.MatchWords.Postgres,
	}
	// ordered: those that stop early read an index in its order.
	ordered := []string{
		relational.RunsOfThread.Postgres, relational.NextDue.Postgres, relational.NextDelivery.Postgres, relational.NextCron.Postgres, relational.SelectOccurrences.Postgres,
		relational.SeqsOfThread[0].Postgres, relational.SeqsOfThread[1].Postgres, relational.SeqsOfType[0].Postgres, relational.SeqsOfType[1].Postgres,
		relational.SeqsOfRun[0].Postgres, relational.SeqsOfRun[1].Postgres,
		relational.ItemsOfAll.Postgres, relational.ItemsOfOne.Postgres, relational.NextNamespace.Postgres, relational.ListNamespaces.Postgres, relational.ExpiredThreads.Postgres, relational.RemainsOfMany.Postgres, relational.RemainsOfOne.Postgres, relational.NewestSteps.Postgres, relational.StepsBefore.Postgres, relational.RecentWindow.Postgres, relational.RecentChosen.Postgres, relational.RecentRuns.Postgres, relational.UsageEnds.Postgres, relational.KeptUsage.Postgres, relational.DeletedUsage.Postgres, relational.UsageOfDays.Postgres, relational.SweepSpans.Postgres,
		relational.BranchesOf.Postgres, relational.RecentHeads.Postgres, relational.RecentTimeline.Postgres, relational.ModelOf.Postgres, relational.EventsOfMessage.Postgres, relational.Marks.Postgres,
		relational.MessageBodies.Postgres, relational.NewestBodies.Postgres,
	}
	sorted = append(sorted, deletesOfThread...)
	sorted = append(sorted, relational.PruneRows.Postgres, pruneParents, lacking, relational.LastTurn.Postgres)
	for _, step := range relational.RemainsOf {
		sorted = append(sorted, step.Postgres)
	}
	for _, by := range []string{"", "created_at", "state_updated_at", "thread_id"} {
		for _, status := range []thread.Status{"", thread.Busy} {
			for _, metadata := range []string{"", `{"owner": "u1"}`, `{"owner": "u1", "graph_id": "g"}`, `{"graph_id": "g"}`} {
				require.NoError(t, s.snapshot(ctx, func(q *reader) error {
					scan, err := relational.PlanThreads(q, thread.Query{SortBy: by, Status: status, Metadata: json.RawMessage(metadata)}, nil, nil)
					if strings.Contains(scan.Text.Postgres, "m0.") && by != "" { // few, and sorted
						sorted = append(sorted, scan.Text.Postgres)
					} else {
						ordered = append(ordered, scan.Text.Postgres)
					}
					return err
				}))
			}
		}
	}
	for from := 0; from < 4000; from += 1000 { // more than few have the common terms
		require.NoError(t, s.Threads().Write(ctx, func(tx thread.Tx) error {
			for n := from; n < from+1000; n++ {
				if err := tx.InsertThread(storagetest.FilteredThread(n)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, of := range storagetest.FilteredSearches(t) {
		if !of.Rare {
			continue
		}
		require.NoError(t, s.snapshot(ctx, func(q *reader) error {
			scan, err := relational.PlanThreads(q, of.Query, of.Filter, nil)
			require.Contains(t, scan.Text.Postgres, "thread_metadata", of.Name)
			sorted = append(sorted, scan.Text.Postgres)
			return err
		}))
	}
	for i, text := range append(slices.Clone(sorted), ordered...) {
		if i == len(sorted) {
			execAll(t, conn, "SET enable_sort = off")
		}
		plan := explain(text + map[bool]string{true: " LIMIT 10"}[i >= len(sorted) && !strings.Contains(text, "LIMIT")])
		for _, step := range whole.FindAllString(plan, -1) {
			table, isScan := strings.CutPrefix(step, "Seq Scan on ")
			switch {
			case isScan:
				t.Errorf("%s\nreads the whole of %s:\n%s", text, table, plan)
			case !isScan && i >= len(sorted):
				t.Errorf("%s\nsorts:\n%s", text, plan)
			}
		}
	}
	// The claim is a function: what it reads is one statement.
	require.NotRegexp(t, whole, explain("SELECT * FROM run_heads h WHERE h.created_at <= $1 ORDER BY h.created_at, h.run_id LIMIT 10"))
	// Beside graphs it sorts the first heads of each.
	execAll(t, conn, "SET enable_sort = on")
	var body string
	require.NoError(t, conn.QueryRow(ctx, "SELECT prosrc FROM pg_proc WHERE proname = 'claim_head' AND pronargs = 2").Scan(&body))
	_, body, _ = strings.Cut(body, "FOR head IN")
	body, _, _ = strings.Cut(body, "LOOP")
	for _, text := range []string{relational.NextBeside.Postgres, strings.NewReplacer("<= due", "<= $1", "(beside)", "($2::text[])").Replace(body)} {
		plan := explain(text)
		require.Contains(t, plan, "run_heads_graph", plan)
		require.NotContains(t, plan, "Seq Scan", plan)
	}
}

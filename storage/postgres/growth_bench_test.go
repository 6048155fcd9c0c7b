package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/thread"
)

// grow makes threads with a run and a checkpoint each: of every hundred one is due, all others are
// over. The first thread has a hundred checkpoints.
func grow(b *testing.B, conn *pgx.Conn, threads int) {
	b.Helper()
	for _, text := range []string{
		`INSERT INTO threads (thread_id, created_at, updated_at, state_updated_at, metadata, status, touched)
			SELECT 't' || lpad(n::text, 8, '0'), n, n, n, convert_to('{"owner":"u' || n %% 100 || '","graph_id":"g"}', 'UTF8'), CASE WHEN n %% 100 = 0 THEN 'busy' ELSE 'idle' END, true
			FROM generate_series(1, %d) n`,
		`INSERT INTO thread_metadata (key, value, updated_at, thread_id)
			SELECT k, CASE k WHEN 'owner' THEN '"u' || n %% 100 ELSE '"g' END, n, 't' || lpad(n::text, 8, '0') FROM unnest(ARRAY['graph_id', 'owner']) k, generate_series(1, %d) n`,
		`INSERT INTO runs (run_id, thread_id, assistant_id, graph_id, status, strategy, created_at, updated_at, ended_at, kwargs_digest)
			SELECT 'r' || lpad(n::text, 8, '0'), 't' || lpad(n::text, 8, '0'), 'a', 'g', CASE WHEN n %% 100 = 0 THEN 'pending' ELSE 'success' END, 'enqueue', n, n, n, ''
			FROM generate_series(1, %d) n`,
		`INSERT INTO run_kwargs (run_id, options) SELECT 'r' || lpad(n::text, 8, '0'), '{}' FROM generate_series(1, %d) n`,
		`INSERT INTO run_heads (thread_id, run_id, created_at, graph_id) SELECT 't' || lpad(n::text, 8, '0'), 'r' || lpad(n::text, 8, '0'), n, 'g' FROM generate_series(100, %d, 100) n`,
		`INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint, metadata)
			SELECT 't' || lpad(n::text, 8, '0'), lpad(s::text, 4, '0'), '{"channel_values":{"n":1},"channel_versions":{"n":"1"}}', '{"source":"loop"}'
			FROM generate_series(1, %d) n, generate_series(1, CASE WHEN n = 1 THEN 100 ELSE 1 END) s`,
		`INSERT INTO snapshots (thread_id, checkpoint_ns, checkpoint_id, run_id)
			SELECT 't' || lpad(n::text, 8, '0'), '', lpad(s::text, 4, '0'), 'r' || lpad(n::text, 8, '0') FROM generate_series(1, %d) n, generate_series(1, CASE WHEN n = 1 THEN 100 ELSE 1 END) s`,
	} {
		_, err := conn.Exec(b.Context(), fmt.Sprintf(text, threads))
		require.NoError(b, err, text)
	}
	execAll(b, conn, "VACUUM ANALYZE", "CHECKPOINT")
}

// BenchmarkThreads is what grows with the number of threads in a bad storage: claiming a run,
// searching threads, listing the history of one of them, on 1,000 threads and, with LARGE=1, on
// 1,000,000 (which takes some minutes and two gigabytes).
func BenchmarkThreads(b *testing.B) {
	sizes := []int{1000}
	if os.Getenv("LARGE") != "" {
		sizes = append(sizes, 1_000_000)
	}
	for _, n := range sizes {
		address := postgrestest.Database(b)
		s, err := Open(b.Context(), Options{URL: address, StatementTimeout: time.Hour})
		require.NoError(b, err)
		conn := connect(b, address)
		grow(b, conn, n)
		undo := errors.New("undone, so that the next finds the same")
		b.Run(fmt.Sprintf("claim/threads=%d", n), func(b *testing.B) {
			for b.Loop() {
				err := s.Runs().Write(b.Context(), func(tx run.Tx) error {
					r, err := tx.DueRun(time.Now())
					if err != nil {
						return err
					}
					t, err := tx.Thread(r.Thread)
					if err != nil {
						return err
					}
					t.Status, r.Status, r.Attempt = thread.Busy, run.Running, r.Attempt+1
					if err := errors.Join(tx.UpdateThread(t), tx.UpdateRun(r)); err != nil {
						return err
					}
					_, err = tx.HasActiveRuns(r.Thread) // which has all that sent
					return errors.Join(err, undo)
				})
				require.ErrorIs(b, err, undo)
			}
		})
		for name, q := range map[string]thread.Query{
			"search":        {Metadata: json.RawMessage(`{"owner":"u7"}`), Limit: 10},
			"search-both":   {Metadata: json.RawMessage(`{"owner":"u7","graph_id":"g"}`), Limit: 10},
			"search-status": {Status: thread.Busy, Limit: 10},
			"search-newest": {Limit: 10},
		} {
			b.Run(fmt.Sprintf("%s/threads=%d", name, n), func(b *testing.B) {
				for b.Loop() {
					found, err := s.SearchThreads(b.Context(), q)
					require.NoError(b, err)
					require.Len(b, found, 10)
				}
			})
		}
		b.Run(fmt.Sprintf("history/threads=%d", n), func(b *testing.B) {
			root := ""
			for b.Loop() {
				found, err := s.ListCheckpoints(b.Context(), checkpointer.List{Thread: id.Thread("t00000001"), NS: &root, Limit: 10})
				require.NoError(b, err)
				require.Len(b, found, 10)
			}
		})
		require.NoError(b, s.Close())
	}
}

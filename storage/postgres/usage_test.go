package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/storage/storagetest"
)

// Who counts a run and who deletes it wait for each other at its row, so that only one of both has it counted.
func TestRunsCountedWhileTheyAreDeleted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first string // a transaction has done this, and not committed
		then  func(ctx context.Context, b storagetest.Backend, th id.Thread, r id.Run) error
		kept  int // rows of the run afterwards, in usage_runs; there is none in usage_ended
	}{
		"it is deleted while a server counts it": {
			"WITH r AS (SELECT run_id, ended_at FROM runs WHERE run_id = $1 FOR KEY SHARE) " +
				"INSERT INTO usage_runs (day, run_id, identity, sums) SELECT ended_at / 86400000000, run_id, '', '[]' FROM r",
			func(ctx context.Context, b storagetest.Backend, th id.Thread, r id.Run) error {
				return b.Runs.Write(ctx, func(tx run.Tx) error { return tx.DeleteRun(th, r) })
			}, 1,
		},
		"it is counted while a server deletes it": {
			"DELETE FROM runs WHERE run_id = $1",
			func(ctx context.Context, b storagetest.Backend, _ id.Thread, r id.Run) error {
				_, err := b.Usage.CountRuns(ctx, []id.Run{r}, nil)
				return err
			}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := postgrestest.Database(t)
			b := backend(t, Options{URL: address})
			th, r := storagetest.EndedRun(t, b)
			look := connect(t, address)
			tx, err := connect(t, address).Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), c.first, r)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- c.then(t.Context(), b, th, r) }()
			require.Eventually(t, func() bool {
				var n int
				err := look.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&n)
				return err == nil && n > 0
			}, 20*time.Second, 5*time.Millisecond, "it does not wait for the transaction")
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-done)
			var kept, listed int
			require.NoError(t, look.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM usage_runs), (SELECT count(*) FROM usage_ended)").Scan(&kept, &listed))
			require.Equal(t, c.kept, kept)
			require.Zero(t, listed)
		})
	}
}

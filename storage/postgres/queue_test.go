package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/postgrestest"
)

// An instance of a version that knows no graph_id in the queue writes its rows without, and they
// get it all the same.
func TestHeadsOfOlderInstancesHaveTheirGraph(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	s, conn := open(t, Options{URL: address}), connect(t, address)
	execAll(t, conn, `INSERT INTO runs (run_id, thread_id, assistant_id, graph_id, status, strategy, created_at, updated_at, kwargs_digest)
		SELECT 'r' || n, 't', 'a', 'g' || n % 2, 'pending', 'enqueue', n, n, '' FROM generate_series(1, 3) n`)
	const put = `INSERT INTO run_heads (thread_id, run_id, created_at) VALUES ('t', $1, 1)
		ON CONFLICT (thread_id) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at`
	for _, step := range []struct{ run, graph string }{{"r1", "g1"}, {"r3", "g1"}, {"r2", "g0"}} {
		_, err := conn.Exec(t.Context(), put, step.run)
		require.NoError(t, err)
		var graph string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT graph_id FROM run_heads WHERE thread_id = 't'").Scan(&graph))
		require.Equal(t, step.graph, graph)
		next, err := s.NextDue(t.Context(), graph)
		require.NoError(t, err)
		require.True(t, next.IsZero())
	}
}

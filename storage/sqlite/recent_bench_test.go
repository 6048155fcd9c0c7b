package sqlite

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/run"
)

// BenchmarkRecentRuns looks for runs among 100,000 on as many threads.
func BenchmarkRecentRuns(b *testing.B) {
	s, err := Open(b.Context(), Options{Dir: b.TempDir(), Synchronous: "normal"})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	for from := 0; from < 100_000; from += 1000 {
		require.NoError(b, s.write(b.Context(), func(tx *Tx) error {
			for n := from; n < from+1000; n++ {
				name := fmt.Sprintf("00000000-0000-7000-8000-%012d", n)
				if err := tx.exec("INSERT INTO threads (thread_id, created_at, updated_at, state_updated_at, metadata, status, touched) VALUES (?, 0, 0, 0, ?, 'idle', 1)",
					name, []byte(fmt.Sprintf(`{"owner":"u%d","title":"A title of some words"}`, n%10_000))); err != nil {
					return err
				}
				if err := tx.exec("INSERT INTO runs (run_id, thread_id, assistant_id, graph_id, metadata, status, strategy, created_at, updated_at, cancel, kwargs_digest) VALUES (?, ?, 'a', 'g', ?, 'success', 'enqueue', 0, 0, '', ?)",
					name, name, []byte(`{"user":"u"}`), []byte("digest")); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	filter, err := access.ParseFilter([]byte(`{"owner":"u7"}`))
	require.NoError(b, err)
	for name, of := range map[string]struct {
		ctx context.Context
		q   run.Recent
	}{
		"newest":      {b.Context(), run.Recent{Limit: 50}},
		"rare status": {b.Context(), run.Recent{Limit: 50, Status: run.Timeout}},
		"reach":       {access.Narrow(b.Context(), access.Threads, filter), run.Recent{Limit: 50}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _, err := s.RecentRuns(of.ctx, of.q)
				require.NoError(b, err)
			}
		})
	}
}

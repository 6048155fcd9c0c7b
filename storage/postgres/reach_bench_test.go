package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/postgrestest"
	"understudy/storage/storagetest"
	"understudy/thread"
)

// THREADS=100000 asks for a larger table than the default of 10,000.
func BenchmarkFilteredSearches(b *testing.B) {
	address := postgrestest.Database(b)
	s, err := Open(b.Context(), Options{URL: address, StatementTimeout: time.Hour})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	storagetest.BenchmarkFilteredSearches(b, s, func(threads []*thread.Thread) {
		require.NoError(b, s.Threads().Write(b.Context(), func(tx thread.Tx) error {
			for _, t := range threads {
				if err := tx.InsertThread(t); err != nil {
					return err
				}
			}
			return nil
		}))
	}, func() { execAll(b, connect(b, address), "VACUUM ANALYZE") })
}

package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/storage/storagetest"
	"understudy/thread"
)

// THREADS=100000 asks for a larger table than the default of 10,000.
func BenchmarkFilteredSearches(b *testing.B) {
	s := openBench(b, "normal")
	storagetest.BenchmarkFilteredSearches(b, s, func(threads []*thread.Thread) {
		require.NoError(b, s.write(b.Context(), func(tx *Tx) error {
			for _, t := range threads {
				if err := tx.InsertThread(t); err != nil {
					return err
				}
			}
			return nil
		}))
	}, func() {})
}

package postgres

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/postgrestest"
	"understudy/storage/storagetest"
)

// A semantic search among ITEMS (10,000) items, with pgvector where initdb on PATH is of a Postgres that has it.
func BenchmarkNearest(b *testing.B) {
	count := 10_000
	if text := os.Getenv("ITEMS"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	storagetest.BenchmarkNearest(b, open(b, Options{URL: postgrestest.Database(b)}).Items(), count)
}

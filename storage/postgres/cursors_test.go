package postgres

import (
	"testing"

	"understudy/internal/postgrestest"
	"understudy/storage/storagetest"
)

// Servers that start at once on a new database agree on the key.
func TestCursorKey(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	storagetest.CursorKey(t, open(t, Options{URL: url}), open(t, Options{URL: url}))
}

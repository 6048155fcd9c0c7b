// Package migratedtest provides tests with databases of this version's schema, in a tenth of the time that migrating an empty one takes.
package migratedtest

import (
	"context"
	"testing"

	"understudy/internal/postgrestest"
	"understudy/storage/postgres"
)

// Database returns the address of a database that a store has opened and nothing else has used. It belongs to the test until that ends.
func Database(t testing.TB) string {
	t.Helper()
	return postgrestest.Prepared(t, "store", func(url string) error {
		s, err := postgres.Open(context.Background(), postgres.Options{URL: url})
		if err != nil {
			return err
		}
		return s.Close()
	})
}

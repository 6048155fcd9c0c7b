package storagetest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/cursor"
)

// Cursors is a storage that has the key of cursors.
type Cursors interface {
	CursorKey(ctx context.Context) ([]byte, error)
}

// CursorKey checks that all who ask stores of one database for the key of cursors get the same, also at once.
func CursorKey(t *testing.T, stores ...Cursors) {
	t.Helper()
	keys, errs := make([][]byte, 8*len(stores)), make([]error, 8*len(stores))
	var asking sync.WaitGroup
	for i := range keys {
		asking.Go(func() { keys[i], errs[i] = stores[i%len(stores)].CursorKey(t.Context()) })
	}
	asking.Wait()
	for i := range keys {
		require.NoError(t, errs[i])
		require.Len(t, keys[i], cursor.Size)
		require.Equal(t, keys[0], keys[i])
	}
}

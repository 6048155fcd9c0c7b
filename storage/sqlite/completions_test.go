package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/run"
	"understudy/storage/storagetest"
)

func TestSealCompletions(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Synchronous: "normal"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	storagetest.SealsCompletions(t, func(fn func(func(id.Run, *run.Completion) error) error) error {
		return s.write(t.Context(), func(tx *Tx) error { return fn(tx.PutCompletion) })
	}, s)
}

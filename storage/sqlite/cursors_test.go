package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/storage/storagetest"
)

func TestCursorKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir})
	require.NoError(t, err)
	storagetest.CursorKey(t, s)
	key, err := s.CursorKey(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, err = Open(t.Context(), Options{Dir: dir})
	require.NoError(t, err)
	again, err := s.CursorKey(t.Context())
	require.NoError(t, err)
	require.Equal(t, key, again)
	require.NoError(t, s.Close())
}

package moving

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
	"understudy/internal/postgrestest"
)

// A database of another program is named, and gets no tables of ours.
func TestOtherDatabases(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{DatabaseURL: postgrestest.Database(t)}
	for range 2 {
		_, err := OpenKeys(t.Context(), cfg, false, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "the database has nothing of this program: name another with --database-url")
		_, _, err = Rebuild(t.Context(), cfg, nil, nil, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "the database has nothing of this program")
	}
	keys, err := OpenKeys(t.Context(), cfg, true, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, keys.Close())
	keys, err = OpenKeys(t.Context(), cfg, false, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, keys.Close())
}

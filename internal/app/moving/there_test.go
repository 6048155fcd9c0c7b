package moving

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/internal/config"
	"understudy/internal/postgrestest"
)

// A database of another program is named, and gets no tables of ours.
func TestOtherDatabases(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Storage: config.Storage{DatabaseURL: postgrestest.Database(t)}}
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

// Whether a database is ours shows without reading its rows, which may be many, and whatever its schema.
func TestBusyAndOlderDatabasesAreOurs(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Storage: config.Storage{DatabaseURL: postgrestest.Database(t)}}
	keys, err := OpenKeys(t.Context(), cfg, true, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, keys.Close())
	conn, err := pgx.Connect(t.Context(), cfg.Storage.DatabaseURL)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "LOCK TABLE checkpoints, threads IN ACCESS EXCLUSIVE MODE") // reads of them wait
	require.NoError(t, err)
	require.NoError(t, IsThere(ctx, cfg))
	require.NoError(t, tx.Rollback(ctx))
	_, err = conn.Exec(ctx, "DELETE FROM understudy_migrations WHERE number > 1")
	require.NoError(t, err)
	require.NoError(t, IsThere(ctx, cfg))
	_, err = conn.Exec(ctx, "DELETE FROM understudy_migrations")
	require.NoError(t, err)
	require.NoError(t, IsThere(ctx, cfg))
}

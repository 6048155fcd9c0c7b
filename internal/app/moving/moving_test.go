package moving

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/internal/postgrestest"
	"understudy/store"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// TestMovingNamesTheDatabase: a database is told from that of LangGraph's savers, from one of somebody else, and from the one that is moved into.
func TestMovingNamesTheDatabase(t *testing.T) {
	address, empty := postgrestest.Database(t), postgrestest.Database(t)
	ours := &config.Config{DatabaseURL: address, DatabaseConnections: 3}
	file := filepath.Join(t.TempDir(), "out.sqlite")
	_, err := Export{To: file}.Run(t.Context(), ours)
	require.ErrorContains(t, err, "nothing of this program to export")
	folder := &config.Config{Data: t.TempDir()}
	rows, err := backend.Open(t.Context(), folder, backend.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	now := time.Now()
	require.NoError(t, rows.Items().Apply(t.Context(), []*store.Item{{Namespace: []string{"a"}, Key: "k", Value: []byte(`{"x":1}`), CreatedAt: now, UpdatedAt: now}}))
	require.NoError(t, rows.Close())

	in, err := Import{From: folder.Data}.Run(t.Context(), ours, nil)
	require.NoError(t, err)
	require.Equal(t, 1, in.Items.New)
	in, err = Import{From: address}.Run(t.Context(), &config.Config{Data: t.TempDir()}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, in.Items.New)
	out, err := Export{To: file}.Run(t.Context(), ours)
	require.NoError(t, err)
	require.Equal(t, 1, out.Items.New)
	require.Equal(t, in.Digest, out.Digest)

	_, err = Import{From: strings.Replace(address, "127.0.0.1", "localhost", 1)}.Run(t.Context(), ours, nil)
	require.ErrorContains(t, err, "this is the database itself")
	_, err = Import{From: empty}.Run(t.Context(), ours, nil)
	require.ErrorContains(t, err, "has no tables of LangGraph")
	_, err = Export{To: address}.Run(t.Context(), ours)
	require.ErrorContains(t, err, "is a database of understudy itself")
	_, err = Export{To: "http://h"}.Run(t.Context(), ours)
	require.ErrorContains(t, err, "run import there with this one as --from")
}

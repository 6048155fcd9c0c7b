package sqlite

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/storage/internal/relational"
	"understudy/storage/storagetest"
)

func TestPageSuite(t *testing.T) {
	t.Parallel()
	storagetest.RunPages(t, func(t *testing.T) storagetest.Backend {
		return backend(t, Options{Dir: t.TempDir(), Synchronous: "normal"})
	})
}

// A page costs what is on it: its seqs are in an index, in order.
func TestPlansOfPages(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
		for _, page := range [][2]relational.Statement{relational.SeqsOfThread, relational.SeqsOfType, relational.SeqsOfRun} {
			for _, order := range page {
				for _, step := range plan(t, c, order.SQLite) {
					require.NotContains(t, step, "TEMP B-TREE", order.SQLite)
					require.NotRegexp(t, fullScan, step, order.SQLite)
				}
			}
		}
		for _, text := range []string{relational.AllSeqsOfRun.SQLite, relational.Revisions.SQLite, relational.NewestRow.SQLite, relational.KnowsRun.SQLite, relational.SelectCompletion.SQLite, relational.MessagesOfRun.SQLite, relational.CallsOfRun.SQLite, relational.DropCalls.SQLite, relational.SpansOfRun.SQLite, relational.SelectOffset.SQLite, relational.NewestData.SQLite} {
			for _, step := range plan(t, c, text) {
				require.NotContains(t, step, "TEMP B-TREE", text)
				require.NotRegexp(t, fullScan, strings.TrimPrefix(step, "SCAN CONSTANT ROW"), text)
			}
		}
		for _, text := range []string{relational.SeqsOfType[0].SQLite, relational.SeqsOfRun[0].SQLite, relational.Revisions.SQLite} {
			for _, step := range plan(t, c, text) {
				require.Contains(t, step, "COVERING INDEX", text)
			}
		}
		return nil
	}))
}

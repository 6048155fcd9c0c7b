package sqlite

import (
	"context"
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
		for _, from := range []string{seqsOfThread, seqsOfType, seqsOfRun} {
			for _, order := range []string{pageOf, pageBefore} {
				for _, step := range plan(t, c, from+order) {
					require.NotContains(t, step, "TEMP B-TREE", from+order)
					require.NotRegexp(t, fullScan, step, from+order)
				}
			}
		}
		for _, text := range []string{allSeqsOfRun, revisions, newestRow, runIsKnown, runHasEvents, relational.SelectCompletion.SQLite, relational.MessagesOfRun.SQLite, relational.CallsOfRun.SQLite, relational.DropCalls.SQLite, relational.SelectOffset.SQLite, relational.NewestData.SQLite} {
			for _, step := range plan(t, c, text) {
				require.NotContains(t, step, "TEMP B-TREE", text)
				require.NotRegexp(t, fullScan, step, text)
			}
		}
		for _, text := range []string{seqsOfType + pageOf, seqsOfRun + pageOf, revisions} {
			for _, step := range plan(t, c, text) {
				require.Contains(t, step, "COVERING INDEX", text)
			}
		}
		return nil
	}))
}

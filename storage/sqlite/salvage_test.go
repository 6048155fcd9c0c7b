package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/run"
	"understudy/thread"
)

// filled makes a data folder with threads, and returns its database, closed.
func filled(t *testing.T, threads int) string {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir})
	require.NoError(t, err)
	for n := range threads {
		require.NoError(t, s.Runs().Write(t.Context(), func(tx run.Tx) error {
			return tx.InsertThread(&thread.Thread{ID: id.NewThread(), Status: thread.Idle, Metadata: fmt.Appendf(nil, `{"n":%d,"x":%q}`, n, strings.Repeat("x", n%5000))})
		}))
	}
	require.NoError(t, s.Close())
	return filepath.Join(dir, fileName)
}

// contents returns all rows of a database by table; of a damaged one what is read before the damage.
func contents(t *testing.T, path string) map[string][]string {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	require.NoError(t, err)
	defer conn.Close()
	tables, _, err := schemaOf(conn)
	require.NoError(t, err)
	all := map[string][]string{}
	for _, table := range tables {
		if table.virtual {
			continue
		}
		require.NoError(t, query(conn, fmt.Sprintf("SELECT * FROM %q", table.name), func(s *sqlite.Stmt) error {
			var row []string
			for i := range s.ColumnCount() {
				row = append(row, s.ColumnType(i).String()+s.ColumnText(i))
			}
			all[table.name] = append(all[table.name], strings.Join(row, "\x00"))
			return nil
		}))
	}
	return all
}

func salvaged(t *testing.T, path string) (copied string, lost []string) {
	t.Helper()
	copied = filepath.Join(t.TempDir(), fileName)
	lost, err := salvage(t.Context(), path, copied, func(int64, int64) {})
	require.NoError(t, err)
	_, err = checkDatabase(t.Context(), copied)
	require.NoError(t, err)
	return copied, lost
}

// Of an intact database everything is copied.
func TestSalvageOfAnIntactDatabase(t *testing.T) {
	t.Parallel()
	path := filled(t, 200)
	copied, lost := salvaged(t, path)
	require.Empty(t, lost)
	require.Equal(t, contents(t, path), contents(t, copied))
}

// Whatever pages are damaged: what is copied was there, only rows on damaged pages are missing, and a table that lacks some is named. A server opens the copy.
func TestSalvage(t *testing.T) {
	t.Parallel()
	const threads, page = 400, 4096
	path := filled(t, threads)
	intact, err := os.ReadFile(path)
	require.NoError(t, err)
	before := contents(t, path)
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		text := append([]byte{}, intact...)
		damaged := 1 + random.IntN(4)
		first := 60 * page // the pages before have the list of tables, without which nothing can be read
		for range damaged {
			at := first + random.IntN((len(text)-first)/page)*page
			for i := range page {
				text[at+i] = byte(random.Uint32())
			}
		}
		dir := t.TempDir()
		broken := filepath.Join(dir, fileName)
		require.NoError(t, os.WriteFile(broken, text, 0o600))
		copied, lost := salvaged(t, broken)
		after, missing := contents(t, copied), 0
		for table, rows := range after {
			require.Subset(t, before[table], rows, "seed %d: %s", seed, table)
		}
		for table, rows := range before {
			if len(after[table]) < len(rows) {
				require.Contains(t, lost, table, "seed %d", seed)
			}
			if table == "threads" {
				missing = len(rows) - len(after[table])
			}
		}
		// A leaf has some rows; a page that leads to leaves has those of many, but the key of each row is known elsewhere.
		require.Less(t, missing, threads/2, "seed %d", seed)

		to := filepath.Join(dir, "served")
		require.NoError(t, os.Mkdir(to, 0o700))
		require.NoError(t, os.Rename(copied, filepath.Join(to, fileName)))
		s, err := Open(context.Background(), Options{Dir: to})
		require.NoError(t, err, "seed %d", seed)
		require.NoError(t, s.Close())
	}
}

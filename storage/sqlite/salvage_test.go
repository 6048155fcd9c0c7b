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

// hasSchema reports whether the tables of a database can be listed, and its version read: without these nothing can be salvaged.
func hasSchema(t *testing.T, path string) bool {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	require.NoError(t, err)
	defer conn.Close()
	_, _, listed := schemaOf(conn)
	return listed == nil && exec(conn, "SELECT max(number) FROM schema_migrations") == nil
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

// Rows that break a rule of their table are left out, and named.
func TestSalvageOfRowsThatBreakRules(t *testing.T) {
	t.Parallel()
	path := filled(t, 3)
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	require.NoError(t, err)
	// As damage may: the schema says that a column has a value, and a row has none.
	for _, statement := range []string{
		"CREATE TABLE odd (id INTEGER PRIMARY KEY, x TEXT)", "INSERT INTO odd (x) VALUES ('a'), (NULL), ('b')", "PRAGMA writable_schema = ON",
		"UPDATE sqlite_schema SET sql = 'CREATE TABLE odd (id INTEGER PRIMARY KEY, x TEXT NOT NULL)' WHERE name = 'odd'",
	} {
		require.NoError(t, exec(conn, statement))
	}
	require.NoError(t, conn.Close())
	copied, lost := salvaged(t, path)
	require.Equal(t, []string{"odd"}, lost)
	require.Len(t, contents(t, copied)["odd"], 2)
}

// A copy whose version is not known could be opened by no server.
func TestSalvageWithoutAVersion(t *testing.T) {
	t.Parallel()
	path := filled(t, 3)
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	require.NoError(t, err)
	var page int64
	_, err = one(conn, "SELECT rootpage FROM sqlite_schema WHERE name = 'schema_migrations'", func(s *sqlite.Stmt) error { page = s.ColumnInt64(0); return nil })
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range int64(4096) {
		text[(page-1)*4096+i] = byte(i * 7)
	}
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err = salvage(t.Context(), path, filepath.Join(t.TempDir(), fileName), func(int64, int64) {})
	require.ErrorContains(t, err, "restore a backup from before the damage")
}

// Whatever pages are damaged: what is copied was there, only rows on damaged pages are missing, and a table that lacks some is named. A server opens the copy.
func TestSalvage(t *testing.T) {
	t.Parallel()
	const threads, page = 400, 4096
	path := filled(t, threads)
	intact, err := os.ReadFile(path)
	require.NoError(t, err)
	before := contents(t, path)
	tried, recovered := 0, 0
	for seed := uint64(0); tried < 12; seed++ {
		random := rand.New(rand.NewPCG(seed, 1))
		text := append([]byte{}, intact...)
		damaged := 1 + random.IntN(4)
		for range damaged {
			at := page + random.IntN(len(text)/page-1)*page
			for i := range page {
				text[at+i] = byte(random.Uint32())
			}
		}
		dir := t.TempDir()
		broken := filepath.Join(dir, fileName)
		require.NoError(t, os.WriteFile(broken, text, 0o600))
		if !hasSchema(t, broken) {
			continue
		}
		tried++
		copied, lost := salvaged(t, broken)
		after := contents(t, copied)
		recovered += len(after["threads"])
		for table, rows := range after {
			require.Subset(t, before[table], rows, "seed %d: %s", seed, table)
		}
		for table, rows := range before {
			if len(after[table]) < len(rows) {
				require.Contains(t, lost, table, "seed %d", seed)
			}
		}

		to := filepath.Join(dir, "served")
		require.NoError(t, os.Mkdir(to, 0o700))
		require.NoError(t, os.Rename(copied, filepath.Join(to, fileName)))
		s, err := Open(context.Background(), Options{Dir: to})
		require.NoError(t, err, "seed %d", seed)
		require.NoError(t, s.Close())
	}
	// A damaged page costs the rows on it; one that leads to others, now and then, those of many.
	require.Greater(t, recovered, tried*threads/2)
}

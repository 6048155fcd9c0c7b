package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/run"
	"understudy/run/usage"
	"understudy/storage/storagetest"
	"understudy/thread"
)

// tables returns the tables of a database with their columns and types.
func tables(t *testing.T, conn *sqlite.Conn) map[string][][2]string {
	t.Helper()
	out := map[string][][2]string{}
	require.NoError(t, query(conn, "SELECT m.name, c.name, c.type FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name NOT LIKE 'message_words%' ORDER BY m.name, c.cid",
		func(s *sqlite.Stmt) error {
			out[s.ColumnText(0)] = append(out[s.ColumnText(0)], [2]string{s.ColumnText(1), s.ColumnText(2)})
			return nil
		}))
	return out
}

// values fit where a column of such a name is read; all others are made of their type.
var values = map[string]string{
	"thread_id": "'t'", "run_id": "'r'", "assistant_id": "'a'", "checkpoint_id": "'1'", "checkpoint_ns": "''", "status": "'success'", "namespace": "'n'",
	"checkpoint": "CAST('{\"channel_versions\":{\"c\":\"1\"}}' AS BLOB)", "channel": "'c'", "version": "'1'", "type": "'msgpack'", "blob": "x'c0'", "expires_at": "4102444800000000",
	"cancel": "''", "cron_id": "''", "layout": "'compact'", "first_seq": "0", "kwargs_digest": "x''",
}

// made are tables whose rows are there from the beginning, or stand for threads that are gone.
var made = map[string]bool{"schema_migrations": true, "checkpoint_migrations": true, "meta": true, "thread_remains": true, "thread_copies": true}

// TestMigrationFromEverySchema puts a row into each table of each schema that there was, and opens
// the database: the rows are there, and are read.
func TestMigrationFromEverySchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	steps := migrations()
	for n := 1; n <= len(steps); n++ {
		t.Run(steps[n-1].name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			conn, err := connect(filepath.Join(dir, fileName), true, "normal")
			require.NoError(t, err)
			require.NoError(t, migrate(ctx, conn, steps[:n], slog.New(slog.DiscardHandler)))
			before := tables(t, conn)
			for _, table := range slices.Sorted(maps.Keys(before)) { // items before their vectors
				columns := before[table]
				if made[table] {
					continue
				}
				var names, row []string
				for _, c := range columns {
					value, ok := values[c[0]]
					switch {
					case c[0] == "version" && c[1] == "INTEGER":
						value = "1"
					case !ok && c[1] == "INTEGER":
						value = "1"
					case !ok && c[1] == "TEXT":
						value = "'x'"
					case !ok:
						value = "CAST('{}' AS BLOB)"
					}
					names, row = append(names, c[0]), append(row, value)
				}
				require.NoError(t, exec(conn, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(row, ", "))), table)
			}
			require.NoError(t, conn.Close())

			s, err := Open(ctx, Options{Dir: dir})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			require.NoError(t, s.read(ctx, func(c *sqlite.Conn) error {
				after := tables(t, c)
				for table := range before {
					if after[table] == nil || made[table] {
						continue // it became part of another
					}
					if table == "usage_ended" {
						continue // it was dropped, and made again
					}
					found, err := one(c, "SELECT 1 FROM "+table, nil)
					require.NoError(t, err)
					require.True(t, found, "the row of %s", table)
				}
				return nil
			}))
			list, err := s.Threads().Threads(ctx, thread.Query{})
			require.NoError(t, err)
			require.Len(t, list, 1)
			runs, err := s.Runs().Runs(ctx, "t", run.Query{})
			require.NoError(t, err)
			require.Len(t, runs, 1)
			at, err := s.LoadCheckpoint(ctx, checkpointer.Key{Thread: "t"})
			require.NoError(t, err)
			require.Len(t, at.Blobs, 1)
			require.Len(t, at.Writes, 1)
			item, err := s.Items().Item(ctx, []string{"n"}, "x")
			require.NoError(t, err)
			require.NotNil(t, item)
			if before["events"] != nil {
				events, err := s.Events(ctx, "t", 0, 0)
				require.NoError(t, err)
				require.Len(t, events, 1)
			}
			require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.DeleteThread("t") }))
		})
	}
}

// What runs used counts once, whatever the version before the follower had done with it.
func TestUsageOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backend(t, Options{Dir: dir})
	storagetest.UsageUpgrade(t, b, func(listed []usage.Ended) {
		conn, err := connect(filepath.Join(dir, fileName), true, "normal")
		require.NoError(t, err)
		run := func(script string) { require.NoError(t, sqlitex.ExecuteScript(conn, script, nil), script) }
		run("DELETE FROM log_offsets")
		for _, e := range listed {
			sums, err := json.Marshal(e.Sums)
			require.NoError(t, err)
			run(fmt.Sprintf("INSERT INTO usage_ended (identity, day, sums, run_id) VALUES ('%s', %d, CAST('%s' AS BLOB), '%s')", e.Identity, e.Day, sums, e.Run))
		}
		for _, m := range migrations() {
			if strings.Contains(m.name, "usage_follower") || strings.Contains(m.name, "usage_ended") {
				run(m.script)
			}
		}
		require.NoError(t, conn.Close())
	})
}

// A row of the list of deleted runs that cannot be read is reported once, and is in the way of no other.
func TestDamagedRowOfDeletedRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backend(t, Options{Dir: dir})
	conn, err := connect(filepath.Join(dir, fileName), true, "normal")
	require.NoError(t, err)
	for run, sums := range map[string]string{"a": `[{"kind":"all","runs":1}]`, "broken": `[{`, "z": `[]`} {
		require.NoError(t, exec(conn, "INSERT INTO usage_ended (identity, day, sums, run_id) VALUES ('', 1, CAST(? AS BLOB), ?)", sums, run))
	}
	require.NoError(t, conn.Close())
	counted, err := b.Usage.CountRuns(t.Context(), nil, nil)
	require.NoError(t, err)
	require.Equal(t, 2, counted.Runs)
	require.Len(t, counted.Unread, 1)
	require.ErrorContains(t, counted.Unread["broken"], "what it used")
	counted, err = b.Usage.CountRuns(t.Context(), nil, nil)
	require.NoError(t, err)
	require.Equal(t, usage.Counted{}, counted)
}

// A run whose arguments cannot be decrypted is not counted, and is in the way of no other.
func TestUsageOfDamagedRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backend(t, Options{Dir: dir, Keys: [][]byte{[]byte("0123456789abcdef")}})
	storagetest.UsageOfDamagedRuns(t, b, func(r id.Run) {
		conn, err := connect(filepath.Join(dir, fileName), true, "normal")
		require.NoError(t, err)
		require.NoError(t, exec(conn, "UPDATE run_kwargs SET config = CAST((substr(options, 1, length(options) - 3) || x'001122') AS BLOB) WHERE run_id = ?", string(r)))
		require.NoError(t, conn.Close())
	})
}

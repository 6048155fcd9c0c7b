package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/storage/internal/relational"
	"understudy/storage/storagetest"
	"understudy/thread"
)

// What a server from before lists were in the index does to threads meanwhile: it moves, adds and removes rows of scalars only, and leaves the others where they are.
// Searches find the same as always, in order, also after the thread is written or listed by a server of now.
func TestListsWithOlderServers(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx := context.Background()
	for n := range 6 {
		require.NoError(t, s.write(ctx, func(tx *Tx) error {
			row := someThread(n)
			row.Metadata = []byte(`{"members":["ada","ben"],"n":1}`)
			return tx.InsertThread(row)
		}))
	}
	old := func(n int, metadata string, minutes int) {
		text := fmt.Sprintf("UPDATE threads SET metadata = $2, updated_at = updated_at + %d WHERE thread_id = $1", minutes*60_000_000)
		_, err := s.pool.Exec(ctx, text, someThread(n).ID, []byte(metadata))
		require.NoError(t, err)
	}
	found := func(who string) (out []id.Thread) {
		filter, err := access.ParseFilter([]byte(`{"members":{"$contains":"` + who + `"}}`))
		require.NoError(t, err)
		list, err := s.Threads().Threads(access.Narrow(ctx, access.Threads, filter), thread.Query{})
		require.NoError(t, err)
		for _, row := range list {
			out = append(out, row.ID)
		}
		return out
	}
	ids := func(list ...int) (out []id.Thread) {
		for _, n := range list {
			out = append(out, someThread(n).ID)
		}
		return out
	}
	require.Len(t, found("ada"), 6)

	old(0, `{"members":["ada","ben"],"n":1}`, 400)        // moved
	old(1, `{"members":["ben"],"n":1}`, 300)              // removed
	old(2, `{"members":["ada","ben","cleo"],"n":1}`, 200) // added
	old(3, `{"members":["ada"],"n":1}`, 100)              // written by a server of now afterwards
	_, err := s.pool.Exec(ctx, "DELETE FROM threads WHERE thread_id = ANY($1)", []string{string(someThread(4).ID), string(someThread(5).ID)})
	require.NoError(t, err)
	require.NoError(t, s.write(ctx, func(tx *Tx) error {
		row, err := tx.Thread(someThread(3).ID)
		if err != nil {
			return err
		}
		row.UpdatedAt = row.UpdatedAt.Add(time.Minute)
		row.Status = thread.Busy
		return tx.UpdateThread(row)
	}))
	check := func() {
		t.Helper()
		require.Equal(t, ids(0, 2, 3), found("ada"))
		require.Equal(t, ids(0, 1, 2), found("ben"))
		require.Equal(t, ids(2), found("cleo"))
	}
	check()
	n, err := s.Threads().ListThreads(ctx, func() bool { return true })
	require.NoError(t, err)
	require.Equal(t, 3, n)
	check()
	n, err = s.Threads().ListThreads(ctx, func() bool { return true })
	require.NoError(t, err)
	require.Zero(t, n)
	var stale int
	require.NoError(t, s.pool.QueryRow(ctx, "SELECT count(*) FROM threads t WHERE listed IS DISTINCT FROM updated_at").Scan(&stale))
	require.Zero(t, stale)
}

// read matches the pages that a plan has read.
var read = regexp.MustCompile(`Buffers: shared hit=(\d+)`)

// What a search by an item of a list reads does not grow with the number of threads, although Postgres does not know that all of them are listed.
func TestSearchesByItemsDoNotScan(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	s, conn := open(t, Options{URL: address}), connect(t, address)
	ctx := context.Background()
	insert := func(from, to int) {
		require.NoError(t, s.write(ctx, func(tx *Tx) error {
			for n := from; n < to; n++ {
				if err := tx.InsertThread(storagetest.FilteredThread(n)); err != nil {
					return err
				}
			}
			return nil
		}))
		execAll(t, conn, "VACUUM ANALYZE threads, thread_metadata")
	}
	pages := func(text string, args ...any) int {
		for i, arg := range args {
			text = strings.ReplaceAll(text, fmt.Sprint("$", i+1), fmt.Sprintf("'%v'", arg))
		}
		rows, err := conn.Query(ctx, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) "+text, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, text)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, text)
		found := read.FindStringSubmatch(strings.Join(lines, "\n"))
		require.NotNil(t, found, "%s", lines)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	measure := func() (out []int) {
		out = append(out, pages(relational.CountUnlisted.Postgres, 1))
		for _, source := range []string{`{"members":{"$contains":"u14"}}`, `{"$or":[{"owner":"u14"},{"members":{"$contains":"u14"}}]}`} {
			filter, err := access.ParseFilter([]byte(source))
			require.NoError(t, err)
			require.NoError(t, s.snapshot(ctx, func(q *reader) error {
				plan, err := relational.PlanThreads(q, thread.Query{}, filter, nil)
				if err == nil {
					out = append(out, pages(plan.Text.Postgres+" LIMIT 10", plan.Args()...))
				}
				return err
			}))
		}
		return out
	}
	insert(0, 4000)
	before := measure()
	insert(4000, 8000)
	for i, n := range measure() {
		require.LessOrEqual(t, n, before[i]*3/2+5, "search %d", i)
	}
}

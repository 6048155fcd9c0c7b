package postgrestest_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/internal/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// The next test finds what was prepared, whatever the one before has done; a database with another schema is prepared anew.
func TestPrepared(t *testing.T) {
	preparations := 0
	prepare := func(url string) error {
		preparations++
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		_, err = conn.Exec(t.Context(), `CREATE TABLE parents (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz DEFAULT now(), data bytea, note jsonb);
			CREATE TABLE "Children" (parent bigint REFERENCES parents, "a name" text);
			INSERT INTO parents (data, note) VALUES ('\x00ff', '{"a": [1, null]}'), (NULL, NULL); INSERT INTO "Children" VALUES (2, 'it''s "one"')`)
		return err
	}
	var first string
	for _, step := range []struct {
		change       string
		preparations int // before it
	}{
		{`INSERT INTO parents (data) VALUES ('x'); DELETE FROM "Children"; INSERT INTO "Children" VALUES (3, 'of 3')`, 1},
		{`DELETE FROM "Children"; DELETE FROM parents`, 1},
		{`TRUNCATE parents CASCADE`, 1},
		{`INSERT INTO "Children" SELECT 1, repeat('x', 100) FROM generate_series(1, 10000)`, 1},
		{`CREATE TABLE more (a int)`, 1},
		{`ALTER TABLE parents ADD COLUMN more int`, 2},
		{`CREATE INDEX ON parents (at)`, 3},
		{`DROP INDEX IF EXISTS parents_at_idx; ALTER TABLE parents ALTER COLUMN data SET NOT NULL`, 4},
		{`ALTER TABLE parents ADD CHECK (id < 100)`, 4}, // the statement before failed: there are rows without data
		{`CREATE SCHEMA other; CREATE TABLE other.parents (a int)`, 5},
		{`CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'`, 6},
		{`SELECT 1`, 7},
	} {
		t.Run(step.change, func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), postgrestest.Prepared(t, "parents", prepare))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
			require.Equal(t, step.preparations, preparations)
			var rows string
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT json_build_array((SELECT json_agg(json_build_array(id, at IS NULL, data, note) ORDER BY id) FROM parents),
				(SELECT json_agg(c) FROM "Children" c), nextval('parents_id_seq'))`).Scan(&rows))
			if first == "" {
				first = rows
			}
			require.Equal(t, first, rows)
			_, _ = conn.Exec(t.Context(), step.change) // one of them fails
		})
	}
}

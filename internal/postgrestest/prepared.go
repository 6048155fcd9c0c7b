package postgrestest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// prepared is a database that a function has filled, and that tests give back.
type prepared struct {
	name   string
	schema string            // says whether a test has changed it
	rows   map[string]string // of each table that has some: a JSON array of them
	counts map[string]*int64 // of each sequence: the last number; nil: none was taken
}

var (
	unusedMu sync.Mutex
	unused   = map[string][]*prepared{} // by kind
)

// Prepared returns the address of a database as prepare leaves an empty one, which may only migrate it. It belongs to the test until that ends. Databases
// of one kind are prepared alike, and most of them not at all: deleting the rows that another test has left takes a tenth of the time. A database whose
// schema its test has changed is not used as one again.
func Prepared(t testing.TB, kind string, prepare func(url string) error) string {
	t.Helper()
	s := cluster(t)
	if d := take(kind); d != nil {
		t.Cleanup(func() { s.giveBack(t, kind, d) })
		return s.Address(d.name)
	}
	d := &prepared{name: s.create(t)}
	t.Cleanup(func() { s.giveBack(t, kind, d) })
	if err := prepare(s.Address(d.name)); err != nil {
		t.Fatal("prepare the database of the test:", err)
	}
	if err := s.connected(t.Context(), d.name, d.learn); err != nil {
		t.Fatal("read the prepared database of the test:", err)
	}
	return s.Address(d.name)
}

func take(kind string) *prepared {
	unusedMu.Lock()
	defer unusedMu.Unlock()
	free := unused[kind]
	if len(free) == 0 {
		return nil
	}
	d := free[len(free)-1]
	unused[kind] = free[:len(free)-1]
	return d
}

// giveBack lets another test of the kind have a database, or, when its schema has changed, any test, empty.
func (s *Server) giveBack(t testing.TB, kind string, d *prepared) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if d.schema == "" || s.connected(ctx, d.name, d.reset) != nil {
		s.clear(t, d.name)
		return
	}
	unusedMu.Lock()
	defer unusedMu.Unlock()
	unused[kind] = append(unused[kind], d)
}

// definitions is a text that differs after a change of the schema: rows of the catalog say which transaction has written them.
const definitions = `SELECT concat_ws(' ',
	(SELECT count(*) || ':' || max(xmin::text::bigint) FROM pg_attribute WHERE attrelid >= 16384),
	(SELECT count(*) || ':' || max(xmin::text::bigint) FROM pg_index WHERE indexrelid >= 16384),
	(SELECT count(*) || ':' || max(xmin::text::bigint) FROM pg_constraint WHERE oid >= 16384),
	(SELECT count(*) || ':' || max(xmin::text::bigint) FROM pg_trigger WHERE oid >= 16384),
	(SELECT count(*) || ':' || max(xmin::text::bigint) FROM pg_proc WHERE oid >= 16384),
	(SELECT count(*) || ':' || max(xmin::text::bigint) FROM pg_namespace),
	(SELECT count(*) FROM pg_class WHERE oid >= 16384), (SELECT count(*) FROM pg_extension), (SELECT count(*) FROM pg_publication),
	(SELECT concat(datacl, datconnlimit) FROM pg_database WHERE datname = current_database()),
	(SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE datname = current_database()))`

// learn reads what reset needs.
func (d *prepared) learn(ctx context.Context, conn *pgx.Conn) error {
	d.rows, d.counts = map[string]string{}, map[string]*int64{}
	rows, _ := conn.Query(ctx, "SELECT format('%I', tablename) FROM pg_tables WHERE schemaname = 'public'") // its error is that of the rows
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, table := range tables {
		var text *string
		if err := conn.QueryRow(ctx, "SELECT json_agg(t)::text FROM "+table+" t").Scan(&text); err != nil {
			return err
		}
		if text != nil {
			d.rows[table] = *text
		}
	}
	rows, _ = conn.Query(ctx, "SELECT format('%I', sequencename), last_value FROM pg_sequences WHERE schemaname = 'public'")
	var name string
	var last *int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &last}, func() error {
		d.counts[name] = last
		return nil
	}); err != nil {
		return err
	}
	return conn.QueryRow(ctx, definitions).Scan(&d.schema)
}

// reset makes the database as learn has read it.
func (d *prepared) reset(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, alone); err != nil {
		return err
	}
	var schema string
	if err := conn.QueryRow(ctx, definitions).Scan(&schema); err != nil {
		return err
	}
	if schema != d.schema {
		return fmt.Errorf("the schema has changed from %s to %s", d.schema, schema)
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// A large table is truncated: deleted rows are only marked so, and still read.
		if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica;
			DO $$ DECLARE name text; large bool; BEGIN
				FOR name, large IN SELECT oid::regclass, pg_relation_size(oid) > 65536 FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
					EXECUTE CASE WHEN large THEN 'TRUNCATE ' || name || ' CASCADE' ELSE 'DELETE FROM ' || name END;
				END LOOP;
			END $$`); err != nil {
			return err
		}
		for name, last := range d.counts {
			if _, err := tx.Exec(ctx, "SELECT setval($1::text::regclass, coalesce($2, 1), $2 IS NOT NULL)", name, last); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
		for table, text := range d.rows {
			if _, err := tx.Exec(ctx, "INSERT INTO "+table+" OVERRIDING SYSTEM VALUE SELECT * FROM json_populate_recordset(NULL::"+table+", $1)", text); err != nil {
				return fmt.Errorf("insert into %s: %w", table, err)
			}
		}
		return nil
	})
}

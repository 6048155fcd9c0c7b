package postgres

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"understudy/storage/internal/progress"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

//go:embed langgraph.sql
var langgraphTables string

// migration is one step of the schema. A released one is never edited; the schema changes by another. Older instances are at work while it
// runs and after it: docs/storage.md says what a step may do.
type migration struct {
	number int
	name   string
	script string
	// index is set for a step that makes this index and nothing else, without keeping writers of its table away.
	index string
}

// aside is a step that makes an index beside the work of others. It cannot be part of a transaction.
var aside = regexp.MustCompile(`^(?:--[^\n]*\n|\s)*CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+) ON [^;]*;\s*$`)

// migrations are the steps in order: files named 0001_what.sql, without gaps.
func migrations() []migration {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	if err != nil {
		panic(err)
	}
	var steps []migration
	for i, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
		if !strings.HasPrefix(name, fmt.Sprintf("%04d_", i+1)) {
			panic(fmt.Sprintf("postgres: migration %s is not number %d", file, i+1))
		}
		script, err := migrationFiles.ReadFile(file)
		if err != nil {
			panic(err)
		}
		steps = append(steps, newMigration(i+1, name, string(script)))
	}
	return steps
}

func newMigration(number int, name, script string) migration {
	m := migration{number: number, name: name, script: script}
	if found := aside.FindStringSubmatch(script); found != nil {
		m.index = found[1]
	} else if strings.Contains(script, "CONCURRENTLY") {
		panic(fmt.Sprintf("postgres: migration %s makes an index CONCURRENTLY beside other statements", name))
	}
	return m
}

const (
	tryMigrations = "SELECT pg_try_advisory_xact_lock(1970170995, 0)"
	hasTable      = "SELECT to_regclass($1) IS NOT NULL"
	hasColumn     = "SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped)"
	lastMigration = "SELECT number, name FROM understudy_migrations ORDER BY number DESC LIMIT 1"
	// brokenIndex: making it was interrupted.
	brokenIndex = "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid)"
)

// stepTimes says how patient a migration is.
type stepTimes struct {
	// lock is how long a step waits for a table that others use. All who come after it wait too, so it is short; then it is tried again.
	lock time.Duration
	// give is after how long it is given up to get the tables, or to wait for another instance that migrates.
	give time.Duration
}

var patience = stepTimes{lock: 2 * time.Second, give: 30 * time.Minute}

// migrator takes a database to the last of the steps.
type migrator struct {
	conn  *pgx.Conn
	steps []migration
	opts  Options
	times stepTimes
}

// prepare brings the schema up to date, each step in a transaction of its own with its record, and gives the layout. A lock keeps other
// instances from doing the same at once; those that serve go on.
func prepare(ctx context.Context, conn *pgx.Conn, steps []migration, opts Options) (layout string, err error) {
	m := migrator{conn: conn, steps: steps, opts: opts, times: patience}
	if err := m.run(ctx); err != nil {
		return "", err
	}
	if err := conn.QueryRow(ctx, "SELECT value FROM meta WHERE key = 'layout'").Scan(&layout); err != nil {
		return "", fmt.Errorf("layout: %w", err)
	}
	if layout != layoutCompact && layout != layoutLangGraph {
		return "", fmt.Errorf("the database has layout %q, which this version does not know", layout)
	}
	return layout, nil
}

func (m *migrator) run(ctx context.Context) error {
	if err := refuseServer(ctx, m.conn); err != nil {
		return err
	}
	if err := checkSearchPath(ctx, m.conn); err != nil {
		return err
	}
	// Who finds nothing to do needs no rights to change the schema, and waits for nobody.
	at, err := m.at(ctx, m.conn)
	if err != nil || at == len(m.steps) {
		return err
	}
	if at > 0 {
		m.opts.Logger.InfoContext(ctx, "migrating the database", "from", at, "to", len(m.steps))
	}
	ctx, cancel := context.WithTimeout(ctx, m.times.give)
	defer cancel()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, 2*time.Second
	for done := false; !done; {
		var alone bool
		err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) (err error) {
			alone, done, err = m.next(ctx, tx)
			return err
		})
		switch {
		case err == nil && alone:
			pause.Reset()
			continue
		case ctx.Err() != nil:
			return m.late(ctx, err)
		case err != nil && !isLockTimeout(err):
			return fmt.Errorf("migrate: %w", err)
		}
		m.opts.Logger.InfoContext(ctx, "migration waiting: another server migrates, or a long transaction locks a table", "migrating", alone)
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return m.late(ctx, err)
		}
	}
	return nil
}

// late is the error of a migration whose context has ended; err is what the last attempt returned.
func (m *migrator) late(ctx context.Context, err error) error {
	err = cmp.Or(err, context.Cause(ctx))
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("migrate: %w", err)
	}
	return fmt.Errorf("migrate: not finished within %s: another server migrates, or a long transaction locks a table: %w", m.times.give, err)
}

// isLockTimeout reports whether others had what a statement wanted to lock.
func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01")
}

// at gives the number of the last step that was done; 0 when there was none.
func (m *migrator) at(ctx context.Context, q interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}) (at int, err error) {
	var found bool
	if err := q.QueryRow(ctx, hasTable, "understudy_migrations").Scan(&found); err != nil || !found {
		return 0, err
	}
	var name string
	if err := q.QueryRow(ctx, lastMigration).Scan(&at, &name); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, err
	}
	if at > len(m.steps) {
		return 0, fmt.Errorf("the database was written by a newer version of this program (schema %d, %q; this version knows %d): "+
			"use that version, or a backup from before", at, name, len(m.steps))
	}
	return at, nil
}

// next does the next step, if no other instance has the lock; done says that there is none. The lock is not waited for: a transaction that
// waits would hold up one that makes an index.
func (m *migrator) next(ctx context.Context, tx pgx.Tx) (alone, done bool, err error) {
	// The timeouts of the session are for service; a step may take longer, but must not keep others waiting.
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = %d",
		m.times.lock.Milliseconds())); err != nil {
		return false, false, err
	}
	if err := tx.QueryRow(ctx, tryMigrations).Scan(&alone); err != nil || !alone {
		return false, false, err
	}
	if err := m.makeSchema(ctx, tx); err != nil {
		return true, false, err
	}
	if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS understudy_migrations (
		number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())`); err != nil {
		return true, false, err
	}
	at, err := m.at(ctx, tx)
	if err != nil || at == len(m.steps) {
		return true, err == nil, err
	}
	step := m.steps[at]
	defer progress.Watch(ctx, m.opts.Logger, "database migration", "step", step.name, "of", len(m.steps))()
	if err := m.do(ctx, tx, step); err != nil {
		return true, false, fmt.Errorf("to %s: %w", step.name, err)
	}
	_, err = tx.Exec(ctx, "INSERT INTO understudy_migrations (number, name) VALUES ($1, $2)", step.number, step.name)
	return true, false, err
}

// makeSchema makes Options.Schema when it is missing. Postgres checks the right to make schemas first, and a role that was given one of
// its own rarely has it, so IF NOT EXISTS is not enough.
func (m *migrator) makeSchema(ctx context.Context, tx pgx.Tx) error {
	if m.opts.Schema == "" {
		return nil
	}
	var found bool
	if err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", pgx.Identifier{m.opts.Schema}.Sanitize()).Scan(&found); err != nil || found {
		return err
	}
	_, err := tx.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{m.opts.Schema}.Sanitize())
	return err
}

func (m *migrator) do(ctx context.Context, tx pgx.Tx, step migration) error {
	if step.index != "" {
		// A row that was read leaves its snapshot behind, which the index would wait for, and for ever: a statement without arguments lets go of it.
		if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
			return err
		}
		return m.makeIndex(ctx, step)
	}
	if step.number > 1 {
		_, err := tx.Exec(ctx, step.script)
		return err
	}
	layout, err := adopt(ctx, tx, m.opts.Layout)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, step.script); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('layout', $1)", layout)
	return err
}

// makeIndex makes an index on a connection of its own, beside the transaction that has the lock. What an attempt left that was interrupted is
// dropped first.
func (m *migrator) makeIndex(ctx context.Context, step migration) error {
	conn, err := pgx.ConnectConfig(ctx, m.conn.Config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it holds nothing
	// It may take hours, and waits without keeping anybody from the table.
	if _, err := conn.Exec(ctx, "SET statement_timeout = 0; SET lock_timeout = 0"); err != nil {
		return err
	}
	var broken, found bool
	if err := conn.QueryRow(ctx, brokenIndex, step.index).Scan(&broken); err != nil {
		return err
	}
	if broken {
		if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY "+step.index); err != nil {
			return err
		}
	}
	// Its record is made after it: an instance that was killed in between has made it already.
	if err := conn.QueryRow(ctx, hasTable, step.index).Scan(&found); err != nil || found {
		return err
	}
	_, err = conn.Exec(ctx, step.script, pgx.QueryExecModeSimpleProtocol)
	return err
}

// adopt makes the tables of langgraph-checkpoint-postgres, or takes those that are there as they are. It gives the layout.
func adopt(ctx context.Context, tx pgx.Tx, wanted string) (layout string, err error) {
	var found, current bool
	if err := tx.QueryRow(ctx, hasTable, "checkpoints").Scan(&found); err != nil {
		return "", err
	}
	if found {
		if err := tx.QueryRow(ctx, hasColumn, "checkpoint_writes", "task_path").Scan(&current); err != nil {
			return "", err
		}
		if !current {
			return "", errors.New("the tables of langgraph-checkpoint-postgres in the database are of an old version: " +
				"call setup() of a current PostgresSaver on it once, then start again")
		}
		if wanted == layoutCompact {
			return "", errors.New("the database has tables of langgraph-checkpoint-postgres, which Python programs may read: its layout is langgraph")
		}
		return layoutLangGraph, nil
	}
	if wanted == "" {
		wanted = layoutCompact
	}
	_, err = tx.Exec(ctx, langgraphTables)
	return wanted, err
}

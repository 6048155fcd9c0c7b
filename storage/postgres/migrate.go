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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"understudy/internal/loop"
	"understudy/storage/internal/progress"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

//go:embed langgraph.sql
var langgraphTables string

// migration is one step of the schema. A released one is never edited; a new step changes the
// schema. Older servers work while it runs and after it: docs/storage.md says what a step may do.
type migration struct {
	number int
	name   string
	script string
	// index is set for a step that only creates this index, without blocking writers of its table.
	index string
}

// aside matches a step that creates an index concurrently, which cannot be part of a transaction.
var aside = regexp.MustCompile(`^(?:--[^\n]*\n|\s)*CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+) ON [^;]*;\s*$`)

// migrations returns the steps in order: files named 0001_what.sql, without gaps.
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

// newMigration parses whether the step is an index.
func newMigration(number int, name, script string) migration {
	m := migration{number: number, name: name, script: script}
	if found := aside.FindStringSubmatch(script); found != nil {
		m.index = found[1]
	} else if strings.Contains(script, "CONCURRENTLY") {
		panic(fmt.Sprintf("postgres: migration %s makes an index CONCURRENTLY next to other statements", name))
	}
	return m
}

const (
	tryMigrations = "SELECT pg_try_advisory_xact_lock(1970170995, 0)"
	hasTable      = "SELECT to_regclass($1) IS NOT NULL"
	hasColumn     = "SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped)"
	lastMigration = "SELECT number, name FROM understudy_migrations ORDER BY number DESC LIMIT 1"
	// brokenIndex: creating the index was interrupted.
	brokenIndex = "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid)"
)

// stepTimes bounds the waits of a migration.
type stepTimes struct {
	// lock is how long a step waits for a table that others use. Everyone who comes later waits
	// behind the step, so it is short, and the step is tried again.
	lock time.Duration
	// give is how long the migration tries to get the tables, or waits for another server that
	// migrates.
	give time.Duration
	// quiet is how long it waits without a word: servers that are started together on a new
	// database wait for the first of them, which takes an instant.
	quiet time.Duration
}

// patience is used outside of tests.
var patience = stepTimes{lock: 2 * time.Second, give: 30 * time.Minute, quiet: 2 * time.Second}

// migrator brings a database to the last step.
type migrator struct {
	conn  *pgx.Conn
	steps []migration
	opts  Options
	times stepTimes
}

// prepare migrates the schema, each step in a transaction with its record, and returns the layout.
// A lock lets one server migrate at a time; servers that already serve continue.
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

// run does the missing steps, if any.
func (m *migrator) run(ctx context.Context) error {
	if err := refuseServer(ctx, m.conn); err != nil {
		return err
	}
	if err := checkSearchPath(ctx, m.conn); err != nil {
		return err
	}
	// A start without missing steps needs no rights to change the schema, and waits for no lock.
	at, err := m.at(ctx, m.conn)
	if err != nil || at == len(m.steps) {
		return err
	}
	if at > 0 {
		m.opts.Logger.InfoContext(ctx, "migrating the database", "from", at, "to", len(m.steps))
	}
	ctx, cancel := context.WithTimeout(ctx, m.times.give)
	defer cancel()
	pause := loop.NewBackoff(20*time.Millisecond, 2*time.Second)
	since := time.Now()
	for done := false; !done; {
		var alone bool
		err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) (err error) {
			alone, done, err = m.next(ctx, tx)
			return err
		})
		switch {
		case err == nil && alone:
			pause.Reset()
			since = time.Now()
			continue
		case ctx.Err() != nil:
			return m.late(ctx, err)
		case err != nil && !isLockTimeout(err):
			return fmt.Errorf("migrate: %w", err)
		}
		if waited := time.Since(since); waited >= m.times.quiet {
			m.opts.Logger.InfoContext(ctx, "migration waiting: another server migrates, or a long transaction locks a table", "migrating", alone, "waited", waited.Round(time.Second).String())
		}
		if !pause.Sleep(ctx) {
			return m.late(ctx, err)
		}
	}
	return nil
}

// late returns the error of a migration whose context has ended; err is from the last attempt.
func (m *migrator) late(ctx context.Context, err error) error {
	err = cmp.Or(err, context.Cause(ctx))
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("migrate: %w", err)
	}
	return fmt.Errorf("migrate: not finished within %s: another server migrates, or a long transaction locks a table: %w", m.times.give, err)
}

// isLockTimeout reports whether other sessions held what a statement wanted to lock.
func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01")
}

// at returns the number of the last step done; 0 if none.
func (m *migrator) at(ctx context.Context, q interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
},
) (at int, err error) {
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

// next does the next step, unless another server holds the lock; done reports that none is left.
// It does not wait for the lock: a waiting transaction would block one that creates an index
// concurrently.
func (m *migrator) next(ctx context.Context, tx pgx.Tx) (alone, done bool, err error) {
	// The session's timeouts are for serving. A step may take longer, but must not make others
	// wait.
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

// makeSchema creates Options.Schema if it is missing. Postgres checks the right to create schemas
// before IF NOT EXISTS, and a role with a schema of its own rarely has it.
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

// do executes a step and records it.
func (m *migrator) do(ctx context.Context, tx pgx.Tx, step migration) error {
	if step.index != "" {
		// A row that was read leaves a snapshot, for which creating an index concurrently would wait
		// forever. A statement without arguments releases it.
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

// makeIndex creates an index on its own connection, while another transaction holds the lock. It
// first drops what an interrupted attempt left.
func (m *migrator) makeIndex(ctx context.Context, step migration) error {
	conn, err := pgx.ConnectConfig(ctx, m.conn.Config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is open on it
	// It may take hours, and does not block others while it waits.
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
	// The record is written after the index: a server that was killed in between has already
	// created it.
	if err := conn.QueryRow(ctx, hasTable, step.index).Scan(&found); err != nil || found {
		return err
	}
	_, err = conn.Exec(ctx, step.script, pgx.QueryExecModeSimpleProtocol)
	return err
}

// adopt creates the tables of langgraph-checkpoint-postgres, or uses existing ones as they are. It
// returns the layout.
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

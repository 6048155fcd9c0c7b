package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/storage/internal/progress"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one step of the schema. A released one is never edited; a new step changes the
// schema.
type migration struct {
	number int
	name   string
	script string
}

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
			panic(fmt.Sprintf("sqlite: migration %s is not number %d", file, i+1))
		}
		script, err := migrationFiles.ReadFile(file)
		if err != nil {
			panic(err)
		}
		steps = append(steps, migration{number: i + 1, name: name, script: string(script)})
	}
	return steps
}

// migrate brings a database to the last step. Each step is a transaction with its record, so an
// interrupted migration continues at the next start. The folder's lock keeps other servers away.
func migrate(ctx context.Context, conn *sqlite.Conn, steps []migration, log *slog.Logger) error {
	err := exec(conn, `CREATE TABLE IF NOT EXISTS schema_migrations (
		number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000000)) STRICT`)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	var at int
	var name string
	if _, err := one(conn, "SELECT number, name FROM schema_migrations ORDER BY number DESC LIMIT 1", func(s *sqlite.Stmt) error {
		at, name = s.ColumnInt(0), s.ColumnText(1)
		return nil
	}); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if at > len(steps) {
		return fmt.Errorf("the database was written by a newer version of this program (schema %d, %q; this version knows %d): "+
			"use that version, or a backup from before", at, name, len(steps))
	}
	if at > 0 && at < len(steps) {
		log.InfoContext(ctx, "migrating the database", "from", at, "to", len(steps))
	}
	for _, m := range steps[at:] {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		stop := progress.Watch(ctx, log, "database migration", "step", m.name, "of", len(steps))
		err := apply(conn, m)
		stop()
		if err != nil {
			return fmt.Errorf("migrate to %s: %w", m.name, classify(err))
		}
	}
	return nil
}

// apply runs a step and records it.
func apply(conn *sqlite.Conn, m migration) (err error) {
	done, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer done(&err)
	if err := sqlitex.ExecuteScript(conn, m.script, nil); err != nil {
		return err
	}
	return exec(conn, "INSERT INTO schema_migrations (number, name) VALUES (?, ?)", m.number, m.name)
}

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"understudy/storage/internal/relational"
	"understudy/storage/internal/seal"
	"understudy/transfer"
)

// Transfer returns the store as package transfer uses it.
func (s *Store) Transfer() transfer.Target { return target{threads{s}} }

// target implements transfer.Target.
type target struct{ threads }

var _ transfer.Target = target{}

// Database is a database of this program, opened for reading only. Servers may be using it.
type Database struct {
	*transfer.Storage
	store  *Store
	place  string
	layout string
}

// ErrNotOurs: the database has no tables of this program.
var ErrNotOurs = errors.New("no tables of this program in the database")

// identity identifies a schema by the running server, the database and one of its tables, whatever
// its address.
const identity = `SELECT concat_ws(' ', pg_postmaster_start_time(), d.oid, 'meta'::regclass::oid), m.value FROM pg_database d, meta m
	WHERE d.datname = current_database() AND m.key = 'layout'`

// OpenDatabase opens a database without changing it. ErrNotOurs if it has no tables of this
// program. Call Close after use.
func OpenDatabase(ctx context.Context, opts Options) (_ *Database, err error) {
	if _, err := seal.NewRing(opts.Keys); err != nil {
		return nil, err
	}
	config, err := configure(&opts)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	c := config.ConnConfig
	name := fmt.Sprintf("the database %s on %s:%d", c.Database, c.Host, c.Port)
	pool, err := newPool(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, classify(err))
	}
	s, err := newStore(ctx, opts, pool, layoutCompact)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			s.closePools()
		}
	}()
	known, at := len(migrations()), 0
	d := &Database{store: s}
	var unknown int
	var notes []string
	if err := s.read(ctx, func(q *reader) error {
		found := false
		if _, err := one(q, hasTable, func(r *row) error {
			found = r.Bool(0)
			return nil
		}, "understudy_migrations"); err != nil {
			return err
		}
		if !found {
			return ErrNotOurs
		}
		if _, err := one(q, lastMigration, func(r *row) error {
			at = int(r.Int(0))
			return nil
		}); err != nil || at != known {
			return err
		}
		if _, err := one(q, identity, func(r *row) error {
			d.place, d.layout = r.Text(0), r.Text(1)
			return nil
		}); err != nil {
			return err
		}
		if _, err := one(q, relational.CountUnmoved, func(r *row) error {
			notes = relational.UnmovedNotes(int(r.Int(0)), int(r.Int(1)), int(r.Int(2)))
			return nil
		}); err != nil {
			return err
		}
		_, err := one(q, "SELECT count(*) FROM (SELECT DISTINCT thread_id FROM checkpoints c WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread_id = c.thread_id)) AS unknown",
			func(r *row) error {
				unknown = int(r.Int(0))
				return nil
			})
		return err
	}); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	switch {
	case at > known:
		return nil, fmt.Errorf("%s was written by a newer version of this program (schema %d; this version knows %d): use that version", name, at, known)
	case at < known:
		return nil, fmt.Errorf("%s was written by an older version of this program (schema %d; this version has %d): start this version on it once, then try again", name, at, known)
	}
	if unknown > 0 {
		notes = append(notes, fmt.Sprintf("%d threads in %s are of Python programs alone and were left out: import them there first, with the same address after --from and --database-url",
			unknown, name))
	}
	d.Storage = transfer.NewStorage(name, s.Transfer(), s.Assistants(), notes...)
	return d, nil
}

// IsOurs reports whether a database has tables of this program, of any version. It reads none of them.
func IsOurs(ctx context.Context, opts Options) (found bool, err error) {
	config, err := configure(&opts)
	if err != nil {
		return false, fmt.Errorf("open database: %w", err)
	}
	c := config.ConnConfig
	conn, err := pgx.ConnectConfig(ctx, c)
	if err == nil {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is open on it
		err = conn.QueryRow(ctx, hasTable, "understudy_migrations").Scan(&found)
	}
	if err != nil {
		return false, fmt.Errorf("open the database %s on %s:%d: %w", c.Database, c.Host, c.Port, classify(ended(ctx, err)))
	}
	return found, nil
}

// Plain reports whether values are stored as LangGraph's savers store them, so that these can read
// all of it.
func (d *Database) Plain() bool { return d.layout == layoutLangGraph }

// Close closes the connections.
func (d *Database) Close() error { return d.store.Close() }

// Is reports whether url names the same database, by whatever address.
func (d *Database) Is(ctx context.Context, url string) (same bool, err error) {
	other, err := OpenDatabase(ctx, Options{URL: url})
	if errors.Is(err, ErrNotOurs) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return other.place == d.place, other.Close()
}

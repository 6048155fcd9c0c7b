package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/fleet"
	"understudy/storage/internal/seal"
)

// Inspection is what Inspect finds in a database.
type Inspection struct {
	// Size of the database in bytes.
	Size int64
	// Schema is the number of the last migration of the database, Known that of this version. A
	// larger Schema cannot be opened; 0: no tables of this program.
	Schema, Known int
	// Connections is how many a server with this address opens, without the one that listens; Room
	// is how many are available.
	Connections int
	Room        Room
	// Ahead is by how much, at least, the clock of this machine is ahead of that of the database; negative when it is behind.
	Ahead time.Duration
	// Servers are the last reports of the servers of the database. One that is encrypted with a key that is not there, such as one of handlers, has no Body.
	Servers []fleet.Report
	// Locked is why the database does not open with the configured encryption; nil: it does, as far as that shows without handlers.
	Locked error
	// Begins reports that the database is not encrypted, and the next start with the configuration begins that.
	Begins bool
	// Vectors says whether the database compares vectors itself.
	Vectors Vectors
	// Refused is why the database would save nothing, because it is read-only or its disk is full, and Fix what ends that. "": neither.
	Refused, Fix string
}

// Vectors describes the pgvector of a database.
type Vectors struct {
	Version   string // "": the database does not have the extension
	Available bool   // the server of the database has it installed
	Creatable bool   // a start with store.index creates it
}

// askVectors reads trusted from the row as JSON, so that Postgres before 13, where no extension is trusted, answers too.
const askVectors = `SELECT coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), ''), count(*) > 0,
	coalesce(bool_or(rolsuper OR NOT v.superuser OR coalesce((to_jsonb(v) ->> 'trusted')::boolean, false) AND has_database_privilege(current_database(), 'CREATE')), false)
	FROM pg_roles JOIN pg_available_extension_versions v ON v.name = 'vector' WHERE rolname = current_user`

// Inspect examines a database without changing it, also while servers use it. A database of
// LangGraph Server is an error.
func Inspect(ctx context.Context, opts Options, c encryption.Configured) (in Inspection, err error) {
	config, err := configure(&opts)
	if err != nil {
		return in, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return in, classify(ended(ctx, err))
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is open on it
	in.Known, in.Connections = len(migrations()), int(config.MaxConns)
	if err := refuseServer(ctx, conn); err != nil {
		return in, err
	}
	if in.Ahead, err = clockAhead(ctx, conn); err != nil {
		return in, fmt.Errorf("read the clock of the database: %w", classify(ended(ctx, err)))
	}
	var found bool
	err = conn.QueryRow(ctx, "SELECT pg_database_size(current_database()), to_regclass('understudy_migrations') IS NOT NULL").Scan(&in.Size, &found)
	if err == nil && found {
		err = conn.QueryRow(ctx, "SELECT coalesce(max(number), 0) FROM understudy_migrations").Scan(&in.Schema)
	}
	if err == nil && in.Schema > 0 {
		err = in.fits(ctx, c, conn)
	}
	if err == nil && in.Schema == in.Known {
		in.Servers, err = reports(ctx, conn, allServers)
	}
	if err == nil {
		in.Room, err = room(ctx, conn)
	}
	if err == nil {
		err = conn.QueryRow(ctx, askVectors).Scan(&in.Vectors.Version, &in.Vectors.Available, &in.Vectors.Creatable)
	}
	if err == nil {
		err = tries(ctx, conn)
	}
	var refused *fault.Error
	if lasting(err) && errors.As(classify(err), &refused) {
		in.Refused = refused.Message
		in.Fix, _ = fixOf(err)
		return in, nil
	}
	if err != nil {
		return in, fmt.Errorf("look into the database: %w", classify(ended(ctx, err)))
	}
	return in, nil
}

// fits compares the configured encryption with the database.
func (in *Inspection) fits(ctx context.Context, c encryption.Configured, conn *pgx.Conn) error {
	known, err := keyNote(ctx, conn)
	if err != nil {
		return err
	}
	changes, locked := seal.Fits(ctx, c, known, inspected{conn})
	in.Locked, in.Begins = locked, known == "" && changes != ""
	if changes == "" || in.Schema != in.Known {
		return nil
	}
	servers, err := reports(ctx, conn, liveServers, fleet.Lately.Microseconds())
	in.Locked = unread(servers, known, changes)
	return err
}

// reports returns the last reports of the servers that a query finds, decrypted if the key is there.
func reports(ctx context.Context, db asker, query string, args ...any) ([]fleet.Report, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (out fleet.Report, err error) {
		var at int64
		err = r.Scan(&out.Server, &at, &out.Body)
		out.At = time.UnixMicro(at)
		if err == nil {
			out.Body, err = seal.Try(out.Body)
		}
		if errors.Is(err, seal.ErrUnknownKey) { // out.Body is nil
			err = nil
		}
		return out, err
	})
}

// clockAhead returns by how much, at least, the clock of this machine is ahead of that of the database: the answer was made at any time of the query.
func clockAhead(ctx context.Context, conn *pgx.Conn) (time.Duration, error) {
	var there time.Time
	before := time.Now()
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&there); err != nil {
		return 0, err
	}
	if early := before.Sub(there); early > 0 {
		return early, nil
	}
	return min(time.Since(there), 0), nil
}

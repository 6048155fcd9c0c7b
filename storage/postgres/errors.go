package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"understudy/internal/fault"
)

// errClosed is returned by all methods after Close.
var errClosed = errors.New("the database is closed")

// classify turns Postgres' errors into errors of this program, by SQLSTATE. Those that a caller or
// operator can act on get a kind and say what to do; others stay as they are.
func classify(err error) error {
	var kind *fault.Error
	if err == nil || errors.As(err, &kind) || errors.Is(err, context.Canceled) {
		return err
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		unavailable := func(text string) error { return fault.Wrap(fault.Unavailable, text, err) }
		switch pg.Code {
		case "23505":
			return fault.Wrap(fault.Conflict, "already exists", err)
		case codeDiskFull:
			return unavailable("the disk of the database is full: nothing can be saved until there is room")
		case "53200":
			return unavailable("the database is out of memory or lock slots")
		case "54000":
			return fault.Wrap(fault.TooLarge, tooLarge(pg), err)
		case "53300":
			return unavailable("the database accepts no more connections: " + MoreConnections(pg) + ", or lower --database-connections of each server")
		case "57P01", "57P02", "57P03", "25P03":
			return unavailable("the database has ended the connection: it is shutting down or starting, or the transaction was idle")
		case codeReadOnly:
			return unavailable("the database is read-only: nothing can be saved")
		case "40001", "40P01", "55P03":
			return unavailable("concurrent changes collided; try again")
		case "57014":
			return unavailable("the database took too long")
		case "58030", "XX001", "XX002":
			return unavailable("disk I/O error in the database")
		case "28P01":
			return unavailable("the database rejects the user or password")
		case "28000": // no matching line in pg_hba.conf
			return unavailable("the database rejects the connection: it does not allow this user, this address, or a connection without TLS (sslmode=require)")
		case "3D000":
			return unavailable("the database does not exist")
		case "3F000":
			return unavailable("no schema of the search_path exists, or the database user has no right to use one: create one (CREATE SCHEMA), GRANT USAGE, CREATE ON SCHEMA, or correct the address")
		case "42501":
			return unavailable("the database user lacks rights: to start a new version it must own the tables of this program and be able to create others (GRANT CREATE ON SCHEMA)")
		case "26000", "42P05":
			return unavailable("prepared statements are lost: behind a pooler in transaction mode add default_query_exec_mode=exec to the address")
		}
		if pg.Code == "08P01" && strings.Contains(pg.Message, "startup parameter") {
			return unavailable("a pooler rejects startup parameters: set its ignore_startup_parameters as in docs/resources.md")
		}
		if strings.HasPrefix(pg.Code, "08") {
			return unavailable("the connection to the database was lost")
		}
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(fault.Unavailable, "the database took too long", err)
	}
	if lost(err) {
		return fault.Wrap(fault.Unavailable, "the database cannot be reached", err)
	}
	return err
}

// MoreConnections says what lets Postgres accept more connections than it refused with pg: a role and a database may have a limit of their own, below that
// of the server. Their names are in the message.
func MoreConnections(pg *pgconn.PgError) string {
	if named, role := strings.CutPrefix(pg.Message, "too many connections for role "); role {
		return "raise the limit of the user (ALTER ROLE " + named + " CONNECTION LIMIT -1)"
	}
	if named, database := strings.CutPrefix(pg.Message, "too many connections for database "); database {
		return "raise the limit of the database (ALTER DATABASE " + named + " CONNECTION LIMIT -1)"
	}
	return "raise max_connections in postgresql.conf"
}

// tooLarge says which limit of Postgres a value is above. Postgres' messages of this SQLSTATE have sizes and names of indexes, but no values.
func tooLarge(pg *pgconn.PgError) string {
	if strings.HasPrefix(pg.Message, "index row") {
		return "a name, key or ID is longer than an index of Postgres takes, which is about 2,600 bytes: use a shorter one (" + pg.Message + ")"
	}
	return "a value is larger than Postgres takes (" + pg.Message + "): keep large data out of the state, for example in files that it names"
}

// lost reports whether an error means that the connection is gone or cannot be made.
func lost(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "57P01" || pg.Code == "25P03" || pg.Code == "57P02" || pg.Code == "57P03" || strings.HasPrefix(pg.Code, "08")
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed")
}

// collided reports whether a transaction failed because of a concurrent one and may succeed when
// it is run again.
func collided(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// uncommitted reports whether the connection was lost before Postgres read the commit, so that
// running the transaction again is safe. Postgres ends a transaction that idles too long between
// statements.
func uncommitted(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "25P03" || pgconn.SafeToRetry(err)
}

// ended returns the cause of a context that ended instead of the driver's error.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		return errClosed
	}
	return err
}

package advice

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"understudy/internal/fault"
	"understudy/internal/sockerr"
	"understudy/storage/postgres"
)

// Database explains why the Postgres database at url, which the setting names, cannot be used; nil if err is not of its connection. Nothing that it
// says holds the password.
func Database(setting, url string, err error) *Problem {
	to, parseErr := pgconn.ParseConfig(url)
	if err == nil || parseErr != nil || !isPostgres(err) {
		return nil
	}
	name, server := to.Database, net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
	if name == "" {
		name = to.User // the default of Postgres
	}
	problem := func(fix, format string, args ...any) *Problem {
		return &Problem{Text: fmt.Sprintf("database %s on %s: ", name, server) + fmt.Sprintf(format, args...), Fix: fix, Err: err}
	}
	user := pgx.Identifier{to.User}.Sanitize()
	correct := func(what string) string { return "correct the " + what + " in " + setting }

	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "28P01":
			if to.Password == "" {
				return problem("write it as user:password@host in "+setting+", or set PGPASSWORD", "user %s needs a password, and none is given", to.User)
			}
			return problem(correct("password"), "the password of user %s is wrong, or there is no such user", to.User)
		case "28000":
			fix := correct("user") + ", or allow it in pg_hba.conf"
			if strings.Contains(pg.Message, "no encryption") {
				fix = "add sslmode=require to " + setting + ", or allow this user and address in pg_hba.conf"
			}
			return problem(fix, "it refuses user %s: %s", to.User, line(pg.Message))
		case "3D000":
			return problem(fmt.Sprintf("create it (createdb -h %s -p %d -U %s %s), or %s", to.Host, to.Port, to.User, name, correct("name")), "this database does not exist")
		case "42501":
			fix := correct("user")
			switch {
			case strings.HasPrefix(pg.Message, "must be owner"): // a new version changes tables
				fix = "name the user who owns the tables in " + setting
			case strings.Contains(pg.Message, " for schema "):
				fix = fmt.Sprintf("let its owner run GRANT USAGE, CREATE ON SCHEMA %s TO %s, or %s", pg.Message[strings.LastIndexByte(pg.Message, ' ')+1:], user, fix)
			case strings.Contains(pg.Message, " for table "), strings.Contains(pg.Message, " for sequence "):
				fix = fmt.Sprintf("let their owner run GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO %[1]s; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO %[1]s, or %[2]s", user, fix)
			}
			return problem(fix, "%s", sentence(err, pg.Message))
		case "42704":
			return problem("remove it from "+setting, "%s", line(pg.Message))
		case "57P03":
			return problem("start again in a moment", "%s", line(pg.Message))
		case "53300":
			return problem(postgres.MoreConnections(pg)+", or lower --database-connections of each server", "it accepts no more connections")
		case "25006":
			return problem("name the primary in "+setting+", not a replica", "it is read-only")
		}
		return problem("correct "+setting+", or what it says of the database", "%s", sentence(err, pg.Message))
	}
	var (
		unknownHost *net.DNSError
		timeout     net.Error
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		invalid     x509.CertificateInvalidError
		plain       tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &unknownHost) && unknownHost.IsNotFound:
		return problem(correct("host"), "no host has the name %s", unknownHost.Name)
	case errors.Is(err, sockerr.Refused), errors.Is(err, syscall.ENOENT):
		return problem("start Postgres there, or "+correct("address"), "nothing listens there")
	case errors.As(err, &authority), errors.As(err, &invalid):
		return problem("name its CA certificates in "+setting+" with sslrootcert=FILE", "its certificate is not trusted")
	case errors.As(err, &hostname):
		return problem("write the host for which the certificate is in "+setting+", or sslmode=verify-ca", "its certificate is for another host")
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return problem("turn TLS on there, write sslmode=disable in "+setting+", or, if it is not Postgres that listens there, correct the address", "it does not offer TLS, which %s", sslmode(url))
	case errors.As(err, &plain):
		return problem(correct("port"), "what listens there does not speak TLS")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return problem("check the network, or "+correct("host"), "no route leads there")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return problem("see that Postgres runs there and that no firewall is between, or "+correct("address"), "no answer in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return problem("see that it is Postgres that listens there, or "+correct("address"), "it closes the connection")
	}
	return problem(correct("address"), "%s", sentence(err, cause(err).Error()))
}

// isPostgres reports whether the driver, or storage on its behalf, says that the database cannot be used.
func isPostgres(err error) bool {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	return errors.As(err, &pg) || errors.As(err, &connect)
}

// sentence is what storage says of err, without the driver's own report, or else other.
func sentence(err error, other string) string {
	var known *fault.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return line(other)
}

// cause returns the innermost error, of several attempts the last.
func cause(err error) error {
	for {
		switch e := err.(type) { //nolint:errorlint // it takes the chain apart
		case interface{ Unwrap() error }:
			if e.Unwrap() == nil {
				return err
			}
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			all := e.Unwrap()
			if len(all) == 0 {
				return err
			}
			err = all[len(all)-1]
		default:
			return err
		}
	}
}

// sslmode says what an address requires of TLS.
func sslmode(url string) string {
	_, rest, found := strings.Cut(url, "sslmode=")
	if !found {
		return "sslmode=require requires, the default for addresses of other machines"
	}
	if i := strings.IndexAny(rest, "& '"); i >= 0 {
		rest = rest[:i]
	}
	return "sslmode=" + rest + " requires"
}

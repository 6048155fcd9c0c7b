package postgres

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// outageAgain is the interval between log lines of one outage.
const outageAgain = time.Minute

// outage logs that the connection which listens has failed, with what ends that, and that it works again. Not safe for concurrent use.
type outage struct {
	log           *slog.Logger
	since, logged time.Time // since: zero if it works
	slow          bool      // an answer is late, and the log has that
	connecting    bool      // a new connection has failed too, or nothing answers, and the log has that
	text, fix     string    // the error in the log, and what ends it
}

// failed records that the connection was lost, or could not be made. A lost one is made again at once, so only the second failure says that the
// database is away.
func (o *outage) failed(ctx context.Context, err error) {
	now := time.Now()
	err = classify(err)
	first := o.since.IsZero()
	if first {
		o.since = now
	}
	connecting := errors.As(err, new(*pgconn.ConnectError))
	text, fix := err.Error(), remedy(err)
	switch {
	case first, now.Sub(o.logged) >= outageAgain:
	case connecting && o.connecting && fix == o.fix, !connecting && text == o.text:
		return
	}
	o.text, o.fix, o.logged = text, fix, now
	hangs := errors.Is(err, context.DeadlineExceeded)
	if !connecting && !hangs {
		o.log.WarnContext(ctx, "notifications of other servers not received; retrying", "error", err)
		return
	}
	o.connecting = true
	what := "the database does not accept connections: requests get 503, and runs wait to save"
	switch {
	case hangs:
		what = "the database does not answer: requests wait for it, and get 503 after --database-timeout at the latest; runs wait to save"
	case !lost(err):
		what = "the database refuses a connection; retrying"
	}
	o.log.ErrorContext(ctx, what, "error", err, "fix", fix)
}

// late records that the connection is there, and nothing answers on it promptly. Either it works again, or it fails with this as its cause.
func (o *outage) late(ctx context.Context) {
	if o.since.IsZero() {
		o.since = time.Now()
	}
	o.slow = true
	o.log.WarnContext(ctx, "the database has not answered for a second: requests and runs wait for it", "fix", remedy(context.DeadlineExceeded))
}

// over records that the connection works.
func (o *outage) over(ctx context.Context) {
	if o.since.IsZero() {
		return
	}
	what := "notifications of other servers received again"
	switch {
	case o.connecting:
		what = "the database accepts connections again"
	case o.slow:
		what = "the database answers again"
	}
	o.log.InfoContext(ctx, what, "after", time.Since(o.since).Round(time.Millisecond).String())
	*o = outage{log: o.log}
}

// remedy returns what ends an outage. Nothing has to be done here when the database is back.
func remedy(err error) string {
	var pg *pgconn.PgError
	if errors.Is(err, context.DeadlineExceeded) {
		return "see whether Postgres hangs or the network loses packets: load, disk and processes of its machine, and its log; this server continues by itself"
	}
	if !errors.As(err, &pg) {
		return "start Postgres, or look at the network; this server continues by itself"
	}
	switch pg.Code {
	case "57P03":
		return "wait until Postgres has started; its log says what it does"
	case "28P01", "28000":
		return "let Postgres accept the user and password of --database-url again, or correct them there and restart this server"
	case "3D000":
		return "create the database again or restore its backup, or correct --database-url and restart this server"
	case "53300":
		return MoreConnections(pg) + ", or lower --database-connections of each server"
	}
	return "look at the log of Postgres; this server continues by itself"
}

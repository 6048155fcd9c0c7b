package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"understudy/id"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/webhook"
	"understudy/storage/internal/relational"
)

var _ run.Shared = runs{}

// channel carries the notifications between servers. They contain IDs only, and announce what the
// tables already say: a lost one delays, it loses nothing.
const channel = "understudy"

// lapsedRuns are running runs whose lease has expired.
var lapsedRuns = relational.SelectRuns("WHERE status = 'running' AND lease_until < $1 ORDER BY lease_until, run_id LIMIT $2")

// takeDeliveries skips deliveries that another server is taking.
const takeDeliveries = relational.FirstOfOrigins + `, taken AS (
			SELECT o.id, o.due FROM outbox o JOIN firsts ON firsts.id = o.id WHERE o.due <= $1 FOR UPDATE OF o SKIP LOCKED
		), moved AS (
			UPDATE outbox o SET due = $5 FROM taken WHERE o.id = taken.id
			RETURNING ` + relational.DeliveryColumns + `, taken.due
		) SELECT * FROM moved ORDER BY due, id`

// Lapsed implements run.Shared.
func (s *Store) Lapsed(ctx context.Context, before time.Time, limit int) (list []*run.Run, err error) {
	list, err = s.SelectedRuns(ctx, lapsedRuns, before.UnixMicro(), limit)
	if err != nil {
		return nil, fmt.Errorf("runs whose lease has ended: %w", err)
	}
	return list, nil
}

// Clock implements run.Shared: the time of the database.
func (s *Store) Clock(ctx context.Context) (now time.Time, err error) {
	err = s.read(ctx, func(q *reader) error {
		return q.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", func(r *row) error {
			now = r.Time(0)
			return nil
		})
	})
	return now, err
}

// TakeDeliveries implements run.Shared.
func (s *Store) TakeDeliveries(ctx context.Context, q webhook.Query, until time.Time) (due []*webhook.Delivery, next time.Time, err error) {
	err = s.write(ctx, func(tx *Tx) (err error) {
		due, next, err = relational.Deliveries(tx, relational.Statement{Postgres: takeDeliveries}, q, until.UnixMicro())
		return err
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("take deliveries: %w", err)
	}
	return due, next, nil
}

// Send implements run.Shared. It runs outside of any transaction, because NOTIFY takes a lock of
// the whole cluster while it commits.
func (s *Store) Send(ctx context.Context, signals ...run.Signal) error {
	words := make([]string, len(signals))
	for i, sig := range signals {
		words[i] = strings.TrimRight(string(sig.Thread)+" "+string(sig.Run)+" "+sig.Ended, " ")
	}
	return s.read(ctx, func(q *reader) error {
		return q.query("SELECT pg_notify($1, word) FROM unnest($2::text[]) word", nil, channel, words)
	})
}

// endedOf returns which of some runs have ended or are gone.
const endedOf = `SELECT r FROM unnest($1::text[]) r
	WHERE NOT EXISTS (SELECT 1 FROM runs ` + relational.OfThreads + `run_id = r COLLATE "C" AND status IN ('pending', 'running')) ORDER BY r`

// Ended implements run.Shared.
func (s *Store) Ended(ctx context.Context, runs []id.Run) (ended []id.Run, err error) {
	ids := make([]string, len(runs))
	for i, r := range runs {
		ids[i] = string(r)
	}
	err = s.read(ctx, func(q *reader) error {
		ended = nil
		return q.query(endedOf, func(r *row) error {
			ended = append(ended, id.Run(r.Text(0)))
			return nil
		}, ids)
	})
	return ended, err
}

// A Postgres that hangs ends no connection.
const (
	// quiet is how long a listening connection may be silent before it is tested.
	quiet = 3 * time.Second / 2
	// prompt is how long the answer may take before the log says that nothing answers. The connection is given up after connectTime.
	prompt = time.Second
)

// Listen implements run.Shared, on its own connection. It reconnects until ctx ends, and logs when the database is lost and when it is back.
func (s *Store) Listen(ctx context.Context, heard func(run.Signal)) error {
	pause := loop.NewBackoff(100*time.Millisecond, 5*time.Second)
	out := outage{log: s.log}
	for {
		err := s.listen(ctx, &out, func(sig run.Signal) {
			out.over(ctx)
			pause.Reset()
			heard(sig)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out.failed(ctx, err)
		if !pause.Sleep(ctx) {
			return context.Cause(ctx)
		}
	}
}

// listen listens until the connection fails or ctx ends. It reports to out when nothing answers meanwhile.
func (s *Store) listen(ctx context.Context, out *outage, heard func(run.Signal)) error {
	config := s.pool.Config().ConnConfig.Copy()
	// A wait that ends by its context must leave the connection usable.
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // nothing is open on it
	}()
	schema, err := listenTo(ctx, conn)
	if err != nil {
		return err
	}
	heard(run.Signal{})
	s.heard(nil)
	for {
		limited, cancel := context.WithTimeout(ctx, quiet)
		n, err := conn.WaitForNotification(limited)
		cancel()
		switch {
		case err == nil && n.Channel == changesChannel:
			if list, ok := s.changesIn(schema, n.Payload); ok {
				s.heard(list)
			}
		case err == nil:
			t, rest, _ := strings.Cut(n.Payload, " ")
			r, ended, _ := strings.Cut(rest, " ")
			heard(run.Signal{Thread: id.Thread(t), Run: id.Run(r), Ended: ended})
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && !conn.IsClosed():
			if err := ping(ctx, conn, func() { out.late(ctx) }); err != nil {
				return err
			}
			out.over(ctx)
		default:
			return err
		}
	}
}

// ping asks the connection for an answer, and calls slow when there is none promptly.
func ping(ctx context.Context, conn *pgx.Conn, slow func()) error {
	limited, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(limited) }()
	timer := time.NewTimer(prompt)
	defer timer.Stop()
	select {
	case err := <-answered:
		return err
	case <-timer.C:
	}
	if len(answered) == 0 { // else both were due: this process had no processor time
		slow()
	}
	return <-answered
}

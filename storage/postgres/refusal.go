package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"understudy/storage/internal/seal"
)

const (
	// askReadOnly reports whether transactions may only read: on a standby, or by a setting.
	askReadOnly = "SELECT current_setting('transaction_read_only') = 'on'"
	// smallMemory makes tryRoom write to the disk; it lasts until the end of the transaction.
	smallMemory = "SELECT set_config('work_mem', '64kB', true)"
	// tryRoom writes about 3 MB into a temporary file, which needs no rights, leaves nothing, and fails as other writes do when the disk is full.
	tryRoom = "SELECT count(*) FROM generate_series(1, 200000)"

	codeDiskFull = "53100"
	codeReadOnly = "25006"

	// askAgain is the interval at which a full disk is tried.
	askAgain = 5 * time.Second
	// forgotten is how long after the last refusal a write that succeeds shows that there is room: a small one may find some on a full disk.
	forgotten = 30 * time.Second
)

// errReadOnly is what Ping finds, in the form in which a write would meet it.
var errReadOnly = classify(&pgconn.PgError{Severity: "ERROR", Code: codeReadOnly, Message: "transaction_read_only is on"})

// refusal remembers that the database answers and refuses to save. Writes find that out, and Ping; without it a server that can save nothing would be ready.
type refusal struct {
	// tests replace these
	tryRoom  string
	askAgain time.Duration

	mu                 sync.Mutex
	err                error // as clients see it; nil: writes succeed as far as is known
	readOnly           bool
	since, last, tried time.Time
}

// known reports whether the last that is known is a refusal.
func (r *refusal) known() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err != nil
}

// lasting reports whether a write failed for a reason that stays until someone removes it.
func lasting(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == codeDiskFull || pg.Code == codeReadOnly)
}

// refused records a write that failed for a lasting reason, and logs the first one with what to do.
func (s *Store) refused(err error) {
	fix, readOnly := fixOf(err)
	s.refusal.mu.Lock()
	first := s.refusal.err == nil
	s.refusal.err, s.refusal.readOnly, s.refusal.last = classify(err), readOnly, time.Now()
	if first {
		s.refusal.since, s.refusal.tried = s.refusal.last, s.refusal.last
	}
	s.refusal.mu.Unlock()
	if first {
		s.log.Error("the database refuses writes: requests that change something get 503, and runs wait to save", "error", err, "fix", fix)
	}
}

// fixOf returns what ends a lasting refusal, and whether it is that of a database that is read-only.
func fixOf(err error) (fix string, readOnly bool) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeReadOnly {
		return "name the primary in --database-url (target_session_attrs=read-write finds it), or turn default_transaction_read_only off", true
	}
	return "free space on the disk of Postgres, or enlarge it", false
}

// accepts records that the database saves again.
func (s *Store) accepts() {
	s.refusal.mu.Lock()
	was, since := s.refusal.err, s.refusal.since
	s.refusal.err = nil
	s.refusal.mu.Unlock()
	if was != nil {
		s.log.Info("the database accepts writes again", "after", time.Since(since).Round(time.Millisecond).String())
	}
}

// note takes notice of how a write ended.
func (s *Store) note(err error) {
	if lasting(err) {
		s.refused(err)
	}
	if err != nil {
		return
	}
	s.refusal.mu.Lock()
	over := s.refusal.err != nil && (s.refusal.readOnly || time.Since(s.refusal.last) > forgotten)
	s.refusal.mu.Unlock()
	if over {
		s.accepts()
	}
}

// refuses returns why writes are refused, nil if they are not or that may have ended: then it is to be looked at.
func (s *Store) refuses() error {
	s.refusal.mu.Lock()
	defer s.refusal.mu.Unlock()
	if s.refusal.readOnly || time.Since(s.refusal.tried) >= s.refusal.askAgain {
		s.refusal.tried = time.Now()
		return nil
	}
	return s.refusal.err
}

// Ping returns an error if the database does not respond, is encrypted with a key that is not there, is read-only, or has refused a write because its disk is full and still does.
func (s *Store) Ping(ctx context.Context) error {
	readOnly, note := false, ""
	if err := s.read(ctx, func(q *reader) error {
		return q.query(askReadOnly+", coalesce((SELECT value FROM meta WHERE key = $1), '')", func(r *row) error {
			readOnly, note = r.Bool(0), r.Text(1)
			return nil
		}, seal.MetaKey)
	}); err != nil {
		return err
	}
	if err := s.keys.Readable(note); err != nil {
		return s.unreadable(err)
	}
	if readOnly {
		s.refused(errReadOnly)
		return errReadOnly
	}
	if err := s.refuses(); err != nil {
		return err
	}
	if err := s.findRoom(ctx); err != nil {
		return err
	}
	s.accepts()
	return nil
}

// findRoom returns the error with which a full disk refuses to take anything, if it was full before. Other failures say nothing about it.
func (s *Store) findRoom(ctx context.Context) error {
	s.refusal.mu.Lock()
	full := s.refusal.err != nil && !s.refusal.readOnly
	s.refusal.mu.Unlock()
	if !full {
		return nil
	}
	err := s.use(ctx, "BEGIN READ ONLY", func(q *reader) error {
		if err := q.query(smallMemory, nil); err != nil {
			return err
		}
		return q.query(s.refusal.tryRoom, nil)
	})
	if lasting(err) || ctx.Err() != nil {
		return err
	}
	return nil
}

// tries returns why a database would save nothing, as a lasting error, or another failure to ask for it.
func tries(ctx context.Context, conn *pgx.Conn) error {
	readOnly := false
	if err := conn.QueryRow(ctx, askReadOnly).Scan(&readOnly); err != nil {
		return err
	}
	if readOnly {
		return errReadOnly
	}
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, smallMemory); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, tryRoom)
		return err
	})
	if lasting(err) {
		return err
	}
	return nil // other failures say nothing about the disk
}

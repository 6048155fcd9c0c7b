package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"understudy/storage/internal/relational"
)

// querier runs statements: a reading connection, or a transaction that writes.
type querier interface {
	relational.Querier
	// query calls fn for each row of the result. fn must not use the querier.
	query(text string, fn func(*row) error, args ...any) error
	// ask queues a query that is sent by the next query or send. Its fn runs then.
	ask(text string, fn func(*row) error, args ...any)
	send() error
}

// one is query for statements that return at most one row; it reports whether there was one.
func one(q querier, text string, fn func(*row) error, args ...any) (found bool, err error) {
	err = q.query(text, func(r *row) error {
		found = true
		if fn != nil {
			if err := fn(r); err != nil {
				return err
			}
		}
		return errStop
	}, args...)
	return found, err
}

// reader is a connection for one read.
type reader struct {
	ctx   context.Context // of the read; a reader does not outlive it
	store *Store
	conn  *pgxpool.Conn
	batch *pgx.Batch
	begun bool // a transaction has begun
	seen  bool // the caller has seen a row, so the read cannot be repeated
}

// open decrypts a value, also with a data key that another server made: then the handlers decrypt it first.
func (r *reader) open(b []byte, open func([]byte) []byte) []byte {
	if !r.store.keys.Asks() {
		return open(b)
	}
	return r.store.keys.Open(r.ctx, b, open)
}

// ask implements querier.
func (r *reader) ask(text string, fn func(*row) error, args ...any) {
	r.batch.Queue(text, bind(args)...).Query(func(answer pgx.Rows) error {
		return each(answer, r.open, func(row *row) error {
			r.seen = true
			if fn == nil {
				return nil
			}
			return fn(row)
		})
	})
}

// send sends the queued queries.
func (r *reader) send() error {
	if r.batch.Len() == 0 {
		return nil
	}
	b := r.batch
	r.batch = &pgx.Batch{}
	ctx, cancel := r.store.patient(r.ctx)
	defer cancel()
	return r.conn.SendBatch(ctx, b).Close()
}

// query implements querier; queued queries are sent with it in one round trip.
func (r *reader) query(text string, fn func(*row) error, args ...any) error {
	if r.batch.Len() > 0 {
		r.ask(text, fn, args...)
		return r.send()
	}
	ctx, cancel := r.store.patient(r.ctx)
	defer cancel()
	answer, err := r.conn.Query(ctx, text, bind(args)...)
	if err != nil {
		return err
	}
	return each(answer, r.open, func(row *row) error {
		r.seen = true
		if fn == nil {
			return nil
		}
		return fn(row)
	})
}

// walk is query for results that may be long and are mostly not read to their end: rows come in
// pieces through a cursor. first is the expected number of rows. It needs a snapshot.
func (r *reader) walk(first int, text string, fn func(*row) error, args ...any) error {
	// Prepared statements are cached with their result columns, so each query text needs a cursor
	// name of its own.
	cursor := fmt.Sprintf("walk_%08x", crc32.ChecksumIEEE([]byte(text)))
	r.batch.Queue("DECLARE "+cursor+" NO SCROLL CURSOR FOR "+text, bind(args)...)
	stopped := false
	for size := pieceOf(first); ; size = pieceOf(4 * size) {
		n := 0
		err := r.query(fmt.Sprintf("FETCH %d FROM %s", size, cursor), func(row *row) error {
			n++
			err := fn(row)
			stopped = errors.Is(err, errStop)
			return err
		})
		if err != nil || stopped || n < size {
			if err == nil {
				r.batch.Queue("CLOSE " + cursor)
			}
			return err
		}
	}
}

// pieces are the sizes in which rows are fetched. They are few, because each is a prepared
// statement of its own.
var pieces = []int{16, 64, 256, 1024}

// pieceOf returns the smallest size for n rows.
func pieceOf(n int) int {
	i, _ := slices.BinarySearch(pieces, n)
	return pieces[min(i, len(pieces)-1)]
}

// read runs fn with a connection, waiting for a free one. Each query of fn sees the rows committed
// when it begins.
func (s *Store) read(ctx context.Context, fn func(q *reader) error) error {
	return s.use(ctx, "", fn)
}

// snapshot is read with all queries of fn seeing the same rows.
func (s *Store) snapshot(ctx context.Context, fn func(q *reader) error) error {
	return s.use(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", fn)
}

// scan is snapshot for queries that may read any number of rows. hint says how a client can narrow
// the search.
func (s *Store) scan(ctx context.Context, hint string, fn func(q *reader) error) error {
	return s.scans.Do(ctx, hint, func(ctx context.Context) error { return s.snapshot(ctx, fn) })
}

// use runs fn, and again on another connection if the first one turns out to be dead before fn saw
// a row.
func (s *Store) use(ctx context.Context, begin string, fn func(q *reader) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	defer s.metrics.Read(time.Now())
	var err error
	for range attempts {
		var again bool
		if again, err = s.useOnce(ctx, begin, fn); !again || ctx.Err() != nil {
			break
		}
		s.metrics.Retried.Inc()
		s.pool.Reset() // the other idle connections are probably dead too
	}
	return s.explained(ended(ctx, err))
}

// useOnce runs fn once; again says that it may be repeated.
func (s *Store) useOnce(ctx context.Context, begin string, fn func(q *reader) error) (again bool, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	r := &reader{ctx: ctx, store: s, conn: conn, batch: &pgx.Batch{}, begun: begin != ""}
	defer conn.Release() // Release closes a broken connection
	if r.begun {
		r.batch.Queue(begin)
	}
	err = fn(r)
	if err != nil && conn.Conn().IsClosed() {
		return lost(err) && !s.silent(ctx, err) && !r.seen, err
	}
	if r.begun {
		s.rollback(ctx, conn) // nothing was written, so a failure does not matter
	}
	return false, err
}

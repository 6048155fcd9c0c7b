package postgres

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/internal/relational"
	"understudy/thread"
)

const (
	// attempts bounds how often a transaction is run that collides with others, or whose connection is dead.
	attempts = 6
	// queueLength bounds the statements that are put aside before they are sent.
	queueLength = 512
	// commitTime is how long a commit may take when nobody waits for it any more.
	commitTime = 30 * time.Second
)

// Tx is a transaction: the methods of the Tx interfaces of the domain packages, spread over the files of their tables.
// It is valid within the function it was given to, on the goroutine that runs it.
type Tx struct {
	relational.Tx
	ctx   context.Context // of the write; a Tx does not outlive it
	store *Store
	conn  *pgxpool.Conn
	batch *pgx.Batch
	err   error // what ended the transaction early

	exclusive bool               // assistants are locked when they are read
	gate      bool               // the lock that everybody shares is held
	all       bool               // it is held alone
	locked    map[id.Thread]bool // threads whose lock is held
	changed   []id.Thread        // threads whose log it changes

	// What is known of rows whose thread is locked. nil: it is not there.
	threads map[id.Thread]*thread.Thread
	runs    map[id.Run]*runRow
	seqs    map[id.Thread]eventstore.Seq // of the last event
	heads   map[id.Thread]bool           // threads whose place in the queue is to be worked out
	lists   map[id.Thread]*threadParts
	rows    map[rowKey]*eventstore.Row        // of transcripts, that it wrote
	tips    map[id.Thread]*checkpointer.Tuple // newest root checkpoints
	idle    map[id.Thread]bool                // threads that have no active runs
	known   map[id.Assistant]*stamped         // that are checked to be as they were known
	answers []*answer                         // what was read ahead
	fenced  id.Run                            // the run that was looked at last
	passed  id.Run                            // the run that was marked last
	ending  id.Run                            // the run that is being ended, whose thread was asked for other active ones
	written int                               // statements that write
}

// rowKey is that of a row of transcripts.
type rowKey struct {
	thread     id.Thread
	checkpoint id.Checkpoint
}

type runRow struct {
	run    run.Run
	digest []byte // of its arguments
}

// write runs fn in a transaction and returns when it is durable. fn is run again when the transaction collided with another, or its connection
// was dead. A context that ends before the commit undoes it all; after that the outcome is waited for.
func (s *Store) write(ctx context.Context, fn func(*Tx) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	defer s.metrics.Write(time.Now())
	var err error
	for n := range attempts {
		var again bool
		if again, err = s.writeOnce(ctx, fn); !again || ctx.Err() != nil {
			return classify(err)
		}
		s.metrics.Retried.Inc()
		if lost(err) {
			s.pool.Reset() // the others will not be better
			continue
		}
		select { // those that collided come back one after the other
		case <-time.After(time.Duration(rand.Int64N(int64(10*time.Millisecond) << n))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return classify(err)
}

func (s *Store) writeOnce(ctx context.Context, fn func(*Tx) error) (again bool, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, ended(ctx, err)
	}
	defer conn.Release() // a connection in a broken state is closed
	tx := &Tx{
		ctx: ctx, store: s, conn: conn, batch: &pgx.Batch{}, locked: map[id.Thread]bool{}, threads: map[id.Thread]*thread.Thread{}, runs: map[id.Run]*runRow{},
		seqs: map[id.Thread]eventstore.Seq{}, heads: map[id.Thread]bool{}, lists: map[id.Thread]*threadParts{}, rows: map[rowKey]*eventstore.Row{},
		tips: map[id.Thread]*checkpointer.Tuple{}, idle: map[id.Thread]bool{},
	}
	tx.Tx = relational.Tx{Writer: tx}
	tx.batch.Queue("BEGIN")
	finished := false
	defer func() {
		if !finished { // fn ended its goroutine, as a failing test does
			tx.rollback()
		}
	}()
	err = tx.call(fn)
	finished = true
	if err != nil && len(tx.known) > 0 { // it may be of an assistant that is not so any more
		_ = tx.send() // which tx.err tells
	}
	if tx.err != nil { // fn may have swallowed it
		err = tx.err
	}
	if err != nil {
		dead := conn.Conn().IsClosed()
		tx.rollback()
		if tx.err == nil {
			return false, err // fn's own
		}
		return s.outdated(err) || collided(err) || dead && lost(err) && !s.silent(ctx, err), ended(ctx, err)
	}
	tx.settleHeads()
	tx.batch.Queue("COMMIT")
	tx.ctx = context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(tx.ctx, commitTime)
	defer cancel()
	tx.ctx = limited
	if err := tx.send(); err != nil {
		dead := conn.Conn().IsClosed()
		tx.rollback()
		// What was over before the commit came is like any that collided. A connection that dies now leaves it open whether the commit happened.
		if dead && lost(err) && !uncommitted(err) {
			s.silent(context.WithoutCancel(ctx), err)
			return false, fault.Wrap(fault.Unavailable, "the connection to the database was lost during a commit: whether it happened is not known", err)
		}
		return s.outdated(err) || collided(err) || uncommitted(err), err
	}
	s.lists.give(tx.lists)
	if s.changed != nil && len(tx.changed) > 0 {
		s.changed(tx.changed)
	}
	return false, nil
}

// call runs fn and turns a panic into an error.
func (tx *Tx) call(fn func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			tx.store.log.Error("panic in a write", "panic", p, "stack", string(debug.Stack()))
			err = fault.Newf(fault.Internal, "panic in a write: %v", p)
		}
	}()
	return fn(tx)
}

// rollback undoes everything. Nothing may have been sent yet.
func (tx *Tx) rollback() {
	tx.batch = &pgx.Batch{}
	if tx.conn.Conn().IsClosed() || tx.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	tx.store.rollback(tx.ctx, tx.conn)
}

// exec puts a statement aside. Its error shows when it is sent.
func (tx *Tx) exec(text string, args ...any) error {
	if tx.err != nil {
		return tx.err
	}
	tx.written++
	tx.batch.Queue(text, bind(args)...)
	if tx.batch.Len() >= queueLength {
		return tx.send()
	}
	return nil
}

// affected runs a statement now, and gives how many rows it changed.
func (tx *Tx) affected(text string, args ...any) (n int64, err error) {
	if tx.err != nil {
		return 0, tx.err
	}
	tx.written++
	tx.batch.Queue(text, bind(args)...).Query(func(answer pgx.Rows) error {
		err := each(answer, nil)
		n = answer.CommandTag().RowsAffected()
		return err
	})
	return n, tx.send()
}

func (tx *Tx) ask(text string, fn func(*row) error, args ...any) {
	tx.batch.Queue(text, bind(args)...).Query(func(answer pgx.Rows) error { return each(answer, fn) })
}

func (tx *Tx) query(text string, fn func(*row) error, args ...any) error {
	if tx.err != nil {
		return tx.err
	}
	bound := bind(args)
	if a := tx.taken(text, bound); a != nil {
		if !a.here {
			if err := tx.send(); err != nil {
				return err
			}
		}
		for i := range a.rows {
			if fn == nil {
				break
			}
			if err := fn(&a.rows[i]); err != nil {
				if errors.Is(err, errStop) {
					return nil
				}
				return err
			}
		}
		return nil
	}
	var own error
	tx.batch.Queue(text, bound...).Query(func(answer pgx.Rows) error {
		return each(answer, func(r *row) error {
			if fn == nil || own != nil {
				return nil
			}
			if own = fn(r); errors.Is(own, errStop) {
				own = nil
				return errStop
			}
			return nil
		})
	})
	if err := tx.send(); err != nil {
		return err
	}
	return own
}

// send sends what was put aside, and waits for the answers.
func (tx *Tx) send() error {
	if tx.err != nil {
		return tx.err
	}
	b := tx.batch
	tx.batch = &pgx.Batch{}
	if b.Len() == 0 {
		return nil
	}
	ctx, cancel := tx.store.patient(tx.ctx)
	defer cancel()
	tx.err = tx.conn.SendBatch(ctx, b).Close()
	return tx.err
}

// Locks. Everybody shares the gate; who needs all threads at once holds it alone. It is taken before any other, so that nobody waits for it who
// holds something.
const (
	gateKey   = "1970170995, 1" // two numbers: another space than that of the threads, which are one
	lockGate  = "SELECT pg_advisory_xact_lock_shared(" + gateKey + ")"
	lockFirst = "SELECT pg_advisory_xact_lock_shared(" + gateKey + "), pg_advisory_xact_lock(hashtextextended($1, 0))"
	lockAll   = "SELECT pg_advisory_xact_lock(" + gateKey + ")"
	lockOne   = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
	lockByRun = "SELECT pg_advisory_xact_lock(hashtextextended(thread_id, 0)) FROM runs WHERE run_id = $1"
)

func (tx *Tx) passGate() {
	if !tx.gate {
		tx.gate = true
		tx.batch.Queue(lockGate)
	}
}

// lock takes the locks of threads, with the statement that is sent next. They are held until the end of the transaction.
func (tx *Tx) lock(threads ...id.Thread) {
	if tx.all {
		return
	}
	if len(threads) > 1 { // in the same order everywhere
		threads = slices.Sorted(slices.Values(threads))
	}
	for _, t := range threads {
		switch {
		case tx.locked[t]:
			continue
		case tx.gate:
			tx.batch.Queue(lockOne, clean(string(t)))
		default:
			tx.gate = true
			tx.batch.Queue(lockFirst, clean(string(t)))
		}
		tx.locked[t] = true
	}
}

// lockEverything waits until no other transaction holds a thread, and keeps others from it. Call it before anything else.
func (tx *Tx) lockEverything() {
	if !tx.all {
		tx.all = true
		tx.batch.Queue(lockAll)
	}
}

// changes notes that the log of a thread is another after this transaction.
func (tx *Tx) changes(t id.Thread) {
	if n := len(tx.changed); n == 0 || tx.changed[n-1] != t {
		tx.changed = append(tx.changed, t)
	}
}

// forget drops what is known of a thread.
func (tx *Tx) forget(t id.Thread) {
	delete(tx.threads, t)
	delete(tx.seqs, t)
	delete(tx.heads, t)
	delete(tx.tips, t)
	delete(tx.idle, t)
	maps.DeleteFunc(tx.rows, func(k rowKey, _ *eventstore.Row) bool { return k.thread == t })
	for r, row := range tx.runs {
		if row != nil && row.run.Thread == t {
			delete(tx.runs, r)
		}
	}
}

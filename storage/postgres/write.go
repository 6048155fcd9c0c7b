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
	"understudy/storage/internal/seal"
	"understudy/thread"
)

const (
	// attempts bounds how often a transaction runs that collides with others or whose connection is
	// dead.
	attempts = 6
	// queueLength bounds the statements that are queued before they are sent.
	queueLength = 512
	// commitTime bounds a commit after its caller's context has ended.
	commitTime = 30 * time.Second
)

// Tx is a transaction. It implements the Tx interfaces of the services; its methods are in the
// files of their tables. It is valid inside the function that it was passed to, on that goroutine.
//
// Statements without results are queued and sent with the next one that has some, or with the
// commit. Rows of locked threads are cached, because no other transaction can change them.
type Tx struct {
	relational.Tx
	ctx   context.Context // of the write; a Tx does not outlive it
	store *Store
	ring  *seal.Ring // encrypts; nil does not
	conn  *pgxpool.Conn
	batch *pgx.Batch
	err   error // the failure of a queued statement, if any

	exclusive bool               // assistants are locked when they are read
	gate      bool               // the shared lock is held, or queued
	all       bool               // the lock is held exclusively
	locked    map[id.Thread]bool // threads whose lock is held
	changed   []id.Thread        // threads whose log it changes

	// threads caches rows of locked threads; a nil entry: no such row.
	threads map[id.Thread]*thread.Thread
	runs    map[id.Run]*runRow
	seqs    map[id.Thread]eventstore.Seq // of the last event
	heads   map[id.Thread]bool           // threads whose queue changed
	lists   map[id.Thread]*threadParts
	rows    map[rowKey]*eventstore.Row        // rows of transcripts that it wrote
	tips    map[id.Thread]*checkpointer.Tuple // newest root checkpoints
	idle    map[id.Thread]bool                // threads without active runs
	known   map[id.Assistant]*stamped         // cached assistants that the commit verifies
	ahead   ahead                             // what was requested ahead
	fenced  id.Run                            // the last run that was fenced
	passed  id.Run                            // the last run that was marked as passed
	ending  id.Run                            // the run that is being ended (see HasActiveRuns)
	written int                               // number of writing statements

	undecided error // why fn has to run again, which it may not see
}

// rowKey identifies a row of transcripts.
type rowKey struct {
	thread     id.Thread
	checkpoint id.Checkpoint
}

// runRow is a cached run with the digest of its stored arguments.
type runRow struct {
	run    run.Run
	digest []byte // of its arguments
}

// write runs fn in a transaction and returns when it is durable. fn runs again if the transaction
// collided with another or its connection was dead. If ctx ends before the commit, everything is
// rolled back; after that write waits for the outcome.
func (s *Store) write(ctx context.Context, fn func(*Tx) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	defer s.metrics.Write(time.Now())
	var err error
	for n, known := 0, 0; n < attempts; n++ {
		var again bool
		if again, err = s.writeOnce(ctx, fn); !again || ctx.Err() != nil {
			if known++; known <= attempts {
				if again, err = s.keys.Again(ctx, err); again {
					n = -1
					continue
				}
			}
			s.note(err)
			return s.explained(err)
		}
		s.metrics.Retried.Inc()
		if lost(err) {
			s.pool.Reset() // the other idle connections are probably dead too
			continue
		}
		select { // a random delay separates transactions that collided
		case <-time.After(time.Duration(rand.Int64N(int64(10*time.Millisecond) << n))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return classify(err)
}

// writeOnce runs fn once; again says that it may be repeated.
func (s *Store) writeOnce(ctx context.Context, fn func(*Tx) error) (again bool, err error) {
	ring, err := s.keys.For(ctx)
	if err != nil {
		return false, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, ended(ctx, err)
	}
	defer conn.Release() // Release closes a broken connection
	tx := &Tx{
		ctx: ctx, store: s, ring: ring, conn: conn, batch: &pgx.Batch{}, locked: map[id.Thread]bool{}, threads: map[id.Thread]*thread.Thread{}, runs: map[id.Run]*runRow{},
		seqs: map[id.Thread]eventstore.Seq{}, heads: map[id.Thread]bool{}, lists: map[id.Thread]*threadParts{}, rows: map[rowKey]*eventstore.Row{},
		tips: map[id.Thread]*checkpointer.Tuple{}, idle: map[id.Thread]bool{},
	}
	tx.Tx = relational.Tx{Writer: tx, Reach: relational.ReachOf(ctx)}
	tx.batch.Queue("BEGIN")
	finished := false
	defer func() {
		if !finished { // fn called runtime.Goexit, as a failing test does
			tx.rollback()
		}
	}()
	err = tx.call(fn)
	finished = true
	if err != nil && len(tx.known) > 0 { // fn may have failed because of an outdated assistant
		_ = tx.send() // its error is in tx.err
	}
	if tx.err != nil { // fn may have swallowed it
		err = tx.err
	}
	if err != nil {
		dead := conn.Conn().IsClosed()
		tx.rollback()
		if tx.err == nil {
			return false, err // the error of fn itself
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
		// A failure before the commit was sent is like a collision. If the connection dies now, it
		// is unknown whether the commit happened.
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
	if s.touched != nil && len(tx.Touched) > 0 {
		s.touched(tx.Touched)
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
	if err = fn(tx); err == nil {
		err = tx.undecided
	}
	return err
}

// rollback drops queued statements and rolls back. Possibly nothing was sent yet.
func (tx *Tx) rollback() {
	tx.batch = &pgx.Batch{}
	if tx.conn.Conn().IsClosed() || tx.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	tx.store.rollback(tx.ctx, tx.conn)
}

// exec queues a statement. Its error appears when it is sent, at the latest with the commit.
func (tx *Tx) exec(text string, args ...any) error {
	if tx.err != nil {
		return tx.err
	}
	tx.written++
	tx.batch.Queue(text, bindWith(tx.ring, args)...)
	if tx.batch.Len() >= queueLength {
		return tx.send()
	}
	return nil
}

// affected runs a statement now and returns the number of changed rows.
func (tx *Tx) affected(text string, args ...any) (n int64, err error) {
	if tx.err != nil {
		return 0, tx.err
	}
	tx.written++
	tx.batch.Queue(text, bindWith(tx.ring, args)...).Query(func(answer pgx.Rows) error {
		err := each(answer, nil, nil)
		n = answer.CommandTag().RowsAffected()
		return err
	})
	return n, tx.send()
}

// ask implements querier.
func (tx *Tx) ask(text string, fn func(*row) error, args ...any) {
	tx.batch.Queue(text, bindWith(tx.ring, args)...).Query(func(answer pgx.Rows) error { return each(answer, nil, fn) })
}

// query implements querier.
func (tx *Tx) query(text string, fn func(*row) error, args ...any) error {
	if tx.err != nil {
		return tx.err
	}
	var own error
	tx.batch.Queue(text, bindWith(tx.ring, args)...).Query(func(answer pgx.Rows) error {
		return each(answer, nil, func(r *row) error {
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

// send sends the queued statements in one round trip and waits for the results.
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

const (
	// Every transaction shares the gate; one that needs all threads holds it exclusively. It is
	// taken before any other lock, so no transaction waits for it while holding something.
	//
	// Two numbers form another key space than the single number of a thread.
	gateKey   = "1970170995, 1" // two numbers: another space than that of the threads, which are one
	lockGate  = "SELECT pg_advisory_xact_lock_shared(" + gateKey + ")"
	lockFirst = "SELECT pg_advisory_xact_lock_shared(" + gateKey + "), pg_advisory_xact_lock(hashtextextended($1, 0))"
	lockAll   = "SELECT pg_advisory_xact_lock(" + gateKey + ")"
	lockOne   = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
	lockByRun = "SELECT pg_advisory_xact_lock(hashtextextended(thread_id, 0)) FROM runs WHERE run_id = $1"
)

// passGate takes the shared lock with the next statement.
func (tx *Tx) passGate() {
	if !tx.gate {
		tx.gate = true
		tx.batch.Queue(lockGate)
	}
}

// lock takes the locks of threads with the next statement. They are held until the end of the
// transaction.
func (tx *Tx) lock(threads ...id.Thread) {
	if tx.all {
		return
	}
	if len(threads) > 1 { // the same order everywhere prevents deadlocks
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

// lockEverything waits until no other transaction holds a thread, and keeps others from starting.
// Call it before any other lock.
func (tx *Tx) lockEverything() {
	if !tx.all {
		tx.all = true
		tx.batch.Queue(lockAll)
	}
}

// changes records that this transaction changes the log of a thread. Followers of the log are
// notified after the commit.
func (tx *Tx) changes(t id.Thread) {
	if n := len(tx.changed); n == 0 || tx.changed[n-1] != t {
		tx.changed = append(tx.changed, t)
	}
}

// forget drops what is cached of a thread.
func (tx *Tx) forget(t id.Thread) {
	delete(tx.threads, t)
	delete(tx.seqs, t)
	delete(tx.heads, t)
	delete(tx.tips, t)
	delete(tx.idle, t)
	tx.ahead = ahead{}
	maps.DeleteFunc(tx.rows, func(k rowKey, _ *eventstore.Row) bool { return k.thread == t })
	for r, row := range tx.runs {
		if row != nil && row.run.Thread == t {
			delete(tx.runs, r)
		}
	}
}

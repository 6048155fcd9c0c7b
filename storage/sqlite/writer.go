package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/diskspace"
	"understudy/internal/fault"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/seal"
	"understudy/storage/internal/vectors"
	"understudy/thread/changes"
)

const (
	// queueLength bounds the waiting writes. When the queue is full, callers wait until there is
	// room or their context ends.
	queueLength = 1024
	// groupSize bounds the writes per commit, and with it how long the first one waits for the
	// others.
	groupSize = 256
)

// Tx is a transaction. It implements the Tx interfaces of the services; its methods are in the
// files of their tables. It is valid inside the function that it was passed to, on that goroutine.
type Tx struct {
	relational.Tx
	querier
	lists     *lists
	ring      *seal.Ring    // encrypts; nil does not
	keys      *seal.Keyring // of the store
	undecided error         // why fn has to run again, which it may not see
	indexing  bool          // messages are to be indexed
	threads   []id.Thread   // whose log the transaction changes
	// assistants says that the transaction changes rows of assistants.
	assistants bool

	// vectors are the changes of vectors of items.
	vectors []vectors.Change

	plan    *dropPlan // nil: none was made
	mayPlan int       // number of checkpoints from which on a plan is requested; 0: never
	visited int       // rows that its queries returned
}

// newTx returns a transaction on conn; its methods of relational.Tx call back into it as their
// Writer.
func newTx(conn *sqlite.Conn, l *lists) *Tx {
	tx := &Tx{querier: querier{conn}, lists: l}
	tx.Tx = relational.Tx{Writer: tx}
	return tx
}

// exec runs a statement in the transaction.
func (tx *Tx) exec(text string, args ...any) error {
	return exec(tx.conn, text, sealed(tx.ring, args)...)
}

// query runs a query in the transaction, and counts its rows (see Query).
func (tx *Tx) query(text string, row func(*sqlite.Stmt) error, args ...any) error {
	args = sealed(tx.ring, args)
	if row == nil {
		return query(tx.conn, text, nil, args...)
	}
	return query(tx.conn, text, func(s *sqlite.Stmt) error {
		tx.visited++
		return row(s)
	}, args...)
}

// one runs a query for at most one row.
func (tx *Tx) one(text string, row func(*sqlite.Stmt) error, args ...any) (bool, error) {
	return one(tx.conn, text, row, sealed(tx.ring, args)...)
}

// writer owns the writing connection; only its goroutine uses it.
//
// Requests that wait when one begins join its transaction, so under load one sync of the disk
// serves many. Without waiting requests it commits at once: a single write never waits for others.
type writer struct {
	log      *slog.Logger
	conn     *sqlite.Conn
	lists    *lists
	folder   *folder
	disk     *disk
	changed  func([]id.Thread)
	touched  func([]changes.Change)
	vectors  *nearest
	keys     *seal.Keyring
	indexing atomic.Bool
	queue    chan *request
	stop     chan struct{} // closed by close: no more requests are accepted
	stopped  chan struct{} // closed when the goroutine has ended
	once     sync.Once

	assistants knownAssistants

	// rehearse runs each request twice and rolls the first run back, as the failure of another
	// request in the group does. For tests: functions must tolerate it.
	rehearse bool
}

// request is a write on its way. state decides who ends it: the caller that gives up, or the
// writer that begins it.
type request struct {
	ctx       context.Context
	fn        func(*Tx) error
	ring      *seal.Ring
	makesRoom bool
	state     atomic.Int32 // waiting, begun or abandoned
	// threads are those whose log fn changed. Only the writer's goroutine uses it.
	threads    []id.Thread
	touched    []changes.Change
	assistants bool
	vectors    []vectors.Change
	err        error // valid after done is closed
	done       chan struct{}
}

const (
	// States of a request.
	waiting = iota
	begun
	abandoned
)

// start starts the writer's goroutine; close ends it.
func (w *writer) start() *writer {
	w.queue, w.stop, w.stopped = make(chan *request, queueLength), make(chan struct{}), make(chan struct{})
	go w.run()
	return w
}

// writeOnce runs fn in a transaction and returns when it is durable. fn may run several times; all
// runs but the last are rolled back.
//
// If ctx ends before fn begins, fn does not run. After that writeOnce waits for the outcome,
// because otherwise the caller could not know whether the write happened. fn must not write to the
// store itself: it would wait for its own end.
//
// On a full disk only writes marked with diskspace.WithReserve are accepted.
func (s *Store) writeOnce(ctx context.Context, fn func(*Tx) error) error {
	makesRoom := diskspace.HasReserve(ctx)
	if err := s.disk.refuses(makesRoom); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ring, err := s.writer.keys.For(ctx)
	if err != nil {
		return err
	}
	defer s.metrics.Write(time.Now())
	r := &request{ctx: ctx, fn: fn, ring: ring, makesRoom: makesRoom, done: make(chan struct{})}
	select {
	case <-s.writer.stop:
		return errClosed
	default:
	}
	select {
	case s.writer.queue <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.writer.stop:
		return errClosed
	}
	select {
	case <-r.done:
		return s.damage.wrote(r.err)
	case <-ctx.Done():
		if r.state.CompareAndSwap(waiting, abandoned) {
			return context.Cause(ctx)
		}
	case <-s.writer.stopped:
		// The writer may have ended just before the request entered the queue.
		if r.state.CompareAndSwap(waiting, abandoned) {
			return errClosed
		}
	}
	<-r.done
	return s.damage.wrote(r.err)
}

// close refuses waiting requests and closes the connection.
func (w *writer) close() error {
	w.once.Do(func() { close(w.stop) })
	<-w.stopped
	full := w.disk.full.Load()
	if full {
		_ = w.disk.fold(w.conn, 0) // what fails now is done by the next start
	}
	err := w.conn.Close()
	if full { // the next start needs the space of the log again, which another program could take until then
		w.disk.logged = 0
		w.disk.restore()
	}
	return err
}

// run executes requests until close. While nothing is written it folds the log on request, and
// checks a full disk.
func (w *writer) run() {
	ended := false
	defer func() {
		if ended {
			close(w.stopped)
		} else {
			// A function called runtime.Goexit, as a failing test does. Its group has failed; other
			// requests must continue.
			go w.run()
		}
	}()
	retry := time.NewTicker(w.disk.every)
	defer retry.Stop()
	for {
		// Checked alone first: a closed store accepts no more requests, however many are waiting.
		select {
		case <-w.stop:
			ended = true
			return
		default:
		}
		select {
		case r := <-w.queue:
			w.group(r)
			w.folder.wake()
		case <-w.folder.last:
			// No transaction writes meanwhile: if no reader is behind, the log restarts with the next
			// commit.
			if _, _, err := fold(w.conn); isFull(err) {
				w.disk.makeRoom(w.conn, false, err)
			} else if err != nil {
				w.log.Warn("database checkpoint failed", "error", err)
			}
		case <-retry.C:
			if w.disk.full.Load() {
				w.disk.retry(w.conn)
			}
		case <-w.stop:
			ended = true
			return
		}
	}
}

// group runs a request together with those that wait behind it. If they meet the end of the disk,
// each runs again in a transaction of its own with the space that can be freed, so that a large
// one does not fail the others.
func (w *writer) group(r *request) {
	undone, err := w.together(r, groupSize)
	if len(undone) == 0 {
		return
	}
	ended := false
	defer func() {
		if !ended {
			finish(undone, errEnded)
		}
	}()
	for w.disk.makeRoom(w.conn, r.makesRoom && w.disk.full.Load(), err); len(undone) > 0; {
		r := undone[0]
		undone = undone[1:]
		for try := 1; ; try++ {
			if err := w.disk.refuses(r.makesRoom); err != nil {
				r.finish(err)
				break
			}
			again, err := w.together(r, 1)
			if len(again) == 0 {
				break
			}
			last := try == 3 || !r.makesRoom // deletes get the reserve first, then what folding the log frees
			w.disk.makeRoom(w.conn, !last, err)
			if last {
				r.finish(err)
				break
			}
		}
	}
	ended = true
}

// errEnded ends requests whose group was interrupted by runtime.Goexit.
var errEnded = errors.New("write abandoned: a function in the same transaction ended its goroutine")

// together runs a request and up to limit-1 waiting ones in one transaction. It returns those that
// were rolled back because the disk is full.
//
// A savepoint per request would copy every page that it changes, for failures that are rare. So
// they run without; when one fails, all are rolled back and each runs again in a savepoint.
func (w *writer) together(r *request, limit int) (undone []*request, err error) {
	b := &batch{w: w, left: []*request{r}}
	finished := false
	defer func() {
		if !finished {
			b.abandon()
		}
	}()

	for n := 1; len(b.left) > 0; {
		if err := b.next(); err != nil {
			w.lists.clear()
			w.rollback()
			finished = true
			return append(b.ran, b.left...), err
		}
		if len(b.left) == 0 && n < limit {
			select {
			case r := <-w.queue:
				b.left = append(b.left, r)
				n++
			default:
			}
		}
	}
	if !w.conn.AutocommitEnabled() {
		if err = w.commit(); isFull(err) {
			finished = true
			return b.ran, err
		}
		if err == nil {
			err = w.disk.measure()
		}
	}
	w.lists.done(false)
	w.disk.restore() // before callers learn that there is space
	finished = true
	w.publish(b.ran, err)
	finish(b.ran, err)
	return nil, nil
}

// batch is the requests of one transaction.
type batch struct {
	w     *writer
	ran   []*request // their function succeeded; the commit decides
	left  []*request // to run, in this order
	apart bool       // each runs in a savepoint, because one of them failed
}

// next runs the first request that is left. Its error is that of a full disk, with which the request is still left; of other errors the request learns.
func (b *batch) next() error {
	w, r := b.w, b.left[0]
	if r.state.Load() != begun && !r.begin() { // its caller does not wait any more
		b.left = b.left[1:]
		return nil
	}
	if err := w.disk.refuses(r.makesRoom); err != nil { // the disk may have become full while it waited
		r.finish(err)
		b.left = b.left[1:]
		return nil
	}
	err := w.attempt(r, b.apart)
	switch {
	case isFull(err):
		return err
	case err != nil && !b.apart && len(b.ran) > 0:
		b.left, b.ran, b.apart = append(b.ran, b.left...), nil, true
		return nil
	}
	b.left = b.left[1:]
	if err == nil {
		b.ran = append(b.ran, r)
	} else {
		w.disk.restore()
		r.finish(err)
	}
	if w.conn.AutocommitEnabled() && len(b.ran) > 0 {
		// Some errors (disk full, I/O) roll back the whole transaction, earlier requests included.
		if err == nil {
			err = errors.New("the transaction was rolled back")
		}
		finish(b.ran, err)
		b.ran = nil
	}
	return nil
}

// abandon answers all requests when a function did not return.
func (b *batch) abandon() {
	b.w.lists.clear()
	b.w.rollback()
	finish(b.left, errEnded)
	finish(b.ran, errEnded)
}

// commit commits the transaction, or rolls it back.
func (w *writer) commit() error {
	err := w.disk.cover(w.conn)
	if err == nil {
		err = exec(w.conn, "COMMIT")
	}
	if err != nil {
		w.lists.clear()
		w.rollback()
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// publish passes on what requests of a transaction changed; err is that of its commit.
func (w *writer) publish(ran []*request, err error) {
	if slices.ContainsFunc(ran, func(r *request) bool { return r.assistants }) {
		w.assistants.forget() // also after a failed commit, whose outcome is unknown
	}
	for _, r := range ran {
		if err == nil && w.changed != nil && len(r.threads) > 0 {
			w.changed(r.threads)
		}
		if err == nil && w.touched != nil && len(r.touched) > 0 {
			w.touched(r.touched)
		}
		if len(r.vectors) > 0 {
			w.vectors.wrote(r.vectors, err)
		}
	}
}

// attempt runs a request in the transaction, beginning one if needed. A failure rolls back this
// request alone if apart, else the whole transaction.
func (w *writer) attempt(r *request, apart bool) error {
	if w.conn.AutocommitEnabled() {
		if err := exec(w.conn, "BEGIN IMMEDIATE"); err != nil {
			return err
		}
	}
	if w.rehearse {
		if err := w.rehearsal(r); err != nil {
			return err
		}
	}
	if apart {
		return w.savepoint(r)
	}
	err := w.call(r)
	if err != nil {
		w.lists.done(true)
		w.rollback()
	}
	return err
}

// rehearsal runs a request and rolls it back.
func (w *writer) rehearsal(r *request) error {
	if err := exec(w.conn, "SAVEPOINT rehearsal"); err != nil {
		return err
	}
	_ = w.call(r) // a failure will repeat itself
	w.lists.done(true)
	if w.conn.AutocommitEnabled() {
		w.lists.clear()
		return errors.New("the transaction was rolled back")
	}
	return errors.Join(exec(w.conn, "ROLLBACK TO rehearsal"), exec(w.conn, "RELEASE rehearsal"))
}

// savepoint runs a request so that its failure rolls back its own changes only.
func (w *writer) savepoint(r *request) error {
	if err := exec(w.conn, "SAVEPOINT w"); err != nil {
		return err
	}
	err := w.call(r)
	if w.conn.AutocommitEnabled() { // SQLite has rolled back the whole transaction
		w.lists.clear()
		return err
	}
	w.lists.done(err != nil)
	if err != nil {
		err = errors.Join(err, exec(w.conn, "ROLLBACK TO w"))
	}
	if e := exec(w.conn, "RELEASE w"); e != nil {
		err = errors.Join(err, e)
	}
	return err
}

// call runs the function of a request and turns a panic into an error.
func (w *writer) call(r *request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("panic in a write", "panic", p, "stack", string(debug.Stack()))
			err = fault.Newf(fault.Internal, "panic in a write: %v", p)
		}
	}()
	tx := newTx(w.conn, w.lists)
	tx.ring, tx.keys, tx.indexing = r.ring, w.keys, w.indexing.Load()
	defer func() { tx.conn = nil }() // later use panics instead of writing in another transaction
	if err = r.fn(tx); err == nil {
		err = tx.undecided
	}
	r.threads, r.assistants, r.vectors, r.touched = tx.threads, tx.assistants, tx.vectors, tx.Touched
	return err
}

// rollback ends the transaction. SQLite may have done it itself after some errors.
func (w *writer) rollback() {
	if w.conn.AutocommitEnabled() { // rolled back already, with an unknown part of the group
		w.lists.clear()
		return
	}
	if err := exec(w.conn, "ROLLBACK"); err != nil {
		w.log.Error("rollback failed", "error", err)
	}
}

// begin claims the request for the writer; false if its caller has given up.
func (r *request) begin() bool {
	if r.ctx.Err() != nil && r.state.CompareAndSwap(waiting, abandoned) {
		r.err = context.Cause(r.ctx)
		close(r.done)
		return false
	}
	return r.state.CompareAndSwap(waiting, begun)
}

// finish reports the result to the caller.
func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

// finish ends several requests with the same result.
func finish(rs []*request, err error) {
	for _, r := range rs {
		r.finish(err)
	}
}

package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/internal/loop"
)

const (
	// foldAfter is the delay between a write and folding the log, which gathers the writes in
	// between.
	foldAfter = 250 * time.Millisecond
	// longLog is the number of pages from which on the log should restart at its beginning. SQLite
	// restarts it only when all of it was folded while no transaction wrote.
	longLog = 4000
	// fewPages is how many pages the writer may fold while other writes wait.
	fewPages = 500
	// passes bounds how often the rest of a long log is folded in a row.
	passes = 8
	// longestLog is the size from which on the writer folds the rest regardless of its size, unless
	// a reader prevents it.
	longestLog = 64 << 10
)

// folder folds SQLite's log into the database on a connection of its own, while readers and the
// writer continue. SQLite itself would fold within the commit that makes the log long, and all
// waiting writes would wait for it.
type folder struct {
	log     *slog.Logger
	conn    *sqlite.Conn
	written chan struct{} // signals a commit
	last    chan struct{} // requests that the writer folds the rest
	stop    chan struct{}
	stopped chan struct{}
	folding sync.Mutex // held while conn folds; a second connection would fail at once, without waiting
	said    time.Time  // when the current failure was logged last; zero: folding works
}

// startFolder starts the goroutine; close ends it.
func startFolder(path, synchronous string, log *slog.Logger) (*folder, error) {
	conn, err := connect(path, false, "")
	if err != nil {
		return nil, err
	}
	if err := exec(conn, "PRAGMA synchronous = "+synchronous); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	f := &folder{
		log: log, conn: conn, written: make(chan struct{}, 1), last: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go f.run()
	return f, nil
}

// wake signals a commit. It never blocks: one signal stands for many commits.
func (f *folder) wake() {
	loop.Poke(f.written)
}

// close waits for a fold that is under way.
func (f *folder) close() error {
	close(f.stop)
	<-f.stopped
	return f.conn.Close()
}

// run folds after the first commit of each interval, until close.
func (f *folder) run() {
	defer close(f.stopped)
	timer := time.NewTimer(foldAfter)
	defer timer.Stop()
	for {
		select {
		case <-f.written:
		case <-f.stop:
			return
		}
		timer.Reset(foldAfter)
		select {
		case <-timer.C:
		case <-f.stop:
			return
		}
		f.note(f.fold())
	}
}

// sayFold is the interval at which a lasting failure is logged.
const sayFold = time.Minute

// note logs failures at most once per sayFold, and the recovery.
func (f *folder) note(err error) {
	now := time.Now()
	switch {
	case err == nil && !f.said.IsZero():
		f.said = time.Time{}
		f.log.Info("database checkpoint succeeded again")
	case err != nil && now.Sub(f.said) >= sayFold:
		f.said = now
		f.log.Warn("database checkpoint failed; retrying with each write", "error", err)
	}
}

// fold folds until the log is short, a reader prevents it, or the writer has to do the rest. A log
// restarts only when it was folded completely, which under constant writes only the writer can do.
func (f *folder) fold() error {
	before := -1
	for n := 1; ; n++ {
		f.folding.Lock()
		pages, left, err := fold(f.conn)
		f.folding.Unlock()
		if isFull(err) { // only the writer has a reserve
			f.askWriter()
			return nil
		}
		if err != nil || pages < longLog {
			return err
		}
		held := pages-left == before // no progress: a reader needs the rest
		before = pages - left
		if left <= fewPages || pages > longestLog && n == passes && !held {
			f.askWriter()
			return nil
		}
		if held || n == passes {
			f.wake() // try again after foldAfter
			return nil
		}
	}
}

// askWriter requests that the writer folds the rest.
func (f *folder) askWriter() {
	loop.Poke(f.last)
}

// fold folds as much of the log as readers allow. It returns the number of its pages, and how many
// are left.
func fold(conn *sqlite.Conn) (pages, left int, err error) {
	_, err = one(conn, "PRAGMA wal_checkpoint(PASSIVE)", func(s *sqlite.Stmt) error {
		pages = s.ColumnInt(1)
		left = pages - s.ColumnInt(2)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("fold the log: %w", err)
	}
	return pages, left, err
}

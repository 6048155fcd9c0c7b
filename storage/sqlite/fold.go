package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
)

const (
	// foldAfter is how long after a write the log is folded into the database, together with what was written meanwhile.
	foldAfter = 250 * time.Millisecond
	// longLog is how many pages the log may have before it is to begin anew. For that all of it must be folded while nothing is written.
	longLog = 4000
	// fewPages is how many pages the writer may fold: others wait for it.
	fewPages = 500
	// passes bounds how often the rest of a long log is folded at once.
	passes = 8
	// longestLog is where the writer folds what is left, however much that is, unless a reader is in the way.
	longestLog = 64 << 10
)

// folder folds the log into the database on a connection of its own: readers and the writer go on meanwhile. SQLite would do it within the commit that made
// the log long, and everybody would wait.
type folder struct {
	log     *slog.Logger
	conn    *sqlite.Conn
	written chan struct{} // something was written
	last    chan struct{} // asks the writer to fold the rest
	stop    chan struct{}
	stopped chan struct{}
	folding sync.Mutex // held while conn folds: another connection that tries it then fails at once, however long it may wait
	said    time.Time  // when a failure that goes on was logged; the zero time: none does
}

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

// wake notes that something was written.
func (f *folder) wake() {
	select {
	case f.written <- struct{}{}:
	default:
	}
}

func (f *folder) close() error {
	close(f.stop)
	<-f.stopped
	return f.conn.Close()
}

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

// sayFold is how often a failure that goes on is logged.
const sayFold = time.Minute

// note logs that folding fails, not each time while it goes on, and that it works again.
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

func (f *folder) fold() error {
	before := -1
	for n := 1; ; n++ {
		f.folding.Lock()
		pages, left, err := fold(f.conn)
		f.folding.Unlock()
		if isFull(err) { // the writer has a reserve
			f.askWriter()
			return nil
		}
		if err != nil || pages < longLog {
			return err
		}
		held := pages-left == before // a reader needs what follows
		before = pages - left
		if left <= fewPages || pages > longestLog && n == passes && !held {
			f.askWriter()
			return nil
		}
		if held || n == passes {
			f.wake() // again after a while
			return nil
		}
	}
}

// askWriter asks the writer to fold the rest.
func (f *folder) askWriter() {
	select {
	case f.last <- struct{}{}:
	default:
	}
}

// fold folds as much of the log as readers allow, and gives how many pages it has and how many of them are left.
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

package sqlite

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/internal/fault"
)

const (
	reserveName = "understudy.reserve"
	// reserveBytes are kept for deleting: it writes before it frees. On a small disk it is less: a quarter of what is free, but never below leastReserve.
	reserveBytes = 8 << 20
	leastReserve = 64 << 10
	// retryFull is how often a full disk is asked whether there is room again.
	retryFull = time.Second
)

var (
	errFull = fault.New(fault.Unavailable, "the disk is full: nothing can be saved until there is room. Deleting threads, runs and store items works")
	errGone = fault.New(fault.Unavailable, "the database file was removed or replaced while the server runs: nothing can be saved; put it back and start the server again")
)

// disk watches what the database stands on. A write that is answered must be in the file of that name, and on a full disk there must be a way
// to make room. Only the writer's goroutine uses allocate, and gives the reserve free or takes it.
type disk struct {
	log     *slog.Logger
	path    string // of the database
	reserve string // file that is given up when the disk is full
	size    int64  // of the reserve
	keep    bool   // it is there as long as the disk is not full
	files   []file
	every   time.Duration // retryFull; tests lower it
	// allocate makes a file of so many bytes that takes its room on the disk; tests replace it.
	allocate func(path string, size int64) error

	full, gone atomic.Bool
}

type file struct {
	path string
	info os.FileInfo
}

// watchDisk begins when the database is open. volatile ones keep no reserve: their disk is memory.
func watchDisk(path string, volatile bool, log *slog.Logger) (*disk, error) {
	d := &disk{
		log: log, path: path, reserve: filepath.Join(filepath.Dir(path), reserveName), keep: !volatile, size: leastReserve, every: retryFull, allocate: allocate,
	}
	for _, p := range []string{path, path + "-wal"} {
		info, err := os.Stat(p)
		if errors.Is(err, os.ErrNotExist) && p != path {
			continue
		}
		if err != nil {
			return nil, err
		}
		d.files = append(d.files, file{p, info})
	}
	if d.keep {
		d.begin()
	}
	return d, nil
}

// begin takes the reserve.
func (d *disk) begin() {
	if info, err := os.Stat(d.reserve); err == nil && info.Size() == reserveBytes {
		d.size = reserveBytes
		return
	}
	var err error
	for d.size = reserveBytes; d.size >= leastReserve; d.size /= 2 {
		if err = d.take(4 * d.size); err == nil {
			return
		}
	}
	d.size = leastReserve
	d.log.Error("the disk is full: only deleting works until there is room", "file", d.path, "error", err)
	d.release()
	d.full.Store(true)
}

// take takes the reserve if that many bytes are free.
func (d *disk) take(free int64) error {
	if err := d.allocate(d.reserve, free); err != nil {
		return err
	}
	return os.Truncate(d.reserve, d.size)
}

// refuses gives why a write cannot be taken; nil when it can. On a full disk those that make room may go on.
func (d *disk) refuses(makesRoom bool) error {
	switch {
	case d.gone.Load():
		return errGone
	case d.full.Load() && !makesRoom:
		return errFull
	}
	return nil
}

// check reports whether what was committed is in the files of their names, the first n of them: the database and its log. It is asked before a
// commit is acknowledged.
func (d *disk) check(n int) error {
	for _, f := range d.files[:n] {
		if info, err := os.Stat(f.path); err != nil || !os.SameFile(info, f.info) {
			if !d.gone.Swap(true) {
				d.log.Error("the database file was removed or replaced while the server runs; nothing is saved any more", "file", f.path, "error", err)
			}
			return errGone
		}
	}
	return nil
}

// note looks at why a write failed, and gives the reserve free when the disk is full.
func (d *disk) note(err error) {
	if sqlite.ErrCode(err).ToPrimary() != sqlite.ResultFull || d.full.Swap(true) {
		return
	}
	d.log.Error("the disk is full: only deleting works until there is room", "file", d.path, "error", err)
	d.release()
}

func (d *disk) release() {
	if err := os.Remove(d.reserve); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.log.Error("the reserve cannot be given free", "file", d.reserve, "error", err)
	}
}

// retry looks whether there is room again: on the disk for the reserve and as much beside it, or for the reserve, and as much within the
// database, where something was deleted.
func (d *disk) retry(conn *sqlite.Conn) {
	err := d.take(2 * d.size)
	if err != nil {
		d.release()
		// The log has grown with what was deleted. Folded, it gives that back.
		if err = truncateLog(conn); err == nil {
			free := 2 * d.size
			if roomWithin(conn) >= d.size {
				free = d.size
			}
			err = d.take(free)
		}
	}
	if err != nil || !d.keep {
		d.release()
	}
	if err == nil {
		d.full.Store(false)
		d.log.Info("the disk has room again", "file", d.path)
	}
}

// truncateLog folds the log and empties its file, unless a reader is in the way: it does not wait for any.
func truncateLog(conn *sqlite.Conn) error {
	return errors.Join(exec(conn, "PRAGMA busy_timeout = 0"), exec(conn, "PRAGMA wal_checkpoint(TRUNCATE)"), exec(conn, busyTimeout))
}

// roomWithin is how many bytes of the database are free for new rows.
func roomWithin(conn *sqlite.Conn) int64 {
	var pages, size int64
	for text, to := range map[string]*int64{"PRAGMA freelist_count": &pages, "PRAGMA page_size": &size} {
		if _, err := one(conn, text, func(s *sqlite.Stmt) error { *to = s.ColumnInt64(0); return nil }); err != nil {
			return 0
		}
	}
	return pages * size
}

// fill writes a file of zeros.
func fill(f *os.File, size int64) error {
	for zeros := make([]byte, 1<<20); size > 0; size -= int64(len(zeros)) {
		if _, err := f.Write(zeros[:min(size, int64(len(zeros)))]); err != nil {
			return err
		}
	}
	return f.Sync()
}

func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(takeRoom(f, size), f.Close())
}

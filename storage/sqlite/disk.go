package sqlite

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
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
	// foldPatience is how long a write that finds no room waits for readers that keep the log from being emptied.
	foldPatience = time.Second
)

var (
	errFull = fault.New(fault.Unavailable, "the disk is full: nothing can be saved until there is room. Deleting threads, runs and store items works")
	errGone = fault.New(fault.Unavailable, "the database file was removed or replaced while the server runs: nothing can be saved; put it back and start the server again")
)

// disk watches what the database stands on. A write that is answered must be in the file of that name, and on a full disk there must be a way
// to make room.
//
// That way is the reserve: a file that is given up for the transactions that delete, which write to the log before they free anything, and for folding
// the log into the database, which empties the log but lets the database grow first. How much it grows (growth) depends on what was written since the
// log was folded last: one large transaction, or many while a reader keeps an old state. So the reserve grows with it, before the commit. Half of
// size is always left for deleting.
//
// While the disk is full the reserve stays: what is free belongs to every program on the disk. Only a transaction that deletes and meets the end of the
// disk has it, and what it did not need is taken back before its caller knows of its end (restore).
//
// Only the writer's goroutine changes it.
type disk struct {
	log     *slog.Logger
	path    string // of the database
	reserve string // file that takes room, which those that delete are given
	size    int64  // of the reserve while the log is folded
	held    int64  // size of the reserve now
	keep    bool   // there is one
	files   []file
	folding *sync.Mutex   // of the folder
	every   time.Duration // retryFull; tests lower it
	// allocate makes a file take at least so many bytes of its disk; tests replace it.
	allocate func(path string, size int64) error
	// extend is allocate that writes nothing, or fails with errors.ErrUnsupported.
	extend func(path string, size int64) error
	fixed  bool // the reserve cannot grow: the file system has no extend

	pageSize, pages int64     // of the database, with what is in the log; pages as of the last commit
	stored          int64     // bytes that the database takes on the disk
	logged          int64     // size of the log's file
	impatient       time.Time // until then readers are waited for only shortly: longer was in vain

	full, gone atomic.Bool
}

type file struct {
	path string
	info os.FileInfo
}

// watchDisk begins when the database is open, with its writing connection. volatile ones keep no reserve: their disk is memory.
func watchDisk(conn *sqlite.Conn, path string, folding *sync.Mutex, volatile bool, log *slog.Logger) (*disk, error) {
	d := &disk{
		log: log, path: path, folding: folding, reserve: filepath.Join(filepath.Dir(path), reserveName), keep: !volatile, size: leastReserve, every: retryFull,
		allocate: allocate, extend: extend,
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
		d.begin(conn)
	}
	return d, nil
}

// begin folds what a server that was killed left in the log, with the room of its reserve, and takes the reserve.
func (d *disk) begin(conn *sqlite.Conn) {
	before, statErr := os.Stat(d.reserve)
	err := d.fold(conn, 0)
	if err != nil {
		d.log.Warn("database checkpoint failed", "error", err)
	}
	if statErr == nil && before.Size() >= reserveBytes {
		if d.size = reserveBytes; d.take(d.size, d.size) == nil {
			return
		}
	}
	for d.size = reserveBytes; d.size >= leastReserve; d.size /= 2 {
		free := 4 * d.size
		if statErr == nil && before.Size() >= d.size {
			free = d.size // it had that, and a full disk does not make it less
		}
		if err = d.take(free, d.size); err == nil {
			return
		}
	}
	d.size = leastReserve
	d.log.Error("the disk is full: only deleting works until there is room", "file", d.path, "error", err)
	d.full.Store(true)
	d.restore()
}

// take takes the reserve if free bytes are free, its own included: as many as the log needs, and size.
func (d *disk) take(free, size int64) error {
	growth := d.growth()
	if err := d.allocate(d.reserve, growth+free); err != nil {
		d.hold(d.held) // some file systems leave what they could allocate
		return err
	}
	d.hold(growth + size)
	return nil
}

// restore takes as much of the reserve as a full disk has room for.
func (d *disk) restore() {
	if !d.keep || !d.full.Load() {
		return
	}
	for all := d.growth() + d.size; d.held < all; {
		next := min(all, d.held+d.size/16)
		if err := d.allocate(d.reserve, next); err != nil {
			d.hold(d.held)
			return
		}
		d.held = next
	}
}

// hold makes the reserve smaller.
func (d *disk) hold(size int64) {
	if err := os.Truncate(d.reserve, size); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.log.Error("cannot release the reserve", "file", d.reserve, "error", err)
	}
	d.held = size
}

// giveUp leaves to those who delete all of the reserve that folding the log does not need. The file stays: on a full disk there may be no other.
func (d *disk) giveUp() {
	growth := d.growth()
	if growth > 0 && d.keep {
		if err := d.allocate(d.reserve, growth); err != nil {
			growth = 0
		}
	}
	d.hold(growth)
}

// growth is by how much the database grows at most when the log is folded: by the pages that it does not have yet, and by what is in the log.
func (d *disk) growth() int64 {
	return max(0, min(d.pages*d.pageSize-d.stored, d.logged))
}

// count asks how many pages the database has, with those of the transaction that is open.
func (d *disk) count(conn *sqlite.Conn) error {
	if d.pageSize == 0 {
		if _, err := one(conn, "PRAGMA page_size", func(s *sqlite.Stmt) error { d.pageSize = s.ColumnInt64(0); return nil }); err != nil {
			return err
		}
	}
	_, err := one(conn, "PRAGMA page_count", func(s *sqlite.Stmt) error {
		n := s.ColumnInt64(0)
		d.logged += max(0, n-d.pages) * d.pageSize // the least by which the commit lengthens it, or what it has been
		d.pages = n
		return nil
	})
	return err
}

// cover makes the reserve as large as it has to be once the transaction that is open is committed. Where a disk cannot give room that is not written,
// the reserve stays as it is.
func (d *disk) cover(conn *sqlite.Conn) error {
	if !d.keep {
		return nil
	}
	if err := d.count(conn); err != nil || d.full.Load() {
		return err
	}
	switch growth := d.growth(); {
	case d.held < growth+d.size/2 && !d.fixed:
		err := d.extend(d.reserve, growth+d.size)
		if errors.Is(err, errors.ErrUnsupported) {
			d.fixed = true
			return nil
		}
		if err != nil {
			d.hold(d.held) // some file systems leave what they could allocate
			return classify(fmt.Errorf("the reserve cannot grow with the log: %w: %w", err, sqlite.ResultFull.ToError()))
		}
		d.held = growth + d.size
	case d.held > growth+4*d.size:
		d.hold(growth + d.size)
	}
	return nil
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
func (d *disk) check(n int) error { return d.look(n, func(string, os.FileInfo) {}) }

// measure is check of all files for the writer, which needs to know how large they are.
func (d *disk) measure() error {
	return d.look(len(d.files), func(path string, info os.FileInfo) {
		if path == d.path {
			d.stored = onDisk(info)
		} else {
			d.logged = info.Size()
		}
	})
}

func (d *disk) look(n int, at func(path string, info os.FileInfo)) error {
	for _, f := range d.files[:n] {
		info, err := os.Stat(f.path)
		if err != nil || !os.SameFile(info, f.info) {
			if !d.gone.Swap(true) {
				d.log.Error("database file removed or replaced while the server runs; nothing can be saved", "file", f.path, "error", err)
			}
			return errGone
		}
		at(f.path, info)
	}
	return nil
}

// isFull reports whether a write failed because the disk is full. For the index of the log SQLite has an error of its own.
func isFull(err error) bool {
	return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull || sqlite.ErrCode(err) == sqlite.ResultIOErrSHMSize
}

// makeRoom is asked after a write met the end of the disk, and was undone. A log that is long has room that folding gives back: only when that is
// not enough the disk counts as full, or when even then there was none for one that deletes (all).
func (d *disk) makeRoom(conn *sqlite.Conn, all bool, cause error) {
	if all && d.full.Load() && d.held > d.growth() { // folding may have to wait for readers
		d.giveUp()
		return
	}
	wait := foldPatience
	if !all && !d.full.Load() && time.Now().Before(d.impatient) {
		wait /= 10 // one large write after the other is not to hold up small ones
	}
	if err := d.fold(conn, wait); err != nil {
		d.impatient = time.Now().Add(10 * foldPatience)
		cause = errors.Join(cause, err)
	}
	if !all && !d.full.Load() && d.takeAgain(conn) == nil {
		return
	}
	if !d.full.Swap(true) {
		d.log.Error("the disk is full: only deleting works until there is room", "file", d.path, "error", cause)
	}
	if all {
		d.giveUp()
	} else {
		d.restore()
	}
}

// retry looks whether a full disk has room again.
func (d *disk) retry(conn *sqlite.Conn) {
	err := d.take(2*d.size, d.size)
	if err != nil {
		// The log has grown with what was deleted. Folded, it gives that back.
		if err = d.fold(conn, 0); err == nil {
			err = d.takeAgain(conn)
		}
	}
	switch {
	case err != nil:
		d.restore()
	case !d.keep:
		d.giveUp()
	}
	if err == nil {
		d.full.Store(false)
		d.log.Info("the disk has room again", "file", d.path)
	}
}

// takeAgain takes the reserve if there is room for it and as much beside it, or for it and a little, and as much within the database, where something
// was deleted.
func (d *disk) takeAgain(conn *sqlite.Conn) error {
	free := 2 * d.size
	if roomWithin(conn) >= d.size {
		free = d.size + d.size/4
	}
	err := d.take(free, d.size)
	if err == nil && !d.keep {
		d.giveUp()
	}
	return err
}

// fold folds the log and empties its file, unless a reader is in the way for longer than wait. It is given what it may need of the reserve, and all
// but half of size, which other programs cannot take meanwhile; the caller takes the rest again.
func (d *disk) fold(conn *sqlite.Conn, wait time.Duration) error {
	d.folding.Lock()
	defer d.folding.Unlock()
	d.hold(max(0, min(d.held-d.growth(), d.size/2)))
	busy := false
	err := exec(conn, fmt.Sprintf("PRAGMA busy_timeout = %d", wait.Milliseconds()))
	if err == nil {
		_, err = one(conn, "PRAGMA wal_checkpoint(TRUNCATE)", func(s *sqlite.Stmt) error { busy = s.ColumnInt(0) != 0; return nil })
	}
	if busy && err == nil {
		err = errors.New("a reader keeps the log of the database")
	}
	err = errors.Join(err, exec(conn, busyTimeout))
	_ = d.measure() // how large the files are now; that they are gone shows with the next write
	return errors.Join(err, d.count(conn))
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

// fill lengthens a file to a size with zeros.
func fill(f *os.File, size int64) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	size -= end
	for zeros := make([]byte, 1<<20); size > 0; size -= int64(len(zeros)) {
		if _, err := f.Write(zeros[:min(size, int64(len(zeros)))]); err != nil {
			return err
		}
	}
	return f.Sync()
}

func allocate(path string, size int64) error {
	err := extend(path, size)
	if errors.Is(err, errors.ErrUnsupported) {
		return change(path, func(f *os.File) error { return fill(f, size) })
	}
	return err
}

func extend(path string, size int64) error {
	return change(path, func(f *os.File) error { return takeRoom(f, size) })
}

func change(path string, with func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(with(f), f.Close())
}

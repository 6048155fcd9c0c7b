package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/internal/diskspace"
	"understudy/internal/fault"
	"understudy/internal/owner"
)

const (
	// Sizes and delays of the reserve.
	reserveName = "understudy.reserve"
	// reserveBytes is the space kept for deletes, which write before they free. On a small disk the
	// reserve is a quarter of the free space, and at least leastReserve.
	reserveBytes = 8 << 20
	leastReserve = 64 << 10
	// labelBytes is the start of the reserve that is never released. It names the wanted size, for
	// the next start: the size of the file itself depends on the log.
	labelBytes = 4 << 10
	// retryFull is the interval at which a full disk is checked for space.
	retryFull = time.Second
	// foldPatience is how long a write without space waits for readers that keep the log from being
	// emptied.
	foldPatience = time.Second
)

var (
	// ErrFull is the error of writes on a full disk, and of Ping.
	ErrFull = diskspace.ErrFull
	errGone = fault.New(fault.Unavailable, "the database file was removed or replaced while the server runs: nothing can be saved; put it back and start the server again")
)

// disk checks that acknowledged writes are in the database file, and keeps space so that deletes
// work on a full disk.
//
// The space is the reserve, a file of its own. It is released to transactions that delete, which
// write to the log before they free pages, and to folding the log into the database, which empties
// the log but lets the database grow first. How much the database grows (growth) depends on what
// was written since the last fold: one large transaction, or many while a reader holds an old
// snapshot. So the reserve grows before the commit that needs it. Half of size is always left for
// deletes.
//
// While the disk is full the reserve stays, because free space belongs to every program on the
// disk. Only a delete that meets the end of the disk gets it, and the unused part is taken back
// before the caller continues (restore).
//
// Only the writer's goroutine uses disk; full and gone are also read by others.
type disk struct {
	log     *slog.Logger
	path    string // of the database
	reserve string // file that occupies the space for deletes
	size    int64  // wanted size of the reserve when the log is folded
	held    int64  // current size of the reserve without its label
	keep    bool   // false for databases in memory
	files   []file
	folding *sync.Mutex   // of the folder
	every   time.Duration // retryFull; tests lower it
	// allocate makes a file occupy at least size bytes of its disk; tests replace it.
	allocate func(path string, size int64) error
	// extend is allocate without writing zeros; errors.ErrUnsupported if the file system cannot.
	extend func(path string, size int64) error
	fixed  bool // the reserve cannot grow: the file system has no extend

	pageSize, pages int64     // of the database including the log; pages as of the last commit
	stored          int64     // bytes that the database takes on the disk
	logged          int64     // size of the log's file
	impatient       time.Time // until then writes wait for readers only briefly: a long wait has just failed

	full, gone atomic.Bool
}

// presence is how often a server on which nothing is written looks whether its database is still there.
const presence = 2 * time.Second

// file is a database file and its identity when the store was opened.
type file struct {
	path string
	info os.FileInfo
}

// watchDisk returns the disk of an open database. conn is its writing connection. volatile
// databases keep no reserve: their disk is memory.
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

// lend releases a little of the reserve in a folder to opening the database, which makes the log
// and its index. It reports whether there was any.
func lend(dir string) bool {
	path := filepath.Join(dir, reserveName)
	info, err := os.Stat(path)
	return err == nil && info.Size() > labelBytes && os.Truncate(path, max(labelBytes, info.Size()-leastReserve)) == nil
}

// begin folds what a killed server left in the log, using the old reserve, and takes a new one: on a
// small disk half of the space, or a quarter, until it fits. Its wanted size never becomes smaller
// than the old one, because what was released on a full disk another program may take.
func (d *disk) begin(conn *sqlite.Conn) {
	if old, err := os.Stat(d.reserve); err == nil {
		d.held = max(0, old.Size()-labelBytes)
	}
	err := errors.Join(d.count(conn), d.measure())
	least := d.wanted()
	d.size = least
	if err == nil {
		err = d.fold(conn, 0)
	}
	if err != nil {
		d.log.Warn("database checkpoint failed", "error", err)
	}
	for d.size = reserveBytes; d.size > least; d.size /= 2 {
		if d.take(4*d.size, d.size) == nil {
			d.label()
			return
		}
	}
	if err = d.take(least+least/4, least); err == nil {
		d.label()
		return
	}
	d.logFull(err)
	d.full.Store(true)
	d.restore()
}

// wanted returns the size that the reserve of the server before was to have, from its label. One
// without a label has it only roughly.
func (d *disk) wanted() int64 {
	size := int64(leastReserve)
	text := make([]byte, 20)
	if f, err := os.Open(d.reserve); err == nil {
		n, _ := io.ReadFull(f, text)
		_ = f.Close()
		text, _, _ = bytes.Cut(text[:n], []byte("\n"))
	}
	label, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		label = d.held - d.growth()
	}
	for 2*size <= min(label, reserveBytes) {
		size *= 2
	}
	return size
}

// label writes the wanted size into the reserve. If that fails, as on file systems that need room to
// change what is there, the next start makes do with the size of the file.
func (d *disk) label() {
	_ = change(d.reserve, func(f *os.File) error {
		_, err := f.WriteAt(append(strconv.AppendInt(nil, d.size, 10), '\n'), 0)
		return err
	})
}

// take sets the reserve to growth plus size, if growth plus free bytes are available, the current
// reserve included. Requiring more than it takes avoids a disk that is full again at once.
func (d *disk) take(free, size int64) error {
	growth := d.growth()
	if err := d.allocate(d.reserve, labelBytes+growth+free); err != nil {
		d.hold(d.held) // some file systems leave what they could allocate
		return err
	}
	d.hold(growth + size)
	return nil
}

// restore takes back as much of the reserve as a full disk has space for, to a page: what it leaves
// another program may take.
func (d *disk) restore() {
	if !d.keep || !d.full.Load() {
		return
	}
	all := d.growth() + d.size
	for step := d.size / 16; d.held < all && step >= 4096; {
		next := min(all, d.held+step)
		if err := d.allocate(d.reserve, labelBytes+next); err != nil {
			d.hold(d.held)
			step /= 2
			continue
		}
		d.held = next
	}
}

// hold shrinks the reserve.
func (d *disk) hold(size int64) {
	if err := os.Truncate(d.reserve, labelBytes+size); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.log.Error("cannot release the reserve", "file", d.reserve, "error", err)
	}
	d.held = size
}

// giveUp releases the reserve to deletes, except what folding the log needs. The file stays,
// because creating one may fail on a full disk.
func (d *disk) giveUp() {
	growth := d.growth()
	if growth > 0 && d.keep {
		if err := d.allocate(d.reserve, labelBytes+growth); err != nil {
			growth = 0
		}
	}
	d.hold(growth)
}

// growth returns by how much the database can grow when the log is folded: at most by its new
// pages, and at most by the size of the log.
func (d *disk) growth() int64 {
	return max(0, min(d.pages*d.pageSize-d.stored, d.logged))
}

// count reads the number of pages, those of the open transaction included.
func (d *disk) count(conn *sqlite.Conn) error {
	if d.pageSize == 0 {
		if _, err := one(conn, "PRAGMA page_size", func(s *sqlite.Stmt) error { d.pageSize = s.ColumnInt64(0); return nil }); err != nil {
			return err
		}
	}
	_, err := one(conn, "PRAGMA page_count", func(s *sqlite.Stmt) error {
		n := s.ColumnInt64(0)
		d.logged += max(0, n-d.pages) * d.pageSize // a lower bound for the log after the commit
		d.pages = n
		return nil
	})
	return err
}

// cover grows the reserve to what is needed once the open transaction is committed; an error
// refuses the commit. On file systems that can only reserve space by writing it, the reserve stays
// as it is.
func (d *disk) cover(conn *sqlite.Conn) error {
	if !d.keep {
		return nil
	}
	if err := d.count(conn); err != nil || d.full.Load() {
		return err
	}
	switch growth := d.growth(); {
	case d.held < growth+d.size/2 && !d.fixed:
		err := d.extend(d.reserve, labelBytes+growth+d.size)
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

// refuses returns why a write cannot be accepted, or nil. On a full disk only deletes are
// accepted.
func (d *disk) refuses(makesRoom bool) error {
	switch {
	case d.gone.Load():
		return errGone
	case d.full.Load() && !makesRoom:
		return ErrFull
	}
	return nil
}

// check returns errGone if one of the first n files (the database, its log) was removed or
// replaced. It runs before a commit is acknowledged: SQLite itself keeps writing to a deleted file
// without an error.
func (d *disk) check(n int) error { return d.look(n, func(string, os.FileInfo) {}) }

// measure is check for all files, and records their sizes.
func (d *disk) measure() error {
	return d.look(len(d.files), func(path string, info os.FileInfo) {
		if path == d.path {
			d.stored = onDisk(info)
		} else {
			d.logged = info.Size()
		}
	})
}

// look calls at for each of the first n files that is still the one that was opened.
func (d *disk) look(n int, at func(path string, info os.FileInfo)) error {
	for _, f := range d.files[:n] {
		info, err := os.Stat(f.path)
		if err != nil || !os.SameFile(info, f.info) {
			if !d.gone.Swap(true) {
				d.log.Error("database file removed or replaced while the server runs; nothing can be saved", "file", f.path, "error", err,
					"fix", "stop the server, put the folder back as it was, or restore a backup with understudy restore, and start it again")
			}
			return errGone
		}
		at(f.path, info)
	}
	return nil
}

// isFull reports whether a write failed because the disk is full. SQLite has a code of its own for
// the index of the log.
func isFull(err error) bool {
	return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull || sqlite.ErrCode(err) == sqlite.ResultIOErrSHMSize
}

// makeRoom runs after a write met the end of the disk and was rolled back. Folding a long log
// frees space, so the disk counts as full only if that does not suffice. all says that the write
// deletes: then it gets the reserve.
func (d *disk) makeRoom(conn *sqlite.Conn, all bool, cause error) {
	if all && d.full.Load() && d.held > d.growth() { // the reserve is quicker than folding, which may wait for readers
		d.giveUp()
		return
	}
	wait := foldPatience
	if !all && !d.full.Load() && time.Now().Before(d.impatient) {
		wait /= 10 // a series of large writes must not delay small ones
	}
	if err := d.fold(conn, wait); err != nil {
		d.impatient = time.Now().Add(10 * foldPatience)
		cause = errors.Join(cause, err)
	}
	if !all && !d.full.Load() && d.takeAgain(conn) == nil {
		return
	}
	if !d.full.Swap(true) {
		d.logFull(cause)
	}
	if all {
		d.giveUp()
	} else {
		d.restore()
	}
}

// logFull logs that the disk is full, and what ends that.
func (d *disk) logFull(cause error) {
	d.log.Error("the disk is full: only deleting works until there is room", "file", d.path, "error", cause,
		"fix", fmt.Sprintf("free %d bytes on the disk of %s; deleting threads helps too, unless another program fills the disk", 2*d.size, filepath.Dir(d.path)))
}

// retry checks whether a full disk has space again.
func (d *disk) retry(conn *sqlite.Conn) {
	err := d.take(2*d.size, d.size)
	if err != nil {
		// Deletes have lengthened the log; folding it returns that space.
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

// takeAgain takes the reserve if twice its size is free. A little more than its size is enough if
// the database itself has that much free space, as after deletes.
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

// fold folds the log and empties its file, unless readers prevent it for longer than wait. It
// releases what folding needs of the reserve, and all but half of size: what it keeps, other
// programs cannot take meanwhile. The caller takes the rest again.
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
	_ = d.measure() // updates the sizes; the next write reports missing files
	return errors.Join(err, d.count(conn))
}

// roomWithin returns the free bytes inside the database file.
func roomWithin(conn *sqlite.Conn) int64 {
	var pages, size int64
	for text, to := range map[string]*int64{"PRAGMA freelist_count": &pages, "PRAGMA page_size": &size} {
		if _, err := one(conn, text, func(s *sqlite.Stmt) error { *to = s.ColumnInt64(0); return nil }); err != nil {
			return 0
		}
	}
	return pages * size
}

// fill extends a file to size with zeros, for file systems without fallocate.
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

// allocate reserves space, by writing zeros if the file system has no other way.
func allocate(path string, size int64) error {
	err := extend(path, size)
	if errors.Is(err, errors.ErrUnsupported) {
		return change(path, func(f *os.File) error { return fill(f, size) })
	}
	return err
}

// extend reserves space without writing it.
func extend(path string, size int64) error {
	return change(path, func(f *os.File) error { return takeRoom(f, size) })
}

// change opens or creates a file of the owner only and calls with.
func change(path string, with func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(owner.Inherit(path), with(f), f.Close())
}

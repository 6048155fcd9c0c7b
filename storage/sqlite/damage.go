package sqlite

import (
	"log/slog"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/internal/fault"
)

const damagedText = "the database is damaged: restore a backup, or one that understudy backup --damaged makes of what can be read; understudy doctor has details"

// errDamaged is the state of a store until it is opened again.
var errDamaged = fault.New(fault.Unavailable, damagedText)

// damage notes that the database is damaged. SQLite finds that only in the pages that it reads: a damaged database opens, and parts of it work. After a write has
// failed for it the store counts as unavailable. Reads of what is whole continue.
type damage struct {
	log    *slog.Logger
	path   string
	writes atomic.Bool  // one has failed
	logged atomic.Int64 // when it was logged, as Unix time
}

// sayDamaged is the interval between log lines.
const sayDamaged = time.Minute

func (d *damage) is(err error) bool {
	code := sqlite.ErrCode(err).ToPrimary()
	if err == nil || code != sqlite.ResultCorrupt && code != sqlite.ResultNotADB {
		return false
	}
	now := time.Now().Unix()
	if last := d.logged.Load(); now-last >= int64(sayDamaged/time.Second) && d.logged.CompareAndSwap(last, now) {
		d.log.Error("the database is damaged", "file", d.path, "error", err,
			"fix", "stop the server, keep a copy of the folder, and restore a backup (understudy restore), or one of what can be read (understudy backup TARGET --damaged)")
	}
	return true
}

// read returns the error of a read.
func (d *damage) read(err error) error {
	d.is(err)
	return err
}

// wrote returns the error of a write.
func (d *damage) wrote(err error) error {
	if d.is(err) {
		d.writes.Store(true)
	}
	return err
}

// refuses returns why the store counts as unavailable.
func (d *damage) refuses() error {
	if d.writes.Load() {
		return errDamaged
	}
	return nil
}

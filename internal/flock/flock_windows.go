package flock

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// Try locks a file until it is closed, and returns ErrLocked if another one holds it. It locks one byte far beyond the text: others
// could not read what is locked.
func Try(f *os.File, shared bool) error {
	var how uint32 = windows.LOCKFILE_FAIL_IMMEDIATELY
	if !shared {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{OffsetHigh: math.MaxInt32})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// NoRoomError is the error of what did not begin because the disk has too little room for it. It is a syscall.ENOSPC.
type NoRoomError struct {
	Dir        string
	Need, Free int64 // bytes
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("that needs %s on the disk of %s, which has %s", Megabytes(e.Need), e.Dir, Megabytes(e.Free))
}

// Unwrap returns ENOSPC.
func (e *NoRoomError) Unwrap() error { return syscall.ENOSPC }

// roomIn returns a NoRoomError if the disk of a folder, which may have to be made, is known to have less than need bytes: what fills a disk before it fails harms
// other programs.
func roomIn(dir string, need int64) error {
	at := Existing(dir)
	if has, _, known := freeBytes(at); known && has < need {
		return &NoRoomError{at, need, has}
	}
	return nil
}

// Existing returns the nearest of dir and its parents that exists; a file, if one stands in the way.
func Existing(dir string) string {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			return at
		}
	}
}

// Megabytes is a number of bytes as messages show it.
func Megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

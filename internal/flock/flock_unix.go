//go:build unix

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Try locks a file until it is closed, and returns ErrLocked if another one holds it.
func Try(f *os.File, shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

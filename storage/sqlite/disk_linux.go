package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// takeRoom makes an empty file take so many bytes of its disk.
func takeRoom(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return fill(f, size)
	}
	return err
}

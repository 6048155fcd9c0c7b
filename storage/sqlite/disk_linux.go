package sqlite

import (
	"os"
	"syscall"
)

// takeRoom makes a file occupy at least size bytes without writing them; errors.ErrUnsupported if
// the file system cannot.
func takeRoom(f *os.File, size int64) error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) }

// onDisk returns the bytes that a file occupies, which differs from its size for sparse files.
func onDisk(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

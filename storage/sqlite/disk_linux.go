package sqlite

import (
	"os"
	"syscall"
)

// takeRoom makes a file take at least so many bytes of its disk, without writing them; errors.ErrUnsupported on file systems that cannot.
func takeRoom(f *os.File, size int64) error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) }

// onDisk is how many bytes a file takes of its disk.
func onDisk(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

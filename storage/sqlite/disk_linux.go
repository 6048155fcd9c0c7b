package sqlite

import (
	"os"
	"syscall"
)

// takeRoom makes a file occupy at least size bytes without writing them; errors.ErrUnsupported if
// the file system cannot.
func takeRoom(f *os.File, size int64) error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) }

// freeBytes returns how much a program may still write to the disk of a folder, and which disk that is.
func freeBytes(dir string) (bytes int64, disk uint64, known bool) {
	var s syscall.Statfs_t
	info, err := os.Stat(dir)
	if err != nil || syscall.Statfs(dir, &s) != nil {
		return 0, 0, false
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int64(s.Bavail) * s.Bsize, uint64(of.Dev), true //nolint:unconvert // other sizes on other machines
}

// onDisk returns the bytes that a file occupies, which differs from its size for sparse files.
func onDisk(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

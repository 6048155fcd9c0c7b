//go:build unix

package files

import (
	"errors"
	"io/fs"
	"syscall"
)

// notFolder reports that a path continues behind a file, or has a name that no file can have.
func notFolder(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ELOOP)
}

// names returns how many names a file has.
func names(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Nlink) //nolint:unconvert // its type depends on the system
	}
	return 1
}

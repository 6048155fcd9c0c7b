package files

import (
	"errors"
	"io/fs"
	"syscall"
)

// notFolder reports that a path continues behind a file, or has a name that no file can have.
func notFolder(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ERROR_PATH_NOT_FOUND)
}

// names returns how many names a file has, as far as the system says.
func names(fs.FileInfo) int { return 1 }

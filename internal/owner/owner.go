// Package owner says whom files belong to, and lets root make files for another user.
package owner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Of returns the user id of the owner of a file; known is false on systems without such ids.
func Of(info fs.FileInfo) (uid int, known bool) {
	uid, _, known = ids(info)
	return uid, known
}

// Inherit gives files that this process made as root to the owner of their folder: the service that works there runs as that user, and could not
// open them. Of any other user, and for files that are not there, it does nothing.
func Inherit(paths ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var failed error
	for _, path := range paths {
		info, err := os.Stat(filepath.Dir(path))
		if err == nil {
			if uid, gid, known := ids(info); known {
				err = os.Lchown(path, uid, gid)
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

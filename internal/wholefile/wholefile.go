// Package wholefile replaces files so that readers, also after a crash, see the old content or the new one, never a part.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file next to its place, with a name that begins with a dot, and renames it. The folder has to exist. A link is replaced, not what it names.
func Replace(file string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

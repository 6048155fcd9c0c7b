package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"understudy/internal/flock"
	"understudy/internal/owner"
)

const lockName = "understudy.lock"

// ErrInUse is what an InUseError is.
var ErrInUse = errors.New("in use by another server")

// InUseError is the error of a data folder that another process has locked.
type InUseError struct {
	Dir    string
	Holder string // who has it: its pid, and since when
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("the data folder %s is %v (%s); stop it first, or use another folder", e.Dir, ErrInUse, e.Holder)
}

// Unwrap returns ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }

// makeDir creates the data folder for its owner only. An existing folder loses the access of
// others, because it holds conversations.
func makeDir(dir string) error {
	_, before := os.Lstat(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if errors.Is(before, os.ErrNotExist) {
		// It is often made inside of a project, where it must not be committed.
		ignore := filepath.Join(dir, ".gitignore")
		if err := os.WriteFile(ignore, []byte("*\n"), 0o600); err != nil {
			return err
		}
		if err := owner.Inherit(dir, ignore); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

// makeFile creates the database file for its owner only, and removes the access of others from an
// existing one: unlike the folder's mode, its own survives a copy. SQLite creates -wal and -shm with the
// same mode.
func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(0o600), f.Close(), owner.Inherit(path))
	for _, beside := range []string{path + "-wal", path + "-shm"} {
		if e := os.Chmod(beside, 0o600); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// lockDir locks a data folder until the file is closed or the process ends in any way. The kernel
// holds the lock; the text in the file only serves the message for a second server.
func lockDir(dir string) (*os.File, error) {
	f, err := openLock(dir)
	if err != nil {
		return nil, err
	}
	// A process that has just been started by one that held the lock has inherited it for a moment.
	err = flock.Try(f, false)
	for n := 0; errors.Is(err, flock.ErrLocked) && n < 20; n++ {
		time.Sleep(10 * time.Millisecond)
		err = flock.Try(f, false)
	}
	if errors.Is(err, flock.ErrLocked) {
		held, _ := io.ReadAll(io.LimitReader(f, 200)) // without it the message is less precise
		return nil, errors.Join(&InUseError{dir, holder(string(held))}, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data folder %s: %w; use a folder on a disk of this machine, whose file system has locks", dir, err), f.Close())
	}
	if err := errors.Join(owner.Inherit(filepath.Join(dir, lockName)), f.Truncate(0), writeHolder(f)); err != nil {
		return nil, errors.Join(fmt.Errorf("write the lock file in %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// openLock opens the lock file. A new one is locked before it gets its name, so that a server that
// removes abandoned in-memory folders never sees it unlocked.
func openLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if runtime.GOOS == "windows" { // which does not remove the temporary name of an open file
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if f, err = os.CreateTemp(dir, lockName+".*"); err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) // its temporary name
	if err = flock.Try(f, false); err == nil {
		err = os.Link(f.Name(), path)
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()                                          // it is empty
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // another process was faster, or there are no hard links
}

// writeHolder writes who holds the lock.
func writeHolder(f *os.File) error {
	_, err := f.WriteAt(fmt.Appendf(nil, "pid %d, since %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339)), 0)
	return err
}

// holder returns the text of a lock file for messages.
func holder(text string) string {
	if text = strings.TrimSpace(text); text != "" {
		return text
	}
	return "its process is not known"
}

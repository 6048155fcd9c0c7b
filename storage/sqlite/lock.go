package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const lockName = "understudy.lock"

// makeDir creates the data folder for its owner only. It holds conversations: an existing folder loses the access of others too.
func makeDir(dir string) error {
	_, before := os.Lstat(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if errors.Is(before, os.ErrNotExist) {
		// It is often made inside of a project, where it must not be committed.
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*\n"), 0o600); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

// makeFile makes the file of the database, and takes the access of others from one that is there: it holds conversations, and may be copied
// to another folder. SQLite gives the files beside it the same mode.
func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(0o600), f.Close())
	for _, beside := range []string{path + "-wal", path + "-shm"} {
		if e := os.Chmod(beside, 0o600); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// lockDir takes the lock of a data folder. It is held until the file is closed, or the process ends in whatever way.
// Who holds it is written inside, for the message of a second one; the lock itself is the kernel's.
func lockDir(dir string) (*os.File, error) {
	f, err := openLock(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		held, _ := io.ReadAll(io.LimitReader(f, 200)) // without it the message is only less precise
		return nil, errors.Join(fmt.Errorf("the data folder %s is in use by another server (%s)", dir, holder(string(held))), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data folder %s: %w", dir, err), f.Close())
	}
	if err := errors.Join(f.Truncate(0), writeHolder(f)); err != nil {
		return nil, errors.Join(fmt.Errorf("write the lock file in %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// openLock opens the lock file of a data folder. One that it makes is locked before it has its name: a server that looks for abandoned folders in memory
// never sees it without.
func openLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if f, err = os.CreateTemp(dir, lockName+".*"); err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) // its name of before
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		err = os.Link(f.Name(), path)
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()                                          // it is empty
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // another was faster, or the file system has no links
}

func writeHolder(f *os.File) error {
	_, err := f.WriteAt(fmt.Appendf(nil, "pid %d, since %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339)), 0)
	return err
}

func holder(text string) string {
	if text = strings.TrimSpace(text); text != "" {
		return text
	}
	return "it has not said which"
}

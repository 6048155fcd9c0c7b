// Package regular opens files in folders in which others may put something else: a pipe, whose open waits for its other end, is refused at once. A check before the open
// does not help: between both a file can be replaced.
package regular

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNot is the error for what is no regular file, such as a folder or a pipe. It is a *fs.PathError that wraps ErrNot.
var ErrNot = errors.New("not a regular file")

// Open opens a file below root for reading.
func Open(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	return checked(root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0))
}

// openPath opens a file for reading. Links are followed.
func openPath(path string) (*os.File, fs.FileInfo, error) {
	return checked(os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0))
}

// Write opens a file below root for writing, with flags such as os.O_CREATE. Nothing is changed of what is no regular file.
func Write(root *os.Root, name string, flags int, mode fs.FileMode) (*os.File, error) {
	f, info, err := checked(root.OpenFile(name, flags&^os.O_TRUNC|os.O_WRONLY|syscall.O_NONBLOCK, mode))
	if err != nil {
		return nil, err
	}
	if flags&os.O_TRUNC != 0 && info.Size() > 0 {
		if err := f.Truncate(0); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// WriteFile writes a file below root: what is there is overwritten.
func WriteFile(root *os.Root, name string, content []byte, mode fs.FileMode) error {
	f, err := Write(root, name, os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// Replace writes a file in the folder of its place, under a name that begins with prefix and cannot be foreseen, and renames it. Readers see one version or the other;
// of several at once the last one stays.
func Replace(root *os.Root, name, prefix string, content []byte, mode fs.FileMode) error {
	temporary := filepath.Join(filepath.Dir(name), prefix+rand.Text()+".part")
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		_ = root.Remove(temporary)
	}
	return err
}

// Read returns the content of a file, at most limit bytes of it. Links are followed.
func Read(path string, limit int64) ([]byte, error) {
	f, _, err := openPath(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func checked(f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if at := (*fs.PathError)(nil); errors.Is(err, noOtherEnd) && errors.As(err, &at) {
		err = &fs.PathError{Op: at.Op, Path: at.Path, Err: ErrNot}
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: ErrNot}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

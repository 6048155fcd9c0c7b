package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"understudy/internal/regular"
)

// maxEdit bounds files that Replace changes, in bytes.
const maxEdit = 16 << 20

// ErrNotFound and ErrAmbiguous are results of Replace.
var (
	ErrNotFound  = errors.New("the text is not in the file")
	ErrAmbiguous = errors.New("the text is in the file more than once")
)

// target returns where to write, and makes the folder.
func (t *Thread) target(virtual string) (*os.Root, string, error) {
	m, name, err := t.find(virtual, true)
	if err != nil {
		return nil, "", err
	}
	at := filepath.FromSlash(name)
	info, err := m.root.Stat(at)
	switch {
	case err == nil && info.IsDir():
		return nil, "", ErrFolder
	case err == nil && !info.Mode().IsRegular():
		return nil, "", ErrSpecial
	case err == nil, errors.Is(err, fs.ErrNotExist):
	default:
		return nil, "", escaping(err)
	}
	if err := m.root.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return nil, "", escaping(err)
	}
	return m.root, at, nil
}

// Write replaces a file, or adds to its end. Folders are made. A reader sees the old file or the new one. Writes to a thread's files happen one after the
// other.
func (t *Thread) Write(virtual, content string, add bool) (err error) {
	defer func() { err = special(err) }()
	t.write.Lock()
	defer t.write.Unlock()
	root, at, err := t.target(virtual)
	if err != nil {
		return err
	}
	if !add {
		return replace(root, at, []byte(content))
	}
	f, err := regular.Write(root, at, os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return escaping(err)
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// Replace replaces a text in a file: all of its places, or the only one. Errors: ErrNotFound, ErrAmbiguous.
func (t *Thread) Replace(virtual, old, next string, all bool) (err error) {
	defer func() { err = special(err) }()
	t.write.Lock()
	defer t.write.Unlock()
	root, at, err := t.target(virtual)
	if err != nil {
		return err
	}
	content, err := t.Bytes(virtual, maxEdit)
	if err != nil {
		return err
	}
	n := bytes.Count(content, []byte(old))
	switch {
	case n == 0:
		return ErrNotFound
	case n > 1 && !all:
		return ErrAmbiguous
	}
	if size := len(content) + n*(len(next)-len(old)); size > maxEdit {
		return &TooLarge{int64(size), maxEdit}
	}
	return replace(root, at, bytes.ReplaceAll(content, []byte(old), []byte(next)))
}

// special returns ErrSpecial for what is no regular file: it was put there after it was looked at.
func special(err error) error {
	if errors.Is(err, regular.ErrNot) {
		return ErrSpecial
	}
	return err
}

// replace writes a file next to its place and renames it. A link stays one: what it leads to is overwritten.
func replace(root *os.Root, at string, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := root.Lstat(at); err == nil {
		if info.Mode()&fs.ModeSymlink != 0 {
			return escaping(regular.WriteFile(root, at, content, mode))
		}
		mode = info.Mode().Perm()
	}
	if err := regular.Replace(root, at, ".understudy-", content, mode); err != nil {
		return fmt.Errorf("write a file: %w", escaping(err))
	}
	return nil
}

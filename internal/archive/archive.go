// Package archive opens ZIP archives of strangers. What an archive claims is not trusted: its table is read up to a bound, because a file of 50 MB can hold a million
// entries, and archive/zip keeps all of them in memory.
package archive

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
)

// Errors of Open.
var (
	ErrInvalid   = errors.New("the file is not a valid ZIP archive")
	ErrTooMany   = errors.New("the archive has too many files")
	ErrEncrypted = errors.New("the archive is encrypted")
)

// entrySize is how many bytes the table of an archive may have for each file that is allowed: 46, a path of 512, and what programs add. The end of the archive, which may have
// a comment, is tail.
const (
	entrySize = 46 + 512 + 130
	tail      = 256 << 10
)

// Open reads the table of an archive that has at most so many files. Files that are encrypted are refused: archive/zip would return the encrypted bytes as their contents.
func Open(r io.ReaderAt, size int64, files int) (*zip.Reader, error) {
	table := &tableReader{ReaderAt: r, left: int64(files)*entrySize + tail}
	z, err := zip.NewReader(table, size)
	switch {
	case table.over:
		return nil, fmt.Errorf("%w, or their paths and comments are too long: it may have %d", ErrTooMany, files)
	case err == nil && len(z.File) > files:
		return nil, fmt.Errorf("%w: more than %d", ErrTooMany, files)
	case err != nil:
		return nil, ErrInvalid
	}
	table.open = true
	for _, f := range z.File {
		if f.Flags&1 != 0 {
			return nil, ErrEncrypted
		}
	}
	return z, nil
}

// tableReader limits what is read until the table is known. Then the contents of files are read through it, at several places at once.
type tableReader struct {
	io.ReaderAt
	left int64
	over bool
	open bool
}

func (t *tableReader) ReadAt(b []byte, at int64) (int, error) {
	if t.open {
		return t.ReaderAt.ReadAt(b, at)
	}
	if t.left -= int64(len(b)); t.left < 0 {
		t.over = true
		return 0, ErrTooMany
	}
	return t.ReaderAt.ReadAt(b, at)
}

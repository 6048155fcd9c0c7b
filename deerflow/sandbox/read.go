package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// ErrBinary: the file is no text in UTF-8.
var ErrBinary = errors.New("file is not UTF-8 text")

// Range are lines of a file, counted from 1, both included; 0: from the first, to the last.
type Range struct{ From, To int }

// Text is a part of a file.
type Text struct {
	Content string
	Size    int64 // of the file in bytes
	Cut     bool  // Content ends before the end of the range
}

// openFile opens a regular file for reading.
func (t *Thread) openFile(virtual string) (*os.File, fs.FileInfo, error) {
	return t.openAt(t.find(virtual, false))
}

// openAt is openFile for what find returns.
func (t *Thread) openAt(m *mount, name string, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	f, err := m.open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = ErrFolder
	case !info.Mode().IsRegular():
		err = ErrSpecial
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Read returns lines of a text, at most limit characters. It holds no more than that in memory.
func (t *Thread) Read(ctx context.Context, virtual string, r Range, limit int) (Text, error) {
	f, info, err := t.openFile(virtual)
	if err != nil {
		return Text{}, err
	}
	defer f.Close()
	content, cut, err := readLines(ctx, f, r, limit)
	return Text{Content: content, Size: info.Size(), Cut: cut}, err
}

const chunk = 64 << 10

func readLines(ctx context.Context, in io.Reader, r Range, limit int) (text string, cut bool, err error) {
	ranged := r != Range{}
	var b bytes.Buffer
	br := bufio.NewReaderSize(in, chunk)
	for line := 1; r.To == 0 || line <= r.To; {
		if err := ctx.Err(); err != nil {
			return "", false, err
		}
		part, err := br.ReadSlice('\n')
		if line >= r.From {
			b.Write(part)
		}
		if b.Len() > utf8.UTFMax*limit {
			cut = true
			break
		}
		switch {
		case err == nil:
			line++
		case errors.Is(err, io.EOF):
			r.To = line
			line++
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", false, fmt.Errorf("read a file: %w", err)
		}
	}
	raw := b.Bytes()
	if cut { // perhaps in the middle of a character
		raw = raw[:utf8.UTFMax*limit]
		for i := 0; i < utf8.UTFMax && len(raw) > 0; i++ {
			if last, size := utf8.DecodeLastRune(raw); last != utf8.RuneError || size > 1 {
				break
			}
			raw = raw[:len(raw)-1]
		}
	}
	if !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 {
		return "", false, ErrBinary
	}
	text = string(raw)
	if ranged && !cut {
		text = strings.TrimSuffix(text, "\n")
	}
	head := Head(text, limit)
	return head, cut || len(head) < len(text), nil
}

// Head returns the first characters of a text.
func Head(text string, characters int) string {
	if len(text) <= characters {
		return text
	}
	n := 0
	for i := range text {
		if n == characters {
			return text[:i]
		}
		n++
	}
	return text
}

// Bytes returns a whole file, which must not have more than limit bytes: *TooLarge otherwise.
func (t *Thread) Bytes(virtual string, limit int64) ([]byte, error) {
	f, info, err := t.openFile(virtual)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, &TooLarge{info.Size(), limit}
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read a file: %w", err)
	}
	if int64(len(content)) > limit {
		return nil, &TooLarge{int64(len(content)), limit}
	}
	return content, nil
}

// TooLarge is the error for a file with more bytes than an operation takes.
type TooLarge struct{ Size, Limit int64 }

func (e *TooLarge) Error() string {
	return fmt.Sprintf("the file has %d bytes; at most %d are allowed", e.Size, e.Limit)
}

// maxVersion bounds what is read of a file to tell its content from another one, in bytes.
const maxVersion = 8 << 20

// Version returns a text that changes with the content of a file: a hash of it, or of the beginning of a large file and its size and time.
// With write it is an error that the file cannot be written.
func (t *Thread) Version(virtual string, write bool) (string, error) {
	f, info, err := t.openAt(t.find(virtual, write))
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxVersion)); err != nil {
		return "", fmt.Errorf("read a file: %w", err)
	}
	if info.Size() > maxVersion {
		fmt.Fprint(h, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// VersionOf returns the Version of a file with this content, of less than 8 MiB.
func VersionOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// Exists reports whether there is a regular file.
func (t *Thread) Exists(virtual string) bool {
	f, _, err := t.openFile(virtual)
	if err == nil {
		f.Close()
	}
	return err == nil
}

package files

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"understudy/internal/fault"
	"understudy/internal/filename"
	"understudy/internal/regular"
)

const (
	staging  = ".upload-" // begins the name of a file that is being written
	partial  = ".part"    // ends it
	stale    = 24 * time.Hour
	maxName  = 255 // bytes
	fileMode = 0o644
)

// Limits bound one upload; sizes in bytes.
type Limits struct {
	Files           int
	FileSize, Total int64
}

// Upload is one file in the folder uploads.
type Upload struct {
	Name     string
	Original string // name in the request, when it had to be changed; else ""
	Size     int64
	Modified time.Time
	Markdown string // name of the file with its text; "" none
	Problem  string // of Take: why there is no text, though it was wanted; "" none
}

// Source yields the files of a request in order; after the last one io.EOF.
type Source interface {
	Next() (name string, content io.Reader, err error)
}

// Converter writes the text of a document as Markdown. The error is a NoText if there is none, or it cannot be read.
type Converter func(ctx context.Context, document *os.File, name string, to io.Writer) error

// NoText is the error for a document that cannot be converted. Clients may see its reason.
type NoText struct{ Reason string }

func (e *NoText) Error() string { return "no text could be taken from the document: " + e.Reason }

// Take writes the files of a request to the folder uploads: all of them, or with an error none. skipped are names whose place is taken by something
// that is no plain file. The error is fs.ErrNotExist if the thread is deleted meanwhile.
func (t *Thread) Take(ctx context.Context, from Source, limits Limits, convert Converter) (taken []Upload, skipped []string, err error) {
	u := &taking{t: t, limits: limits, used: map[string]bool{}}
	defer u.clean()
	for {
		name, content, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		if err := u.stage(ctx, name, content); err != nil {
			return nil, nil, err
		}
	}
	if u.parts == 0 {
		return nil, nil, fault.New(fault.Unprocessable, "Field required: files")
	}
	if convert != nil {
		for i := range u.files {
			if err := u.convert(ctx, &u.files[i], convert); err != nil {
				return nil, nil, err
			}
		}
	}
	return u.commit()
}

// taking is one upload in progress.
type taking struct {
	t      *Thread
	limits Limits
	parts  int
	total  int64
	used   map[string]bool // names of this request
	files  []staged
}

// staged is a file that was received, but has not its name yet.
type staged struct {
	Upload
	at   string // name of the staging file
	text string // of its Markdown; "" none
}

// Clean returns the last part of a name if a file may have it, else "".
func Clean(name string) string {
	if strings.Contains(name, `\`) || !filename.Plain(name) || !utf8.ValidString(name) {
		return ""
	}
	base := path.Base(name)
	if name == "" || strings.HasSuffix(name, "/") || base == "." || base == ".." || base == "/" || len(base) > maxName {
		return ""
	}
	if IsStaging(base) {
		return ""
	}
	return base
}

// IsStaging reports whether a name is that of a file which is still being written.
func IsStaging(name string) bool {
	return strings.HasPrefix(name, staging) && strings.HasSuffix(name, partial)
}

func (u *taking) stage(ctx context.Context, name string, content io.Reader) error {
	if u.parts++; u.parts > u.limits.Files {
		return fault.Newf(fault.TooLarge, "Too many files: maximum is %d", u.limits.Files)
	}
	base := Clean(name)
	if base == "" {
		n, err := io.Copy(io.Discard, io.LimitReader(content, u.limits.FileSize+1))
		if u.total += n; u.total > u.limits.Total || n > u.limits.FileSize {
			return fault.New(fault.TooLarge, "Total upload size too large")
		}
		return err
	}
	file, at, err := u.t.create()
	if err != nil {
		return err
	}
	s := staged{Upload: Upload{Name: u.free(base)}, at: at}
	if s.Name != base {
		s.Original = base
	}
	u.files = append(u.files, s)
	size, err := io.Copy(file, io.LimitReader(reading{ctx, content}, min(u.limits.FileSize, u.limits.Total-u.total)+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write an upload: %w", err)
	}
	u.total += size
	u.files[len(u.files)-1].Size = size
	switch {
	case size > u.limits.FileSize:
		return fault.Newf(fault.TooLarge, "File too large: %s", base)
	case u.total > u.limits.Total:
		return fault.New(fault.TooLarge, "Total upload size too large")
	}
	return nil
}

// free returns a name that this request does not have yet: a.txt, a_1.txt, a_2.txt.
func (u *taking) free(base string) string {
	name := base
	for n := 1; u.used[name]; n++ {
		name = numbered(base, n)
	}
	u.used[name] = true
	return name
}

func numbered(base string, n int) string {
	ext := path.Ext(base)
	if len(ext) > maxName/2 {
		ext = "" // what is behind the last dot of a long name is no type
	}
	suffix := "_" + strconv.Itoa(n) + ext
	stem := strings.TrimSuffix(base, ext)
	stem = strings.ToValidUTF8(stem[:min(len(stem), maxName-len(suffix))], "") // without the beginning of a character
	return stem + suffix
}

// Documents are the types that may have a Markdown file next to them.
var documents = []string{".pdf", ".ppt", ".pptx", ".xls", ".xlsx", ".doc", ".docx"}

func isDocument(name string) bool {
	return slices.Contains(documents, strings.ToLower(path.Ext(name)))
}

func markdownName(name string) string { return strings.TrimSuffix(name, path.Ext(name)) + ".md" }

func (u *taking) convert(ctx context.Context, s *staged, convert Converter) error {
	if !isDocument(s.Name) {
		return nil
	}
	document, _, err := regular.Open(u.t.root, filepath.Join(Uploads, s.at))
	if err != nil {
		return fmt.Errorf("read an upload: %w", err)
	}
	defer document.Close()
	file, at, err := u.t.create()
	if err != nil {
		return err
	}
	s.text = at // removed at the end, whatever happens
	err = errors.Join(convert(ctx, document, s.Name, file), file.Close())
	var none *NoText
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &none):
		s.Problem = none.Reason
		return nil
	case err != nil:
		return fmt.Errorf("convert %s: %w", s.Name, err)
	}
	s.Markdown = u.free(markdownName(s.Name))
	return nil
}

// commit gives all files their names.
func (u *taking) commit() (taken []Upload, skipped []string, err error) {
	for i := range u.files {
		s := &u.files[i]
		info, err := u.t.root.Lstat(filepath.Join(Uploads, s.at)) // under its own name it may be deleted at once
		if err != nil {
			return nil, nil, fmt.Errorf("read an upload: %w", err)
		}
		s.Modified = info.ModTime()
		ok, err := u.t.place(s.at, s.Name)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			skipped = append(skipped, s.Name)
			continue
		}
		if s.Markdown != "" {
			if ok, err = u.t.place(s.text, s.Markdown); err != nil {
				return nil, nil, err
			} else if !ok {
				s.Markdown, s.Problem = "", "the place of "+s.Markdown+" is taken by something that is no plain file"
			}
		}
		taken = append(taken, s.Upload)
	}
	return taken, skipped, nil
}

// place renames a staging file. It reports false if its name is taken by a link, a folder, or a file with several names, which may belong elsewhere.
func (t *Thread) place(at, name string) (bool, error) {
	to := filepath.Join(Uploads, name)
	info, err := t.root.Lstat(to)
	if err == nil && (!info.Mode().IsRegular() || names(info) > 1) {
		return false, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("write an upload: %w", err)
	}
	if err := t.root.Rename(filepath.Join(Uploads, at), to); err != nil {
		return false, fmt.Errorf("write an upload: %w", err)
	}
	return true, nil
}

// create makes a staging file.
func (t *Thread) create() (*os.File, string, error) {
	var b [12]byte
	_, _ = rand.Read(b[:])
	name := staging + hex.EncodeToString(b[:]) + partial
	f, err := t.root.OpenFile(filepath.Join(Uploads, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, "", fmt.Errorf("write an upload: %w", err)
	}
	return f, name, nil
}

// clean removes what is left of staging files.
func (u *taking) clean() {
	for _, s := range u.files {
		for _, name := range []string{s.at, s.text} {
			if name != "" {
				_ = u.t.root.Remove(filepath.Join(Uploads, name)) // those that were renamed are not there
			}
		}
	}
}

// reading is a reader that ends with a context.
type reading struct {
	ctx context.Context
	r   io.Reader
}

func (r reading) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}

// List returns the plain files in the folder uploads, by name.
func (t *Thread) List() ([]Upload, error) {
	entries, err := fs.ReadDir(t.root.FS(), Uploads)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list uploads: %w", err)
	}
	var list []Upload
	for _, e := range entries {
		if !e.Type().IsRegular() || IsStaging(e.Name()) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		} else if err != nil {
			return nil, fmt.Errorf("list uploads: %w", err)
		}
		list = append(list, Upload{Name: e.Name(), Size: info.Size(), Modified: info.ModTime()})
	}
	return list, nil
}

// Delete deletes an upload, and the Markdown that was made of it.
func (t *Thread) Delete(name string) error {
	if Clean(name) != name || name == "" {
		return fault.New(fault.Invalid, "Invalid path")
	}
	info, err := t.root.Lstat(filepath.Join(Uploads, name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return fault.Newf(fault.NotFound, "File not found: %s", name)
	} else if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	if err := t.root.Remove(filepath.Join(Uploads, name)); errors.Is(err, fs.ErrNotExist) { // by another request meanwhile
		return fault.Newf(fault.NotFound, "File not found: %s", name)
	} else if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	if isDocument(name) {
		if err := t.root.Remove(filepath.Join(Uploads, markdownName(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete the text of %s: %w", name, err)
		}
	}
	return nil
}

// Sweep removes staging files that a process left when it was killed. Run it at start; it ends with ctx.
func (h Home) Sweep(ctx context.Context, now time.Time, log *slog.Logger) {
	pattern := filepath.Join(h.Dir, "users", "*", "threads", "*", "user-data", Uploads, staging+"*"+partial)
	left, _ := filepath.Glob(pattern) // the pattern is valid
	for _, p := range left {
		if ctx.Err() != nil {
			return
		}
		if info, err := os.Lstat(p); err == nil && now.Sub(info.ModTime()) > stale {
			if err := os.Remove(p); err != nil {
				log.Warn("an unfinished upload could not be removed", "path", p, "error", err)
			}
		}
	}
}

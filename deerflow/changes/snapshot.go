package changes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"understudy/internal/fault"
)

// Limits bound what is compared. The JSON is that of the rows.
type Limits struct {
	Files     int `json:"max_files"`               // that are listed
	Scanned   int `json:"max_scanned_files"`       // that are looked at
	FileBytes int `json:"max_file_bytes_for_diff"` // of a file whose text is compared
	DiffBytes int `json:"max_total_diff_bytes"`    // of all differences
}

// Defaults are DeerFlow's.
var Defaults = Limits{Files: 200, Scanned: 2000, FileBytes: 256 << 10, DiffBytes: 1 << 20}

// maxKept bounds the texts that a snapshot holds, in bytes; those of further files are not compared.
const maxKept = 16 << 20

// folders whose changes are of interest, within user-data.
var folders = []string{"outputs", "workspace"}

const prefix = "/mnt/user-data/"

// passed are folders that tools fill and people do not.
var passed = []string{".git", ".hg", ".svn", ".cache", ".mcp", ".next", ".venv", ".browser-frames", ".tool-results", "__pycache__", "build", "dist", "node_modules"}

// binary are suffixes of files that are no texts.
var binary = []string{
	".7z", ".avif", ".bmp", ".class", ".db", ".dll", ".dmg", ".doc", ".docx", ".exe", ".gif", ".gz", ".ico", ".jar", ".jpeg", ".jpg", ".mov", ".mp3", ".mp4", ".o",
	".pdf", ".png", ".pyc", ".so", ".tar", ".webp", ".xls", ".xlsx", ".zip",
}

// Why a difference is not shown.
const (
	isBinary    = "binary"
	isLarge     = "large"
	isSensitive = "sensitive"
	isTruncated = "truncated"
	isLink      = "symlink"
)

// file is what a snapshot knows of a file.
type file struct {
	size      int64
	modified  int64  // Unix time in nanoseconds
	sum       string // SHA-256 in hex; "": not computed
	binary    bool
	sensitive bool
	link      bool
	target    *string // of a link
	text      string
	reason    string // why there is no text; "": there is one
}

// Snapshot is the state of a thread's files.
type Snapshot struct {
	files     map[string]*file // by path as an agent sees it
	truncated bool             // there are more
	kept      int
}

// Take looks at the files below dir, the folder user-data of a thread. One that does not exist has no files.
func Take(ctx context.Context, dir string, limits Limits) (*Snapshot, error) {
	s := &Snapshot{files: map[string]*file{}}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	} else if err != nil {
		return nil, fault.Wrap(fault.Internal, "open the files of the thread", err)
	}
	defer root.Close()
	for _, folder := range folders {
		err := fs.WalkDir(root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil && name == folder && errors.Is(err, fs.ErrNotExist):
				return fs.SkipDir
			case err != nil && d != nil && d.IsDir(): // it was removed meanwhile, or cannot be read
				return fs.SkipDir
			case err != nil:
				return nil
			case d.IsDir() && slices.Contains(passed, d.Name()):
				return fs.SkipDir
			case d.IsDir():
				return nil
			case len(s.files) >= limits.Scanned:
				s.truncated = true
				return fs.SkipAll
			}
			if f := s.look(root, name, d, limits); f != nil {
				s.files[prefix+name] = f
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if s.truncated {
			break
		}
	}
	return s, nil
}

// look returns what is known of a file; nil for what is none, or cannot be read.
func (s *Snapshot) look(root *os.Root, name string, d fs.DirEntry, limits Limits) *file {
	info, err := d.Info()
	if err != nil {
		return nil
	}
	f := &file{size: info.Size(), modified: info.ModTime().UnixNano(), sensitive: sensitive(name)}
	switch {
	case d.Type()&fs.ModeSymlink != 0:
		f.link, f.reason = true, isLink
		if target, err := root.Readlink(name); err == nil {
			f.target = &target
		}
		return f
	case !d.Type().IsRegular():
		return nil
	case f.sensitive:
		f.reason = isSensitive
		return f
	case f.size > int64(limits.FileBytes):
		f.reason = isLarge
		f.binary = slices.Contains(binary, strings.ToLower(path.Ext(name)))
		if f.binary {
			f.reason = isBinary
		}
		return f
	}
	content, err := read(root, name, limits.FileBytes)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(content)
	f.sum = hex.EncodeToString(sum[:])
	switch {
	case slices.Contains(binary, strings.ToLower(path.Ext(name))) || bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content):
		f.binary, f.reason = true, isBinary
	case s.kept+len(content) > maxKept:
		f.reason = isTruncated
	default:
		s.kept += len(content)
		f.text = string(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")))
	}
	return f
}

// read returns the contents of a file. Opening does not wait for the writer of a pipe that took its place.
func read(root *os.Root, name string, most int) ([]byte, error) {
	r, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if info, err := r.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	return io.ReadAll(io.LimitReader(r, int64(most)))
}

// secret are words in names of files whose contents are not shown.
var secret = []string{"api_key", "apikey", "credential", "password", "private_key", "secret", "token"}

// sensitive reports whether a file may hold secrets, by its name and those of its folders.
func sensitive(name string) bool {
	name = strings.ToLower(name)
	if slices.ContainsFunc(secret, func(word string) bool { return strings.Contains(name, word) }) {
		return true
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".env" || strings.HasPrefix(part, ".env.") || strings.HasSuffix(part, ".key") || strings.HasSuffix(part, ".pem") {
			return true
		}
	}
	return false
}

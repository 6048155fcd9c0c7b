package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	maxVisited  = 200_000  // entries that a search looks at
	maxSearched = 1 << 30  // bytes that a search reads
	maxLine     = 64 << 10 // bytes of a line that are searched
	shownLine   = 200      // characters of a line that are shown
	listDepth   = 2
)

// ignored are names of files and folders that lists and searches leave out, because programs make them.
var ignored = map[string]bool{
	".git": true, ".svn": true, ".hg": true, "node_modules": true, "__pycache__": true, ".venv": true, "venv": true, ".tox": true, ".mypy_cache": true,
	".pytest_cache": true, ".ruff_cache": true, ".cache": true, ".idea": true, ".vscode": true, ".DS_Store": true, ".next": true, ".nuxt": true, ".turbo": true,
	"dist": true, "build": true, ".eggs": true, "coverage": true,
}

var errEnough = errors.New("enough")

// walk visits what is below a folder in order, or a file itself. Links are not followed.
func (t *Thread) walk(ctx context.Context, virtual string, visit func(m *mount, name, shown string, d fs.DirEntry) error) error {
	m, name, err := t.find(virtual, false)
	if err != nil {
		return err
	}
	fsys, seen := m.fsys(), 0
	err = fs.WalkDir(fsys, name, func(p string, d fs.DirEntry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err != nil {
			if p == name {
				return err
			}
			return nil // a folder that cannot be read, or is gone
		}
		if p != name && ignored[d.Name()] {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if seen++; seen > maxVisited {
			return errEnough
		}
		return visit(m, p, oneLine(path.Join(m.Virtual, p)), d)
	})
	return escaping(err)
}

// oneLine returns a path as lists show it: a name with a line break must not look like two.
func oneLine(path string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, Clean(path))
}

// List returns what is in a folder and in its folders, as virtual paths in order; those of folders end with "/". cut reports that there is more than limit.
func (t *Thread) List(ctx context.Context, virtual string, limit int) (list []string, cut bool, err error) {
	root := ""
	err = t.walk(ctx, virtual, func(m *mount, name, shown string, d fs.DirEntry) error {
		if root == "" {
			root = name
			if !isDir(m, name, d) {
				return ErrNoFolder
			}
			return nil
		}
		if len(list) >= limit {
			return errEnough
		}
		depth := strings.Count(strings.TrimPrefix(name, root+"/"), "/") + 1
		if root == "." {
			depth = strings.Count(name, "/") + 1
		}
		if d.Type()&fs.ModeSymlink != 0 && !reachable(m, name) {
			return nil
		}
		if isDir(m, name, d) {
			list = append(list, shown+"/")
			if d.IsDir() && depth >= listDepth {
				return fs.SkipDir
			}
			return nil
		}
		list = append(list, shown)
		return nil
	})
	if errors.Is(err, errEnough) {
		cut, err = true, nil
	}
	slices.Sort(list)
	return list, cut, err
}

func isDir(m *mount, name string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink == 0 {
		return d.IsDir()
	}
	info, err := fs.Stat(m.fsys(), name)
	return err == nil && info.IsDir()
}

// reachable reports whether a link leads to something in the mount.
func reachable(m *mount, name string) bool {
	_, err := fs.Stat(m.fsys(), name)
	return err == nil
}

// matches reports whether a path below a folder matches a pattern: all of it, or its end.
func matches(pattern, name string) bool {
	return doublestar.MatchUnvalidated(pattern, name) || doublestar.MatchUnvalidated("**/"+pattern, name)
}

// ErrPattern: a pattern cannot be read.
var ErrPattern = doublestar.ErrBadPattern

// Glob returns the files below a folder, with dirs folders too, whose names match a pattern. cut reports that there are more than limit.
func (t *Thread) Glob(ctx context.Context, virtual, pattern string, dirs bool, limit int) (list []string, cut bool, err error) {
	if pattern = strings.TrimPrefix(pattern, "/"); !doublestar.ValidatePattern(pattern) {
		return nil, false, ErrPattern
	}
	root := ""
	err = t.walk(ctx, virtual, func(_ *mount, name, shown string, d fs.DirEntry) error {
		if root == "" {
			root = name
			if !d.IsDir() {
				return ErrNoFolder
			}
			return nil
		}
		if d.IsDir() && !dirs || !matches(pattern, below(root, name)) {
			return nil
		}
		if len(list) >= limit {
			return errEnough
		}
		list = append(list, shown)
		return nil
	})
	if errors.Is(err, errEnough) {
		cut, err = true, nil
	}
	return list, cut, err
}

func below(root, name string) string {
	if root == "." {
		return name
	}
	return strings.TrimPrefix(name, root+"/")
}

// Line is a line of a file that a search found.
type Line struct {
	Path   string
	Number int
	Text   string // cut to what is shown
}

// Search is what Grep looks for.
type Search struct {
	Pattern       string // a regular expression of package regexp
	Literal       bool   // Pattern is plain text
	CaseSensitive bool
	Glob          string // of files; "": all
	Limit         int
}

// Grep returns lines of text files below a folder, or of one file. Files are read line by line. cut reports that there is more.
func (t *Thread) Grep(ctx context.Context, virtual string, s Search) (list []Line, cut bool, err error) {
	re, err := s.compile()
	if err != nil {
		return nil, false, err
	}
	if s.Glob = strings.TrimPrefix(s.Glob, "/"); s.Glob != "" && !doublestar.ValidatePattern(s.Glob) {
		return nil, false, ErrPattern
	}
	root, budget := "", int64(maxSearched)
	err = t.walk(ctx, virtual, func(m *mount, name, shown string, d fs.DirEntry) error {
		if root == "" {
			root = name
		}
		if d.IsDir() || d.Type()&^fs.ModeSymlink != 0 || s.Glob != "" && !matches(s.Glob, below(root, name)) {
			return nil
		}
		f, err := m.open(name)
		if err != nil {
			return nil //nolint:nilerr // a file that is gone or may not be read has no lines
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // as above
		}
		return grep(ctx, f, re, &budget, func(number int, text string) error {
			if len(list) >= s.Limit {
				return errEnough
			}
			list = append(list, Line{shown, number, text})
			return nil
		})
	})
	if errors.Is(err, errEnough) {
		cut, err = true, nil
	}
	return list, cut, err
}

// grep calls found for lines that match. A file with a NUL at its beginning is no text.
func grep(ctx context.Context, in io.Reader, re *regexp.Regexp, budget *int64, found func(int, string) error) error {
	br := bufio.NewReaderSize(in, maxLine)
	if head, _ := br.Peek(8 << 10); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	rest := false // the buffer continues a line whose beginning was searched
	for number := 1; ; {
		part, err := br.ReadSlice('\n')
		if *budget -= int64(len(part)); *budget < 0 {
			return errEnough
		}
		line := bytes.TrimRight(part, "\r\n")
		if !rest && len(part) > 0 && re.Match(line) {
			if err := found(number, shown(line)); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
			rest = false
			number++
		case errors.Is(err, bufio.ErrBufferFull):
			rest = true
		case errors.Is(err, io.EOF):
			return nil
		default:
			return nil // what cannot be read has no more lines
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func shown(line []byte) string {
	text := Head(Clean(string(line[:min(len(line), shownLine*utf8.UTFMax)])), shownLine+1)
	if head := Head(text, shownLine); len(head) < len(text) {
		return head + "..."
	}
	return text
}

// Clean returns a text in UTF-8 without NUL, which databases refuse.
func Clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Check returns the error of the regular expression.
func (s Search) Check() error {
	_, err := s.compile()
	return err
}

func (s Search) compile() (*regexp.Regexp, error) {
	pattern := s.Pattern
	if s.Literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if !s.CaseSensitive {
		pattern = "(?i)" + pattern
	}
	return regexp.Compile(pattern)
}

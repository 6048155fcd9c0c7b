package skill

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"understudy/internal/archive"
	"understudy/internal/filename"
)

// Bounds of an archive, unpacked.
const (
	maxUnpacked = 512 << 20
	maxFiles    = 5000
	maxPath     = 512
	maxPart     = 255 // bytes of a part of a path, as disks have it
	maxDepth    = 16
)

// ErrTooLarge is the error for an archive that unpacks to more than is allowed.
var ErrTooLarge = fmt.Errorf("skill archive is too large when extracted (more than %d MiB)", maxUnpacked>>20)

// texts are the types of files that are text, and must be UTF-8.
var texts = map[string]bool{".md": true, ".txt": true, ".py": true, ".sh": true, ".js": true, ".ts": true, ".json": true, ".yaml": true, ".yml": true, ".toml": true, ".html": true, ".css": true, ".csv": true}

// member is one file of an archive, by its path within the skill.
type member struct {
	path string
	file *zip.File
}

// content is a checked archive.
type content struct {
	front   *Front
	text    []byte // of SKILL.md
	members []member
	size    int64 // of all, unpacked, as the archive says: more is not unpacked
}

// open checks the table of an archive and its SKILL.md. Nothing is unpacked yet but that. Links are left out.
func open(r io.ReaderAt, size int64) (*content, error) {
	z, err := archive.Open(r, size, maxFiles)
	if err != nil {
		return nil, err
	}
	var claimed uint64
	var files []*zip.File
	for _, f := range z.File {
		if err := checkPath(f.Name); err != nil {
			return nil, err
		}
		if claimed += f.UncompressedSize64; claimed > maxUnpacked {
			return nil, ErrTooLarge
		}
		if f.Mode().IsRegular() && !strings.HasPrefix(f.Name, "__MACOSX/") {
			files = append(files, f)
		}
	}
	if err := checkNames(files); err != nil {
		return nil, err
	}
	a := &content{size: int64(claimed)}
	top := topFolder(files)
	for _, f := range files {
		m := member{strings.TrimPrefix(f.Name, top), f}
		base := path.Base(m.path)
		if strings.EqualFold(base, File) && m.path != File {
			return nil, fmt.Errorf("skill archive has a second %s: %s", File, f.Name)
		}
		a.members = append(a.members, m)
		if m.path == File {
			if a.text, err = readMember(f, maxMarkdown); err != nil {
				return nil, err
			}
		}
	}
	if a.text == nil {
		return nil, fmt.Errorf("skill archive has no %s", File)
	}
	a.front, err = Parse(a.text)
	return a, err
}

// checkNames refuses files that would be one on some disk, and files that are folders of others.
func checkNames(files []*zip.File) error {
	names, folders := map[string]string{}, map[string]string{} // by what they are on disks that tell fewer names apart
	for _, f := range files {
		folded := filename.Folded(f.Name)
		if other, taken := names[folded]; taken {
			return fmt.Errorf("skill archive has two files of one name: %s, %s", bounded(other), bounded(f.Name))
		}
		names[folded] = f.Name
		for in := path.Dir(folded); in != "."; in = path.Dir(in) {
			folders[in] = f.Name
		}
	}
	for folded, name := range names {
		if in, taken := folders[folded]; taken {
			return fmt.Errorf("skill archive has a file that is also a folder: %s, %s", bounded(name), bounded(in))
		}
	}
	return nil
}

// topFolder returns the folder that all files are in, with its slash; "" when there is none or SKILL.md stands next to folders.
func topFolder(files []*zip.File) string {
	top := ""
	for i, f := range files {
		first, _, ok := strings.Cut(f.Name, "/")
		if !ok || i > 0 && first != top {
			return ""
		}
		top = first
	}
	if top == "" {
		return ""
	}
	return top + "/"
}

func checkPath(name string) error {
	unsafe := fmt.Errorf("skill archive has an unsafe path: %q", bounded(name))
	if name == "" || len(name) > maxPath || !utf8.ValidString(name) || !filename.Plain(name) || strings.ContainsAny(name, `\:`) || path.IsAbs(name) {
		return unsafe
	}
	parts := strings.Split(strings.TrimSuffix(name, "/"), "/")
	if len(parts) > maxDepth {
		return unsafe
	}
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || len(p) > maxPart {
			return unsafe
		}
	}
	return nil
}

func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), 80)], "?") }

// readMember returns the contents of a small file. Sizes in archives are claims, so what comes out is counted.
func readMember(f *zip.File, limit int64) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("skill archive cannot be unpacked: %s", bounded(f.Name))
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("%s in the skill archive is too large", bounded(f.Name))
	case err != nil:
		return nil, fmt.Errorf("skill archive cannot be unpacked: %s", bounded(f.Name))
	}
	return b, nil
}

// unpack writes all files by create, counting what comes out. Text must be UTF-8.
func (a *content) unpack(ctx context.Context, create func(path string, executable bool) (io.WriteCloser, error)) error {
	left := a.size
	for _, m := range a.members {
		n, err := m.unpack(ctx, left, create)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

func (m member) unpack(ctx context.Context, left int64, create func(path string, executable bool) (io.WriteCloser, error)) (int64, error) {
	r, err := m.file.Open()
	if err != nil {
		return 0, fmt.Errorf("skill archive cannot be unpacked: %s", bounded(m.path))
	}
	defer r.Close()
	w, err := create(m.path, m.file.Mode()&0o111 != 0)
	if err != nil {
		return 0, fmt.Errorf("write a file of the skill: %w", err)
	}
	var to io.Writer = w
	check := &utf8Check{}
	if texts[strings.ToLower(path.Ext(m.path))] {
		to = io.MultiWriter(w, check)
	}
	n, err := io.Copy(to, io.LimitReader(reading{ctx, r}, left+1))
	err = errors.Join(err, w.Close())
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case n > left:
		return 0, ErrTooLarge
	case err != nil:
		return 0, fmt.Errorf("skill archive cannot be unpacked: %s: %w", bounded(m.path), err)
	case check.bad || len(check.rest) > 0:
		return 0, fmt.Errorf("%s in the skill archive is not UTF-8 text", bounded(m.path))
	}
	return n, nil
}

// utf8Check notes whether what is written to it is UTF-8.
type utf8Check struct {
	rest []byte // the beginning of a character
	bad  bool
}

func (c *utf8Check) Write(b []byte) (int, error) {
	n := len(b)
	if len(c.rest) > 0 {
		b = append(bytes.Clone(c.rest), b...)
	}
	end := len(b) - incomplete(b)
	c.rest = bytes.Clone(b[end:])
	c.bad = c.bad || !utf8.Valid(b[:end])
	return n, nil
}

// incomplete returns how many bytes at the end of b begin a character that is not whole.
func incomplete(b []byte) int {
	for i := 1; i <= min(len(b), utf8.UTFMax-1); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
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

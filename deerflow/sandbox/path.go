package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Virtual paths.
const (
	UserData  = "/mnt/user-data"
	Workspace = UserData + "/workspace"
	Uploads   = UserData + "/uploads"
	Outputs   = UserData + "/outputs"
	ACP       = "/mnt/acp-workspace" // read only: files of other agents
)

// folders of UserData.
var folders = []string{"workspace", "uploads", "outputs"}

// Mount shows a folder of this machine at a virtual path.
type Mount struct {
	Virtual string
	Host    string // absolute
	Write   bool
	// Links follows links that lead out of the folder. Only for folders that agents cannot write to.
	Links bool
}

// Denied is the refusal of a path or a command. It is a fs.ErrPermission.
type Denied struct{ Reason string }

func (d *Denied) Error() string { return d.Reason }

// Unwrap makes errors.Is report fs.ErrPermission.
func (d *Denied) Unwrap() error { return fs.ErrPermission }

func denied(format string, args ...any) error { return &Denied{fmt.Sprintf(format, args...)} }

// Errors of paths, besides those of io/fs.
var (
	ErrFolder    = errors.New("path is a folder")
	ErrNoFolder  = errors.New("path is no folder")
	ErrSpecial   = errors.New("path is neither a file nor a folder")
	ErrTraversal = &Denied{"Access denied: path traversal detected"}
)

// mount is an opened Mount.
type mount struct {
	Mount
	root *os.Root // nil: the folder does not exist
}

func (m *mount) fsys() fs.FS {
	if m.Links {
		return os.DirFS(m.Host)
	}
	return m.root.FS()
}

// open opens a file for reading. It does not wait for the other end of a pipe.
func (m *mount) open(name string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK
	if m.Links {
		return os.OpenFile(filepath.Join(m.Host, filepath.FromSlash(name)), flags, 0)
	}
	f, err := m.root.OpenFile(filepath.FromSlash(name), flags, 0)
	return f, escaping(err)
}

// escaping turns os.Root's refusal of a path that leads out of it, for which package os has no error, into ErrTraversal.
func escaping(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) && strings.Contains(e.Err.Error(), "escapes") {
		return ErrTraversal
	}
	return err
}

// openMounts opens the folders; the longest virtual path is first.
func openMounts(list []Mount) ([]*mount, error) {
	var out []*mount
	for _, m := range list {
		m.Virtual, m.Host = path.Clean(m.Virtual), filepath.Clean(m.Host)
		root, err := os.OpenRoot(m.Host)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			closeMounts(out)
			return nil, fmt.Errorf("open the folder of %s: %w", m.Virtual, err)
		}
		out = append(out, &mount{Mount: m, root: root})
	}
	slices.SortStableFunc(out, func(a, b *mount) int { return len(b.Virtual) - len(a.Virtual) })
	return out, nil
}

func closeMounts(list []*mount) {
	for _, m := range list {
		if m.root != nil {
			m.root.Close()
		}
	}
}

// within returns the rest of a path below a folder, "." for the folder itself.
func within(folder, p string) (string, bool) {
	rest, ok := strings.CutPrefix(p, folder)
	switch {
	case !ok:
		return "", false
	case rest == "":
		return ".", true
	case rest[0] == '/':
		return rest[1:], true
	}
	return "", false
}

// find returns where a virtual path is: its mount and the name below it.
func (t *Thread) find(virtual string, write bool) (*mount, string, error) {
	if strings.ContainsRune(virtual, 0) {
		return nil, "", denied("Access denied: the path has a NUL character")
	}
	for part := range strings.SplitSeq(strings.ReplaceAll(virtual, `\`, "/"), "/") {
		if part == ".." {
			return nil, "", ErrTraversal
		}
	}
	clean := path.Clean(virtual)
	for _, m := range t.mounts {
		name, ok := within(m.Virtual, clean)
		if !ok {
			continue
		}
		if write && !m.Write {
			return nil, "", denied("Write access to a read-only path is not allowed: %s", virtual)
		}
		if m.Virtual == UserData {
			first, _, below := strings.Cut(name, "/")
			if name != "." && !slices.Contains(folders, first) || write && !below {
				return nil, "", denied("Only paths under %s, %s and %s are allowed", Workspace, Uploads, Outputs)
			}
		}
		if m.root == nil {
			return nil, "", &fs.PathError{Op: "open", Path: virtual, Err: fs.ErrNotExist}
		}
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, "", ErrTraversal
		}
		return m, name, nil
	}
	return nil, "", denied("Only paths under %s or configured mount paths are allowed", strings.Join(t.virtuals(), "/, ")+"/")
}

func (t *Thread) virtuals() []string {
	list := make([]string, len(t.mounts))
	for i, m := range t.mounts {
		list[i] = m.Virtual
	}
	slices.Sort(list)
	return list
}

// Host returns where a virtual path is on this machine.
func (t *Thread) Host(virtual string) (string, error) {
	m, name, err := t.find(virtual, false)
	if err != nil {
		return "", err
	}
	return filepath.Join(m.Host, filepath.FromSlash(name)), nil
}

// Virtual returns the virtual path of a path on this machine. ok is false outside of the thread's folders.
func (t *Thread) Virtual(host string) (virtual string, ok bool) {
	host = filepath.ToSlash(filepath.Clean(host))
	for _, p := range t.masks {
		if name, ok := within(p.from, host); ok {
			return path.Join(p.to, name), true
		}
	}
	return "", false
}

// pair is a prefix of paths and what replaces it.
type pair struct{ from, to string }

// pairs returns how virtual paths are replaced in commands, and how paths of this machine are replaced in results; the longest first.
func pairs(mounts []*mount) (to, back []pair) {
	for _, m := range mounts {
		host := filepath.ToSlash(m.Host)
		to, back = append(to, pair{m.Virtual, host}), append(back, pair{host, m.Virtual})
		if real, err := filepath.EvalSymlinks(m.Host); err == nil && filepath.ToSlash(real) != host {
			back = append(back, pair{filepath.ToSlash(real), m.Virtual})
		}
	}
	longest := func(a, b pair) int { return len(b.from) - len(a.from) }
	slices.SortStableFunc(to, longest)
	slices.SortStableFunc(back, longest)
	return to, back
}

// translate replaces prefixes of paths in a text, in one pass.
func translate(text string, pairs []pair) string {
	var b strings.Builder
	done := 0
next:
	for i := 0; i < len(text); i++ {
		if text[i] != '/' && (i > 0 || len(pairs) == 0 || pairs[0].from[0] == '/') {
			continue
		}
		for _, p := range pairs {
			if strings.HasPrefix(text[i:], p.from) && ends(text[i+len(p.from):]) {
				b.WriteString(text[done:i])
				b.WriteString(p.to)
				done = i + len(p.from)
				i = done - 1
				continue next
			}
		}
	}
	if done == 0 {
		return text
	}
	return b.String() + text[done:]
}

// ends reports whether a part of a path ends before rest.
func ends(rest string) bool {
	if rest != "" && rest[0] == '.' {
		rest = rest[1:]
	}
	return rest == "" || !wordByte(rest[0]) && rest[0] != '-'
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

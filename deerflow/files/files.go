package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"understudy/internal/fault"
	"understudy/internal/regular"
)

// Virtual is where an agent sees the folders of a thread.
const Virtual = "/mnt/user-data"

// Folders of a thread.
const (
	Workspace = "workspace"
	Uploads   = "uploads"
	Outputs   = "outputs"
)

// Home is DeerFlow's folder.
type Home struct{ Dir string }

// User returns the name of a user's folder. Ids of our own users are their own names; others, of chat programs, are made safe, and kept apart by a hash.
func User(id string) string {
	clean := true
	safe := []byte(id)
	for i, c := range safe {
		if !plain(c) {
			safe[i], clean = '-', false
		}
	}
	if clean && id != "" {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return string(safe) + "-" + hex.EncodeToString(sum[:8])
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// IsThread reports whether an id of a thread can name its folder.
func IsThread(id string) bool {
	for i := range len(id) {
		if !plain(id[i]) {
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// UserDir returns the folder of a user.
func (h Home) UserDir(user string) string { return filepath.Join(h.Dir, "users", User(user)) }

// ThreadDir returns the folder of a thread.
func (h Home) ThreadDir(user, thread string) string {
	return filepath.Join(h.UserDir(user), "threads", thread)
}

// Thread opens the files of a thread. With create, its folders are made. The error for a thread without files, with create for one that is deleted meanwhile, is
// fs.ErrNotExist.
// The caller closes it.
func (h Home) Thread(user, thread string, create bool) (*Thread, error) {
	if !IsThread(thread) {
		return nil, fault.New(fault.Unprocessable, "Invalid thread id")
	}
	dir := filepath.Join(h.ThreadDir(user, thread), "user-data")
	if create {
		for _, name := range []string{Workspace, Uploads, Outputs} {
			err := os.MkdirAll(filepath.Join(dir, name), 0o755)
			if errors.Is(err, fs.ErrExist) { // it was there, and was deleted meanwhile
				err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
			}
			if err != nil {
				return nil, fmt.Errorf("make the folders of thread %s: %w", thread, err)
			}
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the files of thread %s: %w", thread, err)
	}
	return &Thread{root: root}, nil
}

// Copy copies the files of a thread to another thread of the same user, which must have none. Links are left out.
func (h Home) Copy(user, from, to string) error {
	if !IsThread(from) || !IsThread(to) {
		return fault.New(fault.Unprocessable, "Invalid thread id")
	}
	source, target := filepath.Join(h.ThreadDir(user, from), "user-data"), filepath.Join(h.ThreadDir(user, to), "user-data")
	root, err := os.OpenRoot(source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("open the files of thread %s: %w", from, err)
	}
	defer root.Close()
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("make the folders of thread %s: %w", to, err)
	}
	into, err := os.OpenRoot(target)
	if err != nil {
		return fmt.Errorf("open the files of thread %s: %w", to, err)
	}
	defer into.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was deleted meanwhile
			return nil
		case err != nil:
			return err
		case name == ".":
			return nil
		case d.IsDir():
			return into.Mkdir(name, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		if err := copyFile(root, into, name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func copyFile(from, to *os.Root, name string) error {
	r, _, err := regular.Open(from, name)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// Move gives the folder of a thread to another user; none is fine, and so is a repeated call. Files that the user has in the thread already stay; of two with
// one name, the one that is moved gets another.
func (h Home) Move(from, to, thread string) error {
	if !IsThread(thread) || from == "" || User(from) == User(to) {
		return nil
	}
	source, target := h.ThreadDir(from, thread), h.ThreadDir(to, thread)
	if err := finishMerge(target); err != nil {
		return fmt.Errorf("move the files of thread %s: %w", thread, err)
	}
	if !h.Has(from, thread) { // no folder is made for nothing
		return nil
	}
	_, err := os.Lstat(target)
	switch {
	case err == nil:
		if err = os.Rename(source, filepath.Join(target, moving)); err == nil {
			err = finishMerge(target)
		}
	case errors.Is(err, fs.ErrNotExist):
		if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
			err = os.Rename(source, target)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("move the files of thread %s: %w", thread, err)
	}
	return nil
}

// moving is where a folder that is merged into that of a thread is meanwhile: nothing but this thread is in reach then, whatever links commands make in it.
const moving = ".moving"

// finishMerge merges what is to be merged into the folder of a thread, also what another call had begun.
func finishMerge(target string) error {
	root, err := os.OpenRoot(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer root.Close()
	if err := mergeFolder(root, moving, "."); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func mergeFolder(root *os.Root, from, to string) error {
	entries, err := fs.ReadDir(root.FS(), filepath.ToSlash(from))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := mergeEntry(root, filepath.Join(from, e.Name()), to, e); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return root.Remove(from)
}

// mergeEntry moves a file or folder into another folder, to which the owner may upload meanwhile. What is there stays: a file gets another name, and folders
// of one name are merged.
func mergeEntry(root *os.Root, from, to string, e fs.DirEntry) error {
	place := filepath.Join(to, e.Name())
	for n := 1; ; n++ {
		have, err := root.Lstat(place)
		switch {
		case err == nil && have.IsDir() && e.IsDir():
			return mergeFolder(root, from, place)
		case err == nil:
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case e.IsDir():
			return root.Rename(from, place) // which replaces no file
		default:
			if err := moveNew(root, from, place); !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		place = filepath.Join(to, numbered(e.Name(), n))
	}
}

// moveNew moves a file to a name that is free; fs.ErrExist when it is not.
func moveNew(root *os.Root, from, to string) error {
	err := root.Link(from, to)
	if err == nil {
		return root.Remove(from)
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.Rename(from, to) // file systems without hard links
}

// Has reports whether a thread has a folder.
func (h Home) Has(user, thread string) bool {
	if !IsThread(thread) {
		return false
	}
	_, err := os.Lstat(h.ThreadDir(user, thread))
	return err == nil
}

// Users returns the names of the folders of users.
func (h Home) Users() []string {
	list, _ := os.ReadDir(filepath.Join(h.Dir, "users")) // without the folder there are no files
	var names []string
	for _, u := range list {
		folder := u.IsDir()
		if u.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(filepath.Join(h.Dir, "users", u.Name()))
			folder = err == nil && info.IsDir()
		}
		if folder { // such as .DS_Store is none
			names = append(names, u.Name())
		}
	}
	return names
}

// removals is how often a folder is deleted in which something makes files meanwhile.
const removals = 100

// Remove deletes all files of a thread. It reports whether there were any.
func (h Home) Remove(user, thread string) (bool, error) {
	if !IsThread(thread) {
		return false, nil
	}
	root, err := os.OpenRoot(h.UserDir(user))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("delete the files of thread %s: %w", thread, err)
	}
	defer root.Close()
	name := filepath.Join("threads", thread)
	if _, err := root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	// An upload that is not over makes files meanwhile. It ends when their folder is gone.
	for range removals {
		if err = root.RemoveAll(name); !errors.Is(err, syscall.ENOTEMPTY) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("delete the files of thread %s: %w", thread, err)
	}
	return true, nil
}

// Thread is the files of one thread. It is safe for concurrent use.
type Thread struct{ root *os.Root }

// Close releases the folder.
func (t *Thread) Close() error { return t.root.Close() }

// Errors of paths.
var (
	ErrOutside   = fault.New(fault.Invalid, "Path must be below "+Virtual)
	ErrTraversal = fault.New(fault.Forbidden, "Access denied: path traversal detected")
)

// Name returns the name within the thread of a path as an agent sees it, such as outputs/a.txt of mnt/user-data/outputs/a.txt.
func Name(virtual string) (string, error) {
	rest, ok := strings.CutPrefix(strings.TrimLeft(virtual, "/"), strings.TrimPrefix(Virtual, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", ErrOutside
	}
	rest = strings.Trim(rest, "/")
	if strings.ContainsRune(rest, 0) {
		return "", ErrOutside
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == ".." {
			return "", ErrTraversal
		}
	}
	if rest = path.Clean(rest); !filepath.IsLocal(filepath.FromSlash(rest)) {
		return "", ErrTraversal
	}
	return rest, nil
}

// Open opens a file by its name within the thread. Errors: fault.NotFound, fault.Invalid for what is no file, fault.Forbidden for a link that leads
// out of the thread. shown is the path for error texts.
func (t *Thread) Open(name, shown string) (*os.File, fs.FileInfo, error) {
	f, info, err := regular.Open(t.root, filepath.FromSlash(name))
	if errors.Is(err, regular.ErrNot) {
		return nil, nil, fault.Newf(fault.Invalid, "Path is not a file: %s", shown)
	}
	if err != nil {
		return nil, nil, t.explain(err, name, shown)
	}
	return f, info, nil
}

func (t *Thread) explain(err error, name, shown string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid):
		return fault.Newf(fault.NotFound, "Artifact not found: %s", shown)
	case errors.Is(err, fs.ErrPermission):
		return fault.Newf(fault.Forbidden, "Permission denied: %s", shown)
	case escapes(err):
		return ErrTraversal
	case notFolder(err):
		return fault.Newf(fault.NotFound, "Artifact not found: %s", shown)
	}
	return fmt.Errorf("open %s: %w", name, err)
}

// escapes reports whether os.Root refused a path that leads out of it. The package has no error for it.
func escapes(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && strings.Contains(e.Err.Error(), "escapes")
}

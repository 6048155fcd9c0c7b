package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A copy has the files of all folders, and nothing that a link leads to.
func TestCopy(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	require.NoError(t, h.Copy("ann", "none", "other"), "a thread without files")
	from := filepath.Join(h.ThreadDir("ann", "from"), "user-data")
	require.NoError(t, os.MkdirAll(filepath.Join(from, "outputs", "deep"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "outputs", "deep", "a.txt"), []byte("text"), 0o600))
	secret := filepath.Join(h.Dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(from, "outputs", "link")))
	require.NoError(t, os.Symlink(h.Dir, filepath.Join(from, "folder")))

	require.NoError(t, h.Copy("ann", "from", "to"))
	to := filepath.Join(h.ThreadDir("ann", "to"), "user-data")
	text, err := os.ReadFile(filepath.Join(to, "outputs", "deep", "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	require.NoFileExists(t, filepath.Join(to, "outputs", "link"))
	require.NoDirExists(t, filepath.Join(to, "folder"))
	require.Error(t, h.Copy("ann", "from", "to"), "what is there is not overwritten")
	require.Error(t, h.Copy("ann", "../from", "x"))
}

// Files that a server left which died before it moved them are moved later, although their new owner has others by then. None is lost.
func TestMoveToAnOwnerWhoHasFiles(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	write := func(user, name, text string) {
		at := filepath.Join(h.ThreadDir(user, "t"), "user-data", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
	}
	write("ann", "uploads/a.txt", "ann's")
	write("ann", "uploads/b.txt", "ann's")
	write("ann", "outputs/deep/c.txt", "ann's")
	write("ann", "workspace/d", "a file of ann's")
	write("ben", "uploads/a.txt", "ben's")
	write("ben", "uploads/a_1.txt", "ben's, too")
	write("ben", "workspace/d/e.txt", "ben's")
	require.NoError(t, h.Move("ann", "ben", "t"))
	require.False(t, h.Has("ann", "t"))
	got := map[string]string{}
	root := os.DirFS(filepath.Join(h.ThreadDir("ben", "t"), "user-data"))
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, err := fs.ReadFile(root, name)
			got[name] = string(text)
			return err
		}
		return err
	}))
	require.Equal(t, map[string]string{
		"uploads/a.txt": "ben's", "uploads/a_1.txt": "ben's, too", "uploads/a_2.txt": "ann's", "uploads/b.txt": "ann's", "outputs/deep/c.txt": "ann's",
		"workspace/d/e.txt": "ben's", "workspace/d_1": "a file of ann's",
	}, got)
	require.NoError(t, h.Move("ann", "ben", "t"))
	require.NoError(t, h.Move("ben", "ben", "t"))
	require.True(t, h.Has("ben", "t"))

	// What a server that was killed had begun, the next call ends.
	write("ann", "uploads/late.txt", "late")
	require.NoError(t, os.Rename(h.ThreadDir("ann", "t"), filepath.Join(h.ThreadDir("ben", "t"), moving)))
	require.NoError(t, h.Move("ann", "ben", "t"))
	require.FileExists(t, filepath.Join(h.ThreadDir("ben", "t"), "user-data/uploads/late.txt"))
	require.NoDirExists(t, filepath.Join(h.ThreadDir("ben", "t"), moving))
}

// Links that commands made in a thread lead out of nothing while another one is merged into it: files of other threads stay.
func TestMoveAmongLinks(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	make := func(user, thread, name string) string {
		at := filepath.Join(h.ThreadDir(user, thread), "user-data", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(name), 0o600))
		return at
	}
	victim := filepath.Dir(make("eve", "other", "workspace/a/secret"))
	make("ann", "t", "workspace/a/b.txt")
	make("ann", "t", "outputs/c.txt")
	outputs := filepath.Dir(make("ben", "t", "outputs/d.txt"))
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(outputs), "workspace"), 0o755))
	for _, link := range []string{filepath.Join(filepath.Dir(outputs), "workspace", "a"), filepath.Join(outputs, "c.txt")} {
		to, err := filepath.Rel(filepath.Dir(link), victim)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(to, link))
	}
	require.NoError(t, h.Move("ann", "ben", "t"))
	entries, err := os.ReadDir(victim)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.FileExists(t, filepath.Join(filepath.Dir(outputs), "workspace", "a_1", "b.txt"))
	require.FileExists(t, filepath.Join(outputs, "c_1.txt"))
}

// The new owner uploads files with the same names while files are moved: none replaces another, in either order.
func TestMoveWhileTheOwnerUploads(t *testing.T) {
	t.Parallel()
	const files = 300
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "from"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "to"), 0o755))
	for n := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "from", fmt.Sprint(n, ".txt")), []byte("moved"), 0o600))
	}
	var uploads sync.WaitGroup
	uploaded := 0
	uploads.Go(func() {
		for n := range files {
			f, err := os.OpenFile(filepath.Join(dir, "to", fmt.Sprint(n, ".txt")), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil { // the moved one is there already
				continue
			}
			_, _ = f.WriteString("uploaded")
			_ = f.Close()
			uploaded++
		}
	})
	require.NoError(t, mergeFolder(root, "from", "to"))
	uploads.Wait()
	count := map[string]int{}
	entries, err := os.ReadDir(filepath.Join(dir, "to"))
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, "to", e.Name()))
		require.NoError(t, err)
		count[string(text)]++
	}
	require.Equal(t, map[string]int{"moved": files, "uploaded": uploaded}, withZero(count, "uploaded"))
	require.NoDirExists(t, filepath.Join(dir, "from"))
}

func withZero(m map[string]int, key string) map[string]int {
	m[key] += 0
	return m
}

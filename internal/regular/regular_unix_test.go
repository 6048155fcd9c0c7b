//go:build unix

package regular_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"understudy/internal/regular"
	"understudy/internal/regular/regulartest"
)

// What is no file is refused at once, and stays as it is; whether a pipe has another end does not matter.
func TestWhatIsNoFile(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "regular") // the path of a socket is at most about 100 bytes
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "open"), 0o600))
	both, err := os.OpenFile(filepath.Join(dir, "open"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer both.Close()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	require.NoError(t, os.Symlink("pipe", filepath.Join(dir, "link")))
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(socket)
	require.NoError(t, syscall.Bind(socket, &syscall.SockaddrUnix{Name: filepath.Join(dir, "socket")}))
	for _, name := range []string{"pipe", "open", "link", "folder", "socket"} {
		_, _, err := regular.Open(root, name)
		require.ErrorIs(t, err, regular.ErrNot, name)
		_, err = regular.Read(filepath.Join(dir, name), 1<<20)
		require.ErrorIs(t, err, regular.ErrNot, name)
		require.Error(t, regular.WriteFile(root, name, []byte("x"), 0o600), name)
		_, err = regular.Write(root, name, os.O_APPEND, 0)
		require.Error(t, err, name)
		if name != "folder" {
			require.ErrorIs(t, err, regular.ErrNot, name)
		}
	}
	_, _, err = regular.Open(root, "none")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Error(t, regular.WriteFile(root, "../x", nil, 0o600))
}

// Of files that are replaced at the same time one stays, whole, and nothing else; a name may be as long as the file system allows.
func TestReplaceAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	name := strings.Repeat("a", 255)
	var writing sync.WaitGroup
	var failed atomic.Pointer[error]
	for n := range 8 {
		writing.Go(func() {
			content := strings.Repeat(string(rune('a'+n)), 100_000)
			for range 20 {
				err := regular.Replace(root, name, ".new-", []byte(content), 0o640)
				if err != nil {
					failed.Store(&err)
					return
				}
				got, err := regular.Read(filepath.Join(dir, name), 1<<20)
				if err == nil && (len(got) != len(content) || strings.Trim(string(got), string(got[:1])) != "") {
					err = errors.New("half a file")
				}
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	writing.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Error(t, regular.Replace(root, "none/a", ".new-", nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	require.Error(t, regular.Replace(root, "folder", ".new-", nil, 0o600))
	left, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)
}

// While others swap a file and a pipe, reads and writes return, and a written file is whole.
func TestSwapping(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	at := filepath.Join(dir, "a")
	regulartest.WhileSwapping(t, at, "aaaa", func() {
		for range 2000 {
			if text, err := regular.Read(at, 100); err == nil {
				assert.Empty(t, strings.Trim(string(text), "ab"))
			}
			_ = regular.WriteFile(root, "a", []byte("bbbb"), 0o600)
		}
	})
}

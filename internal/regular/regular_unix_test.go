//go:build unix

package regular_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/regular"
)

// What is no file is refused at once, and stays as it is; whether a pipe has another end does not matter.
func TestWhatIsNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
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
	for _, name := range []string{"pipe", "open", "link", "folder"} {
		_, _, err := regular.Open(root, name)
		require.ErrorIs(t, err, regular.ErrNot, name)
		_, _, err = regular.OpenPath(filepath.Join(dir, name))
		require.ErrorIs(t, err, regular.ErrNot, name)
		require.Error(t, regular.WriteFile(root, name, []byte("x"), 0o600), name)
		_, err = regular.Write(root, name, os.O_APPEND, 0)
		require.Error(t, err, name)
	}
	_, _, err = regular.Open(root, "none")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Error(t, regular.WriteFile(root, "../x", nil, 0o600))
}

// Replacing a file does not write into what stands at the temporary name.
func TestReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), []byte("mine"), 0o600))
	for _, put := range []func(string) error{
		func(at string) error { return syscall.Mkfifo(at, 0o600) },
		func(at string) error { return os.Symlink("other", at) },
		func(at string) error { return os.Link(filepath.Join(dir, "other"), at) },
		func(string) error { return nil },
	} {
		require.NoError(t, put(filepath.Join(dir, "temporary")))
		require.NoError(t, regular.Replace(root, "a", "temporary", []byte("new"), 0o640))
		for name, want := range map[string]string{"a": "new", "other": "mine"} {
			got, err := regular.Read(filepath.Join(dir, name), 100)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
		require.NoFileExists(t, filepath.Join(dir, "temporary"))
	}
}

// While others swap a file and a pipe, reads and writes return, and a written file is whole.
func TestSwapping(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	at := filepath.Join(dir, "a")
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Remove(at)
			if n%2 == 0 {
				_ = syscall.Mkfifo(at, 0o600)
			} else {
				_ = os.WriteFile(at+".new", []byte("aaaa"), 0o600)
				_ = os.Rename(at+".new", at)
			}
		}
	})
	for range 2000 {
		if text, err := regular.Read(at, 100); err == nil {
			require.Empty(t, strings.Trim(string(text), "ab"))
		}
		_ = regular.WriteFile(root, "a", []byte("bbbb"), 0o600)
	}
	close(stop)
	swapping.Wait()
}

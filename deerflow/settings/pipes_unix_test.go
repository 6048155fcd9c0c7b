//go:build unix

package settings

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What takes the place of the file for a time, whatever it is, is an error at once: everything waits for this file. Opening a pipe would wait for its other end.
func TestFileOfAnotherKind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	f := &File[string]{Path: path, Parse: func(text []byte) (string, error) { return string(text), nil }}
	for name, replace := range map[string]func() error{
		"pipe":    func() error { return syscall.Mkfifo(path, 0o600) },
		"folder":  func() error { return os.Mkdir(path, 0o700) },
		"link":    func() error { return os.Symlink(path, path) },
		"device":  func() error { return os.Symlink("/dev/zero", path) },
		"nothing": func() error { return nil },
	} {
		require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
		got, err := f.Current()
		require.NoError(t, err)
		require.Equal(t, name, got)
		require.NoError(t, os.Remove(path))
		require.NoError(t, replace())
		_, err = f.Current()
		require.Error(t, err, name)
		last, err := f.Last()
		require.NoError(t, err)
		require.Equal(t, name, last)
		_ = os.Remove(path)
	}
}

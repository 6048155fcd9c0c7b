package config

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// asOther runs fn with the rights on files of a user who owns none, when the test runs as root.
func asOther(t *testing.T, fn func()) {
	t.Helper()
	if os.Getuid() != 0 {
		fn()
		return
	}
	runtime.LockOSThread() // the user is that of the thread
	defer runtime.UnlockOSThread()
	require.NoError(t, syscall.Setfsuid(65534))
	defer func() { require.NoError(t, syscall.Setfsuid(0)) }()
	fn()
}

// An interpreter in the home folder of another user is named, and the advice does not lead there again.
func TestInterpreterOutOfReach(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	home, venv := filepath.Join(dir, "home"), filepath.Join(dir, ".venv")
	python := filepath.Join(home, "python3.12")
	require.NoError(t, os.MkdirAll(filepath.Join(venv, "bin"), 0o755))
	require.NoError(t, os.Mkdir(home, 0o755))
	require.NoError(t, os.WriteFile(python, nil, 0o755))
	require.NoError(t, os.Symlink("python3", filepath.Join(venv, "bin", "python")))
	require.NoError(t, os.Symlink(python, filepath.Join(venv, "bin", "python3")))
	none := func(string) (string, bool) { return "", false }
	asOther(t, func() {
		_, err := FindPython("", dir, none)
		require.NoError(t, err)
	})
	require.NoError(t, os.Chmod(home, 0))
	t.Cleanup(func() { require.NoError(t, os.Chmod(home, 0o755)) })
	asOther(t, func() {
		_, err := FindPython("", dir, none)
		require.ErrorContains(t, err, filepath.Join(venv, "bin", "python")+" links to "+python+", which the user of the server cannot reach")
		require.ErrorContains(t, err, "/usr/bin/python3 -m venv "+venv)
		require.ErrorContains(t, err, "ProtectHome=yes")
		require.NotContains(t, err.Error(), "(python3 -m venv")
	})
}

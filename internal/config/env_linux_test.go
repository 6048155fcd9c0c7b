package config

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// An env file that may not be read is a mistake when it is ours, and a warning with a fix when it
// is another user's, as in a container that mounts one of mode 0600. Needs root, for a thread
// without its permissions.
func TestEnvFileThatCannotBeRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	env := filepath.Join(dir, ".env")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"agent": {"model": "fake:hello"}}}, "env": ".env"}`), 0o644))
	require.NoError(t, os.WriteFile(env, []byte("KEY=secret\n"), 0o600))
	load := func() (*Config, []Warning, error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, syscall.Setfsuid(4711))
		defer func() { require.NoError(t, syscall.Setfsuid(0)) }()
		return Load(Source{Mode: Serve, File: file, Lookup: func(string) (string, bool) { return "", false }})
	}
	_, _, err := load()
	require.ErrorContains(t, err, env+" cannot be read (mode 0600); run chmod 600 "+env)
	require.NoError(t, os.Chown(env, 4712, 4712))
	c, warnings, err := load()
	require.NoError(t, err)
	require.Empty(t, c.Env)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0].Text, "belongs to user 4712 (mode 0600)")
	require.Contains(t, warnings[0].Text, "--user 4712")
}

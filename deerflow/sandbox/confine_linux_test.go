package sandbox

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of a folder of programs its libraries are readable, and not what else is next to it.
func TestPrograms(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"/h/.pyenv/shims", "/h/.pyenv"}, programs("/h/.pyenv/shims"))
	require.Equal(t, []string{"/h/bin", "/h/lib", "/h/lib64", "/h/libexec", "/h/share/uv"}, programs("relative::/h/bin"))
	require.Equal(t, []string{"/h/tools"}, programs("/h/tools"))
}

// Files of /etc that programs look for are there; those that only root may read are not.
func TestFilesOfTheSystem(t *testing.T) {
	t.Parallel()
	for _, name := range ownFiles() {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular(), name)
	}
	if landlockLevel() == 0 {
		return
	}
	l := NewLocal(Options{})
	defer l.Close()
	th, err := l.Open(Place{ID: "x", Dir: t.TempDir()})
	require.NoError(t, err)
	defer th.Close()
	command := "e=$(printf '\\057etc'); cat $e/passwd > a && echo readable; cat $e/shadow $e/sudoers $e/ssl/private/* 2>/dev/null | wc -c"
	out, err := th.Run(t.Context(), Command{Text: command})
	require.NoError(t, err)
	require.Equal(t, "readable\n0\n", out)
}

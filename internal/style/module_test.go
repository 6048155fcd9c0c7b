package style

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The path of the module is given another value by one command, and everything that names it follows.
func TestModulePath(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it copies the module")
	}
	dir := t.TempDir()
	in := func(name string, args ...string) string {
		cmd := exec.Command(name, args...) //nolint:noctx // ends by itself
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %v\n%s", name, args, out)
		return string(out)
	}
	files := exec.Command("git", "ls-files", "-zco", "--exclude-standard")
	files.Dir = root(t)
	names, err := files.Output()
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		require.NoError(t, err)
		to := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	in("git", "init", "-q")
	in("git", "add", "-A")
	const moved = "github.com/acme/understudy"
	said := in("make", "module", "PATH="+moved)
	require.Regexp(t, `^the module was `+module+` and is `+moved+`: changed go\.mod and \d{3,} Go files, and\n(  \S+\n)*  docs/embedding\.md\n`, said)
	for file := range strings.SplitSeq(strings.TrimSpace(in("git", "diff", "--name-only")), "\n") {
		if !strings.HasSuffix(file, ".go") {
			require.Contains(t, said, file)
		}
	}
	require.Equal(t, "the module is "+moved+" already\n", in("make", "module", "PATH="+moved))
	// Tests too. It fails on imports that are not there; nothing else of a build depends on the path.
	packages := in("go", "list", "-deps", "-test", "-f", "{{.ImportPath}}", "./...")
	require.Contains(t, packages, moved+"/graph\n")
	template, err := os.ReadFile(filepath.Join(dir, "cmd/understudy/templates/go/main.go.tmpl")) // of a program that imports the module
	require.NoError(t, err)
	require.Contains(t, string(template), "\t\""+moved+"\"\n\t\""+moved+"/graph/agent\"\n")
	// Elsewhere the old path is only in words that are not the module's.
	left := exec.Command("git", "grep", "-nE", `"`+module+`/(graph|cmd|internal|storage|server)|prefix.`+module+`\)|module `+module+`/`)
	left.Dir = dir
	out, err := left.Output()
	require.Error(t, err, "%s", out) // nothing is found
}

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	goProgram = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")
	output    = regexp.MustCompile(`(?m)^\t// Output:((?:.*\n)(?:\t//.*\n)*)`)
)

// TestProgramsInDocs builds and runs the Go programs in the documentation, in a module next to this one, as a reader would. Their output is what the comment
// at their end says.
func TestProgramsInDocs(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	dir := t.TempDir()
	programs := map[string]string{} // output by name
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for i, m := range goProgram.FindAllSubmatch(text, -1) {
			name := fmt.Sprintf("%s%d", strings.TrimSuffix(filepath.Base(page), ".md"), i+1)
			want := output.FindSubmatch(m[1])
			require.NotNil(t, want, "%s has no output", name)
			lines := strings.ReplaceAll(string(want[1]), "\t// ", "")
			programs[name] = strings.TrimSpace(lines)
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name, "main.go"), m[1], 0o600))
		}
	}
	require.GreaterOrEqual(t, len(programs), 5)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/docs\n\ngo 1.26.0\n"), 0o600))
	for _, args := range [][]string{{"work", "init", ".", root}, {"vet", "./..."}, {"build", "-o", dir + "/bin/", "./..."}} {
		step := exec.Command("go", args...)
		step.Dir = dir
		out, err := step.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	for name, want := range programs {
		out, err := exec.Command(filepath.Join(dir, "bin", name)).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.Equal(t, want, string(bytes.TrimSpace(out)), name)
	}
}

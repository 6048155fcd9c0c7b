package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The walk through docs/python.md leads where it says: its files in a folder, the server, the client, and the output.
func TestPythonPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/python.md")
	require.NoError(t, err)
	pr := project{t, t.TempDir()}
	for _, file := range regexp.MustCompile("(?s)```python\n# (\\S+)\n(.*?)```").FindAllSubmatch(page, -1) {
		pr.write(string(file[1]), string(file[2]))
	}
	block := func(kind string) string {
		found := regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllSubmatch(page, -1)
		require.Len(t, found, 1, kind)
		return string(found[0][1])
	}
	pr.write("langgraph.json", block("json"))
	pr.write(".env", "")
	p := startIn(t, pr, python(t), "dev")
	p.listens()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := exec.CommandContext(ctx, python(t), filepath.Join(pr.dir, "ask.py"))
	ask.Env = append(os.Environ(), "URL="+p.url)
	out, err := ask.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, block("text"), string(out))
}

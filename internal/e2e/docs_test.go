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

// embedding makes a program of the fragments on the page about embedding, as a reader would: with a graph, a function that is paid, and a check where there are dots.
func embedding(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	fragments := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, fragments, 2)
	const dots = "\n…\n"
	body, observe := fragments[0][1], fragments[1][1]
	require.Equal(t, 2, strings.Count(body, dots))
	check := "\nif err != nil {\n\tpanic(err)\n}\n"
	body = strings.Replace(body, dots, check, 1)
	body = strings.Replace(body, dots, check+observe+check+"go call(srv)\n", 1)
	for _, change := range [][2]string{{`"127.0.0.1:8123"`, `"127.0.0.1:0"`}, {`Dir: ".understudy"`, `Dir: ":memory:"`}, {"slog.Default()", "slog.New(slog.DiscardHandler)"}} {
		require.Contains(t, body, change[0])
		body = strings.Replace(body, change[0], change[1], 1)
	}
	return `package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"understudy"
	"understudy/graph/pregel"
)

type state struct {
	Text string ` + "`json:\"text\"`" + `
}

var paid = make(chan struct{})

func charge(context.Context, ...any) error {
	close(paid)
	return nil
}

func call(srv *understudy.Server) {
	res, err := http.Post("http://"+srv.Addr().String()+"/threads", "application/json", strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	text, _ := io.ReadAll(res.Body)
	_, rest, _ := strings.Cut(string(text), "\"thread_id\":\"")
	res, err = http.Post("http://"+srv.Addr().String()+"/threads/"+rest[:36]+"/runs/wait", "application/json", strings.NewReader("{\"assistant_id\":\"shout\",\"input\":{\"text\":\"hello\"}}"))
	if err != nil {
		panic(err)
	}
	text, _ = io.ReadAll(res.Body)
	fmt.Println(string(text))
}

func main() {
	g := pregel.NewStateGraph[state]()
	g.AddNode("louder", func(_ context.Context, s state) (any, error) { return state{strings.ToUpper(s.Text)}, nil })
	g.AddSequence(pregel.START, "louder", pregel.END)
	shout := g.MustCompile()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-paid
		stop()
	}()
` + body + `
	fmt.Println("charged", err)
}
`
}

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
	require.NoError(t, os.Mkdir(filepath.Join(dir, "embedding"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "embedding", "main.go"), []byte(embedding(t, filepath.Join(root, "docs", "embedding.md"))), 0o600))
	programs["embedding"] = "{\"text\":\"HELLO\"}\ncharged <nil>"
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

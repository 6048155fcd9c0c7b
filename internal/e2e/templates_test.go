package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each template with a graph in Python works as written, without a key, and is talked to with understudy chat.
func TestPythonTemplates(t *testing.T) {
	t.Parallel()
	bin, err := build()
	require.NoError(t, err)
	for _, c := range []struct{ template, message, stdin, want string }{
		{"python", "one two three", "", "That was 3 words.\n"},
		{"react-agent", "What is 6 times 7?", "", "→ calculate {\"expression\":\"6 * 7\"}\n← calculate 42\nThe answer is 42.\n"},
		{"approval", `{"to": "Ada", "about": "the engine"}`, "send\n", `send: {"outcome":"sent to Ada"}`},
	} {
		t.Run(c.template, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "mine")
			out, err := exec.Command(bin, "init", dir, "--template", c.template).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "pip install -r requirements.txt")
			env := append(os.Environ(), "MODEL=")
			url, log := program(t, dir, bin, env, "dev", "--port", "0", "--python", python(t), "--workers", "1")
			chat := exec.Command(bin, "chat", "--url", url, "--message", c.message)
			chat.Stdin = strings.NewReader(c.stdin)
			said, err := chat.CombinedOutput()
			require.NoError(t, err, "%s", said)
			require.Contains(t, string(said), c.want)
			// The data folder stays out of version control.
			ignored, err := os.ReadFile(filepath.Join(dir, ".understudy", ".gitignore"))
			require.NoError(t, err)
			require.Equal(t, "*\n", string(ignored))
			require.NotContains(t, log.String(), "WARN")
			require.NotContains(t, log.String(), "ERROR")
		})
	}
	// What templates and examples share stays the same.
	for template, example := range map[string]string{"react-agent/scripted_model.py": "chat/scripted_model.py", "approval/approval.py": "approval/approval.py"} {
		got, err := os.ReadFile(filepath.Join("../../cmd/understudy/templates", template))
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join("../../examples", example))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), template)
	}
}

// DeerFlow's agent works as written, without a key: with files, commands, questions and a skill.
func TestDeerFlowTemplate(t *testing.T) {
	t.Parallel()
	bin, err := build()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "mine")
	out, err := exec.Command(bin, "init", dir, "--template", "deerflow").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "serve --deerflow --studio")
	url, log := program(t, dir, bin, append(os.Environ(), "DEER_FLOW_AUTH_DISABLED=1"), "serve", "--deerflow", "--studio", "--port", "0")
	for message, want := range map[string]string{
		"write a report about ducks": "The report is in outputs",
		"run seq 3":                  "1\n2\n3\n",
		"/word-count run seq 3":      "1\n2\n3\n",
		"ask me":                     "Which color?",
		"hello":                      "I am a scripted model",
	} {
		said, err := exec.Command(bin, "chat", "--url", url, "--message", message).CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.Contains(t, string(said), want)
	}
	reports, err := filepath.Glob(filepath.Join(dir, ".deer-flow/users/*/threads/*/user-data/outputs/report.md"))
	require.NoError(t, err)
	require.Len(t, reports, 1)
	require.NotContains(t, log.String(), "ERROR")
}

// The page of the frontend template is bundled by its own script and talks to its agent in a browser. It needs node and the packages of
// conformance/browser.
func TestFrontendTemplate(t *testing.T) {
	t.Parallel()
	modules, _ := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".cache", "understudy", "browser-*", "node_modules"))
	if len(modules) == 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("no packages of conformance/browser: run conformance/setup browser")
		}
		t.Skip("SKIPPED: no packages of conformance/browser (conformance/setup browser)")
	}
	bin, err := build()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "mine")
	out, err := exec.Command(bin, "init", dir, "--template", "frontend").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Symlink(modules[len(modules)-1], filepath.Join(dir, "node_modules")))
	bundle := exec.Command("npm", "run", "build")
	bundle.Dir = dir
	out, err = bundle.CombinedOutput()
	require.NoError(t, err, "%s", out)
	url, _ := program(t, dir, bin, os.Environ(), "dev", "--port", "0", "--reload=false")
	script, err := filepath.Abs("testdata/frontend.mjs")
	require.NoError(t, err)
	text, err := os.ReadFile(script)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "drive.mjs"), text, 0o600)) // node finds the packages next to it
	drive := exec.Command("node", "drive.mjs", url)
	drive.Dir = dir
	var said bytes.Buffer
	drive.Stdout, drive.Stderr = &said, &said
	require.NoError(t, drive.Run(), "%s", &said)
	require.Contains(t, said.String(), "The answer is 42.")
}

package e2e

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// program is a program that serves, until the test ends. It returns its address and what it logs.
func program(t *testing.T, dir, bin string, env []string, args ...string) (url string, log *logtest.Buffer) {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Env = dir, env
	log = &logtest.Buffer{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), "listening on "); ok {
			url = at
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log)
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		_, _ = io.Copy(io.Discard, out)
		require.NoError(t, cmd.Wait(), "it stops in order")
	})
	require.NotEmpty(t, url, "%s", log)
	return url, log
}

func postJSON(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
	return string(text)
}

// The program of docs/embedding.md, in a module of its own next to this one.
func TestEmbeddingProgram(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	us, err := build()
	require.NoError(t, err)
	// The template of init is the example, and its README what a reader types.
	dir := filepath.Join(t.TempDir(), "my-agent")
	out, err := exec.Command(us, "init", "--template", "go", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	want, err := os.ReadFile(filepath.Join(root, "examples", "embed", "main.go"))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "main.go"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	bin := filepath.Join(dir, "embed")
	for _, args := range [][]string{{"work", "init", ".", root}, {"build", "-o", bin, "."}} {
		step := exec.Command("go", args...)
		step.Dir = dir
		out, err := step.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	url, _ := program(t, dir, bin, os.Environ(), "-addr", "127.0.0.1:0")
	answer := postJSON(t, url+"/runs/wait", `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"How long is understudy?"}]}}`)
	require.Contains(t, answer, `"content":"It has 10 letters."`)
	thread := between(postJSON(t, url+"/threads", `{}`), `"thread_id":"`, `"`)
	asked := postJSON(t, url+"/threads/"+thread+"/runs/wait", `{"assistant_id":"shout","input":{"text":"hello"}}`)
	require.Contains(t, asked, `"Say HELLO?"`)
	require.JSONEq(t, `{"text":"HELLO!","trail":["louder","confirm"]}`, postJSON(t, url+"/threads/"+thread+"/runs/wait", `{"assistant_id":"shout","command":{"resume":true}}`))
}

func between(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}

// What `understudy init` writes works where there is no Python, no key and no network, and is never written over something.
func TestStarter(t *testing.T) {
	t.Parallel()
	bin, err := build()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "my-agent")
	out, err := exec.Command(bin, "init", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "cd "+dir+" && understudy dev")
	env := []string{"PATH=" + t.TempDir(), "HOME=" + dir}
	url, _ := program(t, dir, bin, env, "dev", "--port", "0")
	ask := func(text string) string {
		return postJSON(t, url+"/runs/wait", `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"`+text+`"}]}}`)
	}
	for question, want := range map[string]string{
		"What is 6 times 7?": `"content":"The answer is 42."`, "What is (3 + 4) * 6?": `"content":"The answer is 42."`, "10 minus 4.5": `"The answer is 5.5."`,
		"Hello!": `"content":"Hello! I am a scripted model`, "What time is it?": "The answer is ", "Why?": `You said: \"Why?\".`,
	} {
		require.Contains(t, ask(question), want, question)
	}
	again := exec.Command(bin, "init", dir)
	out, err = again.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "has .env, .env.example, .gitignore, README.md, langgraph.json, script.json already; nothing was written")
}

// A mistake that shows only when the agent is built points at its key.
func TestDeclaredMistakes(t *testing.T) {
	t.Parallel()
	bin, err := build()
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {
		"a": {"agent": {"model": "openai:gpt-4o"}},
		"b": {"agent": {"model": {"name": "scripted:", "script": [{}]}, "tools": ["calculater"]}},
		"c": {"agent": {"model": {"name": "scripted:", "script": [{}]}, "middleware": {"summarization": {"trigger": {"fraction": 0.5}}}}}}}`), 0o600))
	cmd := exec.Command(bin, "dev", "--config", file, "--port", "0", "--data", dir)
	cmd.Env = []string{"PATH=" + dir, "HOME=" + dir}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	for _, want := range []string{
		"langgraph.json:2:28: graphs.a.agent.model: model openai:gpt-4o: has no key; set OPENAI_API_KEY",
		`langgraph.json:3:77: graphs.b.agent.tools[0]: there is no tool "calculater"; there are calculator, current_time, recall, remember`,
		"langgraph.json:4:99: graphs.c.agent.middleware.summarization: summarization: trigger: fraction needs the model's max_input_tokens",
	} {
		require.Contains(t, string(out), want)
	}
}

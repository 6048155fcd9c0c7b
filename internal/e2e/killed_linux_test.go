package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// killedScript appends to a log, then waits for a file, then appends again; by itself, or in a subagent.
const killedScript = `{"answers": [
	{"from": "human", "when": "^work$", "tool_calls": [{"name": "bash", "args": {"command": "echo first >> /mnt/user-data/workspace/log; echo one"}}]},
	{"from": "tool", "when": "^one", "tool_calls": [{"name": "bash", "args": {"command": "touch /mnt/user-data/workspace/started; until [ -e /mnt/user-data/workspace/release ]; do sleep 0.05; done; echo second >> /mnt/user-data/workspace/log; echo two"}}]},
	{"from": "tool", "when": "^two", "content": "finished"},
	{"from": "human", "when": "^delegate$", "tool_calls": [{"name": "task", "args": {"description": "d", "prompt": "work", "subagent_type": "general-purpose"}}]},
	{"from": "human", "when": "^both$", "tool_calls": [{"name": "task", "args": {"description": "d", "prompt": "quick", "subagent_type": "general-purpose"}},
		{"name": "task", "args": {"description": "d", "prompt": "work", "subagent_type": "general-purpose"}}]},
	{"from": "human", "when": "^quick$", "tool_calls": [{"name": "bash", "args": {"command": "echo quick >> /mnt/user-data/workspace/log; echo fast"}}]},
	{"from": "tool", "when": "^fast", "content": "quickly done"},
	{"from": "tool", "when": "^Task Succeeded. Result: ", "content": "all finished"},
	{"content": "not understood"}]}`

// A server that is killed while a command or a subagent works: after its restart the run ends, what was done before is not done again, and the command that was
// running then does not go its own way next to the one that takes its place.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	bin, err := build()
	require.NoError(t, err)
	for _, message := range []string{"work", "delegate", "both"} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "script.json"), []byte(killedScript), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(`
models: [{name: m, use: "understudy:scripted", model: script.json}]
sandbox: {allow_host_bash: true}
tools: [{name: bash, group: bash, use: "deerflow.sandbox.tools:bash_tool"}]
memory: {enabled: false}
`), 0o600))
			env := append(os.Environ(), "DEER_FLOW_AUTH_DISABLED=1")
			url, kill := killable(t, dir, bin, env)
			body, err := json.Marshal(map[string]any{
				"assistant_id": "lead_agent", "input": map[string]any{"messages": []any{map[string]any{"type": "human", "content": message}}},
				"context": map[string]any{"subagent_enabled": true},
			})
			require.NoError(t, err)
			thread := gjson.Get(post(t, url+"/threads", "{}"), "thread_id").String()
			run := gjson.Get(post(t, url+"/threads/"+thread+"/runs", string(body)), "run_id").String()
			var workspace string
			eventually(t, "the command has started", func() bool {
				found, _ := filepath.Glob(filepath.Join(dir, ".deer-flow/users/*/threads/*/user-data/workspace/started"))
				if len(found) == 0 {
					return false
				}
				workspace = filepath.Dir(found[0])
				return true
			})
			if message == "both" {
				eventually(t, "the other subagent has ended", func() bool {
					return strings.Contains(get(t, url+"/threads/"+thread+"/state"), "quickly done")
				})
			}
			kill()
			require.NoError(t, os.Remove(filepath.Join(workspace, "started")))

			url, _ = program(t, dir, bin, env, "serve", "--deerflow", "--port", "0")
			eventually(t, "the command has started again", func() bool {
				_, err := os.Stat(filepath.Join(workspace, "started"))
				return err == nil
			})
			require.NoError(t, os.WriteFile(filepath.Join(workspace, "release"), nil, 0o600))
			var status string
			eventually(t, "the run has ended", func() bool {
				status = gjson.Get(get(t, url+"/threads/"+thread+"/runs/"+run), "status").String()
				return status != "running" && status != "pending"
			})
			require.Equal(t, "success", status)
			log, err := os.ReadFile(filepath.Join(workspace, "log"))
			require.NoError(t, err)
			lines := strings.Fields(string(log))
			if slices.Sort(lines); message == "both" {
				require.Equal(t, []string{"first", "quick", "second"}, lines)
			} else {
				require.Equal(t, []string{"first", "second"}, lines)
			}
			list := gjson.Get(get(t, url+"/threads/"+thread+"/state"), "values.messages").Array()
			require.True(t, strings.HasSuffix(list[len(list)-1].Get("content").String(), "finished"))
			ids := map[string]bool{}
			for _, m := range list {
				require.False(t, ids[m.Get("id").String()], "a message is there twice")
				ids[m.Get("id").String()] = true
			}
			require.Len(t, list, map[string]int{"work": 6, "delegate": 4, "both": 5}[message])
		})
	}
}

// killable starts a server, and returns its address and how to kill it.
func killable(t *testing.T, dir, bin string, env []string) (url string, kill func()) {
	t.Helper()
	cmd := exec.Command(bin, "serve", "--deerflow", "--port", "0")
	cmd.Dir, cmd.Env = dir, env
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), "listening on "); ok {
			return at, kill
		}
	}
	t.Fatal("the server did not start")
	return "", nil
}

func post(t *testing.T, url, body string) string { return answered(t, http.MethodPost, url, body) }

func get(t *testing.T, url string) string { return answered(t, http.MethodGet, url, "") }

func answered(t *testing.T, method, url, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s", text)
	return string(text)
}

// eventually waits for what a process does elsewhere.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(90 * time.Second); !is(); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(until), what)
	}
}

// Package e2e runs the program as its users do: the binary, real workers, HTTP.
package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// python is an interpreter with langgraph, from UNDERSTUDY_TEST_PYTHON or the project's .venv.
func python(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("UNDERSTUDY_TEST_PYTHON"); p != "" {
		return p
	}
	if p, err := filepath.Abs("../../.venv/bin/python"); err == nil {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("no Python with langgraph: set UNDERSTUDY_TEST_PYTHON")
	}
	t.Skip("no Python with langgraph: set UNDERSTUDY_TEST_PYTHON, or run make .venv")
	return ""
}

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "understudy-e2e-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "understudy")
	cmd := exec.Command("go", "build", "-o", bin, "../../cmd/understudy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is released
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// process is a running server.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	log  *logtest.Buffer
	done chan error
}

// serve starts the binary on a data folder and waits until it listens.
func serve(t *testing.T, data string, args ...string) *process {
	t.Helper()
	return serveWith(t, data, nil, args...)
}

// serveWith is serve with a word in how the process is started.
func serveWith(t *testing.T, data string, change func(*exec.Cmd), args ...string) *process {
	t.Helper()
	py := python(t)
	bin, err := build()
	require.NoError(t, err)
	p := &process{t: t, log: &logtest.Buffer{}, done: make(chan error, 1)}
	p.cmd = exec.Command(bin, append([]string{"dev", "--config", "testdata/langgraph.json", "--port", "0", "--data", data, "--python", py, "--workers", "2"}, args...)...)
	if change != nil {
		change(p.cmd)
	}
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "understudy listening on "); ok {
			p.url = url
			break
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		p.done <- p.cmd.Wait()
	}()
	require.NotEmpty(t, p.url, "the server did not start:\n%s", p.log)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of the server:\n%s", p.log)
		}
	})
	return p
}

// kill ends the server as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	select {
	case err := <-p.done:
		p.done <- err
	case <-time.After(time.Minute):
		p.t.Error("a killed server did not end")
	}
}

// call makes a request and decodes the answer; it fails the test unless the status is as wanted.
func (p *process) call(method, path string, body any, status int) any {
	p.t.Helper()
	got, out := p.try(method, path, body)
	require.Equal(p.t, status, got, "%s %s: %v", method, path, out)
	return out
}

func (p *process) try(method, path string, body any) (int, any) {
	p.t.Helper()
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		require.NoError(p.t, err)
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, in)
	require.NoError(p.t, err)
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: 60 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	var out any
	if len(bytes.TrimSpace(b)) > 0 {
		_ = json.Unmarshal(b, &out)
	}
	return res.StatusCode, out
}

func field(v any, path ...string) any {
	for _, k := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// eventually polls until check is true.
func (p *process) eventually(what string, check func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !check() {
		if time.Now().After(deadline) {
			p.t.Fatalf("not reached in time: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestKill: whatever was acknowledged before a kill -9 is done after the restart: nothing lost, nothing twice, no thread stuck.
func TestKill(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	const threads, each, steps = 12, 3, 4
	want := map[string][]string{} // items of each thread when all is done
	runs := map[string][]string{}
	for n := range threads {
		id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
		for k := range each {
			tag := fmt.Sprintf("%d.%d.", n, k)
			r := p.call("POST", "/threads/"+id+"/runs", map[string]any{
				"assistant_id": "ticker", "input": map[string]any{"steps": steps, "delay": 0.05, "tag": tag},
			}, 200)
			runs[id] = append(runs[id], field(r, "run_id").(string))
			for s := range steps {
				want[id] = append(want[id], fmt.Sprintf("%s%d", tag, s))
			}
		}
	}
	for range 3 {
		time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond) // a random moment is the point
		p.kill()
		p = serve(t, data)
	}
	for id, ids := range runs {
		p.eventually("thread "+id+" idle", func() bool {
			return field(p.call("GET", "/threads/"+id, nil, 200), "status") != "busy"
		})
		for _, r := range ids {
			require.Equal(t, "success", field(p.call("GET", "/threads/"+id+"/runs/"+r, nil, 200), "status"))
		}
		state := p.call("GET", "/threads/"+id+"/state", nil, 200)
		var items []string
		for _, i := range field(state, "values", "items").([]any) {
			items = append(items, i.(string))
		}
		require.Equal(t, want[id], items)
	}
}

// TestTerminate: after SIGTERM short runs end, the others are handed back, and the server ends in time; the next server
// resumes them.
func TestTerminate(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data, "--grace", "1s")
	id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	r := field(p.call("POST", "/threads/"+id+"/runs", map[string]any{
		"assistant_id": "ticker", "input": map[string]any{"steps": 30, "delay": 0.1, "tag": "t"},
	}, 200), "run_id").(string)
	p.eventually("the run has saved something", func() bool {
		items, _ := field(p.call("GET", "/threads/"+id+"/state", nil, 200), "values", "items").([]any)
		return len(items) > 1
	})
	began := time.Now()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.done:
		p.done <- err
		require.NoError(t, err, "an orderly stop is no failure")
	case <-time.After(time.Minute):
		t.Fatal("the server did not end")
	}
	require.Less(t, time.Since(began), 30*time.Second)
	p = serve(t, data)
	p.eventually("the run is over", func() bool {
		return field(p.call("GET", "/threads/"+id+"/runs/"+r, nil, 200), "status") == "success"
	})
	require.Len(t, field(p.call("GET", "/threads/"+id+"/state", nil, 200), "values", "items"), 30)
}

// TestABrokenGraphLeavesTheOthersAlone: its runs answer with why it cannot be imported.
func TestABrokenGraphLeavesTheOthersAlone(t *testing.T) {
	p := serve(t, t.TempDir())
	require.Equal(t, map[string]any{"n": 2.0}, p.call("POST", "/runs/wait", map[string]any{"assistant_id": "echo", "input": map[string]any{"n": 1}}, 200))
	out := p.call("POST", "/runs/wait", map[string]any{"assistant_id": "broken", "input": map[string]any{}}, 200)
	require.Contains(t, fmt.Sprint(field(out, "__error__", "message")), "a_module_that_nobody_has")
}

// TestAGraphThatExits kills its worker three times, without affecting other runs.
func TestAGraphThatExits(t *testing.T) {
	p := serve(t, t.TempDir())
	id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	out := p.call("POST", "/threads/"+id+"/runs/wait", map[string]any{"assistant_id": "leaves", "input": map[string]any{"n": 1}}, 200)
	require.NotNil(t, field(out, "__error__"), "%v", out)
	require.Equal(t, "error", field(p.call("GET", "/threads/"+id, nil, 200), "status"))
	require.Equal(t, map[string]any{"n": 2.0}, p.call("POST", "/runs/wait", map[string]any{"assistant_id": "echo", "input": map[string]any{"n": 1}}, 200))
}

// A second server on the same data folder names the process that holds it.
func TestASecondServerOnTheSameData(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	bin, err := build()
	require.NoError(t, err)
	out, err := exec.Command(bin, "dev", "--config", "testdata/langgraph.json", "--port", "0", "--data", data, "--python", python(t)).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), fmt.Sprint(p.cmd.Process.Pid))
}

//go:build unix

package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph/pregel"
	"understudy/internal/config"
	"understudy/storage/postgres/migratedtest"
	"understudy/storage/sqlite"
	"understudy/thread"
)

// Runs that kill the process of their server, and runs of servers that are killed by others. Servers are processes of this test binary.

const childFolder = "UNDERSTUDY_RECOVERY_FOLDER"

// TestRecoveryChild is a server. Its graph has two nodes: the second one waits until a file is there, and then may kill the process.
func TestRecoveryChild(t *testing.T) {
	dir := os.Getenv(childFolder)
	if dir == "" {
		t.Skip("runs as a child of other tests")
	}
	go func() { // until the process of the tests ends, however it does
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	g := pregel.NewStateGraph[steps]()
	g.AddNode("first", func(context.Context, steps) (any, error) { return steps{Done: []string{"first"}}, nil })
	g.AddNode("second", func(ctx context.Context, s steps) (any, error) {
		fmt.Println("executes " + s.Do)
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, s.Do)); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond) // another process makes the file
		}
		if s.Do == "kill" && ctx.Err() == nil {
			return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return steps{Done: []string{"second"}}, context.Cause(ctx)
	})
	g.AddSequence(pregel.START, "first", "second", pregel.END)
	compiled, err := g.Compile(pregel.WithName("steps"))
	require.NoError(t, err)
	flags := map[string]string{"port": "0", "lease": "1s", "grace": "100ms", "data": filepath.Join(dir, "data")}
	if database := os.Getenv("UNDERSTUDY_RECOVERY_DATABASE"); database != "" {
		flags["database-url"], flags["database-connections"], flags["lease"] = database, "4", "2s"
	}
	for _, flag := range strings.Fields(os.Getenv("UNDERSTUDY_RECOVERY_FLAGS")) {
		name, value, _ := strings.Cut(flag, "=")
		flags[name] = value
	}
	settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	srv, err := New(t.Context(), Config{Settings: settings})
	require.NoError(t, err)
	require.NoError(t, srv.Register("steps", "", compiled))
	fmt.Println("url " + srv.url())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	require.NoError(t, srv.Run(ctx))
}

// child is a server in a process of its own.
type child struct {
	cmd      *exec.Cmd
	url      string
	executes chan string   // what nodes are executed; closed at its end
	exited   chan struct{} // closed when it has been waited for
}

func startChild(t *testing.T, dir, database string, flags ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRecoveryChild$", "-test.v")
	cmd.Env = append(os.Environ(), childFolder+"="+dir, "UNDERSTUDY_RECOVERY_DATABASE="+database, "UNDERSTUDY_RECOVERY_FLAGS="+strings.Join(flags, " "))
	_, err := cmd.StdinPipe() // which its end closes
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{cmd: cmd, executes: make(chan string, 1000), exited: make(chan struct{})}
	lines := bufio.NewScanner(out)
	var said []string
	for c.url == "" && lines.Scan() {
		said = append(said, lines.Text())
		c.url, _ = strings.CutPrefix(lines.Text(), "url ")
		if !strings.HasPrefix(lines.Text(), "url ") {
			c.url = ""
		}
	}
	go func() {
		defer close(c.exited)
		defer cmd.Wait() // mostly it is killed
		defer close(c.executes)
		for lines.Scan() {
			if what, ok := strings.CutPrefix(lines.Text(), "executes "); ok {
				c.executes <- what
			}
		}
	}()
	t.Cleanup(func() { c.end(syscall.SIGKILL) })
	require.NotEmpty(t, c.url, "%s", said)
	return c
}

// end ends the process, if it has not ended.
func (c *child) end(by syscall.Signal) {
	_ = c.cmd.Process.Signal(by)
	<-c.exited
}

// create makes a run on a thread of its own and returns the path of the run.
func (c *child) create(t *testing.T, do string) string {
	t.Helper()
	thread, _ := call(t, http.MethodPost, c.url+"/threads", `{}`)["thread_id"].(string)
	run, _ := call(t, http.MethodPost, c.url+"/threads/"+thread+"/runs", fmt.Sprintf(`{"assistant_id":"steps","durability":"sync","input":{"do":%q}}`, do))["run_id"].(string)
	return "/threads/" + thread + "/runs/" + run
}

// status of a run; "" when the server is gone.
func (c *child) status(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(c.url + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
	_, status, _ := strings.Cut(string(text), `"status":"`)
	status, _, _ = strings.Cut(status, `"`)
	return status
}

// becomes waits until runs have a status. It returns false when the server has died before.
func (c *child) becomes(t *testing.T, status string, paths ...string) bool {
	t.Helper()
	reached := false
	require.Eventually(t, func() bool {
		select {
		case <-c.exited:
			return true
		default:
		}
		for _, path := range paths {
			if c.status(t, path) != status {
				return false
			}
		}
		reached = true
		return true
	}, 2*time.Minute, 20*time.Millisecond)
	return reached
}

// let makes the second nodes go on that wait.
func let(t *testing.T, dir, do string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, do), nil, 0o600))
}

// errorOf is the error that the last values of a run show.
func (c *child) errorOf(t *testing.T, path string) string {
	t.Helper()
	return fmt.Sprint(call(t, http.MethodGet, c.url+path+"/join", ""))
}

// A run that kills its server at every start is started three times, and ends with an error. Others are not affected.
func TestRunThatKillsItsServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startChild(t, dir, "")
	killer := c.create(t, "kill")
	let(t, dir, "kill")
	deaths := 0
	for !c.becomes(t, "error", killer) {
		deaths++
		c = startChild(t, dir, "")
	}
	require.Equal(t, 3, deaths)
	require.Contains(t, c.errorOf(t, killer), "died 3 times")
	let(t, dir, "wait")
	require.True(t, c.becomes(t, "success", c.create(t, "wait")))
}

// Runs next to one that kills the server are started as often as it takes, and end well, however long their steps are.
func TestRunsBesideOneThatKillsTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startChild(t, dir, "")
	var innocent []string
	for range 5 {
		innocent = append(innocent, c.create(t, "wait"))
	}
	for range innocent {
		require.Equal(t, "wait", <-c.executes)
	}
	killer := c.create(t, "kill")
	let(t, dir, "kill")
	deaths := 0
	for !c.becomes(t, "error", killer) {
		deaths++
		c = startChild(t, dir, "")
	}
	require.LessOrEqual(t, deaths, 5)
	let(t, dir, "wait")
	require.True(t, c.becomes(t, "success", innocent...))
}

// Killing the server repeatedly, with any signal, ends no run.
func TestServersThatAreKilled(t *testing.T) {
	t.Parallel()
	for _, runs := range []int{1, 8} {
		for _, by := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			if runs == 1 && by == syscall.SIGKILL {
				continue // indistinguishable from a run that kills the server
			}
			t.Run(fmt.Sprintf("%s %d", by, runs), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				c := startChild(t, dir, "")
				var all []string
				for range runs {
					all = append(all, c.create(t, "wait"))
				}
				for range 8 {
					<-c.executes
					c.end(by)
					c = startChild(t, dir, "")
				}
				let(t, dir, "wait")
				require.True(t, c.becomes(t, "success", all...))
			})
		}
	}
}

// On Postgres the run is taken over by one instance after the other, and kills each.
func TestRunThatKillsEachInstance(t *testing.T) {
	t.Parallel()
	dir, database := t.TempDir(), migratedtest.Database(t)
	a, b := startChild(t, dir, database), startChild(t, dir, database)
	innocent := []string{a.create(t, "wait"), b.create(t, "wait")}
	killer := a.create(t, "kill")
	let(t, dir, "kill")
	deaths := 0
	for {
		select {
		case <-a.exited:
			deaths++
			a = startChild(t, dir, database)
			continue
		case <-b.exited:
			deaths++
			b = startChild(t, dir, database)
			continue
		default:
		}
		if a.status(t, killer) == "error" {
			break
		}
		time.Sleep(20 * time.Millisecond) // for one of them to die, or to say so
	}
	require.LessOrEqual(t, deaths, 5)
	require.Contains(t, b.errorOf(t, killer), "died 3 times")
	let(t, dir, "wait")
	require.True(t, a.becomes(t, "success", innocent...))
}

// crashes is how often servers are believed to have died while they executed the only run.
func crashes(t *testing.T, database string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT crashes FROM runs").Scan(&n))
	return n
}

// A server that stands still loses its runs to another one, but did not die of them.
func TestServersThatStandStill(t *testing.T) {
	t.Parallel()
	dir, database := t.TempDir(), migratedtest.Database(t)
	a := startChild(t, dir, database)
	run := a.create(t, "wait")
	<-a.executes
	b := startChild(t, dir, database)
	for range 4 {
		require.NoError(t, a.cmd.Process.Signal(syscall.SIGSTOP))
		<-b.executes
		require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
		require.Eventually(t, func() bool { return crashes(t, database) == 0 }, time.Minute, 20*time.Millisecond)
		a, b = b, a
	}
	let(t, dir, "wait")
	require.True(t, a.becomes(t, "success", run))
}

// A takeover may need a graph to describe the head of a thread, as of one that was imported. Its workers must run by then: the server would
// start a minute later for each of these threads.
func TestATakeoverFindsTheWorkersStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const conversation = "4c5d3a52-6c2c-4f0c-9d2e-000000000001"
	data, asked := filepath.Join(dir, "data"), filepath.Join(dir, "asked")
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: data})
	require.NoError(t, err)
	require.NoError(t, rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
		now := time.Now()
		err := tx.InsertThread(&thread.Thread{
			ID: conversation, CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: json.RawMessage(`{"graph_id":"a"}`), Config: json.RawMessage(`{}`),
			Status: thread.Busy, Interrupts: json.RawMessage(`{}`),
		})
		if err != nil {
			return err
		}
		return tx.PutCheckpoint(&checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
			Key:  checkpointer.Key{Thread: conversation, ID: "1f000000-0000-6000-8000-000000000001"},
			Data: json.RawMessage(`{"channel_values":{},"channel_versions":{}}`), Metadata: json.RawMessage(`{}`),
		}})
	}))
	require.NoError(t, rows.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), []byte(`{"graphs": {"a": "./a.py:graph"}}`), 0o600))
	python := filepath.Join(dir, "python")                                                          // a worker that never becomes ready
	require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\ntouch "+asked+"\nexit 1\n"), 0o700)) //nolint:gosec // it is a program
	settings, _, err := config.Load(config.Source{
		Mode: config.Serve, File: filepath.Join(dir, "langgraph.json"), Flags: map[string]string{"port": "0", "data": data, "python": python},
		Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	srv, err := New(t.Context(), Config{Settings: settings})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(asked); return err == nil }, 40*time.Second, 20*time.Millisecond)
	require.Equal(t, "idle", call(t, http.MethodGet, srv.url()+"/threads/"+conversation, "")["status"])
}

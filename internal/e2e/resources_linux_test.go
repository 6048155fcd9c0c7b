package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// disk is a file system of its own, in memory.
type disk struct {
	t   *testing.T
	dir string
}

func newDisk(t *testing.T, size string) disk {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("SKIPPED: a file system of a given size needs root: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return disk{t, dir}
}

// remount changes size and flags ("ro", "rw").
func (d disk) remount(options string, flags uintptr) {
	d.t.Helper()
	var err error
	require.Eventually(d.t, func() bool { // the kernel may close files of a killed server a moment after its end
		err = syscall.Mount("tmpfs", d.dir, "tmpfs", syscall.MS_REMOUNT|flags, options)
		return !errors.Is(err, syscall.EBUSY)
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(d.t, err)
}

// whole checks the database of a data folder that no server has.
func whole(t *testing.T, data string) {
	t.Helper()
	conn, err := sqlite.OpenConn(filepath.Join(data, "understudy.db"))
	require.NoError(t, err)
	defer conn.Close()
	text, err := sqlitex.ResultText(conn.Prep("PRAGMA integrity_check"))
	require.NoError(t, err)
	require.Equal(t, "ok", text)
}

// TestFullDisk: writes are refused with a clear answer, reads continue, acknowledged data stays, who waits for a run learns why it does not end, running runs
// end when there is room again, and the file is intact.
func TestFullDisk(t *testing.T) {
	d := newDisk(t, "6m")
	p := serve(t, d.dir, "--lease", "2s")
	thread := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	p.call("POST", "/threads/"+thread+"/runs/wait", map[string]any{"assistant_id": "echo", "input": map[string]any{"n": 1}}, 200)
	slow := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	going := field(p.call("POST", "/threads/"+slow+"/runs", map[string]any{
		"assistant_id": "ticker", "input": map[string]any{"steps": 200, "delay": 0.05, "tag": "t"}, // it lasts until its next checkpoint finds no room
	}, 200), "run_id").(string)

	// Until nothing fits any more, not even little things.
	var kept []string
	refused := 0
	for size := 200_000; refused < 3 || size > 100; {
		status, out := p.try("POST", "/threads", map[string]any{"metadata": map[string]any{"padding": padding(size)}})
		switch status {
		case 200:
			kept = append(kept, field(out, "thread_id").(string))
		case 503:
			require.Contains(t, fmt.Sprint(field(out, "detail")), "disk is full")
			refused++
			size /= 2
		default:
			t.Fatalf("status %d: %v", status, out)
		}
	}
	p.call("GET", "/threads/"+thread+"/state", nil, 200)
	require.Equal(t, 1, len(p.call("POST", "/threads/search", map[string]any{"ids": []string{thread}}, 200).([]any)))
	status, out := p.try("POST", "/threads/"+thread+"/runs/wait", map[string]any{"assistant_id": "echo", "input": map[string]any{"n": 1}})
	require.True(t, status == 503 || status == 200 && field(out, "__error__") != nil, "%d %v", status, out)

	status, out = p.try("GET", "/threads/"+slow+"/runs/"+going+"/join", nil)
	why := fmt.Sprint(field(out, "detail"), field(out, "__error__")) // it depends on when it came
	require.Contains(t, why, "its end cannot be saved: the disk is full", "%d %v", status, out)
	require.Contains(t, p.log.String(), "writing the end of a run failed; retrying")

	d.remount("size=64m", 0)
	p.eventually("writes go on", func() bool {
		status, _ := p.try("POST", "/threads", map[string]any{})
		return status == 200
	})
	p.eventually("no thread is stuck", func() bool {
		return len(p.call("POST", "/threads/search", map[string]any{"status": "busy"}, 200).([]any)) == 0
	})
	r := p.call("GET", "/threads/"+slow+"/runs/"+going, nil, 200)
	require.Contains(t, []any{"success", "error"}, field(r, "status"))
	t.Log("the run that was going ended with", field(r, "status"))
	require.NotNil(t, field(p.call("POST", "/threads/"+slow+"/runs/wait", map[string]any{"assistant_id": "ticker", "input": map[string]any{"steps": 1, "tag": "u"}}, 200), "items"))
	for _, id := range kept {
		p.call("GET", "/threads/"+id, nil, 200)
	}
	p.kill()
	whole(t, d.dir)
	p = serve(t, d.dir)
	for _, id := range kept {
		p.call("GET", "/threads/"+id, nil, 200)
	}
}

// TestFullDiskAtTheStart: a server starts on a full disk, because only a server that runs can delete.
func TestFullDiskAtTheStart(t *testing.T) {
	d := newDisk(t, "16m")
	p := serve(t, d.dir)
	thread := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	p.kill()
	rest := filepath.Join(d.dir, "rest")
	require.ErrorIs(t, os.WriteFile(rest, make([]byte, 16<<20), 0o600), syscall.ENOSPC)

	p = serve(t, d.dir)
	require.Contains(t, p.log.String(), "the disk is full: only deleting works until there is room")
	p.call("GET", "/threads/"+thread, nil, 200)
	status, out := p.try("POST", "/threads", map[string]any{})
	require.Equal(t, 503, status)
	require.Contains(t, fmt.Sprint(field(out, "detail")), "disk is full")
	p.call("DELETE", "/threads/"+thread, nil, 204)
	p.call("GET", "/threads/"+thread, nil, 404)
	require.NoError(t, os.Remove(rest))
	p.eventually("writes go on", func() bool {
		status, _ := p.try("POST", "/threads", map[string]any{})
		return status == 200
	})
}

// padding does not compress.
func padding(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + (i*7919+i/13)%26)
	}
	return string(b)
}

// TestReadOnlyDisk: a server says so at the start, and one whose disk becomes read-only serves reads.
func TestReadOnlyDisk(t *testing.T) {
	d := newDisk(t, "64m")
	p := serve(t, d.dir)
	thread := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	p.kill()
	d.remount("", syscall.MS_RDONLY)
	out, code := start(t, d.dir)
	require.Equal(t, 1, code)
	require.Contains(t, out, "mounted read-only")
	require.Contains(t, out, d.dir)
	d.remount("", 0)
	p = serve(t, d.dir)
	p.call("GET", "/threads/"+thread, nil, 200)
}

// start runs the server where it cannot start, and returns what it said and its exit code.
func start(t *testing.T, data string) (string, int) {
	t.Helper()
	py := python(t)
	bin, err := build()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "dev", "--config", "testdata/langgraph.json", "--port", "0", "--data", data, "--python", py)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	return string(out), cmd.ProcessState.ExitCode()
}

// TestDataThatCannotBeServed: each says what is wrong and what to do, and changes nothing.
func TestDataThatCannotBeServed(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(t *testing.T, file string)
		want []string
	}{
		"a newer version": {
			func(t *testing.T, file string) {
				script(t, file, "INSERT INTO schema_migrations (number, name) VALUES (900, 'later')")
			},
			[]string{"newer version", "schema 900"},
		},
		"a damaged file": {
			func(t *testing.T, file string) {
				b, err := os.ReadFile(file)
				require.NoError(t, err)
				for i := 100; i < 30_000; i++ {
					b[i] ^= 0x5a
				}
				require.NoError(t, os.WriteFile(file, b, 0o600))
			},
			[]string{"damaged", "backup --damaged"},
		},
		"no database": {
			func(t *testing.T, file string) {
				require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("text ", 5000)), 0o600))
			},
			[]string{"damaged", "backup"},
		},
		"a database of LangGraph Server": {
			func(t *testing.T, file string) {
				require.NoError(t, os.Remove(file))
				script(t, file, "CREATE TABLE assistant (assistant_id); CREATE TABLE thread (thread_id); CREATE TABLE run (run_id)")
			},
			[]string{"LangGraph Server", "import"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			p := serve(t, data)
			p.call("POST", "/threads", map[string]any{}, 200)
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, <-p.done)
			p.done <- nil
			file := filepath.Join(data, "understudy.db")
			c.harm(t, file)
			before, err := os.ReadFile(file)
			require.NoError(t, err)
			out, code := start(t, data)
			require.Equal(t, 1, code)
			for _, want := range c.want {
				require.Contains(t, out, want)
			}
			after, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, before, after, "it was changed")
		})
	}
}

func script(t *testing.T, file, text string) {
	t.Helper()
	conn, err := sqlite.OpenConn(file)
	require.NoError(t, err)
	require.NoError(t, sqlitex.ExecuteScript(conn, text, nil))
	require.NoError(t, conn.Close())
}

// TestDescriptorsRunOut: with more clients than open files allowed, clients wait, which is logged once; those that are connected are served, also when all
// workers have to be started again, and the others when there is room.
func TestDescriptorsRunOut(t *testing.T) {
	p := serveWith(t, t.TempDir(), func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `ulimit -n 120; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
		sh, err := exec.LookPath("sh")
		require.NoError(t, err)
		cmd.Path = sh
	})
	p.call("POST", "/runs/wait", map[string]any{"assistant_id": "echo", "input": map[string]any{"n": 1}}, 200)
	address := strings.TrimPrefix(p.url, "http://")
	var open []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err) // the kernel takes them
		open = append(open, c)
	}
	p.eventually("the log says it", func() bool { return strings.Contains(p.log.String(), "connections wait") })
	for _, pid := range descendants(t, p.cmd.Process.Pid) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	out := p.call("POST", "/runs/wait", map[string]any{"assistant_id": "echo", "input": map[string]any{"n": 1}}, 200) // on the connection of the first
	require.Equal(t, 2.0, field(out, "n"))
	for _, c := range open {
		c.Close()
	}
	p.eventually("it serves again", func() bool {
		status, _ := p.try("GET", "/ok", nil)
		return status == 200
	})
	p.eventually("runs too", func() bool {
		status, out := p.try("POST", "/runs/wait", map[string]any{"assistant_id": "echo", "input": map[string]any{"n": 1}})
		return status == 200 && field(out, "n") == 2.0
	})
	require.Equal(t, 1, strings.Count(p.log.String(), "connections wait"), "the log is not flooded")
	for _, shortage := range []string{"open files and connections is reached", "as many open files as it may"} { // a worker that was killed while it started says something else
		require.NotContains(t, p.log.String(), shortage)
	}
}

// TestTooFewDescriptors: with a limit on open files that is too low for the server itself, a start says so.
func TestTooFewDescriptors(t *testing.T) {
	bin, err := build()
	require.NoError(t, err)
	for _, files := range []string{"20", "40"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", "ulimit -n "+files+` && exec "$0" "$@"`, bin, "serve", "--config", "testdata/langgraph.json", "--data", t.TempDir(), "--port", "0")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
		require.Contains(t, string(out), "the limit on open files is too low: it is "+files)
		require.Contains(t, string(out), "LimitNOFILE=")
	}
}

// descendants returns the child processes of a process.
func descendants(t *testing.T, pid int) (out []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, file := range lists {
		text, _ := os.ReadFile(file) // of a thread that has ended: none
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			require.NoError(t, err)
			out = append(out, child)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// TestFullDiskOfCommands: each command that fills a disk ends with what to do, and leaves nothing half done behind.
func TestFullDiskOfCommands(t *testing.T) {
	bin, err := build()
	require.NoError(t, err)
	from := t.TempDir()
	p := serve(t, from)
	for range 4 {
		p.call("POST", "/threads", map[string]any{"metadata": map[string]any{"padding": padding(1_000_000)}}, 200)
	}
	p.call("POST", "/runs/wait", map[string]any{"assistant_id": "echo", "input": map[string]any{"n": 1}}, 200)
	p.kill()
	d := newDisk(t, "1m")
	within := filepath.Join(d.dir, "new")
	backup := filepath.Join(t.TempDir(), "backup")
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s", out)
		return string(out)
	}
	out, err := exec.CommandContext(t.Context(), bin, "backup", backup, "--data", from).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"MB, or name another folder as TARGET; nothing was changed", []string{"backup", within, "--data", from}},
		{"MB, or name another folder", []string{"restore", backup, "--data", within}},
		{"is full", []string{"import", "--from", from, "--data", within}},
	} {
		require.Contains(t, run(c.args...), c.want, c.args)
		require.NoError(t, os.RemoveAll(within))
	}
	// To the last byte.
	require.ErrorIs(t, os.WriteFile(filepath.Join(d.dir, "rest"), make([]byte, 2<<20), 0o600), syscall.ENOSPC)
	require.NoError(t, os.Mkdir(within, 0o700))
	require.Contains(t, run("init", within), "nothing was written: make room for ")
	left, err := os.ReadDir(within)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Contains(t, run("export", "--data", from, "--to", filepath.Join(within, "out.sqlite")), "full")
}

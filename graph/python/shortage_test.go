//go:build unix

package python_test

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph/python"
	"understudy/internal/logtest"
	"understudy/internal/seedtest"
)

// When a worker cannot start for lack of open files, the log says so, and the start is tried again: with each number of files that may still be opened.
func TestStartsWithoutFiles(t *testing.T) {
	const mark = "UNDERSTUDY_TEST_FEW_FILES"
	if os.Getenv(mark) == "" {
		t.Parallel() // the process of its own is alone
		interpreter(t)
		cmd := exec.Command("sh", "-c", `ulimit -n 100; exec "$0" "$@"`, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), mark+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out[max(0, len(out)-4000):]))
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	o, log := harmful(t), &logtest.Buffer{}
	o.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o)
	short := 0
	step := 3
	if seedtest.InFull() {
		step = 1
	}
	for room := 0; room < 16; room += step {
		from := len(log.String())
		var taken []*os.File
		take := func() {
			for {
				f, err := os.Open(os.DevNull)
				if errors.Is(err, syscall.EMFILE) {
					return
				}
				require.NoError(t, err)
				taken = append(taken, f)
			}
		}
		pid := p.Pids()[0]
		take()
		release := func(n int) {
			for _, f := range taken[:n] {
				require.NoError(t, f.Close())
			}
			taken = taken[n:]
		}
		release(room)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		var said string
		await(t, "a failure or a worker", func() bool {
			said = log.String()[from:]
			now := p.Pids()
			return strings.Contains(said, "no worker starts") || len(now) == 1 && now[0] != pid
		})
		if strings.Contains(said, "no worker starts") {
			short++
			require.Contains(t, said, "the limit of 100 open files and connections is reached", "with %d files", room)
			require.Contains(t, said, "LimitNOFILE=65536")
			require.NotContains(t, said, "--python")
			if room == 0 { // those of the old worker are free too
				take()
				await(t, "a start without a single file", func() bool { return strings.Contains(log.String()[from:], "socket for a worker") })
				for line := range strings.Lines(log.String()[from:]) {
					if strings.Contains(line, "socket for a worker") {
						require.NotContains(t, line, "a worker died", "there was no process")
					}
				}
			}
		}
		release(len(taken))
		well(t, p)
	}
	require.Greater(t, short, 4/step)
}

// What a start lacks is known from errors of the system and from the last line that the interpreter wrote.
func TestShortage(t *testing.T) {
	t.Parallel()
	for fix, errs := range map[string][]error{
		"LimitNOFILE=": {os.NewSyscallError("socketpair", syscall.EMFILE)},
		"fs.file-max":  {os.NewSyscallError("pipe2", syscall.ENFILE)},
		"TasksMax=":    {&os.PathError{Op: "fork/exec", Path: "python", Err: syscall.EAGAIN}},
		"more memory":  {&os.PathError{Op: "fork/exec", Path: "python", Err: syscall.ENOMEM}},
		"":             {nil, syscall.ENOENT, syscall.EACCES, syscall.ENOEXEC},
	} {
		for _, err := range errs {
			why, got := python.Shortage(err, "", nil)
			require.Equal(t, fix == "", why == "", "%v", err)
			require.Contains(t, got, fix)
		}
	}
	for line, fix := range map[string]string{
		"OSError: [Errno 24] Too many open files: 'x.py'":                                     "LimitNOFILE=",
		"ImportError: libssl.so.3: cannot open shared object file: Error 24":                  "LimitNOFILE=",
		"ImportError: libssl.so.3: cannot open shared object file: Too many open files":       "LimitNOFILE=",
		"RuntimeError: can't start new thread":                                                "TasksMax=",
		"MemoryError":                                                                         "more memory",
		"ImportError: x.so: failed to map segment from shared object: Cannot allocate memory": "more memory",
		"ModuleNotFoundError: No module named 'langgraph'":                                    "",
	} {
		why, got := python.Shortage(errors.New("exit status 1"), "Traceback\n"+line+"\n", nil)
		require.Equal(t, fix == "", why == "", line)
		require.Contains(t, got, fix)
	}
}

// Variables that the system does not pass to a program are counted, and the largest is named: without its value, which may be a key.
func TestVariablesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	env := []string{"A=1", "KEY=" + strings.Repeat("s", 300_000), "B=22"}
	cmd := exec.Command("true")
	cmd.Env = env
	why, fix := python.Shortage(cmd.Run(), "", env)
	require.Equal(t, "the 3 variables of a worker have 300014 bytes, KEY the most with 300000; that is more than the system passes to a program", why)
	require.Contains(t, fix, "move large values out of env")
}

// script returns the path of a shell script that is given as --python.
func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o700)) //nolint:gosec // it is run
	return file
}

// A program that prints without end when it is tried is not a Python interpreter, and only the beginning of its output is kept.
func TestProbeOfAProgramThatPrintsWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"fails as a worker":          `[ -n "$UNDERSTUDY_WORKER" ] && exit 1; exec yes`,
		"fails, and ignores SIGPIPE": `[ -n "$UNDERSTUDY_WORKER" ] && exit 1; trap "" PIPE; yes; while :; do :; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, log := script(t, text), &logtest.Buffer{}
			p := run(t, python.Options{
				Python: file, Dir: t.TempDir(), Graphs: map[string]python.Spec{"g": {Path: "./g.py:graph"}}, Workers: 1, Env: os.Environ(),
				Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
			began := time.Now()
			require.ErrorContains(t, p.Ready(t.Context()), file+" is not a Python interpreter: it prints more than 64 KiB")
			require.Less(t, time.Since(began), 8*time.Second, "it is not waited for")
			var why *python.StartError
			require.ErrorAs(t, p.Never(time.Hour), &why)
			require.True(t, why.Hopeless)
		})
	}
	const most = python.MaxProbe
	for _, sizes := range [][]int{{10}, {most}, {most / 2, most / 2}, {most / 2, most/2 + 1}, {most, 1}, {4 * most}, {1, most, 1}} {
		written := 0
		for _, n := range sizes {
			written += n
		}
		kept, more := python.Head(sizes...)
		require.Equal(t, min(written, most), kept, "%v", sizes)
		require.Equal(t, written > most, more, "%v", sizes)
	}
}

// When a program starts, but neither runs the worker's code nor ends, the log soon says so, and what to do.
func TestProgramsThatHang(t *testing.T) {
	t.Parallel()
	file, log := script(t, "exec sleep 3600"), &logtest.Buffer{}
	p := run(t, python.Options{
		Python: file, Dir: t.TempDir(), Graphs: map[string]python.Spec{"g": {Path: "./g.py:graph"}}, Workers: 2, Env: os.Environ(),
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	}, func(p *python.Pool) { p.SetSlowStart(100 * time.Millisecond); p.SetStartWithin(3 * time.Second) })
	await(t, "the log", func() bool { return strings.Contains(log.String(), "does not run the worker's code yet") })
	require.Contains(t, log.String(), file)
	require.Contains(t, log.String(), "name another one with --python")
	require.ErrorContains(t, p.Ready(t.Context()), "it was not ready after 3s")
	require.Equal(t, 1, strings.Count(log.String(), "does not run the worker's code yet"), "once")
}

// An interpreter that takes long to import langgraph does not hang: nothing is logged that questions it, however long it takes.
func TestSlowImportOfLanggraph(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	end := filepath.Join(dir, "go")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.py"), []byte("import os, time\nwhile not os.path.exists("+strconv.Quote(end)+"):\n    time.sleep(0.01)\nraise ImportError('now')\n"), 0o600))
	o, log := harmful(t), &logtest.Buffer{}
	o.Env, o.Workers, o.Logger = append(o.Env, "PYTHONPATH="+dir), 1, slog.New(slog.NewTextHandler(log, nil))
	p := run(t, o, func(p *python.Pool) { p.SetSlowStart(time.Hour); p.SetStartWithin(3 * time.Hour) })
	await(t, "the worker's code", func() bool { begun, _ := p.Begun(); return begun })
	_, spoke := p.Begun()
	require.False(t, spoke)
	p.Tick(time.Now().Add(2 * time.Hour))
	require.NotContains(t, log.String(), "does not run the worker's code")
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	await(t, "the failure", func() bool { return strings.Contains(log.String(), "ImportError: now") })
	require.NotContains(t, log.String(), "Traceback", "what is written before langgraph is imported belongs to the failure")
}

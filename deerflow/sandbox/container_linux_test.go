package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// engine is a container engine that is a shell script: it logs its calls, and executes commands in the folder that is mounted as workspace.
const engine = `#!/bin/bash
state=$(dirname "$0")/state; mkdir -p "$state"
echo "$@" >> "$state/calls"
case $1 in
version) [ ! -e "$state/down" ] || { echo "Cannot connect to the daemon" >&2; exit 1; } ;;
ps) cat "$state/old" 2>/dev/null || true ;;
run)
  [ ! -e "$state/broken" ] || { echo "no such image" >&2; exit 125; }
  while [ $# -gt 0 ]; do
    case $1 in
    --name) name=$2; shift ;;
    --volume) case $2 in *:/mnt/user-data) data=${2%%:*} ;; esac; shift ;;
    esac
    shift
  done
  echo "$data" > "$state/box-$name"; echo id-$name ;;
exec)
  shift
  while [ "${1#--}" != "$1" ]; do [ "$1" = --env ] && export "$2"; shift 2; done
  data=$(cat "$state/box-$1") || exit 125
  cd "$data/workspace" && exec bash -c "$4" ;;
inspect) [ ! -e "$state/box-$4" ] || echo true ;;
rm) shift 2; for name in "$@"; do rm -f "$state/box-$name"; done ;;
esac
`

type enginery struct {
	dir, state string
	l          *Local
}

func withEngine(t *testing.T, o ContainerOptions, prepare func(state string)) *enginery {
	t.Helper()
	e := &enginery{dir: t.TempDir()}
	e.state = filepath.Join(e.dir, "state")
	require.NoError(t, os.MkdirAll(e.state, 0o755))
	program := filepath.Join(e.dir, "docker")
	require.NoError(t, os.WriteFile(program, []byte(engine), 0o700))
	if prepare != nil {
		prepare(e.state)
	}
	o.Engines, o.Home = []string{filepath.Join(e.dir, "none"), program}, e.dir
	e.l = NewLocal(Options{Container: &o, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(e.l.Close)
	return e
}

func (e *enginery) open(t *testing.T, name string) *Thread {
	t.Helper()
	skills := filepath.Join(e.dir, "skills")
	require.NoError(t, os.MkdirAll(skills, 0o755))
	thread, err := e.l.Open(Place{ID: "local:u:" + name, Dir: filepath.Join(e.dir, name), Mounts: []Mount{{Virtual: "/mnt/skills", Host: skills}}})
	require.NoError(t, err)
	t.Cleanup(thread.Close)
	return thread
}

func (e *enginery) calls(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.state, "calls"))
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func (e *enginery) boxes(t *testing.T) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(e.state, "box-*"))
	require.NoError(t, err)
	return len(list)
}

// A thread has a container of its own, without rights, in which its commands run; files are those of the other tools.
func TestContainer(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{Image: "img", Memory: "2g"}, func(state string) {
		require.NoError(t, os.WriteFile(filepath.Join(state, "old"), []byte("a\nb\n"), 0o600))
	})
	require.Equal(t, "container", e.l.Mode())
	a, b := e.open(t, "a"), e.open(t, "b")
	require.NoError(t, a.Write(Workspace+"/f", "text of a", false))
	out, err := a.Run(t.Context(), Command{Text: "cat f; cat ../../../b/x; echo $NAME; exit 3", Env: []string{"NAME=value"}})
	require.NoError(t, err)
	require.Contains(t, out, "text of a")
	require.Contains(t, out, "value")
	require.Contains(t, out, "Exit Code: 3")
	_, err = b.Run(t.Context(), Command{Text: "echo hi > f"})
	require.NoError(t, err)
	_, err = a.Run(t.Context(), Command{Text: "true"})
	require.NoError(t, err)
	calls := e.calls(t)
	require.Equal(t, "rm --force a b", calls[2], "containers of an earlier server")
	var starts []string
	for _, c := range calls {
		if strings.HasPrefix(c, "run ") {
			starts = append(starts, c)
		}
	}
	require.Len(t, starts, 2)
	for _, part := range []string{"--network none", "--memory 2g", "--pids-limit 256", "--cap-drop ALL", "no-new-privileges", fmt.Sprintf("--user %d:", os.Getuid()), "/user-data:/mnt/user-data ", "/skills:/mnt/skills:ro", " img sleep infinity"} {
		require.Contains(t, starts[0], part)
	}
	e.l.Close()
	require.Zero(t, e.boxes(t))
	_, err = a.Run(t.Context(), Command{Text: "true"})
	require.ErrorContains(t, err, "closed")
}

// A command that is cut off ends with its container, in which it would go its own way; the next one gets a new container.
func TestContainerOfACutCommand(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{}, nil)
	a := e.open(t, "a")
	out, err := a.Run(t.Context(), Command{Text: "sleep 60", Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	require.Contains(t, out, "it ran too long")
	require.Zero(t, e.boxes(t))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for e.boxes(t) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err = a.Run(ctx, Command{Text: "sleep 60"})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, e.boxes(t))
	out, err = a.Run(t.Context(), Command{Text: "yes | head -c 3000000"})
	require.NoError(t, err)
	require.Less(t, len(out), 25_000)
	require.Equal(t, 1, e.boxes(t))
}

// Containers are kept for a while, and not too many.
func TestIdleContainers(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{Most: 2}, nil)
	for _, name := range []string{"a", "b", "a", "c", "d"} {
		_, err := e.open(t, name).Run(t.Context(), Command{Text: "true"})
		require.NoError(t, err)
		require.LessOrEqual(t, e.boxes(t), 2)
	}
	e = withEngine(t, ContainerOptions{Idle: time.Millisecond}, nil)
	_, err := e.open(t, "a").Run(t.Context(), Command{Text: "true"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return e.boxes(t) == 0 }, 10*time.Second, time.Millisecond)
}

// Without containers commands are refused, never executed on this machine.
func TestNoContainers(t *testing.T) {
	t.Parallel()
	down := func(state string) { require.NoError(t, os.WriteFile(filepath.Join(state, "down"), nil, 0o600)) }
	e := withEngine(t, ContainerOptions{}, down)
	_, err := e.open(t, "a").Run(t.Context(), Command{Text: "touch /mnt/user-data/workspace/ran"})
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, "install docker or podman")
	require.NoFileExists(t, filepath.Join(e.dir, "a/user-data/workspace/ran"))
	broken := func(state string) { require.NoError(t, os.WriteFile(filepath.Join(state, "broken"), nil, 0o600)) }
	e = withEngine(t, ContainerOptions{}, broken)
	_, err = e.open(t, "a").Run(t.Context(), Command{Text: "true"})
	require.ErrorContains(t, err, "no such image")
	l := NewLocal(Options{Refuse: "because"})
	defer l.Close()
	thread, err := l.Open(Place{ID: "x", Dir: t.TempDir()})
	require.NoError(t, err)
	defer thread.Close()
	_, err = thread.Run(t.Context(), Command{Text: "true"})
	require.ErrorContains(t, err, "because")
}

// A container that ended, by a command or with its engine, is replaced.
func TestContainerThatEnded(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{}, nil)
	a := e.open(t, "a")
	run := func(command string) string {
		out, err := a.Run(t.Context(), Command{Text: command})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, "Exit Code: 3", run("exit 3"))
	require.Equal(t, 1, e.boxes(t))
	require.Contains(t, run("rm -f "+e.state+"/box-*; exit 137"), "Exit Code: 137\nThe container has ended")
	require.Equal(t, "hi\n", run("echo hi"))
	boxes, err := filepath.Glob(filepath.Join(e.state, "box-*"))
	require.NoError(t, err)
	require.Len(t, boxes, 1)
	require.NoError(t, os.Remove(boxes[0])) // between two commands
	require.Equal(t, "hi\n", run("echo hi"))
}

// With a real engine: what a command reaches, and what remains after those that attack their container. It needs an engine and an image with bash.
func TestRealEngine(t *testing.T) {
	t.Parallel()
	program, image := os.Getenv("UNDERSTUDY_TEST_ENGINE"), os.Getenv("UNDERSTUDY_TEST_IMAGE")
	if program == "" || image == "" {
		t.Skip("set UNDERSTUDY_TEST_ENGINE to docker or podman, and UNDERSTUDY_TEST_IMAGE to an image with bash")
	}
	e := &enginery{dir: t.TempDir()}
	e.l = NewLocal(Options{Container: &ContainerOptions{Engines: []string{program}, Home: e.dir, Image: image, Memory: "128m"}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(e.l.Close)
	require.Equal(t, "container", e.l.Mode())
	a, b := e.open(t, "a"), e.open(t, "b")
	run := func(th *Thread, command string) string {
		out, err := th.Run(t.Context(), Command{Text: command, Timeout: 20 * time.Second})
		require.NoError(t, err, command)
		return out
	}
	require.NoError(t, a.Write(Workspace+"/f", "text of a\n", false))
	require.NoError(t, b.Write(Workspace+"/of-b", "x", false))
	for command, want := range map[string]string{
		"cat f; pwd; echo $HOME": "text of a\n" + Workspace + "\n" + Workspace + "\n",
		"id -u":                  fmt.Sprintf("%d\n", os.Getuid()),
		"while read k v; do case $k in CapEff:|CapBnd:|NoNewPrivs:) echo $v;; esac; done </proc/self/status": "0000000000000000\n0000000000000000\n1\n",
		"touch /mnt/skills/x 2>/dev/null || echo refused":                                                    "refused\n",
		"touch /etc/x 2>/dev/null; [ -e /etc/x ] && echo own":                                                "own\n", // the container's, without which it would be of no use
		"ls ../..": "skills\nuser-data\n",
		"while read i x; do echo $i; done </proc/net/dev | cat -": "Inter-|\nface\nlo:\n",
		"(exec 3<>/dev/tcp/127.0.0.1/22) 2>/dev/null || echo no":  "no\n",
		"exit 7": "Exit Code: 7",
	} {
		require.Equal(t, want, run(a, command), command)
	}
	// What ends a container does not end the thread's commands: the next one has a new container.
	for _, command := range []string{
		"kill -9 -1", "kill -9 1; kill -TERM -1", "x=x; while :; do x=$x$x; done", // memory
		"f() { f | f & f; }; f", // processes; it ends by its time
	} {
		_, err := a.Run(t.Context(), Command{Text: command, Timeout: 10 * time.Second})
		if err != nil {
			t.Log(command, err)
		}
		require.Equal(t, "text of a\n", run(a, "cat f"), "after %s", command)
		require.Equal(t, "of-b\n", run(b, "ls"), "after %s", command)
	}
}

package gate

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/child"
	"understudy/internal/logtest"
)

// blockers is an application with routes that block the event loop, and handlers of auth that do not.
const blockers = `import re
import time

from langgraph_sdk import Auth
from starlette.applications import Starlette
from starlette.routing import Route

auth = Auth()


@auth.authenticate
async def authenticate(authorization):
    return "ann"


async def sleep(request):
    time.sleep(60)  # sleep


async def hold(request):
    re.match(r"(a+)+$", "a" * 60 + "b")  # hold


app = Starlette(routes=[Route("/sleep", sleep), Route("/hold", hold)])
`

// Code of an application that blocks the event loop is logged with its place, and the handlers of auth that wait behind it are not blamed.
func TestRouteThatBlocksTheLoop(t *testing.T) {
	t.Parallel()
	for path, at := range map[string]string{"/sleep": "mine.py:17", "/hold": "mine.py:21"} {
		t.Run(path[1:], func(t *testing.T) {
			t.Parallel()
			if path == "/hold" && runtime.GOOS != "linux" {
				t.Skip("the place of code that holds the lock is known on Linux only")
			}
			log := &logtest.Buffer{}
			o := options(t)
			o.Dir = t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "mine.py"), []byte(blockers), 0o600))
			o.Auth, o.App, o.Paths = "./mine.py:auth", "./mine.py:app", nil
			o.Logger = slog.New(slog.NewJSONHandler(log, nil))
			g := start(t, o, func(g *Gate) { g.slowAnswer, g.silence = 100*time.Millisecond, 8*time.Second })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if res, err := g.Serve(ctx, request(http.MethodGet, path)); err == nil {
					res.Body.Close()
				}
			}()
			require.Eventually(t, func() bool { return strings.Contains(log.String(), textBlocked) }, time.Minute, 10*time.Millisecond)
			_, err := g.Authenticate(ctx, bearer("ann"))
			require.Error(t, err, "the process has to be replaced")
			text := log.String()
			require.Contains(t, text, textBlocked)
			require.Contains(t, text, `"at":"`+at+`"`)
			require.NotContains(t, text, `"handler":`)
			require.Equal(t, 1, strings.Count(text, textBlocked))
			cancel()
			<-ended
		})
	}
}

// That a process gets no processor time is looked at again while it does not answer: something else may hold it up, or have done so from the beginning.
func TestStarvedProcessIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("what holds a process up is known on Linux only")
	}
	python := exec.Command("sleep", "600")
	require.NoError(t, python.Start())
	defer func() {
		_ = python.Process.Kill()
		_ = python.Wait()
	}()
	require.NoError(t, exec.Command("kill", "-STOP", strconv.Itoa(python.Process.Pid)).Run())
	g := New(Options{})
	p := &process{gate: g, pid: python.Process.Pid}
	quiet := time.Duration(0)
	look := func() {
		log := &logtest.Buffer{}
		g.opts.Logger, g.hanging.logged = slog.New(slog.NewJSONHandler(log, nil)), nil
		for range 20 {
			quiet += g.pingEvery
			p.probe(quiet)
		}
		require.Contains(t, log.String(), "is stopped")
	}
	require.Eventually(t, func() bool { return stateOf(t, p.pid) == 'T' }, time.Minute, time.Millisecond)
	look()
	p.found(child.Starved, nil, quiet)
	require.True(t, p.isHeldUp())
	look()
	require.Zero(t, p.holdup.since)
}

// stateOf is the state of a process: T when it is stopped.
func stateOf(t *testing.T, pid int) byte {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	require.NoError(t, err)
	return text[strings.LastIndexByte(string(text), ')')+2]
}

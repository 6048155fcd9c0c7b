package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logs"
)

// console lines with the clock cut off.
func consoleLines(t *testing.T, p palette, level slog.Level, write func(*slog.Logger)) []string {
	t.Helper()
	var out bytes.Buffer
	c := newConsole(&out, level)
	c.out.palette = p
	c.out.own = func(file string) bool { return strings.HasPrefix(file, "/app/") }
	c.out.short = func(file string) string { return strings.TrimPrefix(file, "/app/") }
	write(slog.New(c))
	var lines []string
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > 8 && line[2] == ':' && line[5] == ':' {
			line = line[9:]
		}
		lines = append(lines, line)
	}
	return lines
}

func TestConsoleOutputOfRuns(t *testing.T) {
	t.Parallel()
	say := func(log *slog.Logger, run, source, text string, level slog.Level) {
		attrs := []any{"line", text, "source", source, "pid", 7}
		if run != "" {
			attrs = append(attrs, "run_id", run, "thread_id", "t")
		}
		log.Log(t.Context(), level, "graph output", attrs...)
	}
	lines := consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
		say(log, "r1", "stdout", "one", slog.LevelInfo)
		say(log, "r1", "stderr", "two\nand three", slog.LevelWarn)
		say(log, "r2", "mine", "careful", slog.LevelWarn)
		say(log, "r1", "stdout", "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jend", slog.LevelInfo)
		say(log, "", "stdout", "of no run", slog.LevelInfo)
		log.Info("run ended", "graph", "g", "run_id", "r1", "outcome", "success", "duration_ms", 1234.5)
	})
	require.Equal(t, []string{
		"run r1", "         │ one", "         │ two", "         │ and three",
		"run r2", "         │ WARN  mine: careful",
		"run r1", "         │ red end",
		"worker 7", "         │ of no run",
		"✓ run r1 of g: success after 1.2s",
	}, lines)
	lines = consoleLines(t, true, slog.LevelInfo, func(log *slog.Logger) { say(log, "r", "stdout", "\x1b[31mred\x1b[2J", slog.LevelInfo) })
	require.Contains(t, lines[1], "\x1b[31mred\x1b[0m", "colors stay, other escapes do not")
}

func TestConsoleInterrupts(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"‖ run r of g: interrupted after 1s; it waits for an answer", "‖ run r of g: interrupted after 1s; it has no thread, so it cannot be resumed",
	}, consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
		for _, stateless := range []bool{false, true} {
			log.Info("run ended", "graph", "g", "run_id", "r", "outcome", "interrupted", "stateless", stateless, "duration_ms", 1000.0)
		}
	}))
}

func TestConsoleAttempts(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"- run r of g: worker died after 1s; it continues in another attempt", "✗ run r of g: worker died after 1s", "- run r of g: dropped after 1s; it is not this server's any more, or its end cannot be stored now"},
		consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
			for _, message := range []string{logs.AttemptEnded, "run ended"} {
				log.Info(message, "graph", "g", "run_id", "r", "attempt", 1, "outcome", "worker died", "duration_ms", 1000.0)
			}
			log.Info(logs.AttemptDropped, "graph", "g", "run_id", "r", "attempt", 1, "outcome", "dropped", "duration_ms", 1000.0)
		}))
}

func TestConsoleRequests(t *testing.T) {
	t.Parallel()
	lines := consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
		for _, attrs := range [][]any{
			{"route", "/threads/{thread_id}/runs/stream", "status", 200, "duration_ms", 53.2, "path", "/threads/1/runs/stream", "ended", "done"},
			{"route", "/threads/{thread_id}/runs/stream", "status", 200, "duration_ms", 0.05, "ended", "client left"},
			{"route", "other", "status", 404, "duration_ms", 61_000.0, "path", "/no\x1b[31mwhere", "reason", "Not Found"},
			{"route", "/threads", "status", 500, "duration_ms", 999.0, "reason", "Internal Server Error"},
		} {
			log.Info("request", append([]any{"request_id", "q", "method", "POST"}, attrs...)...)
		}
	})
	require.Equal(t, []string{
		"POST /threads/…/runs/stream 200 53ms",
		"POST /threads/…/runs/stream 200 100µs (client left)",
		"POST /nowhere 404 1m1s  Not Found",
		"POST /threads 500 999ms  Internal Server Error  request_id=q",
	}, lines)
}

const chained = `Traceback (most recent call last):
  File "/app/lib/data.py", line 3, in read
    return {}["x"]
           ~~^^^^^
KeyError: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/langgraph/pregel/main.py", line 9, in run
    go()
  File "/app/agent.py", line 12, in node
    raise ValueError("two\nlines")
ValueError: two
lines
During task with name 'write' and id '1f'
`

func TestConsoleTracebacks(t *testing.T) {
	t.Parallel()
	raised := func(detail string) func(*slog.Logger) {
		return func(log *slog.Logger) {
			log.Warn("graph raised", "run_id", "r", "error", "E: masked", "traceback", detail)
		}
	}
	require.Equal(t, []string{
		"✗ run r, node write: ValueError: two",
		"           lines",
		"           agent.py:12 in node",
		`               raise ValueError("two")`,
		"           caused by KeyError: 'x'",
		"           lib/data.py:3 in read",
		`               return {}["x"]`,
		"           1 frames of libraries left out; --log-level debug shows them",
	}, consoleLines(t, false, slog.LevelInfo, raised(strings.Replace(chained, "two\\nlines", "two", 1)))[:8])
	full := strings.Join(consoleLines(t, false, slog.LevelDebug, raised(chained)), "\n")
	require.Contains(t, full, "agent.py:12 in node")
	require.Contains(t, full, "site-packages/langgraph/pregel/main.py")
	fixed := consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
		log.Warn("graph raised", "run_id", "r", "error", "E: masked", "traceback", chained, "fix", "do this")
	})
	require.Equal(t, "           fix do this", fixed[len(fixed)-1])
	// Without a frame of the user's the one that raised is shown, and a next step; with debug all, and what is no traceback too.
	foreign := strings.ReplaceAll(chained, "/app/", "/venv/lib/python3.12/site-packages/pkg/")
	require.Equal(t, []string{
		"           raised by pkg/agent.py:12",
		"           caused by KeyError: 'x'",
		"           3 frames of libraries left out; --log-level debug shows them",
		"           fix no frame is in your files: see what the node returns or passes on, the reducers of the state, and the names of edges",
	}, consoleLines(t, false, slog.LevelInfo, raised(foreign))[2:])
	// The frames of a worker that does not start are the server's own: what the graph returns is not the cause.
	unstarted := consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
		log.Warn("graph raised", "run_id", "r", "error", "WorkerStartError: No worker process can be started: E: no langgraph", "traceback", foreign, "fix", "install it")
	})
	require.Equal(t, []string{"✗ run r, node write: WorkerStartError: No worker process can be started: E: no langgraph", "           fix install it"}, unstarted)
	text := strings.Join(consoleLines(t, false, slog.LevelDebug, raised(foreign)), "\n")
	require.Contains(t, text, "/site-packages/pkg/agent.py")
	require.NotContains(t, text, "left out")
	require.Contains(t, strings.Join(consoleLines(t, false, slog.LevelInfo, raised("no traceback")), "\n"), "no traceback")
}

// What a graph in Go raised is shown once: the error in one line, and below it the stack of a panic.
func TestConsoleErrorsOfGo(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"✗ run r: RuntimeError: it broke"}, consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
		log.Warn("graph raised", "run_id", "r", "error", "RuntimeError: it broke")
	}))
	require.Equal(t, []string{"✗ run r: PanicError: boom (node a)", "           goroutine 1 [running]:", "           main.f()", "               /app/main.go:3 +0x1"},
		consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
			log.Warn("graph raised", "run_id", "r", "error", "PanicError: boom (node a)", "traceback", "goroutine 1 [running]:\nmain.f()\n\t/app/main.go:3 +0x1")
		}))
}

// Whatever a traceback holds, the console shows its error, and no control character.
func FuzzConsoleTraceback(f *testing.F) {
	f.Add(chained)
	f.Add("  + Exception Group Traceback (most recent call last):\n  |   File \"/app/a.py\", line 1, in f\n  | ExceptionGroup: x (1 sub-exception)\n  +-+---- 1 ----\n    | ValueError: y\n")
	f.Add("\x1b[31m\x00File \"\", line 1, in ")
	f.Fuzz(func(t *testing.T, detail string) {
		lines := consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) { log.Warn("graph raised", "run_id", "r", "error", "E", "traceback", detail) })
		for _, line := range lines {
			for _, r := range line {
				if r < ' ' && r != '\t' || r == 0x7f {
					t.Fatalf("%q", line)
				}
			}
		}
	})
}

func TestConsoleBlocks(t *testing.T) {
	t.Parallel()
	lines := consoleLines(t, false, slog.LevelInfo, func(log *slog.Logger) {
		log.Error("it fails", "reason", "a\nb", "fix", "do it")
		log.Info("plain", "request_id", "hidden", "duration_ms", 5.0, "text", "two words", "path", "/a/b")
		log.Warn("shown", "request_id", "q")
	})
	require.Equal(t, []string{
		"ERROR it fails", "    reason       a", "                 b", "    fix          do it",
		`plain took=5ms text="two words" path=/a/b`, "WARN  shown request_id=q",
	}, lines)
}

func TestColors(t *testing.T) {
	for _, c := range []struct {
		no, force string
		want      palette
	}{{"", "", false}, {"", "1", true}, {"1", "1", false}, {"", "0", false}} {
		t.Setenv("NO_COLOR", c.no)
		t.Setenv("FORCE_COLOR", c.force)
		require.Equal(t, c.want, colorsOf(&bytes.Buffer{}))
	}
	require.Equal(t, "1m0s", humanTime(time.Minute))
}

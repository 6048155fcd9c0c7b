package python

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A longer line of output is cut.
const maxLine = 32 << 10

// Limits of a worker's output in the log: a graph that prints endlessly must not fill the log or use up the server's time. The rest is
// read and counted.
const (
	linesASecond, linesAtOnce = 1000, 10_000
	bytesASecond, bytesAtOnce = 1 << 20, 8 << 20
)

// pipe logs the lines of r, and keeps the last ones to report why a worker died. It reads without delay, so that a printing graph
// never waits for the log: beyond the limits it skips whole buffers at once.
func (w *worker) pipe(r io.Reader, name string, keep bool) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if report, ok := bytes.CutPrefix(line, blockedMark); ok && keep {
			w.pool.blocked(w.pid, report)
		} else if len(line) > 0 {
			if keep {
				w.tail.add(line)
			}
			if now := time.Now(); w.said.lets(now, len(line)) {
				if text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "?"); text != "" {
					w.print(logLine{level: 20, source: name, text: text})
				}
			} else {
				rest, _ := lines.Peek(lines.Buffered())
				rest = rest[:bytes.LastIndexByte(rest, '\n')+1]
				if keep {
					w.tail.add(rest)
				}
				w.said.leaveOut(now, 1+bytes.Count(rest, []byte{'\n'}), len(line)+len(rest))
				_, _ = lines.Discard(len(rest)) // it is buffered
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// maxHeld is how many lines are kept of what a worker writes before its own code runs.
const maxHeld = 1000

// print logs a line that the worker wrote. Until its own code runs, lines are held: if it never does, they are the details of a failure that is logged in one
// piece.
func (w *worker) print(line logLine) {
	w.mu.Lock()
	hold := !w.spoke
	if hold && len(w.held) < maxHeld {
		w.held = append(w.held, line)
	}
	w.mu.Unlock()
	if !hold {
		w.pool.line(w.pid, line)
	}
}

// speaks is called when the worker's own code runs.
func (w *worker) speaks() {
	w.mu.Lock()
	held := w.held
	w.spoke, w.held = true, nil
	w.mu.Unlock()
	for _, line := range held {
		w.pool.line(w.pid, line)
	}
}

func (w *worker) hasSpoken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spoke
}

// confess logs, as details, what a worker wrote whose own code never ran.
func (w *worker) confess() {
	w.mu.Lock()
	held := w.held
	w.held = nil
	w.mu.Unlock()
	for _, line := range held {
		line.level = 10
		w.pool.line(w.pid, line)
	}
}

// report logs how much was skipped once output slows down; with the zero time at once.
func (w *worker) report(now time.Time) {
	if lines, bytes := w.said.left(now); lines > 0 {
		w.pool.opts.Logger.Warn("graph output was left out of the log: it came too fast", "pid", w.pid, "lines", lines, "bytes", bytes)
	}
}

// valve limits lines and bytes over time.
type valve struct {
	lines, bytes *rate.Limiter

	mu           sync.Mutex
	shutAt       time.Time // time of the last skip
	nLines, size int       // skipped since the last report
}

func newValve() *valve {
	return &valve{lines: rate.NewLimiter(linesASecond, linesAtOnce), bytes: rate.NewLimiter(bytesASecond, bytesAtOnce)}
}

// lets reports whether a line of n bytes may pass.
func (v *valve) lets(now time.Time, n int) bool {
	return v.lines.AllowN(now, 1) && v.bytes.AllowN(now, n)
}

// leaveOut counts skipped output.
func (v *valve) leaveOut(now time.Time, lines, bytes int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shutAt = now
	v.nLines += lines
	v.size += bytes
}

// left returns how much was skipped since the last call; nothing while output is still being skipped, for half a minute at most.
func (v *valve) left(now time.Time) (lines, bytes int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !now.IsZero() && now.Sub(v.shutAt) < time.Second && v.nLines < 30*100*linesASecond {
		return 0, 0
	}
	lines, bytes = v.nLines, v.size
	v.nLines, v.size = 0, 0
	return lines, bytes
}

// maxTail is how much of a worker's last output is kept.
const maxTail = 8 << 10

// tail keeps the end of a text.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, line...)
	if len(t.text) > 2*maxTail { // not at every line
		t.text = append(t.text[:0], t.text[len(t.text)-maxTail:]...)
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.text[max(0, len(t.text)-maxTail):])), "?")
}

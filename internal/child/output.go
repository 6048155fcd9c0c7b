package child

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

// maxLine is the longest line of output; a longer one is cut.
const maxLine = 32 << 10

// Limits of a process's output in the log: code that prints endlessly must not fill the log or use up the server's time. The rest is
// read and counted.
const (
	linesASecond, linesAtOnce = 1000, 10_000
	bytesASecond, bytesAtOnce = 1 << 20, 8 << 20
)

// Lines reads the lines of a pipe until it ends. It reads without delay, so that a printing process never waits for the log: beyond the limits of
// valve it skips whole buffers at once. keep, if not nil, gets the end of everything. take is called for each line before all that, and reports
// whether it has taken it; nil takes none.
func Lines(r io.Reader, valve *Valve, keep *Tail, take func(line []byte) bool, print func(text string)) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 && (take == nil || !take(line)) {
			if keep != nil {
				keep.add(line)
			}
			if now := time.Now(); valve.Lets(now, len(line)) {
				if text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "?"); text != "" {
					print(text)
				}
			} else {
				rest, _ := lines.Peek(lines.Buffered())
				rest = rest[:bytes.LastIndexByte(rest, '\n')+1]
				if keep != nil {
					keep.add(rest)
				}
				valve.LeaveOut(now, 1+bytes.Count(rest, []byte{'\n'}), len(line)+len(rest))
				_, _ = lines.Discard(len(rest)) // it is buffered
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// Valve limits lines and bytes over time. Its methods are safe for concurrent use.
type Valve struct {
	lines, bytes *rate.Limiter

	mu           sync.Mutex
	shutAt       time.Time // time of the last skip
	nLines, size int       // skipped since the last report
}

// NewValve returns a valve for the output of one process.
func NewValve() *Valve {
	return &Valve{lines: rate.NewLimiter(linesASecond, linesAtOnce), bytes: rate.NewLimiter(bytesASecond, bytesAtOnce)}
}

// Lets reports whether a line of n bytes may pass.
func (v *Valve) Lets(now time.Time, n int) bool {
	return v.lines.AllowN(now, 1) && v.bytes.AllowN(now, n)
}

// LeaveOut counts skipped output.
func (v *Valve) LeaveOut(now time.Time, lines, bytes int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shutAt = now
	v.nLines += lines
	v.size += bytes
}

// Left returns how much was skipped since the last call; nothing while output is still being skipped, for half a minute at most. With the zero time it
// returns all.
func (v *Valve) Left(now time.Time) (lines, bytes int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !now.IsZero() && now.Sub(v.shutAt) < time.Second && v.nLines < 30*100*linesASecond {
		return 0, 0
	}
	lines, bytes = v.nLines, v.size
	v.nLines, v.size = 0, 0
	return lines, bytes
}

// maxTail is how much of the last output is kept.
const maxTail = 8 << 10

// Tail keeps the end of a text. The zero value is empty.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *Tail) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, line...)
	if len(t.text) > 2*maxTail { // not at every line
		t.text = append(t.text[:0], t.text[len(t.text)-maxTail:]...)
	}
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.text[max(0, len(t.text)-maxTail):])), "?")
}

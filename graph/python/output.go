package python

import (
	"bytes"
	"io"
	"time"

	"understudy/internal/child"
)

// pipe logs the lines of r, and keeps the last ones to report why a worker died.
func (w *worker) pipe(r io.Reader, name string, keep *child.Tail) {
	var take func([]byte) bool
	if keep != nil {
		take = func(line []byte) bool {
			if report, ok := bytes.CutPrefix(line, blockedMark); ok {
				w.pool.blocked(w, report)
				return true
			}
			return w.prober.Take(line)
		}
	}
	child.Lines(r, w.said, keep, take, func(text string) { w.print(logLine{level: 20, source: name, text: text}) })
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

// begins is called when the interpreter runs the worker's code. What it writes is still held: langgraph may not import.
func (w *worker) begins() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
}

// speaks is called with the first message: langgraph is imported.
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
	if lines, bytes := w.said.Left(now); lines > 0 {
		w.pool.opts.Logger.Warn("graph output was left out of the log: it came too fast", "pid", w.pid, "lines", lines, "bytes", bytes)
	}
}

package gate

import (
	"bytes"
	"encoding/json"
	"time"

	"understudy/internal/logctx"
)

// loadingMark begins a line of stderr in which the process says what it has been loading for long. slow.py has the same.
var loadingMark = []byte("\x1eunderstudy is loading ")

// fixLoading is what to do about a part that loads for long.
const fixLoading = "move what waits, such as a connection or a download, out of the import into the function that needs it; for an application, out of its startup. Ctrl-C stops the server"

// loading is what a process loads, when that takes long.
type loading struct {
	name, spec string    // key of langgraph.json, and what it names
	place      string    // file:line; "" unknown
	began      time.Time // when the first part began to load; zero: the interpreter or its libraries are still starting
	fresh      bool      // not logged yet
	logged     time.Time // zero: never
}

// loads takes a line of stderr that says what the process loads.
func (p *process) loads(line []byte) bool {
	text, ok := bytes.CutPrefix(line, loadingMark)
	if !ok {
		return false
	}
	var report struct {
		Part, Place string
		Began       bool
	}
	if json.Unmarshal(text, &report) != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.within.name, p.within.spec = p.program.part(report.Part)
	p.within.place, p.within.fresh = report.Place, !report.Began
	if p.within.began.IsZero() {
		p.within.began, p.within.logged = time.Now(), time.Time{}
	}
	return true
}

// logLoading logs what a process that is not ready loads, once that takes long. What keeps the process from saying it, such as a loop in C, is logged without a place,
// a second later. Until the first part begins, which it is not to blame for, the line is only for information.
func (p *process) logLoading(now time.Time, took time.Duration) {
	g := p.gate
	p.mu.Lock()
	l := p.within
	if !l.began.IsZero() {
		took = now.Sub(l.began)
	}
	silent := took > g.slowStart+time.Second && (l.logged.IsZero() || now.Sub(l.logged) > g.repeatStart+time.Second)
	log := l.fresh || silent
	if log {
		p.within.fresh, p.within.logged = false, now
	}
	p.mu.Unlock()
	if !log {
		return
	}
	attrs := []any{"parts", p.program.parts()}
	if l.began.IsZero() {
		g.opts.Logger.Info("the interpreter of Python handlers still starts, with the libraries of the server; requests wait", append(attrs, "interpreter", p.program.Python, logctx.Took(took))...)
		return
	}
	if l.name != "" {
		attrs = []any{"part", l.name, "names", l.spec}
		if l.place != "" {
			attrs = append(attrs, "at", l.place)
		}
	}
	text := "Python code of the deployment takes long to load; requests wait until it is loaded"
	if p.reload {
		text = "Python code of the deployment takes long to load; the version before stays in service"
	}
	g.opts.Logger.Warn(text, append(attrs, logctx.Took(took), "fix", fixLoading)...)
}

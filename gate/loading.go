package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"understudy/internal/logctx"
)

// loadingMark begins a line of stderr in which the process says what it has been loading for long. slow.py has the same.
var loadingMark = []byte("\x1eunderstudy is loading ")

// fixLoading is what to do about a part that loads for long.
const fixLoading = "move what waits, such as a connection or a download, out of the import into the function that needs it; for an application, out of its startup. Ctrl-C stops the server"

// fixStartup is what to do about a startup of the application that does not end.
const fixStartup = "look at the line: what it waits for may be down, and needs a timeout; what takes long by itself can run in a task. Ctrl-C stops the server"

// fixComputing is what to do about one that computes, or has no processor: nothing waits.
const fixComputing = "the machine is busy, or the imports are large: if it stays so, give the server more processor time, or import less; Ctrl-C stops the server"

// loading is what a process loads, when that takes long.
type loading struct {
	name, spec string    // key of langgraph.json, and what it names
	startup    bool      // it is the startup (lifespan) of the application
	place      string    // file:line; "" unknown
	began      time.Time // when the first part began to load; zero: the interpreter or its libraries are still starting
	fresh      bool      // not logged yet
	logged     time.Time // zero: never
	spent      spent     // until the place was seen
}

// spent is how a process spent the time of loading, as it says itself; zero: unknown, because nothing of it runs.
type spent struct {
	took, cpu, queued time.Duration // in all; of the processor; ready to run without one (Linux)
}

// waits reports whether most of the time went by without use of a processor, and without one missing.
func (s spent) waits() bool { return 2*(s.cpu+s.queued) < s.took || s.took == 0 }

// fix returns what to do about the time.
func (s spent) fix() string {
	if s.waits() {
		return fixLoading
	}
	return fixComputing
}

// fix returns what to do about what loads for long.
func (l *loading) fix() string {
	if l.startup {
		return fixStartup
	}
	return l.spent.fix()
}

// reports takes a line of stderr that is for the server.
func (p *process) reports(line []byte) bool {
	return p.loads(line) || p.awaits(line) || p.blocks(line) || p.prober.Take(line)
}

// loads takes a line of stderr that says what the process loads.
func (p *process) loads(line []byte) bool {
	text, ok := bytes.CutPrefix(line, loadingMark)
	if !ok {
		return false
	}
	var report struct {
		Part, Stage, Place string
		Began, Over        bool
		Took               float64
		CPU                float64
		Queued             float64
	}
	if json.Unmarshal(text, &report) != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.within.name, p.within.spec = p.program.part(report.Part)
	p.within.place, p.within.fresh, p.within.startup = report.Place, !report.Began && !report.Over, report.Stage == "startup"
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	p.within.spent = spent{seconds(report.Took), seconds(report.CPU), seconds(report.Queued)}
	if p.within.began.IsZero() {
		p.within.began, p.within.logged = time.Now(), time.Time{}
	}
	if report.Over && !p.within.logged.IsZero() {
		p.logLoaded()
	}
	return true
}

// logLoading logs what a process that is not ready loads, once that takes long. What keeps the process from saying it, such as a loop in C, is logged without a place,
// a second later. Until the first part begins, which it is not to blame for, the line is only for information.
func (p *process) logLoading(now time.Time, took time.Duration) {
	g, left := p.gate, p.gate.startWithin-took
	p.mu.Lock()
	l := p.within
	if !l.began.IsZero() {
		took = now.Sub(l.began)
	}
	silent := took > g.slowStart+time.Second && (l.logged.IsZero() || now.Sub(l.logged) >= g.repeatStart+p.gate.pingEvery)
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
		text := "the interpreter of Python handlers still starts, with the libraries of the server; requests wait"
		if p.program.Encryption != "" { // there are none before it has started
			text = "the interpreter of the handlers of encryption.path still starts, with the libraries of the server"
		}
		g.opts.Logger.Info(text, append(attrs, "interpreter", p.program.Python, logctx.Took(took))...)
		return
	}
	if l.name != "" {
		attrs = []any{"part", l.name, "names", l.spec}
		if l.place != "" {
			attrs = append(attrs, "at", l.place)
		}
	}
	level := slog.LevelWarn
	attrs = append(attrs, logctx.Took(took), "gives_up_in", left.Round(time.Second).String())
	if !l.startup && !l.spent.waits() {
		level = slog.LevelInfo
		attrs = append(attrs, l.spent.attrs()...)
	}
	g.opts.Logger.Log(context.Background(), level, p.slowly(&l), append(attrs, "fix", l.fix())...)
}

// slowly says what takes long, and what that means until it ends.
func (p *process) slowly(l *loading) string {
	text := "Python code of the deployment takes long to load; "
	if l.startup {
		text = "the startup (lifespan) of the application has not ended; "
	}
	switch {
	case p.program.Encryption != "" && !p.reload:
		return text + "the server starts when it is loaded"
	case p.reload && p.gate.serving() != nil:
		return text + "the version before stays in service"
	}
	return text + "requests wait until it is loaded"
}

// attrs are the times of the processor, for the log.
func (s spent) attrs() []any {
	return []any{"processor_time", s.cpu.Round(time.Millisecond).String(), "waited_for_processor", s.queued.Round(time.Millisecond).String()}
}

// logLoaded logs that what took long has loaded, with how the time was spent. The caller holds mu.
func (p *process) logLoaded() {
	l := &p.within
	attrs := append([]any{"part", l.name, logctx.Took(l.spent.took)}, l.spent.attrs()...)
	if !l.spent.waits() {
		attrs = append(attrs, "fix", fixComputing)
	}
	p.gate.opts.Logger.Info("Python code of the deployment that took long has loaded", attrs...)
}

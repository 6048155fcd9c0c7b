package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"understudy/graph/python"
	"understudy/internal/child"
	"understudy/internal/logctx"
	"understudy/internal/names"
)

// All handlers and routes share the event loop of a process. blockedMark begins a line of stderr in which the process says which code keeps it busy (slow.py). Of
// code that holds Python's global lock it says nothing: child.Prober finds that.

var blockedMark = []byte("\x1eunderstudy loop blocked ")

const (
	textBlocked = "the event loop of http.app and the handlers is blocked: all their requests wait for this code"
	fixBlocked  = "make the route or handler a plain def, which runs in a thread, or await asyncio.to_thread(…) and asynchronous clients (httpx.AsyncClient, asyncio.sleep) in it"
	fixLocked   = "this code keeps Python's global lock (GIL), so that no thread helps: let it do less, or run it in another process (concurrent.futures.ProcessPoolExecutor)"
)

// holdup is what keeps a process from answering.
type holdup struct {
	place string        // file:line; "" unknown
	since time.Duration // for how long the process had not answered when it got no processor time: this is looked at again. 0: something else holds it up
}

// blocks takes a line of stderr that says which code blocks the loop.
func (p *process) blocks(line []byte) bool {
	text, ok := bytes.CutPrefix(line, blockedMark)
	if !ok {
		return false
	}
	var report struct {
		Place, Code string
		Seconds     float64
	}
	if json.Unmarshal(text, &report) != nil {
		return false
	}
	p.logBlocked(textBlocked, names.From(p.gate.opts.Dir, report.Place), report.Code, fixBlocked, time.Duration(report.Seconds*float64(time.Second)))
	return true
}

// probe finds out what holds the process up when it does not say that itself.
func (p *process) probe(quiet time.Duration) {
	mute := quiet
	p.mu.Lock()
	if p.holdup != nil {
		mute = 0
		if p.holdup.since > 0 {
			mute = quiet - p.holdup.since
		}
	}
	p.mu.Unlock()
	if s := p.prober.Step(p.pid, mute, p.gate.stalled, p.gate.pingEvery); s != nil {
		p.found(s.Why(), s.Frames(), quiet)
	}
}

// found keeps and logs what holds the process up.
func (p *process) found(why child.Why, frames []child.Frame, quiet time.Duration) {
	switch why {
	case child.Stopped:
		p.logBlocked("the process of http.app and the handlers is stopped: all their requests wait", "", "", fmt.Sprintf("continue it (kill -CONT %d), or end it (kill -KILL %[1]d): it is replaced. It was stopped by a signal or a debugger", p.pid), quiet)
		return
	case child.Starved:
		p.logBlocked("the process of http.app and the handlers gets no processor time: all their requests wait", "", "", "the machine or the container has more work than processors: see what else runs there", quiet)
		p.mu.Lock()
		if p.holdup != nil { // else it has answered just now
			p.holdup.since = quiet
		}
		p.mu.Unlock()
		p.prober.Step(p.pid, 0, p.gate.stalled, 0) // one look may be wrong
		return
	}
	place := ""
	for _, f := range frames {
		if python.IsOwn(f.File, p.gate.opts.dirs()) {
			place = names.From(p.gate.opts.Dir, f.File) + ":" + strconv.Itoa(f.Line)
			break
		}
	}
	if place == "" {
		p.logBlocked("the process of http.app and the handlers does not answer: all their requests wait", "", "", "look for native code that keeps Python's global lock (GIL); py-spy dump --pid "+strconv.Itoa(p.pid)+" may show where it is", quiet)
		return
	}
	p.logBlocked(textBlocked, place, "", fixLocked, quiet)
}

// logBlocked keeps and logs what holds the process up; the same again after a while.
func (p *process) logBlocked(text, place, code, fix string, took time.Duration) {
	p.mu.Lock()
	p.holdup = &holdup{place: place}
	p.mu.Unlock()
	if !p.gate.hanging.note(strings.TrimSpace(text+" "+place), time.Now(), p.gate.repeatBlocked()) {
		return
	}
	var attrs []any
	if place != "" {
		attrs = append(attrs, "at", place)
	}
	if code != "" {
		attrs = append(attrs, "code", code)
	}
	p.gate.opts.Logger.Warn(text, append(attrs, "pid", p.pid, logctx.Took(took), "fix", fix)...)
}

// repeatBlocked is when the same place is logged again.
func (g *Gate) repeatBlocked() time.Duration { return 4 * g.repeatStart }

// isBlocked reports whether the loop of the process does not answer.
func (p *process) isBlocked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holdup != nil || !p.pingAt.IsZero() && time.Since(p.pingAt) > p.gate.blockedFor
}

// isHeldUp reports whether it is known, and logged, what keeps the process from answering.
func (p *process) isHeldUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holdup != nil
}

// silent is why a process is killed that does not answer.
func (p *process) silent(quiet time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holdup != nil && p.holdup.place != "" {
		return fmt.Sprintf("it did not answer for %v, at %s", quiet.Round(time.Second), p.holdup.place)
	}
	return fmt.Sprintf("it did not answer for %v: look for a blocking call in an async def (time.sleep, requests)", quiet.Round(time.Second))
}

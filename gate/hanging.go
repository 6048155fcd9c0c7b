package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"understudy/internal/logctx"
	"understudy/internal/names"
)

// waitingMark begins a line of stderr in which the process says which handler has not answered. slow.py has the same.
var waitingMark = []byte("\x1eunderstudy waits for ")

// fixHanging is what to do about a handler that does not answer.
const fixHanging = "look for calls without a timeout there"

// hanging is what is known of handlers that do not answer.
type hanging struct {
	mu     sync.Mutex
	logged map[string]time.Time // by handler
}

// waits is a handler that has not answered.
type waits struct {
	handler string // as users write it, such as @auth.authenticate
	place   string // file:line; "" unknown
	at      time.Time
}

// String names the handler, with its line if that is known.
func (w waits) String() string {
	if w.place == "" {
		return w.handler
	}
	return w.handler + " (" + w.place + ")"
}

// attrs names the handler for the log.
func (w waits) attrs(more ...any) []any {
	attrs := []any{"handler", w.handler}
	if w.place != "" {
		attrs = append(attrs, "at", w.place)
	}
	return append(attrs, more...)
}

// handlerOf returns what users call the handlers that answer a question.
func handlerOf(do string) string {
	switch do {
	case "decide":
		return "@auth.on"
	case "wrap":
		return "@encryption.encrypt"
	case "unwrap":
		return "@encryption.decrypt"
	case "readable":
		return "@encryption.encrypt.json"
	case "encryption_context":
		return "@encryption.context"
	}
	return "@auth.authenticate"
}

// awaits takes a line of stderr that says where a handler is that has not answered.
func (p *process) awaits(line []byte) bool {
	text, ok := bytes.CutPrefix(line, waitingMark)
	if !ok {
		return false
	}
	var report struct {
		Do, Handler, Place string
		Seconds            float64
		Calls              []uint32 // that wait there
	}
	if json.Unmarshal(text, &report) != nil {
		return false
	}
	w := waits{handler: report.Handler, place: names.From(p.gate.opts.Dir, report.Place), at: time.Now()}
	if w.handler == "" {
		w.handler = handlerOf(report.Do)
	}
	p.mu.Lock()
	for _, number := range report.Calls {
		if c := p.calls[number]; c != nil {
			c.waits.Store(&w)
		}
	}
	p.mu.Unlock()
	p.gate.logWaits(w, time.Duration(report.Seconds*float64(time.Second)))
	return true
}

// logUnplaced logs, now and again until ctx ends, that a handler has not answered when the process does not say where it is, as in a loop in C. While the loop is
// blocked that is logged instead: other code may block it.
func (g *Gate) logUnplaced(ctx context.Context, p *process, c *call, do string, began time.Time) {
	if ctx.Err() != nil {
		return
	}
	if g.reported(c) == nil && !p.isBlocked() {
		g.logWaits(waits{handler: handlerOf(c.part(do))}, time.Since(began))
	}
	time.AfterFunc(2*g.slowAnswer, func() { g.logUnplaced(ctx, p, c, do, began) })
}

// note says whether to log that a handler has not answered: it may hang for all requests.
func (h *hanging) note(handler string, now time.Time, again time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.logged == nil {
		h.logged = map[string]time.Time{}
	}
	if last, before := h.logged[handler]; before && now.Sub(last) < again {
		return false
	}
	h.logged[handler] = now
	return true
}

func (g *Gate) logWaits(w waits, took time.Duration) {
	if !g.hanging.note(w.handler, time.Now(), g.repeatStart) {
		return
	}
	text := "a handler has not answered yet; its request waits"
	if g.opts.Encryption != "" {
		text = "a handler of encryption.path has not answered yet; what it encrypts or decrypts waits"
	}
	g.opts.Logger.Warn(text, w.attrs(logctx.Took(took), "gives_up_after", g.opts.Timeout.String(), "fix", fixHanging)...)
}

// reported returns the handler that a call waits for, or waited for until just now, as the process says; nil: it says nothing of it any more.
func (g *Gate) reported(c *call) *waits {
	if w := c.waits.Load(); w != nil && time.Since(w.at) < 2*g.slowAnswer {
		return w
	}
	return nil
}

// awaited is reported, or else the handlers that answer a question.
func (g *Gate) awaited(c *call, do string) waits {
	if w := g.reported(c); w != nil {
		return *w
	}
	return waits{handler: handlerOf(do)}
}

// part returns what a call asks now, if the process says nothing of it: what an admission has waited for has answered.
func (c *call) part(do string) string {
	if do == "admit" && c.waits.Load() != nil {
		return "decide"
	}
	return do
}

// gaveUp counts and logs a handler that did not answer within its limit.
func (g *Gate) gaveUp(p *process, w waits, limit time.Duration) {
	g.metrics.refused.WithLabelValues("slow").Inc()
	if w.place == "" && p.isHeldUp() {
		return // which is logged
	}
	text := "a handler did not answer in time: the request is refused with 503"
	if g.opts.Encryption != "" {
		text = "a handler of encryption.path did not answer in time: what it encrypts or decrypts fails"
	}
	g.opts.Logger.Error(text, w.attrs("limit", limit.String(), "fix", fixHanging+", or raise --gate-timeout")...)
}

// errHangs says, for operators, which handler of encryption.path did not answer.
func (g *Gate) errHangs(w waits) error {
	return fmt.Errorf("encryption.path: %s did not answer within %s; %s, or raise --gate-timeout", w, g.opts.Timeout, fixHanging)
}

package python

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"understudy/internal/logctx"
	"understudy/internal/names"
)

// blockedMark starts a line on a worker's stderr that reports code blocking its event loop (MARK in blocked.py). The socket cannot carry the
// report: it belongs to the blocked loop.
var blockedMark = []byte("\x1eunderstudy blocked ")

// blockedReport is what follows the mark: one report after a second, and one with Over when the loop turns again. With Importing it says where the
// import of a graph is, each second.
type blockedReport struct {
	Run, Thread, Node string
	File, Code        string
	Line              int
	Inside            string // module of the innermost frame
	Stack             []string
	Seconds           float64
	Over, Importing   bool
}

// blocking is what was logged of one place.
type blocking struct {
	at     time.Time
	silent bool // the last report was left out, and so is its end
	times  int  // left out since
}

// blockedAgain is the interval for logging the same place again, maxPlaces how many places are remembered.
const (
	blockedAgain = 10 * time.Second
	maxPlaces    = 1000
)

// Blocked returns how often code of graphs has blocked event loops of workers, and where the last time; "" before the first.
func (p *Pool) Blocked() (times int, at string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocks, p.blockedAt
}

// blocked counts and logs one report.
func (p *Pool) blocked(w *worker, text []byte) {
	var r blockedReport
	if json.Unmarshal(text, &r) != nil {
		return
	}
	place := fmt.Sprintf("%s:%d", names.From(p.opts.Dir, r.File), r.Line)
	w.noteReport(&r, place)
	if r.Importing {
		return
	}
	if r.Over {
		p.metrics.blockedSeconds.Add(max(0, r.Seconds))
	} else {
		p.countBlocked(place)
	}
	times, log := p.logsBlocked(place, r.Over, time.Now())
	if !log {
		return
	}
	took := time.Duration(r.Seconds * float64(time.Second))
	attrs := make([]slog.Attr, 0, 10)
	attr := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	attr("node", r.Node)
	attr("at", place)
	attr("code", r.Code)
	attr("run_id", r.Run)
	attr("thread_id", r.Thread)
	attrs = append(attrs, slog.Int("pid", w.pid), logctx.Took(took))
	level := slog.LevelDebug
	if r.Over {
		if p.opts.LogBlocking {
			level = slog.LevelInfo
		}
		p.opts.Logger.LogAttrs(context.Background(), level, "event loop runs again", attrs...)
		return
	}
	if times > 0 {
		attrs = append(attrs, slog.Int("times_since", times))
	}
	if p.opts.LogBlocking {
		level = slog.LevelWarn
	}
	attr("stack", strings.Join(r.Stack, "\n"))
	fix := unblock(r.Code, r.Inside)
	if sends(place) {
		fix = "a large value is being sent to the server, which takes as long however the node is written: return less at once, and keep large data out of the state, for example in files that it names"
	}
	attr("fix", fix)
	p.opts.Logger.LogAttrs(context.Background(), level, "event loop blocked: all runs of this worker wait for this code", attrs...)
}

// countBlocked counts that a loop was blocked at a place.
func (p *Pool) countBlocked(place string) {
	p.metrics.blocked.Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks, p.blockedAt = p.blocks+1, place
}

// noteReport keeps what a report says of the worker.
func (w *worker) noteReport(r *blockedReport, place string) {
	holdup := ""
	if !r.Over && !r.Importing {
		holdup = "its event loop is blocked"
		if c := w.callOf(r.Run); c != nil {
			holdup += " by " + c.holder(r.Node)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = time.Now()
	if r.Importing {
		w.at, w.code = place, r.Code
	} else {
		w.holdup = holdup
	}
}

// callOf returns the call of a run; nil when there is none.
func (w *worker) callOf(run string) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if run != "" && string(c.backend.run) == run {
			return c
		}
	}
	return nil
}

// logsBlocked reports whether to log a report, and how many about this place were left out since the last.
func (p *Pool) logsBlocked(place string, over bool, now time.Time) (times int, log bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.blocking[place]
	switch {
	case over:
		return 0, b != nil && !b.silent
	case b == nil && len(p.blocking) >= maxPlaces:
		return 0, false
	case b == nil:
		b = &blocking{}
		p.blocking[place] = b
	case now.Sub(b.at) < blockedAgain:
		b.silent = true
		b.times++
		return 0, false
	}
	times, b.times = b.times, 0
	b.at, b.silent = now, false
	return times, true
}

// sends reports whether the code at a place writes to a connection: nothing of the user's blocks then, but the size of what a node has returned.
func sends(place string) bool {
	file, _, _ := strings.Cut(filepath.ToSlash(place), ".py:")
	for _, writer := range []string{"asyncio/selector_events", "asyncio/sslproto", "asyncio/proactor_events", "asyncio/streams"} {
		if strings.HasSuffix(file, "/"+writer) {
			return true
		}
	}
	return false
}

// unblock returns advice for a line of code that blocks, by what it calls or is inside of.
func unblock(code, inside string) string {
	const otherwise = "await asyncio.to_thread(…), or make the node a plain def, which runs in a thread of its own"
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(code, part) || strings.HasPrefix(inside, strings.TrimSuffix(part, ".")) {
				return true
			}
		}
		return false
	}
	switch {
	case strings.Contains(code, "sleep("):
		return "await asyncio.sleep(…) in place of time.sleep(…); or " + otherwise
	case has("requests.", "urllib3", "urllib.request", "http.client", "httpx."):
		return "an asynchronous client, such as httpx.AsyncClient; or " + otherwise
	case strings.Contains(code, ".invoke("), strings.Contains(code, ".stream("), strings.Contains(code, ".batch("):
		return "the asynchronous method (ainvoke, astream, abatch), with await; or " + otherwise
	case has("subprocess."):
		return "await asyncio.create_subprocess_exec(…); or " + otherwise
	case has("sqlite3.", "psycopg", "pymysql", "sqlalchemy."):
		return "an asynchronous driver (aiosqlite, psycopg.AsyncConnection, asyncpg); or " + otherwise
	}
	return otherwise
}

package python

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/id"
	"understudy/internal/child"
	"understudy/internal/logctx"
	"understudy/internal/names"
)

// The watch in a worker (blocked.py) reports code that blocks the loop, but it needs Python's global lock (GIL). Of code that holds the lock, and of a process that
// is stopped, it says nothing. Then the kernel is asked which thread is at work, and that thread for its stack, which it writes without the lock.

// probe looks at a worker that says nothing, and logs once what keeps it from that. c is of now.
func (w *worker) probe(c checkup) {
	if s := w.prober.Step(w.pid, c.mute, w.pool.stalled, w.pool.pingEvery); s != nil {
		w.logStall(s, c)
	}
}

// logStall logs what keeps a worker from answering; of an import only where it is, which is logged with it.
func (w *worker) logStall(s *child.Stall, c checkup) {
	p := w.pool
	at, code := w.spot(s)
	if c.graph != "" {
		w.mu.Lock()
		w.at, w.code = at, code
		w.mu.Unlock()
		return
	}
	what, fix, holdup := verdict(s.Why(), at != "", w.pid)
	attrs, who := w.begunCalls(s.Frames())
	if who != "" && s.Why() != child.Stopped && s.Why() != child.Starved {
		holdup += " by " + who
	}
	w.mu.Lock()
	w.holdup, w.stall = holdup, s.Why()
	w.mu.Unlock()
	place := at
	if place == "" {
		place = "process " + strconv.Itoa(w.pid)
	}
	p.countBlocked(place)
	times, log := p.logsBlocked(place, false, time.Now())
	if !log {
		return
	}
	if at != "" {
		attrs = append(attrs, slog.String("at", at), slog.String("code", code))
	}
	attrs = append(attrs, slog.Int("pid", w.pid), logctx.Took(c.quiet))
	if times > 0 {
		attrs = append(attrs, slog.Int("times_since", times))
	}
	if frames := s.Frames(); len(frames) > 0 {
		stack := make([]string, 0, mostFrames)
		for _, f := range frames[:min(len(frames), mostFrames)] {
			stack = append(stack, f.String())
		}
		attrs = append(attrs, slog.String("stack", strings.Join(stack, "\n")))
	}
	p.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, what, append(attrs, slog.String("fix", fix))...)
}

// mostFrames is how many frames of a stack are logged (FRAMES in blocked.py).
const mostFrames = 6

// verdict returns what the log says of a worker that is held up, what to do, and what others may know of it.
func verdict(why child.Why, placed bool, pid int) (what, fix, holdup string) {
	switch {
	case why == child.Stopped:
		return "a worker process is stopped: all its runs wait", fmt.Sprintf("continue it (kill -CONT %d), or end it (kill -KILL %[1]d): then its runs begin again in another one. It was stopped by a signal or a debugger", pid),
			"its process is stopped"
	case why == child.Starved:
		return "a worker process gets no processor time: all its runs wait", "the machine or the container has more work than processors: see what else runs there, or start fewer workers (--workers)",
			"its process gets no processor time"
	}
	fix = "this code keeps Python's global lock (GIL), so that no thread helps: let it do less, such as a regular expression without nested repetition, or run it in another process (concurrent.futures.ProcessPoolExecutor, asyncio.create_subprocess_exec)"
	if !placed {
		return "a worker does not answer: all its runs wait", "look for native code that keeps Python's global lock (GIL) in the nodes of these runs; py-spy dump --pid " + strconv.Itoa(pid) + " may show where it is", "its event loop is blocked"
	}
	return "event loop blocked: all runs of this worker wait for this code", fix, "its event loop is blocked"
}

// spot returns file:line of the user's code that holds a worker up, and that line; "" when it is not known.
func (w *worker) spot(s *child.Stall) (at, code string) {
	opts, frames := &w.gen.opts, s.Frames()
	i := slices.IndexFunc(frames, func(f child.Frame) bool { return IsOwn(f.File, opts.dirs()) })
	if i < 0 && s.Why() == child.Busy { // else it may be the loop that waits
		i = slices.IndexFunc(frames, func(f child.Frame) bool { return !strings.HasPrefix(f.File, "<") })
	}
	if i < 0 {
		return "", ""
	}
	f := frames[i]
	return fmt.Sprintf("%s:%d", names.From(w.pool.opts.Dir, f.File), f.Line), sourceLine(f.File, f.Line, w.began)
}

// maxSource is how large a file may be of which a line is quoted.
const maxSource = 4 << 20

// sourceLine returns a line of a file that has not changed since then; else "".
func sourceLine(file string, number int, since time.Time) string {
	info, err := os.Stat(file)
	if err != nil || info.ModTime().After(since) || info.Size() > maxSource {
		return ""
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if number--; number == 0 {
			line = strings.TrimSpace(line)
			return strings.ToValidUTF8(line[:min(len(line), 200)], "")
		}
	}
	return ""
}

// begunCall is a call with what is read under the worker's mutex.
type begunCall struct {
	*call
	node   string // in the stack
	thread id.Thread
}

// begunCalls names the calls that the worker has read and not ended, with the node of the stack: attributes for the log, and in words when there is only one. Of several
// those count whose graph has the node.
func (w *worker) begunCalls(frames []child.Frame) (attrs []slog.Attr, only string) {
	w.mu.Lock()
	var begun, there []begunCall
	for _, c := range w.calls {
		if w.unread(c) {
			continue
		}
		one := begunCall{c, nodeIn(frames, w.greeting.nodes[c.graph]), c.thread}
		begun = append(begun, one)
		if one.node != "" {
			there = append(there, one)
		}
	}
	w.mu.Unlock()
	if len(there) > 0 {
		begun = there
	}
	slices.SortFunc(begun, func(a, b begunCall) int { return cmp.Compare(a.number, b.number) })
	if len(begun) == 1 {
		c := begun[0]
		attrs = append(attrs, slog.String("graph", c.graph))
		node := cmp.Or(c.node, strings.Join(c.running(), ", "))
		if node != "" {
			attrs = append(attrs, slog.String("node", node))
		}
		if c.backend.run != "" {
			attrs = append(attrs, slog.String("run_id", string(c.backend.run)), slog.String("thread_id", string(c.thread)))
		}
		return attrs, c.holder(node)
	}
	list := make([]string, 0, len(begun))
	for _, c := range begun {
		list = append(list, strings.TrimSpace(c.holder(c.node)+" "+string(c.backend.run)))
	}
	if len(list) > 0 {
		attrs = append(attrs, slog.String("one_of", names.Some(list, maxNodes)))
	}
	return attrs, ""
}

// nodeIn returns the innermost node whose function is in a stack; "" when none is.
func nodeIn(frames []child.Frame, nodes []nodeCode) string {
	for _, f := range frames {
		node, first := "", 0
		for _, n := range nodes {
			if n.file == f.File && n.function == f.Function && n.line <= f.Line && n.line >= first { // several may be lambdas
				node, first = n.node, n.line
			}
		}
		if node != "" {
			return node
		}
	}
	return ""
}

// holder names what a call is executing: its graph, and the node, or those that are known when it is "".
func (c *call) holder(node string) string {
	if node == "" {
		node = strings.Join(c.running(), ", ")
	}
	if node == "" {
		return "graph " + c.graph
	}
	return "node " + node + " of graph " + c.graph
}

// HeldUp returns what keeps workers from answering, for anyone who asks; "" when all answer or nothing is known.
func (p *Pool) HeldUp() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for w := range p.workers {
		w.mu.Lock()
		if w.holdup != "" && !w.pingAt.IsZero() && w.state < killed {
			all = append(all, w.holdup+" for "+time.Since(w.pingAt).Round(time.Second).String())
		}
		w.mu.Unlock()
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return "a worker does not answer: " + names.Some(slices.Compact(all), maxNodes)
}

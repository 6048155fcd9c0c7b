package python

import (
	"bufio"
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/child"
)

// SetTimes shortens what tests would wait for. Call it before Run.
func (p *Pool) SetTimes(pingEvery, answerWithin, silence, cancelGrace, killGrace time.Duration) {
	p.pingEvery, p.answerWithin, p.silence, p.cancelGrace, p.killGrace = pingEvery, answerWithin, silence, cancelGrace, killGrace
}

// Processes counts worker processes.
func (p *Pool) Processes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// InService counts the workers that take runs and answer.
func (p *Pool) InService() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for w := range p.workers {
		if takes, _, answers := w.load(time.Now()); takes && answers {
			n++
		}
	}
	return n
}

type nothing struct{}

func (nothing) hello(hello) {}
func (nothing) event(event) {}
func (nothing) done(done)   {}
func (nothing) ask(a ask) {
	_, _ = readPut(&decoder{b: a.args})
	_ = readWrites(&decoder{b: a.args})
	k := &backend{saver: empty{}, store: empty{}}
	if _, isSave, _ := k.save(&a); !isSave {
		_, _ = k.answer(context.Background(), nil, &a)
	}
}

// empty is a saver and a store with nothing in them.
type empty struct{}

func (empty) Load(context.Context, checkpointer.Key) (*checkpointer.Tuple, error) { return nil, nil }

func (empty) List(context.Context, checkpointer.List) ([]*checkpointer.Tuple, error) { return nil, nil }
func (empty) Save(context.Context, ...graph.Save) error                              { return nil }
func (empty) Batch(_ context.Context, ops []graph.StoreOp) ([]graph.StoreResult, error) {
	return make([]graph.StoreResult, len(ops)), nil
}
func (nothing) log(logLine)                    {}
func (nothing) pong(uint64)                    {}
func (nothing) loading(string)                 {}
func (nothing) loaded(string, *graph.Failure)  {}
func (nothing) called(uint64, graph.ModelCall) {}
func (nothing) node(uint64, string, bool)      {}
func (nothing) begin(uint64, graph.SpanBegin)  {}
func (nothing) end(uint64, graph.SpanEnd)      {}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 0x92, 6, 1})
	f.Add([]byte{0, 0, 0, 14, 0x96, 2, 1, 0xa1, 'v', 0xa0, 0xc4, 2, '{', '}', 0xc0, 0x92, 6, 1, 0x90})
	f.Add([]byte{0, 0, 0, 12, 0x96, 4, 1, 2, 0xa3, 'p', 'u', 't', 0x91, 0x94, 0xa0, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte("\x00\x00\x00\x11\x95\x04\x01\x02\xa5store\x91\x92\xa3get\x90\xa1k"))
	f.Add([]byte("\x00\x00\x00\x0b\x92\x07\xa8a_graph\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			body, err := child.ReadFrame(r)
			if err != nil {
				return
			}
			_ = decode(body, nothing{})
		}
	})
}

// SetImportWithin bounds the import of a graph. Call it before Run.
func (p *Pool) SetImportWithin(d time.Duration) { p.importWithin = d }

// Pids of the worker processes that are ready.
func (p *Pool) Pids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []int
	for w := range p.workers {
		if takes, _, _ := w.load(time.Now()); takes {
			out = append(out, w.pid)
		}
	}
	return out
}

// SetPatience bounds how long failing starts are tried again before runs end. Call it before Run.
func (p *Pool) SetPatience(d time.Duration) { p.patience = d }

// SetStartWithin bounds what a worker may take besides the imports of graphs. Call it before Run.
func (p *Pool) SetStartWithin(d time.Duration) { p.startWithin = d }

// SetLost bounds how long a silent worker is waited for. Call it before Run.
func (p *Pool) SetLost(d time.Duration) { p.lost = d }

// Made counts the workers that were ever started.
func (p *Pool) Made() int { return int(p.made.Load()) }

// SetSlowStart sets how long an interpreter may take before the log says so. Call it before Run.
func (p *Pool) SetSlowStart(d time.Duration) { p.slowStart = d }

// Calls counts the calls that workers have and have not ended.
func (p *Pool) Calls() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		w.mu.Lock()
		n += len(w.calls)
		w.mu.Unlock()
	}
	return n
}

// Over reports whether a call has ended whose saves have not.
func (p *Pool) Over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		w.mu.Lock()
		calls := slices.Collect(maps.Values(w.calls))
		w.mu.Unlock()
		for _, c := range calls {
			c.mu.Lock()
			over := c.over && c.asking > 0
			c.mu.Unlock()
			if over {
				return true
			}
		}
	}
	return false
}

// Begun reports whether the interpreter of a worker runs the worker's code, and whether one has imported langgraph.
func (p *Pool) Begun() (begun, spoke bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		w.mu.Lock()
		begun, spoke = begun || w.begun, spoke || w.spoke
		w.mu.Unlock()
	}
	return begun, spoke
}

// Tick looks at all workers as it is done now and then, at another time.
func (p *Pool) Tick(now time.Time) {
	p.mu.Lock()
	workers := slices.Collect(maps.Keys(p.workers))
	p.mu.Unlock()
	for _, w := range workers {
		w.tick(now)
	}
}

// Shortage is shortage.
var Shortage = shortage

// MaxProbe is maxProbe.
const MaxProbe = maxProbe

// Head returns how much a head keeps of writes of these sizes, and whether there was more.
func Head(sizes ...int) (kept int, more bool) {
	h := head{full: func() { more = true }}
	for _, n := range sizes {
		_, _ = h.Write(make([]byte, n))
	}
	return len(h.text), more
}

// SetBackoff sets the first and the last pause between starts. Call it before Run.
func (p *Pool) SetBackoff(first, last time.Duration) { p.firstBackoff, p.lastBackoff = first, last }

// Quiet is for how long a worker has not answered; the longest counts.
func (p *Pool) Quiet() (quiet time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		w.mu.Lock()
		if !w.pingAt.IsZero() {
			quiet = max(quiet, time.Since(w.pingAt))
		}
		w.mu.Unlock()
	}
	return quiet
}

// Unread counts the calls that were sent and not read.
func (p *Pool) Unread() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		w.mu.Lock()
		for _, c := range w.calls {
			if c.behind > 0 && w.unread(c) {
				n++
			}
		}
		w.mu.Unlock()
	}
	return n
}

// Rest removes the places of all workers.
func (p *Pool) Rest() {
	p.mu.Lock()
	workers := slices.Collect(maps.Keys(p.workers))
	p.mu.Unlock()
	for _, w := range workers {
		w.rest(0)
	}
}

// Holders names what holds workers up, of those where it is one call.
func (p *Pool) Holders() (all []string) {
	p.mu.Lock()
	workers := slices.Collect(maps.Keys(p.workers))
	p.mu.Unlock()
	for _, w := range workers {
		if _, who := w.begunCalls(nil); who != "" {
			all = append(all, who)
		}
	}
	return all
}

// Waiting counts the calls that wait for a worker.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

package python

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"understudy/graph"
	"understudy/id"
)

// queueLimit is how many bytes of events may wait for the reader of a run. Beyond it the worker is told to stop taking events from
// the graph; nothing is lost, and the graph itself goes on until LangGraph's own queue is what holds it.
const queueLimit = 16 << 20

// call is one run or question on a worker. The worker's reader fills it, the goroutine that made it empties it.
type call struct {
	worker  *worker
	number  uint64
	backend backend
	// askCtx ends when the call's owner has gone: what is still being asked then is for nobody.
	askCtx  context.Context //nolint:containedctx // the owner's, for the goroutines that answer asks
	stopAsk context.CancelFunc
	notify  chan struct{} // has room for one; filled when there is something to take
	idle    chan struct{} // closed when the call is over and no ask is being answered

	mu        sync.Mutex
	events    []graph.Event
	queued    int
	paused    bool
	over      bool
	result    done
	err       error // instead of a result: the worker is gone
	abandoned bool  // the owner has gone: drop what still comes
	asking    int
	fenced    bool
	holds     map[id.Checkpoint]chan struct{} // announced or awaited root puts that have not been committed
	committed map[id.Checkpoint]struct{}
}

func newCall(ctx context.Context, k backend) *call {
	c := &call{backend: k, notify: make(chan struct{}, 1), idle: make(chan struct{})}
	// Saving what a cancelled run had done so far is wanted: only the end of the call ends its asks.
	c.askCtx, c.stopAsk = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

func (c *call) wake() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// push adds an event. It reports whether the worker has to be paused.
func (c *call) push(m event) (pause bool) {
	e := graph.Event{Name: m.name, NS: m.ns, Data: m.data}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned || c.over {
		return false
	}
	if m.ns == "" && m.name == "custom" {
		c.hear(m.data)
	}
	if m.holds {
		e.Hold, e.Checkpoint = c.hold(m.hold), m.hold
	}
	c.events = append(c.events, e)
	c.queued += len(m.data)
	c.wake()
	if c.queued > queueLimit && !c.paused {
		c.paused = true
		return true
	}
	return false
}

// hear passes the words of a summary on. The worker's reader calls it, before it begins with any ask that came later.
func (c *call) hear(custom []byte) {
	s, ok := c.backend.saver.(graph.SummaryHearer)
	if !ok || !bytes.Contains(custom, []byte(`"summarization"`)) {
		return
	}
	var event struct {
		Type    string
		Summary string
	}
	// Custom events are what their graph likes: most are of other shapes.
	if json.Unmarshal(custom, &event) == nil && event.Type == "summarization" && event.Summary != "" {
		s.HearSummary(event.Summary)
	}
}

// hold gives the channel of a put that may not have been announced yet; for "" one that waits for all announced. c.mu is held.
func (c *call) hold(at id.Checkpoint) <-chan struct{} {
	if at != "" {
		if _, ok := c.committed[at]; ok {
			return nil
		}
		return c.holdOf(at)
	}
	// Puts of one namespace are done one after the other: at most one is under way.
	for _, ch := range c.holds {
		return ch
	}
	return nil
}

func (c *call) holdOf(at id.Checkpoint) chan struct{} {
	ch, ok := c.holds[at]
	if !ok {
		if c.holds == nil {
			c.holds = make(map[id.Checkpoint]chan struct{})
		}
		ch = make(chan struct{})
		c.holds[at] = ch
	}
	return ch
}

// announced is called for a root put, in the order of the frames.
func (c *call) announced(at id.Checkpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holdOf(at)
}

func (c *call) saved(at id.Checkpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.committed == nil {
		c.committed = make(map[id.Checkpoint]struct{})
	}
	c.committed[at] = struct{}{}
	if ch, ok := c.holds[at]; ok {
		delete(c.holds, at)
		close(ch)
	}
}

// take gives the events that have come, and whether more can.
func (c *call) take() (events []graph.Event, over, resume bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events, c.events, c.queued = c.events, nil, 0
	resume, c.paused = c.paused, false
	return events, c.over, resume
}

// begin counts an ask in; false when nobody wants its answer any more.
func (c *call) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned || c.over {
		return false
	}
	c.asking++
	return true
}

func (c *call) end(fenced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking--
	c.fenced = c.fenced || fenced
	c.settle()
}

// finish ends the call with what the worker said, or with err when it is gone.
func (c *call) finish(m done, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.result, c.err = true, m, err
	c.settle()
	c.wake()
}

// settle closes what waits for the end, once the call is over and nothing is being saved. c.mu is held.
func (c *call) settle() {
	if !(c.over || c.abandoned) || c.asking > 0 {
		return
	}
	select {
	case <-c.idle:
		return
	default:
	}
	for at, ch := range c.holds {
		delete(c.holds, at)
		close(ch)
	}
	close(c.idle)
}

// leave is called by the owner when it is done with the call. Nothing of it goes on afterwards.
func (c *call) leave() {
	c.mu.Lock()
	c.abandoned = true
	c.events = nil
	over := c.over
	c.settle()
	c.mu.Unlock()
	if !over {
		c.stopAsk()
	}
	<-c.idle
	c.stopAsk()
	c.worker.forget(c)
}

// cancel asks the worker to end the call, and waits for it as long as a cancel may take. What still comes is dropped.
func (c *call) cancel() {
	_ = c.worker.send(cancelMessage(c.number))
	timer := time.NewTimer(c.worker.pool.cancelGrace)
	defer timer.Stop()
	for {
		_, over, resume := c.take()
		if over {
			return
		}
		if resume {
			_ = c.worker.send(pauseMessage(c.number, false))
		}
		select {
		case <-c.notify:
		case <-timer.C:
			c.worker.pool.opts.Logger.Warn("a cancelled run is still alive; its worker goes out of service",
				"pid", c.worker.pid, "run_id", c.backend.run)
			c.worker.stuckOn(c)
			return
		}
	}
}

// answer does what the worker asked.
func (c *call) answer(m *ask) (value []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			c.worker.pool.opts.Logger.Error("panic while answering a worker", "op", m.op, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.backend.answer(c.askCtx, nil, m)
}

// rootPut tells whether an ask saves a checkpoint of the root namespace, and which.
func rootPut(m *ask) (bool, id.Checkpoint) {
	if m.op != "put" {
		return false, ""
	}
	d := decoder{b: m.args}
	key := d.key()
	return d.err == nil && key.NS == "", key.ID
}

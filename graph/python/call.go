package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"understudy/graph"
	"understudy/id"
)

// queueLimit is how many bytes of events may wait for the reader of a run. Beyond it the worker is told to stop taking events from
// the graph; nothing is lost, and the graph itself goes on until LangGraph's own queue is what holds it.
const queueLimit = 16 << 20

// call is one run or question on a worker. The worker's reader fills it, the goroutine that made it empties it.
type call struct {
	graph   string
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
	asks      []queued         // in their order, the store's aside: those are answered at once
	busy      bool             // work is at it
	refused   error            // why the first save that failed did: none is done after it
	failures  map[uint64]error // of asks, by their numbers
	words     string           // of a summary that was told since the last save
	fenced    bool
	holds     map[id.Checkpoint]chan struct{} // announced or awaited root puts that have not been committed
	last      id.Checkpoint                   // the root put that was announced last
	committed map[id.Checkpoint]struct{}
}

// queued is an ask that waits for its turn. Their number is bounded by the worker, which waits when it has sent much that is not saved.
type queued struct {
	ask
	saves bool
	save  graph.Save
	err   error // it cannot be read
}

// root returns the checkpoint of a put of the root namespace.
func (q *queued) root() (id.Checkpoint, bool) {
	if q.err != nil || q.save.Put == nil || q.save.Put.NS != "" {
		return "", false
	}
	return q.save.Put.ID, true
}

func newCall(ctx context.Context, name string, k backend) *call {
	c := &call{graph: name, backend: k, notify: make(chan struct{}, 1), idle: make(chan struct{})}
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
		if e.Checkpoint, e.Hold = m.hold, c.hold(m.hold); e.Hold != nil {
			at := cmp.Or(m.hold, c.last)
			e.Lost = func() bool { return c.lost(at) }
		}
	}
	if m.ns == "" && m.name == "updates" && graph.MayCondense(m.data) {
		e.Checkpoint, e.Hold = c.last, c.hold("")
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

// hear keeps the words of a summary for the next save. c.mu is held.
func (c *call) hear(custom []byte) {
	if words := graph.SummaryWords(custom); words != "" {
		c.words = words
	}
}

// hold returns the channel of a put that may not have been announced yet; for "" one that waits for all announced. c.mu is held.
func (c *call) hold(at id.Checkpoint) <-chan struct{} {
	if at == "" {
		if at = c.last; at == "" { // saves are committed in their order
			return nil
		}
	}
	if _, ok := c.committed[at]; ok {
		return nil
	}
	return c.holdOf(at)
}

// lost reports whether a put was refused.
func (c *call) lost(at id.Checkpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, saved := c.committed[at]
	return c.refused != nil && !saved
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

// saved lets events go that waited for a put. c.mu is held.
func (c *call) saved(at id.Checkpoint) {
	if c.committed == nil {
		c.committed = make(map[id.Checkpoint]struct{})
	}
	c.committed[at] = struct{}{}
	if ch, ok := c.holds[at]; ok {
		delete(c.holds, at)
		close(ch)
	}
}

// take returns the events that have come, and whether more can.
func (c *call) take() (events []graph.Event, over, resume bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events, c.events, c.queued = c.events, nil, 0
	resume, c.paused = c.paused, false
	return events, c.over, resume
}

// asked takes an ask in, in the order of the frames. It reports false when nobody wants its answer any more.
func (c *call) asked(m *ask) bool {
	q := queued{ask: *m}
	q.save, q.saves, q.err = c.backend.save(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned || c.over {
		return false
	}
	c.asking++
	if m.op == "store" {
		c.worker.reading.Go(func() { c.reply(m) })
		return true
	}
	if at, ok := q.root(); ok {
		c.holdOf(at)
		c.last = at
	}
	if q.saves && m.op != "flush" {
		q.save.Words, c.words = c.words, ""
	}
	c.asks = append(c.asks, q)
	if !c.busy {
		c.busy = true
		c.worker.reading.Go(c.work)
	}
	return true
}

// work does what was asked until nothing waits: saves one after the other, and what reads beside those that come later.
func (c *call) work() {
	for {
		c.mu.Lock()
		n := 0
		for n < len(c.asks) && c.asks[n].saves {
			n++
		}
		if len(c.asks) == 0 {
			c.busy = false
			c.mu.Unlock()
			return
		}
		batch := c.asks[:max(n, 1)]
		c.asks = c.asks[len(batch):]
		refused := c.refused
		c.mu.Unlock()
		if n == 0 {
			c.worker.reading.Go(func() { c.reply(&batch[0].ask) })
			continue
		}
		c.save(batch, refused)
	}
}

// save does saves in one transaction, unless one before them was refused.
func (c *call) save(batch []queued, err error) {
	first := err == nil
	saves := make([]graph.Save, 0, len(batch))
	for i := range batch {
		if batch[i].err != nil && err == nil {
			err = batch[i].err
		}
		if batch[i].op != "flush" {
			saves = append(saves, batch[i].save)
		}
	}
	if err == nil && len(saves) > 0 {
		err = c.guarded(func() error { return c.backend.saver.Save(c.askCtx, saves...) })
	}
	c.mu.Lock()
	if err == nil {
		for i := range batch {
			if at, ok := batch[i].root(); ok {
				c.saved(at)
			}
		}
	} else if c.refused == nil {
		c.refused = err
	}
	c.mu.Unlock()
	if err != nil && first {
		_ = c.worker.send(refusedMessage(c.number, err))
	}
	for i := range batch {
		if batch[i].number != 0 {
			c.answer(batch[i].number, msgp.AppendNil(nil), err)
		}
	}
	c.end(len(batch), errors.Is(err, graph.ErrFenced))
}

// reply answers an ask that is no save.
func (c *call) reply(m *ask) {
	var value []byte
	err := c.guarded(func() (err error) {
		value, err = c.backend.answer(c.askCtx, nil, m)
		return err
	})
	c.answer(m.number, value, err)
	c.end(1, errors.Is(err, graph.ErrFenced))
}

// answer answers an ask. An error is kept: the worker knows its text only.
func (c *call) answer(number uint64, value []byte, err error) {
	if err != nil {
		c.mu.Lock()
		if c.failures == nil {
			c.failures = map[uint64]error{}
		}
		c.failures[number] = err
		c.mu.Unlock()
	}
	c.worker.answer(number, value, err)
}

// failure returns the error of the ask that ended the call. c.mu is held.
func (c *call) failure() error {
	number, _, err := msgp.ReadUint64Bytes(c.result.payload)
	switch failed := c.failures[number]; {
	case err == nil && failed != nil:
		return failed
	case c.refused != nil:
		return c.refused
	}
	return &graph.Failure{Type: c.result.errType, Message: c.result.text, Detail: c.result.detail}
}

// guarded makes an error of a panic.
func (c *call) guarded(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.worker.pool.opts.Logger.Error("panic while answering a worker", "run_id", c.backend.run, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return fn()
}

func (c *call) end(n int, fenced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking -= n
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

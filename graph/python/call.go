package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/loop"
)

// queueLimit is how many bytes of events may wait for the reader of a run. Beyond it the worker is asked to pause reading events
// from the graph. Nothing is lost: the graph continues until LangGraph's own queue blocks it.
const queueLimit = 16 << 20

// call is one run or query on a worker. The worker's reader adds to it; the goroutine that created it takes from it.
type call struct {
	graph   string
	worker  *worker
	number  uint64
	behind  uint64    // number of the ping before its message; 0: that has not been sent. Guarded by the worker's mutex
	thread  id.Thread // the same
	backend backend
	// askCtx ends when the call's owner has left: the results of running asks are then discarded.
	askCtx  context.Context //nolint:containedctx // the owner's, for the goroutines that answer asks
	stopAsk context.CancelFunc
	notify  chan struct{} // has room for one; filled when events are queued
	idle    chan struct{} // closed when the call is over and no ask is being answered

	mu        sync.Mutex
	events    []graph.Event
	queued    int
	paused    bool
	over      bool
	result    done
	err       error // replaces a result: the worker has ended
	abandoned bool  // the owner has left: drop further events
	asking    int
	asks      []queued // in order, except store asks, which are answered at once
	// applying are the writes that apply an input, until the checkpoint that has them comes, to be committed with it. Alone they would show its messages in
	// the state, with new ids at each read and with no event; that would stay so when the worker dies there and the thread is copied.
	applying  []queued
	busy      bool             // work is running
	refused   error            // error of the first failed save; later ones are skipped
	failures  map[uint64]error // of asks, by their numbers
	words     string           // text of a summary reported since the last save
	fenced    bool
	saves     bool                            // it has sent a checkpoint or writes to save; puts into the store do not count: repeated, they have the same effect
	holds     map[id.Checkpoint]chan struct{} // announced or awaited root puts that have not been committed
	last      id.Checkpoint                   // last announced root put
	committed map[id.Checkpoint]struct{}
	// tasks are those of the last root checkpoint that is known, as Checkpoint.Tasks; wrote has the IDs of those that have ended.
	tasks []byte
	wrote []string
	// steps are the nodes that are being executed, of runs that report them, and step the last one that began; "": none is reported.
	steps []string
	step  string
}

// queued is an ask that waits for its turn. The worker limits their number: it waits after sending much that is not saved.
type queued struct {
	ask
	saves bool
	save  graph.Save
	err   error // it cannot be read
}

// startPath is the task path of the writes with which LangGraph applies the input of a run.
const startPath = "~__pregel_pull, __start__"

// starts reports whether these are the writes that apply an input, and nothing waits for them.
func (q *queued) starts() bool {
	return q.err == nil && q.number == 0 && len(q.save.Writes) > 0 && q.save.Writes[0].Path == startPath
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
	// A cancelled run may still save its results: only the end of the call ends its asks.
	c.askCtx, c.stopAsk = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

// follows is called before the message of a run is sent.
func (c *call) follows(thread id.Thread) {
	behind := c.worker.ping()
	c.worker.mu.Lock()
	defer c.worker.mu.Unlock()
	c.thread, c.behind = thread, behind
}

func (c *call) wake() { loop.Poke(c.notify) }

// push adds an event. It reports whether the worker must pause.
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

// hear keeps the text of a summary for the next save. The caller holds c.mu.
func (c *call) hear(custom []byte) {
	if words := graph.SummaryWords(custom); words != "" {
		c.words = words
	}
}

// hold returns a channel that is closed when a put, which may not have been announced yet, is committed; nil if it is already. For "" it
// waits for all announced puts. The caller holds c.mu.
func (c *call) hold(at id.Checkpoint) <-chan struct{} {
	if at == "" {
		if at = c.last; at == "" { // saves are committed in order
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

// saved releases events that waited for a put. The caller holds c.mu.
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

// take returns the queued events, whether the call is over, and whether to resume the paused worker.
func (c *call) take() (events []graph.Event, over, resume bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events, c.events, c.queued = c.events, nil, 0
	resume, c.paused = c.paused, false
	return events, c.over, resume
}

// asked queues an ask, in the order of the frames. It returns false when its answer is no longer needed.
func (c *call) asked(m *ask) bool {
	q := queued{ask: *m}
	q.save, q.saves, q.err = c.backend.save(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned || c.over {
		return false
	}
	c.asking++
	c.saves = c.saves || q.saves && m.op != "flush" || m.op == "delete" || m.op == "copy"
	if m.op == "store" {
		c.worker.reading.Go(func() { c.reply(m) })
		return true
	}
	if at, ok := q.root(); ok {
		c.holdOf(at)
		c.last = at
		c.tasks, c.wrote = q.save.Put.Tasks, nil
	}
	if q.err == nil && q.save.At.NS == "" {
		c.wrote = append(c.wrote, wrote(q.save.Writes)...)
	}
	if q.saves && m.op != "flush" {
		q.save.Words, c.words = c.words, ""
	}
	if q.starts() {
		c.applying = append(c.applying, q)
		return true
	}
	c.applied(&q)
	c.asks = append(c.asks, q)
	c.start()
	return true
}

// applied queues the writes of inputs that the checkpoint of this ask contains, or all of them if the ask is not a save. The caller holds c.mu.
func (c *call) applied(q *queued) {
	c.applying = slices.DeleteFunc(c.applying, func(w queued) bool {
		put := q.save.Put
		if q.saves && q.op != "flush" && (put == nil || put.Thread != w.save.At.Thread || put.NS != w.save.At.NS || put.ID == w.save.At.ID) {
			return false
		}
		c.asks = append(c.asks, w)
		return true
	})
}

// start starts work, if there is some and it is not running. The caller holds c.mu.
func (c *call) start() {
	if !c.busy && len(c.asks) > 0 {
		c.busy = true
		c.worker.reading.Go(c.work)
	}
}

// work executes queued asks until none are left: saves one after the other, reads concurrently with later saves.
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

// save executes saves in one transaction, unless an earlier one was refused.
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

// reply answers an ask that is not a save.
func (c *call) reply(m *ask) {
	var value []byte
	err := c.guarded(func() (err error) {
		value, err = c.backend.answer(c.askCtx, nil, m)
		return err
	})
	c.answer(m.number, value, err)
	c.end(1, errors.Is(err, graph.ErrFenced))
}

// answer sends the answer of an ask. It keeps the error, of which the worker gets only the text.
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

// failure returns the error of the ask that ended the call. The caller holds c.mu.
func (c *call) failure() error {
	number, _, err := msgp.ReadUint64Bytes(c.result.payload)
	switch failed := c.failures[number]; {
	case err == nil && failed != nil:
		return failed
	case c.refused != nil:
		return c.refused
	}
	return c.worker.failureOf(c.result.errType, c.result.text, c.result.detail)
}

// guarded turns a panic into an error.
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

// finish ends the call with the worker's result, or with err when the worker has ended.
func (c *call) finish(m done, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.result, c.err = true, m, err
	if err == nil && m.status != doneCancelled { // as LangGraph has them, when a reducer refuses an input; else the run applies it again, or never
		c.applied(&queued{})
		c.start()
	}
	c.forget()
	c.settle()
	c.wake()
}

// forget drops the writes that wait for their checkpoint: there will be none. The caller holds c.mu.
func (c *call) forget() {
	c.asking -= len(c.applying)
	c.applying = nil
}

// settle closes the channels that wait for the end, once the call is over and nothing is being saved. The caller holds
// c.mu.
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

// abandon makes sure that the call saves nothing: later saves are refused. It returns false if the call has saved something or is over.
func (c *call) abandon() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saves || c.over {
		return false
	}
	c.abandoned = true
	return true
}

// leave is called by the owner when it is done with the call. It returns when nothing of the call is running.
func (c *call) leave() {
	c.mu.Lock()
	c.abandoned = true
	c.events = nil
	over := c.over
	c.forget()
	c.settle()
	c.mu.Unlock()
	if !over {
		c.stopAsk()
	}
	<-c.idle
	c.stopAsk()
	c.worker.forget(c)
}

// cancel asks the worker to end the call, and waits for that up to the limit of a cancel. Further events are dropped.
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

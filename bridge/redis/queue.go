package redis

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/loop"
)

const (
	callRecords  = 256       // records of one thread in one call
	callBytes    = 512 << 10 // bytes of one thread in one call
	pipelineCall = 64        // calls of one pipeline
	pipelineSize = 4 << 20   // bytes of one pipeline

	// When many threads have a few records each, they are collected for a moment: a call costs Redis more than the records in it, and the delay
	// is not noticeable.
	many      = 16
	linger    = 25 * time.Millisecond
	lingerMax = 100 * time.Millisecond
)

// queue holds the records to be sent, in order per thread. run owns the sending; all goroutines may add.
type queue struct {
	b     *Bridge
	clock atomic.Int64  // highest time seen, in ms
	wake  chan struct{} // has room for one; filled when records are queued
	away  atomic.Bool   // Redis did not accept the last call, or does not answer it
	// shut: the outage is longer than Outage. Published records cannot be seen by readers, whether Redis can be read or
	// not.
	shut atomic.Bool

	outage outage

	mu    sync.Mutex // guards the fields below; never held while sending
	last  map[id.Thread]bridge.Offset
	sent  map[id.Thread]sent // of threads published to recently
	boxes map[id.Thread]*outbox
	moved map[id.Thread]moved
	order []id.Thread   // threads with queued records, except those being sent
	bytes int64         // queued and being sent
	batch uint64        // number of the last call
	room  chan struct{} // closed when records were sent; nil without waiting publishers
	gone  chan struct{} // closed when Redis becomes unavailable; nil without waiters
	stuck bool          // a publisher has waited in vain; others do not wait until a send succeeds
}

// sent is the last accepted offset of a thread, and the first offset that its stream has in Redis, by which a stream that was lost and begun again is known.
type sent struct{ last, born bridge.Offset }

// moved is the last end of a run in a thread whose offset in Redis differs from the assigned one.
type moved struct {
	end *bridge.Record
	to  bridge.Offset
}

// outbox holds the queued ops of one thread.
type outbox struct {
	ops     []*op
	sending bool
	queued  bool          // in order
	added   uint64        // ops ever
	done    uint64        // number of ops sent
	sent    chan struct{} // closed when done grows; nil without waiters
}

// op is one change of a stream: a gap, then records; or a run to forget, or all runs without records above an offset.
type op struct {
	forget  bool
	run     id.Run
	until   string
	at      int64 // when forgetting was requested
	dropped int
	upTo    bridge.Offset // of what was dropped
	lost    map[id.Run]loss
	records []*bridge.Record
	bytes   int64
}

// loss holds the highest offsets that were dropped, as text; "" none.
type loss struct{ tokens, records string }

// call is one script call. It is not changed after the first try, because it may have arrived.
type call struct {
	thread id.Thread
	box    *outbox
	op     *op
	script *goredis.Script
	args   []any
}

func newQueue(b *Bridge) *queue {
	return &queue{b: b, wake: make(chan struct{}, 1), last: map[id.Thread]bridge.Offset{}, sent: map[id.Thread]sent{}, boxes: map[id.Thread]*outbox{}, moved: map[id.Thread]moved{}, outage: outage{over: make(chan struct{})}}
}

// now returns the time in ms, never less than before.
func (q *queue) now() int64 {
	now := q.b.opts.Now().UnixMilli()
	for {
		seen := q.clock.Load()
		if now <= seen {
			return seen
		}
		if q.clock.CompareAndSwap(seen, now) {
			return now
		}
	}
}

func (q *queue) advance(t id.Thread, ms int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last[t].MS <= ms {
		q.last[t] = bridge.Offset{MS: ms + 1, N: -1}
	}
}

func (q *queue) publish(ctx context.Context, t id.Thread, records []*bridge.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.awaitRoom(ctx)
	now := q.now()
	last := q.last[t]
	box := q.box(t)
	for _, r := range records {
		last = r.After(last, now)
		r.Offset = last
		size := sizeOf(r)
		if full := q.bytes + size; full > q.b.opts.QueueBytes || full > q.b.opts.QueueBytes/2 && r.Kind == bridge.Token {
			box.lose(r)
			q.b.metrics.dropped.Inc()
			continue
		}
		q.bytes += size
		box.add(r, size)
	}
	q.last[t] = last
	q.enqueue(t, box)
}

// awaitRoom waits, with the lock released, while a graph is faster than Redis, so that no records have to be dropped. It does not wait
// for a Redis that is unavailable or hangs: at most Outage, and once. It returns early when ctx ends.
func (q *queue) awaitRoom(ctx context.Context) {
	if q.bytes <= q.b.opts.QueueBytes/2 {
		return
	}
	patience := time.NewTimer(q.b.opts.Outage)
	defer patience.Stop()
	for q.bytes > q.b.opts.QueueBytes/2 && !q.stuck && !q.away.Load() {
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		waited := true
		select {
		case <-room:
		case <-patience.C:
			waited = false
		case <-q.b.closed:
			waited = false
		case <-ctx.Done(): // not a fault of Redis: other publishers keep waiting
			q.mu.Lock()
			return
		}
		q.mu.Lock()
		if !waited {
			q.stuck = true
		}
	}
}

// roomier wakes publishers that wait for room.
func (q *queue) roomier() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

func (q *queue) forget(t id.Thread, r id.Run, until string) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	box := q.box(t)
	box.push(&op{forget: true, run: r, until: until, at: now})
	q.enqueue(t, box)
}

func (q *queue) box(t id.Thread) *outbox {
	box := q.boxes[t]
	if box == nil {
		box = &outbox{}
		q.boxes[t] = box
	}
	return box
}

func (q *queue) enqueue(t id.Thread, box *outbox) {
	if !box.queued && !box.sending {
		box.queued = true
		q.order = append(q.order, t)
	}
	loop.Poke(q.wake)
}

func (x *outbox) push(o *op) {
	x.ops = append(x.ops, o)
	x.added++
}

// open returns the last op, if it can take more; the first is left alone while it is being sent.
func (x *outbox) open() *op {
	if n := len(x.ops); n > 0 && !x.ops[n-1].forget && (n > 1 || !x.sending) {
		return x.ops[n-1]
	}
	return nil
}

func (x *outbox) add(r *bridge.Record, size int64) {
	o := x.open()
	if o == nil || len(o.records) >= callRecords || o.bytes+size > callBytes {
		o = &op{}
		x.push(o)
	}
	o.records = append(o.records, r)
	o.bytes += size
}

func (x *outbox) lose(r *bridge.Record) {
	o := x.open()
	if o == nil || len(o.records) > 0 {
		o = &op{}
		x.push(o)
	}
	o.dropped++
	o.upTo = r.Offset
	if !r.Kept || r.Ephemeral {
		return // it was not replayable
	}
	if o.lost == nil {
		o.lost = map[id.Run]loss{}
	}
	l := o.lost[r.Run]
	if r.Kind == bridge.Token {
		l.tokens = r.Offset.String()
	} else {
		l.records = r.Offset.String()
	}
	o.lost[r.Run] = l
}

// flushed waits until all records that a thread has in the queue now are sent, or gone is closed.
func (q *queue) flushed(ctx context.Context, t id.Thread, gone <-chan struct{}) error {
	q.mu.Lock()
	box := q.boxes[t]
	if box == nil {
		q.mu.Unlock()
		return nil
	}
	want := box.added
	for box.done < want {
		if box.sent == nil {
			box.sent = make(chan struct{})
		}
		sent := box.sent
		q.mu.Unlock()
		select {
		case <-sent:
		case <-gone:
			return bridge.ErrInterrupted
		case <-q.b.closed:
			return bridge.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		q.mu.Lock()
	}
	q.mu.Unlock()
	return nil
}

// landed returns the offset of the end of a run in Redis.
func (q *queue) landed(t id.Thread, end *bridge.Record) bridge.Offset {
	q.mu.Lock()
	defer q.mu.Unlock()
	if m, ok := q.moved[t]; ok && m.end == end {
		delete(q.moved, t)
		return m.to
	}
	return end.Offset
}

// flush is flushed while Redis is available.
func (q *queue) flush(ctx context.Context, t id.Thread) error {
	q.mu.Lock()
	if q.boxes[t] == nil {
		q.mu.Unlock()
		return nil
	}
	if q.gone == nil {
		q.gone = make(chan struct{})
	}
	gone := q.gone
	q.mu.Unlock()
	if q.away.Load() { // checked last: a later outage closes gone
		return bridge.ErrInterrupted
	}
	return q.flushed(ctx, t, gone)
}

// run sends until ctx ends, and then sends the rest once.
func (q *queue) run(ctx context.Context) error {
	sweep := time.NewTicker(time.Minute)
	defer sweep.Stop()
	// A server that only reads must detect an outage too: what others cannot send never arrives.
	probe := time.NewTicker(max(q.b.opts.Outage/3, minProbe))
	defer probe.Stop()
	defer q.unwatch()
	var calls []*call
	for {
		select {
		case <-ctx.Done():
			rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			for calls = append(calls, q.take()...); len(calls) > 0; calls = append(calls, q.take()...) {
				if calls = q.send(rest, calls); len(calls) > 0 {
					break
				}
			}
			return context.Cause(ctx)
		case <-sweep.C:
			q.sweep()
		case <-probe.C:
			q.sending()
			q.took(ctx, q.probe(ctx))
		case <-q.wake:
			for round := q.waiting(); round > 0 && ctx.Err() == nil; round = q.waiting() {
				began := time.Now()
				for left := round; left > 0 && ctx.Err() == nil; {
					calls = q.take()
					left -= max(len(calls), 1)
					calls = q.persist(ctx, calls)
				}
				if round >= many {
					rest(ctx, pause(round, linger)-time.Since(began))
				}
			}
		}
	}
}

// pause returns how long to collect records when n threads have some to send or read. It grows with n, because each thread costs a call.
func pause(n int, least time.Duration) time.Duration {
	return min(max(least, time.Duration(n)*time.Millisecond/2), lingerMax)
}

// rest waits a while, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// waiting returns the number of threads that have something to send.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order)
}

// persist sends calls until all have arrived or ctx ends. It returns those that have not arrived.
func (q *queue) persist(ctx context.Context, calls []*call) []*call {
	wait := newBackoff()
	for {
		if calls = q.send(ctx, calls); len(calls) == 0 {
			return nil
		}
		if !wait.Sleep(ctx) {
			return calls
		}
	}
}

// newBackoff returns the backoff between attempts to reach Redis.
func newBackoff() loop.Backoff { return loop.NewBackoff(20*time.Millisecond, time.Second) }

// take returns the first op of each thread, up to the size of a pipeline.
func (q *queue) take() []*call {
	times := q.b.times()
	q.mu.Lock()
	defer q.mu.Unlock()
	var calls []*call
	var size int64
	for len(q.order) > 0 && len(calls) < pipelineCall && size < pipelineSize {
		t := q.order[0]
		q.order = q.order[1:]
		box := q.boxes[t]
		box.queued, box.sending = false, true
		o := box.ops[0]
		q.batch++
		c := &call{thread: t, box: box, op: o, script: forgetScript, args: slices.Clone(times)}
		if o.forget {
			c.args = append(c.args, string(o.run), o.until)
			c.args[0] = o.at
		} else {
			c.script, c.args = publishScript, q.publishArgs(c.args, t, o)
		}
		calls = append(calls, c)
		size += o.bytes
	}
	return calls
}

func (q *queue) publishArgs(args []any, t id.Thread, o *op) []any {
	opts := &q.b.opts
	before, born := "", ""
	if sent, ok := q.sent[t]; ok {
		before = sent.last.String()
		if sent.born != (bridge.Offset{}) {
			born = sent.born.String()
		}
	}
	args = append(args, opts.Records, opts.Bytes, opts.LiveRecords, opts.LiveBytes, opts.LiveTTL.Milliseconds(), q.batch, before, born)
	args = append(args, o.dropped, len(o.lost))
	for _, r := range slices.Sorted(maps.Keys(o.lost)) {
		args = append(args, string(r), o.lost[r].tokens, o.lost[r].records)
	}
	if o.dropped > 0 {
		args = append(args, o.upTo.String())
	}
	args = append(args, len(o.records))
	for _, r := range o.records {
		args = append(args, r.Offset.String(), string(r.Run), flagsOf(r), r.Event, r.Data, string(r.Checkpoint), sizeOf(r), r.Attempt, r.Index)
	}
	return args
}

// send tries calls once, in one pipeline, and returns those to retry.
func (q *queue) send(ctx context.Context, calls []*call) (again []*call) {
	q.sending()
	pipe := q.b.client.Pipeline()
	results := make([]*goredis.Cmd, len(calls))
	for i, c := range calls {
		results[i] = c.script.EvalSha(ctx, pipe, q.b.keys(c.thread), c.args...)
	}
	_, _ = pipe.Exec(ctx) // each result has its own error
	unknown := false
	var waits error
	for i, c := range calls {
		err := results[i].Err()
		switch {
		case err == nil:
			ok, at := taken(results[i])
			q.arrived(c, ok, at)
		case goredis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = true
			again = append(again, c)
		case refused(err):
			q.b.opts.Log.ErrorContext(ctx, "redis refused records; they are lost", "thread_id", c.thread, "records", len(c.op.records), "error", err)
			q.b.metrics.refused.Add(float64(len(c.op.records)))
			q.refuse(c)
		default:
			again, waits = append(again, c), err
		}
	}
	if unknown {
		err := q.b.loadScripts(ctx)
		if err == nil {
			return q.send(ctx, again)
		}
		waits = err
	}
	q.took(ctx, waits)
	return again
}

// minProbe is the minimum interval between probes.
const minProbe = 100 * time.Millisecond

// probe writes a small value, which a Redis that is full or read-only refuses like records.
func (q *queue) probe(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, q.b.patience())
	defer cancel()
	return q.b.reader.wake(bounded)
}

// remedy returns advice for the operator when Redis refuses to write.
func remedy(err error) string {
	switch {
	case strings.Contains(err.Error(), "OOM "):
		return "Redis is full: raise maxmemory, or lower --stream-bytes, --stream-records or --resumable-ttl (docs/resources.md, Redis)"
	case goredis.HasErrorPrefix(err, "READONLY"):
		return "name the primary: this Redis is a replica"
	case goredis.HasErrorPrefix(err, "MISCONF"):
		return "Redis cannot write its files: give its disk room, or set stop-writes-on-bgsave-error no"
	case goredis.HasErrorPrefix(err, "WRONGPASS"), goredis.HasErrorPrefix(err, "NOAUTH"), goredis.HasErrorPrefix(err, "NOPERM"),
		strings.Contains(err.Error(), "unauthenticated"): // what a connection that was there before the password gets
		return "correct user and password in --redis-url / REDIS_URI and restart this server, or the rights of the user in Redis"
	case strings.Contains(err.Error(), "redis: can't parse"), strings.Contains(err.Error(), "redis: invalid reply"):
		return "correct the address in --redis-url / REDIS_URI: what listens there is not Redis"
	case isReply(err):
		return "look at the log of Redis"
	}
	return "start Redis, or look at the network"
}

// refused reports whether Redis will never accept a call because a key has the wrong type. All other errors are temporary: it starts, is full, or
// has too many clients.
func refused(err error) bool {
	if !isReply(err) {
		return false
	}
	return goredis.HasErrorPrefix(err, "WRONGTYPE") || strings.HasPrefix(err.Error(), "ERR ") && strings.Contains(err.Error(), "user_script") &&
		!strings.Contains(err.Error(), "OOM")
}

// taken reports whether Redis has stored all of a call, and the offsets of its last record and of the first record of the stream there, zero if not known.
// Redis does not store records of an attempt that was superseded, and does not return offsets for a repeated call.
func taken(result *goredis.Cmd) (whole bool, at sent) {
	answer, err := result.Slice()
	if err != nil || len(answer) != 4 {
		return false, at
	}
	if refused, _ := answer[1].(int64); refused > 0 {
		return false, at
	}
	for i, to := range []*bridge.Offset{&at.last, &at.born} {
		text, _ := answer[2+i].(string)
		if o, err := parseOffset(text); err == nil {
			*to = o
		}
	}
	return true, at
}

// arrived removes a call from its outbox. Only a completely stored call counts as sent: a server that claims to have sent more than Redis has
// signals a loss.
func (q *queue) arrived(c *call, whole bool, at sent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(c.op.records); n > 0 && at.last != (bridge.Offset{}) {
		if end := c.op.records[n-1]; end.Kind == bridge.Terminal && end.Offset != at.last {
			q.moved[c.thread] = moved{end, at.last}
		}
	}
	q.bytes -= c.op.bytes
	q.stuck = false
	q.roomier()
	box := c.box
	box.ops[0] = nil
	box.ops = box.ops[1:]
	box.sending = false
	box.done++
	switch n := len(c.op.records); {
	case !whole:
	case n > 0:
		q.sent[c.thread] = sent{c.op.records[n-1].Offset, at.born}
	case c.op.dropped > 0:
		q.sent[c.thread] = sent{c.op.upTo, at.born}
	}
	if box.sent != nil {
		close(box.sent)
		box.sent = nil
	}
	if len(box.ops) > 0 {
		q.enqueue(c.thread, box)
	} else {
		delete(q.boxes, c.thread)
	}
}

// refuse turns a call that Redis does not accept into a gap.
func (q *queue) refuse(c *call) {
	q.arrived(c, false, sent{})
	if len(c.op.records) == 0 {
		return // not even the gap is accepted
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	box := q.box(c.thread)
	gap := &outbox{}
	for _, r := range c.op.records {
		gap.lose(r)
	}
	if box.sending {
		return
	}
	box.ops = append(gap.ops, box.ops...)
	box.added += gap.added
	q.enqueue(c.thread, box)
}

// remember is for how long publishers can detect that a Redis came back with fewer records than before.
const remember = 10 * time.Minute

// sweep forgets the offsets of idle threads: the clock provides higher ones for their next records.
func (q *queue) sweep() {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.last, func(t id.Thread, o bridge.Offset) bool { return o.MS < now && q.boxes[t] == nil })
	maps.DeleteFunc(q.moved, func(t id.Thread, m moved) bool { return m.to.MS < now-remember.Milliseconds() && q.boxes[t] == nil })
	maps.DeleteFunc(q.sent, func(t id.Thread, s sent) bool {
		return s.last.MS < now-remember.Milliseconds() && q.boxes[t] == nil
	})
}

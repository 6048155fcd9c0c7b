package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/bridge"
	"understudy/compat"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/internal/connection"
)

// Open is a response whose content is sent as it becomes available: an event stream, a wait, or a long list.
//
// To fasthttp it is a body reader. But its first Read writes the whole response to the connection itself, in its own chunks, and then
// returns EOF, after which fasthttp sends the last chunk and continues with the connection. So many events go out in one write, where
// reading would split them into pieces of 4 KB, and unlike a hijacked connection this one stays alive and is counted at shutdown. It
// requires that the head of the response was flushed before (ImmediateHeaderFlush), so that nothing is left in buffers.
type Open struct {
	connection.Outlet
	s    *Transport
	f    run.Follower
	list *List                     // in place of f: an answer with elements
	ids  func(*bridge.Record) bool // reports whether to send a record's id
	form Form                      // writes the records; nil: they are sent as they are
	wait AppendResult              // sends the result, not the records; nil: the records
	req  *Request
	stat int
	from string // browser; "": another client, or no event stream

	buf    []byte
	closed bool
	events int

	watched bool          // see WatchEvents
	beat    time.Duration // between heartbeats; 0: as the transport has it

	withdrawn func(ctx context.Context) bool // whether the credentials of its client were; nil: they cannot be
}

// Causes of the end of an open response, for logs and metrics.
var (
	ErrStuck = connection.ErrStuck
	ErrPanic = errors.New("panic")
)

// ErrWithdrawn ends an open response, or a WebSocket, whose credentials were withdrawn.
var ErrWithdrawn = errors.New("credentials were withdrawn")

var ErrManyStreams = fault.New(fault.Unavailable, "Too many open streams. Try again later.")

// Slot reserves a place for an open response. Call it before creating a run, so that no run is created in vain.
func (t *Transport) Slot() error {
	if !t.Slots.Take(1) {
		return ErrManyStreams
	}
	return nil
}

// StreamEvents answers with the records of f as an event stream. The caller has reserved the slot.
func (t *Transport) StreamEvents(c *fiber.Ctx, f run.Follower, ids func(*bridge.Record) bool) error {
	return t.streamOpen(c, &Open{f: f, ids: ids})
}

// BeatEvents is StreamEvents with a heartbeat at least every so often, for clients that show when a server is silent. The response says how often.
func (t *Transport) BeatEvents(c *fiber.Ctx, f run.Follower, ids func(*bridge.Record) bool, every time.Duration) error {
	every = min(every, t.Heartbeat)
	c.Set(compat.HeartbeatHeader, strconv.FormatInt(every.Milliseconds(), 10))
	return t.streamOpen(c, &Open{f: f, ids: ids, beat: every})
}

// frame is how often a screen draws. What a client draws need not arrive in more pieces.
const frame = 16 * time.Millisecond

// fewWatched streams that bring something at the same time are written to once a frame, more of them once in manyFrames: most of what they cost is waking up
// and writing.
const (
	fewWatched = 4
	manyFrames = 3
)

// WatchEvents is StreamEvents for clients that look on while runs are executed: records that follow one another within the time of a frame are sent together.
// The first one after a pause is sent at once.
func (t *Transport) WatchEvents(c *fiber.Ctx, f run.Follower, ids func(*bridge.Record) bool) error {
	return t.streamOpen(c, &Open{f: f, ids: ids, watched: true})
}

// Form writes the records of a run as the events of another protocol.
type Form interface {
	// Append appends what the client is sent for a record; nothing, when it is for the server.
	Append(dst []byte, r *bridge.Record) []byte
	// End appends the end of the stream: the run has ended.
	End(dst []byte) []byte
}

// StreamForm answers with what form makes of the records of f. The caller has reserved the slot.
func (t *Transport) StreamForm(c *fiber.Ctx, f run.Follower, form Form) error {
	return t.streamOpen(c, &Open{f: f, form: form})
}

func (t *Transport) streamOpen(c *fiber.Ctx, o *Open) error {
	setEventStream(c)
	return t.answer(c, o)
}

// SendEvents answers with an event stream that is complete.
func SendEvents(c *fiber.Ctx, events []byte) error {
	setEventStream(c)
	return c.Send(events)
}

// AsItIs is the Cache-Control of an event stream that passes proxies which compress what they may, as the server of DeerFlow's web UI does: compressed, events
// arrive together at the end. A handler that sets it before it streams keeps it.
const AsItIs = "no-cache, no-store, no-transform"

func setEventStream(c *fiber.Ctx) {
	if c.GetRespHeader(fiber.HeaderCacheControl) != AsItIs {
		c.Set(fiber.HeaderCacheControl, "no-store")
	}
	c.Set("X-Accel-Buffering", "no")
	c.Set(fiber.HeaderContentType, "text/event-stream; charset=utf-8")
}

// Patience is how long to wait for a result before the answer begins. A result within that time is sent in one write, without watching whether
// the client leaves.
const Patience = 250 * time.Millisecond

// AppendResult writes the result of a run in a form of the wire.
type AppendResult func(dst []byte, res run.Result) []byte

// WaitResult answers with the result of f as JSON, and sends line ends as heartbeats before it. The caller has reserved the
// slot.
func (t *Transport) WaitResult(c *fiber.Ctx, f run.Follower, result AppendResult) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	if res, ok := soon(c.UserContext(), f); ok {
		f.Close(false)
		t.Slots.Give(1)
		t.Metrics.Ended.WithLabelValues(Ended(nil)).Inc()
		c.Response().SetBodyRaw(result(nil, res))
		return nil
	}
	if err := f.EnsureDurable(c.UserContext()); err != nil {
		f.Close(false)
		t.Slots.Give(1)
		Unlocate(c)
		return err
	}
	return t.answer(c, &Open{f: f, wait: result})
}

// soon returns the result if it is available in time. All other outcomes are left to an open response, which asks again.
func soon(ctx context.Context, f run.Follower) (res run.Result, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			ok = false
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	res, err := f.Result(ctx)
	return res, err == nil
}

func (t *Transport) answer(c *fiber.Ctx, o *Open) error {
	if c.Method() == fiber.MethodHead {
		// fasthttp ends chunked answers with a line end even when they have no body.
		o.close(false)
		t.Slots.Give(1)
		return nil
	}
	o.s, o.Outlet, o.req, o.stat = t, t.Outlets.Of(c.Context().Conn()), Of(c), c.Response().StatusCode()
	o.req.Streamed = true
	if o.wait == nil && o.list == nil {
		o.from = browserOf(c)
	}
	if t.Follow != nil && o.list == nil {
		o.withdrawn = t.Follow(c)
	}
	t.tabs.begin(o.from)
	t.Metrics.Streams.Inc()
	if o.list == nil { // a shutdown waits for lists, as they end by themselves
		o.Enlist()
	}
	c.Response().ImmediateHeaderFlush = true
	c.Response().SetBodyStream(o, -1)
	return nil
}

// Read sends the response. It is called once and returns no bytes, only the end. An error other than io.EOF makes fasthttp drop
// the connection without a last chunk, so that clients can distinguish a stream that was cut, and reconnect, from one whose run
// is over.
func (o *Open) Read([]byte) (int, error) {
	err := o.send()
	o.end(err)
	if err == nil {
		err = io.EOF
	}
	return 0, err
}

// Close is called by fasthttp at the end. It is needed when Read was never called, because the head could not be written.
func (o *Open) Close() error {
	o.end(ErrLeft)
	return nil
}

// end releases everything, once.
func (o *Open) end(err error) {
	if o.closed {
		return
	}
	o.closed = true
	o.close(errors.Is(err, ErrLeft) || errors.Is(err, ErrStuck) || errors.Is(err, ErrWithdrawn))
	o.Delist()
	o.s.Slots.Give(1)
	o.s.tabs.end(o.from)
	o.s.Metrics.Streams.Dec()
	why := Ended(err)
	o.s.Metrics.Ended.WithLabelValues(why).Inc()
	o.s.Metrics.Events.Add(float64(o.events))
	o.s.Done(o.req, o.stat, why)
}

func (o *Open) close(left bool) {
	if o.list != nil {
		o.list.done()
		return
	}
	o.f.Close(left)
}

// Ended returns the name of the cause of an open response's end.
func Ended(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, ErrLeft):
		return "left"
	case errors.Is(err, ErrStuck):
		return "stuck"
	case errors.Is(err, bridge.ErrInterrupted):
		return "interrupted"
	case errors.Is(err, bridge.ErrSlow):
		return "slow"
	case errors.Is(err, ErrWithdrawn):
		return "withdrawn"
	case errors.Is(err, ErrShutdown), errors.Is(err, bridge.ErrClosed):
		return "shutdown"
	}
	return "failed"
}

// send writes the response to its end; nil when it is complete.
func (o *Open) send() (err error) {
	defer func() {
		if p := recover(); p != nil {
			o.s.Log.Error("panic in a stream", "request_id", o.req.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
		if err != nil && Ended(err) == "failed" && !errors.Is(err, ErrPanic) {
			o.s.Failures.Add("stream failed", o.req, err)
		}
	}()
	life := o.s.Life(o.req)
	of := life
	if o.list != nil {
		life, of = o.s.Requests, o.list.ctx
	}
	ctx, cancel := context.WithCancelCause(of)
	defer cancel(nil)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	stop := connection.Watch(o.Conn, func() { cancel(ErrLeft) })
	defer stop()
	switch {
	case o.list != nil:
		return o.sendList(ctx)
	case o.wait != nil:
		return o.sendResult(ctx)
	}
	return o.sendEvents(ctx)
}

func (o *Open) sendEvents(ctx context.Context) error {
	if b, ok := o.form.(interface{ Begin(dst []byte) []byte }); ok { // it does not wait for a record
		if err := o.Write(b.Begin); err != nil {
			return err
		}
	}
	every, checked := cmp.Or(o.beat, o.s.Heartbeat), time.Now()
	for beat := checked.Add(every); ; beat = beat.Add(every) {
		err := o.sendUntil(ctx, beat)
		if err == nil && o.form != nil {
			return o.Write(o.form.End)
		}
		if !errors.Is(err, ErrBeat) {
			return err
		}
		if o.withdrawn != nil && beat.Sub(checked) >= o.s.Heartbeat {
			if checked = beat; o.withdrawn(ctx) {
				return ErrWithdrawn
			}
		}
		if err := o.Write(func(dst []byte) []byte { return append(dst, compat.Heartbeat...) }); err != nil {
			return err
		}
	}
}

// ErrBeat ends a period between heartbeats.
var ErrBeat = errors.New("heartbeat is due")

// sendUntil writes events until the next heartbeat is due. One context serves all reads of the period.
func (o *Open) sendUntil(ctx context.Context, beat time.Time) error {
	period, cancel := context.WithDeadline(ctx, beat)
	defer cancel()
	for {
		records, err := o.f.Next(period)
		if len(records) > 0 {
			if err := o.writeRecords(records); err != nil {
				return err
			}
			if o.watched && err == nil && len(records) < manyRecords {
				o.rest(period)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case period.Err() != nil:
			return ErrBeat
		case errors.Is(err, bridge.ErrSlow):
			if err := o.Write(func(dst []byte) []byte { return append(dst, compat.Interrupted...) }); err != nil {
				return err
			}
			return err
		default:
			return err
		}
		if period.Err() != nil && ctx.Err() == nil {
			return ErrBeat // also in a continuous flow of events
		}
	}
}

// manyRecords are enough for one write: a stream that is behind does not wait for more.
const manyRecords = 64

// rest lets records gather until the next frame. All streams begin their frames at the same moments, so the process wakes up once for all of them.
func (o *Open) rest(ctx context.Context) {
	pace := frame
	if o.s.resting.Add(1) > fewWatched { // a stream that brings something rests most of the time
		pace *= manyFrames
	}
	defer o.s.resting.Add(-1)
	now := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(now.Truncate(pace).Add(pace).Sub(now)):
	}
}

// batchBytes is the approximate size of one write. Larger batches should get a new deadline.
const batchBytes = 256 << 10

func (o *Open) writeRecords(records []*bridge.Record) error {
	for len(records) > 0 {
		n := 0
		err := o.Write(func(dst []byte) []byte {
			for n < len(records) && (n == 0 || len(dst) < batchBytes) {
				r := records[n]
				n++
				if r.Event == "" && r.Frame == nil {
					continue // the end of a run, with nothing to send
				}
				if o.form != nil {
					dst = o.form.Append(dst, r)
				} else {
					dst = compat.AppendRecord(dst, r, o.ids(r))
				}
				o.events++
			}
			return dst
		})
		if err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

func (o *Open) sendResult(ctx context.Context) error {
	type answer struct {
		result run.Result
		err    error
	}
	got := make(chan answer, 1)
	inner, cancel := context.WithCancelCause(ctx)
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				o.s.Log.Error("panic in a wait", "request_id", o.req.ID, "panic", p, "stack", string(debug.Stack()))
				a.err = fmt.Errorf("%w: %v", ErrPanic, p)
			}
			got <- a
		}()
		a.result, a.err = o.f.Result(inner)
	}()
	over := func(err error) error {
		cancel(err)
		<-got // the follower must not be closed during a call
		return err
	}
	beats := time.NewTicker(o.s.Heartbeat)
	defer beats.Stop()
	for {
		select {
		case a := <-got:
			cancel(nil)
			switch {
			case a.err == nil:
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(a.err, bridge.ErrClosed), errors.Is(a.err, bridge.ErrSlow), errors.Is(a.err, ErrPanic):
				return a.err
			default:
				status, text, worth := Explain(a.err)
				if worth {
					o.s.Failures.Add("wait failed", o.req, a.err)
				}
				a.result = run.Result{Error: compat.HTTPError(status, text)}
			}
			return o.Write(func(dst []byte) []byte { return o.wait(dst, a.result) })
		case <-beats.C:
			if o.withdrawn != nil && o.withdrawn(ctx) {
				return over(ErrWithdrawn)
			}
			if err := o.Write(func(dst []byte) []byte { return append(dst, '\n') }); err != nil {
				return over(err)
			}
		case <-ctx.Done():
			return over(context.Cause(ctx))
		}
	}
}

// chunkHead reserves space for the size of a chunk, known once the chunk is complete.
const chunkHead = "00000000\r\n"

// Write sends the bytes that fill appends as one chunk.
func (o *Open) Write(fill func(dst []byte) []byte) error {
	o.buf = fill(append(o.buf[:0], chunkHead...))
	return o.writeChunk()
}

// writeChunk sends the content of the buffer, which begins with space for the size.
func (o *Open) writeChunk() error {
	size := len(o.buf) - len(chunkHead)
	if size == 0 {
		return nil // an empty chunk would be the last
	}
	const digits = "0123456789abcdef"
	for i, n := 7, size; n > 0; i, n = i-1, n>>4 {
		o.buf[i] = digits[n&15]
	}
	o.buf = append(o.buf, '\r', '\n')
	err := o.WriteAll(o.buf)
	if cap(o.buf) > 2*batchBytes && o.list == nil {
		o.buf = nil // do not keep the buffer of a large state for the whole stream
	}
	return err
}

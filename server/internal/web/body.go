package web

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"understudy/internal/fault"
	"understudy/server/internal/connection"
)

const (
	firstRead = 16 << 10
	// A body of known length gets the memory that serving it takes, in one piece, when this part of it has arrived.
	arrivedPart, arrivedBytes = 8, 8 << 20
)

// BodyCopies is the memory of a request in multiples of its body size: as received, as processed (checked, decoded, encoded for the storage), and as
// the storage's own copy.
const BodyCopies = 3

var errBusy = fault.New(fault.Unavailable, "Too much is being uploaded at the moment, try again")

// Received looks at the head of a request before fasthttp waits for its body. A body that is certain to be refused is not waited for: the handlers
// see a request without one, and answer at once.
func (t *Transport) Received(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	head, ok := Framed(h)
	if !ok || t.refuses(head.Length) != nil {
		h.SetContentLength(0)
		h.SetConnectionClose()
		h.Del(fiber.HeaderExpect) // the client is not asked for the body
	}
	return fasthttp.RequestConfig{}
}

// refuses returns the error for a body of so many bytes that cannot be admitted now.
func (t *Transport) refuses(size int64) error {
	switch {
	case size > t.MaxBody:
		return t.TooLarge()
	case size > 0 && !t.Bodies.Has(BodyCopies*size):
		return errBusy
	}
	return nil
}

// Body reads the body of a request into memory of its own, which services may keep. release returns the bytes to the budget. The
// caller calls it when the request has been handed over, also after an error.
//
// Memory is taken when a part of the body has arrived, not as a header announces, so that clients that announce much and send nothing hold little.
func (t *Transport) Body(c *fiber.Ctx) (body []byte, release func(), err error) {
	var taken int64
	held := 0 // bytes that were allocated
	release = func() {
		t.Bodies.Give(taken)
		t.reclaim(held)
	}
	r := Of(c)
	if e := r.early; e != nil {
		r.early = nil
		return e.body, e.release, e.err
	}
	if r.Unwanted > 0 {
		if err := t.refuses(r.Unwanted); err != nil {
			return nil, release, err
		}
		return nil, release, errBusy // there is room by now, but the body was given up
	}
	size := int64(c.Request().Header.ContentLength()) // -1: chunked
	in := c.Context().RequestBodyStream()
	if in == nil {
		r.BodyRead = true
		return append([]byte{}, c.Request().Body()...), release, nil
	}
	conn := c.Context().Conn()
	for {
		if len(body) == cap(body) {
			if int64(len(body)) > t.MaxBody {
				return nil, release, t.TooLarge()
			}
			grow, copies := int64(max(firstRead, 2*cap(body))), int64(BodyCopies)
			if size >= 0 {
				part := max(firstRead, min(size/arrivedPart, arrivedBytes))
				if int64(len(body)) < part && part <= size {
					grow, copies = min(grow, part), 1
				} else {
					grow = size + 1 // one more, to reach EOF without growing again
				}
			}
			grow = min(grow, t.MaxBody+1)
			// The copies made while serving are counted before they exist: uploads that would not fit later are refused before they fill the memory.
			more := copies*min(grow, t.MaxBody) - taken
			if !t.Bodies.Take(more) {
				return nil, release, errBusy
			}
			taken, held = taken+more, held+int(grow)
			body = append(make([]byte, 0, grow), body...)
		}
		_ = conn.SetReadDeadline(time.Now().Add(t.BodyTimeout))
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF:
			if size >= 0 && int64(len(body)) < size {
				return nil, release, ErrLeft
			}
			if size < 0 && connection.BrokeOff(conn) {
				c.Context().SetConnectionClose()
				return nil, release, errBroken
			}
			if int64(len(body)) > t.MaxBody {
				return nil, release, t.TooLarge()
			}
			r.BodyRead = true
			t.Bodies.Give(taken - BodyCopies*int64(len(body)))
			taken = BodyCopies * int64(len(body))
			return body, release, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, release, fiber.ErrRequestTimeout
		case err != nil:
			c.Context().SetConnectionClose()
			return nil, release, fault.Wrap(fault.Invalid, "The request body could not be read", err)
		}
	}
}

// WithBody reads the body of a request and passes it to h.
func (t *Transport) WithBody(c *fiber.Ctx, h func(body []byte) error) error {
	body, release, err := t.Body(c)
	defer release()
	if err != nil {
		return err
	}
	return h(body)
}

// TooLarge returns the error for a body of more than MaxBody bytes.
func (t *Transport) TooLarge() error {
	return fault.Newf(fault.TooLarge, "Request body is larger than %d bytes", t.MaxBody)
}

const (
	// reclaimBytes is how much released memory is worth a garbage collection.
	reclaimBytes = 64 << 20
	// reclaimDelay is the time until callers do not have a released body on their stacks any more.
	reclaimDelay = 100 * time.Millisecond
)

// reclaim returns the memory of large bodies to the system soon. The runtime would keep it until the heap has doubled, or for minutes when the server
// is idle.
func (t *Transport) reclaim(n int) {
	if n < 1<<20 || t.released.Add(int64(n)) < reclaimBytes || !t.reclaiming.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(reclaimDelay, func() {
		t.released.Store(0)
		t.reclaiming.Store(false)
		debug.FreeOSMemory()
	})
}

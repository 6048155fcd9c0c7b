package server

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/fault"
)

const (
	firstRead = 16 << 10
	// Limit of unread body bytes to discard. Otherwise clients that are still sending see a reset instead of the answer.
	discardBytes = 1 << 30
	discardTime  = 5 * time.Second
)

// bodyCopies is the memory of a request in multiples of its body size: as received, as processed (checked, decoded, encoded for the storage), and as
// the storage's own copy.
const bodyCopies = 3

var errBusy = fault.New(fault.Unavailable, "Too many uploads in flight. Try again later.")

// body reads the body of a request into memory of its own, which services may keep. release returns the bytes to the budget. The
// caller calls it when the request has been handed over, also after an error.
//
// Memory is taken as bytes arrive, not as a header announces, so that clients that announce much and send slowly hold little.
func (s *Server) body(c *fiber.Ctx) (body []byte, release func(), err error) {
	var taken int64
	release = func() { s.bodies.give(taken) }
	r := requestOf(c)
	size := int64(c.Request().Header.ContentLength()) // -1: chunked
	if size > s.opts.MaxBody {
		return nil, release, s.tooLarge()
	}
	in := c.Context().RequestBodyStream()
	if in == nil {
		r.bodyRead = true
		return append([]byte{}, c.Request().Body()...), release, nil
	}
	conn := c.Context().Conn()
	for {
		if len(body) == cap(body) {
			grow := int64(max(firstRead, 2*cap(body)))
			if size >= 0 {
				grow = min(grow, size+1) // one more, to reach EOF without growing again
			}
			grow = min(grow, s.opts.MaxBody+1)
			if int64(len(body)) > s.opts.MaxBody {
				return nil, release, s.tooLarge()
			}
			// The copies made while serving are counted from the beginning: uploads that would not fit later are refused before they fill the memory.
			more := bodyCopies*min(grow, s.opts.MaxBody) - taken
			if !s.bodies.take(more) {
				return nil, release, errBusy
			}
			taken += more
			body = append(make([]byte, 0, grow), body...)
		}
		_ = conn.SetReadDeadline(time.Now().Add(s.opts.BodyTimeout))
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF:
			if size >= 0 && int64(len(body)) < size {
				return nil, release, errLeft
			}
			if size < 0 && brokeOff(conn) {
				c.Context().SetConnectionClose()
				return nil, release, errBroken
			}
			if int64(len(body)) > s.opts.MaxBody {
				return nil, release, s.tooLarge()
			}
			r.bodyRead = true
			s.bodies.give(taken - bodyCopies*int64(len(body)))
			taken = bodyCopies * int64(len(body))
			return body, release, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, release, fiber.ErrRequestTimeout
		case err != nil:
			c.Context().SetConnectionClose()
			return nil, release, fault.Wrap(fault.Invalid, "The request body could not be read", err)
		}
	}
}

func (s *Server) tooLarge() error {
	return fault.Newf(fault.TooLarge, "Request body is larger than %d bytes", s.opts.MaxBody)
}

// discardBody reads what is left of a body that no handler read, or closes the connection after the answer: fasthttp would take the
// rest for the next request.
func (s *Server) discardBody(c *fiber.Ctx) {
	in := c.Context().RequestBodyStream()
	if in == nil || c.Request().Header.ContentLength() == 0 {
		return
	}
	_ = c.Context().Conn().SetReadDeadline(time.Now().Add(discardTime))
	if n, err := io.CopyN(io.Discard, in, discardBytes); !errors.Is(err, io.EOF) || n == discardBytes {
		c.Context().SetConnectionClose()
	}
}

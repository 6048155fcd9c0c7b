package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/gofiber/fiber/v2"
)

const (
	// restBytes and Config.BodyRest bound what is read of a body that no handler wants, so that the connection can be used again.
	restBytes = 256 << 10
	// lingerIdle and lingerTime bound how long more of it is dropped after the answer. A connection that is closed while its client sends is reset,
	// and the client may lose the answer.
	lingerIdle = 5 * time.Second
	lingerTime = 30 * time.Second
)

// Finish deals with a body that no handler read. fasthttp would take the rest for the next request.
func (t *Transport) Finish(c *fiber.Ctx) {
	if Of(c).Unwanted == 0 {
		in, size := c.Context().RequestBodyStream(), c.Request().Header.ContentLength()
		if in == nil || size == 0 {
			return
		}
		if size <= restBytes { // or unknown
			_ = c.Context().Conn().SetReadDeadline(time.Now().Add(t.bodyRest))
			if _, err := io.CopyN(io.Discard, in, restBytes); errors.Is(err, io.EOF) {
				return
			}
		}
	}
	if c.Response().IsBodyStream() {
		c.Context().SetConnectionClose()
		return
	}
	t.linger(c)
}

// linger answers now, and drops what still comes before it closes the connection.
func (t *Transport) linger(c *fiber.Ctx) {
	res := c.Response()
	res.Header.SetConnectionClose()
	res.SkipBody = c.Method() == fiber.MethodHead
	var answer bytes.Buffer
	w := bufio.NewWriter(&answer)
	if res.Write(w) != nil || w.Flush() != nil {
		c.Context().SetConnectionClose()
		return
	}
	raw := c.Context().Conn()
	// Only there all earlier answers on the connection have been sent.
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		defer raw.Close()
		if !t.Lingering.Enter() {
			return
		}
		defer t.Lingering.Leave()
		defer context.AfterFunc(t.Streaming, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
		_ = raw.SetWriteDeadline(time.Now().Add(lingerIdle))
		if _, err := raw.Write(answer.Bytes()); err != nil {
			return
		}
		if half, ok := raw.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // nothing else comes
		}
		dropped := make([]byte, 16<<10)
		for end := time.Now().Add(lingerTime); ; {
			until := time.Now().Add(lingerIdle)
			if until.After(end) {
				until = end
			}
			_ = raw.SetReadDeadline(until)
			if t.Streaming.Err() != nil { // checked after the deadline, as the end may have set one before
				return
			}
			if _, err := conn.Read(dropped); err != nil {
				return
			}
		}
	})
}

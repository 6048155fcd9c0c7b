package web

import (
	"bytes"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/compress"
)

const (
	// compressFrom is the size in bytes from which an answer is compressed: smaller ones fit into a few packets anyway.
	compressFrom = 8 << 10
	// encodersAtOnce bounds how many answers are compressed at a time, each with up to 3 MiB of memory. Others are sent as they are.
	encodersAtOnce = 32
)

// encoder returns an encoder for a long answer, and sets its headers; nil when the answer is sent as it is.
func (t *Transport) encoder(c *fiber.Ctx) *compress.Encoder {
	c.Vary(fiber.HeaderAcceptEncoding)
	if c.Method() == fiber.MethodHead {
		return nil
	}
	e := t.Encoders.Begin(compress.Choose(c.Get(fiber.HeaderAcceptEncoding)))
	if e != nil {
		c.Set(fiber.HeaderContentEncoding, string(e.Coding))
	}
	return e
}

// Compress compresses a whole answer, if it is long and its client accepts that. Streams of events are never compressed, because a proxy or a client that
// decompresses may hold back an event until the next one.
func (t *Transport) Compress(c *fiber.Ctx) {
	res := c.Response()
	if res.IsBodyStream() || len(res.Header.Peek(fiber.HeaderContentEncoding)) > 0 || len(res.Body()) < compressFrom || !isText(res.Header.ContentType()) {
		return
	}
	if e := t.encoder(c); e != nil {
		res.SetBodyRaw(e.Append(make([]byte, 0, len(res.Body())/4), res.Body(), true))
		e.Release()
	}
}

// isText reports whether content of a type becomes smaller when it is compressed.
func isText(contentType []byte) bool {
	for _, kind := range []string{"application/json", "text/", "application/javascript", "application/yaml", "image/svg+xml"} {
		if bytes.HasPrefix(contentType, []byte(kind)) {
			return true
		}
	}
	return false
}

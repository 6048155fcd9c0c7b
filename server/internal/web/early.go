package web

import "github.com/gofiber/fiber/v2"

// maxEarly is the size of bodies that fasthttp has read with the head, so that reading them waits for nothing.
const maxEarly = 8 << 10

// early is a body that was read before its request was served: what Body returned.
type early struct {
	body    []byte
	release func()
	err     error
}

// Early returns the body of a request that arrived with its head, before the request is served; Body returns it again. nil: there is none, or it is larger.
func (t *Transport) Early(c *fiber.Ctx) []byte {
	r := Of(c)
	if size := c.Request().Header.ContentLength(); r.early == nil && (size <= 0 || size > maxEarly || r.Unwanted > 0) {
		return nil
	}
	if r.early == nil {
		body, release, err := t.Body(c)
		r.early = &early{body, release, err}
	}
	return r.early.body
}

// Unused gives back what Early has taken for a request that did not use it.
func (t *Transport) Unused(r *Request) {
	if r.early != nil {
		r.early.release()
		r.early = nil
	}
}

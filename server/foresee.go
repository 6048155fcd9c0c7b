package server

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/internal/idempotency"
	"understudy/server/internal/web"
)

// Foresight returns what a request is going to ask about who sends it, beginning with the first question: nil if that is not known, or if something else than an
// answer may refuse the request before. A server that has no place for another stream refuses it afterwards, as who is not known yet gets none.
type Foresight func(r *Unserved) []access.Expected

// Unserved is a request whose sender is not known yet.
type Unserved struct {
	s              *Server
	c              *fiber.Ctx
	ctx            context.Context //nolint:containedctx // of the request
	route, segment []string        // of the path
}

// Param returns a parameter of the path.
func (u *Unserved) Param(name string) string {
	for i, s := range u.route {
		if s == "{"+name+"}" {
			return web.Unescaped(u.segment[i])
		}
	}
	return ""
}

// Context is that of the request, in which there is no actor yet.
func (u *Unserved) Context() context.Context { return u.ctx }

// Query returns the first value of a parameter of the query; "" when it is absent.
func (u *Unserved) Query(name string) string { return u.c.Query(name) }

// Queries returns all values of a parameter of the query.
func (u *Unserved) Queries(name string) []string { return web.Queries(u.c, name) }

// Opened is Queries with the places in lists opened.
func (u *Unserved) Opened(name string) []string { return queriesOf(u.c, u.s.opts.Cursors)(name) }

// Open returns a place in a list that the server has sealed.
func (u *Unserved) Open(sealed string) string { return u.s.opts.Cursors.Open(sealed) }

// Given returns a parameter of the query; nil when it is absent.
func (u *Unserved) Given(name string) *string { return web.Given(u.c, name) }

// Header returns a header.
func (u *Unserved) Header(name string) string { return u.c.Get(name) }

// CheckKey returns what is wrong with the idempotency key of the request; nil also when it has none.
func (u *Unserved) CheckKey() error {
	if u.c.Request().Header.Peek(idempotency.Header) == nil {
		return nil
	}
	return idempotency.Valid(u.c.Get(idempotency.Header))
}

// Body returns a copy of the body of a small request, as decoding overwrites it; nil when it is large, or there is none.
func (u *Unserved) Body() []byte { return bytes.Clone(u.s.Early(u.c)) }

// foresee returns what a request is going to ask, if nothing but an answer can refuse it before.
func (s *Server) foresee(c *fiber.Ctx, ctx context.Context) []access.Expected { //nolint:revive // the context is that of the request
	if len(s.opts.Foresee) == 0 || s.opts.Encryption != nil { // its handlers are asked in between
		return nil
	}
	if _, err := overlayOf(c); err != nil {
		return nil
	}
	method, segments := c.Method(), strings.Split(c.Path(), "/")
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for i := range s.patterns { // the first that matches serves the request
		if p := &s.patterns[i]; p.method == method && p.matches(segments) {
			if p.foresee == nil {
				return nil
			}
			return p.foresee(&Unserved{s, c, ctx, p.segments, segments})
		}
	}
	return nil
}

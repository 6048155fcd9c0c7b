package server

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// mounted is the key of the context of the net/http request behind a request.
type mounted struct{}

// ServeHTTP answers a request without a body for a server on net/http that has some routes of this one. It does not support open responses,
// which need a connection of their own. Services see the context of r.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c fasthttp.RequestCtx
	c.Init(&fasthttp.Request{}, nil, nil)
	c.Request.Header.SetMethod(r.Method)
	c.Request.SetRequestURI(r.RequestURI)
	c.Request.Header.SetHost(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			c.Request.Header.Add(name, v)
		}
	}
	c.Request.Header.Del(fiber.HeaderContentLength)
	c.Request.Header.Del(fiber.HeaderTransferEncoding)
	c.SetUserValue(mounted{}, r.Context())
	s.app.Handler()(&c)
	c.Response.Header.VisitAll(func(name, value []byte) {
		if string(name) != fiber.HeaderContentLength { // net/http counts for itself
			w.Header().Add(string(name), string(value))
		}
	})
	w.WriteHeader(c.Response.StatusCode())
	_, _ = w.Write(c.Response.Body()) // which net/http leaves out of an answer to HEAD
}

// lifeOf is how long a request lives: as long as the server, or as the one that it stands for.
func (s *Server) lifeOf(c *fiber.Ctx) context.Context {
	if ctx, ok := c.Context().UserValue(mounted{}).(context.Context); ok {
		return ctx
	}
	return s.Requests
}

// CORS sets the headers of a cross-origin request on an answer that is not from a route of this server.
func (s *Server) CORS(h http.Header, r *http.Request) {
	var c fasthttp.RequestCtx
	c.Init(&fasthttp.Request{}, nil, nil)
	c.Request.Header.SetMethod(http.MethodGet)
	c.Request.Header.Set(fiber.HeaderOrigin, r.Header.Get(fiber.HeaderOrigin))
	f := s.app.AcquireCtx(&c)
	defer s.app.ReleaseCtx(f)
	s.cors(f)
	for _, name := range []string{
		fiber.HeaderAccessControlAllowOrigin, fiber.HeaderAccessControlAllowCredentials, fiber.HeaderAccessControlExposeHeaders, fiber.HeaderVary,
	} {
		if v := c.Response.Header.Peek(name); len(v) > 0 {
			h.Set(name, string(v))
		}
	}
}

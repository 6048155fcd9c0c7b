package server

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/gate"
	"understudy/internal/jsonobj"
	"understudy/server/internal/web"
)

// maxRaised bounds what a handler of the application answers to an error of the API.
const maxRaised = 1 << 20

// raised lets the exception handlers of the application answer an error of the API, as LangGraph Server does, and reports whether they have. A request that has
// passed the middleware of the application is answered with a mark, and they see it there.
//
// Errors of the server itself are none of theirs, nor are those of authentication and of schemas.
func (s *Server) raised(c *fiber.Ctx, status int, text string, err error) bool {
	app, i := s.opts.App, insideOf(c)
	if app == nil || i != nil && i.outer == nil || web.Of(c).Route == frontRoute {
		return false
	}
	if about := app.Application(); about == nil || !about.Handles {
		return false
	}
	r := &gate.Raised{Status: status, Detail: jsonobj.Quote(text)}
	denied := (*access.Refusal)(nil)
	switch {
	case errors.As(err, &denied) && denied.Detail != nil:
		r.Detail = denied.Detail
		r.Header = denied.Header
	case status < http.StatusBadRequest, status >= http.StatusInternalServerError, strings.Contains(text, "\n\nFailed validating "):
		return false
	}
	if s.opts.Authenticator != nil && web.Of(c).Actor == nil && !s.isOpen(c.Method(), c.Path()) {
		return false
	}
	if _, body := s.failOpenAI(c, status, text, err); body != nil {
		return false
	}
	if i != nil {
		c.Response().Header.Set(gate.RaisedHeader, "1")
		return false
	}
	return s.answerRaised(c, app, r, text)
}

// answerRaised asks the application for its answer to an error. If there is none, the error is answered as without the application.
func (s *Server) answerRaised(c *fiber.Ctx, app Application, raised *gate.Raised, text string) bool {
	r := &gate.Request{Request: *s.requestFor(c), RawPath: string(c.Request().URI().PathOriginal()), Actor: web.Of(c).Actor, Raised: raised}
	r.WebSocket = false
	response, err := app.Serve(s.lifeOf(c), r)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRaised+1))
	if err != nil || len(body) > maxRaised {
		return false
	}
	web.Of(c).Reason = web.Bounded(text, web.MaxReason)
	c.Response().Header.Del(fiber.HeaderContentType)
	addHeader(c, response.Header)
	c.Status(response.StatusCode).Response().SetBodyRaw(body)
	return true
}

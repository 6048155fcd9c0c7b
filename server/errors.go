package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/bridge"
	"understudy/compat"
	"understudy/internal/fault"
	"understudy/server/internal/connection"
)

// statuses maps the kinds of faults to HTTP statuses.
var statuses = map[fault.Kind]int{
	fault.Internal:      http.StatusInternalServerError,
	fault.Invalid:       http.StatusBadRequest,
	fault.Unauthorized:  http.StatusUnauthorized,
	fault.Forbidden:     http.StatusForbidden,
	fault.NotFound:      http.StatusNotFound,
	fault.Conflict:      http.StatusConflict,
	fault.TooLarge:      http.StatusRequestEntityTooLarge,
	fault.Unprocessable: http.StatusUnprocessableEntity,
	fault.NotSupported:  http.StatusNotImplemented,
	fault.Unavailable:   http.StatusServiceUnavailable,
	fault.Upstream:      http.StatusBadGateway,
}

// errLeft is the cause of requests that end because the client closed the connection.
var errLeft = connection.ErrLeft

// answerer is an error that contains the complete answer of an upstream server.
type answerer interface {
	error
	Answer() (status int, header http.Header, body []byte)
}

// explain returns the status and the text for an error, and whether to log it: our own faults are logged, clients' are
// not.
func explain(err error) (status int, text string, worth bool) {
	var fe *fiber.Error
	var f *fault.Error
	var r *access.Refusal
	switch {
	case errors.As(err, &r):
		return r.Status, r.Text(), r.Status >= 500
	case errors.As(err, &f):
		status = statuses[f.Kind]
		if f.Kind == fault.Internal {
			return status, http.StatusText(status), true
		}
		return status, f.Message, f.Kind == fault.Unavailable || f.Kind == fault.Upstream
	case errors.As(err, &fe):
		return fe.Code, http.StatusText(fe.Code), fe.Code >= 500
	case errors.Is(err, bridge.ErrInterrupted):
		return http.StatusServiceUnavailable, "Live streams are interrupted, try again", false
	case errors.Is(err, ErrShutdown), errors.Is(err, bridge.ErrClosed):
		return http.StatusServiceUnavailable, "The server is shutting down", false
	case errors.Is(err, errLeft), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), false
	}
	return http.StatusInternalServerError, http.StatusText(http.StatusInternalServerError), true
}

// plainReason returns the text of a body {"detail": "…"}, or any other body as it is.
func plainReason(body []byte) string {
	if detail := gjson.GetBytes(body, "detail"); gjson.ValidBytes(body) && detail.Type == gjson.String {
		return detail.Str
	}
	return string(body)
}

// fail writes the answer to a request that failed.
func (s *Server) fail(c *fiber.Ctx, err error) error {
	status, text, worth := explain(err)
	if status == http.StatusNotFound {
		if strings.HasSuffix(c.Path(), "/") && redirected(s, c) {
			return nil
		}
		requestOf(c).miss(c)
	}
	if a := answerer(nil); errors.As(err, &a) {
		status, header, body := a.Answer()
		requestOf(c).reason = bounded(plainReason(body), maxReason)
		if r := (*access.Refusal)(nil); errors.As(err, &r) && r.Close {
			c.Context().SetConnectionClose()
		}
		for name, values := range header {
			for _, v := range values {
				c.Response().Header.Add(name, v)
			}
		}
		c.Status(status).Response().SetBodyRaw(body)
		return nil
	}
	r := requestOf(c)
	r.reason = bounded(text, maxReason)
	if status == http.StatusNotFound && r.route == "" {
		r.fix = s.astray(c.Path())
	}
	if worth {
		s.log.Error("request failed", "request_id", r.id, "method", c.Method(), "route", r.route, "error", err)
	}
	if status >= http.StatusInternalServerError {
		c.Set("X-Request-Id", r.id) // to find the request in the log
	}
	if status == http.StatusServiceUnavailable {
		c.Set(fiber.HeaderRetryAfter, "1")
	}
	if status, body := s.failOpenAI(c, status, text, err); body != nil {
		return sendJSON(c.Status(status), body)
	}
	return sendJSON(c.Status(status), compat.AppendDetail(nil, text))
}

// astray returns what to change when a client, or a proxy in between, puts a prefix before a path that there is; "" when it does not.
func (s *Server) astray(path string) string {
	prefix := ""
	for range 3 {
		segment, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		if !ok {
			return ""
		}
		prefix, path = prefix+"/"+segment, "/"+rest
		if s.known(path) {
			prefix = bounded(prefix, maxPath)
			return "remove " + prefix + " from the URL of the client, or start with --mount-prefix " + prefix
		}
	}
	return ""
}

// redirected redirects a path with a trailing slash to the path without it. It reports whether it did.
func redirected(s *Server, c *fiber.Ctx) bool {
	path := strings.TrimSuffix(c.Path(), "/")
	if !s.known(path) {
		return false
	}
	if q := string(c.Context().QueryArgs().QueryString()); q != "" {
		path += "?" + strings.NewReplacer("\r", "", "\n", "").Replace(q)
	}
	c.Set(fiber.HeaderLocation, path)
	c.Status(http.StatusTemporaryRedirect).Response().ResetBody()
	return true
}

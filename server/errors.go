package server

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/compat"
	"understudy/server/internal/connection"
	"understudy/server/internal/web"
)

// fail writes the answer to a request that failed.
func (s *Server) fail(c *fiber.Ctx, err error) error {
	status, text, worth := web.Explain(err)
	if status == http.StatusRequestHeaderFieldsTooLarge { // its client is still sending it
		connection.Drop(c.Context().Conn())
	}
	if status == http.StatusNotFound {
		if strings.HasSuffix(c.Path(), "/") && unrouted(err) && redirected(s, c) {
			return nil
		}
		web.Of(c).Miss(c)
	}
	refused := (*access.Refusal)(nil)
	if errors.As(err, &refused) {
		if refused.Close {
			c.Context().SetConnectionClose()
		}
		if refused.Cause != nil {
			s.Failures.Add("request failed", web.Of(c), fmt.Errorf("%w: %w", err, refused.Cause))
		}
	}
	if status >= http.StatusInternalServerError {
		c.Set("X-Request-Id", web.Of(c).ID) // to find the request in the log
	}
	if s.raised(c, status, text, err) {
		return nil
	}
	if a := web.Answerer(nil); errors.As(err, &a) {
		status, header, body := a.Answer()
		reason := web.PlainReason(body)
		web.Of(c).Reason = web.Bounded(reason, web.MaxReason)
		for name, values := range header {
			for _, v := range values {
				c.Response().Header.Add(name, v)
			}
		}
		if status >= http.StatusBadRequest && reason != "" { // what refuses a request knows no APIs
			if status, body := s.failOpenAI(c, status, reason, err); body != nil {
				return web.SendJSON(c.Status(status), body)
			}
		}
		c.Status(status).Response().SetBodyRaw(body)
		return nil
	}
	r := web.Of(c)
	r.Reason = web.Bounded(text, web.MaxReason)
	if status == http.StatusNotFound && r.Route == "" || status == http.StatusMethodNotAllowed {
		r.Fix = s.astray(c.Path(), status == http.StatusNotFound)
	}
	if worth {
		s.Failures.Add("request failed", r, err)
	}
	if status == http.StatusServiceUnavailable {
		c.Set(fiber.HeaderRetryAfter, "1")
	}
	if status, body := s.failOpenAI(c, status, text, err); body != nil {
		return web.SendJSON(c.Status(status), body)
	}
	return web.SendJSON(c.Status(status), compat.AppendDetail(nil, text))
}

var slashes = regexp.MustCompile(`/{2,}`)

// astray returns what to change when a client, or a proxy in between, puts a prefix before a path that there is; "" when it does not. Without any, only
// prefixes count that are never part of a path.
func (s *Server) astray(path string, any bool) string {
	if whole := slashes.ReplaceAllString(path, "/"); whole != path && s.known(whole) {
		return "remove the / at the end of the URL of the client"
	}
	if rest, ok := strings.CutPrefix(path, StudioPath+"/"); ok && s.known("/"+strings.TrimLeft(rest, "/")) {
		return "remove " + StudioPath + " and what follows it from the URL of the client: that is the address of the pages for browsers"
	}
	if !any {
		return ""
	}
	prefix := ""
	for range 3 {
		segment, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		if !ok {
			return ""
		}
		prefix, path = prefix+"/"+segment, "/"+rest
		if s.known(path) {
			prefix = web.Bounded(strings.TrimRight(slashes.ReplaceAllString(prefix, "/"), "/"), web.MaxPath)
			return "remove " + prefix + " from the URL of the client, or start with --mount-prefix " + prefix
		}
	}
	return ""
}

// unrouted reports whether an error says that no route takes a path: others are of routes that take paths with a slash at the end, such as those of files.
func unrouted(err error) bool {
	var f *fiber.Error
	return errors.As(err, &f)
}

// redirected redirects a path with a trailing slash to the path without it. It reports whether it did: not where the path without it is the application's, which
// may send the client back.
func redirected(s *Server, c *fiber.Ctx) bool {
	path := strings.TrimSuffix(c.Path(), "/")
	if !s.known(path) || s.claimed(c.Method(), path) {
		return false
	}
	if q := string(c.Context().QueryArgs().QueryString()); q != "" {
		path += "?" + strings.NewReplacer("\r", "", "\n", "").Replace(q)
	}
	c.Set(fiber.HeaderLocation, path)
	c.Status(http.StatusTemporaryRedirect).Response().ResetBody()
	return true
}

package server

import (
	"log/slog"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/header"
)

// configurable returns the headers that http.configurable_headers passes on to runs, by lower-case name; nil when it passes none.
func (s *Server) configurable(c *fiber.Ctx) map[string]string {
	f := s.opts.Configurable
	headers := selected(c, f)
	delete(headers, strings.ToLower(compat.OverlayHeader)) // meant for this server only
	if len(f.Includes) > 0 {
		c.Request().Header.VisitAll(func(k, _ []byte) {
			if name := string(k); f.Withholds(name) {
				s.withheld.Do(func() {
					s.log.Warn("request header looks like a credential and is withheld from runs; to pass it, name it without a wildcard in http.configurable_headers",
						"header", strings.ToLower(name))
				})
			}
		})
	}
	return headers
}

// logged returns the headers that http.logging_headers adds to the log line of a request.
func logged(c *fiber.Ctx, f header.Filter) []slog.Attr {
	var attrs []slog.Attr
	for name, value := range selected(c, f) {
		attrs = append(attrs, slog.String(name, value))
	}
	return attrs
}

func selected(c *fiber.Ctx, f header.Filter) map[string]string {
	if len(f.Includes) == 0 {
		return nil
	}
	headers := map[string]string{}
	c.Request().Header.VisitAll(func(k, v []byte) {
		if f.Selects(string(k)) {
			headers[strings.ToLower(string(k))] = strings.ToValidUTF8(string(v), "\ufffd")
		}
	})
	return headers
}

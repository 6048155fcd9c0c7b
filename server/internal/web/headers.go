package web

import (
	"log/slog"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/header"
)

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

// traced adds what says to which trace of LangSmith a run belongs.
func traced(c *fiber.Ctx, f header.Filter, headers map[string]string) map[string]string {
	in := &c.Request().Header
	trace := in.Peek(header.Trace)
	if trace == nil || f.Drops(header.Trace) {
		return headers
	}
	if headers == nil {
		headers = map[string]string{}
	}
	headers[header.Trace] = strings.ToValidUTF8(string(trace), "\ufffd")
	for name, value := range header.Baggage(string(in.Peek("baggage"))) {
		value = strings.ReplaceAll(strings.ToValidUTF8(value, "\ufffd"), "\x00", "\ufffd")
		if header.IsJSON(name, value) {
			prepared, err := compat.Prepare([]byte(value))
			if err != nil {
				continue // it is not what bodies may have
			}
			value = string(prepared)
		}
		headers[name] = value
	}
	return headers
}

// HasTag reports whether a header If-None-Match names an entity tag: in a list, with all others as *, or as a weak one, which proxies make when they compress.
func HasTag(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}

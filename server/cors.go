package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// exposed lists response headers that clients of the API read.
var exposed = []string{"x-pagination-total", "x-pagination-next", "content-location"}

const allMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY"

// cors sets the headers of cross-origin requests, and answers preflights. It reports whether it has answered.
func (s *Server) cors(c *fiber.Ctx) bool {
	origin := c.Get(fiber.HeaderOrigin)
	if origin == "" {
		return false
	}
	o := &s.opts.CORS
	allowed, any := s.allows(origin)
	if !any {
		c.Vary(fiber.HeaderOrigin)
	}
	if allowed {
		if any && !o.AllowCredentials {
			origin = "*"
		}
		c.Set(fiber.HeaderAccessControlAllowOrigin, origin)
		if o.AllowCredentials {
			c.Vary(fiber.HeaderOrigin)
			c.Set(fiber.HeaderAccessControlAllowCredentials, "true")
		}
	}
	if c.Method() != fiber.MethodOptions || c.Get(fiber.HeaderAccessControlRequestMethod) == "" {
		if allowed {
			c.Set(fiber.HeaderAccessControlExposeHeaders, strings.Join(exposedWith(o.ExposeHeaders), ", "))
		}
		return false
	}
	c.Set(fiber.HeaderContentType, "text/plain; charset=utf-8")
	if !allowed {
		_ = c.Status(http.StatusBadRequest).SendString("Disallowed CORS origin")
		return true
	}
	methods := allMethods
	if len(o.AllowMethods) > 0 && !slices.Contains(o.AllowMethods, "*") {
		methods = strings.Join(o.AllowMethods, ", ")
	}
	c.Set(fiber.HeaderAccessControlAllowMethods, methods)
	headers := c.Get(fiber.HeaderAccessControlRequestHeaders)
	if len(o.AllowHeaders) > 0 && !slices.Contains(o.AllowHeaders, "*") {
		headers = strings.Join(o.AllowHeaders, ", ")
	}
	if headers != "" {
		c.Set(fiber.HeaderAccessControlAllowHeaders, headers)
	}
	c.Set(fiber.HeaderAccessControlMaxAge, strconv.Itoa(int(o.MaxAge.Seconds())))
	// A page from the internet asks before it connects to a server in a private network, such as one on its user's
	// machine.
	if c.Get("Access-Control-Request-Private-Network") == "true" {
		c.Set("Access-Control-Allow-Private-Network", "true")
	}
	c.Vary("Access-Control-Request-Method", "Access-Control-Request-Headers", "Access-Control-Request-Private-Network")
	_ = c.Status(http.StatusOK).SendString("OK")
	return true
}

// exposedWith returns the exposed headers and more, each name once.
func exposedWith(more []string) []string {
	names := slices.Clone(exposed)
	for _, name := range more {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			names = append(names, name)
		}
	}
	return names
}

// allows reports whether an origin is allowed, and whether any is.
func (s *Server) allows(origin string) (allowed, any bool) {
	o := &s.opts.CORS
	if len(o.AllowOrigins) == 0 && o.AllowOriginRegex == nil || slices.Contains(o.AllowOrigins, "*") {
		return true, true
	}
	if slices.Contains(o.AllowOrigins, origin) {
		return true, false
	}
	return o.AllowOriginRegex != nil && o.AllowOriginRegex.MatchString(origin), false
}

package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// exposed are the headers that clients of the API read.
var exposed = []string{"x-pagination-total", "x-pagination-next", "content-location"}

const allMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY"

// cors sets the headers of cross-origin requests, and answers preflights: then it reports true.
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
			c.Set(fiber.HeaderAccessControlExposeHeaders, strings.Join(append(slices.Clone(exposed), o.ExposeHeaders...), ", "))
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
	c.Vary("Access-Control-Request-Method", "Access-Control-Request-Headers")
	_ = c.Status(http.StatusOK).SendString("OK")
	return true
}

// allows reports whether an origin is let in, and whether any is.
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

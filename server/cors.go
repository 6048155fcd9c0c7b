package server

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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
	o := s.corsOptions()
	if o.NoOrigins {
		return false
	}
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
	var refused, add []string
	if !allowed {
		refused, add = append(refused, "origin"), append(add, "its origin to allow_origins")
	}
	method, methods := c.Get(fiber.HeaderAccessControlRequestMethod), allMethods
	if len(o.AllowMethods) > 0 && !slices.Contains(o.AllowMethods, "*") {
		methods = strings.Join(o.AllowMethods, ", ")
		if !slices.Contains(o.AllowMethods, method) {
			refused, add = append(refused, "method"), append(add, "its method to allow_methods")
		}
	}
	c.Set(fiber.HeaderAccessControlAllowMethods, methods)
	asked := c.Get(fiber.HeaderAccessControlRequestHeaders)
	headers := asked
	if len(o.AllowHeaders) > 0 && !slices.Contains(o.AllowHeaders, "*") {
		known := withSafe(o.AllowHeaders)
		headers = strings.Join(known, ", ")
		if asked != "" && !containsAll(known, asked) {
			refused, add = append(refused, "headers"), append(add, "its headers to allow_headers")
		}
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
	if refused != nil {
		what := "Disallowed CORS " + strings.Join(refused, ", ")
		s.refusals.warn(s.Log, what, c.Get(fiber.HeaderOrigin), method, asked, "in http.cors of langgraph.json add "+strings.Join(add, ", "))
		_ = c.Status(http.StatusBadRequest).SendString(what)
		return true
	}
	_ = c.Status(http.StatusOK).SendString("OK")
	return true
}

// refusals limits log lines about refused preflights, because any page can cause them. A browser does not show the reason.
type refusals struct{ last atomic.Int64 }

const refusalsEvery = 10 * time.Second

func (r *refusals) warn(log *slog.Logger, what, origin, method, headers, fix string) {
	now, last := time.Now().UnixNano(), r.last.Load()
	if last != 0 && now-last < int64(refusalsEvery) || !r.last.CompareAndSwap(last, now) {
		return
	}
	log.Warn("a page may not send its request: CORS", "answer", what, "origin", origin, "method", method, "headers", headers,
		"fix", fix)
}

// safeHeaders are request headers that need no permission.
var safeHeaders = []string{"Accept", "Accept-Language", "Content-Language", "Content-Type"}

// withSafe returns names and the safe headers, sorted.
func withSafe(names []string) []string {
	all := append(slices.Clone(safeHeaders), names...)
	slices.Sort(all)
	return slices.Compact(all)
}

// containsAll reports whether names contains each name of a list with commas.
func containsAll(names []string, list string) bool {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			return false
		}
	}
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

// expose lets a page of another origin read one more header of this response.
func expose(c *fiber.Ctx, name string) {
	if names := c.GetRespHeader(fiber.HeaderAccessControlExposeHeaders); names != "" {
		c.Set(fiber.HeaderAccessControlExposeHeaders, names+", "+name)
	}
}

// allows reports whether an origin is allowed, and whether any is.
func (s *Server) allows(origin string) (allowed, any bool) {
	o := s.corsOptions()
	if o.NoOrigins {
		return false, false
	}
	if len(o.AllowOrigins) == 0 && o.AllowOriginRegex == nil || slices.Contains(o.AllowOrigins, "*") {
		return true, true
	}
	if slices.Contains(o.AllowOrigins, origin) {
		return true, false
	}
	return o.AllowOriginRegex != nil && o.AllowOriginRegex.MatchString(origin), false
}

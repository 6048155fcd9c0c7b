package server

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/fault"
	"understudy/server/internal/web"
)

// localNames are names of this machine that no page on the internet can have: *.localhost, and what container engines call their host.
var localNames = []string{"localhost", "*.localhost", "host.docker.internal", "host.containers.internal"}

// maxHost is how much of a Host header an error repeats.
const maxHost = 100

// checkHost refuses a request for a name that is not one of this machine. A page can make its own name resolve to a loopback address (DNS rebinding): for
// its browser the server then has the origin of the page, so neither CORS nor the check of the origin of WebSockets stops it, but Host has the page's name.
func (s *Server) checkHost(c *fiber.Ctx) error {
	if !s.opts.CheckHost || insideOf(c) != nil {
		return nil
	}
	if s.isProbe(c) {
		return nil
	}
	host := string(c.Request().Header.Host())
	if s.accepts(host) {
		return nil
	}
	name := web.Bounded(hostname(host), maxHost)
	return fault.New(fault.Forbidden, "Host "+name+" is not this machine: a page of another site may have sent this (DNS rebinding). "+
		"If the name is yours, start understudy dev with --allowed-hosts "+name)
}

// accepts reports whether requests may have a Host header.
func (s *Server) accepts(host string) bool {
	name := hostname(host)
	if name == "" { // HTTP/1.0; browsers always send it
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil { // no name was resolved
		return true
	}
	if isAny(localNames, name) || isAny(s.opts.AllowedHosts, name) {
		return true
	}
	for _, scheme := range []string{"http://", "https://"} {
		if allowed, any := s.allows(scheme + host); allowed && !any {
			return true
		}
	}
	return false
}

// hostname returns the name or address in a Host header, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// isAny reports whether a name is in a list, in which * stands for all names and *.name for those below name.
func isAny(list []string, name string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		below, wild := strings.CutPrefix(p, "*")
		return p == name || wild && strings.HasSuffix(name, below) && len(name) > len(below)
	})
}

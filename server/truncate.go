package server

import (
	"net/netip"
	"net/url"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/config"
	"understudy/internal/fault"
	"understudy/server/internal/web"
)

// truncate empties a development server. Only programs on the same machine may call it: a browser page counts only if it was served from there.
func (s *Server) truncate(c *fiber.Ctx) error {
	peer, _ := netip.AddrFromSlice(c.Context().RemoteIP())
	if !peer.Unmap().IsLoopback() || !isLocal(c.Get(fiber.HeaderOrigin)) {
		return fault.New(fault.NotFound, "Not Found")
	}
	if err := s.opts.Truncate(c.UserContext()); err != nil {
		return err
	}
	return web.SendJSON(c, []byte(`{"ok":true}`))
}

// isLocal reports whether an origin is on this machine. A request without one is not from a page.
func isLocal(origin string) bool {
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && config.IsLoopback(u.Hostname())
}

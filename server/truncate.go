package server

import (
	"net/netip"
	"net/url"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/config"
	"understudy/internal/fault"
)

// truncate empties a development server. Only programs of the same machine may: a page in a browser there is one only when it was served there.
func (s *Server) truncate(c *fiber.Ctx) error {
	peer, _ := netip.AddrFromSlice(c.Context().RemoteIP())
	if !peer.Unmap().IsLoopback() || !isLocal(c.Get(fiber.HeaderOrigin)) {
		return fault.New(fault.NotFound, "Not Found")
	}
	if err := s.opts.Truncate(c.UserContext()); err != nil {
		return err
	}
	return sendJSON(c, []byte(`{"ok":true}`))
}

// isLocal reports whether an origin is of this machine. A request without one comes from no page.
func isLocal(origin string) bool {
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && config.IsLoopback(u.Hostname())
}

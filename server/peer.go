package server

import (
	"net"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/address"
)

// client returns host:port of who sent a request: the peer of the connection, or, behind trusted proxies, the last address of X-Forwarded-For that is not one
// of them, with port 0. What a client wrote into that header itself stands before it, and does not count.
func (s *Server) client(c *fiber.Ctx) string {
	peer := peerOf(c.Context().RemoteAddr())
	if !s.behindProxy(c) {
		return peer
	}
	var hops []string
	for _, value := range c.Request().Header.PeekAll(fiber.HeaderXForwardedFor) {
		hops = append(hops, strings.Split(string(value), ",")...)
	}
	found := ""
	for i := len(hops) - 1; i >= 0; i-- {
		ip, ok := hop(hops[i])
		if !ok {
			break // what is behind it is not known either
		}
		if found = net.JoinHostPort(ip.String(), "0"); !address.In(s.opts.TrustedProxies, ip) {
			break
		}
	}
	if found == "" {
		return peer
	}
	return found
}

// peerOf is the address as String writes it, with less work: it is needed for each request.
func peerOf(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return address.String()
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
}

// hop reads an address of X-Forwarded-For; some proxies add the port.
func hop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return ip.Unmap().WithZone(""), err == nil
}

// behindProxy reports whether a trusted proxy passed a request on.
func (s *Server) behindProxy(c *fiber.Ctx) bool {
	if len(s.opts.TrustedProxies) == 0 || insideOf(c) != nil {
		return false
	}
	peer, err := netip.ParseAddrPort(c.Context().RemoteAddr().String())
	return err == nil && address.In(s.opts.TrustedProxies, peer.Addr())
}

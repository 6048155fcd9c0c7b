package gateway

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"understudy/deerflow/account"
	"understudy/internal/address"
	"understudy/server/deerflow"
)

// sameHost refuses the handshake of a WebSocket that a page of another site sends. host is how the client addresses the server.
func (d *Installation) sameHost(origin, host string) error {
	if origin == "" {
		return nil
	}
	at := originOf(origin)
	_, from, _ := strings.Cut(at, "://")
	_, own, _ := strings.Cut(originOf(at[:strings.IndexByte(at+":", ':')]+"://"+host), "://")
	if at != "" && (d.allows(at) || from == own) {
		return nil
	}
	return deerflow.ErrCrossSite
}

// allows reports whether pages of an origin may use the API.
func (d *Installation) allows(origin string) bool {
	return slices.ContainsFunc(d.Origins, func(o string) bool { return originOf(o) == origin })
}

// originOf returns an origin in the form in which they can be compared; "" for what is none.
func originOf(text string) string {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Hostname() == "" {
		return ""
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) || scheme != "http" && scheme != "https" {
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" && port != map[string]string{"http": "80", "https": "443"}[scheme] {
		host += ":" + port
	}
	return scheme + "://" + host
}

// browser opens and closes sessions, and refuses what other sites send.
type browser struct {
	*base
	Addressed func(c *fiber.Ctx) (scheme, host string) // as in Options
}

// sameSite refuses a sign-in that a page of another site sends.
func (s *browser) sameSite(c *fiber.Ctx) error {
	given := c.Get(fiber.HeaderOrigin)
	if given == "" {
		return nil
	}
	scheme, host := s.addressed(c)
	at := originOf(scheme + "://" + host)
	withPort := at
	if port := c.Get("X-Forwarded-Port"); s.DeerFlow.Closed && port != "" && !strings.Contains(host[strings.LastIndexByte(host, ']')+1:], ":") {
		withPort = originOf(scheme + "://" + host + ":" + port)
	}
	if origin := originOf(given); origin != "" && (s.DeerFlow.allows(origin) || origin == at || origin == withPort) {
		return nil
	}
	return deerflow.ErrCrossSite
}

// addressed returns how a browser addresses the server. While pages of other sites may not send headers of their own, headers of a proxy (X-Forwarded-Proto, Forwarded) count
// from every client, without AUTH_TRUSTED_PROXIES: a client that forges them misleads only itself.
func (s *browser) addressed(c *fiber.Ctx) (scheme, host string) {
	scheme, host = s.Addressed(c)
	if !s.DeerFlow.Closed {
		return scheme, host
	}
	first := func(name string) string {
		v, _, _ := strings.Cut(c.Get(name), ",")
		return strings.TrimSpace(v)
	}
	forwarded := map[string]string{}
	for part := range strings.SplitSeq(first("Forwarded"), ";") {
		if k, v, ok := strings.Cut(strings.TrimSpace(part), "="); ok {
			forwarded[strings.ToLower(k)] = strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	scheme = strings.ToLower(cmp.Or(forwarded["proto"], first(fiber.HeaderXForwardedProto), scheme))
	host = cmp.Or(forwarded["host"], first(fiber.HeaderXForwardedHost), host)
	return scheme, host
}

// address is the address of a client: the peer, or what a trusted proxy says.
func (s *browser) address(c *fiber.Ctx) string {
	host, _, err := net.SplitHostPort(c.Context().RemoteAddr().String())
	if err != nil {
		return c.Context().RemoteAddr().String()
	}
	peer, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if address.In(s.DeerFlow.Trusted, peer) {
		if real, err := netip.ParseAddr(strings.TrimSpace(c.Get("X-Real-Ip"))); err == nil {
			return real.Unmap().String()
		}
	}
	return peer.Unmap().String()
}

// openSession sets the cookies of a new session.
func (s *browser) openSession(c *fiber.Ctx, u *account.User, remember bool) error {
	token, err := s.DeerFlow.Accounts.Token(u)
	if err != nil {
		return err
	}
	scheme, _ := s.addressed(c)
	secure := scheme == "https"
	persistent := "0"
	age := 0 // until the browser ends
	if remember {
		persistent, age = "1", int(account.Lifetime/time.Second)
	}
	for _, k := range []fiber.Cookie{
		{Name: sessionCookie, Value: token, HTTPOnly: true, SameSite: fiber.CookieSameSiteLaxMode},
		{Name: csrfCookie, Value: uuid.NewString() + uuid.NewString(), SameSite: fiber.CookieSameSiteStrictMode},
		{Name: persistentCookie, Value: persistent, HTTPOnly: true, SameSite: fiber.CookieSameSiteLaxMode},
	} {
		k.Path, k.Secure, k.MaxAge, k.SessionOnly = "/", secure, age, !remember
		c.Cookie(&k)
	}
	return nil
}

// closeSession deletes the cookies of a session, with the attributes that they were set with.
func (s *browser) closeSession(c *fiber.Ctx) {
	scheme, _ := s.addressed(c)
	for _, name := range []string{sessionCookie, csrfCookie, persistentCookie} {
		k := fiber.Cookie{Name: name, Path: "/", MaxAge: -1, Expires: time.Unix(1, 0), Secure: scheme == "https", HTTPOnly: name != csrfCookie, SameSite: fiber.CookieSameSiteLaxMode}
		if name == csrfCookie {
			k.SameSite = fiber.CookieSameSiteStrictMode
		}
		c.Cookie(&k)
	}
}

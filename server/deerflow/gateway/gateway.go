package gateway

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"understudy/access"
	"understudy/compat"
	domain "understudy/deerflow"
	"understudy/deerflow/account"
	"understudy/deerflow/files"
	"understudy/id"
	"understudy/internal/address"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// Installation is the installation of DeerFlow whose Gateway API is served.
type Installation struct {
	*domain.DeerFlow
	// Trusted are the proxies whose X-Real-IP counts as the address of a client.
	Trusted []netip.Prefix
	// Condense replaces the older part of a thread's conversation by a summary. The error is fault.Conflict while a run of the thread goes, and when the settings turn it off.
	Condense func(ctx context.Context, t id.Thread, how domain.Condensing) (domain.Condensed, error)
	// Open lets everybody in as the administrator "default", for development.
	Open bool
	// Closed: no page of an origin other than Origins may send headers of its own, so those of proxies that are not named count in the check of the origin.
	Closed bool

	sso ssoProviders
}

// Options are what the Gateway's API is served with.
type Options struct {
	*web.Transport
	*web.Completer
	DeerFlow *Installation

	Threads Threads
	Runs    Runs
	Events  Events

	// Route registers a handler for a path, with parameters as in OpenAPI, under each of the prefixes; Rest one for whatever is left below a prefix.
	Route func(prefixes []string, method, path string, h fiber.Handler)
	Rest  func(prefix string, h fiber.Handler)
	// Send creates the run that answers a message, as POST /commands/send-message does. path returns where the run is found.
	Send func(c *fiber.Ctx, m *compat.Message, path func(*run.Run) string) error
	// Client returns the address of who sent a request, and Addressed how it addressed the server.
	Client    func(c *fiber.Ctx) string
	Addressed func(c *fiber.Ctx) (scheme, host string)
}

// Routes registers the routes of the Gateway's API. They answer whatever is left below their prefixes, so others come first.
func Routes(o Options) { gateway{o}.routes() }

// gateway has the handlers.
type gateway struct{ Options }

// Cookies and headers of the Gateway.
const (
	sessionCookie    = "access_token"
	csrfCookie       = "csrf_token"
	persistentCookie = "deerflow_session_persistent"
	csrfHeader       = "X-Csrf-Token"
	internalHeader   = "X-Deerflow-Internal-Token"
	ownerHeader      = "X-Deerflow-Owner-User-Id"
)

// internalUser is who channels act as unless they name a user.
const internalUser = "default"

// caller is who sent a request to the Gateway's API.
type caller struct {
	*account.User
	// internal: one of the server's own channels, which acts for a user.
	internal bool
	// id is whose threads and files are meant: the user's, or the one that a channel names.
	id string
}

// Who may use a route.
type audience int

const (
	anybody audience = iota
	members          // with a session or the internal token
	admins           // of them, administrators
)

// prefixes: the web UI and channels use either.
var prefixes = []string{"/api", "/api/langgraph"}

type handler func(c *fiber.Ctx, who *caller) error

// handle registers a route of the Gateway's API.
func (s gateway) handle(method, pattern string, who audience, h handler) {
	s.Route(prefixes, method, pattern, s.gated(who, h))
}

// gated asks the gates in their order: CSRF, session, permission. Ownership and the body are the handler's.
func (s gateway) gated(who audience, h handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		return deerflow.Explain(s.pass(c, who, h))
	}
}

func (s gateway) pass(c *fiber.Ctx, who audience, h handler) error {
	d := s.DeerFlow
	// The Gateway checks by itself what belongs to whom, as its answers differ from those of LangGraph.
	c.SetUserContext(access.With(c.UserContext(), access.System))
	if who == anybody {
		return h(c, nil)
	}
	if err := d.checkCSRF(c.Method(), c.Cookies(csrfCookie), c.Get(csrfHeader)); err != nil {
		return err
	}
	caller, err := d.caller(c.UserContext(), c.Cookies(sessionCookie), c.Get(internalHeader), c.Get(ownerHeader))
	if err != nil {
		return err
	}
	if who == admins && caller.Role != account.Admin {
		return deerflow.Fail(http.StatusForbidden, adminText(c.Path()))
	}
	return h(c, caller)
}

// adminText says what administrators alone may do.
func adminText(path string) string {
	switch {
	case strings.Contains(path, "/skills"):
		return "Admin privileges required to manage skills."
	case strings.Contains(path, "/mcp"):
		return "Admin privileges required to manage MCP configuration."
	case strings.HasSuffix(path, "/runtime-config"):
		return "Admin privileges required to manage channel runtime credentials."
	case strings.Contains(path, "/channels"):
		return "Admin privileges required to manage channel runtime workers."
	case strings.Contains(path, "/integrations"):
		return "Admin privileges required to install integrations."
	}
	return "Admin privileges required."
}

// checkCSRF refuses a request that changes something unless a script of our own pages sent it: only they can read the cookie.
func (d *Installation) checkCSRF(method, cookie, header string) error {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil
	}
	switch {
	case d.Open:
		return nil
	case cookie == "" || header == "":
		return deerflow.ErrNoCSRF
	case subtle.ConstantTimeCompare([]byte(cookie), []byte(header)) != 1:
		return deerflow.ErrCSRF
	}
	return nil
}

// caller returns who sent a request with this session cookie, or as a channel with the internal token and the owner that it names.
func (d *Installation) caller(ctx context.Context, session, internal, owner string) (*caller, error) {
	if d.Open {
		return &caller{User: &account.User{ID: internalUser, Email: "default@localhost", Role: account.Admin}, id: internalUser}, nil
	}
	if internal != "" && subtle.ConstantTimeCompare([]byte(internal), []byte(d.Internal)) == 1 {
		caller := &caller{User: &account.User{ID: internalUser, Role: account.Plain}, internal: true, id: internalUser}
		if owner != "" {
			caller.id = files.User(owner)
		}
		return caller, nil
	}
	u, err := d.Accounts.Session(ctx, session)
	if err != nil {
		return nil, err
	}
	return &caller{User: u, id: u.ID}, nil
}

// Authenticate implements access.Authenticator for LangGraph's own routes: they take the session and the CSRF token of the Gateway, or its
// internal token.
func (d *Installation) Authenticate(ctx context.Context, r *access.Request) (*access.Actor, error) {
	web := http.Request{Header: r.Header}
	cookie := func(name string) string {
		c, err := web.Cookie(name)
		if err != nil {
			return ""
		}
		return c.Value
	}
	err := d.checkCSRF(r.Method, cookie(csrfCookie), r.Header.Get(csrfHeader))
	if r.WebSocket { // whose handshake is a GET, from any page
		err = d.sameSite(r.Header.Get(fiber.HeaderOrigin), r.Host)
	}
	if err != nil {
		return nil, refusalOf(err)
	}
	caller, err := d.caller(ctx, cookie(sessionCookie), r.Header.Get(internalHeader), r.Header.Get(ownerHeader))
	if err != nil {
		return nil, refusalOf(err)
	}
	user := &jsonobj.Object{}
	user.SetText("identity", caller.id)
	user.Set("is_authenticated", json.RawMessage("true"))
	user.SetText("display_name", caller.Email)
	return &access.Actor{Identity: caller.id, DisplayName: caller.Email, Authenticated: true, Permissions: []string{}, User: user.JSON()}, nil
}

// refusalOf is what an error of the gates is to LangGraph's routes.
func refusalOf(err error) error {
	var f *deerflow.Failure
	if errors.As(deerflow.Explain(err), &f) {
		return &access.Refusal{Status: f.Status, Detail: f.Detail, Header: f.Header}
	}
	return err
}

// sameSite refuses a sign-in that a page of another site sends. host is how the client addresses the server.
func (d *Installation) sameSite(origin, host string) error {
	if origin == "" || slices.Contains(d.Origins, origin) {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, host) {
		return deerflow.ErrCrossSite
	}
	return nil
}

// sameSite refuses a sign-in that a page of another site sends.
func (s gateway) sameSite(c *fiber.Ctx) error {
	_, host := s.Addressed(c)
	origin := c.Get(fiber.HeaderOrigin)
	err := s.DeerFlow.sameSite(origin, host)
	if err != nil && s.DeerFlow.Closed {
		if passed, _, _ := strings.Cut(c.Get("X-Forwarded-Host"), ","); passed != "" {
			return s.DeerFlow.sameSite(origin, strings.TrimSpace(passed))
		}
	}
	return err
}

// address is the address of a client: the peer, or what a trusted proxy says.
func (s gateway) address(c *fiber.Ctx) string {
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
func (s gateway) openSession(c *fiber.Ctx, u *account.User, remember bool) error {
	token, err := s.DeerFlow.Accounts.Token(u)
	if err != nil {
		return err
	}
	scheme, _ := s.Addressed(c)
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

func closeSession(c *fiber.Ctx) {
	for _, name := range []string{sessionCookie, csrfCookie, persistentCookie} {
		c.Cookie(&fiber.Cookie{Name: name, Path: "/", MaxAge: -1, Expires: time.Unix(1, 0), HTTPOnly: name != csrfCookie})
	}
}

// form reads the body of a request to the Gateway. maxForm bounds it.
func (s gateway) form(c *fiber.Ctx, h func(f *deerflow.Form) error) error {
	return s.WithBody(c, func(body []byte) error {
		if len(body) > maxForm {
			return fault.Newf(fault.TooLarge, "Request body is larger than %d bytes", maxForm)
		}
		f, err := deerflow.Body(body)
		if err != nil {
			return err
		}
		return h(f)
	})
}

const maxForm = 8 << 20

// routes serve the Gateway's API.
func (s gateway) routes() {
	s.Route([]string{""}, "GET", "/health", func(c *fiber.Ctx) error {
		return web.SendJSON(c, []byte(`{"status":"healthy","service":"deer-flow-gateway"}`))
	})
	s.accountRoutes()
	s.ssoRoutes()
	s.threadRoutes()
	s.runRoutes()
	s.feedRoutes()
	s.turnRoutes()
	s.treeRoutes()
	s.goalRoutes()
	console{s}.routes()
	s.feedbackRoutes()
	s.fileRoutes()
	s.skillRoutes()
	s.memoryRoutes()
	s.agentRoutes()
	s.settingsRoutes()
	s.absentRoutes()
	for _, p := range prefixes { // callers without a session do not learn which routes exist
		s.Rest(p, s.gated(members, func(c *fiber.Ctx, _ *caller) error {
			if strings.HasSuffix(c.Path(), "/") {
				return slashless(c)
			}
			return fiber.ErrNotFound
		}))
	}
}

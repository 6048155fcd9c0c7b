package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
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
	Tasks   Tasks

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
func Routes(o Options) { gateway{o, &known{}}.routes() }

// gateway has the handlers.
type gateway struct {
	Options
	known *known
}

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

// prefixes: the web UI and channels use either. One that begins with another comes after it.
var prefixes = []string{"/api", "/api/langgraph"}

type handler func(c *fiber.Ctx, who *caller) error

// handle registers a route of the Gateway's API.
func (s gateway) handle(method, pattern string, who audience, h handler) {
	s.known.add(method, pattern, who)
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
	c.SetUserContext(access.With(c.UserContext(), access.System))
	if who == anybody {
		return h(c, nil)
	}
	if err := d.checkCSRF(c.Method(), c.Cookies(csrfCookie), c.Get(csrfHeader)); err != nil {
		return err
	}
	session := strings.Clone(c.Cookies(sessionCookie)) // it is looked at again after the request
	caller, err := d.caller(c.UserContext(), session, c.Get(internalHeader), c.Get(ownerHeader))
	if err != nil {
		return err
	}
	web.Of(c).Withdrawn = d.follow(session, c.Get(internalHeader))
	if who == admins && caller.Role != account.Admin {
		return deerflow.Fail(http.StatusForbidden, adminText(c.Path()))
	}
	if !d.Open {
		actor, source := caller.actor(), s.Client(c)
		web.Of(c).Actor, web.Of(c).Source = actor, source
		c.SetUserContext(access.EnterUnder(c.UserContext(), actor, source, Owners))
	}
	return h(c, caller)
}

// Owners decides what accounts may do: each reaches what is theirs. It also decides where the policy of the server is another one, which knows no accounts.
var Owners = access.Owner{Key: deerflow.OwnerKey}

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
	if d.isInternal(internal) {
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

// isInternal reports whether a header has the internal token.
func (d *Installation) isInternal(token string) bool {
	return token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(d.Internal)) == 1
}

// follow returns what reports whether a session that was accepted has ended: it expired, its user is gone or has another password. nil: the request had none.
func (d *Installation) follow(session, internal string) func(ctx context.Context) bool {
	if d.Open || d.isInternal(internal) {
		return nil
	}
	return func(ctx context.Context) bool {
		_, err := d.Accounts.Session(ctx, session)
		var refusal *account.Error
		return errors.As(err, &refusal)
	}
}

// Authenticate implements access.Authenticator for LangGraph's own routes: they take the session and the CSRF token of the Gateway, or its
// internal token.
func (d *Installation) Authenticate(ctx context.Context, r *access.Request) (*access.Actor, error) {
	err := d.checkCSRF(r.Method, cookie(r, csrfCookie), r.Header.Get(csrfHeader))
	if r.WebSocket { // whose handshake is a GET, from any page
		err = d.sameHost(r.Header.Get(fiber.HeaderOrigin), r.Host)
	}
	if err != nil {
		return nil, refusalOf(err)
	}
	caller, err := d.caller(ctx, cookie(r, sessionCookie), r.Header.Get(internalHeader), r.Header.Get(ownerHeader))
	if err != nil {
		return nil, refusalOf(err)
	}
	return caller.actor(), nil
}

// cookie returns the value of a cookie; "" when there is none.
func cookie(r *access.Request, name string) string {
	c, err := (&http.Request{Header: r.Header}).Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// Follow implements access.Revocable.
func (d *Installation) Follow(r *access.Request) func(ctx context.Context) bool {
	return d.follow(cookie(r, sessionCookie), r.Header.Get(internalHeader))
}

// actor is the caller as the services know them.
func (who *caller) actor() *access.Actor {
	user := &jsonobj.Object{}
	user.SetText("identity", who.id)
	user.Set("is_authenticated", json.RawMessage("true"))
	user.SetText("display_name", who.Email)
	return &access.Actor{Identity: who.id, DisplayName: who.Email, Authenticated: true, Permissions: []string{}, User: user.JSON()}
}

// refusalOf is what an error of the gates is to LangGraph's routes.
func refusalOf(err error) error {
	var f *deerflow.Failure
	if errors.As(deerflow.Explain(err), &f) {
		return &access.Refusal{Status: f.Status, Detail: f.Detail, Header: f.Header}
	}
	return err
}

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

// sameSite refuses a sign-in that a page of another site sends.
func (s gateway) sameSite(c *fiber.Ctx) error {
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
func (s gateway) addressed(c *fiber.Ctx) (scheme, host string) {
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
func (s gateway) closeSession(c *fiber.Ctx) {
	scheme, _ := s.addressed(c)
	for _, name := range []string{sessionCookie, csrfCookie, persistentCookie} {
		k := fiber.Cookie{Name: name, Path: "/", MaxAge: -1, Expires: time.Unix(1, 0), Secure: scheme == "https", HTTPOnly: name != csrfCookie, SameSite: fiber.CookieSameSiteLaxMode}
		if name == csrfCookie {
			k.SameSite = fiber.CookieSameSiteStrictMode
		}
		c.Cookie(&k)
	}
}

// query reads parameters of the URL. The last of several values counts.
func query(c *fiber.Ctx, names ...string) *deerflow.Form {
	return deerflow.Query(func(name string) (string, bool) {
		values := web.Queries(c, name)
		if len(values) == 0 {
			return "", false
		}
		return values[len(values)-1], true
	}, names...)
}

// jsonOnly refuses a body that does not say that it is JSON: pages of other sites may send such a body without asking first.
func jsonOnly(c *fiber.Ctx, body []byte) error {
	kind, _, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if len(body) == 0 || err == nil && (kind == fiber.MIMEApplicationJSON || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return nil
	}
	return deerflow.NoObject(jsonobj.Quote(strings.ToValidUTF8(string(body[:min(len(body), maxText)]), "\ufffd")))
}

// form reads the body of a request to the Gateway. maxForm bounds it.
func (s gateway) form(c *fiber.Ctx, h func(f *deerflow.Form) error) error {
	return s.WithBody(c, func(body []byte) error {
		return readForm(c, body, h)
	})
}

// optionalForm is form for a body that may be left out, or be null: then h is not called.
func (s gateway) optionalForm(c *fiber.Ctx, h func(f *deerflow.Form) error) error {
	return s.WithBody(c, func(body []byte) error {
		if len(body) == 0 || string(bytes.TrimSpace(body)) == "null" && jsonOnly(c, body) == nil {
			return nil
		}
		return readForm(c, body, h)
	})
}

func readForm(c *fiber.Ctx, body []byte, h func(f *deerflow.Form) error) error {
	if len(body) > maxForm {
		return fault.Newf(fault.TooLarge, "Request body is larger than %d bytes", maxForm)
	}
	if err := jsonOnly(c, body); err != nil {
		return err
	}
	f, err := deerflow.Body(body)
	if err != nil {
		return err
	}
	return h(f)
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
	s.taskRoutes()
	s.absentRoutes()
	for _, p := range slices.Backward(prefixes) { // the longer one first, as the shorter takes its paths too
		s.Rest(p, s.rest(p))
	}
}

package gateway

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/compat"
	domain "understudy/deerflow"
	"understudy/deerflow/account"
	"understudy/deerflow/files"
	"understudy/id"
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
	// Embedder is the token of the program around the server, which acts for any user, as an administrator; "": there is none.
	Embedder string
	// HideDocs: there are no pages that describe the API.
	HideDocs bool
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
func Routes(o Options) { register(o) }

// register registers the routes, and returns them.
func register(o Options) *known {
	b := &base{o.Transport, o.DeerFlow, o.Route, o.Client, &known{}}
	browser, owned := &browser{b, o.Addressed}, &ownership{o.Threads, o.Runs}
	states, feeds := &states{owned}, &feeds{o.Events}
	turns := &turns{owned, feeds}
	o.Route([]string{""}, "GET", "/health", func(c *fiber.Ctx) error {
		return web.SendJSON(c, []byte(`{"status":"healthy","service":"deer-flow-gateway"}`))
	})
	for _, h := range []interface{ routes() }{
		&accountHandlers{b, browser},
		&ssoHandlers{b, browser},
		&threadHandlers{b, owned, states},
		&runHandlers{b, o.Completer, owned, states},
		&feedHandlers{b, owned, feeds},
		&turnHandlers{b, owned, states, turns},
		&treeHandlers{b, o.Completer, owned, turns, o.Send},
		&goalHandlers{b, owned, states},
		&consoleHandlers{b, owned},
		&feedbackHandlers{b, owned, feeds},
		&fileHandlers{b, owned},
		&skillHandlers{b, owned},
		&memoryHandlers{b},
		&agentHandlers{b},
		&settingsHandlers{b, owned},
		&taskHandlers{b, owned, o.Tasks},
		&absentHandlers{b, owned},
	} {
		h.routes()
	}
	for _, p := range slices.Backward(prefixes) { // the longer one first, as the shorter takes its paths too
		o.Rest(p, b.rest(p))
	}
	return b.known
}

// base is what all handlers work with.
type base struct {
	*web.Transport
	DeerFlow *Installation
	// Route and Client are as in Options.
	Route  func(prefixes []string, method, path string, h fiber.Handler)
	Client func(c *fiber.Ctx) string
	known  *known
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

// InternalUser is who channels act as unless they name a user, and everybody where the Gateway is open.
const InternalUser = "default"

// caller is who sent a request to the Gateway's API.
type caller struct {
	*account.User
	// internal: one of the server's own channels, which acts for a user.
	internal bool
	// id is whose threads and files are meant: the user's, or the one that a channel names.
	id string
	// named: a channel names the user.
	named bool
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
func (s *base) handle(method, pattern string, who audience, h handler) {
	s.known.add(method, pattern, who)
	s.Route(prefixes, method, pattern, s.gated(who, h))
}

// gated asks the gates in their order: CSRF, session, permission. Ownership and the body are the handler's.
func (s *base) gated(who audience, h handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		return deerflow.Explain(s.pass(c, who, h))
	}
}

func (s *base) pass(c *fiber.Ctx, who audience, h handler) error {
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
var Owners = access.Owner{Key: deerflow.OwnerKey, Reserved: []string{deerflow.FormerOwnerKey}}

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
		return &caller{User: &account.User{ID: InternalUser, Email: "default@localhost", Role: account.Admin}, id: InternalUser}, nil
	}
	if d.isInternal(internal) {
		caller := &caller{User: &account.User{ID: InternalUser, Role: account.Plain}, internal: true, id: InternalUser}
		if owner != "" {
			caller.id, caller.named = files.User(owner), true
		}
		if isToken(internal, d.Embedder) { // it takes no threads over
			caller.Role, caller.named = account.Admin, false
		}
		return caller, nil
	}
	u, err := d.Accounts.Session(ctx, session)
	if err != nil {
		return nil, err
	}
	return &caller{User: u, id: u.ID}, nil
}

// isInternal reports whether a header has the internal token, or that of the program around the server.
func (d *Installation) isInternal(token string) bool {
	return isToken(token, d.Internal) || isToken(token, d.Embedder)
}

func isToken(given, want string) bool {
	return given != "" && want != "" && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// follow returns what reports whether a session that was accepted has ended: it expired, its user is gone or has another password. nil: the request had none.
func (d *Installation) follow(session, internal string) func(ctx context.Context) bool {
	if d.Open || d.isInternal(internal) {
		return func(context.Context) bool { return false }
	}
	return func(ctx context.Context) bool { return d.Accounts.Ended(ctx, session) }
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

// Holds returns an *access.Refusal unless the account still exists whose user acted some time ago, as in a run that is stored.
func (d *Installation) Holds(ctx context.Context, actor *access.Actor) error {
	if d.Open || jsonobj.Of(actor.User).Text("display_name") == "" { // of a channel, whose users need no account
		return nil
	}
	_, err := d.Accounts.Store.User(ctx, actor.Identity)
	if fault.Is(err, fault.NotFound) {
		return &access.Refusal{Status: http.StatusForbidden, Detail: jsonobj.Quote("the account of " + actor.DisplayName + " was deleted: delete what it scheduled")}
	}
	return err
}

// refusalOf is what an error of the gates is to LangGraph's routes.
func refusalOf(err error) error {
	var f *deerflow.Failure
	if errors.As(deerflow.Explain(err), &f) {
		return &access.Refusal{Status: f.Status, Detail: f.Detail, Header: f.Header}
	}
	return err
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
func (s *base) form(c *fiber.Ctx, h func(f *deerflow.Form) error) error {
	return s.WithBody(c, func(body []byte) error {
		return readForm(c, body, h)
	})
}

// optionalForm is form for a body that may be left out, or be null: then h is not called.
func (s *base) optionalForm(c *fiber.Ctx, h func(f *deerflow.Form) error) error {
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

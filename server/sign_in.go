package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/access/audit"
	"understudy/auth"
	"understudy/auth/signin"
	"understudy/internal/fault"
	"understudy/server/internal/web"
)

// SignIn is how people may authenticate in a browser.
type SignIn struct {
	APIKeys, Tokens bool // that they may type
	// Desk signs in at a provider that is called Name; nil: there is none.
	Desk *signin.Desk
	Name string
	// URL is where browsers reach the server, without a path; "": as their requests say.
	URL string
}

// SignInPath is where the routes of the sign-in are, below the mount prefix.
const SignInPath = "/auth"

const (
	ticketCookie = "understudy_signin"
	ticketTime   = 10 * time.Minute
)

func (s *Server) signInRoutes() {
	under := []string{s.opts.MountPrefix}
	s.routeUnder(under, "GET", SignInPath+"/methods", s.signInMethods)
	if s.opts.SignIn.Desk == nil {
		return
	}
	s.routeUnder(under, "GET", SignInPath+"/login", s.beginSignIn)
	s.routeUnder(under, "GET", SignInPath+"/callback", s.finishSignIn)
	s.routeUnder(under, "GET", SignInPath+"/session", s.showSession)
	s.routeUnder(under, "POST", SignInPath+"/logout", s.signOut)
}

// signInMethods says what a page for signing in may offer.
func (s *Server) signInMethods(c *fiber.Ctx) error {
	in := s.opts.SignIn
	type provider struct {
		Name  string `json:"name"`
		Login string `json:"login"`
	}
	body := struct {
		APIKey    bool       `json:"api_key"`
		Token     bool       `json:"token"`
		Providers []provider `json:"providers"`
	}{in.APIKeys, in.Tokens, []provider{}}
	if in.Desk != nil {
		body.Providers = append(body.Providers, provider{in.Name, s.opts.MountPrefix + SignInPath + "/login"})
	}
	return s.sendPrivate(c, body)
}

// sendPrivate answers with JSON that is for this browser only.
func (s *Server) sendPrivate(c *fiber.Ctx, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return web.SendJSON(c, body)
}

// afterSignIn is where a browser goes that names no other place.
func (s *Server) afterSignIn() string {
	if s.showsStudio() {
		return s.opts.MountPrefix + StudioPath + "/"
	}
	return s.opts.MountPrefix + "/"
}

// callback is the address to which the provider sends browsers back.
func (s *Server) callback(c *fiber.Ctx) string {
	base := s.opts.SignIn.URL
	if base == "" {
		scheme, host := s.addressed(c)
		base = scheme + "://" + host
	}
	return base + s.opts.MountPrefix + SignInPath + "/callback"
}

func (s *Server) beginSignIn(c *fiber.Ctx) error {
	next := c.Query("next", s.afterSignIn())
	if !signin.Local(next) {
		return s.signInFailed(c, fault.New(fault.Invalid, "next has to be a path of this server, such as /studio/"))
	}
	address, ticket, err := s.opts.SignIn.Desk.Begin(c.UserContext(), s.callback(c), next)
	if err != nil {
		return s.signInFailed(c, err)
	}
	s.cookie(c, fiber.Cookie{Name: s.named(c, ticketCookie), Value: ticket.Text(), HTTPOnly: true, SameSite: fiber.CookieSameSiteLaxMode, MaxAge: int(ticketTime / time.Second)})
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Redirect(address, http.StatusSeeOther)
}

func (s *Server) finishSignIn(c *fiber.Ctx) error {
	ticket := signin.ParseTicket(c.Cookies(s.named(c, ticketCookie)))
	s.endCookie(c, s.named(c, ticketCookie))
	opened, err := s.opts.SignIn.Desk.Open(c.UserContext(), ticket, signin.Response{Code: c.Query("code"), State: c.Query("state"), Issuer: c.Query("iss"), Error: c.Query("error")}, s.callback(c))
	if err != nil {
		return s.signInFailed(c, err)
	}
	if old := c.Cookies(s.named(c, auth.SessionCookie)); old != "" { // who signs in again does not keep the session of before
		if err := s.opts.SignIn.Desk.Sessions.Close(c.UserContext(), old); err != nil {
			return s.signInFailed(c, err)
		}
	}
	s.sessionCookies(c, opened)
	next := ticket.Next
	if !signin.Local(next) {
		next = s.afterSignIn()
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Redirect(next, http.StatusSeeOther)
}

// showSession answers who is signed in. A page asks it when it starts, and gets a new secret now and then.
func (s *Server) showSession(c *fiber.Ctx) error {
	secret := c.Cookies(s.named(c, auth.SessionCookie))
	if secret == "" {
		return fault.New(fault.Unauthorized, "No session; sign in")
	}
	opened, err := s.opts.SignIn.Desk.Sessions.Show(c.UserContext(), secret)
	if err != nil {
		return err
	}
	if opened.Secret != secret {
		s.sessionCookies(c, opened)
	}
	return s.sendPrivate(c, struct {
		Identity string    `json:"identity"`
		Name     string    `json:"name"`
		Ends     time.Time `json:"ends_at"`
	}{opened.Person.Identity, opened.Person.Name, opened.Ends.UTC()})
}

// signOut ends the session. Its request is authenticated like others, so that no other site can sign people out.
func (s *Server) signOut(c *fiber.Ctx) error {
	if secret := c.Cookies(s.named(c, auth.SessionCookie)); secret != "" {
		if err := s.opts.SignIn.Desk.Sessions.Close(c.UserContext(), secret); err != nil {
			return err
		}
	}
	s.endCookie(c, s.named(c, auth.SessionCookie))
	s.endCookie(c, auth.CSRFCookie)
	return web.SendNothing(c)
}

// sessionCookies sets the cookies of a session: its secret, and what a script of our pages sends with requests that change something.
func (s *Server) sessionCookies(c *fiber.Ctx, o *auth.Opened) {
	age := max(1, int(time.Until(o.Ends)/time.Second))
	s.cookie(c, fiber.Cookie{Name: s.named(c, auth.SessionCookie), Value: o.Secret, HTTPOnly: true, SameSite: fiber.CookieSameSiteLaxMode, MaxAge: age})
	s.cookie(c, fiber.Cookie{Name: auth.CSRFCookie, Value: o.CSRF, SameSite: fiber.CookieSameSiteStrictMode, MaxAge: age})
}

// named is the name of a cookie. Over TLS its prefix lets browsers refuse one that another host has set.
func (s *Server) named(c *fiber.Ctx, name string) string {
	if scheme, _ := s.addressed(c); scheme == "https" {
		return auth.HostPrefix + name
	}
	return name
}

func (s *Server) cookie(c *fiber.Ctx, k fiber.Cookie) {
	scheme, _ := s.addressed(c)
	k.Path, k.Secure = "/", scheme == "https"
	c.Cookie(&k)
}

func (s *Server) endCookie(c *fiber.Ctx, name string) {
	s.cookie(c, fiber.Cookie{Name: name, MaxAge: -1, Expires: time.Unix(1, 0), HTTPOnly: name != auth.CSRFCookie, SameSite: fiber.CookieSameSiteLaxMode})
}

// failedPage is what a browser shows: a text and two addresses of this server.
const failedPage = `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign-in failed</title></head>
<body><main><h1>Sign-in failed</h1><p>%s.</p><p><a href="%s">Try again</a> or go <a href="%s">back</a>.</p></main></body></html>
`

// signInFailed shows why a sign-in failed, as a page. Details are in the log and the audit log only.
func (s *Server) signInFailed(c *fiber.Ctx, err error) error {
	status, text, worth := web.Explain(err)
	r := web.Of(c)
	r.Reason = web.Bounded(text, web.MaxReason)
	cause := errors.Unwrap(err)
	if worth || status == http.StatusUnauthorized {
		s.Log.Warn("sign-in failed", "request_id", r.ID, "reason", text, "cause", cause)
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		s.Audit.Add(audit.Entry{Event: audit.SignInFailed, Source: host(s.client(c)), Resource: "GET " + SignInPath + "/callback", Outcome: strconv.Itoa(status), Detail: text})
	}
	page := fmt.Appendf(nil, failedPage, html.EscapeString(text), html.EscapeString(s.opts.MountPrefix+SignInPath+"/login"), html.EscapeString(s.afterSignIn()))
	pageHeaders(c, "text/html; charset=utf-8", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	c.Set(fiber.HeaderCacheControl, "no-store")
	if status == http.StatusServiceUnavailable {
		c.Set(fiber.HeaderRetryAfter, "3")
	}
	return c.Status(status).Send(page)
}

// addressed is how the client addresses the server: with what a trusted proxy says, if there is one.
func (s *Server) addressed(c *fiber.Ctx) (scheme, host string) {
	if configured := s.opts.SignIn; configured != nil && configured.URL != "" {
		if u, err := url.Parse(configured.URL); err == nil {
			return u.Scheme, u.Host
		}
	}
	scheme, host = "http", string(c.Request().Header.Host())
	if s.opts.TLS {
		scheme = "https"
	}
	if s.behindProxy(c) {
		if last := lastOf(c.Get(fiber.HeaderXForwardedProto)); last == "http" || last == "https" {
			scheme = last
		}
		if last := lastOf(c.Get(fiber.HeaderXForwardedHost)); last != "" {
			host = last
		}
	}
	return scheme, host
}

// lastOf returns the last item of a list in a header: the one that the nearest proxy has added.
func lastOf(list string) string {
	return strings.ToLower(strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:]))
}

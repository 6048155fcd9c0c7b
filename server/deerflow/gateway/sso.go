package gateway

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/access/audit"
	"understudy/auth/signin"
	"understudy/deerflow/account"
	"understudy/deerflow/settings"
	"understudy/internal/fault"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// ssoHandlers let people sign in to DeerFlow's web UI at an OpenID provider.
type ssoHandlers struct {
	*base
	*browser
}

func (s *ssoHandlers) routes() {
	const auth = "/v1/auth"
	s.handle("GET", auth+"/providers", anybody, s.listProviders)
	s.handle("GET", auth+"/oauth/{provider}", anybody, s.beginSSO)
	s.handle("GET", auth+"/callback/{provider}", anybody, s.finishSSO)
}

func (s *ssoHandlers) listProviders(c *fiber.Ctx, _ *caller) error {
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return err
	}
	names := map[string]string{}
	if set.Auth.OIDC.Enabled {
		for name, p := range set.Auth.OIDC.Providers {
			names[name] = cmp.Or(p.DisplayName, name)
		}
	}
	return web.SendJSON(c, deerflow.Providers(names))
}

const (
	ssoCookie  = "df_oidc_state_"
	ssoTime    = 300 // seconds
	afterSSO   = "/workspace"
	ssoSession = "1" // before next in a ticket: the session outlives the browser
)

// maxProvider is how many bytes of the name of a provider an error repeats.
const maxProvider = 100

// sso returns the provider that a path names.
func (s *ssoHandlers) sso(c *fiber.Ctx) (*signin.Provider, settings.OIDCProvider, *settings.OIDC, error) {
	var none settings.OIDCProvider
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return nil, none, nil, err
	}
	if !set.Auth.OIDC.Enabled {
		return nil, none, nil, fault.New(fault.NotFound, "SSO authentication is not enabled")
	}
	name := c.Params("provider")
	p, o := s.DeerFlow.provider(set, name)
	if p == nil {
		return nil, none, nil, deerflow.Fail(http.StatusBadRequest, "Unknown SSO provider: "+web.Bounded(name, maxProvider))
	}
	return p, o, &set.Auth.OIDC, nil
}

func ssoPath(c *fiber.Ctx) string { return "/api/v1/auth/callback/" + c.Params("provider") }

func (s *ssoHandlers) ssoCallback(c *fiber.Ctx, o settings.OIDCProvider) string {
	if o.RedirectURI != "" {
		return o.RedirectURI
	}
	scheme, host := s.Addressed(c)
	return scheme + "://" + host + ssoPath(c)
}

// ssoNext is where the web UI goes after a sign-in: a path of it, "" for others. The Gateway refuses colons too.
func ssoNext(next string) string {
	if !signin.Local(next) || strings.Contains(next, ":") {
		return ""
	}
	return next
}

func (s *ssoHandlers) beginSSO(c *fiber.Ctx, _ *caller) error {
	p, o, _, err := s.sso(c)
	if err != nil {
		return err
	}
	f := query(c, "remember_me")
	remember := f.Bool("remember_me", true)
	if err := f.Err(); err != nil {
		return err
	}
	next := ssoNext(c.Query("next"))
	if next == "" {
		next = afterSSO
	}
	if remember {
		next = ssoSession + next
	}
	address, ticket, err := p.Begin(c.UserContext(), s.ssoCallback(c, o), next)
	if err != nil {
		s.Log.Warn("single sign-on: the provider cannot be asked", "request_id", web.Of(c).ID, "provider", c.Params("provider"), "error", err)
		return deerflow.Fail(http.StatusBadGateway, "Failed to connect to SSO provider")
	}
	s.ssoTicket(c, ticket.Text(), ssoTime)
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Redirect(address, http.StatusFound)
}

func (s *ssoHandlers) ssoTicket(c *fiber.Ctx, value string, age int) {
	scheme, _ := s.Addressed(c)
	k := fiber.Cookie{Name: ssoCookie + c.Params("provider"), Value: value, Path: ssoPath(c), HTTPOnly: true, SameSite: fiber.CookieSameSiteLaxMode, Secure: scheme == "https", MaxAge: age}
	if age < 0 {
		k.Expires = time.Unix(1, 0)
	}
	c.Cookie(&k)
}

// finishSSO sends the browser back to the web UI, with a session or with the reason why there is none.
func (s *ssoHandlers) finishSSO(c *fiber.Ctx, _ *caller) error {
	p, o, all, err := s.sso(c)
	if err != nil {
		return err
	}
	ticket := signin.ParseTicket(c.Cookies(ssoCookie + c.Params("provider")))
	s.ssoTicket(c, "", -1)
	c.Set(fiber.HeaderCacheControl, "no-store")
	claims, err := p.Finish(c.UserContext(), ticket, signin.Response{Code: c.Query("code"), State: c.Query("state"), Issuer: c.Query("iss"), Error: c.Query("error")}, s.ssoCallback(c, o))
	if errors.Is(err, signin.ErrState) {
		return deerflow.Fail(http.StatusForbidden, "OIDC state mismatch")
	}
	if err != nil {
		return s.ssoFailed(c, all, "sso_failed", err)
	}
	text := func(name string) string { v, _ := claims[name].(string); return v }
	verified, _ := claims["email_verified"].(bool)
	u, err := s.DeerFlow.Accounts.Admit(c.UserContext(), account.Outsider{Provider: c.Params("provider"), Subject: text("sub"), Email: text("email"), Verified: verified}, account.Admission{
		Create: o.AutoCreate == nil || *o.AutoCreate, Verified: o.Verified == nil || *o.Verified, Domains: o.Domains, Admins: o.Admins,
	})
	var refusal *account.Error
	if errors.As(err, &refusal) {
		return s.ssoFailed(c, all, string(refusal.Code), err)
	} else if err != nil {
		return err
	}
	next, remember := strings.CutPrefix(ticket.Next, ssoSession)
	if next = ssoNext(next); next == "" {
		next = afterSSO
	}
	if err := s.openSession(c, u, remember); err != nil {
		return err
	}
	return c.Redirect(all.Frontend+"/auth/callback?next="+url.QueryEscape(next), http.StatusFound)
}

// ssoFailed sends the browser to the sign-in page of the web UI. Details are in the log only.
func (s *ssoHandlers) ssoFailed(c *fiber.Ctx, all *settings.OIDC, code string, err error) error {
	s.Log.Warn("single sign-on failed", "request_id", web.Of(c).ID, "provider", c.Params("provider"), "error", err)
	s.Audit.Add(audit.Entry{Event: audit.SignInFailed, Source: s.Client(c), Resource: "GET /api/v1/auth/callback", Outcome: strconv.Itoa(http.StatusFound), Detail: code})
	return c.Redirect(all.Frontend+"/login?error="+code, http.StatusFound)
}

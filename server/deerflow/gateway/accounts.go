package gateway

import (
	"bytes"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"understudy/deerflow/account"
	"understudy/internal/fault"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// accountHandlers serve sign-in, and the accounts of people.
type accountHandlers struct {
	*base
	*browser
}

func (s *accountHandlers) routes() {
	const auth = "/v1/auth"
	s.handle("POST", auth+"/register", anybody, s.signUp(func(c *fiber.Ctx, n account.New) (*account.User, error) {
		return s.DeerFlow.Accounts.Register(c.UserContext(), n, s.address(c))
	}))
	s.handle("POST", auth+"/initialize", anybody, s.signUp(func(c *fiber.Ctx, n account.New) (*account.User, error) {
		return s.DeerFlow.Accounts.Initialize(c.UserContext(), n, s.address(c))
	}))
	s.handle("POST", auth+"/login/local", anybody, s.signIn)
	s.handle("POST", auth+"/logout", anybody, func(c *fiber.Ctx, _ *caller) error {
		if err := s.sameSite(c); err != nil {
			return err
		}
		s.closeSession(c)
		return web.SendJSON(c, deerflow.Message("Successfully logged out"))
	})
	s.handle("POST", auth+"/change-password", members, s.changePassword)
	s.handle("GET", auth+"/me", members, func(c *fiber.Ctx, who *caller) error { return web.SendJSON(c, deerflow.User(who.User)) })
	s.handle("GET", auth+"/setup-status", anybody, s.setupStatus)
}

const maxText = 64 << 10 // characters of fields that have no limit of their own

// signUp makes an account and opens a session of it.
func (s *accountHandlers) signUp(register func(*fiber.Ctx, account.New) (*account.User, error)) handler {
	return func(c *fiber.Ctx, _ *caller) error {
		if err := s.sameSite(c); err != nil {
			return err
		}
		return s.form(c, func(f *deerflow.Form) error {
			n := account.New{Email: emailOf(f, "email", f.Required("email", 0, maxText)), Password: newPassword(f, "password")}
			remember := f.Bool("remember_me", true)
			if err := f.Err(); err != nil {
				return err
			}
			u, err := register(c, n)
			if err != nil {
				return err
			}
			if err := s.openSession(c, u, remember); err != nil {
				return err
			}
			return web.SendJSON(c.Status(http.StatusCreated), deerflow.User(u))
		})
	}
}

var grant = regexp.MustCompile("^password$")

// signIn reads a form, as OAuth's password grant has it.
func (s *accountHandlers) signIn(c *fiber.Ctx, _ *caller) error {
	if err := s.sameSite(c); err != nil {
		return err
	}
	return s.WithBody(c, func(body []byte) error {
		get, err := formValues(c, body)
		if err != nil {
			return err
		}
		f := deerflow.FormFields(get, "username", "password", "remember_me", "grant_type")
		f.Match("grant_type", grant)
		email, password, remember := f.Required("username", 0, maxText), f.Required("password", 0, maxText), f.Bool("remember_me", true)
		if err := f.Err(); err != nil {
			return err
		}
		u, err := s.DeerFlow.Accounts.Login(c.UserContext(), email, password, s.address(c))
		if err != nil {
			return err
		}
		if err := s.openSession(c, u, remember); err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Login(u))
	})
}

func (s *accountHandlers) changePassword(c *fiber.Ctx, who *caller) error {
	return s.form(c, func(f *deerflow.Form) error {
		change := account.Change{Current: f.Required("current_password", 0, maxText), Password: newPassword(f, "new_password")}
		if email := f.Text("new_email", 0, maxText); email != nil {
			change.Email = emailOf(f, "new_email", *email)
		}
		remember := f.BoolOr("remember_me", c.Cookies(persistentCookie) != "0")
		if err := f.Err(); err != nil {
			return err
		}
		u, err := s.DeerFlow.Accounts.Change(c.UserContext(), who.User, change)
		if err != nil {
			return err
		}
		if err := s.openSession(c, u, remember); err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Message("Password changed successfully"))
	})
}

// emailOf notes what is wrong with an e-mail address.
func emailOf(f *deerflow.Form, key, given string) string {
	if err := account.CheckEmail(given); f.IsText(key) && err != nil {
		f.FailWith(key, "value_error", "value is not a valid email address: "+err.Error(), map[string]any{"reason": err.Error()})
	}
	return given
}

// newPassword reads a new password, and notes what is wrong with it.
func newPassword(f *deerflow.Form, key string) string {
	text := f.Required(key, account.MinPassword, maxText)
	if err := account.CheckPassword(text); f.IsText(key) && utf8.RuneCountInString(text) >= account.MinPassword && err != nil {
		f.FailWith(key, "value_error", "Value error, "+err.Error(), map[string]any{"error": struct{}{}})
	}
	return text
}

func (s *accountHandlers) setupStatus(c *fiber.Ctx, _ *caller) error {
	has, err := s.DeerFlow.Accounts.Store.HasAdmin(c.UserContext())
	if err != nil {
		return err
	}
	open := s.DeerFlow.Accounts.Open
	return web.SendJSON(c, deerflow.Of(struct {
		Setup        bool `json:"needs_setup"`
		Registration bool `json:"registration_enabled"`
	}{!has, open == nil || open()}))
}

// formValues reads a form, of either encoding.
func formValues(c *fiber.Ctx, body []byte) (get func(name string) (string, bool), err error) {
	values := url.Values{}
	kind, params, _ := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	switch kind {
	case "application/x-www-form-urlencoded":
		values, err = url.ParseQuery(string(body))
	case "multipart/form-data":
		var form *multipart.Form
		if form, err = multipart.NewReader(bytes.NewReader(body), params["boundary"]).ReadForm(maxForm); err == nil {
			values = form.Value
			defer func() { _ = form.RemoveAll() }()
		}
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, "There was an error parsing the body", err)
	}
	return func(name string) (string, bool) { return values.Get(name), values.Has(name) }, nil
}

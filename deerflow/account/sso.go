package account

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"understudy/internal/fault"
)

// Refusals of single sign-on.
var (
	ErrNotAllowed = &Error{"sso_not_allowed", "This user may not sign in here", fault.Forbidden}
	ErrOther      = &Error{"sso_account_exists", "Another account has this e-mail address", fault.Conflict}
)

// Outsider is who signed in at a provider of single sign-on.
type Outsider struct {
	Provider, Subject string
	Email             string
	Verified          bool // the provider has checked the address
}

// Admission says who of them gets an account.
type Admission struct {
	Create, Verified bool     // accounts are made; only of addresses that the provider has checked
	Domains          []string // of addresses; none: all
	Admins           []string // addresses of administrators
}

// Admit returns the account of an outsider, which is made the first time. It never becomes one that has a password, or is of another provider.
func (s *Service) Admit(ctx context.Context, who Outsider, a Admission) (*User, error) {
	if who.Subject == "" {
		return nil, ErrNotAllowed
	}
	u, err := s.Store.UserAt(ctx, who.Provider, who.Subject)
	if !fault.Is(err, fault.NotFound) {
		return u, err
	}
	email, err := checked(strings.ToLower(who.Email))
	_, domain, _ := strings.Cut(email, "@")
	fits := func(d string) bool { return strings.EqualFold(strings.TrimPrefix(d, "@"), domain) }
	if err != nil || a.Verified && !who.Verified || len(a.Domains) > 0 && !slices.ContainsFunc(a.Domains, fits) {
		return nil, ErrNotAllowed
	}
	switch _, err := s.Store.UserByEmail(ctx, email); {
	case err == nil:
		return nil, ErrOther
	case !fault.Is(err, fault.NotFound):
		return nil, err
	case !a.Create:
		return nil, ErrNotAllowed
	}
	u = &User{ID: uuid.NewString(), Email: email, Role: Plain, Provider: who.Provider, Subject: who.Subject, CreatedAt: s.now()}
	if slices.ContainsFunc(a.Admins, func(admin string) bool { return strings.EqualFold(admin, email) }) {
		u.Role = Admin
	}
	err = s.Store.InsertUser(ctx, u, false)
	if !fault.Is(err, fault.Conflict) {
		return u, err
	}
	// Another request of the same browser, or of another one, was faster.
	if u, err = s.Store.UserAt(ctx, who.Provider, who.Subject); fault.Is(err, fault.NotFound) {
		return nil, ErrOther
	}
	return u, err
}

package account

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"understudy/internal/address"
	"understudy/internal/fault"
)

// Role is what a user may do besides using their own things.
type Role string

const (
	Plain Role = "user"
	Admin Role = "admin" // may also manage skills, MCP servers and channels
)

// User is one account.
type User struct {
	ID        string // UUID
	Email     string // as registered; unique without regard to case
	Password  string // hash; "" for users of single sign-on
	Role      Role
	Setup     bool   // must choose a new password first
	Version   int    // of its sessions: raising it ends those that exist
	Provider  string // of single sign-on; "" none
	Subject   string // who the user is there; "" none
	CreatedAt time.Time
}

// Gone is an account that was deleted.
type Gone struct {
	ID string
	At time.Time
}

// Store keeps accounts.
type Store interface {
	// InsertUser returns fault.Conflict when the e-mail address, or the subject at the provider, is taken. With first set, the user is inserted only if there is no administrator
	// yet: ErrInitialized.
	InsertUser(ctx context.Context, u *User, first bool) error
	// User and UserByEmail return fault.NotFound when there is none.
	User(ctx context.Context, id string) (*User, error)
	UserByEmail(ctx context.Context, email string) (*User, error)
	// UserAt returns who is called subject at a provider of single sign-on; fault.NotFound when there is none.
	UserAt(ctx context.Context, provider, subject string) (*User, error)
	// UpdateUser writes the row if its Version is still was, else fault.Conflict. The error for a taken e-mail address is ErrEmailTaken.
	UpdateUser(ctx context.Context, u *User, was int) error
	// HasAdmin reports whether there is an administrator.
	HasAdmin(ctx context.Context) (bool, error)

	// Gone returns accounts that were deleted, by whatever program, until they are forgotten.
	Gone(ctx context.Context) ([]Gone, error)
	// ForgetGone forgets one, unless it was deleted again.
	ForgetGone(ctx context.Context, g Gone) error

	// Failures returns the number of failed attempts under a key since a time, and the time of the oldest of them.
	Failures(ctx context.Context, key string, since time.Time) (n int, oldest time.Time, err error)
	// AddFailure records a failed attempt and forgets attempts before a time. ForgetFailures forgets all under a key.
	AddFailure(ctx context.Context, key string, at, forget time.Time) error
	ForgetFailures(ctx context.Context, key string) error
}

// Code names an error for programs, as DeerFlow's UI reads it.
type Code string

// Error is a refusal, with a text for people.
type Error struct {
	Code    Code
	Message string
	Kind    fault.Kind
}

func (e *Error) Error() string { return e.Message }

// Refusals. Those of sessions are fault.Unauthorized.
var (
	ErrEmailTaken   = &Error{"email_already_exists", "Email already registered", fault.Invalid}
	ErrEmailUsed    = &Error{"email_already_exists", "Email already in use", fault.Invalid}
	ErrRegistration = &Error{"registration_disabled", "Registration is disabled", fault.Forbidden}
	ErrCredentials  = &Error{"invalid_credentials", "Incorrect email or password", fault.Unauthorized}
	ErrPassword     = &Error{"invalid_credentials", "Current password is incorrect", fault.Invalid}
	ErrNoPassword   = &Error{"invalid_credentials", "This account signs in elsewhere and has no password here", fault.Invalid}
	ErrInitialized  = &Error{"system_already_initialized", "System already initialized", fault.Conflict}
	ErrMissing      = &Error{"not_authenticated", "Authentication required", fault.Unauthorized}
	ErrToken        = &Error{"token_invalid", "Invalid session", fault.Unauthorized}
	ErrExpired      = &Error{"token_expired", "Session expired", fault.Unauthorized}
	ErrGone         = &Error{"user_not_found", "User not found", fault.Unauthorized}
	// ErrLocked: too many failures of the address or for the account.
	ErrLocked = errors.New("Too many login attempts. Try again later.") //nolint:staticcheck // a sentence for people
)

// Locked is ErrLocked with the time after which the next attempt may be made.
type Locked struct{ Wait time.Duration }

func (*Locked) Error() string { return ErrLocked.Error() }

// Is reports that it is ErrLocked.
func (*Locked) Is(target error) bool { return target == ErrLocked }

// refusal is the error after failures of which the oldest was at a time; zero: they are being counted now.
func (s *Service) refusal(oldest time.Time) error {
	if oldest.IsZero() {
		return &Locked{time.Second}
	}
	return &Locked{max(oldest.Add(lockout).Sub(s.now()), time.Second)}
}

// Lockout: after this many failures within this time, further attempts are refused until the oldest is older.
const (
	maxFailures = 5
	// maxFromNetwork bounds them where sign-ins to an account of one's own between the guesses make the others forget.
	maxFromNetwork = 30
	// maxForAccount bounds guesses at one account from many addresses. It does not hold networks from which the account was signed in to within knownFor: else
	// anyone with as many addresses could lock its owner out.
	maxForAccount = 50
	lockout       = 5 * time.Minute
	knownFor      = 30 * 24 * time.Hour
)

// Service is safe for concurrent use.
type Service struct {
	Store  Store
	Tokens Tokens
	// Open reports whether anybody may register; nil: yes.
	Open func() bool
	Now  func() time.Time // nil: time.Now
	// Cost of bcrypt; 0: 12. Tests use less.
	Cost int
	Log  *slog.Logger // nil: none

	crowded  sync.Once // a network was refused for its number of requests
	versions versions
}

// New is a wish for an account, as a client sends it.
type New struct{ Email, Password string }

// Register makes an account without rights. from is the network address that asks. Errors: *Error, or fault.Unprocessable for what Check refuses.
func (s *Service) Register(ctx context.Context, n New, from string) (*User, error) {
	if s.Open != nil && !s.Open() {
		return nil, ErrRegistration
	}
	return s.insert(ctx, n, from, Plain)
}

// Initialize makes the first administrator, once.
func (s *Service) Initialize(ctx context.Context, n New, from string) (*User, error) {
	if has, err := s.Store.HasAdmin(ctx); err != nil {
		return nil, err
	} else if has {
		return nil, ErrInitialized // before the work of hashing
	}
	return s.insert(ctx, n, from, Admin)
}

func (s *Service) insert(ctx context.Context, n New, from string, role Role) (*User, error) {
	email, err := checked(n.Email)
	if err != nil {
		return nil, err
	}
	if err := CheckPassword(n.Password); err != nil {
		return nil, err
	}
	leave, err := s.enter(ctx, network(from))
	if err != nil {
		return nil, err
	}
	hash, err := hashed(ctx, n.Password, s.Cost)
	leave()
	if err != nil {
		return nil, err
	}
	u := &User{ID: uuid.NewString(), Email: email, Password: hash, Role: role, CreatedAt: s.now()}
	err = s.Store.InsertUser(ctx, u, role == Admin)
	if fault.Is(err, fault.Conflict) {
		return nil, ErrEmailTaken
	}
	return u, err
}

// Login checks a password. from is the network address that asks. The work is the same for an account that does not exist.
func (s *Service) Login(ctx context.Context, email, password, from string) (*User, error) {
	email = strings.ToLower(strings.TrimSpace(email)) // one spelling in the query and in all keys: the store ignores case and outer spaces
	if len(email) > maxEmail {
		return nil, ErrCredentials // no account has it, and keys have a bound
	}
	c := client{network(from), email}
	if err := s.locked(ctx, c, 0); err != nil {
		return nil, err
	}
	leave, err := s.enter(ctx, c.network)
	if err != nil {
		return nil, err
	}
	defer leave()
	u, err := s.check(ctx, c, password)
	if err != nil {
		return nil, err
	}
	// Not those for the account: others may be guessing.
	if err := s.Store.ForgetFailures(ctx, c.address()); err != nil {
		return nil, err
	}
	if err := s.know(ctx, c); err != nil {
		return nil, err
	}
	if err := s.renew(ctx, u, password); err != nil { // the next sign-in tries again
		s.log().Warn("renewing a password hash of an older form failed", "user", u.ID, "error", err)
	}
	return u, nil
}

// enter lets a network wait in the queue for hashes. The log says once that there were too many: a proxy that is not known makes all users one network.
func (s *Service) enter(ctx context.Context, network string) (leave func(), err error) {
	leave, err = hashes.enter(ctx, network)
	if errors.Is(err, errQueue) {
		s.crowded.Do(func() {
			s.log().Warn("too many sign-ins at once, further ones get 503; if the network is that of a proxy, put it into AUTH_TRUSTED_PROXIES, and let the proxy send X-Real-IP", "network", network)
		})
	}
	return leave, err
}

// check returns the user whose password it is. Failures are counted before the next request of the network, and before another one at the account.
func (s *Service) check(ctx context.Context, c client, password string) (*User, error) {
	others, done := hashes.guess(c.email)
	defer done()
	if err := s.locked(ctx, c, others); err != nil { // by what was sent at the same time
		return nil, err
	}
	u, err := s.Store.UserByEmail(ctx, c.email)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	hash := ""
	if u != nil {
		hash = u.Password
	}
	if ok, err := matches(ctx, password, hash, s.Cost); ok || err != nil {
		return u, err
	}
	for _, k := range []string{c.address(), c.all(), c.account()} {
		if err := s.Store.AddFailure(ctx, k, s.now(), s.now().Add(-lockout)); err != nil {
			return nil, err
		}
	}
	return nil, ErrCredentials
}

// client is who signs in: from a network, to an account.
type client struct{ network, email string }

// Keys of the store.
func (c client) address() string { return "address:" + c.network }
func (c client) all() string     { return "network:" + c.network } // also those before a success
func (c client) account() string { return "account:" + c.email }
func (c client) known() string   { return "known:" + c.network + " " + c.email }

// know notes that an account was signed in to from a network. It is kept as what failures are, at the time until which it counts.
func (s *Service) know(ctx context.Context, c client) error {
	if n, _, err := s.Store.Failures(ctx, c.known(), s.now().Add(knownFor-24*time.Hour)); err != nil || n > 0 { // once a day
		return err
	}
	if err := s.Store.ForgetFailures(ctx, c.known()); err != nil {
		return err
	}
	return s.Store.AddFailure(ctx, c.known(), s.now().Add(knownFor), s.now().Add(-lockout))
}

// locked returns ErrLocked after too many failures of an address, or for an account, unless the address is of a network that the account knows. Others are
// guesses at the account that are being made.
func (s *Service) locked(ctx context.Context, c client, others int) error {
	since := s.now().Add(-lockout)
	n, oldest, err := s.Store.Failures(ctx, c.address(), since)
	if err != nil {
		return err
	}
	if n >= maxFailures {
		return s.refusal(oldest)
	}
	if n, oldest, err = s.Store.Failures(ctx, c.all(), since); err != nil {
		return err
	}
	if n >= maxFromNetwork {
		return s.refusal(oldest)
	}
	if n, oldest, err = s.Store.Failures(ctx, c.account(), since); err != nil || n+others < maxForAccount {
		return err
	}
	if known, _, err := s.Store.Failures(ctx, c.known(), s.now()); err != nil || known > 0 {
		return err
	}
	return s.refusal(oldest)
}

// network is what failures of a client are counted by.
func network(from string) string {
	a, err := netip.ParseAddr(from)
	if err != nil {
		return from
	}
	return address.Customer(a).String()
}

// renew replaces a hash of an older form, now that the password is known.
func (s *Service) renew(ctx context.Context, u *User, password string) error {
	if current(u.Password) {
		return nil
	}
	hash, err := hashed(ctx, password, s.Cost)
	if err != nil {
		return err
	}
	next := *u
	next.Password = hash
	if err := s.Store.UpdateUser(ctx, &next, u.Version); err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return nil
}

// Change is a wish for another password, and for another e-mail address unless that is "".
type Change struct{ Current, Password, Email string }

// confirm returns ErrPassword for a wrong current password, and ErrLocked after too many: who has a session may not have the password.
func (s *Service) confirm(ctx context.Context, u *User, password string) error {
	key, since := "confirm:"+u.ID, s.now().Add(-lockout)
	if n, oldest, err := s.Store.Failures(ctx, key, since); err != nil {
		return err
	} else if n >= maxFailures {
		return s.refusal(oldest)
	}
	if ok, err := matches(ctx, password, u.Password, s.Cost); err != nil {
		return err
	} else if ok {
		return s.Store.ForgetFailures(ctx, key)
	}
	if err := s.Store.AddFailure(ctx, key, s.now(), since); err != nil {
		return err
	}
	return ErrPassword
}

// Change sets a new password and ends all sessions of the user.
func (s *Service) Change(ctx context.Context, u *User, c Change) (*User, error) {
	if u.Password == "" {
		return nil, ErrNoPassword
	}
	if err := CheckPassword(c.Password); err != nil {
		return nil, err
	}
	leave, err := hashes.enter(ctx, "user:"+u.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.confirm(ctx, u, c.Current); err != nil {
		return nil, err
	}
	next := *u
	if c.Email != "" {
		if next.Email, err = checked(c.Email); err != nil {
			return nil, err
		}
		next.Setup = false
	}
	if next.Password, err = hashed(ctx, c.Password, s.Cost); err != nil {
		return nil, err
	}
	next.Version++
	switch err := s.Store.UpdateUser(ctx, &next, u.Version); {
	case errors.Is(err, ErrEmailTaken):
		return nil, ErrEmailUsed
	case fault.Is(err, fault.Conflict): // changed by another session meanwhile
		return nil, ErrToken
	case err != nil:
		return nil, err
	}
	return &next, nil
}

// Session returns the user of a token. Errors are those of sessions.
func (s *Service) Session(ctx context.Context, token string) (*User, error) {
	if token == "" {
		return nil, ErrMissing
	}
	subject, version, err := s.Tokens.Read(token, s.now())
	if err != nil {
		return nil, err
	}
	u, err := s.Store.User(ctx, subject)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, ErrGone
	case err != nil:
		return nil, err
	case u.Version != version:
		return nil, ErrToken
	}
	return u, nil
}

// Token makes a session of a user.
func (s *Service) Token(u *User) (string, error) { return s.Tokens.Make(u, s.now()) }

func (s *Service) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Service) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.New(slog.DiscardHandler)
}

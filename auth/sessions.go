package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"understudy/access"
	"understudy/internal/cache"
	"understudy/internal/loop"
)

// Session is what is stored of someone who signed in with a browser. Its secret is in a cookie of the browser, and kept nowhere else.
type Session struct {
	ID       string // digest of the secret
	Identity string
	Content  json.RawMessage // opaque
	// Ends is when the session ends at the latest, Expires when it ends unless it is used before. Expires is never after Ends.
	CreatedAt, Expires, Ends time.Time
	// Renewed is when the secret was made.
	Renewed time.Time
}

// SessionStore keeps sessions.
type SessionStore interface {
	InsertSession(ctx context.Context, s *Session) error
	// SessionsOf returns those of the sessions that exist, in any order.
	SessionsOf(ctx context.Context, ids []string) ([]*Session, error)
	// ExtendSession sets when a session expires, unless that is earlier or the session was replaced.
	ExtendSession(ctx context.Context, id string, expires time.Time) error
	// ReplaceSession inserts next in place of a session, which ends at a time and has another content from now on, if no other one has replaced it, and
	// reports whether it did.
	ReplaceSession(ctx context.Context, id string, content json.RawMessage, next *Session, until time.Time) (bool, error)
	// EndSession deletes a session. It may not exist.
	EndSession(ctx context.Context, id string) error
	// SweepSessions deletes up to n sessions that expired before a time, and returns their number.
	SweepSessions(ctx context.Context, before time.Time, n int) (int, error)
}

// Person is who signed in.
type Person struct {
	Identity, Name string
	Permissions    []string
	Claims         json.RawMessage
}

// Opened is a session of a browser: the secrets for its cookies, and when they end.
type Opened struct {
	Secret, CSRF string
	Person       Person
	Ends         time.Time
}

// SessionOptions bound sessions.
type SessionOptions struct {
	Store SessionStore
	// Longest is how long a session lasts at most, Idle how long without a request.
	Longest, Idle time.Duration
	Now           func() time.Time
	Log           *slog.Logger
}

const (
	renewSession = time.Hour   // a secret is replaced after it, when the page asks who it is
	overlap      = time.Minute // how long a secret works that was replaced: requests may be on their way
	sweepEvery   = 10 * time.Minute
	sweepStep    = 1000
)

// Sessions authenticates by cookies. Create it with NewSessions. It is safe for concurrent use.
type Sessions struct {
	o       SessionOptions
	lookups lookups[Session]
	cached  *cache.Cache[string, *cachedSession]

	mu sync.Mutex // guards cachedSession.used
}

type cachedSession struct {
	*Session
	person Person
	next   string // ID of the session that has replaced it; "" none
	actor  *access.Actor
	at     time.Time // when it was read
	used   time.Time // when Expires was computed
}

// NewSessions returns sessions of a store.
func NewSessions(o SessionOptions) *Sessions {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sessions{o: o, cached: cache.New[string, *cachedSession](maxCached)}
	s.lookups.read, s.lookups.idOf, s.lookups.problem = o.Store.SessionsOf, func(x *Session) string { return x.ID }, "Sessions cannot be checked now"
	return s
}

// Run deletes sessions that have ended, until the context ends.
func (s *Sessions) Run(ctx context.Context) error {
	return loop.Loop{Name: "sessions", Log: s.o.Log, Now: s.o.Now}.Every(ctx, sweepEvery, func(ctx context.Context) error {
		for {
			n, err := s.o.Store.SweepSessions(ctx, s.o.Now(), sweepStep)
			if err != nil || n < sweepStep {
				return err
			}
		}
	})
}

// sessionID is the name of a session in the database: its secret cannot be made from it.
func sessionID(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// csrf is what a script of our pages reads from a cookie, and sends in a header. It is made of the secret, so that one that another site has put into a cookie is
// not accepted.
func csrf(secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("csrf"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// SecretLength is that of NewSecret.
var SecretLength = base64.RawURLEncoding.EncodedLen(secretBytes)

// NewSecret returns what only its owner knows: SecretLength characters that fit into a cookie and an address.
func NewSecret() string {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it does not fail
	return base64.RawURLEncoding.EncodeToString(secret)
}

// Open makes a session of who signed in.
func (s *Sessions) Open(ctx context.Context, p Person) (*Opened, error) {
	content, err := json.Marshal(stored{p.Name, p.Permissions, p.Claims, ""})
	if err != nil {
		return nil, fmt.Errorf("encode a session: %w", err)
	}
	now, secret := s.o.Now(), NewSecret()
	x := &Session{ID: sessionID(secret), Identity: p.Identity, Content: content, CreatedAt: now, Renewed: now, Ends: now.Add(s.o.Longest)}
	x.Expires = s.expires(x, now)
	if err := s.o.Store.InsertSession(ctx, x); err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	return &Opened{secret, csrf(secret), p, x.Ends}, nil
}

// stored is the content of a session.
type stored struct {
	Name        string          `json:"name"` //nolint:tagliatelle // of the database
	Permissions []string        `json:"permissions"`
	Claims      json.RawMessage `json:"claims"`
	Next        string          `json:"next,omitempty"` // ID of the session that has replaced it
}

func (s *Sessions) expires(x *Session, now time.Time) time.Time {
	if end := now.Add(s.o.Idle); end.Before(x.Ends) {
		return end
	}
	return x.Ends
}

// Close ends a session, on this server now and on others within Fresh.
func (s *Sessions) Close(ctx context.Context, secret string) error {
	id := sessionID(secret)
	if err := s.o.Store.EndSession(ctx, id); err != nil {
		return fmt.Errorf("close a session: %w", err)
	}
	s.cached.Take(id)
	return nil
}

var (
	errSession = refused("The session has ended; sign in again")
	errCSRF    = &access.Refusal{Status: http.StatusForbidden, Detail: json.RawMessage(`"CSRF token missing or wrong: send the value of the cookie ` + CSRFCookie + ` as header X-CSRF-Token"`)}
	errOrigin  = &access.Refusal{Status: http.StatusForbidden, Detail: json.RawMessage(`"A page of another site may not use the session of this browser"`)}
)

// Cookies and header of a session. A cookie whose name begins with __Host- can be set over TLS only, and by this host only.
const (
	SessionCookie = "understudy_session"
	HostPrefix    = "__Host-"
	CSRFCookie    = "understudy_csrf"
	CSRFHeader    = "X-Csrf-Token"
)

// Cookie returns the secret of a session in the cookies of a request; "" when there is none.
func Cookie(r *access.Request) string {
	name := SessionCookie
	if r.Secure {
		name = HostPrefix + name
	}
	c, err := (&http.Request{Header: r.Header}).Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// Authenticate returns who acts with a session. Requests that may change something need the CSRF token, handshakes of WebSockets the origin of the server.
func (s *Sessions) Authenticate(ctx context.Context, r *access.Request, secret string) (*access.Actor, error) {
	if err := checkPage(r, secret); err != nil {
		return nil, err
	}
	x, err := s.find(ctx, secret)
	if err != nil {
		return nil, err
	}
	return x.actor, nil
}

// checkPage refuses what a page of another site may have sent.
func checkPage(r *access.Request, secret string) error {
	switch {
	case r.WebSocket:
		_, host, _ := strings.Cut(r.Header.Get("Origin"), "://")
		if !strings.EqualFold(host, r.Host) {
			return errOrigin
		}
	case r.Method == http.MethodGet, r.Method == http.MethodHead, r.Method == http.MethodOptions:
	case subtle.ConstantTimeCompare([]byte(r.Header.Get(CSRFHeader)), []byte(csrf(secret))) != 1:
		return errCSRF
	}
	return nil
}

// find returns the session of a secret, of the cache or the store. The error is a refusal or a fault.
func (s *Sessions) find(ctx context.Context, secret string) (*cachedSession, error) {
	if len(secret) != SecretLength {
		return nil, errSession
	}
	now := s.o.Now()
	x, err := s.read(ctx, sessionID(secret), now)
	if err != nil {
		return nil, err
	}
	if !now.Before(x.Expires) {
		return nil, errSession
	}
	s.use(ctx, x, now)
	return x, nil
}

// read returns a session of the cache or the store, which may have ended. The error is errSession or a fault.
func (s *Sessions) read(ctx context.Context, id string, now time.Time) (*cachedSession, error) {
	if x, _ := s.cached.Get(id); x != nil && now.Sub(x.at) < renewed {
		return x, nil
	}
	row, err := s.lookups.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.keep(id, row, now)
}

// follow returns what reports whether a session has ended, which does not use it. The session may have got other secrets meanwhile.
func (s *Sessions) follow(secret string) func(ctx context.Context) bool {
	var mu sync.Mutex
	id := sessionID(secret)
	return func(ctx context.Context) bool {
		mu.Lock()
		defer mu.Unlock()
		for {
			now := s.o.Now()
			x, err := s.read(ctx, id, now)
			switch {
			case err != nil:
				return err == errSession //nolint:errorlint // a refusal is never wrapped
			case x.next == "":
				return !now.Before(x.Expires)
			}
			id = x.next
		}
	}
}

// keep puts a session that was read into the cache; nil: there is none.
func (s *Sessions) keep(id string, row *Session, now time.Time) (*cachedSession, error) {
	if row == nil {
		s.cached.Take(id)
		return nil, errSession
	}
	var content stored
	if err := json.Unmarshal(row.Content, &content); err != nil {
		return nil, fmt.Errorf("read a session: %w", err)
	}
	x := &cachedSession{Session: row, at: now, used: row.Expires.Add(-s.o.Idle), person: Person{row.Identity, content.Name, content.Permissions, content.Claims}, next: content.Next}
	x.actor = actor(row.Identity, content.Name, content.Permissions, content.Claims)
	s.cached.Put(id, x, 1)
	return x, nil
}

// use lets a session expire later, now and then.
func (s *Sessions) use(ctx context.Context, x *cachedSession, now time.Time) {
	s.mu.Lock()
	due := x.Expires.Before(x.Ends) && now.Sub(x.used) >= s.o.Idle/10
	if due {
		x.used = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	if err := s.o.Store.ExtendSession(ctx, x.ID, s.expires(x.Session, now)); err != nil {
		s.o.Log.WarnContext(ctx, "extending a session failed", "error", err)
		return
	}
	s.cached.Take(x.ID) // it expires later than is cached
}

// Show returns the session of a secret. Its secret is a new one if the old one is older than an hour: then the old one ends soon.
func (s *Sessions) Show(ctx context.Context, secret string) (*Opened, error) {
	x, err := s.find(ctx, secret)
	if err != nil {
		return nil, err
	}
	now, out := s.o.Now(), &Opened{secret, csrf(secret), x.person, x.Ends}
	if now.Sub(x.Renewed) < renewSession {
		return out, nil
	}
	fresh, next := NewSecret(), *x.Session
	next.ID, next.Renewed, next.Expires = sessionID(fresh), now, s.expires(x.Session, now)
	content, err := json.Marshal(stored{x.person.Name, x.person.Permissions, x.person.Claims, next.ID})
	if err != nil {
		return nil, fmt.Errorf("encode a session: %w", err)
	}
	won, err := s.o.Store.ReplaceSession(ctx, x.ID, content, &next, now.Add(overlap))
	if err != nil {
		return nil, fmt.Errorf("renew a session: %w", err)
	}
	s.cached.Take(x.ID) // it ends sooner than is cached
	if won {
		out.Secret, out.CSRF = fresh, csrf(fresh)
	}
	return out, nil
}

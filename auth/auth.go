// Package auth authenticates requests without Python: by API keys and sessions of browsers, whose digests are in the database, and by JSON Web Tokens of an
// identity provider.
// Its Policy gives each identity what it created, or lets all share everything.
//
// docs/auth.md shows how it is configured; package access has the types that it fills.
package auth

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"understudy/access"
	"understudy/internal/jsonobj"
)

// Scopes in access.Actor.Permissions. Admin implies the others and reaches what belongs to everyone. A token that has none of them may read and write.
const (
	Read  = "understudy:read"
	Write = "understudy:write"
	Admin = "understudy:admin"
)

// Native authenticates by the credentials that are configured. It is an access.Authenticator.
type Native struct {
	Keys     *Keys            // nil: API keys are not accepted
	Tokens   *Tokens          // nil: tokens are not accepted
	Sessions *Sessions        // of browsers; nil: they are not accepted
	Now      func() time.Time // nil: time.Now

	throttle throttle
}

var _ access.Selective = (*Native)(nil)

// KeyHeader is the header in which SDKs of LangGraph send API keys.
const KeyHeader = "X-Api-Key"

// Reads implements access.Selective.
func (n *Native) Reads() (headers []string, address bool) {
	if n.Sessions != nil { // whose pages have an origin
		return sessionHeaders, true
	}
	return nativeHeaders, false
}

var (
	nativeHeaders  = []string{"Authorization", KeyHeader}
	sessionHeaders = append([]string{"Cookie", CSRFHeader, "Origin"}, nativeHeaders...)
)

// Authenticate implements access.Authenticator: by `x-api-key`, else by `Authorization: Bearer` with a token or a key, else by the session
// of a browser. A source that sent many wrong credentials has to wait, unless it sends some that were valid before; sessions, which end by themselves, are not counted.
func (n *Native) Authenticate(ctx context.Context, r *access.Request) (*access.Actor, error) {
	if n.Keys != nil {
		if list := r.Header[KeyHeader]; len(list) == 1 {
			return n.check(ctx, r, list[0], n.Keys)
		} else if len(list) > 1 {
			return nil, refused("More than one " + KeyHeader + " header")
		}
	}
	scheme, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	credential = strings.TrimSpace(credential)
	if credential == "" && n.Sessions != nil {
		if secret := Cookie(r); secret != "" {
			return n.Sessions.Authenticate(ctx, r, secret)
		}
	}
	switch {
	case credential == "":
		return nil, refused("Missing credentials: send " + n.accepted())
	case !strings.EqualFold(scheme, "bearer"):
		return nil, refused("Unknown scheme of the Authorization header: send " + n.accepted())
	case n.Keys != nil && strings.HasPrefix(credential, prefix):
		return n.check(ctx, r, credential, n.Keys)
	case n.Tokens != nil:
		return n.check(ctx, r, credential, n.Tokens)
	}
	return nil, errKey
}

var _ access.Revocable = (*Native)(nil)

// Follow implements access.Revocable.
func (n *Native) Follow(r *access.Request) func(ctx context.Context) bool {
	if text := r.Header.Get(KeyHeader); text != "" && n.Keys != nil {
		return follow(n.Keys, text)
	}
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	credential = strings.TrimSpace(credential)
	switch {
	case credential == "" && n.Sessions != nil:
		if session := Cookie(r); session != "" {
			return n.Sessions.follow(session)
		}
	case n.Keys != nil && strings.HasPrefix(credential, prefix):
		return follow(n.Keys, credential)
	case credential != "" && n.Tokens != nil:
		return follow(n.Tokens, credential)
	}
	return nil
}

// follow reports whether a credential that was accepted is refused now. It is not while that cannot be found out.
func follow(by checker, text string) func(ctx context.Context) bool {
	return func(ctx context.Context) bool {
		_, err := by.Authenticate(ctx, text)
		refusal, ok := err.(*access.Refusal) //nolint:errorlint // a refusal is never wrapped
		return ok && refusal.Status == http.StatusUnauthorized
	}
}

// checker is Keys or Tokens.
type checker interface {
	// known reports whether a credential was valid when it was last used, without a question to anyone.
	known(text string) bool
	Authenticate(ctx context.Context, text string) (*access.Actor, error)
}

// check is Authenticate of a checker for sources that did not send too many wrong credentials.
func (n *Native) check(ctx context.Context, r *access.Request, credential string, by checker) (*access.Actor, error) {
	now := time.Now
	if n.Now != nil {
		now = n.Now
	}
	if wait := n.throttle.refuse(r.Client, now); wait > 0 && !by.known(credential) {
		return nil, errThrottled(wait)
	}
	who, err := by.Authenticate(ctx, credential)
	if refusal, ok := err.(*access.Refusal); ok && refusal.Status == http.StatusUnauthorized { //nolint:errorlint // a refusal is never wrapped
		n.throttle.failed(r.Client, now())
	}
	return who, err
}

// accepted says what clients may send.
func (n *Native) accepted() string {
	switch {
	case n.Keys == nil && n.Tokens == nil:
		return "the cookie that signing in with a browser sets"
	case n.Tokens == nil:
		return "an API key as `x-api-key` or `Authorization: Bearer`"
	case n.Keys == nil:
		return "a token as `Authorization: Bearer`"
	}
	return "an API key as `x-api-key`, or a token as `Authorization: Bearer`"
}

// refused is a 401 with a text.
func refused(text string) *access.Refusal {
	return &access.Refusal{Status: http.StatusUnauthorized, Detail: jsonobj.Quote(text), Header: http.Header{"Www-Authenticate": {"Bearer"}}}
}

// Holds returns an *access.Refusal unless who acted some time ago, as in a run that is stored, could still come the same way: with a key whose identity has valid keys
// with the scopes of that time, or with a token or session while any of these are accepted. It does not learn that a user of those is gone.
func (n *Native) Holds(ctx context.Context, actor *access.Actor) error {
	switch {
	case byKey(actor) && n.Keys == nil:
		return locked(actor.Identity + " acted with an API key, and keys are not accepted any more: set auth.api_keys in langgraph.json, or create the cron again with other credentials")
	case byKey(actor):
		return n.Keys.holds(ctx, actor)
	case n.Tokens == nil && n.Sessions == nil:
		return locked(actor.Identity + " acted with a token or a session, and neither is accepted any more: set auth.jwt or auth.oidc in langgraph.json, or create the cron again with an API key")
	}
	return nil
}

// byKey reports whether an actor came with a key. Tokens and sessions have claims, which are stored with it; those of keys, and of Python handlers before, have none.
func byKey(actor *access.Actor) bool { return jsonobj.Of(actor.User).Get("claims") == nil }

// actor makes an actor; claims are what a token or session says besides, nil for those of keys.
func actor(identity, name string, permissions []string, claims json.RawMessage) *access.Actor {
	if name == "" {
		name = identity
	}
	user := &jsonobj.Object{}
	user.SetText("identity", identity)
	user.SetText("display_name", name)
	user.Set("is_authenticated", json.RawMessage("true"))
	list, err := json.Marshal(append([]string{}, permissions...))
	if err != nil {
		panic(err) // texts can be encoded
	}
	user.Set("permissions", list)
	if claims != nil {
		user.Set("claims", claims)
	}
	return &access.Actor{Identity: identity, DisplayName: name, Authenticated: true, Permissions: append([]string{}, permissions...), User: user.JSON()}
}

// Policy lets actors do what their scopes say. It is an access.Policy.
type Policy struct {
	// Owner gives each identity what it created; nil: all share everything.
	Owner *access.Owner
}

var (
	_ access.Stamper  = Policy{}
	_ access.Selector = Policy{}
)

// reading are the actions for which the scope Read is enough.
var reading = []string{"read", "search", "get", "list_namespaces"}

// scopes returns what an actor may do. Without a scope, as tokens have none, it may write.
func scopes(who *access.Actor) (admin, write bool) {
	return implies(who.Permissions, Admin), implies(who.Permissions, Write) || !implies(who.Permissions, Read)
}

// implies reports whether some of the scopes are one, or include it: Admin does Write, and both do Read.
func implies(scopes []string, scope string) bool {
	by := []string{Read, Write, Admin}
	if at := slices.Index(by, scope); at >= 0 {
		return slices.ContainsFunc(by[at:], func(s string) bool { return slices.Contains(scopes, s) })
	}
	return slices.Contains(scopes, scope)
}

// Select implements access.Selector. Who lacks a scope is left to Decide.
func (p Policy) Select(who *access.Actor, resource, action string) (*access.Filter, bool) {
	admin, write := scopes(who)
	switch {
	case !write && !slices.Contains(reading, action):
		return nil, false
	case p.Owner == nil || admin:
		return nil, true
	}
	return p.Owner.Select(who, resource, action)
}

// Stamp implements access.Stamper.
func (p Policy) Stamp(who *access.Actor, resource, action string, metadata json.RawMessage) (json.RawMessage, *access.Filter, error) {
	admin, write := scopes(who)
	switch {
	case !write && !slices.Contains(reading, action):
		return nil, nil, errNeedsWrite(resource, action)
	case p.Owner == nil:
		return metadata, nil, nil
	}
	stored, f, err := p.Owner.Stamp(who, resource, action, metadata)
	if admin {
		f = nil
		if action == "update" { // what belongs to someone stays theirs
			stored = metadata
		}
	}
	return stored, f, err
}

func errNeedsWrite(resource, action string) *access.Refusal {
	return &access.Refusal{Status: http.StatusForbidden, Detail: jsonobj.Quote("Forbidden: " + resource + "." + action + " needs the scope write")}
}

// Decide implements access.Policy.
func (p Policy) Decide(ctx context.Context, who *access.Actor, questions ...access.Question) ([]access.Decision, error) {
	admin, write := scopes(who)
	for _, q := range questions {
		if !write && !slices.Contains(reading, q.Action) {
			return nil, errNeedsWrite(q.Resource, q.Action)
		}
	}
	switch {
	case p.Owner == nil:
		return make([]access.Decision, len(questions)), nil
	case !admin:
		return p.Owner.Decide(ctx, who, questions...)
	}
	out := make([]access.Decision, len(questions))
	for i, q := range questions {
		if q.Resource == access.Store { // an administrator works in the namespaces of everyone
			continue
		}
		d, err := p.Owner.Decide(ctx, who, q)
		if err != nil {
			return nil, err
		}
		out[i] = d[0]
		out[i].Filter = nil
		if q.Action == "update" { // what belongs to someone stays theirs
			out[i].Value = nil
		}
	}
	return out, nil
}

package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/golang-jwt/jwt/v5"

	"understudy/access"
	"understudy/internal/cache"
)

// TokenOptions say which JSON Web Tokens are accepted. Issuer with Keys or discovery, or Secret, is required.
type TokenOptions struct {
	Issuer   string   // claim iss; "": any
	Audience []string // of which claim aud has one; none: any
	// KeysURL is where the issuer publishes its keys (JWKS); "": its OpenID configuration says where.
	KeysURL string
	// Secret is the key of HS256, HS384 and HS512; nil: tokens are signed with keys of the issuer.
	Secret []byte
	// Algorithms are those accepted; none: all that Secret, or keys of an issuer, are for.
	Algorithms []string
	// Claims with the identity, the name for people, and the permissions: a list, or a text with spaces between them.
	Identity, Name, Permissions string

	Client *http.Client // nil: one with limits of time and size
	Now    func() time.Time
	Log    *slog.Logger
}

// Tokens authenticates by JSON Web Tokens. Create it with NewTokens, and let Run fetch keys. It is safe for concurrent use.
type Tokens struct {
	o      TokenOptions
	parser *jwt.Parser

	issuer *issuer // nil: tokens are signed with the secret
	cached *cache.Cache[[sha256.Size]byte, cachedToken]
}

type cachedToken struct {
	actor *access.Actor
	until time.Time
}

const (
	leeway     = 30 * time.Second // between clocks
	tokenFresh = time.Minute      // how long a checked token is not checked again: as long it outlives a key that the issuer withdrew
	maxToken   = 16 << 10         // bytes
)

var (
	symmetric  = []string{"HS256", "HS384", "HS512"}
	asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)

// Algorithms returns the names of those that a secret, or the keys of an issuer, are for.
func Algorithms(secret bool) []string {
	if secret {
		return symmetric
	}
	return asymmetric
}

// NewTokens checks options. It fetches nothing.
func NewTokens(o TokenOptions) (*Tokens, error) {
	if o.Secret == nil && o.KeysURL == "" && o.Issuer == "" {
		return nil, errors.New("tokens: an issuer, the address of its keys, or a secret is required")
	}
	if len(o.Algorithms) == 0 {
		o.Algorithms = Algorithms(o.Secret != nil)
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(Algorithms(o.Secret != nil), a) {
			return nil, fmt.Errorf("tokens: algorithm %q does not go with these keys", a)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Client == nil {
		o.Client = Client()
	}
	rules := []jwt.ParserOption{jwt.WithValidMethods(o.Algorithms), jwt.WithLeeway(leeway), jwt.WithExpirationRequired(), jwt.WithTimeFunc(o.Now), jwt.WithJSONNumber()}
	if o.Issuer != "" {
		rules = append(rules, jwt.WithIssuer(o.Issuer))
	}
	if len(o.Audience) > 0 {
		rules = append(rules, jwt.WithAudience(o.Audience...))
	}
	t := &Tokens{o: o, parser: jwt.NewParser(rules...), cached: cache.New[[sha256.Size]byte, cachedToken](maxCached)}
	if o.Secret == nil {
		var err error
		if t.issuer, err = newIssuer(&t.o); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Run fetches the keys of the issuer, and again each hour, until the context ends. Keys that were fetched are used while the issuer cannot be reached.
func (t *Tokens) Run(ctx context.Context) error {
	if t.issuer == nil {
		<-ctx.Done()
		return nil
	}
	return t.issuer.run(ctx)
}

// Check fetches the keys of the issuer once, as Run does, and returns why it cannot. Tokens that are signed with a secret need none.
func (t *Tokens) Check(ctx context.Context) error {
	if t.issuer == nil {
		return nil
	}
	return t.issuer.fetch(ctx)
}

// known implements checker.
func (t *Tokens) known(text string) bool {
	if len(text) > maxToken {
		return false
	}
	_, ok := t.cached.Get(sha256.Sum256([]byte(text)))
	return ok
}

// Authenticate returns who acts with a token. The error is an *access.Refusal.
func (t *Tokens) Authenticate(ctx context.Context, text string) (*access.Actor, error) {
	if len(text) > maxToken {
		return nil, refused("The token is too long")
	}
	sum, now := sha256.Sum256([]byte(text)), t.o.Now()
	if have, ok := t.cached.Get(sum); ok && now.Before(have.until) {
		return have.actor, nil
	}
	claims := jwt.MapClaims{}
	if err := t.parse(ctx, text, claims); err != nil {
		var refusal *access.Refusal
		if errors.As(err, &refusal) {
			return nil, refusal
		}
		text := reason(err)
		return nil, about(refused(text), text)
	}
	who, err := t.actor(claims)
	if err != nil {
		return nil, err
	}
	until := now.Add(tokenFresh)
	if end, err := claims.GetExpirationTime(); err == nil && end != nil && end.Add(leeway).Before(until) {
		until = end.Add(leeway)
	}
	t.cached.Put(sum, cachedToken{who, until}, 1)
	return who, nil
}

func (t *Tokens) parse(ctx context.Context, text string, claims jwt.MapClaims) error {
	if t.issuer != nil {
		return t.issuer.parse(ctx, t.parser, text, claims)
	}
	_, err := t.parser.ParseWithClaims(text, claims, understood(func(*jwt.Token) (any, error) { return t.o.Secret, nil }))
	return err
}

// understood returns the keys of tokens without critical extensions: RFC 7515 says that who does not understand them refuses the token.
func understood(key jwt.Keyfunc) jwt.Keyfunc {
	return func(token *jwt.Token) (any, error) {
		if _, has := token.Header["crit"]; has {
			return nil, errCritical
		}
		return key(token)
	}
}

var errCritical = errors.New("the token has critical extensions")

// reason says why a token is refused, without what helps to forge one.
func reason(err error) string {
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return "The token has expired"
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return "The token is not valid yet"
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return "The token is for another audience"
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return "The token is of another issuer"
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return "The token lacks a claim: exp is required, and iss and aud when the server is configured with them"
	case errors.Is(err, jwt.ErrTokenMalformed):
		return "The token is not a JSON Web Token"
	}
	return "Invalid token"
}

// actor reads the claims of a token.
func (t *Tokens) actor(claims jwt.MapClaims) (*access.Actor, error) {
	p, err := ClaimNames{t.o.Identity, t.o.Name, t.o.Permissions}.Person(claims)
	if err != nil {
		return nil, err
	}
	return actor(p.Identity, p.Name, p.Permissions, p.Claims), nil
}

// ClaimNames are the claims with the identity, the name for people, and the permissions: a list, or a text with spaces between them. "" is the usual one.
type ClaimNames struct{ Identity, Name, Permissions string }

// maxIdentity is the longest identity in bytes: it is in each row of its owner, in logs and in caches.
const maxIdentity = 512

// unusable reports whether identities cannot have a rune: control characters mislead who reads a list or a log, and the replacement character stands for
// whatever was no text, so that two people would be one.
func unusable(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }

// Person reads claims. The error is an *access.Refusal.
func (n ClaimNames) Person(claims map[string]any) (*Person, error) {
	p := &Person{}
	p.Identity, _ = claims[cmp.Or(n.Identity, "sub")].(string)
	if p.Identity == "" {
		return nil, refused("The token has no claim " + cmp.Or(n.Identity, "sub"))
	}
	if len(p.Identity) > maxIdentity || strings.ContainsFunc(p.Identity, unusable) {
		return nil, refused("The claim " + cmp.Or(n.Identity, "sub") + " of the token cannot be an identity")
	}
	p.Name, _ = claims[cmp.Or(n.Name, "name")].(string)
	switch list := claims[cmp.Or(n.Permissions, "scope")].(type) {
	case string:
		p.Permissions = strings.Fields(list)
	case []any:
		for _, item := range list {
			if text, ok := item.(string); ok {
				p.Permissions = append(p.Permissions, text)
			}
		}
	}
	var err error
	if p.Claims, err = json.Marshal(claims); err != nil {
		return nil, refused("Invalid token")
	}
	return p, nil
}

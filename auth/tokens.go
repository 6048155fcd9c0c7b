package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

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

	mu     sync.Mutex
	keys   keyfunc.Keyfunc // nil: not fetched yet
	cached *cache.Cache[[sha256.Size]byte, cachedToken]
}

type cachedToken struct {
	actor *access.Actor
	until time.Time
}

const (
	leeway      = 30 * time.Second // between clocks
	tokenFresh  = time.Minute      // how long a checked token is not checked again: as long it outlives a key that the issuer withdrew
	maxToken    = 16 << 10         // bytes
	keysEvery   = time.Hour
	refetch     = 30 * time.Second // at most, for keys that are not known
	refetchTime = 5 * time.Second  // of the request for an unknown key, and its turn
	retryKeys   = 5 * time.Second
	maxDocument = 1 << 20 // bytes of an OpenID configuration, or of keys
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
	return &Tokens{o: o, parser: jwt.NewParser(rules...), cached: cache.New[[sha256.Size]byte, cachedToken](maxCached)}, nil
}

// Run fetches the keys of the issuer, and again each hour, until the context ends. Keys that were fetched are used while the issuer cannot be reached.
func (t *Tokens) Run(ctx context.Context) error {
	if t.o.Secret != nil {
		<-ctx.Done()
		return nil
	}
	for failed := false; ; failed = true {
		keys, err := t.fetch(ctx)
		if err == nil {
			t.mu.Lock()
			t.keys = keys
			t.mu.Unlock()
			if failed {
				t.o.Log.InfoContext(ctx, "keys of the issuer of tokens fetched", "issuer", t.o.Issuer)
			}
			<-ctx.Done() // the keys renew themselves until then
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if !failed {
			t.o.Log.ErrorContext(ctx, "keys of the issuer of tokens cannot be fetched; requests with tokens are answered with 503 until they are; check auth.jwt in langgraph.json, and the network",
				"issuer", t.o.Issuer, "error", err, "again_every", retryKeys.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryKeys):
		}
	}
}

// fetch finds the keys of the issuer and reads them once.
func (t *Tokens) fetch(ctx context.Context) (keyfunc.Keyfunc, error) {
	address := t.o.KeysURL
	if address == "" {
		var err error
		if address, err = t.discover(ctx); err != nil {
			return nil, err
		}
	}
	storage, err := jwkset.NewStorageFromHTTP(address, jwkset.HTTPClientStorageOptions{
		Client: t.o.Client, Ctx: ctx, HTTPTimeout: 10 * time.Second, RefreshInterval: keysEvery,
		RefreshErrorHandler: func(ctx context.Context, err error) {
			t.o.Log.WarnContext(ctx, "keys of the issuer of tokens not renewed; those from before are used", "address", address, "error", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", address, err)
	}
	client, err := jwkset.NewHTTPClient(jwkset.HTTPClientOptions{
		HTTPURLs: map[string]jwkset.Storage{address: storage}, RefreshUnknownKID: rate.NewLimiter(rate.Every(refetch), 1), RateLimitWaitMax: refetchTime,
	})
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", address, err)
	}
	return keyfunc.New(keyfunc.Options{Ctx: ctx, Storage: client, UseWhitelist: []jwkset.USE{jwkset.UseSig, ""}})
}

// discover asks the OpenID configuration of the issuer where its keys are.
func (t *Tokens) discover(ctx context.Context) (string, error) {
	address := strings.TrimSuffix(t.o.Issuer, "/") + "/.well-known/openid-configuration"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := t.o.Client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers with %s", address, resp.Status)
	}
	var doc struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDocument)).Decode(&doc); err != nil {
		return "", fmt.Errorf("%s: %w", address, err)
	}
	switch {
	case doc.Issuer != t.o.Issuer:
		return "", fmt.Errorf("%s is of issuer %q; write that one in auth.jwt.issuer", address, doc.Issuer)
	case doc.Keys == "":
		return "", fmt.Errorf("%s has no jwks_uri; write it in auth.jwt.jwks_url", address)
	}
	return doc.Keys, nil
}

var errKeys = &access.Refusal{Status: http.StatusServiceUnavailable, Detail: json.RawMessage(`"The keys of the issuer of tokens are not there yet"`), Header: http.Header{"Retry-After": {"5"}}}

// known implements checker.
func (t *Tokens) known(text string) bool {
	if len(text) > maxToken {
		return false
	}
	_, ok := t.cached.Get(sha256.Sum256([]byte(text)))
	return ok
}

// Authenticate returns who acts with a token. The error is an *access.Refusal.
func (t *Tokens) Authenticate(_ context.Context, text string) (*access.Actor, error) {
	if len(text) > maxToken {
		return nil, refused("The token is too long")
	}
	sum, now := sha256.Sum256([]byte(text)), t.o.Now()
	if have, ok := t.cached.Get(sum); ok && now.Before(have.until) {
		return have.actor, nil
	}
	t.mu.Lock()
	keys := t.keys
	t.mu.Unlock()
	key := func(*jwt.Token) (any, error) { return t.o.Secret, nil }
	if t.o.Secret == nil {
		if keys == nil {
			return nil, errKeys
		}
		key = keys.Keyfunc
	}
	claims := jwt.MapClaims{}
	known := func(token *jwt.Token) (any, error) {
		if _, has := token.Header["crit"]; has { // RFC 7515: a token with extensions that must be understood is refused by who does not
			return nil, errCritical
		}
		return key(token)
	}
	if _, err := t.parser.ParseWithClaims(text, claims, known); err != nil {
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

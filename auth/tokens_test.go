package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/auth"
)

// issuer is an identity provider that can be down.
type issuer struct {
	*httptest.Server
	down    atomic.Bool
	fetched atomic.Int64
	keys    jwkset.Storage
	private map[string]any // by key ID
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{keys: jwkset.NewMemoryStorage(), private: map[string]any{}}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case i.down.Load():
			w.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
		case r.URL.Path == "/keys":
			i.fetched.Add(1)
			raw, err := i.keys.JSONPublic(r.Context())
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(raw)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) add(t *testing.T, id string, key any) {
	t.Helper()
	jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: id, USE: jwkset.UseSig}})
	require.NoError(t, err)
	require.NoError(t, i.keys.KeyWrite(t.Context(), jwk))
	i.private[id] = key
}

func (i *issuer) sign(t *testing.T, method jwt.SigningMethod, id string, change jwt.MapClaims) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": i.URL, "aud": "agents", "sub": "ada", "name": "Ada L.", "scope": "openid email", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, change)
	for k, v := range change {
		if v == nil {
			delete(claims, k)
		}
	}
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = id
	text, err := token.SignedString(i.private[id])
	require.NoError(t, err)
	return text
}

// run lets tokens fetch their keys until the test ends.
func run(t *testing.T, tokens *auth.Tokens) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tokens.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
}

// ready waits until keys were fetched.
func ready(t *testing.T, tokens *auth.Tokens, text string) *access.Actor {
	t.Helper()
	var who *access.Actor
	require.Eventually(t, func() (ok bool) {
		var err error
		who, err = tokens.Authenticate(t.Context(), text)
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
	return who
}

func rsaKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return k
}

func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.add(t, "r", rsaKey(t))
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	i.add(t, "e", curve)
	clock := &aside{}
	tokens, err := auth.NewTokens(auth.TokenOptions{Issuer: i.URL, Audience: []string{"agents", "others"}, Now: clock.now})
	require.NoError(t, err)
	_, err = tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "r", nil))
	require.Equal(t, http.StatusServiceUnavailable, status(t, err), "the keys are not there yet")
	run(t, tokens)
	who := ready(t, tokens, i.sign(t, jwt.SigningMethodRS256, "r", nil))
	require.Equal(t, []any{"ada", "Ada L.", []string{"openid", "email"}, true}, []any{who.Identity, who.DisplayName, who.Permissions, who.Authenticated})
	require.Contains(t, string(who.User), `"identity":"ada"`)
	require.Contains(t, string(who.User), `"claims":{"aud":"agents"`)
	for name, good := range map[string]string{
		"ES256":       i.sign(t, jwt.SigningMethodES256, "e", nil),
		"PS256":       i.sign(t, jwt.SigningMethodPS256, "r", jwt.MapClaims{"aud": []string{"x", "others"}}),
		"just ended":  i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"exp": time.Now().Add(-20 * time.Second).Unix()}),
		"permissions": i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"scope": []string{"a", "b"}}),
	} {
		_, err := tokens.Authenticate(t.Context(), good)
		require.NoError(t, err, name)
	}

	public, err := i.keys.JSONPublic(t.Context())
	require.NoError(t, err)
	confused, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": i.URL, "aud": "agents", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()}).SignedString([]byte(public))
	require.NoError(t, err)
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": i.URL, "aud": "agents", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	require.NoError(t, err)
	good := i.sign(t, jwt.SigningMethodRS256, "r", nil)
	parts := strings.Split(good, ".")
	stranger := newIssuer(t)
	stranger.private["r"] = rsaKey(t)
	stranger.URL = i.URL
	for name, bad := range map[string]string{
		"expired":        i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}),
		"no end":         i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"exp": nil}),
		"not yet":        i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}),
		"issuer":         i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"iss": "https://other"}),
		"no issuer":      i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"iss": nil}),
		"audience":       i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"aud": "website"}),
		"no audience":    i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"aud": nil}),
		"no identity":    i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"sub": nil}),
		"odd identity":   i.sign(t, jwt.SigningMethodRS256, "r", jwt.MapClaims{"sub": 7}),
		"another key":    stranger.sign(t, jwt.SigningMethodRS256, "r", nil),
		"public as HMAC": confused,
		"none":           none,
		"changed":        parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"eve","exp":9999999999}`)) + "." + parts[2],
		"no signature":   parts[0] + "." + parts[1] + ".",
		"empty":          "",
		"text":           "secret",
		"long":           good + strings.Repeat("A", 1<<20),
	} {
		clock.forward(5 * time.Second) // those that need another key do not wait
		_, err := tokens.Authenticate(t.Context(), bad)
		require.Equal(t, http.StatusUnauthorized, status(t, err), name)
		require.NotContains(t, err.Error(), parts[2], name)
	}
}

// An issuer that is down at the start, or later, or that changes its keys.
func TestTokensWhileTheIssuerIsAway(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.add(t, "one", rsaKey(t))
	tokens, err := auth.NewTokens(auth.TokenOptions{Issuer: i.URL, KeysURL: i.URL + "/keys"})
	require.NoError(t, err)
	run(t, tokens)
	ready(t, tokens, i.sign(t, jwt.SigningMethodRS256, "one", nil))

	i.down.Store(true)
	for n := range 5 { // each another token, so none is known
		_, err := tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "one", jwt.MapClaims{"jti": n}))
		require.NoError(t, err, "keys that were fetched are used")
	}
	i.down.Store(false)
	i.add(t, "two", rsaKey(t))
	_, err = tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "two", nil))
	require.NoError(t, err, "a key that is not known is looked for")
}

func TestTokensWithASecret(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	now := time.Unix(1e9, 0)
	tokens, err := auth.NewTokens(auth.TokenOptions{Secret: secret, Permissions: "roles", Identity: "email", Now: func() time.Time { return now }})
	require.NoError(t, err)
	run(t, tokens)
	sign := func(key []byte, claims jwt.MapClaims) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(key)
		require.NoError(t, err)
		return text
	}
	good := sign(secret, jwt.MapClaims{"email": "a@b", "exp": now.Add(20 * time.Second).Unix(), "roles": []string{auth.Admin}})
	who, err := tokens.Authenticate(t.Context(), good)
	require.NoError(t, err)
	require.Equal(t, "a@b", who.Identity)
	require.Equal(t, []string{auth.Admin}, who.Permissions)
	_, err = tokens.Authenticate(t.Context(), sign([]byte(strings.Repeat("t", 32)), jwt.MapClaims{"email": "a@b", "exp": now.Add(time.Minute).Unix()}))
	require.Equal(t, http.StatusUnauthorized, status(t, err))
	now = now.Add(time.Minute)
	_, err = tokens.Authenticate(t.Context(), good)
	require.Equal(t, http.StatusUnauthorized, status(t, err), "a token that was checked before ends too")
	for _, o := range []auth.TokenOptions{{}, {Secret: secret, Algorithms: []string{"RS256"}}, {Issuer: "x", Algorithms: []string{"HS256"}}, {Issuer: "x", Algorithms: []string{"none"}}} {
		_, err := auth.NewTokens(o)
		require.Error(t, err)
	}
}

func TestNative(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	store := &memory{keys: map[string]auth.Key{}}
	keys := auth.NewKeys(store, time.Now, nil)
	tokens, err := auth.NewTokens(auth.TokenOptions{Secret: secret})
	require.NoError(t, err)
	k, text := auth.New("n", "key", nil, time.Now(), time.Time{})
	require.NoError(t, store.InsertKey(t.Context(), k))
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS512, jwt.MapClaims{"sub": "token", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(secret)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		native *auth.Native
		header http.Header
		who    string // "": refused
	}{
		"key":                {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{"X-Api-Key": {text}}, "key"},
		"key as bearer":      {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{"Authorization": {"bearer " + text}}, "key"},
		"token":              {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{"Authorization": {"Bearer " + token}}, "token"},
		"key before token":   {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{"X-Api-Key": {text}, "Authorization": {"Bearer " + token}}, "key"},
		"wrong key wins":     {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{"X-Api-Key": {"x"}, "Authorization": {"Bearer " + token}}, ""},
		"two keys":           {&auth.Native{Keys: keys}, http.Header{"X-Api-Key": {text, text}}, ""},
		"token as a key":     {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{"X-Api-Key": {token}}, ""},
		"no tokens accepted": {&auth.Native{Keys: keys}, http.Header{"Authorization": {"Bearer " + token}}, ""},
		"no keys accepted":   {&auth.Native{Tokens: tokens}, http.Header{"X-Api-Key": {text}}, ""},
		"key, only tokens":   {&auth.Native{Tokens: tokens}, http.Header{"Authorization": {"Bearer " + text}}, ""},
		"basic":              {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{"Authorization": {"Basic " + token}}, ""},
		"nothing":            {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{}, ""},
		"empty":              {&auth.Native{Keys: keys, Tokens: tokens}, http.Header{"Authorization": {""}, "X-Api-Key": {""}}, ""},
	} {
		who, err := tt.native.Authenticate(t.Context(), &access.Request{Header: tt.header})
		if tt.who == "" {
			require.Equal(t, http.StatusUnauthorized, status(t, err), name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tt.who, who.Identity, name)
	}
}

// Who acted some time ago may act again only while what they came with is still accepted: keys by those that are valid now, tokens and sessions by the configuration.
func TestHolds(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	store := &memory{keys: map[string]auth.Key{}}
	keys := auth.NewKeys(store, time.Now, nil)
	tokens, err := auth.NewTokens(auth.TokenOptions{Secret: secret})
	require.NoError(t, err)
	sessions := &auth.Sessions{}
	k, text := auth.New("n", "ada", []string{auth.Write}, time.Now(), time.Time{})
	require.NoError(t, store.InsertKey(t.Context(), k))
	byKey, err := keys.Authenticate(t.Context(), text)
	require.NoError(t, err)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS512, jwt.MapClaims{"sub": "bob", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(secret)
	require.NoError(t, err)
	byToken, err := tokens.Authenticate(t.Context(), token)
	require.NoError(t, err)
	handler := &access.Actor{Identity: "cleo", User: []byte(`{"identity":"cleo"}`)} // of Python handlers, which were replaced
	for name, tt := range map[string]struct {
		native *auth.Native
		who    *access.Actor
		want   string // of the refusal; "": accepted
	}{
		"key":                     {&auth.Native{Keys: keys}, byKey, ""},
		"key, and tokens":         {&auth.Native{Keys: keys, Tokens: tokens}, byKey, ""},
		"key, only tokens now":    {&auth.Native{Tokens: tokens}, byKey, "ada acted with an API key, and keys are not accepted any more"},
		"key, only sign-in now":   {&auth.Native{Sessions: sessions}, byKey, "ada acted with an API key, and keys are not accepted any more"},
		"token":                   {&auth.Native{Tokens: tokens}, byToken, ""},
		"token, only sign-in now": {&auth.Native{Sessions: sessions, Keys: keys}, byToken, ""},
		"token, only keys now":    {&auth.Native{Keys: keys}, byToken, "bob acted with a token or a session, and neither is accepted any more"},
		"handler, keys now":       {&auth.Native{Keys: keys}, handler, "no valid API key of cleo"},
		"handler, tokens now":     {&auth.Native{Tokens: tokens}, handler, "keys are not accepted any more"},
	} {
		err := tt.native.Holds(t.Context(), tt.who)
		if tt.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.Equal(t, http.StatusForbidden, status(t, err), name)
		require.ErrorContains(t, err, tt.want, name)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	store := &memory{keys: map[string]auth.Key{}}
	keys := auth.NewKeys(store, time.Now, nil)
	k, text := auth.New("n", "key", nil, time.Now(), time.Time{})
	_ = store.InsertKey(b.Context(), k)
	secret := []byte(strings.Repeat("s", 32))
	tokens, err := auth.NewTokens(auth.TokenOptions{Secret: secret})
	require.NoError(b, err)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS512, jwt.MapClaims{"sub": "token", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(secret)
	require.NoError(b, err)
	for name, fn := range map[string]func() error{
		"key":   func() error { _, err := keys.Authenticate(b.Context(), text); return err },
		"token": func() error { _, err := tokens.Authenticate(b.Context(), token); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a token says of its user must be an identity that people can read and that no one else has; a token with extensions that its reader must understand is
// refused.
func TestTokensThatAreNotUnderstood(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	tokens, err := auth.NewTokens(auth.TokenOptions{Secret: secret})
	require.NoError(t, err)
	run(t, tokens)
	for name, c := range map[string]struct {
		header map[string]any
		claims string // without exp
		want   int
	}{
		"plain":                {nil, `"sub": "ada"`, 0},
		"of a directory":       {nil, `"sub": "auth0|Zoë Ωmega (ops) ada@example.com"`, 0},
		"as long as it can be": {nil, `"sub": "` + strings.Repeat("x", 512) + `"`, 0},
		"too long":             {nil, `"sub": "` + strings.Repeat("x", 513) + `"`, 401},
		"NUL":                  {nil, `"sub": "a\u0000da"`, 401},
		"line break":           {nil, `"sub": "ada\n"`, 401},
		"half a character":     {nil, `"sub": "a\ud800da"`, 401},
		"no text":              {nil, "\"sub\": \"a\xffda\"", 401},
		"number":               {nil, `"sub": 1`, 401},
		"list":                 {nil, `"sub": ["ada"]`, 401},
		"empty":                {nil, `"sub": ""`, 401},
		"critical":             {map[string]any{"crit": []string{"exp"}}, `"sub": "ada"`, 401},
		"critical, nothing":    {map[string]any{"crit": nil}, `"sub": "ada"`, 401},
	} {
		header := map[string]any{"alg": "HS256", "typ": "JWT"}
		maps.Copy(header, c.header)
		head, err := json.Marshal(header)
		require.NoError(t, err)
		claims := fmt.Sprintf(`{%s, "exp": %d}`, c.claims, time.Now().Add(time.Hour).Unix())
		signed := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
		sum, err := jwt.SigningMethodHS256.Sign(signed, secret)
		require.NoError(t, err)
		for range 2 { // what was refused is not kept as accepted
			who, err := tokens.Authenticate(t.Context(), signed+"."+base64.RawURLEncoding.EncodeToString(sum))
			if c.want == 0 {
				require.NoError(t, err, name)
				require.NotEmpty(t, who.Identity)
				continue
			}
			require.Equal(t, c.want, status(t, err), name)
		}
	}
}

// Open answers learn that the token of their request has expired, and not before.
func TestTokensOfOpenAnswers(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	clock.Store(time.Now().Unix())
	now := func() time.Time { return time.Unix(clock.Load(), 0) }
	secret := []byte(strings.Repeat("s", 64))
	tokens, err := auth.NewTokens(auth.TokenOptions{Secret: secret, Now: now})
	require.NoError(t, err)
	end := now().Add(10 * time.Minute)
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS512, jwt.MapClaims{"sub": "ann", "exp": end.Unix()}).SignedString(secret)
	require.NoError(t, err)
	native := &auth.Native{Tokens: tokens}
	withdrawn := native.Follow(&access.Request{Header: http.Header{"Authorization": {"bearer  " + text}}})
	for ; now().Before(end.Add(30 * time.Second)); clock.Add(7) { // clocks may differ
		require.False(t, withdrawn(t.Context()), "%v before its end", end.Sub(now()))
	}
	require.True(t, withdrawn(t.Context()))
	for _, h := range []http.Header{{"Cookie": {"understudy_session=x"}}, {}} {
		require.Nil(t, native.Follow(&access.Request{Header: h}))
	}
}

// Package oidctest is an OpenID provider for tests: discovery, keys, authorization code with PKCE, tokens that can be made wrong, and UserInfo.
package oidctest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Provider is an OpenID provider with one client. Everyone who comes signs in as User.
type Provider struct {
	URL                    string // the issuer
	ClientID, ClientSecret string

	mu      sync.Mutex
	user    map[string]any
	change  func(claims jwt.MapClaims)
	hook    func(w http.ResponseWriter, r *http.Request) bool
	now     func() time.Time
	key     *rsa.PrivateKey
	kid     string
	grants  map[string]grant
	Methods []string // token_endpoint_auth_methods_supported; nil: not said
	tokens  int
}

type grant struct {
	challenge, nonce, redirect string
	used                       bool
}

// New starts a provider that ends with the test.
func New(t testing.TB) *Provider {
	t.Helper()
	p, server := Start()
	t.Cleanup(server.Close)
	return p
}

// Start starts a provider. Close the server.
func Start() (*Provider, *httptest.Server) {
	p := &Provider{ClientID: "understudy", ClientSecret: "SECRET of the client", grants: map[string]grant{}, now: time.Now}
	p.user = map[string]any{"sub": "ada", "name": "Ada Lovelace", "email": "ada@example.com", "email_verified": true}
	p.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.configuration)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /userinfo", p.userinfo)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		hook := p.hook
		p.mu.Unlock()
		if hook == nil || !hook(w, r) {
			mux.ServeHTTP(w, r)
		}
	}))
	p.URL = server.URL
	return p, server
}

// Rotate replaces the key of tokens.
func (p *Provider) Rotate() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // it does not fail
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.kid = key, rand.Text()
}

// User sets claims of who signs in, in addition to those of before.
func (p *Provider) User(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.user, claims)
}

// Change sets what changes the claims of the next tokens; nil: nothing.
func (p *Provider) Change(fn func(jwt.MapClaims)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = fn
}

// Hook sets what sees requests first, and answers those for which it returns true.
func (p *Provider) Hook(fn func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = fn
}

// Clock sets the provider's clock.
func (p *Provider) Clock(now func() time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}

// Asked is how many times a code was sent.
func (p *Provider) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tokens
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (p *Provider) configuration(w http.ResponseWriter, _ *http.Request) {
	doc := map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys", "userinfo_endpoint": p.URL + "/userinfo",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		"code_challenge_methods_supported": []string{"S256"},
	}
	if p.Methods != nil {
		doc["token_endpoint_auth_methods_supported"] = p.Methods
	}
	answer(w, http.StatusOK, doc)
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	public := p.key.PublicKey
	answer(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": p.kid, "n": base64.RawURLEncoding.EncodeToString(public.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(public.E)).Bytes()),
	}}})
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	callback, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != p.ClientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("state") == "" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.grants[code] = grant{challenge: q.Get("code_challenge"), nonce: q.Get("nonce"), redirect: q.Get("redirect_uri")}
	p.mu.Unlock()
	values := callback.Query()
	values.Set("code", code)
	values.Set("state", q.Get("state"))
	callback.RawQuery = values.Encode()
	http.Redirect(w, r, callback.String(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens++
	id, secret, basic := r.BasicAuth()
	if basic {
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if id != p.ClientID || secret != p.ClientSecret {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	g, ok := p.grants[r.FormValue("code")]
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || g.used || g.redirect != r.FormValue("redirect_uri") || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	g.used = true
	p.grants[r.FormValue("code")] = g
	claims := jwt.MapClaims{"iss": p.URL, "aud": p.ClientID, "nonce": g.nonce, "iat": p.now().Unix(), "exp": p.now().Add(5 * time.Minute).Unix()}
	maps.Copy(claims, p.user)
	if p.change != nil {
		p.change(claims)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = p.kid
	text, err := token.SignedString(p.key)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 300, "id_token": text})
}

func (p *Provider) userinfo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer access" {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	answer(w, http.StatusOK, p.user)
}

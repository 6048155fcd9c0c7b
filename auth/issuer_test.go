package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"understudy/auth"
	"understudy/internal/logtest"
)

// gateway stands in front of an issuer, and answers in its place what answer says; nil: what the issuer does.
type gateway struct {
	*httptest.Server
	answer  atomic.Pointer[http.HandlerFunc]
	fetched atomic.Int64
}

func newGateway(t *testing.T, i *issuer) *gateway {
	t.Helper()
	g := &gateway{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.fetched.Add(1)
		if answer := g.answer.Load(); answer != nil {
			(*answer)(w, r)
			return
		}
		i.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) answers(h http.HandlerFunc) { g.answer.Store(&h) }
func (g *gateway) isBack()                    { g.answer.Store(nil) }

// aside is a clock that a test sets forward.
type aside struct{ ahead atomic.Int64 }

func (a *aside) now() time.Time          { return time.Now().Add(time.Duration(a.ahead.Load())) }
func (a *aside) forward(d time.Duration) { a.ahead.Add(int64(d)) }

// behindGateway are tokens of an issuer whose keys come through a gateway, and were fetched.
func behindGateway(t *testing.T) (i *issuer, g *gateway, tokens *auth.Tokens, clock *aside, log *logtest.Buffer) {
	t.Helper()
	i, clock, log = newIssuer(t), &aside{}, &logtest.Buffer{}
	i.add(t, "one", rsaKey(t))
	g = newGateway(t, i)
	tokens, err := auth.NewTokens(auth.TokenOptions{Issuer: i.URL, KeysURL: g.URL + "/keys", Now: clock.now, Log: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	run(t, tokens)
	ready(t, tokens, i.sign(t, jwt.SigningMethodRS256, "one", nil))
	return i, g, tokens, clock, log
}

// Whatever the issuer answers in place of its keys, also with 200, those from before are used; a token with a key that is not known is refused as one that cannot be
// checked now; and what the issuer answers when it is back counts.
func TestKeysOutliveBadAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"an error":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"a page":           text("<html>down for maintenance</html>"),
		"nothing":          text(""),
		"another document": text(`{"error": "maintenance"}`),
		"no keys":          text(`{"keys": []}`),
		"null":             text(`{"keys": null}`),
		"a list":           text(`[]`),
		"half":             text(`{"keys": [{"kty": "RSA", "kid": "two", "n": "AQAB`),
		"keys for secrets": text(`{"keys": [{"kty": "oct", "kid": "two", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}]}`),
		"broken keys":      text(`{"keys": [{"kty": "RSA", "kid": "two"}, 7, null, {"kty": "EC", "kid": "two", "crv": "P-256", "x": "AA", "y": "AA"}]}`),
		"no answer":        func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"cut":              func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, g, tokens, clock, _ := behindGateway(t)
			g.answers(answer)
			i.add(t, "two", rsaKey(t))
			two := i.sign(t, jwt.SigningMethodRS256, "two", nil)
			_, err := tokens.Authenticate(t.Context(), two)
			require.Equal(t, http.StatusServiceUnavailable, status(t, err))
			for n := range 5 {
				_, err := tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "one", jwt.MapClaims{"jti": n}))
				require.NoError(t, err, "keys that were fetched are used")
			}
			g.isBack()
			require.Eventually(t, func() bool {
				clock.forward(5 * time.Second)
				_, err := tokens.Authenticate(t.Context(), two)
				return err == nil
			}, 30*time.Second, 10*time.Millisecond)
		})
	}
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

// Keys that are not understood, or that are not for signatures, do not keep others out, also for tokens that name no key.
func TestOddKeysAreLeftOut(t *testing.T) {
	t.Parallel()
	i, g, tokens, clock, log := behindGateway(t)
	i.add(t, "two", rsaKey(t))
	secret, err := jwkset.NewJWKFromKey(rsaKey(t), jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: "for encryption", USE: jwkset.UseEnc}})
	require.NoError(t, err)
	i.private["for encryption"] = secret.Key()
	public, err := i.keys.JSONPublic(t.Context())
	require.NoError(t, err)
	other, err := json.Marshal(jwkset.JWKMarshal{KTY: secret.Marshal().KTY, KID: secret.Marshal().KID, USE: secret.Marshal().USE, N: secret.Marshal().N, E: secret.Marshal().E})
	require.NoError(t, err)
	g.answers(text(`{"keys": [{"kty": "unheard of", "kid": "x"}, {"kty": "RSA", "kid": "y", "n": "%%"}, ` + string(other) + `,` + strings.TrimPrefix(string(public), `{"keys":[`)))
	_, err = tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "two", nil))
	require.NoError(t, err)
	require.Contains(t, log.String(), "some keys of the issuer of tokens are ignored")
	clock.forward(5 * time.Second) // then a token that needs another key does not wait
	_, err = tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "for encryption", nil))
	require.Equal(t, http.StatusUnauthorized, status(t, err))
	without := func(id string) string { // names no key
		token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"iss": i.URL, "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()})
		text, err := token.SignedString(i.private[id])
		require.NoError(t, err)
		return text
	}
	_, err = tokens.Authenticate(t.Context(), without("two"))
	require.NoError(t, err)
	clock.forward(5 * time.Second)
	_, err = tokens.Authenticate(t.Context(), without("for encryption"))
	require.Equal(t, http.StatusUnauthorized, status(t, err))
}

// When the issuer changes its key, all who come with tokens of the new one, at once and while it takes its time, are let in by one question; those with tokens of
// the old one do not notice.
func TestRotationIsOneQuestion(t *testing.T) {
	t.Parallel()
	i, g, tokens, _, _ := behindGateway(t)
	i.add(t, "two", rsaKey(t))
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	g.answers(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-answer
		i.Config.Handler.ServeHTTP(w, r)
	})
	before := g.fetched.Load()
	var all sync.WaitGroup
	for n := range 50 {
		token := i.sign(t, jwt.SigningMethodRS256, "two", jwt.MapClaims{"jti": n})
		all.Go(func() {
			_, err := tokens.Authenticate(t.Context(), token)
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-asked
	leaves, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	token := i.sign(t, jwt.SigningMethodRS256, "two", jwt.MapClaims{"jti": "leaves"})
	go func() {
		_, err := tokens.Authenticate(leaves, token)
		gone <- err
	}()
	cancel()
	require.Equal(t, http.StatusServiceUnavailable, status(t, <-gone), "who leaves does not wait, and stops nothing")
	for n := range 5 {
		_, err := tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "one", jwt.MapClaims{"jti": n}))
		require.NoError(t, err)
	}
	close(answer)
	all.Wait()
	require.Equal(t, before+1, g.fetched.Load())
}

// An issuer that changes its key and not the key's name, or that names none, is asked too.
func TestKeyWithTheSameName(t *testing.T) {
	t.Parallel()
	i, g, tokens, clock, _ := behindGateway(t)
	i.keys = jwkset.NewMemoryStorage()
	i.add(t, "one", rsaKey(t))
	_, err := tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "one", nil))
	require.NoError(t, err)
	before := g.fetched.Load()
	i.private["one"] = rsaKey(t)
	clock.forward(5 * time.Second)
	for range 20 {
		_, err := tokens.Authenticate(t.Context(), i.sign(t, jwt.SigningMethodRS256, "one", nil))
		require.Equal(t, http.StatusUnauthorized, status(t, err), "forged")
	}
	require.LessOrEqual(t, g.fetched.Load(), before+1)
}

// A configuration over TLS does not send the server to keys that anyone on the network can replace.
func TestKeysWithoutTLS(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	var issuer *httptest.Server
	issuer = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer.URL, "jwks_uri": strings.Replace(issuer.URL, "https:", "http:", 1) + "/keys"})
	}))
	t.Cleanup(issuer.Close)
	tokens, err := auth.NewTokens(auth.TokenOptions{Issuer: issuer.URL, Client: issuer.Client(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	run(t, tokens)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "does not begin with https://") }, 10*time.Second, 5*time.Millisecond)
}

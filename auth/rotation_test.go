package auth_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"understudy/auth"
)

// provider is an issuer without a network, so that time can be that of a test. It is the transport of who asks it.
type provider struct {
	mu      sync.Mutex
	keys    jwkset.Storage
	private map[string]*ecdsa.PrivateKey // by key ID
	fetched []time.Time                  // when its keys were
	hold    chan struct{}                // answers with keys wait until it is closed; nil: they do not
	asked   chan struct{}                // receives when a request for keys arrives and hold is set
}

const providerURL = "https://login.example.com"

func newProvider(t *testing.T) (*provider, *auth.Tokens) {
	t.Helper()
	p := &provider{asked: make(chan struct{}, 100)}
	p.rotate(t, "one")
	tokens, err := auth.NewTokens(auth.TokenOptions{Issuer: providerURL, Client: &http.Client{Transport: p}})
	require.NoError(t, err)
	return p, tokens
}

// rotate replaces all keys by a new one.
func (p *provider) rotate(t *testing.T, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: id, USE: jwkset.UseSig}})
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys, p.private = jwkset.NewMemoryStorage(), map[string]*ecdsa.PrivateKey{id: key}
	require.NoError(t, p.keys.KeyWrite(t.Context(), jwk))
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte(fmt.Sprintf(`{"issuer": %q, "jwks_uri": %q}`, providerURL, providerURL+"/keys"))
	if r.URL.Path == "/keys" {
		p.mu.Lock()
		p.fetched = append(p.fetched, time.Now())
		hold := p.hold
		var err error
		body, err = p.keys.JSONPublic(r.Context())
		p.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if hold != nil {
			p.asked <- struct{}{}
			<-hold
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

func (p *provider) holds(c chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = c
}

// sign makes a token of a key that the provider has.
func (p *provider) sign(t *testing.T, id string, n int) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": providerURL, "sub": "ada", "jti": n, "exp": time.Now().Add(time.Hour).Unix()})
	token.Header["kid"] = id
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := token.SignedString(p.private[id])
	require.NoError(t, err)
	return text
}

// forged is a token as anyone can make it.
func forged(id string) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return part(fmt.Sprintf(`{"alg":"ES256","kid":%q}`, id)) + "." + part(fmt.Sprintf(`{"iss":%q,"sub":"ada","exp":99999999999}`, providerURL)) + "." + part(strings.Repeat("x", 64))
}

// attack sends forged tokens until the test ends: of keys that are made up each time, and of those that are named.
func attack(t *testing.T, tokens *auth.Tokens, named ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprint("made up ", n, i)
				if n < len(named) {
					id = named[n]
				}
				if _, err := tokens.Authenticate(ctx, forged(id)); err == nil {
					t.Error("a forged token was accepted")
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
}

// Any number of forged tokens (of unknown keys, of the issuer's next key, of its current one) neither delays tokens of a new key by more than five seconds, nor
// lets the issuer be asked more often than every five seconds.
func TestForgedTokensDoNotDelayARotation(t *testing.T) {
	t.Parallel()
	const within = 5 * time.Second
	for name, next := range map[string]string{"another name": "two", "the same name": "one", "a name that was guessed": "guessed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, tokens := newProvider(t)
				run(t, tokens)
				synctest.Wait()
				_, err := tokens.Authenticate(t.Context(), p.sign(t, "one", 0))
				require.NoError(t, err)
				attack(t, tokens, "one", "guessed")
				time.Sleep(time.Minute + 700*time.Millisecond)
				p.rotate(t, next)
				began := time.Now()
				for {
					_, err := tokens.Authenticate(t.Context(), p.sign(t, next, 1))
					if err == nil {
						break
					}
					require.NotEqual(t, "two", next, "no forged token named this key")
					require.Less(t, time.Since(began), within)
					time.Sleep(100 * time.Millisecond)
				}
				require.LessOrEqual(t, time.Since(began), within)
				time.Sleep(time.Minute)
				p.mu.Lock()
				defer p.mu.Unlock()
				for i := 2; i < len(p.fetched); i++ { // the first one is of the start
					require.GreaterOrEqual(t, p.fetched[i].Sub(p.fetched[i-1]), within)
				}
			})
		})
	}
}

// A token whose key the issuer has withdrawn waits for one fetch, and is refused at once from then on. It does not delay tokens of a new key.
func TestTokensOfAKeyThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, tokens := newProvider(t)
		run(t, tokens)
		synctest.Wait()
		old := p.sign(t, "one", 0)
		_, err := tokens.Authenticate(t.Context(), old)
		require.NoError(t, err)
		p.rotate(t, "two")
		_, err = tokens.Authenticate(t.Context(), p.sign(t, "two", 0))
		require.NoError(t, err)
		time.Sleep(time.Minute) // as long as a checked token counts
		_, err = tokens.Authenticate(t.Context(), old)
		require.Equal(t, http.StatusUnauthorized, status(t, err))
		for range 100 {
			began := time.Now()
			_, err := tokens.Authenticate(t.Context(), old)
			require.Equal(t, http.StatusUnauthorized, status(t, err))
			require.Zero(t, time.Since(began))
		}
		p.rotate(t, "three")
		began := time.Now()
		_, err = tokens.Authenticate(t.Context(), p.sign(t, "three", 0))
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
	})
}

// A token whose key the issuer begins to use while it answers with those of before is checked with the next answer.
func TestRotationDuringAFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, tokens := newProvider(t)
		run(t, tokens)
		synctest.Wait()
		hold := make(chan struct{})
		p.holds(hold)
		made := make(chan error, 1)
		go func() {
			_, err := tokens.Authenticate(t.Context(), forged("made up"))
			made <- err
		}()
		<-p.asked
		p.rotate(t, "two")
		good := make(chan error, 1)
		text := p.sign(t, "two", 0)
		go func() {
			_, err := tokens.Authenticate(t.Context(), text)
			good <- err
		}()
		synctest.Wait()
		p.holds(nil)
		close(hold)
		require.NoError(t, <-good)
		require.Equal(t, http.StatusUnauthorized, status(t, <-made))
	})
}

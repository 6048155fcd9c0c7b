package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"

	"understudy/access"
	"understudy/internal/cache"
	"understudy/internal/loop"
	"understudy/internal/serverurl"
)

const (
	keysEvery   = time.Hour
	staleEvery  = time.Minute      // keysEvery while the issuer does not answer
	refetch     = 5 * time.Second  // at least, between two fetches because tokens need keys that are not known; they wait for the next one
	retryKeys   = 5 * time.Second  // at least, after a fetch that failed; until there are keys, as often
	fetchTime   = 10 * time.Second // of all requests of one fetch
	lookTime    = 10 * time.Second // how long a token waits for a fetch
	maxLooking  = 1000             // tokens that wait for one; others are refused with 503
	missingTime = 30 * time.Second // how long tokens of a key that a fetch did not bring are refused without waiting for another fetch
	maxMissing  = 10_000           // such keys that are remembered
	maxDocument = 1 << 20          // bytes of an OpenID configuration, or of keys
)

// issuer has the keys of an issuer of tokens. One goroutine, run, fetches them; tokens whose key is not known wait for it, so that many of them are one
// question. What it does not answer, or answers with something that has no keys, changes nothing.
//
// Anyone can make up tokens of keys that do not exist. Each of them lets run fetch, at most once in refetch, and
// while so many wait that others are refused with 503, the next fetch ends that too: so a key that the issuer begins to use is known within refetch, whatever
// else is sent.
type issuer struct {
	o       *TokenOptions
	set     *jwkset.MemoryJWKSet
	of      keyfunc.Keyfunc                            // by keys of the set
	due     chan struct{}                              // wakes run: there is a flight
	missing *cache.Cache[[sha256.Size]byte, time.Time] // keys that a fetch did not bring, by the digest of their ID, and when

	mu      sync.Mutex
	version int       // of the set; 0: there are no keys yet
	err     error     // of the last fetch
	asked   time.Time // when the last fetch that tokens needed began
	tried   time.Time // when the last fetch ended
	flight  *flight   // the fetch that runs, or is due; nil: there is none
	looking int       // tokens that wait for it
	stopped bool

	// Used by run.
	address string // of the keys; "": not discovered yet
	ignored string // why keys were left out, as the log has it
}

// flight is a fetch. Its fields are of issuer.mu until done is closed.
type flight struct {
	at    time.Time // it does not begin before
	begun bool
	done  chan struct{} // closed when it has ended
}

func newIssuer(o *TokenOptions) (*issuer, error) {
	i := &issuer{
		o: o, set: jwkset.NewMemoryStorage(), due: make(chan struct{}, 1), address: o.KeysURL,
		missing: cache.New[[sha256.Size]byte, time.Time](maxMissing),
	}
	var err error
	i.of, err = keyfunc.New(keyfunc.Options{Storage: i.set})
	return i, err
}

// run fetches keys, and again each hour and when tokens need others, until the context ends.
func (i *issuer) run(ctx context.Context) error {
	defer i.stop()
	for failed := false; ; {
		i.begin()
		err := i.fetch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		version := i.end(err)
		wait := keysEvery
		switch {
		case err == nil:
			if failed {
				i.o.Log.InfoContext(ctx, "keys of the issuer of tokens fetched", "issuer", i.o.Issuer)
			}
		case version > 0:
			wait = staleEvery
			if !failed {
				i.o.Log.WarnContext(ctx, "keys of the issuer of tokens not renewed; those from before are used", "issuer", i.o.Issuer, "error", err, "again_every", wait.String())
			}
		default:
			wait = retryKeys
			if !failed {
				i.o.Log.ErrorContext(ctx, "keys of the issuer of tokens cannot be fetched; requests with tokens are answered with 503 until they are; check auth.jwt in langgraph.json, and the network",
					"issuer", i.o.Issuer, "error", err, "again_every", wait.String())
			}
		}
		failed = err != nil
		if !i.wait(ctx, wait) {
			return nil
		}
	}
}

// wait waits until the next fetch is due, after a time or because tokens need it; false when the context ends.
func (i *issuer) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return ctx.Err() == nil
		case <-i.due:
			i.mu.Lock()
			d = i.flight.at.Sub(i.o.Now()) // only run ends flights
			i.mu.Unlock()
			timer.Reset(max(d, 0))
		}
	}
}

// begin notes that a fetch begins.
func (i *issuer) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.flight == nil {
		i.flight = &flight{done: make(chan struct{})}
	} else {
		i.asked = i.o.Now()
	}
	i.flight.begun = true
	select { // it was for this one
	case <-i.due:
	default:
	}
}

// end notes how a fetch ended, lets those that wait for it continue, and returns the version of the keys.
func (i *issuer) end(err error) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.err, i.tried = err, i.o.Now()
	if err == nil {
		i.version++
	}
	close(i.flight.done)
	i.flight = nil
	return i.version
}

func (i *issuer) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
	if i.flight != nil {
		close(i.flight.done)
		i.flight = nil
	}
}

// look waits until the keys were fetched again, if that may bring the key of a token that was checked with a version of them. late means that the fetch
// had begun before, so that it may lack a key which the issuer has used since. The error is an *access.Refusal when the issuer could not be asked, nil when it was,
// or does not have to be.
func (i *issuer) look(ctx context.Context, version int, key [sha256.Size]byte) (late bool, err error) {
	i.mu.Lock()
	if changed := i.version != version; changed || i.stopped { // changed: by a fetch that may have begun before
		i.mu.Unlock()
		return changed, nil
	}
	now := i.o.Now()
	f := i.flight
	if f == nil {
		if i.err != nil && now.Sub(i.tried) < retryKeys {
			err := i.unanswered()
			i.mu.Unlock()
			return false, err
		}
		f = &flight{at: now, done: make(chan struct{})}
		if next := i.asked.Add(refetch); next.After(now) {
			f.at = next
		}
		i.flight = f
		loop.Poke(i.due)
	}
	late = f.begun
	if since, ok := i.missing.Get(key); ok && now.Sub(since) < missingTime { // as of a client with a token of last week, which shall not wait each time
		err := i.unanswered()
		i.mu.Unlock()
		return false, err
	}
	if i.looking >= maxLooking {
		i.mu.Unlock()
		return false, errAsking
	}
	i.looking++
	i.mu.Unlock()
	timer := time.NewTimer(lookTime)
	defer timer.Stop()
	ended := false
	select {
	case <-f.done:
		ended = true
	case <-timer.C:
	case <-ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looking--
	if !ended {
		return late, errAsking
	}
	return late, i.unanswered()
}

// unanswered is the error for a token whose key is not known after the last fetch. The caller holds mu.
func (i *issuer) unanswered() error {
	if i.err != nil {
		return withCause(errAsking, i.err)
	}
	return nil
}

// absent is the error for tokens while there are no keys.
func (i *issuer) absent() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return withCause(errKeys, i.err)
}

// current returns the version of the keys; 0: there are none yet.
func (i *issuer) current() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.version
}

// parse checks a token, with keys that are fetched anew if none of those that are known made it.
func (i *issuer) parse(ctx context.Context, parser *jwt.Parser, text string, claims jwt.MapClaims) error {
	version := i.current()
	if version == 0 {
		return i.absent()
	}
	for {
		key, err := i.check(ctx, parser, text, claims)
		unknown := errors.Is(err, jwkset.ErrKeyNotFound)
		if !unknown && !errors.Is(err, jwt.ErrTokenSignatureInvalid) {
			return err
		}
		late, down := i.look(ctx, version, key)
		was := version
		if version = i.current(); version == was {
			if unknown && down != nil { // it may be good; a wrong signature of a key that is known is wrong
				return down
			}
			return err
		}
		clear(claims)
		if late {
			continue
		}
		if _, err = i.check(ctx, parser, text, claims); errors.Is(err, jwkset.ErrKeyNotFound) || errors.Is(err, jwt.ErrTokenSignatureInvalid) {
			i.missing.Put(key, i.o.Now(), 1)
		}
		return err
	}
}

// check checks a token with the keys that are there, and returns the digest of the ID of its key.
func (i *issuer) check(ctx context.Context, parser *jwt.Parser, text string, claims jwt.MapClaims) (key [sha256.Size]byte, err error) {
	of := i.of.KeyfuncCtx(ctx)
	_, err = parser.ParseWithClaims(text, claims, understood(func(token *jwt.Token) (any, error) {
		id, _ := token.Header["kid"].(string)
		key = sha256.Sum256([]byte(id))
		return of(token)
	}))
	return key, err
}

// fetch finds where the keys are, and reads them.
func (i *issuer) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	if i.o.KeysURL == "" {
		address, err := i.discover(ctx)
		if err != nil && i.address == "" {
			return err
		}
		if err == nil {
			i.address = address
		}
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := i.read(ctx, i.address, &doc); err != nil {
		return err
	}
	var set []jwkset.JWK
	var ignored error
	for _, raw := range doc.Keys {
		key, err := signing(raw)
		switch {
		case err != nil: // RFC 7517, section 5: keys that are not understood are left out
			ignored = err
		case key != nil:
			set = append(set, *key)
		}
	}
	if len(set) == 0 {
		return fmt.Errorf("%s has no key that tokens can be checked with%s", serverurl.Shown(i.address), because(ignored))
	}
	if text := because(ignored); text != i.ignored {
		i.ignored = text
		if ignored != nil {
			i.o.Log.WarnContext(ctx, "some keys of the issuer of tokens are ignored", "address", serverurl.Shown(i.address), "error", ignored)
		}
	}
	return i.set.KeyReplaceAll(ctx, set)
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// signing reads a key for signatures; nil for one that is for something else.
func signing(raw json.RawMessage) (*jwkset.JWK, error) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	if m.USE != "" && m.USE != jwkset.UseSig {
		return nil, nil //nolint:nilnil // it is for something else
	}
	key, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{Private: true}, jwkset.JWKValidateOptions{})
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", m.KID, err)
	}
	switch key.Key().(type) {
	case *rsa.PublicKey, *rsa.PrivateKey, *ecdsa.PublicKey, *ecdsa.PrivateKey, ed25519.PublicKey, ed25519.PrivateKey:
		return &key, nil
	}
	return nil, nil //nolint:nilnil // a secret that is published is none
}

// discover asks the OpenID configuration of the issuer where its keys are.
func (i *issuer) discover(ctx context.Context) (string, error) {
	address := strings.TrimSuffix(i.o.Issuer, "/") + "/.well-known/openid-configuration"
	var doc struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := i.read(ctx, address, &doc); err != nil {
		return "", err
	}
	switch {
	case doc.Issuer != i.o.Issuer:
		return "", fmt.Errorf("%s is of issuer %q; write that one in auth.jwt.issuer", address, doc.Issuer)
	case doc.Keys == "":
		return "", fmt.Errorf("%s has no jwks_uri; write it in auth.jwt.jwks_url", address)
	}
	if err := Downgrade(i.o.Issuer, doc.Keys); err != nil {
		return "", fmt.Errorf("jwks_uri of %s: %w", address, err)
	}
	return doc.Keys, nil
}

// Downgrade is the error for an address without TLS of an issuer that has TLS: who is on the network between could answer in its place.
func Downgrade(issuer string, addresses ...string) error {
	if !strings.HasPrefix(strings.ToLower(issuer), "https://") {
		return nil
	}
	for _, address := range addresses {
		if address != "" && !strings.HasPrefix(strings.ToLower(address), "https://") {
			return fmt.Errorf("%s does not begin with https://, as the issuer does", serverurl.Shown(address))
		}
	}
	return nil
}

func (i *issuer) read(ctx context.Context, address string, into any) error {
	shown := serverurl.Shown(address)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	var resp *http.Response
	if err == nil {
		resp, err = i.o.Client.Do(req)
	}
	if err != nil {
		if failed := (*url.Error)(nil); errors.As(err, &failed) {
			err = failed.Err // without the address, which its text repeats
		}
		return fmt.Errorf("%s: %w", shown, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers with %s", shown, resp.Status)
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxDocument)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", shown, err)
	}
	return nil
}

var (
	errKeys   = unavailable("The keys of the issuer of tokens are not there yet; try again, or read in the log of the server why they cannot be fetched")
	errAsking = unavailable("The issuer of tokens does not answer whether it has the key of this token; try again, or read in the log of the server why")
)

// withCause is a refusal with what the log says of it; nil: nothing.
func withCause(r *access.Refusal, cause error) *access.Refusal {
	if cause == nil {
		return r
	}
	copied := *r
	copied.Cause = cause
	return &copied
}

// unavailable is a 503 with a text.
func unavailable(text string) *access.Refusal {
	r := *refused(text)
	r.Status, r.Header = http.StatusServiceUnavailable, http.Header{"Retry-After": {"5"}}
	return &r
}

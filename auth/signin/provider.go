package signin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"understudy/auth"
	"understudy/internal/fault"
)

const (
	leeway      = 30 * time.Second // between clocks
	findTime    = 5 * time.Second  // of the question where the provider's addresses are
	finishTime  = 15 * time.Second // of all questions of one sign-in
	findAgain   = time.Hour
	retryAfter  = 2 * time.Second // at least, between questions to a provider that does not answer
	maxResponse = 8 << 10         // bytes of the parameters that come back from the provider
)

// Options say at which OpenID provider people sign in. Issuer and ClientID are required.
type Options struct {
	Issuer, ClientID, ClientSecret string
	Scopes                         []string // nil: openid, profile, email
	// Method is how the client authenticates: client_secret_basic, client_secret_post or none; "": what the provider supports.
	Method string
	// In place of the addresses in the provider's configuration; "": those.
	AuthURL, TokenURL, UserInfoURL, KeysURL string
	// UserInfo adds the claims of the UserInfo endpoint to those of the token.
	UserInfo bool

	Client *http.Client     // nil: auth.Client
	Now    func() time.Time // nil: time.Now
}

// Provider is an OpenID provider. It has to answer when its addresses and keys are needed, so that a server starts without it. Create it with NewProvider;
// it is safe for concurrent use.
type Provider struct {
	o      Options
	flight singleflight.Group

	mu     sync.Mutex
	known  *known // nil: not found yet
	err    error  // of the last question; nil: it was answered
	asked  time.Time
	client *http.Client
}

// known is what a provider says about itself.
type known struct {
	*oidc.Provider
	style oauth2.AuthStyle
	pkce  bool // false: it says that it has other methods than S256 only
}

// NewProvider asks nothing yet.
func NewProvider(o Options) *Provider {
	if len(o.Scopes) == 0 {
		o.Scopes = []string{oidc.ScopeOpenID, "profile", "email"}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Provider{o: o, client: o.Client}
	if p.client == nil {
		p.client = auth.Client()
	}
	return p
}

// Check asks the provider for its configuration. The error says what is wrong with it.
func (p *Provider) Check(ctx context.Context) error {
	k, err := p.find(ctx)
	if err == nil && !k.pkce {
		return fmt.Errorf("%s does not support PKCE with S256 (code_challenge_methods_supported)", p.o.Issuer)
	}
	return err
}

// errDown is the error while a provider cannot be asked. Its cause is for the log.
func errDown(err error) error {
	return fault.Wrap(fault.Unavailable, "The sign-in provider does not answer; try again in a moment", err)
}

// find returns what is known of the provider. While it does not answer, what was known before is used.
func (p *Provider) find(ctx context.Context) (*known, error) {
	p.mu.Lock()
	have, err, age := p.known, p.err, p.o.Now().Sub(p.asked)
	p.mu.Unlock()
	switch {
	case have != nil && (age < findAgain || err != nil && age < retryAfter):
		return have, nil
	case have == nil && err != nil && age < retryAfter:
		return nil, err
	}
	done := p.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTime) // others wait for it too
		defer cancel()
		found, err := p.ask(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked, p.err = p.o.Now(), err
		if err == nil {
			p.known = found
		}
		return p.known, nil
	})
	select {
	case <-done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		return nil, p.err
	}
	return p.known, nil
}

func (p *Provider) ask(ctx context.Context) (*known, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.o.Issuer)
	if err != nil {
		return nil, errDown(fmt.Errorf("OpenID configuration of %s: %w", p.o.Issuer, err))
	}
	var doc struct {
		Methods    []string `json:"token_endpoint_auth_methods_supported"`
		Challenges []string `json:"code_challenge_methods_supported"`
		Keys       string   `json:"jwks_uri"`
	}
	if err := found.Claims(&doc); err != nil {
		return nil, errDown(fmt.Errorf("OpenID configuration of %s: %w", p.o.Issuer, err))
	}
	endpoint := found.Endpoint()
	for _, a := range [][2]string{{p.o.AuthURL, endpoint.AuthURL}, {p.o.TokenURL, endpoint.TokenURL}, {p.o.UserInfoURL, found.UserInfoEndpoint()}, {p.o.KeysURL, doc.Keys}} {
		if err := auth.Downgrade(p.o.Issuer, a[1]); err != nil && a[0] == "" {
			return nil, errDown(fmt.Errorf("OpenID configuration of %s: %w", p.o.Issuer, err))
		}
	}
	if found, err = p.overridden(ctx, found); err != nil {
		return nil, errDown(err)
	}
	// One style, not both in turns: a code that is sent twice ends what the first one began.
	style := oauth2.AuthStyleInHeader
	if method := p.o.Method; method == "client_secret_post" || method == "none" ||
		method == "" && (p.o.ClientSecret == "" || len(doc.Methods) > 0 && !slices.Contains(doc.Methods, "client_secret_basic")) {
		style = oauth2.AuthStyleInParams
	}
	return &known{found, style, len(doc.Challenges) == 0 || slices.Contains(doc.Challenges, "S256")}, nil
}

// overridden is a provider with the addresses of the options in place of its own.
func (p *Provider) overridden(ctx context.Context, found *oidc.Provider) (*oidc.Provider, error) {
	o := p.o
	if o.AuthURL == "" && o.TokenURL == "" && o.UserInfoURL == "" && o.KeysURL == "" {
		return found, nil
	}
	var keys struct {
		URL string `json:"jwks_uri"`
	}
	if err := found.Claims(&keys); err != nil {
		return nil, err
	}
	c := oidc.ProviderConfig{
		IssuerURL: o.Issuer, AuthURL: cmp.Or(o.AuthURL, found.Endpoint().AuthURL), TokenURL: cmp.Or(o.TokenURL, found.Endpoint().TokenURL),
		UserInfoURL: cmp.Or(o.UserInfoURL, found.UserInfoEndpoint()), JWKSURL: cmp.Or(o.KeysURL, keys.URL),
	}
	return c.NewProvider(oidc.ClientContext(ctx, p.client)), nil
}

func (p *Provider) config(k *known, callback string) *oauth2.Config {
	endpoint := k.Endpoint()
	endpoint.AuthStyle = k.style
	return &oauth2.Config{ClientID: p.o.ClientID, ClientSecret: p.o.ClientSecret, Endpoint: endpoint, RedirectURL: callback, Scopes: p.o.Scopes}
}

// Begin returns the address of the provider to which the browser goes, and the ticket that it brings back in a cookie. callback is where the provider sends it.
func (p *Provider) Begin(ctx context.Context, callback, next string) (address string, t Ticket, err error) {
	k, err := p.find(ctx)
	if err != nil {
		return "", t, err
	}
	t = newTicket(next)
	return p.config(k, callback).AuthCodeURL(t.state(), oidc.Nonce(t.nonce()), oauth2.S256ChallengeOption(t.verifier())), t, nil
}

// Response is what the provider sends back with the browser.
type Response struct{ Code, State, Issuer, Error string }

// Errors of a sign-in that came back. Their texts are for people.
var (
	// ErrState is the error for an answer that does not belong to the ticket.
	ErrState = fault.New(fault.Forbidden, "This sign-in was not begun in this browser, or too long ago")
	errToken = fault.New(fault.Unauthorized, "The sign-in provider's answer was not accepted")
)

// Finish returns the claims of who signed in. It asks the provider at most once with a code.
func (p *Provider) Finish(ctx context.Context, t Ticket, r Response, callback string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	switch {
	case !t.answers(r.State):
		return nil, ErrState
	case r.Error != "":
		return nil, refusedBy(r.Error)
	case r.Code == "" || len(r.Code) > maxResponse:
		return nil, ErrState
	case r.Issuer != "" && r.Issuer != p.o.Issuer:
		return nil, wrong("the answer is of another issuer")
	}
	k, err := p.find(ctx)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	answer, err := p.config(k, callback).Exchange(ctx, r.Code, oauth2.VerifierOption(t.verifier()))
	if err != nil {
		return nil, exchangeError(err)
	}
	text, _ := answer.Extra("id_token").(string)
	if text == "" {
		return nil, wrong("the provider sent no id_token; is openid among the scopes?")
	}
	token, err := k.Verifier(&oidc.Config{
		ClientID: p.o.ClientID, SupportedSigningAlgs: auth.Algorithms(false), Now: func() time.Time { return p.o.Now().Add(-leeway) },
	}).Verify(ctx, text)
	if err != nil {
		return nil, tokenError(err)
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return nil, tokenError(err)
	}
	switch party, _ := claims["azp"].(string); {
	case !same(token.Nonce, t.nonce()):
		return nil, wrong("the token has another nonce")
	case party != "" && party != p.o.ClientID:
		return nil, wrong("the token is for another client (azp)")
	case token.IssuedAt.After(p.o.Now().Add(leeway)):
		return nil, wrong("the token is of the future: check the clocks")
	}
	if p.o.UserInfo && k.UserInfoEndpoint() != "" {
		info, err := k.UserInfo(ctx, oauth2.StaticTokenSource(answer))
		switch {
		case err != nil: // the token says enough, or who reads it refuses
		case info.Subject != token.Subject:
			return nil, wrong("the UserInfo endpoint answers for another subject")
		default:
			if err := info.Claims(&claims); err != nil {
				return nil, tokenError(err)
			}
		}
	}
	return claims, nil
}

// refusedBy is the error for a code of the provider, such as access_denied.
func refusedBy(text string) error {
	switch code(text) {
	case "access_denied":
		return fault.New(fault.Forbidden, "The sign-in was cancelled or refused by the provider")
	case "server_error", "temporarily_unavailable":
		return fault.New(fault.Unavailable, "The sign-in provider has a problem; try again in a moment")
	}
	return fault.New(fault.Forbidden, "The sign-in provider refused: "+code(text))
}

// code leaves of an error code of a provider what such codes are made of.
func code(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, text[:min(len(text), 60)])
}

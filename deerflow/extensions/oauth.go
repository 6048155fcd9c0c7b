package extensions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// OAuth says how a token for a server is got.
type OAuth struct {
	TokenURL     string
	Grant        string // client_credentials or refresh_token
	ClientID     string
	ClientSecret string
	RefreshToken string
	Scope        string
	Audience     string
	// Fields of the answer, and the type of a token that has none.
	TokenField, TypeField, ExpiresField, DefaultType string
	Skew                                             time.Duration // before its end a token is renewed
	Extra                                            map[string]string
}

// readOAuth reads the section oauth of a server; nil for none.
func readOAuth(raw json.RawMessage, fill func(string) string) (*OAuth, error) {
	o := gjson.ParseBytes(raw)
	if !o.IsObject() || o.Get("enabled").Exists() && !o.Get("enabled").Bool() {
		return nil, nil
	}
	text := func(key, def string) string {
		if v := fill(o.Get(key).String()); v != "" {
			return v
		}
		return def
	}
	out := &OAuth{
		TokenURL: text("token_url", ""), Grant: text("grant_type", "client_credentials"), ClientID: text("client_id", ""), ClientSecret: text("client_secret", ""),
		RefreshToken: text("refresh_token", ""), Scope: text("scope", ""), Audience: text("audience", ""),
		TokenField: text("token_field", "access_token"), TypeField: text("token_type_field", "token_type"), ExpiresField: text("expires_in_field", "expires_in"), DefaultType: text("default_token_type", "Bearer"),
		Skew: 60 * time.Second, Extra: map[string]string{},
	}
	if v := o.Get("refresh_skew_seconds"); v.Type == gjson.Number {
		out.Skew = time.Duration(v.Num * float64(time.Second))
	}
	o.Get("extra_token_params").ForEach(func(k, v gjson.Result) bool {
		out.Extra[k.Str] = fill(v.String())
		return true
	})
	switch {
	case out.TokenURL == "":
		return nil, errors.New("oauth has no token_url")
	case out.Grant != "client_credentials" && out.Grant != "refresh_token":
		return nil, fmt.Errorf("oauth.grant_type %q is not client_credentials or refresh_token", out.Grant)
	case out.Grant == "refresh_token" && out.RefreshToken == "":
		return nil, errors.New("oauth has no refresh_token")
	}
	return out, nil
}

// Transport returns a way to send requests to a server with its token; nil if it needs none.
func (s *Server) Transport() http.RoundTripper {
	if s.OAuth == nil {
		return nil
	}
	return &transport{oauth: s.OAuth, base: http.DefaultTransport, turn: make(chan struct{}, 1)}
}

// transport adds tokens.
type transport struct {
	oauth *OAuth
	base  http.RoundTripper

	turn    chan struct{} // who holds it has the fields below, and fetches
	token   string        // with its type
	renewed string        // refresh token that came with the last one
	ends    time.Time     // zero: unknown
}

// fetchTime bounds the request for a token.
const fetchTime = 15 * time.Second

// RoundTrip implements http.RoundTripper. A token that the server refuses is fetched again once.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token := ""
	for try := 0; ; try++ {
		out := r.Clone(r.Context())
		var err error
		if token, err = t.authorization(r.Context(), token); err != nil {
			return nil, err
		}
		out.Header.Set("Authorization", token)
		if try > 0 && r.Body != nil {
			if out.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		resp, err := t.base.RoundTrip(out)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || try > 0 || r.Body != nil && r.GetBody == nil {
			return resp, err
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		_ = resp.Body.Close()
	}
}

// authorization returns the token, fetched when there is none, when it ends soon, or when it is the refused one.
func (t *transport) authorization(ctx context.Context, refused string) (string, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if t.token != "" && t.token != refused && (t.ends.IsZero() || time.Now().Add(t.oauth.Skew).Before(t.ends)) {
		return t.token, nil
	}
	if err := t.fetch(ctx); err != nil {
		return "", fmt.Errorf("fetch a token from %s: %w", t.oauth.TokenURL, err)
	}
	return t.token, nil
}

func (t *transport) fetch(ctx context.Context) error {
	o := t.oauth
	form := url.Values{"grant_type": {o.Grant}}
	for key, value := range map[string]string{"client_id": o.ClientID, "client_secret": o.ClientSecret, "scope": o.Scope, "audience": o.Audience} {
		if value != "" {
			form.Set(key, value)
		}
	}
	if o.Grant == "refresh_token" {
		form.Set("refresh_token", o.RefreshToken)
		if t.renewed != "" {
			form.Set("refresh_token", t.renewed)
		}
	}
	for key, value := range o.Extra {
		form.Set(key, value)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answers with %s", resp.Status) // not the body, which may repeat what was sent
	}
	token := gjson.GetBytes(body, gjsonKey(o.TokenField)).String()
	if token == "" {
		return fmt.Errorf("its answer has no field %s", o.TokenField)
	}
	kind := o.DefaultType
	if v := gjson.GetBytes(body, gjsonKey(o.TypeField)).String(); v != "" {
		kind = v
	}
	if strings.EqualFold(kind, "bearer") {
		kind = "Bearer" // some servers compare it by letter
	}
	t.token, t.ends = kind+" "+token, time.Time{}
	if seconds := gjson.GetBytes(body, gjsonKey(o.ExpiresField)).Float(); seconds > 0 {
		t.ends = time.Now().Add(time.Duration(seconds * float64(time.Second)))
	}
	if next := gjson.GetBytes(body, "refresh_token").String(); next != "" {
		t.renewed = next
	}
	return nil
}

// gjsonKey is a key as a path.
func gjsonKey(key string) string {
	return strings.NewReplacer(".", `\.`, "*", `\*`, "?", `\?`, "|", `\|`, "#", `\#`, "@", `\@`).Replace(key)
}

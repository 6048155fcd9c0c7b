package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"understudy/auth/signin"
	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/internal/serverurl"
)

// signIn asks the provider at which people sign in with a browser.
func (d *doctor) signIn(ctx context.Context, cfg *config.Config) {
	o := cfg.Auth.OIDC
	if o == nil || cfg.Server.IgnoreAuth {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := signin.NewProvider(signin.Options{Issuer: o.Issuer, ClientID: o.ClientID}).Check(ctx)
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		d.say("sign-in", Problem, strings.TrimSpace(err.Error()), "correct auth.oidc.issuer, which is the one in the provider's own configuration, or see that the network lets this machine ask it; until then sign-ins with a browser fail")
		return
	}
	at := o.URL
	if at == "" {
		at = "the address by which browsers reach this server"
	}
	text := fmt.Sprintf("the provider %s answers; %s/auth/callback must be among the redirect URIs of client %s", o.Issuer, at+cfg.HTTP.MountPrefix, o.ClientID)
	if o.URL == "" && !config.IsLoopback(cfg.Server.Host) {
		d.say("sign-in", Warning, text, "set auth.oidc.url, so that the address does not depend on what requests say")
		return
	}
	d.say("sign-in", Fine, text, "")
}

// tokens fetches the keys that tokens of auth.jwt are checked with.
func (d *doctor) tokens(ctx context.Context, cfg *config.Config) {
	j := cfg.Auth.JWT
	if j == nil || cfg.Server.IgnoreAuth {
		return
	}
	t, err := backend.Tokens(j, slog.New(slog.DiscardHandler))
	if err != nil {
		d.say("tokens", Problem, err.Error(), "correct auth.jwt")
		return
	}
	if j.Secret != nil {
		d.say("tokens", Fine, "tokens are checked with the secret of auth.jwt.secret_env", "")
		return
	}
	key, who := "jwks_url", serverurl.Shown(j.JWKSURL)
	if j.JWKSURL == "" {
		key, who = "issuer", serverurl.Shown(j.Issuer)
	}
	const most = 10 * time.Second // of a fetch
	done := d.slow("waiting for the keys of "+who, most)
	err = t.Check(ctx)
	done()
	if err != nil {
		d.say("tokens", Problem, fmt.Sprintf("the keys that tokens are checked with cannot be fetched: %v", err),
			"correct auth.jwt."+key+", or see that the network lets this machine ask it; until then requests with tokens get 503")
		return
	}
	d.say("tokens", Fine, "the keys of "+who+" can be fetched", "")
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"understudy/auth/signin"
	"understudy/internal/config"
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

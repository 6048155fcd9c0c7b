package settings

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"understudy/internal/serverurl"
)

// OIDC is single sign-on.
type OIDC struct {
	Enabled   bool                    `yaml:"enabled"`
	Frontend  string                  `yaml:"frontend_base_url"` // where the web UI is; "": on the address of the server
	Providers map[string]OIDCProvider `yaml:"providers"`
}

// OIDCProvider is an OpenID provider at which people sign in.
type OIDCProvider struct {
	DisplayName  string   `yaml:"display_name"`
	Issuer       string   `yaml:"issuer"`
	ClientID     string   `yaml:"client_id"`
	ClientSecret string   `yaml:"client_secret"`
	RedirectURI  string   `yaml:"redirect_uri"`
	Scopes       []string `yaml:"scopes"`
	Method       string   `yaml:"token_endpoint_auth_method"`

	AutoCreate *bool    `yaml:"auto_create_users"`      // nil: true
	Verified   *bool    `yaml:"require_verified_email"` // nil: true
	Domains    []string `yaml:"allowed_email_domains"`
	Admins     []string `yaml:"admin_emails"`

	PKCE  *bool `yaml:"pkce_enabled"` // always on
	Nonce *bool `yaml:"nonce_enabled"`

	// In place of those of the provider's configuration.
	Authorization string `yaml:"authorization_endpoint"`
	Token         string `yaml:"token_endpoint"`
	UserInfo      string `yaml:"userinfo_endpoint"`
	Keys          string `yaml:"jwks_uri"`
}

// providerID is what providers may be called: the name is a part of addresses.
var providerID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// check refuses providers that cannot work.
func (o *OIDC) check(warn func(string)) error {
	if !o.Enabled {
		return nil
	}
	if o.Frontend = strings.TrimSuffix(o.Frontend, "/"); o.Frontend != "" && !isAddress(o.Frontend) {
		return fmt.Errorf("auth.oidc.frontend_base_url: %s is no address; write one that begins with https://", serverurl.Shown(o.Frontend))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Providers)) {
		p, at := o.Providers[name], "auth.oidc.providers."+name
		switch {
		case !providerID.MatchString(name):
			return fmt.Errorf("auth.oidc.providers: %q is no name; write letters, digits, hyphens and underscores", name)
		case !isAddress(p.Issuer):
			return fmt.Errorf("%s.issuer: %s is no address; write one that begins with https://", at, serverurl.Shown(p.Issuer))
		case p.ClientID == "":
			return fmt.Errorf("%s has no client_id", at)
		case p.RedirectURI != "" && !isAddress(p.RedirectURI):
			return fmt.Errorf("%s.redirect_uri: %s is no address", at, serverurl.Shown(p.RedirectURI))
		case !slices.Contains([]string{"", "client_secret_post", "client_secret_basic", "none"}, p.Method):
			return fmt.Errorf("%s.token_endpoint_auth_method: write client_secret_post, client_secret_basic or none", at)
		}
		if isFalse(p.PKCE) || isFalse(p.Nonce) {
			warn(at + ": PKCE and nonce are always used")
		}
	}
	return nil
}

func isFalse(b *bool) bool { return b != nil && !*b }

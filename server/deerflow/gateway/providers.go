package gateway

import (
	"reflect"
	"sync"

	"understudy/auth/signin"
	"understudy/deerflow/settings"
)

// ssoProviders are the OpenID providers of config.yaml, each with what was learned from it.
type ssoProviders struct {
	mu   sync.Mutex
	made map[string]ssoProvider
}

type ssoProvider struct {
	of settings.OIDCProvider
	*signin.Provider
}

// provider returns the provider with a name, and its settings; nil when there is none, or single sign-on is off.
func (d *Installation) provider(s *settings.Settings, name string) (*signin.Provider, settings.OIDCProvider) {
	o, ok := s.Auth.OIDC.Providers[name]
	if !ok || !s.Auth.OIDC.Enabled {
		return nil, o
	}
	d.sso.mu.Lock()
	defer d.sso.mu.Unlock()
	at := signin.Options{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, Scopes: o.Scopes, Method: o.Method, UserInfo: true,
		AuthURL: o.Authorization, TokenURL: o.Token, UserInfoURL: o.UserInfo, KeysURL: o.Keys,
	}
	have, ok := d.sso.made[name]
	if !ok || !reflect.DeepEqual(have.of, o) {
		have = ssoProvider{o, signin.NewProvider(at)}
		if d.sso.made == nil {
			d.sso.made = map[string]ssoProvider{}
		}
		d.sso.made[name] = have
	}
	return have.Provider, o
}

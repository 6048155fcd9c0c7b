package config

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"understudy/internal/serverurl"
)

// OIDC is auth.oidc: the OpenID provider at which people sign in with a browser.
type OIDC struct {
	Issuer, ClientID, ClientSecret string
	Name                           string // of the provider, on the button
	Scopes                         []string
	// URL is where browsers reach this server, without a path; "": as their requests say.
	URL                                string
	Identity, DisplayName, Permissions string // claims
	// Session is how long a session lasts at most, Idle how long without a request.
	Session, Idle time.Duration
}

const (
	defaultSession, defaultIdle = 12 * time.Hour, 2 * time.Hour
	shortestSession             = 60 // seconds
	longestSession              = 90 * 24 * 60 * 60
)

func (f *file) oidc(v value, key string) {
	o := &OIDC{Name: "single sign-on", Session: defaultSession, Idle: defaultIdle}
	seconds := func(to *time.Duration) func(value, string) {
		return func(v value, key string) {
			*to = time.Duration(f.integer(v, key, shortestSession, longestSession)) * time.Second
		}
	}
	f.section(v, key, map[string]func(value, string){
		"issuer":    f.setText(&o.Issuer, "https://login.example.com/"),
		"client_id": f.setText(&o.ClientID, "understudy"),
		"client_secret_env": func(v value, key string) {
			if name := f.text(v, key, "OIDC_CLIENT_SECRET"); name != "" {
				f.later = append(f.later, func() {
					if !f.c.dataOnly {
						o.ClientSecret, _ = f.variableValue(name, v, key)
					}
				})
			}
		},
		"name":              f.setText(&o.Name, "Keycloak"),
		"scopes":            f.setTexts(&o.Scopes, "openid"),
		"url":               f.setText(&o.URL, "https://agents.example.com"),
		"identity_claim":    f.setText(&o.Identity, "sub"),
		"name_claim":        f.setText(&o.DisplayName, "name"),
		"permissions_claim": f.setText(&o.Permissions, "scope"),
		"session_seconds":   seconds(&o.Session),
		"idle_seconds":      seconds(&o.Idle),
	})
	switch issuer, err := url.Parse(o.Issuer); {
	case o.Issuer == "":
		f.wrong(v, key, `has no issuer; write the address of the provider: {"issuer": "https://login.example.com/", "client_id": "…"}`)
	case err != nil || !isHTTP(o.Issuer) || issuer.Host == "":
		f.wrong(v, join(key, "issuer"), "%s is no address; write one that begins with https://", serverurl.Shown(o.Issuer))
	case issuer.User != nil || issuer.RawQuery != "" || issuer.Fragment != "":
		f.wrong(v, join(key, "issuer"), "%s is no issuer: these have no user, password or query; write the one in the provider's OpenID configuration", serverurl.Shown(o.Issuer))
	case issuer.Scheme == "http" && !IsLoopback(issuer.Hostname()):
		f.warn(join(key, "issuer"), "without TLS: who is on the network between can sign in as anyone")
	}
	if o.ClientID == "" {
		f.wrong(v, key, "has no client_id; write the one under which the provider knows this server")
	}
	if len(o.Scopes) > 0 && !slices.Contains(o.Scopes, "openid") {
		f.wrong(v, join(key, "scopes"), "lack openid, without which the provider does not say who signs in")
	}
	if o.URL != "" {
		base, err := url.Parse(o.URL)
		if o.URL = strings.TrimSuffix(o.URL, "/"); err != nil || !isHTTP(o.URL) || base.Host == "" || strings.Trim(base.Path, "/") != "" || base.RawQuery != "" || base.Fragment != "" || base.User != nil {
			f.wrong(v, join(key, "url"), "%s is not where browsers reach the server; write scheme and host only, such as https://agents.example.com (http.mount_prefix is added)", serverurl.Shown(o.URL))
		}
	}
	if o.Idle > o.Session {
		o.Idle = o.Session
	}
	f.c.Auth.OIDC = o
}

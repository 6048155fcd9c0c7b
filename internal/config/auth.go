package config

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"understudy/auth"
	"understudy/internal/serverurl"
)

// Auth is the auth section. The zero value asks for no authentication.
type Auth struct {
	// Python is the langgraph_sdk.Auth object of auth.path; the zero value: there is none.
	Python Object
	// Keys accepts API keys of the database, JWT tokens; with one of them no Python is asked.
	Keys bool
	JWT  *JWT
	// OIDC lets people sign in with a browser; nil: they cannot.
	OIDC *OIDC
	// Shared lets everyone who is authenticated natively reach everything; otherwise each identity has what it created.
	Shared bool
	// DisableStudio makes LangGraph Studio authenticate like every client.
	DisableStudio bool
	// OpenAPI is merged into /openapi.json: an object with securitySchemes, security and paths; nil for none.
	OpenAPI json.RawMessage
	// Cache keeps what authenticate returned; nil: it is called for each request.
	Cache *AuthCache
}

// JWT is auth.jwt: which JSON Web Tokens are accepted.
type JWT struct {
	Issuer                      string
	Audience                    []string
	JWKSURL                     string // "": the OpenID configuration of the issuer says it
	Secret                      []byte // of secret_env; nil: the issuer's keys
	Algorithms                  []string
	Identity, Name, Permissions string // claims
}

// Native reports whether requests are authenticated without Python.
func (a *Auth) Native() bool { return a.Keys || a.JWT != nil || a.OIDC != nil }

// AuthCache is auth.cache.
type AuthCache struct {
	// Keys are names of request headers. Requests whose values are all equal are sent by the same user.
	Keys []string
	TTL  time.Duration
	// Size is how many users are kept at most.
	Size int
}

// Object is a Python object that the file names: "./file.py:name" or "package.module:name". The zero value names none.
type Object struct {
	// Path is the file, absolute, or Module is dotted; one is empty.
	Path, Module string
	Attr         string
}

// IsSet reports whether it names an object.
func (o Object) IsSet() bool { return o.Attr != "" }

// Spec is the object as Python code finds it: "/folder/file.py:name" or "module:name".
func (o Object) Spec() string {
	if !o.IsSet() {
		return ""
	}
	return or(o.Path, o.Module) + ":" + o.Attr
}

// javaScript are endings of files that this server does not run.
var javaScript = []string{".js", ".ts", ".mjs", ".mts", ".cjs", ".cts", ".jsx", ".tsx"}

// object reads the name of a Python object.
func (f *file) object(to *Object, example string) func(value, string) {
	return func(v value, key string) {
		text := f.text(v, key, example)
		if text == "" {
			return
		}
		colon := strings.LastIndexByte(text, ':')
		if colon <= 0 || colon == len(text)-1 {
			f.wrong(v, key, `%q names no object; write "file.py:name", such as %q`, text, example)
			return
		}
		where := text[:colon]
		if slices.Contains(javaScript, filepath.Ext(where)) {
			f.wrong(v, key, "%s is JavaScript, which needs LangGraph's own JavaScript server; write it in Python, such as %q", where, example)
			return
		}
		to.Attr = text[colon+1:]
		if !strings.Contains(where, "/") && !strings.HasSuffix(where, ".py") {
			to.Module = where
			return
		}
		to.Path = f.abs(where)
		if _, err := os.Stat(to.Path); err != nil {
			f.wrong(v, key, "there is no file %s", to.Path)
		}
	}
}

func (f *file) auth(v value, key string) {
	if v.empty() {
		return
	}
	a := &f.c.Auth
	fields := map[string]func(value, string){
		"path":                f.object(&a.Python, "./auth.py:auth"),
		"api_keys":            f.setBool(&a.Keys),
		"jwt":                 f.jwt,
		"oidc":                f.oidc,
		"policy":              f.authPolicy,
		"disable_studio_auth": f.setBool(&a.DisableStudio),
		"openapi": func(v value, key string) {
			a.OpenAPI = f.raw(v, key, `{"securitySchemes": {…}, "security": […]}`)
		},
		"cache":                    f.authCache,
		"allow_langsmith_api_keys": f.notYet("keys of LangSmith are not accepted by this server; authenticate clients in the handlers of auth.path"),
	}
	f.section(v, key, fields)
	switch {
	case a.Native() && a.Python.IsSet():
		f.wrong(v, key, "has a path and api_keys, jwt or oidc; write one: handlers in Python authenticate everyone, or this server does")
	case !a.Native() && !a.Python.IsSet() && !f.mistaken(key) && wantsAuth(v, fields):
		f.wrong(v, key, "authenticates no request: it has no path, api_keys, jwt or oidc; correct the name of the key, or take auth out")
	}
}

// wantsAuth reports whether auth has a key that is only written where requests are authenticated, or one that is unknown: then the one that does may be misspelled.
func wantsAuth(v value, fields map[string]func(value, string)) bool {
	members, _ := v.data.([]member)
	return slices.ContainsFunc(members, func(m member) bool {
		return m.data != nil && (fields[m.key] == nil || m.key == "policy" || m.key == "cache")
	})
}

// limits reads how much an identity may use.
func (f *file) limits(v value, key string) {
	f.section(v, key, map[string]func(value, string){
		"concurrent_runs": func(v value, key string) { f.c.Limits.ConcurrentRuns = int(f.integer(v, key, 1, 100_000)) },
		"runs_per_minute": func(v value, key string) { f.c.Limits.RunsPerMinute = int(f.integer(v, key, 1, 1_000_000)) },
	})
}

// authPolicy reads who reaches what among those that are authenticated natively.
func (f *file) authPolicy(v value, key string) {
	switch text := f.text(v, key, "owner"); text {
	case "owner", "":
	case "shared":
		f.c.Auth.Shared = true
	default:
		f.wrong(v, key, `%q is no policy; write "owner" (each identity has what it created) or "shared" (all have everything)`, text)
	}
}

func (f *file) jwt(v value, key string) {
	j := &JWT{}
	f.section(v, key, map[string]func(value, string){
		"issuer": f.setText(&j.Issuer, "https://login.example.com/"),
		"audience": func(v value, key string) {
			if _, list := v.data.([]value); list {
				f.setTexts(&j.Audience, "my-agents")(v, key)
			} else if text := f.text(v, key, "my-agents"); text != "" {
				j.Audience = []string{text}
			}
		},
		"jwks_url": func(v value, key string) {
			if j.JWKSURL = f.text(v, key, "https://login.example.com/keys"); j.JWKSURL != "" && !isHTTP(j.JWKSURL) {
				f.wrong(v, key, "%s is no address; write one that begins with https://", serverurl.Shown(j.JWKSURL))
			}
		},
		"secret_env": func(v value, key string) {
			if name := f.text(v, key, "JWT_SECRET"); name != "" {
				j.Secret = []byte{}
				f.later = append(f.later, func() { f.jwtSecret(j, name, v, key) })
			}
		},
		"algorithms":        f.setTexts(&j.Algorithms, "RS256"),
		"identity_claim":    f.setText(&j.Identity, "sub"),
		"name_claim":        f.setText(&j.Name, "name"),
		"permissions_claim": f.setText(&j.Permissions, "scope"),
	})
	secret := j.Secret != nil
	switch {
	case secret && j.JWKSURL != "":
		f.wrong(v, key, "has secret_env and jwks_url; write the one that the issuer signs with")
	case !secret && j.JWKSURL == "" && j.Issuer == "":
		f.wrong(v, key, `says not how tokens are checked; write {"issuer": "https://…"}, a jwks_url, or a secret_env`)
	case !secret && j.JWKSURL == "" && !isHTTP(j.Issuer):
		f.wrong(v, key, "issuer %s is no address, so write where its keys are in jwks_url", serverurl.Shown(j.Issuer))
	}
	if len(j.Audience) == 0 && !secret {
		f.warn(join(key, "audience"), "missing: tokens that the issuer made for other applications are accepted too")
	}
	for _, name := range j.Algorithms {
		if known := auth.Algorithms(secret); !slices.Contains(known, name) {
			f.wrong(v, key, "algorithm %q is not one of %s", name, strings.Join(known, ", "))
		}
	}
	f.c.Auth.JWT = j
}

// jwtSecret reads the secret of tokens. It runs when env is known, wherever in the file that stands.
func (f *file) jwtSecret(j *JWT, name string, v value, key string) {
	if f.c.dataOnly {
		return
	}
	secret, ok := f.variableValue(name, v, key)
	if ok && len(secret) < minSecret {
		f.wrong(v, key, "the secret in %s has %d bytes; HS256 needs at least %d, such as those of: openssl rand -hex 32", name, len(secret), minSecret)
	}
	j.Secret = []byte(secret)
}

// minSecret is the least number of bytes of a secret that signs tokens.
const minSecret = 32

func isHTTP(address string) bool {
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://")
}

func (f *file) authCache(v value, key string) {
	if v.empty() {
		return
	}
	c := &AuthCache{TTL: time.Minute, Size: 1000}
	f.section(v, key, map[string]func(value, string){
		"cache_keys":  f.setTexts(&c.Keys, "authorization"),
		"ttl_seconds": func(v value, key string) { c.TTL = time.Duration(f.integer(v, key, 1, 24*60*60)) * time.Second },
		"max_size":    func(v value, key string) { c.Size = int(f.integer(v, key, 1, 1_000_000)) },
	})
	if len(c.Keys) == 0 {
		f.wrong(v, key, `has no cache_keys; write the headers that distinguish users, such as ["authorization"]`)
		return
	}
	for i, name := range c.Keys {
		c.Keys[i] = http.CanonicalHeaderKey(name)
	}
	f.c.Auth.Cache = c
}

// raw returns an object as JSON.
func (f *file) raw(v value, key, example string) json.RawMessage {
	if _, ok := v.data.([]member); !ok {
		f.wrong(v, key, "is %s; write an object: %s", v.kind(), example)
		return nil
	}
	return v.append(nil)
}

// needsGate reports whether Python runs something besides graphs.
func (c *Config) needsGate() bool {
	return c.Auth.Python.IsSet() && !c.Server.IgnoreAuth || c.Encrypts() || c.HTTP.App.IsSet() || c.StoreIndex != nil && c.StoreIndex.IsPython()
}

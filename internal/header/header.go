// Package header selects request headers by name, for the configuration of runs and for the log. It keeps credentials out of both, whatever
// is configured. Of values it reads only what says to which trace of LangSmith a run belongs.
package header

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Filter selects headers: those that a pattern of Includes matches and no pattern of Excludes does. In a pattern "*" stands for any text, and
// case is ignored. The zero value selects none.
type Filter struct {
	Includes, Excludes []string
}

// Selects reports whether the header passes. Credentials never pass. A header whose name suggests a secret passes only when Includes has its
// exact name, not by a wildcard.
func (f Filter) Selects(name string) bool {
	name = strings.ToLower(name)
	if IsCredential(name) || reserved(name) || matchesAny(f.Excludes, name) {
		return false
	}
	if suggestsSecret(name) {
		return slices.ContainsFunc(f.Includes, func(p string) bool { return strings.EqualFold(p, name) })
	}
	return matchesAny(f.Includes, name)
}

// Drops reports whether a pattern of Excludes matches the header.
func (f Filter) Drops(name string) bool { return matchesAny(f.Excludes, strings.ToLower(name)) }

// Withholds reports whether the header matches a wildcard but does not pass, because its name suggests a secret. The operator may want to add
// its exact name.
func (f Filter) Withholds(name string) bool {
	name = strings.ToLower(name)
	return suggestsSecret(name) && !IsCredential(name) && !f.Selects(name) && matchesAny(f.Includes, name) && !matchesAny(f.Excludes, name)
}

// credentials are the headers by which clients and proxies authenticate. LangGraph Server too withholds authorization and the x- ones of the
// first line.
var credentials = []string{
	"authorization", "x-api-key", "x-service-key", "x-tenant-id",
	"proxy-authorization", "x-forwarded-authorization", "x-original-authorization",
	"cookie", "cookie2", "set-cookie", "set-cookie2",
	"authentication-info", "proxy-authentication-info", "www-authenticate", "proxy-authenticate",
	"api-key", "apikey", "x-langsmith-api-key", "x-auth-token", "x-csrf-token", "x-xsrf-token", "x-csrftoken",
	"x-amz-security-token", "x-goog-iap-jwt-assertion", "cf-access-jwt-assertion", "cf-access-client-secret", "x-forwarded-access-token",
	"x-amzn-oidc-accesstoken", "x-amzn-oidc-data", "x-client-cert", "x-forwarded-client-cert", "x-ssl-client-cert",
}

// IsCredential reports whether a header authenticates its sender. Its value must not be stored, logged or passed on to a graph.
func IsCredential(name string) bool {
	return slices.ContainsFunc(credentials, func(c string) bool { return strings.EqualFold(c, name) })
}

// reserved reports whether a header has the name of a key that this server itself sets in the configuration of runs.
func reserved(name string) bool {
	return strings.HasPrefix(name, "langgraph_") || strings.HasPrefix(name, "__")
}

// secretParts are parts of header names that usually indicate a secret, anywhere in the name.
var secretParts = []string{
	"authorization", "authentication", "authenticated", "oauth", "token", "secret", "password", "passwd", "passphrase", "credential", "cookie", "session",
	"signature", "assertion", "bearer", "jwt", "saml", "csrf", "xsrf", "apikey", "accesskey", "privatekey", "secretkey", "sharedkey",
	"subscriptionkey", "authkey", "sessid",
}

// secretWords are words in header names that usually indicate a secret, when separated by hyphens, underscores or dots. Within other
// words they mean nothing, as in author or monkey.
var secretWords = []string{
	"auth", "authn", "authz", "key", "keys", "pass", "pwd", "pw", "pin", "otp", "totp", "sid", "sig", "hmac", "cred", "creds", "cert", "certificate", "sso", "ticket",
}

// harmless are names that match but do not carry a secret.
var harmless = []string{
	"idempotency-key", "x-idempotency-key", "sec-websocket-key", "surrogate-key", "x-cache-key", "x-partition-key", "x-routing-key",
	"max-tokens", "x-max-tokens", "x-token-count", "x-token-limit", "x-token-usage",
}

func suggestsSecret(name string) bool {
	if slices.Contains(harmless, name) {
		return false
	}
	if slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(name, part) }) {
		return true
	}
	words := strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(secretWords, w) })
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(strings.ToLower(p), name) })
}

// matches reports whether name matches pattern, where "*" stands for any text. Only the last wildcard is retried: the time is at most the
// product of the lengths.
func matches(pattern, name string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Trace is the header by which a client says to which trace of LangSmith a run belongs. Without being selected it reaches the configuration of runs, and with it
// what the client's baggage says of the trace.
const Trace = "langsmith-trace"

// Names of what baggage says of a trace.
const (
	traceMetadata = "langsmith-metadata" // a JSON object
	traceTags     = "langsmith-tags"     // separated by commas
	traceProject  = "langsmith-project"
)

// Baggage returns what a baggage header says of a trace, by the names that it has in the configuration of runs.
func Baggage(value string) map[string]string {
	found := map[string]string{}
	for item := range strings.SplitSeq(value, ",") {
		name, text, ok := strings.Cut(strings.TrimSpace(item), "=")
		text, err := url.QueryUnescape(text)
		if !ok || err != nil {
			continue
		}
		switch name {
		case traceMetadata:
			if text = strings.TrimSpace(text); json.Valid([]byte(text)) && strings.HasPrefix(text, "{") {
				found[name] = text
			}
		case traceTags:
			list, _ := json.Marshal(strings.Split(text, ",")) //nolint:errchkjson // texts can be encoded
			found[name] = string(list)
		case traceProject:
			found[name] = text
		}
	}
	return found
}

// IsJSON reports whether a value is what Baggage made of JSON; others are texts.
func IsJSON(name, value string) bool {
	return (name == traceMetadata && strings.HasPrefix(value, "{") || name == traceTags && strings.HasPrefix(value, "[")) && json.Valid([]byte(value))
}

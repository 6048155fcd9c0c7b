package tracing

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// env reads variables of the environment.
type env func(name string) string

// first returns the first of some variables that has a value.
func (e env) first(names ...string) string {
	for _, name := range names {
		if v := strings.TrimSpace(e(name)); v != "" {
			return v
		}
	}
	return ""
}

// on reports whether the first of some variables that has a value says yes.
func (e env) on(names ...string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(e.first(names...)))
}

// langSmith returns what sends spans to LangSmith, as DeerFlow's variables say; nil when they do not switch it on.
func langSmith(e env) (*client, error) {
	if !e.on("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LANGCHAIN_TRACING") {
		return nil, nil
	}
	key := e.first("LANGSMITH_API_KEY", "LANGCHAIN_API_KEY")
	if key == "" {
		return nil, fmt.Errorf("LANGSMITH_TRACING is on and LANGSMITH_API_KEY is not set; set it, or switch LANGSMITH_TRACING off")
	}
	at := cmp.Or(e.first("LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT"), "https://api.smith.langchain.com")
	return serviceAt(place{"LangSmith", "LANGSMITH_ENDPOINT", "LANGSMITH_API_KEY"}, at, "/otel/v1/traces", map[string]string{
		"x-api-key": key, "Langsmith-Project": cmp.Or(e.first("LANGSMITH_PROJECT", "LANGCHAIN_PROJECT"), "deer-flow"),
	})
}

// ToLangfuse reports whether DeerFlow's variables send traces to Langfuse.
func ToLangfuse(getenv func(string) string) bool { return env(getenv).on("LANGFUSE_TRACING") }

// langfuse returns what sends spans to Langfuse, as DeerFlow's variables say; nil when they do not switch it on.
func langfuse(e env) (*client, error) {
	if !ToLangfuse(e) {
		return nil, nil
	}
	public, secret := e.first("LANGFUSE_PUBLIC_KEY"), e.first("LANGFUSE_SECRET_KEY")
	if public == "" || secret == "" {
		return nil, fmt.Errorf("LANGFUSE_TRACING is on, and LANGFUSE_PUBLIC_KEY or LANGFUSE_SECRET_KEY is not set; set both, or switch LANGFUSE_TRACING off")
	}
	return serviceAt(place{"Langfuse", "LANGFUSE_BASE_URL", "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"}, cmp.Or(e.first("LANGFUSE_BASE_URL"), "https://cloud.langfuse.com"), "/api/public/otel/v1/traces", map[string]string{
		"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(public+":"+secret)),
	})
}

// serviceAt returns what sends spans to a path of a service.
func serviceAt(p place, base, path string, headers map[string]string) (*client, error) {
	c := &client{place: p, url: strings.TrimRight(base, "/") + path, header: http.Header{}, timeout: defaultTimeout, zip: true}
	if !isAddress(c.url) {
		return nil, fmt.Errorf("%s is not a URL such as https://host", p.address)
	}
	for key, value := range headers {
		c.header.Set(key, value)
	}
	c.http = sender(http.DefaultTransport.(*http.Transport).Clone())
	return c, nil
}

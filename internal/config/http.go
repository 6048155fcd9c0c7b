package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"understudy/internal/address"
	"understudy/internal/header"
)

// HTTP is the http section.
type HTTP struct {
	// MountPrefix is the URL path prefix of every route: "" or "/prefix", without a final slash.
	MountPrefix string
	CORS        CORS
	Disable     Disable
	// ConfigurableHeaders selects request headers that are passed to config.configurable of a run.
	ConfigurableHeaders header.Filter
	// LoggingHeaders selects request headers that are logged with each request.
	LoggingHeaders header.Filter
	// App is the Starlette or FastAPI application of http.app.
	App Object
	// AuthFirst authenticates requests before they reach the middleware of App (http.middleware_order).
	AuthFirst bool
	// GuardRoutes makes the routes of App need credentials too (http.enable_custom_route_auth).
	GuardRoutes bool
}

// CORS is http.cors.
type CORS struct {
	// AllowOrigins are origins, or "*" for all.
	AllowOrigins []string
	// AllowOriginRegex matches whole origins, in addition to AllowOrigins; "" for none. It
	// compiles.
	AllowOriginRegex string
	// Given: langgraph.json has this section.
	Given bool
	// AllowMethods and AllowHeaders may be "*". Headers of simple requests are always allowed.
	AllowMethods, AllowHeaders []string
	ExposeHeaders              []string
	AllowCredentials           bool
	// MaxAge is how long a browser caches a preflight.
	MaxAge time.Duration
}

// Disable is http.disable_*: groups of routes that return 404, and webhooks that are not sent.
type Disable struct {
	Assistants, Threads, Runs, EventStreaming, Store, Meta, MCP, A2A, OpenAI, UI, Webhooks bool
}

// defaultCORS is LangGraph Server's behavior without a cors section.
func defaultCORS() CORS {
	return CORS{
		AllowOrigins: []string{"*"}, AllowMethods: []string{"*"}, AllowHeaders: []string{"*"},
		ExposeHeaders: []string{"x-pagination-total", "x-pagination-next", "content-location"},
		MaxAge:        600 * time.Second,
	}
}

func (f *file) http(v value, key string) {
	h := &f.c.HTTP
	f.section(v, key, map[string]func(value, string){
		"mount_prefix": func(v value, key string) {
			prefix, problem := mountPrefix(f.text(v, key, "/my-api"))
			if problem != "" {
				f.wrong(v, key, "%s", problem)
			}
			h.MountPrefix = prefix
		},
		"cors":                     f.cors,
		"configurable_headers":     f.headerFilter(&h.ConfigurableHeaders),
		"logging_headers":          f.headerFilter(&h.LoggingHeaders),
		"disable_assistants":       f.setBool(&h.Disable.Assistants),
		"disable_threads":          f.setBool(&h.Disable.Threads),
		"disable_runs":             f.setBool(&h.Disable.Runs),
		"disable_store":            f.setBool(&h.Disable.Store),
		"disable_meta":             f.setBool(&h.Disable.Meta),
		"disable_mcp":              f.setBool(&h.Disable.MCP),
		"disable_a2a":              f.setBool(&h.Disable.A2A),
		"disable_openai":           f.setBool(&h.Disable.OpenAI),
		"disable_ui":               f.setBool(&h.Disable.UI),
		"disable_webhooks":         f.setBool(&h.Disable.Webhooks),
		"disable_event_streaming":  f.setBool(&h.Disable.EventStreaming),
		"app":                      f.object(&h.App, "./app.py:app"),
		"enable_custom_route_auth": f.setBool(&h.GuardRoutes),
		"middleware_order": func(v value, key string) {
			order := f.text(v, key, "auth_first")
			if h.AuthFirst = order == "auth_first"; !h.AuthFirst && order != "middleware_first" {
				f.wrong(v, key, `write "middleware_first" or "auth_first"`)
			}
		},
	})
}

// onlyCORS reads what of http holds for answers of a proxy's own.
func (f *file) onlyCORS(v value, _ string) {
	members, _ := v.data.([]member)
	for _, m := range members {
		if m.key == "cors" {
			f.cors(m.value, "http.cors")
		}
	}
}

// cors: a section replaces all defaults; what it leaves out is as strict as LangGraph Server has it.
func (f *file) cors(v value, key string) {
	c := CORS{Given: true, AllowMethods: []string{"GET"}, AllowHeaders: []string{"Content-Type"}, MaxAge: 600 * time.Second}
	f.section(v, key, map[string]func(value, string){
		"allow_origins":     f.setTexts(&c.AllowOrigins, "https://app.example.com"),
		"allow_methods":     f.setTexts(&c.AllowMethods, "GET"),
		"allow_headers":     f.setTexts(&c.AllowHeaders, "authorization"),
		"expose_headers":    f.setTexts(&c.ExposeHeaders, "content-location"),
		"allow_credentials": f.setBool(&c.AllowCredentials),
		"max_age": func(v value, key string) {
			c.MaxAge = time.Duration(f.integer(v, key, 0, 1<<31)) * time.Second
		},
		"allow_origin_regex": func(v value, key string) {
			c.AllowOriginRegex = f.text(v, key, `https://.*\.example\.com`)
			if _, err := regexp.Compile(c.AllowOriginRegex); err != nil {
				f.wrong(v, key, "is not a regular expression: %v", err)
			}
		},
	})
	if v.data == nil {
		return
	}
	// A proxy leaves preflights to its upstream.
	if f.c.Mode != Proxy && !slices.Contains(c.AllowMethods, "*") && !slices.Contains(c.AllowMethods, "POST") {
		f.warn(key, `pages of allowed origins cannot send POST, which threads and runs need; LangGraph Server refuses it too. Add "allow_methods": ["*"], "allow_headers": ["*"]`)
	}
	f.c.HTTP.CORS = c
}

// headerFilter reads {includes, excludes}, also without the s.
func (f *file) headerFilter(to *header.Filter) func(value, string) {
	return func(v value, key string) {
		f.section(v, key, map[string]func(value, string){
			"includes": f.setTexts(&to.Includes, "x-*"), "include": f.setTexts(&to.Includes, "x-*"),
			"excludes": f.setTexts(&to.Excludes, "x-secret-*"), "exclude": f.setTexts(&to.Excludes, "x-secret-*"),
		})
	}
}

// mountPrefix takes a slash from the end, or says what is wrong.
func mountPrefix(s string) (prefix, problem string) {
	switch prefix = strings.TrimSuffix(s, "/"); {
	case s == "" || s == "/":
		return "", ""
	case !strings.HasPrefix(s, "/"):
		return "", `a prefix starts with a slash, such as "/my-api"`
	case prefix == "/noauth" || strings.HasPrefix(prefix, "/noauth/"):
		return "", `"/noauth" is reserved; take another name`
	case strings.ContainsAny(prefix, "?#*: ") || strings.Contains(prefix, "//"):
		return "", `holds characters that are no part of a path; write one such as "/my-api/v1"`
	}
	return prefix, ""
}

// setTrustedProxies reads addresses and networks separated by commas.
func setTrustedProxies(c *Config, s string) (err error) {
	if c.Server.TrustedProxies, err = address.Networks(s); err != nil {
		return fmt.Errorf("%w; write addresses or networks, such as 127.0.0.1,10.0.0.0/8", err)
	}
	return nil
}

// setAllowedHosts reads names separated by commas.
func setAllowedHosts(c *Config, s string) error {
	c.Server.AllowedHosts = nil
	for name := range strings.SplitSeq(strings.ToLower(s), ",") {
		name = strings.TrimSpace(name)
		if rest := strings.TrimSuffix(strings.TrimPrefix(name, "*."), "."); name != "*" && (rest == "" || strings.ContainsAny(rest, "*:/[] ")) {
			return errors.New("write names without scheme and port, such as dev.example.com,*.ngrok.app, or * for all")
		}
		c.Server.AllowedHosts = append(c.Server.AllowedHosts, strings.TrimSuffix(name, "."))
	}
	return nil
}

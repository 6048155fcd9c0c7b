package config

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Webhooks is the webhooks section.
type Webhooks struct {
	URL URLPolicy
	// Headers are sent with every webhook; templates are already replaced.
	Headers map[string]string
	// AllowedFields are the fields that are sent; nil for all.
	AllowedFields []string
}

// URLPolicy is webhooks.url: the allowed targets of webhooks.
type URLPolicy struct {
	RequireHTTPS bool
	// AllowedDomains are hosts, or "*.domain" for subdomains; empty allows any.
	AllowedDomains []string
	// AllowedPorts are the allowed ports; empty allows any.
	AllowedPorts []int
	// MaxURLLength in characters.
	MaxURLLength      int
	DisableLoopback   bool
	DisablePrivateIPs bool
}

// webhookFields are the names that webhooks.allowed_fields may hold.
var webhookFields = []string{
	"assistant_id", "created_at", "error", "kwargs", "metadata", "multitask_strategy", "run_ended_at", "run_id", "run_started_at",
	"status", "thread_id", "updated_at", "values", "webhook_sent_at",
}

func (f *file) webhooks(v value, key string) {
	prefix := "LG_WEBHOOK_"
	var headers value
	f.section(v, key, map[string]func(value, string){
		"env_prefix":     f.setText(&prefix, "LG_WEBHOOK_"),
		"headers":        func(v value, _ string) { headers = v },
		"url":            f.urlPolicy,
		"allowed_fields": f.allowedFields,
	})
	if headers.data != nil {
		f.webhookHeaders(headers, join(key, "headers"), prefix)
	}
}

func (f *file) allowedFields(v value, key string) {
	names := f.texts(v, key, "status")
	for _, name := range names {
		if name != "" && !slices.Contains(webhookFields, name) {
			f.wrong(v, key, "%q is not a field of webhooks; choose from %s", name, list(webhookFields))
		}
	}
	f.c.Webhooks.AllowedFields = names
}

// urlPolicy: a section with anything in it makes https required unless it says otherwise, and
// addresses shorter. As there.
func (f *file) urlPolicy(v value, key string) {
	if v.empty() {
		return
	}
	p := URLPolicy{RequireHTTPS: true, MaxURLLength: 2048, DisableLoopback: true}
	f.section(v, key, map[string]func(value, string){
		"require_https":       f.setBool(&p.RequireHTTPS),
		"disable_loopback":    f.setBool(&p.DisableLoopback),
		"disable_private_ips": f.setBool(&p.DisablePrivateIPs),
		"max_url_length":      func(v value, key string) { p.MaxURLLength = int(f.integer(v, key, 1, 1<<20)) },
		"allowed_domains": func(v value, key string) {
			p.AllowedDomains = f.texts(v, key, "hooks.example.com")
			for _, d := range p.AllowedDomains {
				if rest := strings.TrimPrefix(d, "*."); rest == "" || strings.Contains(rest, "*") {
					f.wrong(v, key, `%q: "*" stands only at the start, as in "*.example.com"`, d)
				}
			}
		},
		"allowed_ports": func(v value, key string) {
			items, ok := v.data.([]value)
			if !ok {
				f.wrong(v, key, "is %s; write a list of ports, such as [443]", v.kind())
				return
			}
			for _, item := range items {
				p.AllowedPorts = append(p.AllowedPorts, int(f.integer(item, key, 1, 65535)))
			}
		},
	})
	f.c.Webhooks.URL = p
}

// template is ${{ env.NAME }} in a header.
var template = regexp.MustCompile(`\$\{\{\s*([^}]+?)\s*\}\}`)

// headerName is a token of HTTP.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// webhookHeaders fills in variables. Only those with the prefix may leave the machine.
func (f *file) webhookHeaders(v value, key, prefix string) {
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write an object: {"authorization": "Bearer ${{ env.%sTOKEN }}"}`, v.kind(), prefix)
		return
	}
	f.c.Webhooks.Headers = make(map[string]string, len(members))
	for _, m := range members {
		text, isText := m.data.(string)
		if n, isNumber := m.data.(json.Number); isNumber {
			text, isText = n.String(), true
		}
		at := join(key, m.key)
		if !isText || strings.ContainsAny(text, "\r\n\x00") || !headerName.MatchString(m.key) {
			f.wrong(m.value, at, "a header is a name and one line of text")
			continue
		}
		f.c.Webhooks.Headers[m.key] = template.ReplaceAllStringFunc(text, func(s string) string {
			return f.templated(template.FindStringSubmatch(s)[1], prefix, m.value, at)
		})
	}
}

func (f *file) templated(expr, prefix string, v value, key string) string {
	name, isEnv := strings.CutPrefix(expr, "env.")
	switch {
	case !isEnv || name == "" || strings.Contains(name, "."):
		f.wrong(v, key, "%q: only variables can be filled in, as ${{ env.%sTOKEN }}", expr, prefix)
		return ""
	case !strings.HasPrefix(name, prefix):
		f.wrong(v, key, "variable %s may not be sent: its name must start with %s (webhooks.env_prefix)", name, prefix)
		return ""
	}
	s, _ := f.variableValue(name, v, key)
	return s
}

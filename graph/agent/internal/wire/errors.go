package wire

import (
	"bytes"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"understudy/graph/agent/llm"
)

// maxErrorBody is how much of a refusal is read.
const maxErrorBody = 64 << 10

// refused returns the error of a response that is no answer.
func (t *attempt) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	text = bytes.TrimSpace(bytes.ToValidUTF8(text, []byte("�")))
	e := &llm.Error{Status: resp.StatusCode, RequestID: requestID(resp.Header)}
	r := &refusal{said: e, should: resp.Header.Get("X-Should-Retry"), after: -1}
	if wait, ok := retryAfter(resp.Header, time.Now()); ok {
		e.RetryAfter, r.after = wait, wait
	}
	t.opts.Explain(text, e)
	if location := resp.Header.Get("Location"); location != "" && resp.StatusCode/100 == 3 {
		e.Message = "the server redirects to " + t.hide.url(location) + "; set base_url to the address that answers"
	}
	if e.Message == "" && bytes.HasPrefix(text, []byte("<")) {
		e.Message = "the server sent " + page(text)
	}
	if e.Message == "" {
		e.Message = string(text[:min(len(text), 500)])
	}
	return r
}

func requestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "Cf-Ray"} {
		if id := h.Get(name); id != "" {
			return id
		}
	}
	return ""
}

var (
	title = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
	tags  = regexp.MustCompile(`(?s)<[^>]*>`)
)

// page describes an HTML page by its title, or by its first words.
func page(text []byte) string {
	words := ""
	if m := title.FindSubmatch(text); m != nil {
		words = string(m[1])
	} else {
		words = string(tags.ReplaceAll(text, []byte(" ")))
	}
	words = strings.Join(strings.Fields(html.UnescapeString(words)), " ")
	if len(words) > 200 {
		words = strings.ToValidUTF8(words[:200], "") + "…"
	}
	if words == "" {
		return "an HTML page"
	}
	return "an HTML page (" + words + ")"
}

// hider removes secrets from texts: what the query and the user of URLs hold, and the keys of the request.
type hider struct{ secrets *strings.Replacer }

const hidden = "[redacted]"

// public are headers and members of a query that hold no secrets, and are useful in errors.
var public = []string{"version", "accept", "content-type", "beta", "user-agent", "feature"}

func newHider(o Options) hider {
	secrets := slices.Clone(o.Secrets)
	add := func(name string, values []string) {
		for _, word := range public {
			if strings.Contains(strings.ToLower(name), word) {
				return
			}
		}
		for _, v := range values {
			secrets = append(secrets, v, strings.TrimPrefix(v, "Bearer "))
		}
	}
	for name, values := range o.Header {
		add(name, values)
	}
	if u, err := url.Parse(o.URL); err == nil {
		for name, values := range u.Query() {
			add(name, values)
		}
		if password, ok := u.User.Password(); ok {
			secrets = append(secrets, password)
		}
	}
	var pairs []string
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // the longest first: one may be part of another
	for _, s := range secrets {
		if len(s) < 6 {
			continue // a word such as "true" is no secret
		}
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s)} {
			pairs = append(pairs, form, hidden)
		}
	}
	return hider{strings.NewReplacer(pairs...)}
}

var address = regexp.MustCompile(`\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>\x60]+`)

// text removes secrets from a text.
func (h hider) text(s string) string {
	return h.secrets.Replace(address.ReplaceAllStringFunc(s, h.url))
}

// url returns scheme, host and path of a URL.
func (h hider) url(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return hidden
	}
	short := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return h.secrets.Replace(short.String())
}

// URL returns scheme, host and path of a URL, for errors.
func URL(s string) string { return hider{strings.NewReplacer()}.url(s) }

// hiding is an error whose text is free of secrets.
type hiding struct {
	error
	text string
}

func (e *hiding) Error() string { return e.text }
func (e *hiding) Unwrap() error { return e.error }

// err removes secrets from an error.
func (h hider) err(err error) error {
	if r, ok := err.(*refusal); ok { //nolint:errorlint // one that is wrapped keeps what is around it
		err = r.said
	}
	if e, ok := err.(*llm.Error); ok { //nolint:errorlint // as above
		clean := *e
		clean.Message, clean.Param = h.text(e.Message), h.text(e.Param)
		clean.Type, clean.Code = h.text(e.Type), h.text(e.Code)
		return &clean
	}
	if text := h.text(err.Error()); text != err.Error() {
		return &hiding{err, text}
	}
	return err
}

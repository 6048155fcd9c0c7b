package wire

import (
	"bytes"
	"encoding/base64"
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
	t.settle() // the status says enough if the rest does not come
	text := bytes.TrimSpace(bytes.ToValidUTF8(t.start(resp.Body), []byte("�")))
	e := &llm.Error{Status: resp.StatusCode, RequestID: requestID(resp.Header)}
	r := &refusal{said: e, should: resp.Header.Get("X-Should-Retry"), after: -1}
	if wait, ok := retryAfter(resp.Header, time.Now()); ok {
		e.RetryAfter, r.after = wait, wait
	}
	t.opts.Explain(text, e)
	if location := resp.Header.Get("Location"); location != "" && resp.StatusCode/100 == 3 {
		e.Message = "the server redirects to " + t.hide.url(location)
	}
	if e.Message == "" && bytes.HasPrefix(text, []byte("<")) {
		e.Message, e.Page = "the server sent "+t.page(text), true
	}
	if e.Message == "" {
		e.Message = t.hide.clip(string(text), 500)
	}
	return r
}

// start reads the beginning of a body that is no answer. It ends with no part of a secret.
func (t *attempt) start(body io.Reader) []byte {
	text, _ := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if len(text) == maxErrorBody {
		text = text[:len(t.hide.trim(string(text)))]
	}
	return text
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
func (t *attempt) page(text []byte) string {
	words := ""
	if m := title.FindSubmatch(text); m != nil {
		words = string(m[1])
	} else {
		words = string(tags.ReplaceAll(text, []byte(" ")))
	}
	words = t.hide.clip(strings.Join(strings.Fields(html.UnescapeString(words)), " "), 200)
	if words == "" {
		return "an HTML page"
	}
	return "an HTML page (" + words + ")"
}

// hider removes secrets from texts: what the query and the user of URLs hold, and the keys of the request.
type hider struct {
	secrets *strings.Replacer
	forms   []string // all that secrets replaces
}

const hidden = "[redacted]"

// public are headers and members of a query that hold no secrets, and are useful in errors.
var public = []string{
	"accept", "accept-language", "anthropic-beta", "anthropic-version", "api-version", "beta", "content-type", "openai-beta", "openai-version", "user-agent",
	"version", "x-api-version",
}

func newHider(o Options) hider {
	secrets := slices.Clone(o.Secrets)
	add := func(name string, values []string) {
		if slices.Contains(public, strings.ToLower(name)) {
			return
		}
		for _, v := range values {
			secrets = append(secrets, v, strings.TrimPrefix(v, "Bearer "), strings.TrimPrefix(v, "Basic "))
		}
	}
	for name, values := range o.Header {
		add(name, values)
	}
	if u, err := url.Parse(o.URL); err == nil {
		for name, values := range u.Query() {
			add(name, values)
		}
		user := u.User.Username() // some services have the key there
		password, _ := u.User.Password()
		secrets = append(secrets, user, password, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	var forms, pairs []string
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // the longest first: one may be part of another
	for _, s := range secrets {
		if len(s) < 6 {
			continue // a word such as "true" is no secret
		}
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s)} {
			forms = append(forms, form)
			pairs = append(pairs, form, hidden)
		}
	}
	return hider{strings.NewReplacer(pairs...), forms}
}

var address = regexp.MustCompile(`\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>\x60]+`)

// text removes secrets from a text.
func (h hider) text(s string) string {
	return h.secrets.Replace(address.ReplaceAllStringFunc(s, h.url))
}

// ahead is how many times the length of a clipped text is searched for secrets: what is replaced may be longer than hidden.
const ahead = 16

// clip removes secrets from a text, and then all but its first n bytes. The other way round the beginning of a secret could remain.
func (h hider) clip(s string, n int) string {
	cut := len(s) > ahead*n
	if cut {
		s = h.trim(s[:ahead*n])
	}
	s = strings.ToValidUTF8(h.text(s), "�")
	if len(s) > n {
		s, cut = strings.ToValidUTF8(s[:n], ""), true
	}
	if cut {
		s += "…"
	}
	return s
}

// trim removes the beginning of a secret at the end of a text that was cut.
func (h hider) trim(s string) string {
	longest := 0
	for _, form := range h.forms {
		for n := min(len(form)-1, len(s)); n > longest; n-- {
			if strings.HasSuffix(s, form[:n]) {
				longest = n
			}
		}
	}
	return s[:len(s)-longest]
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
func URL(s string) string { return hider{secrets: strings.NewReplacer()}.url(s) }

// hiding is an error whose text is free of secrets.
type hiding struct {
	error
	text string
}

func (e *hiding) Error() string { return e.text }
func (e *hiding) Unwrap() error { return e.error }

// maxMessage and maxName bound the texts of errors: an error in the middle of an answer may be as large as an event.
const (
	maxMessage = 4 << 10
	maxName    = 256
)

// err removes secrets from an error, and bounds it.
func (h hider) err(err error) error {
	if r, ok := err.(*refusal); ok { //nolint:errorlint // one that is wrapped keeps what is around it
		err = r.said
	}
	if e, ok := err.(*llm.Error); ok { //nolint:errorlint // as above
		clean := *e
		clean.Message, clean.Param, clean.RequestID = h.clip(e.Message, maxMessage), h.clip(e.Param, maxName), h.clip(e.RequestID, maxName)
		clean.Type, clean.Code = h.clip(e.Type, maxName), h.clip(e.Code, maxName)
		return &clean
	}
	if text := h.clip(err.Error(), maxMessage); text != err.Error() {
		return &hiding{err, text}
	}
	return err
}

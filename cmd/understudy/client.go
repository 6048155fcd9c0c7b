package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"understudy/internal/loop"
	"understudy/internal/serverurl"
	"understudy/internal/sockerr"
)

// client calls the API of a server, for commands.
type client struct {
	base   string      // without a slash at the end
	header http.Header // goes with every request
	flags  string      // how a command was pointed at this server, for commands that are suggested; "" by default
}

// command is another command about the same server, as a person types it. Values of headers, which may be credentials, are left out.
func (c *client) command(args string) string { return "understudy " + args + c.flags }

// statusError is a refusal of the server.
type statusError struct {
	status int
	what   string // method and path
	base   string // URL of the server
	detail string
	page   bool // the answer was a page for browsers: of a program of another kind, or of what stands in front of a server
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.what, e.status, e.detail)
	switch {
	case e.page:
		text += fmt.Sprintf("; a page answers in place of a LangGraph API: see that --url names your server, and that it runs if %s is a proxy in front of it", e.base)
	case e.status == http.StatusNotFound && e.detail == noRoute:
		text += fmt.Sprintf("; name your server with --url, with its mount prefix if it has one: %s has no LangGraph API, or not this part of it", e.base)
	case e.status == http.StatusForbidden && strings.HasPrefix(e.detail, "CSRF token missing"):
		text += "; it has DeerFlow's accounts: send --header 'Cookie: access_token=…' of a session, or --header 'X-DeerFlow-Internal-Token: …' and --header 'X-DeerFlow-Owner-User-Id: …'"
	case e.status == http.StatusForbidden && e.scope() != "":
		text += fmt.Sprintf("; use a key with the scope %[1]s in UNDERSTUDY_API_KEY: understudy keys create --name NAME --scope %[1]s makes one", e.scope())
	case e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
		text += "; send credentials with --header 'Name: value', or an API key in UNDERSTUDY_API_KEY"
	case e.status >= http.StatusInternalServerError:
		text += "; the log of the server says more"
	}
	return text
}

// scope is the scope that credentials lack; "" when that is not why they are refused.
func (e *statusError) scope() string {
	if _, scope, ok := strings.Cut(e.detail, " the scope "); ok && scopes[scope] != "" {
		return scope
	}
	return ""
}

// noRoute is what servers say of a path that is not theirs.
const noRoute = "Not Found"

// serverFlags adds the flags that say which server a command asks, and returns what makes its client.
func serverFlags(cmd *cobra.Command) func() (*client, error) {
	address := os.Getenv("UNDERSTUDY_URL")
	if address == "" {
		address = healthAddresses(os.Getenv)[0]
		if all := healthAddresses(os.Getenv); len(all) > 1 {
			address = all[1] // the first is a worker's
		}
	}
	cmd.Flags().StringP("url", "u", address, "`URL` of the server [$UNDERSTUDY_URL]")
	cmd.Flags().StringArrayP("header", "H", nil, "`'NAME: VALUE'` to send with each request, such as credentials; repeatable")
	return func() (*client, error) { return clientOf(cmd) }
}

// clientOf makes the client of a command with serverFlags.
func clientOf(cmd *cobra.Command) (*client, error) {
	address, err := cmd.Flags().GetString("url")
	if err != nil {
		return nil, err
	}
	headers, err := cmd.Flags().GetStringArray("header")
	if err != nil {
		return nil, err
	}
	u, err := serverurl.Parse(address)
	if err != nil {
		return nil, usageError{err}
	}
	h, err := parseHeaders(headers)
	if err != nil {
		return nil, err
	}
	given := slices.Sorted(maps.Keys(h))
	addCSRF(h)
	if key := os.Getenv("UNDERSTUDY_API_KEY"); key != "" && h.Get("X-Api-Key") == "" {
		h.Set("X-Api-Key", key)
	}
	c := &client{base: u.String(), header: h}
	if cmd.Flags().Changed("url") {
		c.flags = " --url " + c.base
	}
	for _, name := range given { // not the variable, which the next command reads as well
		c.flags += " --header '" + name + ": …'"
	}
	return c, nil
}

// addCSRF adds to the session cookie, or the internal token, of DeerFlow's accounts what a server compares to know pages of others: a command is no page.
func addCSRF(h http.Header) {
	const header, name = "X-Csrf-Token", "csrf_token"
	if h.Get(header) != "" {
		return
	}
	cookies, err := http.ParseCookie(h.Get("Cookie"))
	if err != nil && h.Get("Cookie") != "" {
		return // the server says what is wrong with it
	}
	for _, c := range cookies {
		if c.Name == name {
			h.Set(header, c.Value)
			return
		}
	}
	if h.Get("X-Deerflow-Internal-Token") == "" && !slices.ContainsFunc(cookies, func(c *http.Cookie) bool { return c.Name == "access_token" }) {
		return
	}
	const value = "command" // any that is the same in both
	h.Set(header, value)
	h.Set("Cookie", strings.TrimPrefix(h.Get("Cookie")+"; "+name+"="+value, "; "))
}

// awayError is a connection that was refused.
type awayError struct{ base string }

func (e *awayError) Error() string {
	return fmt.Sprintf("nothing listens on %s; start a server with `understudy dev`, or name yours with --url", e.base)
}

// followEvery is the pause between two looks for new events, and for a server that is away.
const followEvery = time.Second

// absent reports that a server was not reached at all: nothing of the request was done.
func absent(err error) bool {
	var away *awayError
	return errors.As(err, &away)
}

// outage reports, in addition, that the connection broke, or that what stands in front of a server does not reach it. A request may have been done.
func outage(err error) bool {
	var broken *url.Error
	var answer *statusError
	return absent(err) || errors.As(err, &broken) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &answer) &&
		slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, answer.status)
}

// patiently calls ask until a server that has answered before answers again: while it is away, the user reads that once. It ends with the context.
func (c *client) patiently(ctx context.Context, note func(string), away func(error) bool, ask func() error) error {
	for waiting := false; ; {
		err := ask()
		if err == nil && waiting {
			note("the server answers again")
		}
		if err == nil || ctx.Err() != nil || !away(err) {
			return err
		}
		if !waiting {
			waiting = true
			note(fmt.Sprintf("%s does not answer; waiting for it, Ctrl-C ends", c.base))
		}
		if !loop.Sleep(ctx, followEvery) {
			return err
		}
	}
}

// after is a client whose requests for a stream continue after an event; without one, with what is new.
func (c *client) after(event string) *client {
	if event == "" {
		return c
	}
	out := *c
	out.header = c.header.Clone()
	out.header.Set("Last-Event-ID", event)
	return &out
}

// parseHeaders reads "Name: value" lines.
func parseHeaders(lines []string) (http.Header, error) {
	out := http.Header{}
	for _, h := range lines {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usageError{fmt.Errorf("--header %q is not of the form 'Name: value'", h)}
		}
		out.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return out, nil
}

func (c *client) get(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, path, nil, into)
}

func (c *client) post(ctx context.Context, path string, body, into any) error {
	return c.call(ctx, http.MethodPost, path, body, into)
}

// call sends a request and decodes the answer; nil drops it.
func (c *client) call(ctx context.Context, method, path string, body, into any) error {
	res, err := c.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if into == nil {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("%s %s: the answer is no JSON (%w): see that --url names a LangGraph Server", method, c.base+path, err)
	}
	return nil
}

// send sends a request and returns its response, of any status, which the caller closes.
func (c *client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, r)
	if err != nil {
		return nil, err
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	switch {
	case errors.Is(err, sockerr.Refused):
		return nil, &awayError{c.base}
	case serverurl.Mismatch(err) != "":
		return nil, fmt.Errorf("%s: %s, see --url: %w", c.base, serverurl.Mismatch(err), err)
	case fixCertificate(err) != "":
		return nil, fmt.Errorf("%w; %s", err, fixCertificate(err))
	case err != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%w; name your server with --url", err)
	}
	return res, err
}

// open is send with an error for any status but 2xx.
func (c *client) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	res, err := c.send(ctx, method, path, body)
	if err != nil || res.StatusCode/100 == 2 {
		return res, err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if why := serverurl.MismatchOf(res.StatusCode, text); why != "" {
		return nil, fmt.Errorf("%s: %s, see --url", c.base, why)
	}
	refused := &statusError{status: res.StatusCode, what: method + " " + path, base: c.base, detail: gjson.GetBytes(text, "detail").String()}
	if refused.detail == "" {
		refused.detail = cut(strings.TrimSpace(string(text)), 300)
	}
	if refused.page = refused.detail == "" || strings.HasPrefix(refused.detail, "<"); refused.page { // this API explains each refusal
		refused.detail = http.StatusText(res.StatusCode)
	}
	return nil, refused
}

// commandTimeout bounds what a command asks, besides streams.
const commandTimeout = 30 * time.Second

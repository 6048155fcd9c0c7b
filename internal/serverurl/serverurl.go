// Package serverurl reads the addresses of servers as people write and paste them: flags, variables and langgraph.json name servers in the same ways.
package serverurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Example is what messages show.
const Example = "http://127.0.0.1:2024"

// Error is an address that is none of a server. Its text says why and shows a correct one; of an address that may hold a secret it shows at most the host.
type Error struct{ text, why string }

func (e *Error) Error() string {
	return fmt.Sprintf("%s is no URL of a server: %s; write one such as %s", Shown(e.text), e.why, Example)
}

// Shown is an address for messages and logs, in quotes: of one that may hold a secret only scheme and host, or "the address" when even these may be part of it.
func Shown(text string) string {
	if !strings.ContainsAny(text, "@?#") {
		return strconv.Quote(text)
	}
	if u, err := url.Parse(text); err == nil && u.Host != "" && !strings.Contains(text, "@") {
		return strconv.Quote(u.Scheme + "://" + u.Host + "/…")
	}
	return "the address"
}

// Parse returns the base of a server's API: http or https, a host, and a path without a slash at the end, such as a mount prefix. It accepts
//
//   - a host with a port and no scheme, as in localhost:2024 and :2024, which is http
//   - the address of one of a server's pages: /docs, /openapi.json, /studio/ and the pages of both
//   - the address of LangGraph's Studio, whose baseUrl names the server.
//
// The error is an *Error.
func Parse(text string) (*url.URL, error) {
	return parse(text, text, page)
}

// ParseBase is Parse for a configuration, whose addresses get the credentials of clients: a path such as /docs or /studio is a mount prefix there, and only the files
// among the pages are none.
func ParseBase(text string) (*url.URL, error) {
	return parse(text, text, pageFile)
}

// parse reads text, which is all that was given or the baseUrl in it. What pages matches is cut from its path.
func parse(text, given string, pages *regexp.Regexp) (*url.URL, error) {
	text = strings.TrimSpace(text)
	refuse := func(format string, args ...any) (*url.URL, error) {
		return nil, &Error{strings.TrimSpace(given), fmt.Sprintf(format, args...)}
	}
	if text == "" {
		return refuse("it is empty")
	}
	if !strings.Contains(text, "://") {
		authority, _, _ := strings.Cut(text, "/")
		switch _, port, err := net.SplitHostPort(authority); {
		case strings.HasPrefix(strings.ToLower(text), "http:"), strings.HasPrefix(strings.ToLower(text), "https:"):
			return refuse("two slashes are missing")
		case err != nil:
			return refuse("it has neither http:// nor a port")
		case port == "443":
			text = "https://" + text
		default:
			text = "http://" + text
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return refuse("%s", reason(err))
	}
	if base := u.Query().Get("baseUrl"); base != "" { // shorter than text
		return parse(base, given, pages)
	}
	switch u.Scheme {
	case "http", "https":
	default:
		return refuse("%s:// is not http:// or https://", u.Scheme)
	}
	if port := u.Port(); port != "" {
		switch n, err := strconv.ParseUint(port, 10, 16); {
		case err != nil:
			return refuse("%s is no port", port)
		case n == 0:
			return refuse("port 0 is any free one; name the one that the server took")
		}
	}
	if u.Host, err = host(u); err != nil {
		return refuse("%s", err)
	}
	path := u.EscapedPath()
	at := pages.FindStringIndex(path)
	if at != nil {
		path = path[:at[0]]
	}
	path = strings.TrimRight(path, "/")
	if at == nil && (u.RawQuery != "" || u.ForceQuery) {
		return refuse("it has a query, which is of one request and not of a server; remove it")
	}
	base := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}
	if u, err = url.Parse(base.String() + path); err != nil {
		return refuse("%s", reason(err))
	}
	return u, nil
}

// host returns the host with its port, as it can be called.
func host(u *url.URL) (string, error) {
	name := strings.ToLower(u.Hostname())
	switch {
	case name == "" && u.Port() == "":
		return "", errors.New("it has no host")
	case name == "":
		name = "127.0.0.1"
	case strings.ContainsAny(name, " \t\"'<>,"):
		return "", errors.New("the host has characters that no host has")
	}
	if u.Port() != "" {
		return net.JoinHostPort(name, u.Port()), nil
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return name, nil
}

// StudioPages matches the addresses of the studio's pages below /studio/, in a regular expression; ui/src/app.tsx has the pages.
const StudioPages = `approvals|compare|connect|crons|graphs(?:/[^/]+)?|health|logs|r/[^/]+|runs|servers|store|t/[^/]+|threads|try|usage`

// page is the end of a path of a page that people open in a browser, and copy. What is before it is a mount prefix. Other paths with such parts are left alone: a
// gateway may have a server at /docs/agents. pageFile is that of a page which is a file, and cannot be a mount prefix.
var (
	page = regexp.MustCompile(`/(docs(/[^/]+\.html)?|openapi\.json|studio(/(` + StudioPages + `))?)/*$`)

	pageFile = regexp.MustCompile(`/(docs/[^/]+\.html|openapi\.json)$`)
)

// reason is what url.Parse found, without the address.
func reason(err error) string {
	if of, ok := err.(*url.Error); ok { //nolint:errorlint // as url.Parse returns it
		err = of.Err
	}
	if strings.Contains(err.Error(), "port") {
		return "its port is not a number"
	}
	return strings.TrimPrefix(err.Error(), "net/url: ")
}

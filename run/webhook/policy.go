package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/internal/address"
	"understudy/internal/fault"
)

// Policy is for addresses that clients name, and what is sent to them. The zero value is LangGraph Server's default: http and https anywhere but loopback
// and link-local addresses.
type Policy struct {
	AllowLoopback  bool
	RequireHTTPS   bool
	AllowedDomains []string // "example.com" or "*.example.com"; empty: any
	AllowedPorts   []int    // empty: any
	MaxURLLength   int      // in bytes; 0: 4096
	RefusePrivate  bool     // private ranges too
	AllowedFields  []string // of what is sent; nil: all
	Headers        map[string]string
	Disabled       bool // addresses are checked, but nothing is sent
	// Own answers requests to paths, such as /app/hook: routes of the application next to the API. nil: there is none, and paths are refused. They need
	// AllowLoopback.
	Own http.RoundTripper
}

// isPath reports whether an address is a path of this server.
func isPath(address string) bool {
	return strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "//")
}

// byAddress sends requests to paths to Own.
type byAddress struct {
	own   http.RoundTripper
	other *http.Transport
}

func (b byAddress) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.URL.Host != "":
		return b.other.RoundTrip(r)
	case b.own == nil:
		return nil, errors.New("it is a path, and this server has no application (http.app)")
	}
	return b.own.RoundTrip(r)
}

func (b byAddress) CloseIdleConnections() { b.other.CloseIdleConnections() }

var errAddress = errors.New("its address is loopback, link-local, private or otherwise not allowed (webhooks.url.disable_loopback, webhooks.url.disable_private_ips)")

// Check refuses addresses that are no address or that the policy forbids. Host names are checked again when they are resolved.
func (p *Policy) Check(address string) error {
	if address == "" {
		return nil
	}
	invalid := func(why string) error {
		return fault.Newf(fault.Unprocessable, "Invalid webhook URL: %s", why)
	}
	limit := p.MaxURLLength
	if limit == 0 {
		limit = 4096
	}
	if len(address) > limit {
		return invalid("too long")
	}
	if isPath(address) {
		switch {
		case p.Own == nil:
			return invalid("it is a path, and this server has no application (http.app)")
		case !p.AllowLoopback:
			return invalid("a path is of this server, which webhooks.url.disable_loopback refuses")
		}
		_, err := url.ParseRequestURI(address)
		if err != nil {
			return invalid("the path is not valid")
		}
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return invalid("it must be an absolute http or https URL")
	}
	if p.RequireHTTPS && u.Scheme != "https" {
		return invalid("it must use https (webhooks.url.require_https)")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if len(p.AllowedDomains) > 0 && !slices.ContainsFunc(p.AllowedDomains, func(d string) bool {
		d = strings.ToLower(d)
		if rest, wild := strings.CutPrefix(d, "*."); wild {
			return strings.HasSuffix(host, "."+rest)
		}
		return host == d
	}) {
		return invalid("its host is not allowed (webhooks.url.allowed_domains)")
	}
	if len(p.AllowedPorts) > 0 {
		port := 80
		if u.Scheme == "https" {
			port = 443
		}
		if p := u.Port(); p != "" {
			if port, err = strconv.Atoi(p); err != nil {
				return invalid("its port is no number")
			}
		}
		if !slices.Contains(p.AllowedPorts, port) {
			return invalid("its port is not allowed (webhooks.url.allowed_ports)")
		}
	}
	if ip, err := netip.ParseAddr(host); err == nil && !p.rules().Allow(ip) || host == "localhost" && !p.AllowLoopback {
		return invalid(errAddress.Error())
	}
	return nil
}

// rules are those of addresses.
func (p *Policy) rules() address.Rules {
	return address.Rules{AllowLoopback: p.AllowLoopback, RefusePrivate: p.RefusePrivate}
}

// allows reports whether a field of the body is sent.
func (p *Policy) allows(field string) bool {
	return p.AllowedFields == nil || slices.Contains(p.AllowedFields, field)
}

// client sends to addresses that the policy allows: the address is checked once more on what it resolved to, at the moment of the
// dial, so that a name cannot change its mind in between. Redirects are not followed.
func (p *Policy) client() *http.Client {
	dial := func(ctx context.Context, network, at string) (net.Conn, error) {
		c, err := p.rules().Dialer(5*time.Second).DialContext(ctx, network, at)
		if errors.Is(err, address.ErrRefused) {
			return nil, errAddress
		}
		return c, err
	}
	return &http.Client{
		Timeout:       15 * time.Second,
		Transport:     byAddress{p.Own, &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, Proxy: nil}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

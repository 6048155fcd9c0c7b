package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"understudy/internal/fault"
	"understudy/internal/serverurl"
)

// Upstream is the server behind the proxy: its address, and the connections to it. It is safe for concurrent use.
type Upstream struct {
	probe     string      // value of the header probeHeader in checks of the upstream
	looped    atomic.Bool // the upstream leads back to this process
	back      atomic.Bool // a check came back
	keeps     atomic.Bool // it is an understudy, which keeps messages and events itself
	url       *url.URL
	prefix    string // of paths: "" or "/prefix", as on the wire
	limit     int64
	tls       *tls.Config
	transport *http.Transport
}

// NewUpstream returns an Upstream for an http or https address, which may have a path without a trailing slash as prefix. limit is the
// maximum size of the answers of Ask; 0: 64 MiB.
func NewUpstream(u *url.URL, limit int64) *Upstream {
	if limit <= 0 {
		limit = 64 << 20
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	config := &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	secure := &tls.Dialer{NetDialer: dialer, Config: config}
	sniff := func(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c}, nil
		}
	}
	return &Upstream{probe: rand.Text(), url: u, prefix: u.EscapedPath(), limit: limit, tls: config, transport: &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: sniff(dialer.DialContext), DialTLSContext: sniff(secure.DialContext),
		TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
		// Less than the five seconds after which uvicorn closes an idle connection: a request sent while it closes fails.
		IdleConnTimeout:     4 * time.Second,
		MaxIdleConnsPerHost: 512,
		// The client's Accept-Encoding is forwarded; it must not get an encoding that it did not request.
		DisableCompression:     true,
		MaxResponseHeaderBytes: 1 << 20,
	}}
}

// String returns the address without its password.
func (u *Upstream) String() string { return u.url.Redacted() }

// RoundTrip makes a call. A connection is not reused after an answer of 500 or more.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if c, ok := info.Conn.(*conn); ok {
				c.fresh.Store(true)
			}
		},
	})))
}

// conn closes its connection after an answer of 500 or more. Servers that failed often close it right after the answer, and a request
// sent by then gets no answer. net/http decides about reuse before it returns an answer, so conn inserts a header line after the first
// line of the answer.
type conn struct {
	net.Conn
	fresh atomic.Bool // the next byte is the first of an answer
	rest  []byte      // read but not returned
}

var (
	failure   = []byte("HTTP/1.1 5")
	closeLine = []byte("Connection: close\r\n")
)

func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if n == 0 || !c.fresh.CompareAndSwap(true, false) {
		return n, err
	}
	// A partial first line is useless to the reader, so waiting for the rest of one that may be a failure delays nothing.
	for err == nil && n < len(p) && bytes.HasPrefix(failure, p[:min(n, len(failure))]) && bytes.IndexByte(p[:n], '\n') < 0 {
		var more int
		more, err = c.Conn.Read(p[n:])
		n += more
	}
	if end := bytes.IndexByte(p[:n], '\n') + 1; end > 0 && bytes.HasPrefix(p[:n], failure) {
		c.rest = append(bytes.Clone(closeLine), p[end:n]...)
		n = end
		if err != nil { // the next read returns it again
			err = nil
		}
	}
	return n, err
}

// describe returns an error text for an unavailable upstream, with advice.
func (u *Upstream) describe(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	why := "it broke off before it answered"
	switch {
	case errors.As(err, &dns):
		why = "its name is not known: " + dns.Err
	case errors.As(err, &op) && op.Op == "dial":
		why = "it cannot be reached: " + op.Err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		why = "it did not answer in time"
	case !errors.Is(err, io.EOF) && serverurl.Mismatch(err) != "":
		why = serverurl.Mismatch(err)
	case strings.Contains(err.Error(), "tls:"), strings.Contains(err.Error(), "x509:"):
		why = "its certificate is not accepted; SSL_CERT_FILE names the file of its authority"
	}
	return fmt.Sprintf("The upstream %s failed: %s. See that it is running and that --upstream names it", u, why)
}

// errLong is the error for an answer that exceeds the limit.
var errLong = errors.New("the answer is too long")

// probeHeader marks checks of the upstream: one that comes back shows that the upstream leads to this process.
const probeHeader = "X-Understudy-Probe"

// isLoop reports whether a call that arrived, or one before it, was sent by a check of u.
func (u *Upstream) isLoop(r *http.Request) bool {
	if r.Header.Get(probeHeader) == u.probe {
		u.back.Store(true)
		u.looped.Store(true)
	}
	return u.looped.Load()
}

// Ask sends a request to the upstream on behalf of a caller, with the caller's credentials in header; nil: it is a check of the upstream. The path begins with /threads and
// includes the query. The error is a fault.Upstream when upstream does not respond, or its answer is too long.
func (u *Upstream) Ask(ctx context.Context, header http.Header, method, path string, body []byte) (status int, head http.Header, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, u.url.Scheme+"://"+u.url.Host+u.prefix+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("ask %s %s: %w", method, path, err)
	}
	if header != nil {
		r.Header = header.Clone()
	} else {
		r.Header.Set(probeHeader, u.probe)
	}
	for _, name := range ofBody {
		r.Header.Del(name)
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header.Set("User-Agent", "")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Accept-Encoding", "identity")
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := u.RoundTrip(r)
	if err == nil {
		defer res.Body.Close()
		status, head = res.StatusCode, res.Header
		answer, err = io.ReadAll(io.LimitReader(res.Body, u.limit+1))
		if err == nil && int64(len(answer)) > u.limit {
			err = errLong
		}
	}
	switch {
	case err == nil:
		return status, head, answer, nil
	case ctx.Err() != nil:
		return 0, nil, nil, context.Cause(ctx)
	case errors.Is(err, errLong):
		return 0, nil, nil, fault.Newf(fault.Upstream, "The upstream %s returned more than %d bytes: %w", u, u.limit, err)
	}
	return 0, nil, nil, fault.Wrap(fault.Upstream, u.describe(err), err)
}

// ofBody are headers of one message, which do not identify the caller.
var ofBody = []string{
	"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "Content-Encoding", "Expect", "Prefer", "Range", "If-Range", "If-Match",
	"If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "Last-Event-Id",
}

// hopByHop are headers of one connection.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// endToEnd returns the headers of a call that are forwarded to the upstream.
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	return out
}

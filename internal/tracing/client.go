package tracing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// client sends spans. The SDK's own brings all of gRPC with it, also for HTTP: a third of this program.
type client struct {
	place   place
	http    *retryablehttp.Client
	url     string
	header  http.Header
	timeout time.Duration
	zip     bool
}

var _ otlptrace.Client = (*client)(nil)

// place is how errors name where spans are sent, and the variables to correct.
type place struct{ name, address, credentials string }

// defaultEndpoint and defaultTimeout are those of the specification.
const (
	defaultEndpoint = "http://localhost:4318"
	defaultTimeout  = 10 * time.Second
)

// newClient reads the variables of the exporter, those for traces before those for all signals.
func newClient(getenv func(string) string) (*client, error) {
	env := func(name string) string {
		return strings.TrimSpace(cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), getenv("OTEL_EXPORTER_OTLP_"+name)))
	}
	c := &client{place: place{"the collector", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"}, header: http.Header{}, timeout: defaultTimeout}
	if c.url = strings.TrimSpace(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")); c.url == "" {
		c.place.address = "OTEL_EXPORTER_OTLP_ENDPOINT"
		c.url = strings.TrimRight(cmp.Or(strings.TrimSpace(getenv("OTEL_EXPORTER_OTLP_ENDPOINT")), defaultEndpoint), "/") + "/v1/traces"
	}
	// The address and the headers may hold secrets: errors do not repeat them.
	if !isAddress(c.url) {
		return nil, errors.New("the OTLP endpoint is not a URL such as http://collector:4318")
	}
	if text := env("HEADERS"); text != "" {
		for pair := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(pair, "=")
			value, err := url.PathUnescape(strings.TrimSpace(value))
			if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
				return nil, errors.New("the OTLP headers are not a comma-separated list of name=value")
			}
			c.header.Set(name, value)
		}
	}
	if text := env("TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("the OTLP timeout is %q; write milliseconds", text)
		}
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	switch text := env("COMPRESSION"); text {
	case "", "none":
	case "gzip":
		c.zip = true
	default:
		return nil, fmt.Errorf("the OTLP compression is %q; write gzip or none", text)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	var err error
	if transport.TLSClientConfig, err = tlsOf(env("CERTIFICATE"), env("CLIENT_CERTIFICATE"), env("CLIENT_KEY")); err != nil {
		return nil, err
	}
	c.http = sender(transport)
	return c, nil
}

// isAddress reports whether spans can be sent to an address.
func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// sender returns a client that tries again. It follows no redirects: net/http would send keys such as x-api-key, and the spans, to any host, also without TLS.
func sender(transport *http.Transport) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

// tlsOf reads files of certificates; what is not named is the system's.
func tlsOf(ca, cert, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s contains no certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.HTTPClient.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It tries again while the receiver is away or busy, until the timeout.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	// On the wire the request to a collector is the same message under another name.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.zip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(body); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		body = b.Bytes()
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, c.url, body)
	if err != nil {
		return err
	}
	req.Header = c.header.Clone()
	req.Header.Set("Content-Type", "application/x-protobuf")
	if c.zip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	res, err := c.http.Do(req)
	if err != nil {
		// Its text has the address.
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err
		}
		return fmt.Errorf("%s cannot be reached: %w; check %s", c.place.name, err, c.place.address)
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be used again
	return c.place.refused(res)
}

// refused returns what a response says that did not take the spans; nil if it did.
func (p place) refused(res *http.Response) error {
	switch code := res.StatusCode; {
	case code >= 200 && code <= 299:
		return nil
	case code >= 300 && code <= 399:
		to := ""
		if u, err := res.Location(); err == nil { // the rest of it may hold secrets
			to = " to " + u.Scheme + "://" + u.Host
		}
		return fmt.Errorf("%s answered %d: its address redirects%s, which is not followed; set %s to the new address", p.name, code, to, p.address)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("%s answered %d: check %s", p.name, code, p.credentials)
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		return fmt.Errorf("%s answered %d: check %s", p.name, code, p.address)
	default:
		return fmt.Errorf("%s answered %s", p.name, res.Status)
	}
}

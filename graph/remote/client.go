package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/serverurl"
)

const (
	// maxAnswer is the maximum size of an answer, and of an event: LangGraph Server's limit of a request.
	maxAnswer = 300 << 20
	// callTimeout limits one call that is not a stream, retries included.
	callTimeout = 2 * time.Minute
	// quiet is how long a stream may be silent; LangGraph Server sends a heartbeat every five seconds.
	quiet = time.Minute
)

// transport is shared by all upstreams.
var transport = sync.OnceValue(func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 64
	return t
})

// client calls one upstream.
type client struct {
	base    *url.URL
	shown   string // the address without credentials, for error texts
	name    string // of the graph here, for messages
	headers http.Header
	once    *http.Client          // for requests that must not be retried, and streams
	again   *retryablehttp.Client // for requests that may be retried
	unsent  *retryablehttp.Client // for requests that may be retried only if they were never sent
}

func newClient(o *Options) (*client, error) {
	base, err := url.Parse(strings.TrimRight(o.URL, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("graph %q: write the URL of its server as http://host:port or https://host", o.ID)
	}
	shown := *base
	shown.User = nil
	c := &client{base: base, shown: shown.String(), name: o.ID, headers: http.Header{}}
	for k, v := range o.Headers {
		c.headers.Set(k, v)
	}
	rt := o.Transport
	if rt == nil {
		rt = transport()
	}
	c.once = &http.Client{Transport: rt, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		// Configured headers are only for the configured host.
		if r.URL.Host != via[0].URL.Host || len(via) > 3 {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	c.again, c.unsent = c.retrying(retriable), c.retrying(neverLeft)
	return c, nil
}

func (c *client) retrying(check retryablehttp.CheckRetry) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: c.once, RetryMax: 5, RetryWaitMin: 100 * time.Millisecond, RetryWaitMax: 2 * time.Second,
		CheckRetry: check, Backoff: retryablehttp.DefaultBackoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// retriable: the connection failed, or the upstream is temporarily unavailable.
func retriable(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil {
		return retryablehttp.ErrorPropagatedRetryPolicy(ctx, resp, err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, nil
	}
	return false, nil
}

// neverLeft: there was no connection to send the request on, or the upstream refused it.
func neverLeft(ctx context.Context, resp *http.Response, err error) (bool, error) {
	var op *net.OpError
	if ctx.Err() == nil && err != nil && errors.As(err, &op) && op.Op == "dial" {
		return true, nil
	}
	if err == nil && (resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests) {
		return true, nil
	}
	return false, err
}

// upstreamError is an unsuccessful or missing answer.
type upstreamError struct {
	status int // 0: no answer
	text   string
	detail string // the upstream's error text, or ""
	cause  error
}

func (e *upstreamError) Error() string { return e.text }
func (e *upstreamError) Unwrap() error { return e.cause }

// failed returns an error with the graph, the address and the cause.
func (c *client) failed(status int, cause error, format string, args ...any) *upstreamError {
	return &upstreamError{status: status, text: fmt.Sprintf("graph %q at %s: %s", c.name, c.shown, fmt.Sprintf(format, args...)), cause: cause}
}

// unreachable returns the error for a missing answer, without the text of net/http, which contains the address with its
// credentials.
func (c *client) unreachable(err error) *upstreamError {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if why := serverurl.Mismatch(err); why != "" {
		return c.failed(0, err, "the upstream server cannot be reached: %v: %s", err, why)
	}
	return c.failed(0, err, "the upstream server cannot be reached: %v", err)
}

// refused reads the error in an unsuccessful answer.
func (c *client) refused(resp *http.Response) *upstreamError {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	detail := gjson.GetBytes(body, "detail").String()
	if detail == "" {
		detail = http.StatusText(resp.StatusCode)
	}
	if why := serverurl.MismatchOf(resp.StatusCode, body); why != "" {
		detail += ": " + why
	}
	e := c.failed(resp.StatusCode, nil, "%d %s", resp.StatusCode, detail)
	e.detail = detail
	return e
}

// isStatus reports whether the upstream answered with this status.
func isStatus(err error, status int) bool {
	var e *upstreamError
	return errors.As(err, &e) && e.status == status
}

// asFailure returns an error of the upstream as a failure of the run.
func asFailure(err error) error {
	var e *upstreamError
	if errors.As(err, &e) {
		return &graph.Failure{Type: "UpstreamError", Message: e.text}
	}
	return err
}

// asFault returns an error of the upstream as an error of the request: a request that is invalid there is invalid here.
func asFault(err error) error {
	var e *upstreamError
	if !errors.As(err, &e) {
		return err
	}
	said := e.text
	if e.detail != "" {
		said = e.detail
	}
	switch e.status {
	case http.StatusBadRequest:
		return fault.Wrap(fault.Invalid, said, e)
	case http.StatusUnprocessableEntity:
		return fault.Wrap(fault.Unprocessable, said, e)
	case http.StatusNotFound:
		return fault.Wrap(fault.NotFound, said, e)
	case http.StatusConflict:
		return fault.Wrap(fault.Conflict, said, e)
	}
	return fault.Wrap(fault.Unavailable, e.text, e.cause)
}

func (c *client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, r)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", path, err)
	}
	for k, v := range c.headers {
		req.Header[k] = v
	}
	// Another understudy would show full transcripts; request the graph's own messages.
	req.Header.Set("X-Understudy-Overlay", "off")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// call sends one request and decodes its answer into out, unless that is nil. with selects the retries while the upstream is
// unavailable.
func (c *client) call(ctx context.Context, with *retryablehttp.Client, method, path string, body []byte, out any) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := c.request(bounded, method, path, body)
	if err != nil {
		return err
	}
	again, err := retryablehttp.FromRequest(req)
	if err != nil {
		return fmt.Errorf("request %s: %w", path, err)
	}
	resp, err := with.Do(again)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.refused(resp)
	}
	if out == nil {
		return nil
	}
	limited := &io.LimitedReader{R: resp.Body, N: maxAnswer + 1}
	answer, err := io.ReadAll(limited)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return c.failed(0, err, "the answer to %s broke off: %v", method, err)
	case limited.N == 0:
		return c.failed(0, nil, "the answer is larger than %d MiB", maxAnswer>>20)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return c.failed(0, err, "the answer is not one of LangGraph Server: %v", err)
	}
	return nil
}

func (c *client) get(ctx context.Context, path string, out any) error {
	return c.call(ctx, c.again, http.MethodGet, path, nil, out)
}

// post sends idempotent requests.
func (c *client) post(ctx context.Context, path string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("request %s: %w", path, err)
	}
	return c.call(ctx, c.again, http.MethodPost, path, b, out)
}

// stream is an answer that is read as it arrives.
type stream struct {
	io.Reader
	close func()
	run   string // id of the created run; "" when the header lacks it
}

// open sends a request whose answer is a stream. The stream ends after being silent for the time quiet, or when closed.
func (c *client) open(ctx context.Context, with *retryablehttp.Client, method, path string, body []byte, headers ...string) (*stream, error) {
	sctx, cancel := context.WithCancelCause(ctx)
	req, err := c.request(sctx, method, path, body)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	again, err := retryablehttp.FromRequest(req)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("request %s: %w", path, err)
	}
	watch := time.AfterFunc(quiet, func() { cancel(errQuiet) })
	stop := func() { watch.Stop(); cancel(nil) }
	resp, err := with.Do(again) //nolint:bodyclose // the stream closes it
	if err != nil {
		stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, c.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer stop()
		defer resp.Body.Close()
		return nil, c.refused(resp)
	}
	at := resp.Header.Get("Content-Location")
	return &stream{
		Reader: &watched{resp.Body, watch},
		close:  func() { stop(); _ = resp.Body.Close() },
		run:    at[strings.LastIndexByte(at, '/')+1:],
	}, nil
}

var errQuiet = errors.New("the upstream server sent nothing for too long")

// watched extends the deadline of a stream with each read.
type watched struct {
	io.Reader
	timer *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timer.Reset(quiet)
	}
	return n, err
}

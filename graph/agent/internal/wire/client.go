// Package wire posts requests to servers of models and reads what they answer: a stream of events, or one piece. It knows no provider:
// a Decoder reads the events.
//
// It retries what passes until a part of the answer has come, bounds silence and size, and keeps an answer that arrived completely when
// only the end of its stream is missing. No error holds the query of a URL, a key, or another secret of the request.
package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"

	"understudy/graph/agent/llm"
	"understudy/internal/jsonscan"
	"understudy/internal/logctx"
	"understudy/internal/loop"
	"understudy/internal/sse"
)

// Options of a client. Fields from Timeout on have defaults.
type Options struct {
	URL     string
	Model   string // for the log
	Header  http.Header
	Secrets []string       // texts that no error may hold, in addition to what URL has
	Decoder func() Decoder // makes one for each try; nil where only StreamTo is used
	// Explain reads the error of a refused request. It may leave Message empty.
	Explain func(body []byte, e *llm.Error)

	Timeout   time.Duration // until an answer begins, each try; 0: ten minutes
	Idle      time.Duration // between two signs of life of an answer; 0: ten minutes
	Retries   int           // further tries; 0: two, below 0: none
	MaxWait   time.Duration // longest wait that a server may request before a retry; 0: one minute
	MaxEvent  int           // bytes of one event; 0: 8 MiB
	MaxBody   int64         // bytes of a whole answer; 0: 256 MiB
	Transport http.RoundTripper
	Log       *slog.Logger // nil: slog.Default
}

// Decoder reads one answer. An error of its methods ends the answer.
type Decoder interface {
	// Event reads an event of a stream. ok is false when it has no content.
	Event(name string, data []byte) (c llm.Chunk, ok bool, err error)
	// Whole reads an answer that came in one piece.
	Whole(data []byte) (llm.Chunk, error)
	// Complete reports whether the answer is complete: nothing but counts and ends may follow.
	Complete() bool
	// Ended reports whether the last event was read.
	Ended() bool
	// Last returns what is left to yield when the answer is complete.
	Last() (c llm.Chunk, ok bool)
}

// Misunderstood is the error of a Decoder for an event that it cannot read. The event is skipped.
type Misunderstood struct{ What string }

func (e *Misunderstood) Error() string { return "event not understood: " + e.What }

// settle is how long the end of a complete answer is waited for.
const settle = 10 * time.Second

// Client sends requests to one URL. It is safe for concurrent use.
type Client struct {
	opts Options
	http http.Client
	hide hider
	mu   sync.Mutex      // guards said
	said map[string]bool // what was logged

	retries *rate.Limiter // of lines about retries in the log
	unsaid  atomic.Int64  // retries that were left out of it since the last line
	waits   *rate.Limiter // of lines about answers that have not begun
}

// New fills in defaults.
func New(o Options) *Client {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Minute)
	o.Idle = cmp.Or(o.Idle, 10*time.Minute)
	o.Retries = max(cmp.Or(o.Retries, 2), 0)
	o.MaxWait = cmp.Or(o.MaxWait, llm.MaxWait)
	o.MaxEvent = cmp.Or(o.MaxEvent, 8<<20)
	o.MaxBody = cmp.Or(o.MaxBody, 256<<20)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Transport == nil {
		o.Transport = transport(ping)
	}
	return &Client{opts: o, http: http.Client{Transport: o.Transport, CheckRedirect: follow}, hide: newHider(o), said: map[string]bool{}, retries: rate.NewLimiter(retriesASecond, retriesAtOnce), waits: rate.NewLimiter(retriesASecond, retriesAtOnce)}
}

// ping is after how much silence an HTTP/2 connection is checked, and how long the check may take.
const ping = 15 * time.Second

func transport(ping time.Duration) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 30 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second,
		// A connection that died in silence would take down each request that is sent on it later.
		HTTP2: &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: ping},
	}
}

// URL returns where requests go.
func (c *Client) URL() string { return c.opts.URL }

// follow allows redirects on the same host that keep method and body. Others would lose the request, or show its keys to another host or,
// without TLS, to everyone on the way.
func follow(req *http.Request, via []*http.Request) error {
	clear := via[0].URL.Scheme == "https" && req.URL.Scheme != "https"
	if len(via) > 5 || req.URL.Host != via[0].URL.Host || req.Method != via[0].Method || clear {
		return http.ErrUseLastResponse
	}
	return nil
}

// Stream sends a request and yields its answer. When ctx ends, the error is its cause.
func (c *Client) Stream(ctx context.Context, body []byte) iter.Seq2[llm.Chunk, error] {
	return c.StreamTo(ctx, body, c.opts.Decoder)
}

// StreamTo is Stream with decoders for this request alone.
func (c *Client) StreamTo(ctx context.Context, body []byte, decoder func() Decoder) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		for try := 0; ; try++ {
			t := &attempt{Client: c, decoder: decoder(), yield: yield}
			err := t.run(ctx, body)
			if err == nil || t.stopped {
				return
			}
			if cause := context.Cause(ctx); cause != nil {
				yield(llm.Chunk{}, cause)
				return
			}
			wait, again := c.again(ctx, err, try)
			if t.begun || !again || try >= c.opts.Retries {
				yield(llm.Chunk{}, c.hide.err(err))
				return
			}
			c.logRetry(ctx, try+1, wait, err)
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				yield(llm.Chunk{}, context.Cause(ctx))
				return
			}
		}
	}
}

// A provider that is down makes all runs retry: the log has this many lines about a model, and then how many were left out.
const retriesASecond, retriesAtOnce = 1, 20

// maxLogged is how many bytes of an error a line about a retry has.
const maxLogged = 500

// logRetry logs that a request failed and is sent again after wait.
func (c *Client) logRetry(ctx context.Context, attempt int, wait time.Duration, err error) {
	if !c.retries.Allow() {
		c.unsaid.Add(1)
		return
	}
	cause, _ := llm.Diagnose(c.hide.err(err))
	attrs := []any{"model", c.opts.Model, "attempt", attempt, "attempts", c.opts.Retries + 1, "wait", wait.Round(time.Millisecond).String(), "cause", c.hide.clip(cause, maxLogged)}
	if n := c.unsaid.Swap(0); n > 0 {
		attrs = append(attrs, "left_out", n)
	}
	c.opts.Log.WarnContext(ctx, "model request failed; retrying", attrs...)
}

// How long an answer may take to begin until the log says that it is awaited, at first and later.
const quietFor, quietAgain = 4 * time.Second, 30 * time.Second

// logWait logs that an answer has not begun. As of retries, there are so many lines about a model.
func (t *attempt) logWait(ctx context.Context, began time.Time) {
	t.mu.Lock()
	answers := t.answers
	t.mu.Unlock()
	if answers || ctx.Err() != nil || !t.waits.Allow() {
		return
	}
	t.opts.Log.InfoContext(ctx, "waiting for the first byte of a model", "model", t.opts.Model, "at", t.hide.url(t.opts.URL), logctx.Took(time.Since(began)), "timeout", t.opts.Timeout.String())
}

// refusal is the error of a response, with what it says about retries.
type refusal struct {
	said   *llm.Error
	should string        // X-Should-Retry
	after  time.Duration // below 0: not said
}

func (r *refusal) Error() string { return r.said.Error() }
func (r *refusal) Unwrap() error { return r.said }

// again reports whether a request is sent again after an error, and when.
func (c *Client) again(ctx context.Context, err error, try int) (wait time.Duration, ok bool) {
	wait = retryablehttp.LinearJitterBackoff(500*time.Millisecond, 2*time.Second, try, nil)
	var refused *refusal
	var said *llm.Error
	switch {
	case errors.As(err, &refused):
		if refused.after > c.opts.MaxWait {
			return 0, false // the caller decides what to do about such a long wait
		}
		if refused.after > 0 { // 0 says nothing about when the server is ready
			wait = refused.after
		}
		if refused.should != "" {
			return wait, refused.should == "true"
		}
		return wait, refused.said.Temporary()
	case errors.As(err, &said):
		return wait, said.Temporary()
	case errors.Is(err, llm.ErrSlow), errors.Is(err, llm.ErrIdle):
		return 0, false // it takes as long again
	case errors.Is(err, llm.ErrCut), errors.Is(err, llm.ErrNone):
		return wait, true
	}
	var lost *unreached
	if errors.As(err, &lost) {
		ok, _ = retryablehttp.DefaultRetryPolicy(ctx, nil, lost.cause)
	}
	return wait, ok // else the answer is at fault
}

// unreached is the error of a server that did not answer.
type unreached struct {
	error
	cause error // as net/http returned it
}

func (e *unreached) Unwrap() error { return e.error }

func (e *unreached) Is(target error) bool { return target == llm.ErrUnreached }

var errTooLarge = errors.New("the answer is too large")

// limited fails when an answer is too large.
type limited struct {
	io.Reader
	left int64
	err  error
}

func (r *limited) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, r.err
	}
	n, err := r.Reader.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	return n, err
}

// retryAfter reads the wait that a server requests: milliseconds, seconds, or a date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond)), true
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil && s >= 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second)), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}

// attempt is one try.
type attempt struct {
	*Client
	decoder Decoder
	yield   func(llm.Chunk, error) bool
	held    []llm.Chunk // before the first token: a retry would repeat them
	begun   bool        // a part of the answer was yielded
	stopped bool        // by the consumer
	garbled string      // the last text that was not understood
	opening string      // how a body begins of which no event was read

	timer    *time.Timer
	mu       sync.Mutex // guards what follows
	answers  bool       // bytes have come
	settling bool       // the answer is complete: only its end is waited for
}

func (t *attempt) run(ctx context.Context, body []byte) error {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.timer = time.AfterFunc(t.opts.Timeout, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.answers {
			cancel(fmt.Errorf("%w (idle_timeout is %s)", llm.ErrIdle, t.opts.Idle))
		} else {
			cancel(fmt.Errorf("%w (timeout is %s)", llm.ErrSlow, t.opts.Timeout))
		}
	})
	defer t.timer.Stop()
	defer loop.Repeat(quietFor, quietAgain, func() { t.logWait(ctx, began) })()
	err := t.exchange(ctx, body)
	var refused *refusal
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.As(err, &refused) {
		return cause
	}
	return err
}

func (t *attempt) exchange(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.opts.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = t.opts.Header.Clone()
	resp, err := t.http.Do(req)
	if err != nil {
		cause := err
		var of *url.Error
		if errors.As(err, &of) {
			err, cause = of.Err, of
		}
		return &unreached{fmt.Errorf("no answer from the model at %s: %w", t.hide.url(t.opts.URL), err), cause}
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return t.refused(resp)
	}
	if coding := strings.ToLower(resp.Header.Get("Content-Encoding")); slices.Contains(codings, coding) {
		return &llm.Error{Status: http.StatusOK, Message: "the server compressed its answer with " + coding + ", which the request did not ask for", RequestID: requestID(resp.Header)}
	}
	return t.read(ctx, bufio.NewReaderSize(&limited{alive{resp.Body, t}, t.opts.MaxBody, errTooLarge}, 16<<10), resp)
}

// codings are those of bodies that net/http leaves as they are; it decompresses gzip unless the configured headers ask for it. Other values,
// such as "utf-8", are mistakes of servers that compress nothing.
var codings = []string{"br", "zstd", "deflate", "compress", "gzip", "x-gzip"}

// alive notes bytes as signs of life.
type alive struct {
	io.Reader
	t *attempt
}

func (r alive) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.t.live()
	}
	return n, err
}

func (t *attempt) live() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = true
	if !t.settling {
		t.timer.Reset(t.opts.Idle)
	}
}

// settle bounds the time until the end of an answer that is complete. Bytes do not extend it: some servers send pings forever.
func (t *attempt) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.settling {
		t.settling = true
		t.timer.Reset(min(t.opts.Idle, settle))
	}
}

// read reads an answer in the form that its first character shows: servers label streams as JSON and the other way round.
func (t *attempt) read(ctx context.Context, body *bufio.Reader, resp *http.Response) error {
	for {
		first, err := body.Peek(1)
		if err != nil {
			return t.ending(err)
		}
		switch first[0] {
		case ' ', '\t', '\r', '\n':
			_, _ = body.Discard(1)
			continue
		case '{', '[':
			return t.whole(ctx, body)
		case '<':
			return &llm.Error{Status: http.StatusOK, Message: "the server sent " + t.page(t.start(body)) + " in place of an answer", RequestID: requestID(resp.Header), Page: true}
		}
		if start, _ := body.Peek(min(body.Buffered(), 300)); first[0] != ':' { // a comment says nothing
			t.opening = t.hide.trim(string(start))
		}
		return t.events(ctx, body)
	}
}

// ending returns the error of a body that ended before the answer did.
func (t *attempt) ending(err error) error {
	switch {
	case errors.Is(err, sse.ErrTooLong):
		return fmt.Errorf("read answer: %w: an event has more than %d bytes", llm.ErrTooLarge, t.opts.MaxEvent)
	case errors.Is(err, errWholeTooLarge):
		return fmt.Errorf("read answer: %w: one piece has more than %d times %d bytes", llm.ErrTooLarge, wholeEvents, t.opts.MaxEvent)
	case errors.Is(err, errTooLarge):
		return fmt.Errorf("read answer: %w: more than %d bytes", llm.ErrTooLarge, t.opts.MaxBody)
	case errors.Is(err, io.EOF) && t.garbled != "" && !t.begun:
		return t.none()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		if t.garbled != "" {
			return fmt.Errorf("the server sent %q: %w", t.garbled, llm.ErrCut)
		}
		if opening := t.hide.clip(t.opening, 300); opening != "" {
			return &llm.Foreign{Err: fmt.Errorf("the server sent %q: %w", opening, llm.ErrCut)}
		}
		return llm.ErrCut
	}
	return fmt.Errorf("%w (%w)", llm.ErrCut, err) // reset by peer, HTTP/2 stream errors
}

// events reads a stream of events.
func (t *attempt) events(ctx context.Context, body io.Reader) error {
	for r := sse.NewReader(body, t.opts.MaxEvent); !t.decoder.Ended(); {
		event, err := r.Next()
		if err != nil {
			if !t.decoder.Complete() {
				return t.ending(err)
			}
			break // the answer is complete; only its end is missing
		}
		t.opening = ""
		data := readable(bytes.TrimSpace(event.Data))
		if len(data) == 0 {
			continue
		}
		var c llm.Chunk
		var ok bool
		if err = tooDeep(data); err == nil {
			c, ok, err = t.decoder.Event(event.Name, data)
		}
		var odd *Misunderstood
		switch {
		case errors.As(err, &odd):
			t.skip(ctx, odd, data)
			continue
		case err != nil && t.decoder.Complete():
			t.opts.Log.WarnContext(ctx, "model server failed after the answer; answer kept", "model", t.opts.Model, "error", t.hide.err(err))
			return t.finish()
		case err != nil:
			return err
		}
		if ok && !t.emit(c) {
			return nil
		}
		if t.decoder.Complete() {
			t.settle()
		}
	}
	return t.finish()
}

// maxDepth bounds how deep events may be nested: storages keep messages with about a thousand levels in all.
const maxDepth = 900

func tooDeep(data []byte) error {
	if jsonscan.DeeperThan(data, maxDepth) {
		return &Misunderstood{What: "an event that is nested too deeply"}
	}
	return nil
}

// readable replaces what is not UTF-8: parts of events are kept as they are, and no storage keeps that.
func readable(data []byte) []byte { return bytes.ToValidUTF8(data, []byte("\ufffd")) }

// skip logs an event that was not understood, each kind once.
func (t *attempt) skip(ctx context.Context, odd *Misunderstood, data []byte) {
	t.garbled = t.quote(data)
	what := t.hide.clip(odd.What, 80) // it may have a name that the server made up
	t.Client.mu.Lock()
	known := t.said[what] || len(t.said) > 100
	if !known {
		t.said[what] = true
	}
	t.Client.mu.Unlock()
	if !known {
		t.opts.Log.WarnContext(ctx, "part of a model's answer not understood; skipped", "model", t.opts.Model, "part", what, "data", t.garbled)
	}
}

// quote returns the beginning of what a server sent, for errors.
func (t *attempt) quote(data []byte) string {
	return t.hide.clip(string(data[:min(len(data), ahead*300+1)]), 300)
}

// none returns the error of an answer that has ended and had no part.
func (t *attempt) none() error {
	if t.garbled == "" {
		return llm.ErrNone
	}
	return fmt.Errorf("the server sent %q: %w", t.garbled, llm.ErrNone)
}

// finish yields what is left of a complete answer.
func (t *attempt) finish() error {
	if !t.decoder.Complete() {
		return t.none() // its last event was all there is
	}
	if c, ok := t.decoder.Last(); ok && !t.emit(c) {
		return nil
	}
	t.flush()
	return nil
}

// emit yields a chunk, with those that were held before it. It reports whether to continue.
func (t *attempt) emit(c llm.Chunk) bool {
	if c.Empty() && c.Model == "" && c.Blocks == nil {
		return true // nothing to hold: a server may send any number of these
	}
	t.held = append(t.held, c)
	if c.Empty() {
		return true
	}
	return t.flush()
}

func (t *attempt) flush() bool {
	for _, c := range t.held {
		t.begun = true
		if !t.yield(c, nil) {
			t.stopped = true
			return false
		}
	}
	t.held = nil
	return true
}

// An answer without events has at most wholeValues values, and together at most wholeEvents times the bytes of one event.
const (
	wholeValues = 10_000
	wholeEvents = 4
)

var errWholeTooLarge = errors.New("the answer in one piece is too large")

// whole reads an answer in one piece, or several values one after the other.
func (t *attempt) whole(ctx context.Context, body io.Reader) error {
	r := json.NewDecoder(&limited{body, wholeEvents * min(int64(t.opts.MaxEvent), 1<<50), errWholeTooLarge})
	for n := 0; !t.decoder.Ended(); n++ {
		switch {
		case t.decoder.Complete() && n >= wholeValues:
			return t.finish()
		case t.decoder.Complete():
			t.settle()
		case n == wholeValues:
			return fmt.Errorf("read answer: %d JSON values do not complete it", n)
		}
		var raw json.RawMessage
		if err := r.Decode(&raw); err != nil {
			var syntax *json.SyntaxError
			switch {
			case t.decoder.Complete():
				return t.finish()
			case errors.As(err, &syntax):
				return fmt.Errorf("read answer: %w", err)
			}
			return t.ending(err)
		}
		raw = readable(raw)
		var c llm.Chunk
		err := tooDeep(raw)
		if err == nil {
			c, err = t.decoder.Whole(raw)
		}
		var odd *Misunderstood
		if errors.As(err, &odd) {
			t.skip(ctx, odd, raw)
			continue
		}
		if err != nil {
			return err
		}
		if c.Empty() && !t.begun {
			t.garbled = t.quote(raw) // in case that nothing else comes
		}
		if !t.emit(c) {
			return nil
		}
	}
	return t.finish()
}

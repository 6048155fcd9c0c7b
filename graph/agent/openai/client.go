package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
	"understudy/internal/sse"
)

// DefaultBaseURL is OpenAI's own.
const DefaultBaseURL = "https://api.openai.com/v1"

// Options of a client. The zero value of a field is its default.
type Options struct {
	Model        string
	Key          string // "" sends none: local servers need none
	BaseURL      string // up to /v1; "" is DefaultBaseURL
	Organization string
	Project      string
	Header       http.Header                // sent as it is, after all others
	Query        url.Values                 // such as Azure's api-version
	Extra        map[string]json.RawMessage // members of the request body, put over those that the client writes
	NoUsage      bool                       // do not ask for usage: some old servers refuse stream_options

	Timeout   time.Duration     // until an answer begins, each try; 0: one minute
	Idle      time.Duration     // between two events of an answer; 0: two minutes
	Retries   int               // further tries; 0: two, below 0: none
	MaxWait   time.Duration     // longest wait that a server may ask for before a retry; 0: one minute
	MaxEvent  int               // bytes of one event; 0: 8 MiB
	MaxBody   int64             // bytes of a whole answer; 0: 256 MiB
	Transport http.RoundTripper // nil: one of its own, with the proxy of the environment
}

// Client is a model behind a chat completions endpoint. It is safe for concurrent use.
type Client struct {
	opts  Options
	url   string
	azure bool
	http  *retryablehttp.Client
}

var (
	_ llms.Model        = (*Client)(nil)
	_ llm.ChunkStreamer = (*Client)(nil)
)

// New checks the options. It connects to nothing.
func New(o Options) (*Client, error) {
	setDefault(&o.BaseURL, DefaultBaseURL)
	setDefault(&o.Timeout, time.Minute)
	setDefault(&o.Idle, 2*time.Minute)
	setDefault(&o.Retries, 2)
	setDefault(&o.MaxWait, time.Minute)
	setDefault(&o.MaxEvent, 8<<20)
	setDefault(&o.MaxBody, 256<<20)
	o.Retries = max(o.Retries, 0)
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("base URL %q is no http address", o.BaseURL)
	}
	c := &Client{opts: o, azure: strings.HasSuffix(base.Hostname(), ".openai.azure.com")}
	address := base.JoinPath("chat", "completions")
	query := address.Query()
	for name, values := range o.Query {
		query[name] = values
	}
	address.RawQuery = query.Encode()
	c.url = address.String()
	if o.Transport == nil {
		c.opts.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 30 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second, ResponseHeaderTimeout: o.Timeout,
		}
	}
	c.http = &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: c.opts.Transport},
		RetryWaitMin: 500 * time.Millisecond, RetryWaitMax: 8 * time.Second, RetryMax: c.opts.Retries,
		CheckRetry: c.retry, Backoff: backoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// retry reports whether a request is tried again.
func (c *Client) retry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil {
		return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	}
	if asked, ok := retryAfter(resp.Header, time.Now()); ok && asked > c.opts.MaxWait {
		return false, nil // return the error: the caller decides what to do about such a long wait
	}
	switch resp.Header.Get("X-Should-Retry") {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true, nil
	}
	return resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented, nil
}

func backoff(least, most time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if asked, ok := retryAfter(resp.Header, time.Now()); ok {
			return asked
		}
	}
	return retryablehttp.LinearJitterBackoff(least, most/4, attempt, nil)
}

// retryAfter reads the wait that a server asks for: milliseconds, seconds, or a date.
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

// Call asks for an answer to a single prompt.
func (c *Client) Call(ctx context.Context, prompt string, options ...llms.CallOption) (string, error) {
	return llms.GenerateFromSinglePrompt(ctx, c, prompt, options...)
}

// GenerateContent returns a whole answer. The streaming functions of the options get it as it comes.
func (c *Client) GenerateContent(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	return llm.Collect(ctx, c, messages, options...)
}

// Errors: *Error for what the server said, ErrCut when the connection ended before the answer, ErrIdle when nothing came for too long.
var (
	ErrCut  = fmt.Errorf("the connection ended before the answer did: %w", io.ErrUnexpectedEOF)
	ErrIdle = errors.New("the model was silent for too long")
)

// StreamChunks asks for an answer and yields it as it comes.
func (c *Client) StreamChunks(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		resp, err := c.post(ctx, messages, options)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		defer resp.Body.Close()
		idle := time.AfterFunc(c.opts.Idle, func() { cancel(ErrIdle) })
		defer idle.Stop()
		body := io.LimitReader(resp.Body, c.opts.MaxBody)
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		read := c.events
		if kind == "application/json" { // some proxies answer at once although a stream was requested
			read = c.whole
		}
		for chunk, err := range read(body) {
			if err != nil {
				if cause := context.Cause(ctx); cause != nil {
					err = cause
				}
				yield(llm.Chunk{}, err)
				return
			}
			idle.Reset(c.opts.Idle)
			if !yield(chunk, nil) {
				return
			}
		}
	}
}

// events reads a stream of chunks.
func (c *Client) events(body io.Reader) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		var d decoder
		source := &endReader{Reader: body}
		for r := sse.NewReader(source, c.opts.MaxEvent); ; {
			event, err := r.Next()
			// Some servers close after the last chunk without a word, or leave [DONE] without an end.
			if err != nil && source.ended && (d.finished || errors.Is(err, io.EOF)) {
				break
			}
			if err != nil {
				yield(llm.Chunk{}, cut(err))
				return
			}
			data := bytes.TrimSpace(event.Data)
			if string(data) == "[DONE]" {
				d.finished = true
				break
			}
			if len(data) == 0 {
				continue
			}
			chunk, told, err := d.chunk(data)
			if err != nil {
				yield(llm.Chunk{}, err)
				return
			}
			if told && !yield(chunk, nil) {
				return
			}
		}
		switch {
		case !d.finished:
			yield(llm.Chunk{}, ErrCut)
		case d.usage != nil:
			yield(llm.Chunk{Usage: d.usage}, nil)
		}
	}
}

// endReader remembers that a body ended in order, and was not cut.
type endReader struct {
	io.Reader
	ended bool
}

func (r *endReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.ended = r.ended || errors.Is(err, io.EOF)
	return n, err
}

// whole reads an answer in one piece.
func (c *Client) whole(body io.Reader) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		text, err := io.ReadAll(body)
		if err != nil {
			yield(llm.Chunk{}, cut(err))
			return
		}
		var d decoder
		chunk, _, err := d.chunk(text)
		if err == nil && !d.finished {
			err = ErrCut
		}
		chunk.Usage = d.usage
		yield(chunk, err)
	}
}

func cut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return ErrCut
	}
	return fmt.Errorf("read answer: %w", err)
}

// post sends the request and returns a response of status 200.
func (c *Client) post(ctx context.Context, messages []llms.MessageContent, options []llms.CallOption) (*http.Response, error) {
	body, err := c.body(messages, options)
	if err != nil {
		return nil, err
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, c.url, body)
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "text/event-stream")
	switch {
	case c.opts.Key == "":
	case c.azure:
		h.Set("Api-Key", c.opts.Key)
	default:
		h.Set("Authorization", "Bearer "+c.opts.Key)
	}
	if c.opts.Organization != "" {
		h.Set("OpenAI-Organization", c.opts.Organization)
	}
	if c.opts.Project != "" {
		h.Set("OpenAI-Project", c.opts.Project)
	}
	for name, values := range c.opts.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("no answer from the model: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp, nil
}

// maxErrorBody is how much of a refusal is read.
const maxErrorBody = 64 << 10

func responseError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	e := &Error{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	var envelope envelope
	if json.Unmarshal(text, &envelope) == nil {
		envelope.fill(e)
	}
	if e.Message == "" {
		e.Message = string(bytes.ToValidUTF8(bytes.TrimSpace(text[:min(len(text), 500)]), []byte("�")))
	}
	if wait, ok := retryAfter(resp.Header, time.Now()); ok {
		e.RetryAfter = wait
	}
	return e
}

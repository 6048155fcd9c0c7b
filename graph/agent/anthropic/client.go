// Package anthropic speaks Anthropic's Messages API: streaming, tools that run in parallel or are forced, thinking, images, documents,
// prompt caching, and usage in detail.
//
// It is a langchaingo llms.Model that loses nothing. Answers have the form of LangChain's ChatAnthropic: text alone is text; with tools,
// thinking or documents the content is a list of blocks, and thinking is returned to the model with its signatures. Each request is
// answered by the goroutine that made it: nothing that a server sends can end the process.
package anthropic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/internal/wire"
	"understudy/graph/agent/llm"
	"understudy/internal/jsonscan"
)

// DefaultBaseURL is Anthropic's own.
const DefaultBaseURL = "https://api.anthropic.com"

// Version of the API that the client speaks, unless Options.Header has another anthropic-version.
const Version = "2023-06-01"

// Options of a client. The zero value of a field is its default.
type Options struct {
	Model     string
	Key       string // "" sends none
	KeyHeader string // the header that has the key; "": x-api-key. Authorization gets it as Bearer
	BaseURL   string // with or without /v1; "" is DefaultBaseURL
	Header    http.Header
	Query     url.Values
	Extra     map[string]json.RawMessage // members of the request body, put over those that the client writes; null removes one
	MaxTokens int                        // of an answer, for calls that do not say; 0: 8192, and more than the budget of the thinking
	// Caching marks the end of tools, instructions and conversation for the prompt cache: "5m" or "1h"; "": none.
	Caching string

	Timeout   time.Duration     // until an answer begins, each try; 0: ten minutes
	Idle      time.Duration     // between two signs of life of an answer, also pings; 0: ten minutes
	Retries   int               // further tries; 0: two, below 0: none
	MaxWait   time.Duration     // longest wait that the server may ask for before a retry; 0: one minute
	MaxEvent  int               // bytes of one event; 0: 8 MiB
	MaxBody   int64             // bytes of a whole answer; 0: 256 MiB
	Transport http.RoundTripper // nil: one of its own, with the proxy of the environment
	Log       *slog.Logger      // nil: slog.Default
}

// Client is a model behind the Messages API. It is safe for concurrent use.
type Client struct {
	opts  Options
	plain *wire.Client // for answers whose content is text
	rich  *wire.Client
}

var (
	_ llms.Model        = (*Client)(nil)
	_ llm.ChunkStreamer = (*Client)(nil)
)

// New checks the options. It connects to nothing.
func New(o Options) (*Client, error) {
	o.BaseURL = cmp.Or(o.BaseURL, DefaultBaseURL)
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("base URL %q is not an http or https URL", wire.URL(o.BaseURL))
	}
	if o.Caching != "" && o.Caching != "5m" && o.Caching != "1h" {
		return nil, fmt.Errorf(`prompt caching %q; write "5m" or "1h"`, o.Caching)
	}
	if !strings.HasSuffix(strings.TrimRight(base.Path, "/"), "/v1") {
		base = base.JoinPath("v1")
	}
	address := base.JoinPath("messages")
	query := address.Query()
	for name, values := range o.Query {
		query[name] = values
	}
	address.RawQuery = query.Encode()
	options := wire.Options{
		URL: address.String(), Model: o.Model, Header: o.headers(), Secrets: []string{o.Key}, Explain: explain,
		Timeout: o.Timeout, Idle: o.Idle, Retries: o.Retries, MaxWait: o.MaxWait, MaxEvent: o.MaxEvent, MaxBody: o.MaxBody, Transport: o.Transport, Log: o.Log,
	}
	c := &Client{opts: o}
	options.Decoder = func() wire.Decoder { return newDecoder(true) }
	c.plain = wire.New(options)
	options.Decoder = func() wire.Decoder { return newDecoder(false) }
	c.rich = wire.New(options)
	return c, nil
}

func (o *Options) headers() http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}, "Anthropic-Version": {Version}}
	switch name := http.CanonicalHeaderKey(cmp.Or(o.KeyHeader, "X-Api-Key")); {
	case o.Key == "":
	case name == "Authorization":
		h.Set(name, "Bearer "+o.Key)
	default:
		h.Set(name, o.Key)
	}
	for name, values := range o.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}

// Call asks for an answer to a single prompt.
func (c *Client) Call(ctx context.Context, prompt string, options ...llms.CallOption) (string, error) {
	return llms.GenerateFromSinglePrompt(ctx, c, prompt, options...)
}

// GenerateContent returns a whole answer. The streaming functions of the options get it as it comes.
func (c *Client) GenerateContent(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	return llm.Collect(ctx, c, messages, options...)
}

// StreamChunks asks for an answer and yields it as it comes. Errors are *llm.Error for what the server said, llm.ErrCut, llm.ErrIdle and
// llm.ErrSlow.
func (c *Client) StreamChunks(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) iter.Seq2[llm.Chunk, error] {
	return llm.WithoutRefused(ctx, c.opts.Log, c.opts.Model, messages, func(messages []llms.MessageContent) iter.Seq2[llm.Chunk, error] {
		return c.stream(ctx, messages, options)
	})
}

func (c *Client) stream(ctx context.Context, messages []llms.MessageContent, options []llms.CallOption) iter.Seq2[llm.Chunk, error] {
	body, plain, asked, err := c.body(messages, options)
	if err != nil {
		return func(yield func(llm.Chunk, error) bool) { yield(llm.Chunk{}, err) }
	}
	stream := c.rich
	if plain {
		stream = c.plain
	}
	if asked {
		return stream.Stream(ctx, body)
	}
	return mark(stream.Stream(ctx, body))
}

// mark marks an answer with thinking for which the request did not ask: see llm.Part.Unasked.
func mark(chunks iter.Seq2[llm.Chunk, error]) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		marked := false
		for c, err := range chunks {
			if !marked && slices.ContainsFunc(c.Blocks, func(b json.RawMessage) bool { return strings.Contains(gjson.GetBytes(b, "type").Str, "thinking") }) {
				marked = true
				c.Kwargs = json.RawMessage(`{"` + llm.UnaskedThinking + `":true}`)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// explain reads the error of a refused request. Gateways write errors in OpenAI's form.
func explain(body []byte, e *llm.Error) {
	if !jsonscan.Valid(body) {
		return
	}
	in := gjson.ParseBytes(body)
	v := in.Get("error")
	if e.RequestID == "" { // gateways may drop the header
		e.RequestID = text(in.Get("request_id"))
	}
	if v.IsObject() {
		in = v
	} else if text(v) != "" {
		e.Message = text(v)
		return
	}
	e.Message, e.Type, e.Code = text(in.Get("message")), text(in.Get("type")), in.Get("code").String()
	if e.Message == "" {
		e.Message = text(in.Get("detail"))
	}
}

// text returns a JSON text; "" for values of other types.
func text(v gjson.Result) string {
	if v.Type == gjson.String {
		return v.Str
	}
	return ""
}

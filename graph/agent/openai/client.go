package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/internal/wire"
	"understudy/graph/agent/llm"
)

// DefaultBaseURL is OpenAI's own.
const DefaultBaseURL = "https://api.openai.com/v1"

// Options of a client. The zero value of a field is its default.
type Options struct {
	Model        string
	Key          string // "" sends none: local servers need none
	KeyHeader    string // the header that has the key, such as api-key; "": Authorization, which gets it as Bearer, and api-key for Azure's own hosts
	BaseURL      string // up to /v1; "" is DefaultBaseURL
	Organization string
	Project      string
	Header       http.Header                // sent as it is, after all others
	Query        url.Values                 // such as Azure's api-version
	Extra        map[string]json.RawMessage // members of the request body, put over those that the client writes; null removes one
	Quirks       Quirks
	Responses    bool // the Responses API in place of chat completions

	Timeout   time.Duration     // until an answer begins, each try; 0: ten minutes
	Idle      time.Duration     // between two signs of life of an answer, also comments; 0: ten minutes
	Retries   int               // further tries; 0: two, below 0: none
	MaxWait   time.Duration     // longest wait that a server may ask for before a retry; 0: one minute
	MaxEvent  int               // bytes of one event; 0: 8 MiB
	MaxBody   int64             // bytes of a whole answer; 0: 256 MiB
	Transport http.RoundTripper // nil: one of its own, with the proxy of the environment
	Log       *slog.Logger      // nil: slog.Default
}

// Quirks are differences of a provider from OpenAI's API.
type Quirks struct {
	NoUsage             bool     // do not ask for usage: the server refuses stream_options
	MaxCompletionTokens *bool    // max_completion_tokens in place of max_tokens; nil: only for OpenAI's and Azure's own hosts
	ReturnReasoning     bool     // assistant messages return reasoning_content: DeepSeek, Moonshot
	ReturnDetails       bool     // assistant messages return reasoning_details: OpenRouter
	ToolImages          bool     // images that tools return follow in a message of the user: tool messages can have text alone
	ReturnExtra         bool     // tool calls return their extra_content, which other providers refuse: Gemini, gateways to it
	Signatures          bool     // calls without a signature get one that is not checked: Gemini 3
	Lacks               []string // what the provider cannot take: image, audio, video, file, file ID
	TextCalls           bool     // calls and results of tools are text, and answers with tools are not streamed: MindIE
	ShortIDs            bool     // ids of tool calls are nine letters and digits: Mistral
}

// Client is a model behind an endpoint of chat completions or of responses. It is safe for concurrent use.
type Client struct {
	opts Options
	own  bool // the server is OpenAI's or Azure's
	wire *wire.Client
}

var (
	_ llms.Model        = (*Client)(nil)
	_ llm.ChunkStreamer = (*Client)(nil)
)

// New checks the options. It connects to nothing.
func New(o Options) (*Client, error) {
	o.BaseURL = cmp.Or(o.BaseURL, DefaultBaseURL)
	base, err := o.base()
	if err != nil {
		return nil, err
	}
	host := strings.ToLower(base.Hostname())
	ofAzure := strings.HasSuffix(host, ".openai.azure.com")
	if ofAzure {
		o.KeyHeader = cmp.Or(o.KeyHeader, "Api-Key")
	}
	own := ofAzure || host == "api.openai.com" || strings.HasSuffix(host, ".api.openai.com") // eu.api.openai.com
	if o.Quirks.MaxCompletionTokens == nil {
		// OpenAI's reasoning models refuse the old name, most other servers do not know the new one.
		o.Quirks.MaxCompletionTokens = &own
	}
	path, decode := []string{"chat", "completions"}, func() wire.Decoder { return &decoder{} }
	if o.Responses {
		path, decode = []string{"responses"}, func() wire.Decoder { return newResponseDecoder() }
	}
	address, err := o.endpoint(path...)
	if err != nil {
		return nil, err
	}
	return &Client{opts: o, own: own, wire: wire.New(wire.Options{
		URL: address, Model: o.Model, Header: o.headers(), Secrets: []string{o.Key}, Explain: explain,
		Decoder: decode,
		Timeout: o.Timeout, Idle: o.Idle, Retries: o.Retries, MaxWait: o.MaxWait, MaxEvent: o.MaxEvent, MaxBody: o.MaxBody, Transport: o.Transport, Log: o.Log,
	})}, nil
}

func (o *Options) base() (*url.URL, error) {
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("base URL %q is not an http or https URL", wire.URL(o.BaseURL))
	}
	return base, nil
}

// endpoint returns the address below the base URL, with the configured query.
func (o *Options) endpoint(path ...string) (string, error) {
	base, err := o.base()
	if err != nil {
		return "", err
	}
	address := base.JoinPath(path...)
	query := address.Query()
	for name, values := range o.Query {
		query[name] = values
	}
	address.RawQuery = query.Encode()
	return address.String(), nil
}

func (o *Options) headers() http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	switch name := http.CanonicalHeaderKey(cmp.Or(o.KeyHeader, "Authorization")); {
	case o.Key == "":
	case name == "Authorization":
		h.Set(name, "Bearer "+o.Key)
	default:
		h.Set(name, o.Key)
	}
	if o.Organization != "" {
		h.Set("OpenAI-Organization", o.Organization)
	}
	if o.Project != "" {
		h.Set("OpenAI-Project", o.Project)
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
		if c.opts.Responses {
			return c.streamResponse(ctx, messages, options)
		}
		if c.opts.Quirks.TextCalls {
			var err error
			if messages, err = asText(messages); err != nil {
				return failed(err)
			}
		}
		body, err := c.body(messages, options)
		if err != nil {
			return failed(err)
		}
		if c.opts.Quirks.TextCalls {
			tools := gjson.GetBytes(body, "tools.0").Exists()
			return c.wire.StreamTo(ctx, body, func() wire.Decoder { return &textDecoder{Decoder: &decoder{}, whole: tools} })
		}
		return c.wire.Stream(ctx, body)
	})
}

func failed(err error) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) { yield(llm.Chunk{}, err) }
}

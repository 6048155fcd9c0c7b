package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	htmltomarkdown "github.com/JohannesKaufmann/html-to-markdown/v2"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"

	"understudy/deerflow/sandbox"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/address"
)

// Web is how tools reach the web.
type Web struct {
	// Provider is tavily, jina, firecrawl, serper, exa, brave, searxng or duckduckgo; "": pages are fetched from here, and there is no search.
	Provider string
	Key      string
	URL      string // of the provider; "": its public one
	Results  int    // of a search; 0: 5
	Limit    int    // characters of a page; 0: 4096
	Timeout  time.Duration
	// Rules are for addresses of pages that are fetched from here.
	Rules address.Rules
}

const (
	webResults  = 5
	webLimit    = 4096
	webTimeout  = 15 * time.Second
	maxPage     = 4 << 20 // bytes
	maxHops     = 5
	userAgent   = "understudy/web_fetch"
	maxURLBytes = 4096
)

// providers are the public addresses of services. SearXNG has none: people run their own.
var providers = map[string]string{
	"tavily": "https://api.tavily.com", "jina": "https://r.jina.ai", "firecrawl": "https://api.firecrawl.dev", "serper": "https://google.serper.dev", "exa": "https://api.exa.ai",
	"brave": "https://api.search.brave.com", "searxng": "http://localhost:8088", "duckduckgo": "https://html.duckduckgo.com",
}

// keyHeaders are where services expect their key; the others: Authorization, as a bearer token.
var keyHeaders = map[string]string{"serper": "X-API-KEY", "exa": "x-api-key", "brave": "X-Subscription-Token"}

func (w Web) client() *http.Client {
	rules := w.Rules
	if w.Provider != "" { // its address is the administrator's
		rules = address.Rules{AllowLoopback: true}
	}
	timeout := cmp.Or(w.Timeout, webTimeout)
	return &http.Client{
		Timeout:   timeout,
		Transport: &http.Transport{DialContext: rules.Dialer(timeout).DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: timeout, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= maxHops {
				return errors.New("too many redirects")
			}
			if r.URL.Scheme != "http" && r.URL.Scheme != "https" {
				return errors.New("it redirects to an address that is no web page")
			}
			return nil
		},
	}
}

// base returns the address of the provider.
func (w Web) base() string { return strings.TrimSuffix(cmp.Or(w.URL, providers[w.Provider]), "/") }

// post sends JSON to the provider and decodes its answer.
func (w Web) post(ctx context.Context, path string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	return w.decode(r, into)
}

// get asks the provider and decodes its answer.
func (w Web) get(ctx context.Context, path string, query url.Values, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base()+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	return w.decode(r, into)
}

func (w Web) decode(r *http.Request, into any) error {
	r.Header.Set("Accept", "application/json")
	if name := keyHeaders[w.Provider]; w.Key != "" && name != "" {
		r.Header.Set(name, w.Key)
	} else if w.Key != "" {
		r.Header.Set("Authorization", "Bearer "+w.Key)
	}
	content, err := w.send(r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("answer of %s: %w", w.Provider, err)
	}
	return nil
}

// send returns the body of the provider's answer.
func (w Web) send(r *http.Request) ([]byte, error) {
	resp, err := w.client().Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d: %s", w.Provider, resp.StatusCode, sandbox.Head(string(content), 200))
	}
	return content, nil
}

// failed returns the result for an error of the web.
func failed(ctx context.Context, what string, err error) (any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	pregel.LogOf(ctx).Info("web tool failed", "error", err)
	return "Error: " + what + ": " + sandbox.Head(sandbox.Clean(err.Error()), 500), nil
}

// WebFetch returns the tool web_fetch, which reads a page as Markdown.
func WebFetch(w Web) agent.Tool {
	type args struct {
		URL string `json:"url"`
	}
	return agent.Tool{
		Name:        "web_fetch",
		Description: "Reads a web page. Give it exact addresses, of the user or of search results, with https://. It reads no pages that need a login.",
		Schema:      schema(arg{"url", text, "Address of the page.", false}),
		Run: noSandbox(func(ctx context.Context, a args) (any, error) {
			u, err := url.Parse(strings.TrimSpace(a.URL))
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(a.URL) > maxURLBytes {
				return "Error: Not an address of a web page: " + sandbox.Head(a.URL, 200), nil
			}
			title, body, err := w.fetch(ctx, u)
			if err != nil {
				return failed(ctx, "Failed to fetch "+u.Redacted(), err)
			}
			if title != "" {
				body = "# " + strings.TrimSpace(title) + "\n\n" + body
			}
			if body = strings.TrimSpace(sandbox.Clean(body)); body == "" {
				return "(empty)", nil
			}
			return sandbox.Head(body, orInt(w.Limit, webLimit)), nil
		}),
	}
}

func noSandbox[A any](f func(ctx context.Context, a A) (any, error)) func(context.Context, message.ToolCall) (any, error) {
	return func(ctx context.Context, call message.ToolCall) (any, error) {
		var a A
		if err := json.Unmarshal(call.Args, &a); err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
		return f(ctx, a)
	}
}

func (w Web) fetch(ctx context.Context, u *url.URL) (title, body string, err error) {
	switch w.Provider {
	case "tavily":
		var got struct {
			Results []struct {
				Title   string `json:"title"`
				Content string `json:"raw_content"`
			} `json:"results"`
			Failed []struct{ Error string } `json:"failed_results"`
		}
		if err := w.post(ctx, "/extract", map[string]any{"urls": []string{u.String()}}, &got); err != nil {
			return "", "", err
		}
		if len(got.Failed) > 0 {
			return "", "", errors.New(got.Failed[0].Error)
		}
		if len(got.Results) == 0 {
			return "", "", errors.New("no results")
		}
		return got.Results[0].Title, got.Results[0].Content, nil
	case "jina":
		var got struct {
			Data struct{ Title, Content string } `json:"data"`
		}
		err := w.post(ctx, "/", map[string]any{"url": u.String()}, &got)
		return got.Data.Title, got.Data.Content, err
	case "exa":
		var got struct {
			Results []struct{ Title, Text string } `json:"results"`
		}
		body := map[string]any{"urls": []string{u.String()}, "text": map[string]any{"maxCharacters": orInt(w.Limit, webLimit)}}
		if err := w.post(ctx, "/contents", body, &got); err != nil {
			return "", "", err
		}
		if len(got.Results) == 0 {
			return "", "", errors.New("no results")
		}
		return got.Results[0].Title, got.Results[0].Text, nil
	case "firecrawl":
		var got struct {
			Data struct {
				Markdown string                 `json:"markdown"`
				Metadata struct{ Title string } `json:"metadata"`
			} `json:"data"`
		}
		err := w.post(ctx, "/v1/scrape", map[string]any{"url": u.String(), "formats": []string{"markdown"}}, &got)
		return got.Data.Metadata.Title, got.Data.Markdown, err
	}
	return w.page(ctx, u)
}

// page fetches a page from here.
func (w Web) page(ctx context.Context, u *url.URL) (title, body string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", "", err
	}
	r.Header.Set("User-Agent", userAgent)
	r.Header.Set("Accept", "text/html, text/markdown, text/plain, application/json;q=0.9")
	resp, err := w.client().Do(r)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", "", fmt.Errorf("the server answers %s", resp.Status)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	page := kind == "text/html" || kind == "application/xhtml+xml"
	if !page && !strings.HasPrefix(kind, "text/") && kind != "application/json" && !strings.HasSuffix(kind, "+json") && kind != "application/xml" {
		return "", "", fmt.Errorf("it is no text, but %q", kind)
	}
	in, err := charset.NewReader(io.LimitReader(resp.Body, maxPage), resp.Header.Get("Content-Type"))
	switch {
	case errors.Is(err, io.EOF): // empty
		return "", "", nil
	case err != nil:
		return "", "", err
	case page:
		return markdown(in, resp.Request.URL)
	}
	content, err := io.ReadAll(in)
	return "", string(content), err
}

// markdown returns the title and the contents of a page: of its main part, when it says which that is.
func markdown(in io.Reader, at *url.URL) (title, body string, err error) {
	doc, err := html.Parse(in)
	if err != nil {
		return "", "", err
	}
	if n := first(doc, "title"); n != nil && n.FirstChild != nil {
		title = n.FirstChild.Data
	}
	part := cmp.Or(first(doc, "main"), first(doc, "article"), first(doc, "body"), doc)
	out, err := htmltomarkdown.ConvertNode(part, converter.WithDomain(at.Scheme+"://"+at.Host))
	return title, string(out), err
}

// first returns the first element with a name, without recursion: pages may be nested deeply.
func first(doc *html.Node, name string) *html.Node {
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			return n
		}
	}
	return nil
}

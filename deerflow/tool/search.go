package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"understudy/deerflow/sandbox"
	"understudy/graph/agent"
)

// hit is a result of a search.
type hit struct {
	Title   string `json:"title"`
	URL     string `json:"url"`
	Snippet string `json:"snippet"`
}

// Searches reports whether a provider can search the web.
func Searches(provider string) bool { return searches[provider] != nil }

// Keyless reports whether a provider needs no key.
func Keyless(provider string) bool { return provider == "searxng" || provider == "duckduckgo" }

// WebSearch returns the tool web_search.
func WebSearch(w Web) agent.Tool {
	type args struct {
		Query string `json:"query"`
	}
	return agent.Tool{
		Name: "web_search", Description: "Searches the web.", Schema: schema(arg{"query", text, "Words to search for.", false}),
		Run: noSandbox(func(ctx context.Context, a args) (any, error) {
			list, err := w.search(ctx, a.Query)
			if err != nil {
				return failed(ctx, "Search failed", err)
			}
			raw, err := json.MarshalIndent(list, "", "  ")
			return sandbox.Clean(string(raw)), err
		}),
	}
}

func (w Web) search(ctx context.Context, query string) ([]hit, error) {
	by := searches[w.Provider]
	if by == nil {
		return nil, errors.New("no service for searches is configured")
	}
	limit := orInt(w.Results, webResults)
	list, err := by(ctx, w, query, limit)
	if err != nil {
		return nil, err
	}
	return append([]hit{}, list[:min(len(list), limit)]...), nil
}

// searches ask providers. Each returns what the provider answers, which may be more than the limit.
var searches = map[string]func(ctx context.Context, w Web, query string, limit int) ([]hit, error){
	"tavily": func(ctx context.Context, w Web, query string, limit int) (list []hit, err error) {
		var got struct {
			Results []struct{ Title, URL, Content string } `json:"results"`
		}
		err = w.post(ctx, "/search", map[string]any{"query": query, "max_results": limit}, &got)
		for _, r := range got.Results {
			list = append(list, hit{r.Title, r.URL, r.Content})
		}
		return list, err
	},
	"firecrawl": func(ctx context.Context, w Web, query string, limit int) (list []hit, err error) {
		var got struct {
			Data []struct{ Title, URL, Description string } `json:"data"`
		}
		err = w.post(ctx, "/v1/search", map[string]any{"query": query, "limit": limit}, &got)
		for _, r := range got.Data {
			list = append(list, hit{r.Title, r.URL, r.Description})
		}
		return list, err
	},
	"serper": func(ctx context.Context, w Web, query string, limit int) (list []hit, err error) {
		var got struct {
			Organic []struct{ Title, Link, Snippet string } `json:"organic"`
		}
		err = w.post(ctx, "/search", map[string]any{"q": query, "num": limit}, &got)
		for _, r := range got.Organic {
			list = append(list, hit{r.Title, r.Link, r.Snippet})
		}
		return list, err
	},
	"exa": func(ctx context.Context, w Web, query string, limit int) (list []hit, err error) {
		var got struct {
			Results []struct {
				Title, URL string
				Highlights []string
			} `json:"results"`
		}
		body := map[string]any{"query": query, "numResults": limit, "contents": map[string]any{"highlights": true}}
		err = w.post(ctx, "/search", body, &got)
		for _, r := range got.Results {
			list = append(list, hit{r.Title, r.URL, strings.Join(r.Highlights, "\n")})
		}
		return list, err
	},
	"brave": func(ctx context.Context, w Web, query string, limit int) (list []hit, err error) {
		var got struct {
			Web struct {
				Results []struct{ Title, URL, Description string }
			}
		}
		err = w.get(ctx, "/res/v1/web/search", url.Values{"q": {sandbox.Head(query, 400)}, "count": {strconv.Itoa(min(limit, 20))}, "text_decorations": {"false"}}, &got)
		for _, r := range got.Web.Results {
			list = append(list, hit{r.Title, r.URL, r.Description})
		}
		return list, err
	},
	"searxng": func(ctx context.Context, w Web, query string, limit int) (list []hit, err error) {
		var got struct {
			Results []struct{ Title, URL, Content string }
		}
		err = w.get(ctx, "/search", url.Values{"q": {query}, "format": {"json"}}, &got)
		for _, r := range got.Results {
			list = append(list, hit{r.Title, r.URL, r.Content})
		}
		return list, err
	},
	"duckduckgo": duckDuckGo,
}

// browser is the User-Agent of requests to pages for browsers.
const browser = "Mozilla/5.0 (compatible; understudy/web_search)"

// duckDuckGo searches with the page that DuckDuckGo has for browsers without scripts: it has no other interface that needs no key.
func duckDuckGo(ctx context.Context, w Web, query string, _ int) (list []hit, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+"/html/", strings.NewReader(url.Values{"q": {query}, "kl": {"wt-wt"}}.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("User-Agent", browser)
	resp, err := w.client().Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK { // 202: it wants to see a person
		return nil, fmt.Errorf("duckduckgo answers %d: it limits searches by programs; configure a search service with a key, or SearXNG", resp.StatusCode)
	}
	var page bytes.Buffer
	if _, err := page.ReadFrom(http.MaxBytesReader(nil, resp.Body, maxPage)); err != nil {
		return nil, err
	}
	doc, err := html.Parse(&page)
	if err != nil {
		return nil, err
	}
	empty := false
	for n := range doc.Descendants() {
		switch {
		case n.Type != html.ElementNode:
		case hasClass(n, "no-results"):
			empty = true
		case hasClass(n, "result__a") && n.Data == "a":
			if u := target(attribute(n, "href")); u != "" {
				list = append(list, hit{Title: words(n), URL: u})
			}
		case hasClass(n, "result__snippet") && len(list) > 0 && list[len(list)-1].Snippet == "":
			list[len(list)-1].Snippet = words(n)
		}
	}
	if len(list) == 0 && !empty {
		return nil, errors.New("duckduckgo answers with a page that has no results in the known form")
	}
	return list, nil
}

// target returns the address of a result, which links lead to through DuckDuckGo; "" for advertisements, and what is no web page.
func target(href string) string {
	u, err := url.Parse(href)
	if err != nil {
		return ""
	}
	if inner := u.Query().Get("uddg"); inner != "" {
		if u, err = url.Parse(inner); err != nil {
			return ""
		}
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "duckduckgo.com" {
		return ""
	}
	return u.String()
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasClass(n *html.Node, class string) bool {
	for name := range strings.FieldsSeq(attribute(n, "class")) {
		if name == class {
			return true
		}
	}
	return false
}

// words returns the text of an element, on one line.
func words(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

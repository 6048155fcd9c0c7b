package tool_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/tool"
	"understudy/graph/message"
)

// Each service is asked in its own way, with its own header for the key, and its answer has one form.
func TestSearchServices(t *testing.T) {
	t.Parallel()
	const want = `[{"title":"T","url":"https://x.org/a?b=1","snippet":"C & D"}]`
	for provider, c := range map[string]struct{ request, header, answer string }{
		"tavily":    {`POST /search {"max_results":1,"query":"a b"}`, "Authorization: Bearer k", `{"results":[{"title":"T","url":"https://x.org/a?b=1","content":"C & D"},{"title":"U"}]}`},
		"firecrawl": {`POST /v1/search {"limit":1,"query":"a b"}`, "Authorization: Bearer k", `{"data":[{"title":"T","url":"https://x.org/a?b=1","description":"C & D"}]}`},
		"serper":    {`POST /search {"num":1,"q":"a b"}`, "X-Api-Key: k", `{"organic":[{"title":"T","link":"https://x.org/a?b=1","snippet":"C & D"}]}`},
		"exa":       {`POST /search {"contents":{"highlights":true},"numResults":1,"query":"a b"}`, "X-Api-Key: k", `{"results":[{"title":"T","url":"https://x.org/a?b=1","highlights":["C & D"]}]}`},
		"brave":     {`GET /res/v1/web/search?count=1&q=a+b&text_decorations=false `, "X-Subscription-Token: k", `{"web":{"results":[{"title":"T","url":"https://x.org/a?b=1","description":"C & D"}]}}`},
		"searxng":   {`GET /search?format=json&q=a+b `, "", `{"results":[{"title":"T","url":"https://x.org/a?b=1","content":"C & D"}]}`},
		"duckduckgo": {`POST /html/ kl=wt-wt&q=a+b`, "", `<html><body><div class="result result--ad"><a class="result__a" href="//duckduckgo.com/y.js?ad=1">Buy</a><a class="result__snippet">ad</a></div>
			<div class="links_main"><h2><a rel="nofollow" class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fx.org%2Fa%3Fb%3D1&amp;rut=0">
			T</a></h2><a class="result__snippet" href="x"><b>C</b> &amp; D</a></div><a class="result__a" href="https://y.org/">U</a></body></html>`},
	} {
		var got, header string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)
			for _, name := range []string{"Authorization", "X-Api-Key", "X-Subscription-Token"} {
				if v := r.Header.Get(name); v != "" {
					header = name + ": " + v
				}
			}
			fmt.Fprint(w, c.answer)
		}))
		w := tool.Web{Provider: provider, URL: srv.URL + "/", Results: 1}
		if !tool.Keyless(provider) {
			w.Key = "k"
		}
		out, err := tool.WebSearch(w).Run(t.Context(), message.ToolCall{ID: "c", Name: "web_search", Args: json.RawMessage(`{"query":"a b"}`)})
		srv.Close()
		require.NoError(t, err)
		require.True(t, tool.Searches(provider))
		require.JSONEq(t, want, out.(string), provider)
		require.Equal(t, c.request, got, provider)
		require.Equal(t, c.header, header, provider)
	}
}

// DuckDuckGo that finds nothing is not the same as one that does not answer programs.
func TestSearchesWithoutResults(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`<div class="no-results">No results.</div>`: "[]",
		`<form id="challenge"></form>`:              "Error: Search failed: duckduckgo answers with a page that has no results in the known form",
		"202":                                       "Error: Search failed: duckduckgo answers 202: it limits searches by programs; configure a search service with a key, or SearXNG",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if answer == "202" {
				w.WriteHeader(http.StatusAccepted)
			}
			fmt.Fprint(w, answer)
		}))
		out, err := tool.WebSearch(tool.Web{Provider: "duckduckgo", URL: srv.URL}).Run(t.Context(), message.ToolCall{ID: "c", Args: json.RawMessage(`{"query":"q"}`)})
		srv.Close()
		require.NoError(t, err)
		require.Equal(t, want, out, answer)
	}
}

// Images of DuckDuckGo: the page of a search has a token, with which its script asks for them.
func TestImagesOfDuckDuckGo(t *testing.T) {
	t.Parallel()
	const found = `{"results":[{"title":"T","image":"https://x.org/a.png","thumbnail":"https://x.org/t.png","url":"https://x.org"},{"title":"inside","image":"http://127.0.0.1/a.png","thumbnail":"http://10.0.0.1/"}]}`
	for name, c := range map[string]struct{ page, answer, want string }{
		"found":    {`<script>vqd="4-12_ab-3";</script>`, found, `{"query":"a b","total_results":1,"results":[{"title":"T","image_url":"https://x.org/a.png","thumbnail_url":"https://x.org/t.png"}],"usage_hint":"image_url is the address of an image; fetch it before you use it."}`},
		"address":  {`x?vqd=4-12_ab-3&a=1`, `{"results":[]}`, `{"error":"No images found","query":"a b"}`},
		"no token": {`<form id="challenge"></form>`, found, `{"error":"duckduckgo limits searches by programs, or its page of 28 bytes has another form than before (no token in it); try later, or use deerflow.community.serper.tools:image_search_tool with a key of serper.dev","query":"a b"}`},
		"page":     {`vqd='4-12_ab-3'`, `<html>`, `{"error":"duckduckgo limits searches by programs, or its answer of 6 bytes has another form than before (invalid character '<' looking for beginning of value); try later, or use deerflow.community.serper.tools:image_search_tool with a key of serper.dev","query":"a b"}`},
		"refused":  {`vqd='4-12_ab-3'`, "403", `{"error":"duckduckgo answers 403: ","query":"a b"}`},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch q := r.URL.Query(); {
			case q.Get("q") != "a b":
				w.WriteHeader(http.StatusBadRequest)
			case r.URL.Path == "/":
				fmt.Fprint(w, c.page)
			case r.URL.Path != "/i.js" || q.Get("vqd") != "4-12_ab-3" || q.Get("o") != "json" || r.Referer() == "":
				w.WriteHeader(http.StatusTeapot)
			case c.answer == "403":
				w.WriteHeader(http.StatusForbidden)
			default:
				fmt.Fprint(w, c.answer)
			}
		}))
		out, err := tool.ImageSearch(tool.Web{Provider: "duckduckgo", URL: srv.URL}).Run(t.Context(), message.ToolCall{ID: "c", Args: json.RawMessage(`{"query":"a b"}`)})
		srv.Close()
		require.NoError(t, err, name)
		require.JSONEq(t, c.want, out.(string), name)
	}
}

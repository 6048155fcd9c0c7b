package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"understudy/deerflow/sandbox"
	"understudy/graph/agent"
	"understudy/graph/pregel"
	"understudy/internal/address"
)

const (
	maxQuery  = 500 // characters
	maxPicked = 10  // images of a search
)

// picture is a result of a search for images.
type picture struct {
	Title     string `json:"title"`
	URL       string `json:"image_url"`
	Thumbnail string `json:"thumbnail_url"`
}

// ImageSearch returns the tool image_search, of Serper or DuckDuckGo.
func ImageSearch(w Web) agent.Tool {
	type args struct {
		Query string `json:"query"`
		Max   int    `json:"max_results"`
	}
	return agent.Tool{
		Name: "image_search", Description: "Searches the web for images, for example as references before you make one. It returns their addresses.",
		Schema: schema(arg{"query", text, "Words to search for, as exact as possible.", false}, arg{"max_results", integerOrNull, "At most 10; 5 if left out.", true}),
		Run: noSandbox(func(ctx context.Context, a args) (any, error) {
			query := sandbox.Head(strings.TrimSpace(a.Query), maxQuery)
			most := orInt(w.Results, orInt(a.Max, webResults))
			if most < 1 || most > maxPicked {
				most = maxPicked
			}
			list, err := w.pictures(ctx, query, most)
			switch {
			case err != nil && ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case err != nil:
				pregel.LogOf(ctx).Info("web tool failed", "error", err)
				return resultJSON(map[string]any{"error": sandbox.Head(sandbox.Clean(err.Error()), 500), "query": query})
			case len(list) == 0:
				return resultJSON(map[string]any{"error": "No images found", "query": query})
			}
			return resultJSON(struct {
				Query   string    `json:"query"`
				Total   int       `json:"total_results"`
				Results []picture `json:"results"`
				Hint    string    `json:"usage_hint"`
			}{query, len(list), list, "image_url is the address of an image; fetch it before you use it."})
		}),
	}
}

func resultJSON(v any) (any, error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	return sandbox.Clean(string(raw)), err
}

// pictures returns images with public addresses.
func (w Web) pictures(ctx context.Context, query string, most int) ([]picture, error) {
	search := serperImages
	if w.Provider == "duckduckgo" {
		search = duckDuckGoImages
	}
	found, err := search(ctx, w, query, most)
	if err != nil {
		return nil, err
	}
	var list []picture
	for _, r := range found {
		p := picture{r.Title, public(r.URL), public(r.Thumbnail)}
		if r.URL == "" {
			p.URL = p.Thumbnail
		}
		if r.Thumbnail == "" {
			p.Thumbnail = p.URL
		}
		if p.URL != "" || p.Thumbnail != "" {
			list = append(list, p)
		}
	}
	return list[:min(len(list), most)], nil
}

func serperImages(ctx context.Context, w Web, query string, most int) (list []picture, err error) {
	var got struct {
		Images []struct {
			Title     string `json:"title"`
			URL       string `json:"imageUrl"`
			Thumbnail string `json:"thumbnailUrl"`
		} `json:"images"`
	}
	err = w.post(ctx, "/images", map[string]any{"q": query, "num": most}, &got)
	for _, r := range got.Images {
		list = append(list, picture(r))
	}
	return list, err
}

// searchToken finds what DuckDuckGo's page of a search gives to its own script, which asks for the images with it.
var searchToken = regexp.MustCompile(`vqd=["']?([\w-]+)`)

// duckDuckGoImages searches as the script of DuckDuckGo's page does.
func duckDuckGoImages(ctx context.Context, w Web, query string, _ int) (list []picture, err error) {
	w.URL = cmp.Or(w.URL, "https://duckduckgo.com")
	ask := func(path string, q url.Values) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base()+path+"?"+q.Encode(), nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("User-Agent", browser)
		r.Header.Set("Referer", w.base()+"/")
		return w.send(r)
	}
	page, err := ask("/", url.Values{"q": {query}, "iax": {"images"}, "ia": {"images"}})
	if err != nil {
		return nil, err
	}
	token := searchToken.FindSubmatch(page)
	if token == nil {
		return nil, limited("its page", page, errors.New("no token in it"))
	}
	raw, err := ask("/i.js", url.Values{"q": {query}, "vqd": {string(token[1])}, "l": {"wt-wt"}, "o": {"json"}, "p": {"1"}, "f": {",,,,,"}})
	if err != nil {
		return nil, err
	}
	var got struct {
		Results []struct {
			Title     string `json:"title"`
			URL       string `json:"image"`
			Thumbnail string `json:"thumbnail"`
		} `json:"results"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return nil, limited("its answer", raw, err)
	}
	for _, r := range got.Results {
		list = append(list, picture(r))
	}
	return list, nil
}

// limited is the error of an answer of DuckDuckGo without what a search needs: a page for a person, or a form that is not known here.
func limited(what string, answer []byte, cause error) error {
	return fmt.Errorf("duckduckgo limits searches by programs, or %s of %d bytes has another form than before (%w); try later, or use deerflow.community.serper.tools:image_search_tool with a key of serper.dev", what, len(answer), cause)
}

// public returns an address of the web; "" for one that names a private network. A name may still lead into one, which is for the download to check.
func public(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return ""
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return ""
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && !(address.Rules{RefusePrivate: true}).Allow(ip):
		return ""
	case err != nil && (last == "" || last[0] >= '0' && last[0] <= '9'): // a number in another notation, such as 0x7f000001: no name ends in one
		return ""
	}
	return u.String()
}

package server

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/components"
)

// Graphs have no components here: what asks for them learns it as from LangGraph Server, and a missing asset is no fault of the server.
func TestNoUI(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, request := range []string{"POST /ui/a%20b", "GET /ui/a%20b/entry.js", "POST /ui/%3Cscript%3E"} {
		method, path, _ := strings.Cut(request, " ")
		res, body := w.ask(t, method, path, "")
		require.Equal(t, 404, res.StatusCode)
		require.Contains(t, body, "UI not found for graph '")
		require.Equal(t, "text/plain; charset=utf-8", res.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
	}
	disabled := setup(t, func(o *Options) { o.Disable.UI = true })
	res, body := disabled.ask(t, "POST", "/ui/a", "")
	require.Equal(t, 404, res.StatusCode)
	require.NotContains(t, body, "UI not found")
}

type fakeComponents map[string]*components.Bundle

func (f fakeComponents) Bundle(_ context.Context, graph string) (*components.Bundle, error) {
	return f[graph], nil
}

func TestComponents(t *testing.T) {
	t.Parallel()
	bundle := &components.Bundle{Global: "__LGUI_a_b", Names: []string{"entrypoint.js", "entrypoint.css"}, Assets: map[string]components.Asset{
		"entrypoint.js":  {Type: "text/javascript; charset=utf-8", Body: []byte("plain"), Gzip: []byte("packed"), Tag: `"one"`},
		"entrypoint.css": {Type: "text/css; charset=utf-8", Body: []byte("style"), Tag: `"two"`},
	}}
	w := setup(t, func(o *Options) { o.Components, o.MountPrefix = fakeComponents{"a b": bundle}, "/pre" })
	const path = "/pre/ui/a%20b"
	tags := func(base string) string {
		return `<script src="` + base + `/ui/a%20b/entrypoint.js" onload='__LGUI_a_b.render(&quot;x&#x27;&lt;&quot;, "{{shadowRootId}}")'></script>` +
			"\n" + `<link rel="stylesheet" href="` + base + `/ui/a%20b/entrypoint.css" />`
	}
	for site, base := range map[string]string{"": "/pre", "same-origin": "/pre", "none": "/pre", "same-site": "//" + w.addr + "/pre", "cross-site": "//" + w.addr + "/pre"} {
		res, body := w.ask(t, "POST", path, `{"name": "x'<"}`, "Sec-Fetch-Site", site)
		require.Equal(t, 200, res.StatusCode, body)
		require.Equal(t, "text/html", res.Header.Get("Content-Type"))
		require.Contains(t, strings.Join(res.Header.Values("Vary"), ","), "Sec-Fetch-Site")
		require.Equal(t, tags(base), body, site)
	}
	for _, bad := range []string{"", "x", "[]", "{}", `{"name": 3}`, `{"name": null}`} {
		res, body := w.ask(t, "POST", path, bad)
		require.Equal(t, 422, res.StatusCode, bad)
		require.Contains(t, body, "detail")
	}
	res, body := w.ask(t, "GET", path+"/entrypoint.js", "")
	require.Equal(t, "plain", body)
	require.Equal(t, `"one"`, res.Header.Get("ETag"))
	require.Equal(t, "no-cache", res.Header.Get("Cache-Control"))
	res, body = w.ask(t, "GET", path+"/entrypoint.js", "", "Accept-Encoding", "gzip")
	require.Equal(t, "gzip", res.Header.Get("Content-Encoding"))
	require.Equal(t, "packed", body)
	for _, known := range []string{`"one"`, `W/"one"`, `"zero", "one"`, "*"} {
		res, body = w.ask(t, "GET", path+"/entrypoint.js", "", "If-None-Match", known)
		require.Equal(t, 304, res.StatusCode, known)
		require.Empty(t, body)
	}
	for _, none := range []string{path, path + "/none", path + "/..%2fx", "/pre/ui/b/entrypoint.js", "/ui/a%20b/entrypoint.js"} {
		res, _ = w.ask(t, "GET", none, "")
		require.Equal(t, 404, res.StatusCode, none)
	}
}

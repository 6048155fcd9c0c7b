package docsite_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"understudy/docs"
	"understudy/internal/docsite"
)

func build(t *testing.T, live bool) docsite.Site {
	s, err := docsite.Build(docsite.Options{Docs: docs.Files, OpenAPI: []byte(`{"openapi":"3.1.0"}`), Version: "1.2.3", Live: live})
	require.NoError(t, err)
	return s
}

// Every link and every anchor of the documentation leads somewhere within the site.
func TestLinks(t *testing.T) {
	t.Parallel()
	s := build(t, true)
	anchors := map[string]map[string]bool{}
	for name, f := range s {
		anchors[name] = map[string]bool{"": true}
		if strings.HasPrefix(f.Type, "text/html") {
			for _, id := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(string(f.Body), -1) {
				anchors[name][id[1]] = true
			}
		}
	}
	links := 0
	for name, f := range s {
		if !strings.HasPrefix(f.Type, "text/html") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(string(f.Body), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "data:") || m[1] == "../openapi.json" {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			if to == "" {
				to = name
			}
			links++
			require.Contains(t, s, to, "%s links to %s", name, m[1])
			require.True(t, anchors[to][anchor], "%s links to %s", name, m[1])
		}
	}
	require.Greater(t, links, 500)
}

// The search finds every section, and leads to it.
func TestSearchIndex(t *testing.T) {
	t.Parallel()
	s := build(t, true)
	text := strings.TrimSuffix(strings.TrimPrefix(string(s["search-index.js"].Body), "window.searchIndex = "), ";\n")
	var index []struct{ Page, Title, Head, Text string }
	require.NoError(t, json.Unmarshal([]byte(text), &index))
	found := map[string]string{}
	for _, e := range index {
		require.NotEmpty(t, e.Title, e.Page)
		found[e.Page] = e.Text
	}
	for name, f := range s {
		for _, m := range regexp.MustCompile(`<h[2-6] id="([^"]+)"`).FindAllStringSubmatch(string(f.Body), -1) {
			require.Contains(t, found, name+"#"+m[1])
		}
	}
	require.Contains(t, found["overlay.html"], "A summarizer (LangChain's SummarizationMiddleware, langmem")
	require.Contains(t, found["moving.html"], "understudy import --from checkpoints.sqlite")
}

// A site in a folder needs no server: nothing is fetched, and all of it is there.
func TestWrite(t *testing.T) {
	t.Parallel()
	s, dir := build(t, false), filepath.Join(t.TempDir(), "a", "site")
	require.NoError(t, s.Write(dir))
	api, err := os.ReadFile(filepath.Join(dir, "api.html"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"#]*)"`).FindAllStringSubmatch(string(api), -1) {
		if !strings.HasPrefix(m[1], "data:") {
			require.FileExists(t, filepath.Join(dir, m[1]))
		}
	}
	description, err := os.ReadFile(filepath.Join(dir, "openapi.js"))
	require.NoError(t, err)
	require.Equal(t, "window.openapi = {\"openapi\":\"3.1.0\"};\n", string(description))
	script, err := os.ReadFile(filepath.Join(dir, "swagger-ui-bundle.js"))
	require.NoError(t, err)
	require.Contains(t, string(script), "SwaggerUIBundle")
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	page := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for want, files := range map[string]fstest.MapFS{
		"there is no README.md":                      {"a.md": page("# A")},
		"README.md has no link to a.md":              {"README.md": page("# Docs\n\n## Start\n"), "a.md": page("# A")},
		"a.md: it has no heading of the first level": {"README.md": page("# Docs"), "a.md": page("A")},
	} {
		_, err := docsite.Build(docsite.Options{Docs: files})
		require.EqualError(t, err, want)
	}
	// Links to files of the repository that are no pages become text; scripts in an index do not end it.
	s, err := docsite.Build(docsite.Options{Docs: fstest.MapFS{"README.md": page("# Docs\n\nSee [the *code*](../main.go) and [more](https://example.com).\n\n    </script><script>alert(1)\n")}})
	require.NoError(t, err)
	require.Contains(t, string(s["index.html"].Body), `See the <em>code</em> and <a href="https://example.com">more</a>.`)
	require.NotContains(t, string(s["search-index.js"].Body), "</script>")
}

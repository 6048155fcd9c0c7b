package serverurl

import (
	"cmp"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://127.0.0.1:2024":       "http://127.0.0.1:2024",
		" HTTP://Host.example:1/Ab/ ": "http://host.example:1/Ab",
		"https://example.com///":      "https://example.com",
		"localhost:2024":              "http://localhost:2024",
		"localhost:2024/prefix/":      "http://localhost:2024/prefix",
		"example.com:443":             "https://example.com:443",
		":2024":                       "http://127.0.0.1:2024",
		"0.0.0.0:2024":                "http://0.0.0.0:2024",
		"http://[::]:2024":            "http://[::]:2024",
		"http://[2001:DB8::1]":        "http://[2001:db8::1]",
		"http://u:p@h/x":              "http://u:p@h/x",
		"http://h/%2Fa/":              "http://h/%2Fa",
		"http://h:1/docs":             "http://h:1",
		"http://h:1/docs#/Threads":    "http://h:1",
		"http://h:1/docs/":            "http://h:1",
		"http://h:1/docs/python.html": "http://h:1",
		"http://h:1/a/docs":           "http://h:1/a",
		"http://h:1/studio/r/a-b":     "http://h:1",
		"http://h/docs/agents":        "http://h/docs/agents",
		"http://h/docs/studio/x":      "http://h/docs/studio/x",
		"https://gw/studio/api":       "https://gw/studio/api",
		"https://gw/openapi.json/a/":  "https://gw/openapi.json/a",
		"https://gw/mystudio":         "https://gw/mystudio",
		"http://h:1/openapi.json":     "http://h:1",
		"http://h:1/%2Fa/studio/":     "http://h:1/%2Fa",
		"h:1/a/studio/compare?a=x&b":  "http://h:1/a",
		"http://h:1/#/threads":        "http://h:1",
		"https://smith.langchain.com/studio/?baseUrl=http://127.0.0.1:2024":                       "http://127.0.0.1:2024",
		"https://smith.langchain.com/studio/thread?x=1&baseUrl=http%3A%2F%2F127.0.0.1%3A2024%2Fp": "http://127.0.0.1:2024/p",
		"smith.example:443/studio/?baseUrl=localhost:1/docs":                                      "http://localhost:1",
	} {
		u, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, u.String(), text)
		again, err := Parse(u.String())
		require.NoError(t, err, text)
		require.Equal(t, u, again, text)
	}
	for text, why := range map[string]string{
		"":                              "it is empty",
		"nonsense":                      "neither http:// nor a port",
		"127.0.0.1":                     "neither http:// nor a port",
		"http:/h":                       "two slashes are missing",
		"HTTPS:h":                       "two slashes are missing",
		"ftp://h":                       "ftp:// is not http:// or https://",
		"ws://h:1":                      "ws:// is not http:// or https://",
		"http://":                       "it has no host",
		"http:///docs":                  "it has no host",
		"http://h:x":                    "its port is not a number",
		"h:x":                           "its port is not a number",
		`C:\data`:                       `its port is not a number`,
		"http://h:0":                    "port 0 is any free one",
		"h:65536":                       "65536 is no port",
		"http://%zz":                    "invalid URL escape",
		"http://a b":                    "invalid character",
		"http://h/?a":                   "it has a query",
		"http://h?":                     "it has a query",
		"https://x/?baseUrl=ftp://h":    "ftp:// is not",
		"https://x/?baseUrl=h:1/?c=d":   "it has a query",
		"https://x/?baseUrl=y?baseUrl=": "neither http:// nor a port",
	} {
		_, err := Parse(text)
		require.ErrorAs(t, err, new(*Error), text)
		require.ErrorContains(t, err, why, text)
		require.ErrorContains(t, err, "; write one such as http://127.0.0.1:2024", text)
	}
	_, err := Parse("http://me:secret@h?x")
	require.ErrorContains(t, err, "the address is no URL of a server")
	require.NotContains(t, err.Error(), "secret")
}

// Addresses of a configuration keep their paths, except those of files and what LangGraph's Studio names.
func TestParseBase(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://h/docs": "http://h/docs", "http://h/docs/": "http://h/docs", "https://gw/a/studio": "https://gw/a/studio", "https://gw/studio/runs": "https://gw/studio/runs",
		"http://h/a/openapi.json": "http://h/a", "http://h/docs/docs/api.html": "http://h/docs", "https://x/studio/?baseUrl=http://h/docs": "http://h/docs",
	} {
		u, err := ParseBase(text)
		require.NoError(t, err, text)
		require.Equal(t, want, u.String(), text)
	}
	_, err := ParseBase("http://h/studio/compare?a=x")
	require.ErrorContains(t, err, "it has a query")
}

// Every page of the studio can be pasted.
func TestPagesOfTheStudio(t *testing.T) {
	t.Parallel()
	app, err := os.ReadFile("../../ui/src/app.tsx")
	require.NoError(t, err)
	var paths []string
	for _, m := range regexp.MustCompile(`path="(/[^"]*)"|\["(\w+)", \w+Page\]`).FindAllStringSubmatch(string(app), -1) {
		path := cmp.Or(m[1], "/"+strings.ToLower(m[2]))
		paths = append(paths, regexp.MustCompile(`:\w+\??`).ReplaceAllString(path, "x"))
		if before, ok := strings.CutSuffix(path, "/:id?"); ok {
			paths = append(paths, before)
		}
	}
	require.Subset(t, paths, []string{"/", "/t/x", "/graphs", "/graphs/x", "/compare", "/usage", "/health"})
	for _, path := range paths {
		u, err := Parse("http://h/prefix/studio" + path)
		require.NoError(t, err)
		require.Equal(t, "http://h/prefix", u.String(), path)
	}
}

// Errors show at most the host of an address with a query, a fragment or credentials.
func TestErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	for text, shown := range map[string]string{
		"https://h/?key=sk-secret": `"https://h/…" is no URL`, "https://h:1/sk-secret?x": `"https://h:1/…" is no URL`, "ftp://h/#sk-secret": `"ftp://h/…" is no URL`, "h/?sk-secret": "the address is no URL",
		"http://12?sk-secret@h": "the address is no URL", "http://sk-secret@h?": "the address is no URL", "http://h:sk?sk-secret": "the address is no URL", "https://h/?baseUrl=ftp://sk-secret": `"https://h/…" is no URL`,
	} {
		for _, parse := range []func(string) (*url.URL, error){Parse, ParseBase} {
			_, err := parse(text)
			require.ErrorContains(t, err, shown, text)
			require.NotContains(t, err.Error(), "sk-secret", text)
		}
	}
}

// What Parse returns is an address that requests can be sent to, and reads as itself.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"localhost:1", "http://[::]:1/docs", "https://x/studio/?baseUrl=http%3A%2F%2Fh", "http://h/%2F/studio", "a:b@c:1", "http://[fe80::1%25en0]:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Parse(text)
		if err != nil {
			require.ErrorAs(t, err, new(*Error))
			return
		}
		require.Contains(t, []string{"http", "https"}, u.Scheme)
		require.NotEmpty(t, u.Hostname())
		require.False(t, strings.HasSuffix(u.String(), "/"), u)
		require.Empty(t, u.RawQuery+u.Fragment)
		again, err := Parse(u.String())
		require.NoError(t, err, u)
		require.True(t, strings.HasPrefix(u.String(), again.String()), u) // shorter if a mount prefix is named as a page
		_, err = url.Parse(u.String() + "/threads")
		require.NoError(t, err)
	})
}

package serverurl

import (
	"net/url"
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
		"http://h:1/docs/python":      "http://h:1",
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
		require.Equal(t, u.String(), again.String())
		_, err = url.Parse(u.String() + "/threads")
		require.NoError(t, err)
	})
}

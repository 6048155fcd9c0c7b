package server

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/internal/address"
)

// The client is the peer, or behind trusted proxies the last one that is not theirs, whatever the client wrote itself.
func TestClientBehindProxies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		trusted string
		headers []string
		want    string
	}{
		"no proxy":                {"", []string{"203.0.113.7"}, "127.0.0.1"},
		"another proxy":           {"10.0.0.0/8", []string{"203.0.113.7"}, "127.0.0.1"},
		"one proxy":               {"127.0.0.1", []string{"203.0.113.7"}, "203.0.113.7"},
		"no header":               {"127.0.0.1", nil, "127.0.0.1"},
		"what the client wrote":   {"127.0.0.1", []string{"8.8.8.8, 1.1.1.1", "203.0.113.7"}, "203.0.113.7"},
		"two proxies":             {"127.0.0.0/8,10.0.0.0/8", []string{"8.8.8.8, 203.0.113.7, 10.1.2.3"}, "203.0.113.7"},
		"a client of the network": {"127.0.0.1 10.0.0.0/8", []string{"10.9.9.9, 10.1.2.3"}, "10.9.9.9"},
		"no address":              {"127.0.0.1", []string{"8.8.8.8, unknown"}, "127.0.0.1"},
		"no address behind":       {"127.0.0.1,10.0.0.0/8", []string{"8.8.8.8, unknown, 10.1.2.3"}, "10.1.2.3"},
		"with a port":             {"127.0.0.1", []string{"203.0.113.7:4711"}, "203.0.113.7"},
		"IPv6":                    {"::ffff:127.0.0.1,127.0.0.1", []string{"[2001:db8::7]:1"}, "2001:db8::7"},
		"mapped":                  {"127.0.0.1", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
		"empty":                   {"127.0.0.1", []string{"", ","}, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			networks, err := address.Networks(tt.trusted)
			require.NoError(t, err)
			by := &clients{}
			w := setup(t, func(o *Options) { o.Authenticator, o.TrustedProxies = by, networks })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.addr+"/threads/x", nil)
			require.NoError(t, err)
			req.Header["X-Forwarded-For"] = tt.headers
			resp, err := w.http.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 401, resp.StatusCode)
			require.Equal(t, tt.want, host(by.last))
		})
	}
	_, err := address.Networks("10.0.0.0/8,proxy.example")
	require.ErrorContains(t, err, `"proxy.example" is neither`)
}

// What any peer writes about who and where it is counts on no route, in none of the headers that proxies use; what a trusted proxy writes does.
func TestSpoofedForwarding(t *testing.T) {
	t.Parallel()
	spoofed := []string{
		"X-Forwarded-Proto", "https", "X-Forwarded-Protocol", "https", "X-Forwarded-Ssl", "on", "X-Url-Scheme", "https", "X-Forwarded-Host", "evil.example", "X-Forwarded-For", "203.0.113.7",
		"X-Real-Ip", "203.0.113.7", "Forwarded", "for=203.0.113.7;proto=https;host=evil.example",
	}
	networks, err := address.Networks("127.0.0.1")
	require.NoError(t, err)
	for _, trusted := range []bool{false, true} {
		by := &clients{}
		change := func(o *Options) {
			if trusted {
				o.TrustedProxies = networks
			}
		}
		w := setup(t, change)
		for _, route := range []string{"/a2a/" + someID, "/a2a/" + someID + "/.well-known/agent-card.json", "/.well-known/agent-card.json?assistant_id=" + someID} {
			want := "http://" + w.addr
			if trusted {
				want = "https://evil.example"
			}
			_, body := w.ask(t, "GET", route, "", spoofed...)
			require.Equal(t, want+"/a2a/"+someID, gjson.Get(body, "url").Str, route)
		}
		guarded := setup(t, change, func(o *Options) { o.Authenticator = by })
		for method, routes := range map[string][]string{
			"GET":  {"/threads/x", "/threads/x/stream", "/assistants/x", "/runs/crons/x", "/store/items", "/a2a/" + someID, "/nowhere"},
			"POST": {"/threads", "/runs/wait", "/runs/stream", "/mcp", "/a2a/" + someID, "/v1/chat/completions", "/threads/search", "/store/items/search"},
		} {
			for _, route := range routes {
				by.request = access.Request{}
				guarded.ask(t, method, route, "", spoofed...)
				r := by.request
				if trusted {
					require.Equal(t, []any{"https", "evil.example", true, "203.0.113.7:0"}, []any{r.Scheme, r.Host, r.Secure, r.Client}, route)
				} else {
					require.Equal(t, []any{"http", guarded.addr, false, "127.0.0.1"}, []any{r.Scheme, r.Host, r.Secure, host(r.Client)}, route)
				}
			}
		}
	}
}

// clients refuses everyone and notes from where they came.
type clients struct {
	last    string
	request access.Request
}

func (x *clients) Authenticate(_ context.Context, r *access.Request) (*access.Actor, error) {
	x.last, x.request = r.Client, *r
	return nil, errTwoCredentials
}

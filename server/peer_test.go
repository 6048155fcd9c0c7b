package server

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

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

// clients refuses everyone and notes from where they came.
type clients struct{ last string }

func (x *clients) Authenticate(_ context.Context, r *access.Request) (*access.Actor, error) {
	x.last = r.Client
	return nil, errTwoCredentials
}

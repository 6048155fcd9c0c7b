package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGuardedByAGateway: an upstream behind a gateway that sends to a login is none that is open to everybody.
func TestGuardedByAGateway(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"unauthorized": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"redirect":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) },
		"page":         func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>Log in</html>")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(answer)
			defer srv.Close()
			u, err := url.Parse(srv.URL)
			require.NoError(t, err)
			up := NewUpstream(u, 0)
			defer up.transport.CloseIdleConnections()
			o := NewOffline(up, "")
			_, err = o.Check(t.Context())
			require.ErrorIs(t, err, ErrGuarded)
			require.False(t, o.open(&exchange{in: httptest.NewRequest(http.MethodGet, "/threads", nil)}))
		})
	}
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]bool{"/?limit=1": true, "/": true, "/?token=x": false, "/?token=x;y": false, "/?limit=1&%zz": false} {
		require.Equal(t, want, anonymous(httptest.NewRequest(http.MethodGet, target, nil)), target)
	}
}

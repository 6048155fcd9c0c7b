package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asHost sends a request with a Host header, and with a WebSocket's handshake if it upgrades.
func asHost(t *testing.T, w *world, method, path, host string, upgrade bool) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer conn.Close()
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, host)
	if host != "" { // the page's origin is that of the server
		request += "Origin: http://" + host + "\r\n"
	}
	if upgrade {
		request += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	if method == "OPTIONS" {
		request += "Access-Control-Request-Method: POST\r\n"
	}
	_, err = io.WriteString(conn, request+"\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols {
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		body = string(b)
	}
	return res.StatusCode, body
}

// Only requests for names of this machine, or for allowed ones, are answered: HTTP, preflights, the studio and WebSockets alike. Probes always are.
func TestHosts(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) {
		o.CheckHost, o.Studio, o.MountPrefix = true, true, "/mounted"
		o.AllowedHosts = []string{"dev.example", "*.tunnel.example"}
		o.CORS = CORS{AllowOrigins: []string{"https://app.example", "http://port.example:8080"}, AllowOriginRegex: regexp.MustCompile(`https://.*\.good\.example`)}
	})
	good := []string{
		"localhost", "LocalHost:2024", "localhost.", "app.localhost:1", "127.0.0.1:2024", "127.8.9.10", "[::1]", "[::1]:2024", "192.168.1.5:80", "host.docker.internal:2024",
		"host.containers.internal", "dev.example", "DEV.example:99", "a.tunnel.example", "a.b.tunnel.example:443", "app.example", "port.example:8080", "x.good.example", "",
	}
	bad := []string{
		"evil.example", "evil.example:2024", "localhost.evil.example", "127.0.0.1.evil.example", "evillocalhost", "notdev.example", "dev.example.evil.example", "tunnel.example",
		"eviltunnel.example", "app.example:8443", "port.example", "good.example", "x.good.example.evil.example", "127.0.0.1@evil.example", "1.evil.example:80", "internal",
		strings.Repeat("a", 3000) + ".example",
	}
	for _, host := range append(good, bad...) {
		allowed := slices.Contains(good, host)
		for _, request := range []struct {
			method, path string
			upgrade      bool
		}{
			{"GET", "/info", false},
			{"GET", "/mounted/info", false},
			{"GET", "/mounted/studio/", false},
			{"GET", "/nowhere", false},
			{"OPTIONS", "/mounted/threads", false},
			{"GET", "/metrics", false},
			{"GET", "/mounted" + protocolPath + "/stream/events", true},
		} {
			status, body := asHost(t, w, request.method, request.path, host, request.upgrade)
			if allowed && request.upgrade {
				require.Equal(t, 101, status, "%s: %s", host, body)
			} else if allowed {
				require.NotEqual(t, 403, status, "%s %s: %s", host, request.path, body)
			} else {
				require.Equal(t, 403, status, "%s %s %s", host, request.method, request.path)
				require.Contains(t, body, "--allowed-hosts")
				require.Less(t, len(body), 500)
			}
		}
		for _, path := range []string{"/ok", "/livez", "/mounted/readyz"} {
			status, _ := asHost(t, w, "GET", path, host, false)
			require.Equal(t, 200, status, "%s %s", host, path)
		}
	}
}

// Nothing is refused without the check or with *; allowing every origin does not allow every host.
func TestHostsUnchecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		with func(*Options)
		want int
	}{
		"unchecked":             {func(*Options) {}, 200},
		"all":                   {func(o *Options) { o.CheckHost, o.AllowedHosts = true, []string{"*"} }, 200},
		"no list":               {func(o *Options) { o.CheckHost = true }, 403},
		"pages of every origin": {func(o *Options) { o.CheckHost, o.CORS = true, CORS{AllowOrigins: []string{"*"}} }, 403},
	} {
		status, _ := asHost(t, setup(t, tt.with), "GET", "/info", "evil.example", false)
		require.Equal(t, tt.want, status, name)
	}
}

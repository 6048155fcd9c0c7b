package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	status, asked := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"ready":true}`))
	}))
	defer server.Close()
	out, err := execute(t, "health", "--url", server.URL)
	require.NoError(t, err)
	require.Equal(t, "{\"ready\":true}\n", out)
	for args, want := range map[string]string{
		"": "/readyz", "/": "/readyz", "/my-api": "/my-api/readyz", "/understudy/": "/understudy/readyz",
		"/understudy/readyz": "/understudy/readyz", "/readyz/": "/readyz", "/ok?check_db=1": "/ok?check_db=1",
		" --live": "/livez", "/understudy --live": "/understudy/livez", "/livez --live": "/livez",
	} {
		_, err = execute(t, append([]string{"health", "--url"}, strings.Fields(server.URL+args)...)...)
		require.NoError(t, err, args)
		require.Equal(t, want, asked, args)
	}
	status = http.StatusServiceUnavailable
	_, err = execute(t, "health", "--url", server.URL)
	require.ErrorContains(t, err, "not ready")
	status = http.StatusNotFound
	out, err = execute(t, "health", "--url", server.URL+"/else")
	require.EqualError(t, err, server.URL+"/else/readyz answered 404 Not Found: see that the URL is that of a server, worker or proxy of understudy")
	require.Empty(t, out)
	server.Close()
	_, err = execute(t, "health", "--url", server.URL)
	require.EqualError(t, err, "nothing listens on "+strings.TrimPrefix(server.URL, "http://")+"; start a server, or name yours with --url")
}

func TestHealthMistakes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--url http://%zz":                     "is no URL of a server",
		"--url nonsense":                       `"nonsense" is no URL of a server: it has neither http:// nor a port; write one such as http://127.0.0.1:2024`,
		"--url localhost":                      "it has neither http:// nor a port",
		"--url http://127.0.0.1:0":             "port 0 is any free one",
		"--url http://127.0.0.1/readyz --live": "leave out one of them",
		"--timeout 3":                          "write a time with its unit, such as 3s",
		"--timeout -3s":                        "write a time with its unit, such as 3s",
	} {
		_, err := execute(t, append([]string{"health"}, strings.Fields(args)...)...)
		require.ErrorAs(t, err, new(usageError), args)
		require.ErrorContains(t, err, want, args)
	}
}

// A server that says nothing is one that does not answer.
func TestHealthTimeout(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, err = execute(t, "health", "--timeout", "50ms", "--url", "http://"+ln.Addr().String())
	require.EqualError(t, err, "http://"+ln.Addr().String()+"/readyz: no answer within 50ms; see that the address is right (--url), or wait longer (--timeout)")
}

// An image has the variables of servers and of workers, and runs one of them.
func TestHealthAddresses(t *testing.T) {
	t.Parallel()
	of := func(env map[string]string) []string {
		return healthAddresses(func(name string) string { return env[name] })
	}
	require.Equal(t, []string{"http://127.0.0.1:2024"}, of(nil))
	require.Equal(t, []string{"http://127.0.0.1:9000", "http://127.0.0.1:8000"},
		of(map[string]string{"UNDERSTUDY_HOST": "0.0.0.0", "UNDERSTUDY_HEALTH_PORT": "9000", "UNDERSTUDY_PORT": "8000"}))
	require.Equal(t, []string{"http://[::1]:2024"}, of(map[string]string{"UNDERSTUDY_HOST": "::1"}))

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	defer server.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	var out bytes.Buffer
	require.NoError(t, askHealth(t.Context(), http.DefaultClient, []string{gone.URL, server.URL}, false, &out))
	require.Equal(t, "here\n", out.String())
	place := strings.TrimPrefix(gone.URL, "http://")
	require.EqualError(t, askHealth(t.Context(), http.DefaultClient, []string{gone.URL, gone.URL}, false, &out), "nothing listens on "+place+" and "+place+"; start a server, or name yours with --url")
}

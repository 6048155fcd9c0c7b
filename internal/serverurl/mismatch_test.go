package serverurl_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/serverurl"
)

// speaks listens and answers each connection with some bytes.
func speaks(t *testing.T, answer string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<10))
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { require.NoError(t, l.Close()); <-ended })
	return l.Addr().String()
}

// What listens with another protocol than the address says is recognized, for each kind of server; others are left alone.
func TestMismatch(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	bad := func(body string) string { return "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + body }
	for url, want := range map[string]string{
		plain.URL: "",
		strings.Replace(plain.URL, "http://", "https://", 1):                                            "write http:// in place of https://",
		strings.Replace(secure.URL, "https://", "http://", 1):                                           "write https:// in place of http://",
		"http://" + speaks(t, bad("<center>The plain HTTP request was sent to HTTPS port</center>")):    "write https:// in place of http://",
		"http://" + speaks(t, bad("You're speaking plain HTTP to an SSL-enabled server port.")):         "write https:// in place of http://",
		"http://" + speaks(t, bad("This port has TLS, and the client speaks plain HTTP: use https://")): "write https:// in place of http://",
		"http://" + speaks(t, "\x15\x03\x01\x00\x02\x02\x46"):                                           "write https:// in place of http://",
		"http://" + speaks(t, bad(`{"detail":"no"}`)):                                                   "",
		"http://" + speaks(t, "-ERR unknown command\r\n"):                                               "does not speak HTTP",
		"https://" + speaks(t, "-ERR unknown command\r\n"):                                              "does not speak TLS",
		"http://" + speaks(t, ""):                                                                       "closed the connection without an answer",
		"http://127.0.0.1:1":                                                                            "",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		require.NoError(t, err)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Do(req)
		got := serverurl.Mismatch(err)
		if err == nil {
			body, _ := io.ReadAll(res.Body)
			require.NoError(t, res.Body.Close())
			got = serverurl.MismatchOf(res.StatusCode, body)
		}
		if want == "" {
			require.Empty(t, got, url)
			continue
		}
		require.Contains(t, got, want, "%s: %v", url, err)
	}
}

package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/certstest"
	"understudy/internal/config"
)

// secured starts a server with TLS. clients is whether they need certificates.
func secured(t *testing.T, began chan struct{}, clients bool) (*Server, *certstest.CA) {
	t.Helper()
	ca := certstest.New(t)
	cert, key := ca.Issue(t, "server", time.Now().Add(60*24*time.Hour))
	files := certstest.Files(t, cert, key, ca.PEM)
	flags := map[string]string{"port": "0", "data": t.TempDir(), "tls-cert": files[0], "tls-key": files[1], "synchronous": "normal"}
	if clients {
		flags["tls-client-ca"] = files[2]
	}
	return start(t, config.Serve, stepping(t, began, &atomic.Bool{}), flags), ca
}

// client returns one whose connections are closed with the test.
func client(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 1)
	s, ca := secured(t, began, false)
	base := "https://" + s.Addr().String()
	c := client(t, ca.Client(t, nil, nil))
	post := func(ctx context.Context, path, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	text := func(resp *http.Response) string {
		t.Helper()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(b)
	}

	for range 3 { // on one connection
		resp := post(t.Context(), "/runs/wait", `{"assistant_id":"steps","input":{"do":"","pad":"`+strings.Repeat("x", 100_000)+`"}}`)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Contains(t, text(resp), `"second"`)
	}
	require.Contains(t, text(post(t.Context(), "/runs/stream", `{"assistant_id":"steps","input":{"do":""}}`)), "event: values")

	resp, err := c.Get(base + "/.well-known/agent-card.json?assistant_id=" + string(id.DefaultAssistant("steps")))
	require.NoError(t, err)
	require.Contains(t, text(resp), `"`+base+"/a2a/")
	require.NoError(t, resp.Body.Close())

	// A client that leaves is noticed, although what it closes with is encrypted.
	leaving, leave := context.WithCancel(t.Context())
	stream := post(leaving, "/runs/stream", `{"assistant_id":"steps","input":{"do":"hang"},"on_disconnect":"cancel"}`)
	<-began
	run := stream.Header.Get("Content-Location")
	require.NotEmpty(t, run)
	_, err = bufio.NewReader(stream.Body).ReadString('\n')
	require.NoError(t, err)
	left := time.Now()
	leave()
	c.CloseIdleConnections()
	require.Eventually(t, func() bool { _, used := s.runs.Load(); return used == 0 }, 20*time.Second, 5*time.Millisecond)
	require.Less(t, time.Since(left), 4*time.Second, "before a heartbeat fails")

	thread := text(post(t.Context(), "/threads", `{}`))
	id := thread[strings.Index(thread, `"thread_id":"`)+13:][:36]
	dialer := ws.Dialer{TLSConfig: ca.Client(t, nil, nil)}
	conn, _, _, err := dialer.Dial(t.Context(), "wss://"+s.Addr().String()+"/threads/"+id+"/stream/events")
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	plain, err := client(t, nil).Get("http://" + s.Addr().String() + "/ok")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, plain.StatusCode)
	require.Contains(t, text(plain), "use https://")
	require.NoError(t, plain.Body.Close())
}

func TestTLSForKnownClients(t *testing.T) {
	t.Parallel()
	s, ca := secured(t, nil, true)
	base := "https://" + s.Addr().String()
	_, err := client(t, ca.Client(t, nil, nil)).Get(base + "/ok")
	require.Error(t, err)
	cert, key := ca.Issue(t, "ann", time.Now().Add(time.Hour))
	resp, err := client(t, ca.Client(t, cert, key)).Get(base + "/ok")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
}

package framing_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/framing"
	"understudy/internal/logtest"
)

// A TLS client gets an answer that its library recognizes, and the log the fix, once. Others are served.
func TestRefuseTLS(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	log := &logtest.Buffer{}
	srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() {
		ended <- srv.Serve(framing.Listen(framing.RefuseTLS(ln, slog.New(slog.NewTextHandler(log, nil)))))
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	client := &http.Client{Transport: &http.Transport{TLSHandshakeTimeout: 30 * time.Second, DisableKeepAlives: true}}
	for range 3 {
		_, err := client.Get("https://" + ln.Addr().String())
		require.ErrorContains(t, err, "server gave HTTP response to HTTPS client")
	}
	require.Equal(t, 1, strings.Count(log.String(), "a client speaks TLS to this port"))
	require.Contains(t, log.String(), "write http:// in place of https://")
	res, err := client.Get("http://" + ln.Addr().String())
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.Equal(t, 404, res.StatusCode)
}

package understudy_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy"
)

// serving runs a server until body returns, which calls it.
func serving(t *testing.T, srv *understudy.Server, body func(call func(method, path, body string) (status int, answer string))) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	body(func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+srv.Addr().String()+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(text)
	})
	stop()
	require.NoError(t, <-ended)
}

// succeeding is a call whose answer has to be a success.
func succeeding(t *testing.T, call func(method, path, body string) (int, string)) func(method, path, body string) string {
	return func(method, path, body string) string {
		t.Helper()
		status, answer := call(method, path, body)
		require.Less(t, status, 300, "%s", answer)
		return answer
	}
}

package auth_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/auth"
	"understudy/internal/logtest"
)

// A hostile or broken issuer takes neither memory nor trust: documents without an end, redirects without an end, and keys that are none are an error
// in the log, and tokens stay refused with 503.
func TestHostileIssuers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"keys":[{"kty":"oct","kid":"`)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		},
		"redirects":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) },
		"no document": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"an error":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(counted{w, &sent}, r) }))
			t.Cleanup(issuer.Close)
			var log logtest.Buffer
			tokens, err := auth.NewTokens(auth.TokenOptions{Issuer: issuer.URL, KeysURL: issuer.URL + "/keys", Log: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- tokens.Run(ctx) }()
			require.Eventually(t, func() bool { return strings.Contains(log.String(), "cannot be fetched") }, 30*time.Second, 10*time.Millisecond)
			_, err = tokens.Authenticate(t.Context(), "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.")
			var refusal *access.Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, http.StatusServiceUnavailable, refusal.Status, fmt.Sprint(err))
			cancel()
			require.NoError(t, <-ended)
			require.Less(t, sent.Load(), int64(32<<20), "what the issuer could send")
		})
	}
}

// counted counts what is written.
type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}

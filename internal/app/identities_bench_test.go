package app

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/auth"
	"understudy/internal/config"
)

// BenchmarkIdentities is a request of one of many users, who come in turns, each with an API key of their own.
func BenchmarkIdentities(b *testing.B) {
	for _, n := range []int{0, 1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: map[string]string{"port": "0", "data": b.TempDir(), "synchronous": "normal"}, Lookup: func(string) (string, bool) { return "", false }})
			require.NoError(b, err)
			settings.Auth.Keys = n > 0
			s, err := New(b.Context(), Config{Settings: settings, Log: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			require.NoError(b, s.Register("talk", "", repeats{}))
			ended := make(chan error, 1)
			go func() { ended <- s.Run(b.Context()) }()
			keys := []string{""}
			if n > 0 {
				keys = nil
			}
			for i := range n {
				k, text := auth.New("bench", fmt.Sprint("user", i), []string{auth.Write}, time.Now(), time.Time{})
				require.NoError(b, s.rows.InsertKey(b.Context(), k))
				keys = append(keys, text)
			}
			i := 0
			for b.Loop() {
				req, err := http.NewRequest(http.MethodPost, s.url()+"/threads/search", bytes.NewReader([]byte(`{"limit":1}`)))
				require.NoError(b, err)
				req.Header.Set("X-Api-Key", keys[i%len(keys)])
				req.Header.Set("Content-Type", "application/json")
				resp, err := http.DefaultClient.Do(req)
				require.NoError(b, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				require.Equal(b, 200, resp.StatusCode)
				i++
			}
		})
	}
}

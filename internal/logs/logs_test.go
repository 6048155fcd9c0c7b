package logs

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What looks like a credential is not kept, wherever it is in a line; the log itself is unchanged.
func TestCredentialsAreHidden(t *testing.T) {
	t.Parallel()
	r, out := NewRing(), &bytes.Buffer{}
	log := slog.New(r.Handler(slog.NewTextHandler(out, nil)))
	const secret = "s3cr3t0123456789ABCDEF"
	log = log.With("api_key", secret).WithGroup("request").With("Authorization", "Bearer "+secret)
	for _, text := range []string{
		"postgres://ada:" + secret + "@db/x failed", "header Authorization: Bearer " + secret, `{"password": "` + secret + `"}`, "PASSWORD=" + secret, "sk-" + secret, "us_" + secret,
		"eyJhbGciOiJI." + secret + "." + secret, "token=" + secret + "&x=1",
	} {
		log.Info(text, "text", text, "error", fmt.Errorf("because of %s", text), slog.Group("more", "client_secret", secret, "deep", text))
	}
	list, _ := r.After(0, 100)
	require.Len(t, list, 8)
	for _, l := range list {
		require.NotContains(t, fmt.Sprint(l), secret)
	}
	require.Contains(t, out.String(), secret)
	require.Equal(t, hidden, list[0].Attrs["api_key"])
	require.Equal(t, "postgres://ada:"+hidden+"@db/x failed", list[0].Attrs["request.text"])
	log.Info("tokens", "input_tokens", 5)
	list, _ = r.After(8, 100)
	require.Equal(t, "5", list[0].Attrs["request.input_tokens"], "numbers are no credentials")
}

// However many lines there are and however long, by how many goroutines: memory is bounded, the newest are kept in order, and who waits is woken.
func TestRingIsBounded(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3000, 10_000} {
		r := NewRing()
		log := slog.New(r.Handler(slog.NewTextHandler(&bytes.Buffer{}, nil)))
		_, more := r.After(0, 1)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 1500 {
					log.Info("é"+strings.Repeat("x", size), "a", strings.Repeat("y", size))
				}
			})
		}
		<-more
		all.Wait()
		list, _ := r.After(0, 1<<20)
		held := 0
		for i, l := range list {
			held += l.size
			require.LessOrEqual(t, len(l.Message), maxText+10)
			require.Equal(t, uint64(6000-len(list)+1+i), l.Seq)
		}
		require.LessOrEqual(t, len(list), maxLines)
		require.LessOrEqual(t, held, maxBytes)
		last, _ := r.After(5990, 3)
		require.Equal(t, list[len(list)-3:], last)
		again, err := Decode(Encode(last))
		require.NoError(t, err)
		require.Equal(t, last[0].Message, again[0].Message)
	}
}

func BenchmarkLine(b *testing.B) {
	r := NewRing()
	plain := slog.NewTextHandler(io.Discard, nil)
	for name, h := range map[string]slog.Handler{"without": plain, "with": r.Handler(plain)} {
		b.Run(name, func(b *testing.B) {
			log := slog.New(h).With("instance", "i")
			for b.Loop() {
				log.Info("request", "method", "GET", "path", "/threads/0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10/state", "status", 200, "duration_ms", 1.25, "request_id", "0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10")
			}
		})
	}
}

package server

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
)

func unpack(t *testing.T, coding string, body io.Reader) ([]byte, error) {
	t.Helper()
	switch coding {
	case "zstd":
		d, err := zstd.NewReader(body)
		require.NoError(t, err)
		defer d.Close()
		return io.ReadAll(d)
	case "gzip":
		d, err := gzip.NewReader(body)
		require.NoError(t, err)
		return io.ReadAll(d)
	case "br":
		return io.ReadAll(brotli.NewReader(body))
	}
	require.Empty(t, coding)
	return io.ReadAll(body)
}

// Long answers, sent at once or in pieces, are what they are without compression; short ones are not compressed.
func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	for _, size := range []struct {
		entries, bytes int
		long           bool
	}{{1, 100, false}, {1, 20_000, true}, {10, 80_000, true}, {100, 80_000, true}} {
		get := func(accept string) (*http.Response, []byte) {
			w := history(t, &fakeEntries{of: size.entries, make: entryOf(size.bytes)})
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.addr+historyPath, nil)
			require.NoError(t, err)
			req.Header.Set("Accept-Encoding", accept) // set by hand: net/http decodes nothing then
			res, err := w.http.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			body, err := unpack(t, res.Header.Get("Content-Encoding"), res.Body)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return w.s.Encoders.Used() == 0 }, 10*time.Second, time.Millisecond)
			return res, body
		}
		plain, want := get("identity")
		require.Empty(t, plain.Header.Get("Content-Encoding"))
		for _, coding := range []string{"zstd", "br", "gzip"} {
			res, body := get(coding)
			require.Equal(t, string(want), string(body))
			require.Equal(t, map[bool]string{true: coding}[size.long], res.Header.Get("Content-Encoding"))
			require.Equal(t, size.long, res.Header.Get("Vary") == "Accept-Encoding")
			require.Equal(t, plain.Header.Get("Content-Type"), res.Header.Get("Content-Type"))
		}
	}
}

// An answer that breaks off does not look complete.
func TestCompressedAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"zstd", "br", "gzip"} {
		good := entryOf(100_000)
		w := history(t, &fakeEntries{of: 100, make: func(n int) (*checkpointer.Snapshot, error) {
			if n == 60 {
				return nil, errors.New("it cannot be read")
			}
			return good(n)
		}})
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.addr+historyPath, nil)
		require.NoError(t, err)
		req.Header.Set("Accept-Encoding", coding)
		res, err := w.http.Do(req)
		require.NoError(t, err)
		_, err = unpack(t, coding, res.Body)
		require.Error(t, err)
		require.NoError(t, res.Body.Close())
	}
}

package web

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A stream that is looked at writes at most once a frame while records follow one another, and at once after a pause.
func TestPaceOfWatchedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(ctx context.Context, o *Open) time.Duration {
			began := time.Now()
			o.rest(ctx)
			return time.Since(began)
		}
		o := &Open{pace: frame}
		require.Zero(t, took(t.Context(), o), "the first record is sent at once")
		for range 3 {
			require.Equal(t, frame, took(t.Context(), o))
		}
		time.Sleep(frame / 2)
		require.Equal(t, frame/2, took(t.Context(), o), "what came in the middle of a frame waits for its end")
		time.Sleep(time.Second)
		require.Zero(t, took(t.Context(), o), "after a pause")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.Zero(t, took(gone, o), "of a client that has left")
	})
}

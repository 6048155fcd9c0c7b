package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// silent is an embedding that never answers.
type silent struct{}

func (silent) Embed(ctx context.Context, _ []string) ([][]float32, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An embedding that does not answer fails with the time that it had, for all requests that share the call; a request that ends before has its own reason.
func TestEmbeddingThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBatcher(silent{})
		began := time.Now()
		errs := make(chan error)
		for range callsAtOnce + 2 {
			go func() {
				_, err := b.Embed(t.Context(), []string{"a"})
				errs <- err
			}()
		}
		for range callsAtOnce + 2 {
			err := <-errs
			require.ErrorContains(t, err, "no answer in 1m0s; understudy doctor --models")
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.LessOrEqual(t, time.Since(began), 2*callTime)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.alone(ctx, []string{"a"})
		require.EqualError(t, err, "context deadline exceeded")
	})
}

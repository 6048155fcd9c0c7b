package within_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/within"
)

func TestDo(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	v, err := within.Do(t.Context(), func(context.Context) (int, error) { return 3, failed })
	require.Equal(t, 3, v)
	require.ErrorIs(t, err, failed)

	late, over := errors.New("late"), make(chan struct{})
	t.Cleanup(func() { close(over) })
	ctx, cancel := context.WithCancelCause(t.Context())
	v, err = within.Do(ctx, func(context.Context) (int, error) {
		cancel(late)
		<-over // whatever the context says
		return 3, nil
	})
	require.Zero(t, v)
	require.ErrorIs(t, err, late)
}

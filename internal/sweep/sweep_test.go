package sweep_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/internal/sweep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// turns are what a storage keeps.
type turns struct {
	mu   sync.Mutex
	last map[string]time.Time
	err  error
}

func (t *turns) TakeTurn(_ context.Context, name string, now time.Time, every time.Duration) (next time.Time, mine bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return time.Time{}, false, t.err
	}
	if last, ok := t.last[name]; ok && now.Before(last.Add(every)) {
		return last.Add(every), false, nil
	}
	t.last[name] = now
	return now.Add(every), true, nil
}

func TestInstancesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &turns{last: map[string]time.Time{}}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		var mu sync.Mutex
		var at []time.Duration
		began := time.Now()
		busy := false
		instance := func(after time.Duration) {
			loop := sweep.Loop{
				Turns: shared, Name: "x", Every: 10 * time.Minute, Log: log, Now: time.Now,
				Do: func(ctx context.Context, until time.Time) error {
					mu.Lock()
					were := busy
					busy = true
					at = append(at, time.Since(began))
					n := len(at)
					mu.Unlock()
					assert.False(t, were)
					assert.Equal(t, 10*time.Minute, time.Until(until))
					time.Sleep(time.Minute)
					mu.Lock()
					busy = false
					mu.Unlock()
					if n == 2 {
						return errors.New("a bad day")
					}
					return ctx.Err()
				},
			}
			wg.Go(func() {
				time.Sleep(after)
				assert.NoError(t, loop.Run(ctx))
			})
		}
		instance(0)
		instance(3 * time.Minute)
		time.Sleep(35 * time.Minute)
		done := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(at)
		}
		require.Equal(t, []time.Duration{0, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute}, done())

		// The storage is unavailable for a while: the sweep resumes soon after it has come back.
		shared.mu.Lock()
		shared.err = errors.New("away")
		shared.mu.Unlock()
		time.Sleep(10 * time.Minute)
		shared.mu.Lock()
		shared.err = nil
		shared.mu.Unlock()
		time.Sleep(11 * time.Second) // each tries again every ten
		require.Len(t, done(), 5)
		cancel()
		wg.Wait()
		require.Contains(t, text.String(), "a bad day")
		require.Contains(t, text.String(), "away")
	})
}

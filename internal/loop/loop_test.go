package loop_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/loop"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		poked := make(chan struct{}, 1)
		steps := []struct {
			after time.Duration // since the beginning
			next  time.Duration // from then on; 0: none
			err   error
		}{
			{after: 0, next: 5 * time.Second},
			{after: 5 * time.Second, err: errors.New("away")},
			{after: 6 * time.Second, next: time.Hour},
			{after: 6*time.Second + time.Minute}, // no timer is trusted for longer
			{after: 10 * time.Minute},            // poked
		}
		at := 0
		time.AfterFunc(10*time.Minute, func() { loop.Poke(poked) })
		time.AfterFunc(time.Hour, cancel)
		l := loop.Loop{Name: "test", Log: slog.New(slog.DiscardHandler), Now: time.Now}
		require.NoError(t, l.Run(ctx, poked, func(context.Context) (time.Time, error) {
			require.Less(t, at, len(steps))
			one := steps[at]
			require.Equal(t, one.after, time.Since(began), "step %d", at)
			at++
			if one.next == 0 {
				return time.Time{}, one.err
			}
			return time.Now().Add(one.next), one.err
		}))
		require.Len(t, steps, at)
		require.Equal(t, time.Hour, time.Since(began))
	})
}

// An error that stays is logged once a minute, another one at once.
func TestErrorsThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		l := loop.Loop{Name: "test", Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now}
		began := time.Now()
		require.NoError(t, l.Run(ctx, nil, func(context.Context) (time.Time, error) {
			switch since := time.Since(began); {
			case since >= 3*time.Minute:
				cancel()
				return time.Time{}, nil
			case since == 90*time.Second:
				return time.Time{}, errors.New("another")
			}
			return time.Time{}, errors.New("away")
		}))
		require.Equal(t, 4, strings.Count(log.String(), "error=away"), "at 0, 60, 91 and 151 s")
		require.Equal(t, 1, strings.Count(log.String(), "error=another"))
	})
}

// The end of an outage is logged too, once, with its length.
func TestErrorsThatEnd(t *testing.T) {
	for name, start := range map[string]func(l loop.Loop, ctx context.Context, step func() error) error{
		"Run": func(l loop.Loop, ctx context.Context, step func() error) error {
			return l.Run(ctx, nil, func(context.Context) (time.Time, error) { return time.Now().Add(time.Second), step() })
		},
		"Every": func(l loop.Loop, ctx context.Context, step func() error) error {
			return l.Every(ctx, time.Second, func(context.Context) error { return step() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var log bytes.Buffer
				l := loop.Loop{Name: "test", Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now}
				steps := 0
				require.NoError(t, start(l, ctx, func() error {
					switch steps++; {
					case steps > 20:
						cancel()
						return nil
					case steps%10 == 3 || steps%10 == 4:
						return errors.New("away")
					}
					return nil
				}))
				require.Equal(t, 2, strings.Count(log.String(), "error=away"), log.String())
				require.Equal(t, 2, strings.Count(log.String(), "succeeds again\" part=test after=2s"), log.String())
			})
		})
	}
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		l := loop.Loop{Name: "test", Log: slog.New(slog.DiscardHandler), Now: time.Now}
		require.NoError(t, l.Every(ctx, time.Minute, func(context.Context) error {
			if steps++; steps == 3 {
				cancel()
			}
			return errors.New("away")
		}))
		require.Equal(t, 3, steps)
	})
}

package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The first signal stops, and the second ends the process, except a copy of the first: GNU timeout signals its child and the group that the child is in.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	const term, interrupt = syscall.SIGTERM, syscall.SIGINT
	type sent struct {
		after time.Duration
		sig   syscall.Signal
	}
	for name, c := range map[string]struct {
		signals []sent
		codes   []int
	}{
		"one":                    {[]sent{{0, term}}, nil},
		"a copy at once":         {[]sent{{0, term}, {0, term}}, nil},
		"copies":                 {[]sent{{0, term}, {time.Millisecond, term}, {time.Millisecond, term}}, nil},
		"a late copy":            {[]sent{{0, interrupt}, {sameSignal - 1, interrupt}}, nil},
		"again":                  {[]sent{{0, term}, {sameSignal, term}}, []int{143}},
		"again after a copy":     {[]sent{{0, interrupt}, {time.Millisecond, interrupt}, {sameSignal, interrupt}}, []int{130}},
		"copies extend nothing":  {[]sent{{0, term}, {sameSignal - 1, term}, {1, term}}, []int{143}},
		"another signal at once": {[]sent{{0, term}, {time.Millisecond, interrupt}}, []int{130}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancelCause(t.Context())
				signals, done := make(chan os.Signal), make(chan struct{})
				var codes []int
				go awaitSignals(signals, done, slog.New(slog.NewTextHandler(io.Discard, nil)), stop, func(code int) { codes = append(codes, code) })
				for i, s := range c.signals {
					time.Sleep(s.after)
					signals <- s.sig
					synctest.Wait()
					if i == 0 {
						require.ErrorContains(t, context.Cause(ctx), "stopped by")
					}
				}
				close(done)
				synctest.Wait()
				require.Equal(t, c.codes, codes)
			})
		})
	}
}

package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// The first signal stops, and the second ends the process, except a copy of the first: GNU timeout signals its child and the group that the child is in.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	const term, interrupt, hangUp = syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP
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
		"a closed terminal":      {[]sent{{0, hangUp}, {time.Millisecond, hangUp}, {sameSignal, hangUp}}, nil},
		"a session that ends":    {[]sent{{0, hangUp}, {time.Millisecond, term}}, nil},
		"a supervisor":           {[]sent{{0, term}, {time.Millisecond, hangUp}}, nil},
		"after a closed one":     {[]sent{{0, hangUp}, {sameSignal, term}}, []int{143}},
		"another signal at once": {[]sent{{0, term}, {time.Millisecond, interrupt}}, []int{130}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancelCause(t.Context())
				signals, done := make(chan os.Signal), make(chan struct{})
				var codes []int
				s := signalled{log: slog.New(slog.NewTextHandler(io.Discard, nil)), stop: stop, exit: func(code int) { codes = append(codes, code) }}
				go s.await(signals, done)
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

// Signals by which tools want logs to be opened again end no server, and leave a line in the log. SIGHUP ends one that has a terminal, which is closed then.
func TestSignalsOfLogrotate(t *testing.T) {
	t.Parallel()
	for _, survives := range []bool{true, false} {
		for _, sig := range append([]os.Signal{syscall.SIGHUP}, reopenSignals...) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancelCause(t.Context())
				signals, done, log := make(chan os.Signal), make(chan struct{}), &logtest.Buffer{}
				s := signalled{log: slog.New(slog.NewTextHandler(log, nil)), survives: survives, stop: stop, exit: func(int) { t.Error("it ended") }}
				go s.await(signals, done)
				signals <- sig
				synctest.Wait()
				if ends := sig == syscall.SIGHUP && !survives; ends {
					require.Error(t, context.Cause(ctx))
					require.Contains(t, log.String(), "stopping: the terminal was closed")
				} else {
					require.NoError(t, context.Cause(ctx))
					require.Equal(t, 1, strings.Count(log.String(), "signal ignored"))
					require.Contains(t, log.String(), "copytruncate")
				}
				stop(nil)
				close(done)
				synctest.Wait()
			})
		}
	}
}

package server

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A client that reads slowly, but never stops, does not delay a shutdown: neither in the current write nor in the next one.
func TestSlowReadersDoNotHoldUpShutdown(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{5 * time.Millisecond, 900 * time.Millisecond, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			var reader sync.WaitGroup
			defer reader.Wait()
			defer theirs.Close()
			defer ours.Close()
			s := &Server{opts: Options{WriteTimeout: time.Minute}, opened: map[*open]struct{}{}}
			o := &open{s: s, conn: ours}
			s.opened[o] = struct{}{}
			reader.Go(func() {
				for {
					if _, err := theirs.Read(make([]byte, 1)); err != nil {
						return
					}
					time.Sleep(pause)
				}
			})
			ended := make(chan error)
			go func() { ended <- o.writeAll(make([]byte, 1<<16)) }()
			time.Sleep(2 * time.Minute)
			select {
			case err := <-ended:
				require.Fail(t, "a client that reads is not stuck", "%v", err)
			default:
			}
			began := time.Now()
			s.hurry()
			require.ErrorIs(t, <-ended, errStuck)
			require.LessOrEqual(t, time.Since(began), hurryTime)
			go func() { ended <- o.writeAll(make([]byte, 1<<16)) }()
			require.ErrorIs(t, <-ended, errStuck)
			require.LessOrEqual(t, time.Since(began), 2*hurryTime)
		})
	}
}

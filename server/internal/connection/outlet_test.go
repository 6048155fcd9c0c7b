package connection

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A client that reads slowly, but never stops, does not delay a shutdown: neither in the current write nor in the next one.
func TestSlowReadersDoNotDelayShutdown(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{5 * time.Millisecond, 900 * time.Millisecond, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			var reader sync.WaitGroup
			defer reader.Wait()
			defer theirs.Close()
			defer ours.Close()
			s := &Outlets{WriteTimeout: time.Minute}
			o := s.Of(ours)
			o.Enlist()
			reader.Go(func() {
				for {
					if _, err := theirs.Read(make([]byte, 1)); err != nil {
						return
					}
					time.Sleep(pause)
				}
			})
			ended := make(chan error)
			go func() { ended <- o.WriteAll(make([]byte, 1<<16)) }()
			time.Sleep(2 * time.Minute)
			select {
			case err := <-ended:
				require.Fail(t, "a client that reads is not stuck", "%v", err)
			default:
			}
			began := time.Now()
			s.Hurry()
			require.ErrorIs(t, <-ended, ErrStuck)
			require.LessOrEqual(t, time.Since(began), HurryTime)
			go func() { ended <- o.WriteAll(make([]byte, 1<<16)) }()
			require.ErrorIs(t, <-ended, ErrStuck)
			require.LessOrEqual(t, time.Since(began), 2*HurryTime)
		})
	}
}

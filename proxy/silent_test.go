package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// An upstream that accepts connections and does not answer is logged within three seconds, once, and with what calls do then: they wait.
func TestUpstreamThatIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		u := NewUpstream(&url.URL{Scheme: "http", Host: "upstream"}, 1<<20)
		u.transport.Proxy = nil
		var refuses atomic.Bool
		u.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			if refuses.Load() {
				return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
			}
			ours, theirs := net.Pipe()
			go func() {
				r := make([]byte, 1<<10)
				for {
					if _, err := theirs.Read(r); err != nil {
						return
					}
				}
			}()
			return ours, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- u.Watch(ctx, 10*time.Second, slog.New(slog.NewTextHandler(log, nil))) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Contains(t, log.String(), "upstream does not answer; calls wait")
		require.Contains(t, log.String(), "calls wait until it answers or their clients give up")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
		require.NotContains(t, log.String(), "clients get 502 until")
		refuses.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), log.String())
		require.Contains(t, log.String(), "clients get 502 until it responds")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		u.transport.CloseIdleConnections()
	})
}

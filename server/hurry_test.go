package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Connections without a request do not delay a shutdown, those with the beginning of one delay it by half of its time. A request whose body is coming is answered.
func TestConnectionsWithoutRequestsDoNotHoldUpShutdown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sent  string
		begun bool
	}{
		"nothing":               {"", false},
		"an answered request":   {"GET /ok HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"half of a head":        {"GET /ok HTT", true},
		"half of the next head": {"GET /ok HTTP/1.1\r\nHost: a\r\n\r\nGET /ok", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(&services{})
			o.ShutdownTimeout = 16 * time.Second
			s := New(o)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(ctx, ln) }()
			dial := func(text string) (net.Conn, *bufio.Reader) {
				c, err := net.Dial("tcp", ln.Addr().String())
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				_, err = c.Write([]byte(text))
				require.NoError(t, err)
				return c, bufio.NewReader(c)
			}
			line := func(r *bufio.Reader) string {
				text, err := r.ReadString('\n')
				require.NoError(t, err)
				return strings.TrimSpace(text)
			}
			var waiting []*bufio.Reader
			for range 5 {
				_, r := dial(tt.sent)
				if strings.Contains(tt.sent, "Host") {
					require.Equal(t, "HTTP/1.1 200 OK", line(r))
				}
				waiting = append(waiting, r)
			}
			const body = `{"metadata":{}}`
			slow, answer := dial(fmt.Sprintf("POST /threads/count HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\r\n", len(body)))
			require.Equal(t, "HTTP/1.1 100 Continue", line(answer))
			require.Empty(t, line(answer))
			began := time.Now()
			stop()
			if !tt.begun {
				for _, r := range waiting {
					_, err := io.Copy(io.Discard, r)
					require.NoError(t, err)
				}
				require.Less(t, time.Since(began), o.ShutdownTimeout/2)
			}
			_, err = slow.Write([]byte(body))
			require.NoError(t, err)
			require.Equal(t, "HTTP/1.1 200 OK", line(answer))
			require.NoError(t, <-ended)
			require.Less(t, time.Since(began), o.ShutdownTimeout)
		})
	}
}

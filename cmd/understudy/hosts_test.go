package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A wildcard host is reached on both families, at the printed URL and by health, and warns that there is no authentication.
func TestHosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"url": "http://127.0.0.1:1"}}}`), 0o600))
	for host, loopback := range map[string][]string{
		"127.0.0.1": nil,
		"::1":       nil,
		"0.0.0.0":   {"127.0.0.1"},
		"::":        {"127.0.0.1", "::1"},
	} {
		t.Run(host, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			out, stdout := io.Pipe()
			var log bytes.Buffer
			root := newRoot(stdout, &log)
			root.SetArgs([]string{"serve", "--config", file, "--host", host, "--port", "0", "--data", t.TempDir(), "--log-json", "--no-auth"})
			ended := make(chan error, 1)
			go func() {
				err := root.ExecuteContext(ctx)
				_ = stdout.CloseWithError(err)
				ended <- err
			}()
			lines := bufio.NewReader(out)
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			printed, err := url.Parse(strings.TrimPrefix(strings.TrimSpace(line), "understudy listening on "))
			require.NoError(t, err)

			if loopback != nil {
				more, err := lines.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("  and on every other address of this machine (--host %s, port %s)\n", host, printed.Port()), more)
			}

			addresses := []string{printed.String()}
			for _, other := range loopback {
				addresses = append(addresses, "http://"+net.JoinHostPort(other, printed.Port()))
			}
			addresses = append(addresses, healthAddresses(func(name string) string {
				return map[string]string{"UNDERSTUDY_HOST": host, "UNDERSTUDY_PORT": printed.Port()}[name]
			})...)
			for _, address := range addresses {
				require.NoError(t, askHealth(t.Context(), http.DefaultClient, []string{address}, true, io.Discard), address)
			}
			stop()
			require.NoError(t, <-ended)
			require.Equal(t, loopback != nil, strings.Contains(log.String(), "NO AUTHENTICATION"), log.String())
		})
	}
}

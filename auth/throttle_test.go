package auth_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/auth"
)

// A public address that sends many wrong credentials has to wait, with what it may send then too; what was valid before is not held up, nor are other
// addresses and proxies.
func TestWrongCredentialsAreThrottled(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	store := &memory{keys: map[string]auth.Key{}}
	make := func() string {
		k, text := auth.New("a", "ada", []string{auth.Write}, now, time.Time{})
		require.NoError(t, store.InsertKey(t.Context(), k))
		return text
	}
	tokens, err := auth.NewTokens(auth.TokenOptions{Secret: []byte("0123456789abcdef0123456789abcdef"), Now: clock})
	require.NoError(t, err)
	n := &auth.Native{Keys: auth.NewKeys(store, clock, slog.New(slog.DiscardHandler)), Tokens: tokens, Now: clock}
	send := func(client, key string) int {
		t.Helper()
		_, err := n.Authenticate(context.Background(), &access.Request{Client: client, Header: http.Header{"X-Api-Key": {key}}})
		if err == nil {
			return http.StatusOK
		}
		var refusal *access.Refusal
		require.True(t, errors.As(err, &refusal), "%v", err)
		if refusal.Status == http.StatusTooManyRequests {
			require.NotEmpty(t, refusal.Header.Get("Retry-After"))
		}
		return refusal.Status
	}
	old, fresh := make(), make()
	for _, attacker := range []string{"203.0.113.7:%d", "[2001:db8:1:2::%d]:7", "[::ffff:198.51.100.7]:%d"} {
		from := func(i int) string { return fmt.Sprintf(attacker, i+1) }
		require.Equal(t, 200, send(from(1), old))
		refused := 0
		for i := range 200 {
			status := send(from(i), "us_wrong")
			if status == http.StatusTooManyRequests {
				refused++
			} else {
				require.Equal(t, 401, status)
			}
		}
		require.Equal(t, 140, refused, attacker)
		require.Equal(t, 429, send(from(2), fresh), "it is not looked at")
		require.Equal(t, 200, send(from(3), old))
		require.Equal(t, 200, send("192.0.2.1:1", old))
		require.Equal(t, 401, send("192.0.2.1:1", "us_wrong"))
		now = now.Add(2 * time.Second)
		require.Equal(t, 401, send(from(5), "us_wrong"))
		require.Equal(t, 401, send(from(6), "us_wrong"))
		require.Equal(t, 429, send(from(7), "us_wrong"))
	}
	now = now.Add(2 * time.Second)
	require.Equal(t, 200, send("203.0.113.7:1", fresh))
	for _, proxy := range []string{"127.0.0.1:1", "10.1.2.3:1", "[fd00::1]:1", "[fe80::1%eth0]:1", "[::1]:1", "", "no address"} {
		for range 200 {
			require.Equal(t, 401, send(proxy, "us_wrong"))
		}
		require.Equal(t, 200, send(proxy, fresh), proxy)
	}
	for i := range 30_000 { // the memory is bounded
		require.Equal(t, 401, send(fmt.Sprintf("%d.%d.%d.1:1", 20+i/65536, i/256%256, i%256), "us_wrong"))
	}
}

package run_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/run"
)

// Receivers that hang hold up only what goes to them, also when they have more to get than all others and had it first.
func TestHangingReceivers(t *testing.T) {
	t.Parallel()
	const good, hanging, toEach = 40, 6, 30
	release := make(chan struct{})
	var most [hanging]atomic.Int32
	var hooks []string
	for i := range hanging {
		var now atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			n := now.Add(1)
			for old := most[i].Load(); n > old && !most[i].CompareAndSwap(old, n); old = most[i].Load() {
			}
			select {
			case <-release:
			case <-req.Context().Done():
			}
			now.Add(-1)
		}))
		t.Cleanup(server.Close)
		hooks = append(hooks, server.URL)
	}
	t.Cleanup(func() { close(release) })
	got := make(chan struct{}, good)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got <- struct{}{} }))
	t.Cleanup(receiver.Close)

	w := newWorld(t, map[string]script{"echo": echo}, nil)
	create := func(hook string) {
		req := request("echo")
		req.Webhook, req.IfNotExists = hook, "create"
		_, err := w.runs.Create(t.Context(), "", req)
		require.NoError(t, err)
	}
	for range toEach {
		for _, hook := range hooks {
			create(hook)
		}
	}
	began := time.Now()
	for range good {
		create(receiver.URL)
	}
	for i := range good {
		select {
		case <-got:
		case <-time.After(10 * time.Second): // one attempt at one that hangs takes 15
			t.Fatalf("webhook %d of %d did not come within %v", i+1, good, time.Since(began))
		}
	}
	for i := range most {
		require.LessOrEqual(t, most[i].Load(), int32(4))
	}
}

// Addresses that carry an IPv4 address are treated as that address.
func TestEmbeddedAddresses(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"[64:ff9b::7f00:1]", "[64:ff9b::169.254.169.254]", "[::127.0.0.1]", "[::a9fe:a9fe]", "[::ffff:0:7f00:1]", "[::ffff:127.0.0.1]",
		"[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[64:ff9b:1::7f00:1]", "[64:ff9b:1:7f00:0:100::]",
	} {
		require.Error(t, (&run.Webhooks{}).Check("http://"+host+"/x"), host)
	}
	for _, host := range []string{"[64:ff9b::808:808]", "[2002:808:808::1]", "[2001:db8::1]", "[::808:808]"} {
		require.NoError(t, (&run.Webhooks{}).Check("http://"+host+"/x"), host)
	}
	require.Error(t, (&run.Webhooks{RefusePrivate: true}).Check("http://[64:ff9b::10.0.0.7]/x"))
}

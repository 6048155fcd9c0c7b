package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/id"
	"understudy/run/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outbox is one in memory, that other servers do not send from.
type outbox struct {
	mu   sync.Mutex
	rows map[int64]*webhook.Delivery
	last int64
}

func (o *outbox) add(d *webhook.Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	d.ID = o.last
	o.rows[d.ID] = d
}

func (o *outbox) Due(_ context.Context, q webhook.Query) (due []*webhook.Delivery, next time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	perOrigin := map[string]int{}
	var all []*webhook.Delivery
	for _, d := range o.rows {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *webhook.Delivery) int { return int(a.ID - b.ID) })
	for _, d := range all {
		switch {
		case d.Due.After(q.By):
			if next.IsZero() || d.Due.Before(next) {
				next = d.Due
			}
		case slices.Contains(q.Skip, d.Origin), perOrigin[d.Origin] == q.PerOrigin, len(due) == q.Limit:
		default:
			perOrigin[d.Origin]++
			row := *d
			due = append(due, &row)
		}
	}
	return due, next, nil
}

func (o *outbox) Update(_ context.Context, d *webhook.Delivery) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	row := *d
	o.rows[d.ID] = &row
	return nil
}

func (o *outbox) Delete(_ context.Context, d *webhook.Delivery) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.rows, d.ID)
	return nil
}

func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.rows)
}

// begin sends from an outbox until the test ends.
func begin(t *testing.T, policy *webhook.Policy) (box *outbox, sender *webhook.Sender) {
	box = &outbox{rows: map[int64]*webhook.Delivery{}}
	sender = webhook.NewSender(box, policy, slog.New(slog.DiscardHandler), time.Now, prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = sender.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return box, sender
}

// start is begin with a function that adds a delivery to a URL.
func start(t *testing.T, policy *webhook.Policy) (box *outbox, add func(url string)) {
	box, sender := begin(t, policy)
	return box, func(url string) {
		box.add(policy.Delivery(webhook.End{Run: id.NewRun(), URL: url, Object: json.RawMessage(`{"status":"success","secret":1}`), Started: time.Now(), Ended: time.Now()}))
		sender.Poke()
	}
}

// Receivers that hang delay only what goes to them, also when they have more to get than all others and had it first.
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

	_, add := start(t, &webhook.Policy{AllowLoopback: true})
	for range toEach {
		for _, hook := range hooks {
			add(hook)
		}
	}
	began := time.Now()
	for range good {
		add(receiver.URL)
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

// What is refused is sent again; what was accepted, and what may not be sent, leaves the outbox. Only the fields that the policy allows are sent.
func TestSending(t *testing.T) {
	t.Parallel()
	got := make(chan string, 8)
	var refuse atomic.Int32
	refuse.Store(1)
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if refuse.Add(-1) >= 0 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		body, _ := io.ReadAll(req.Body)
		got <- req.Header.Get("X-Token") + " " + string(body)
	}))
	t.Cleanup(hook.Close)
	box, add := start(t, &webhook.Policy{AllowLoopback: true, AllowedFields: []string{"status", "values"}, Headers: map[string]string{"X-Token": "t"}})
	add(hook.URL)
	select {
	case sent := <-got:
		require.Equal(t, `t {"status":"success","values":null}`, sent)
	case <-time.After(time.Minute):
		t.Fatal("the webhook did not come")
	}
	require.Eventually(t, func() bool { return box.len() == 0 }, time.Minute, time.Millisecond)

	box, add = start(t, &webhook.Policy{})
	add(hook.URL) // the name was allowed, and resolves to what is not
	require.Eventually(t, func() bool { return box.len() == 0 }, time.Minute, time.Millisecond)
	require.Empty(t, got)
}

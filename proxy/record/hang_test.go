package record_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/id"
	"understudy/proxy"
	"understudy/proxy/record"
)

// hanging is a Recorder whose upstream never answers what it is asked of states. asked gets the path of each question.
func hanging(t *testing.T, asked chan<- string) *world {
	w := setup(t)
	w.Recorder = record.New(record.Options{
		Store: w.store.Upstream(), Overlay: apart(), Log: slog.New(slog.DiscardHandler), Wait: time.Millisecond,
		Ask: func(ctx context.Context, h http.Header, method, path string, body []byte) (int, http.Header, []byte, error) {
			if !strings.HasSuffix(path, "/state") {
				return w.u.ask(ctx, h, method, path, body)
			}
			select {
			case asked <- path:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return 0, nil, nil, context.Cause(ctx)
		},
	})
	return w
}

// TestHangingUpstream: what a client waits for comes although a question about it has no answer.
func TestHangingUpstream(t *testing.T) {
	t.Parallel()
	w := hanging(t, make(chan string, 100))
	x := w.u.thread("t1")
	c := w.u.run(x, nil, 1, 0)
	values := []byte(x.values(x.messages(c), ""))
	run, body := w.Begin(t.Context(), w.call, "t1", []byte(`{"input":{"messages":[{"type":"system","id":"summary-marker-s","content":"","additional_kwargs":{"summary_marker":{}}}]}}`))
	require.Contains(t, string(body), "summary-marker-s")
	require.Equal(t, values, run.Result(t.Context(), values))
	require.Equal(t, x.row(), string(w.Threads(t.Context(), w.call, []byte(x.row()))))
}

// TestHangingUpstreamInTheBackground: threads whose state never comes do not keep others from being recorded.
func TestHangingUpstreamInTheBackground(t *testing.T) {
	t.Parallel()
	asked := make(chan string)
	w := hanging(t, asked)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for _, name := range []id.Thread{"t1", "t2", "t3", "t4", "t5"} {
		w.Join(t.Context(), w.call, name, "").End(t.Context())
	}
	limit, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	for range 5 {
		select {
		case <-asked:
		case <-limit.Done():
			require.Fail(t, "a thread is not come to")
		}
	}
	cancel()
	require.NoError(t, <-done)
}

// TestOfflineIsNotAnotherAnswer: an upstream that answers at all, if only with the page of a login, is not away.
func TestOfflineIsNotAnotherAnswer(t *testing.T) {
	t.Parallel()
	w := setup(t)
	x := w.u.thread("t1")
	w.u.run(x, nil, 1, 0)
	require.Equal(t, "h1 a1", w.page(t, x))
	for _, status := range []int{http.StatusOK, http.StatusFound, http.StatusSeeOther, http.StatusUnauthorized, http.StatusBadGateway} {
		w.u.fails = func(string, string) (int, error) { return status, nil }
		_, err := w.Messages(t.Context(), &proxy.Call{Offline: true}, eventstore.PageQuery{Thread: "t1", Limit: 10})
		require.Error(t, err, status)
	}
}

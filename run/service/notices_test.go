package service_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/service"
	"understudy/run/webhook"
)

func TestWebhook(t *testing.T) {
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
		got <- string(body)
	}))
	t.Cleanup(hook.Close)
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	th := w.thread()
	req := request("echo")
	req.Webhook = hook.URL + "/done"
	r, err := w.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	select {
	case body := <-got: // the second attempt
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &m))
		require.Equal(t, string(r.ID), m["run_id"])
		require.Equal(t, "success", m["status"])
		require.NotEmpty(t, m["webhook_sent_at"])
	case <-time.After(time.Minute):
		t.Fatal("the webhook did not come")
	}
}

// Push notifications that are set while a run is executed are sent at its end, and shown with no run.
func TestPushNotifications(t *testing.T) {
	t.Parallel()
	got := make(chan string, 8)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got <- req.URL.Path + " " + gjson.GetBytes(body, "id").Str + " " + gjson.GetBytes(body, "status.state").Str
	}))
	t.Cleanup(hook.Close)
	begun, release := make(chan struct{}), make(chan struct{})
	w := newWorld(t, map[string]script{"held": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		close(begun)
		<-release
		return nil
	}}}, nil)
	th := w.thread()
	req := request("held")
	req.Push = []webhook.Push{{ID: "1", URL: hook.URL + "/one"}}
	r, err := w.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	<-begun
	add := func(p webhook.Push) error {
		return w.runs.SetPush(t.Context(), th, r.ID, func(list []webhook.Push, _ bool) ([]webhook.Push, error) { return append(list, p), nil })
	}
	require.Equal(t, fault.Unprocessable, fault.KindOf(add(webhook.Push{URL: "nowhere"})))
	require.NoError(t, add(webhook.Push{ID: "2", URL: hook.URL + "/two", Task: "task"}))
	require.Equal(t, fault.NotFound, fault.KindOf(w.runs.SetPush(t.Context(), th, id.NewRun(), nil)))
	close(release)
	var all []string
	for range 2 {
		select {
		case one := <-got:
			all = append(all, one)
		case <-time.After(time.Minute):
			t.Fatal("a notification did not come")
		}
	}
	require.ElementsMatch(t, []string{"/one " + string(th) + ":" + string(r.ID) + " completed", "/two task completed"}, all)
}

func TestCronFiresOnceAndMovesOn(t *testing.T) {
	t.Parallel()
	var fired atomic.Int32
	done := make(chan struct{}, 8)
	var offset atomic.Int64
	w := newWorld(t, map[string]script{"echo": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		fired.Add(1)
		done <- struct{}{}
		return nil
	}}}, func(o *service.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	})
	th := w.thread()
	c, err := w.runs.Crons().Create(t.Context(), run.NewCron{
		Thread: th, AssistantID: "echo", Schedule: "0 0 1 1 *", Enabled: true,
		Payload: map[string]json.RawMessage{"input": json.RawMessage(`{"n":1}`)},
	})
	require.NoError(t, err)
	// A year passes while the server is down.
	w.stop()
	offset.Store(int64(366 * 24 * time.Hour))
	w.start()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the cron did not fire")
	}
	again, err := w.runs.Crons().Get(t.Context(), c.ID)
	require.NoError(t, err)
	require.True(t, again.Next.After(*c.Next))
	rows, err := w.runs.List(t.Context(), th, run.Query{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Contains(t, string(rows[0].Kwargs.Config), string(c.ID))
	require.EqualValues(t, 1, fired.Load())
}

func TestCronErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	for _, tt := range []struct {
		n    run.NewCron
		kind fault.Kind
	}{
		{run.NewCron{AssistantID: "nope", Schedule: "* * * * *"}, fault.NotFound},
		{run.NewCron{AssistantID: "echo", Schedule: "every day"}, fault.Unprocessable},
		{run.NewCron{AssistantID: "echo", Schedule: "* * * * *", Timezone: "Mars/Base"}, fault.Unprocessable},
		{run.NewCron{AssistantID: "echo", Schedule: "* * * * *", Timezone: "Local"}, fault.Unprocessable},
		{run.NewCron{AssistantID: "echo", Schedule: "* * * * *", Thread: id.NewThread()}, fault.NotFound},
	} {
		_, err := w.runs.Crons().Create(t.Context(), tt.n)
		require.Equal(t, tt.kind, fault.KindOf(err), "%+v: %v", tt.n, err)
	}
}

// A task that is cancelled before its run has begun is reported too, by whatever cancels it.
func TestPushNotificationsOfRunsThatNeverBegan(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Status struct{ State string } }
		_ = json.NewDecoder(r.Body).Decode(&body)
		got <- r.URL.Path + " " + body.Status.State
	}))
	t.Cleanup(hook.Close)
	release := make(chan struct{})
	w := newWorld(t, map[string]script{"held": {stream: func(ctx context.Context, _ graph.Invocation, _ func(string, string)) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}}}, nil)
	th := w.thread()
	waiting := func(path string) id.Run {
		req := request("held")
		req.Push = []webhook.Push{{ID: "1", URL: hook.URL + path}}
		r, err := w.runs.Create(t.Context(), th, req)
		require.NoError(t, err)
		return r.ID
	}
	_, err := w.runs.Create(t.Context(), th, request("held"))
	require.NoError(t, err)
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{waiting("/cancelled")}, run.CancelInterrupt, true))
	waiting("/displaced")
	other := request("held")
	other.Strategy = run.Interrupt
	_, err = w.runs.Create(t.Context(), th, other)
	require.NoError(t, err)
	var all []string
	for range 2 {
		select {
		case one := <-got:
			all = append(all, one)
		case <-time.After(time.Minute):
			t.Fatal("a notification did not come")
		}
	}
	require.ElementsMatch(t, []string{"/cancelled canceled", "/displaced canceled"}, all)
	close(release)
}

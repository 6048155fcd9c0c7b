package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/run/webhook"
)

// A push notification is sent as the client asked for it, by the rules for webhooks.
func TestPushNotifications(t *testing.T) {
	t.Parallel()
	type request struct {
		header http.Header
		body   string
	}
	got := make(chan request, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got <- request{req.Header, string(body)}
	}))
	t.Cleanup(receiver.Close)
	const thread, first, later = "00000000-0000-4000-8000-000000000001", "00000000-0000-7000-8000-000000000002", "00000000-0000-7000-8000-000000000003"
	end := webhook.TaskEnd{Thread: thread, Run: later, State: webhook.TaskInputRequired, At: time.Unix(1000, 0)}
	const at = `"contextId":"` + thread + `","status":{"timestamp":"1970-01-01T00:16:40.000000+00:00","state":`

	policy := &webhook.Policy{AllowLoopback: true, AllowedFields: []string{"status"}, Headers: map[string]string{"X-Ours": "1"}}
	for _, tt := range []struct {
		push          webhook.Push
		body          string
		token, bearer string
	}{
		{webhook.Push{Task: thread + ":" + first, Token: "t", Scheme: "Bearer", Credentials: "c"}, `{"kind":"task","id":"` + thread + `:` + first + `",` + at + `"input-required"}}`, "t", "Bearer c"},
		{webhook.Push{V1: true, Scheme: "Bearer"}, `{"task":{"kind":"task","id":"` + thread + `:` + later + `",` + at + `"TASK_STATE_INPUT_REQUIRED"}}}`, "", ""},
	} {
		box, sender := begin(t, policy)
		tt.push.URL = receiver.URL
		box.add(tt.push.Delivery(end))
		sender.Poke()
		select {
		case r := <-got:
			require.JSONEq(t, tt.body, r.body)
			require.Equal(t, []string{tt.token, tt.bearer, "1", "application/json"},
				[]string{r.header.Get("X-A2A-Notification-Token"), r.header.Get("Authorization"), r.header.Get("X-Ours"), r.header.Get("Content-Type")})
		case <-time.After(time.Minute):
			t.Fatal("the notification did not come")
		}
	}
}

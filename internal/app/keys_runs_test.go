package app

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/auth"
	"understudy/graph"
	"understudy/internal/config"
)

// held is a graph whose runs say as whom they act, and end when they are let go.
type held struct {
	graph.Graph
	as   chan string
	done chan struct{}
}

func (g held) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(func(graph.Event, error) bool) {
		g.as <- access.IdentityOfRun(inv.Config.Config)
		select {
		case <-g.done:
		case <-ctx.Done():
		}
	}
}

// A run that was created with a key which was revoked since runs to its end as its creator, also if it had not begun then, and its webhook is sent, with no more of the user than identity and permissions.
func TestRunsOfRevokedKeys(t *testing.T) {
	t.Parallel()
	type hook struct{ header, body string }
	hooks := make(chan hook, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var header strings.Builder
		_ = r.Header.Write(&header)
		hooks <- hook{header.String(), string(body)}
	}))
	t.Cleanup(receiver.Close)
	settings, _, err := config.Load(config.Source{
		Mode: config.Serve, Flags: map[string]string{"data": t.TempDir(), "port": "0"}, Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	settings.Auth.Keys, settings.Webhooks.URL.DisableLoopback = true, false
	g := held{as: make(chan string, 10), done: make(chan struct{})}
	srv := runWith(t, Config{Settings: settings, Log: slog.New(slog.DiscardHandler)}, "g", g)
	k, key := auth.New("website", "ada", []string{auth.Write}, time.Now(), time.Time{})
	require.NoError(t, srv.rows.InsertKey(t.Context(), k))
	ask := func(method, path, body string) (int, gjson.Result) {
		req, err := http.NewRequestWithContext(t.Context(), method, srv.url()+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header = http.Header{"X-Api-Key": {key}, "Content-Type": {"application/json"}}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, gjson.ParseBytes(text)
	}
	_, made := ask("POST", "/threads", "{}")
	thread := made.Get("thread_id").String()
	var runs []string
	for range 2 { // the second one waits for the first
		status, made := ask("POST", "/threads/"+thread+"/runs", `{"assistant_id":"g","input":{},"multitask_strategy":"enqueue","webhook":"`+receiver.URL+`"}`)
		require.Equal(t, 200, status, made.Raw)
		runs = append(runs, made.Get("run_id").String())
	}
	require.Equal(t, "ada", <-g.as)
	require.NoError(t, srv.rows.RevokeKey(t.Context(), k.ID, time.Now()))
	require.Eventually(t, func() bool { status, _ := ask("GET", "/threads/"+thread, ""); return status == 401 }, time.Minute, 50*time.Millisecond)
	require.Empty(t, g.as)
	close(g.done)
	require.Equal(t, "ada", <-g.as, "the run that waited")
	for _, want := range runs {
		got := <-hooks
		require.Equal(t, want, gjson.Get(got.body, "run_id").String(), got.body)
		require.Equal(t, "success", gjson.Get(got.body, "status").String(), got.body)
		for _, secret := range []string{key, `"langgraph_auth_user":`, "display_name"} {
			require.NotContains(t, got.header+got.body, secret)
		}
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/auth"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/cursor"
)

// moody fails when its input says so.
type moody struct{ repeats }

func (m moody) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	if gjson.GetBytes(inv.Input, "fail").Bool() {
		return func(yield func(graph.Event, error) bool) { yield(graph.Event{}, errors.New("no")) }
	}
	return m.repeats.Stream(ctx, inv)
}

// Without accounts and without DeerFlow a run with feedback keys has addresses too. They are sealed, of one purpose, and valid for three hours.
func TestFeedbackKeysOfAPlainServer(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/base"} {
		settings, _, err := config.Load(config.Source{
			Mode: config.Serve, Flags: map[string]string{"port": "0", "data": t.TempDir()}, Lookup: func(string) (string, bool) { return "", false },
		})
		require.NoError(t, err)
		settings.HTTP.MountPrefix = prefix
		srv := runWith(t, Config{Settings: settings}, "g", moody{})
		at := srv.url() + prefix
		must := func(method, address, body string) string {
			t.Helper()
			status, text := send(t, method, address, body)
			require.Less(t, status, 300, text)
			return text
		}
		thread := at + "/threads/" + gjson.Get(must("POST", at+"/threads", `{}`), "thread_id").Str
		const asked = `{"assistant_id":"g","input":{},"feedback_keys":["k","k",""]}`
		waited := must("POST", thread+"/runs/wait", asked)
		addresses := gjson.Get(waited, "__feedback__").Map()
		require.Len(t, addresses, 2, waited)
		require.True(t, gjson.Get(waited, "config").Exists(), waited)
		require.True(t, strings.HasPrefix(addresses["k"].Str, at+"/feedback/tokens/"), waited)
		require.Equal(t, 1, strings.Count(must("POST", thread+"/runs/stream", asked), "event: feedback\r\n"))

		given := must("POST", addresses["k"].Str, `{"score":0.5}`)
		require.Equal(t, `{"k":{"score":0.5}}`, gjson.Get(given, "scores").Raw)
		rated := thread + "/runs/" + gjson.Get(given, "run_id").Str
		for query, want := range map[string]string{"": "[" + given + "]", "?limit=1&offset=0": "[" + given + "]", "?limit=0": "[]", "?offset=1": "[]", "?offset=99999999999999999999": "[]", "?limit=1000000": "[" + given + "]"} {
			require.Equal(t, want, must("GET", rated+"/feedback"+query, ""), query)
		}
		for _, query := range []string{"?limit=x", "?limit=-1", "?offset=-1"} {
			status, text := send(t, "GET", rated+"/feedback"+query, "")
			require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, status, text)
		}

		allowed, ok := srv.ratings.Unseal(path.Base(addresses["k"].Str))
		require.True(t, ok)
		give := func(token string) int {
			status, _ := send(t, "POST", at+"/feedback/tokens/"+url.PathEscape(token), `{"score":1}`)
			return status
		}
		key, err := srv.rows.CursorKey(t.Context())
		require.NoError(t, err)
		ofLists, err := cursor.New(key)
		require.NoError(t, err)
		for _, token := range []string{ofLists.Seal(allowed), allowed, "c.", "\x00", srv.ratings.Seal("no JSON"), "/"} {
			require.Equal(t, http.StatusNotFound, give(token), token)
		}
		expires := gjson.Get(allowed, "e").Int()
		require.InDelta(t, time.Now().Add(3*time.Hour).Unix(), expires, 60)
		until := func(at time.Time) string {
			return srv.ratings.Seal(strings.Replace(allowed, fmt.Sprint(expires), fmt.Sprint(at.Unix()), 1))
		}
		require.Equal(t, http.StatusOK, give(until(time.Now().Add(time.Minute))))
		require.Equal(t, http.StatusNotFound, give(until(time.Now().Add(-time.Second))))

		// A run that fails has none, nor has one whose thread is deleted at its end.
		for _, path := range []string{thread + "/runs/wait", thread + "/runs/stream"} {
			require.NotContains(t, must("POST", path, strings.Replace(asked, `{}`, `{"fail":true}`, 1)), "feedback")
		}
		require.NotContains(t, must("POST", at+"/runs/stream", asked), "event: feedback")
		kept := must("POST", at+"/runs/wait", strings.Replace(asked, "{", `{"on_completion":"keep",`, 1))
		must("POST", gjson.Get(kept, "__feedback__.k").Str, `{"score":true,"comment":null}`)
		// Nor can anything be given for a run that was deleted, also when there is another thread with the ID of its own.
		gone := func(what string) {
			t.Helper()
			status, text := send(t, "POST", addresses["k"].Str, `{"score":1}`)
			require.Equal(t, http.StatusNotFound, status, what+text)
		}
		must("DELETE", rated, "")
		gone("run")
		must("DELETE", thread, "")
		gone("thread")
		must("POST", at+"/threads", `{"thread_id":"`+path.Base(thread)+`"}`)
		gone("other thread")
		feedback, err := srv.rows.FeedbackOf(t.Context(), "", id.Thread(path.Base(thread)))
		require.NoError(t, err)
		require.Empty(t, feedback)
	}
}

// A key that may only read gets no addresses, with which it could write.
func TestAddressesOfKeys(t *testing.T) {
	t.Parallel()
	settings, _, err := config.Load(config.Source{
		Mode: config.Serve, Flags: map[string]string{"port": "0", "data": t.TempDir()}, Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	settings.Auth.Keys = true
	srv := runWith(t, Config{Settings: settings}, "g", moody{})
	ask := func(key, method, path, body string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.url()+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header = http.Header{"X-Api-Key": {key}, "Content-Type": {"application/json"}, "Last-Event-Id": {"0"}}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode, "%s", text)
		return string(text)
	}
	keys := map[string]string{}
	for _, scope := range []string{auth.Read, auth.Write, auth.Admin} {
		k, text := auth.New(scope, "ada", []string{scope}, time.Now(), time.Time{})
		require.NoError(t, srv.rows.InsertKey(t.Context(), k))
		keys[scope] = text
	}
	thread := "/threads/" + gjson.Get(ask(keys[auth.Write], "POST", "/threads", `{}`), "thread_id").Str
	require.Contains(t, ask(keys[auth.Write], "POST", thread+"/runs/wait", `{"assistant_id":"g","input":{},"stream_resumable":true,"feedback_keys":["k"]}`), "__feedback__")
	run := thread + "/runs/" + gjson.Get(ask(keys[auth.Read], "GET", thread+"/runs", ""), "0.run_id").Str
	for scope, may := range map[string]bool{auth.Read: false, auth.Write: true, auth.Admin: true} {
		require.Equal(t, may, strings.Contains(ask(keys[scope], "GET", run+"/stream", ""), "/feedback/tokens/"), scope)
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
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
		require.Equal(t, "["+given+"]", must("GET", thread+"/runs/"+gjson.Get(given, "run_id").Str+"/feedback", ""))

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
		must("DELETE", thread, "")
		status, _ := send(t, "POST", addresses["k"].Str, `{"score":1}`)
		require.Equal(t, http.StatusNotFound, status)
	}
}

package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	res, body := w.ask(t, "GET", "/understudy/threads/search?text=Cat", "")
	require.Equal(t, 200, res.StatusCode, body)
	require.JSONEq(t, `{"results": [{"thread_id": "`+someThread+`", "run_id": "`+someRun+`", "seq": 3, "message_id": null, "event_type": "llm.human.input",
		"created_at": "2026-01-02T03:04:05.678901+00:00", "snippet": [{"text": "the ", "match": false}, {"text": "cat", "match": true}]}], "next": "7.`+someThread+`"}`, body)
	require.Equal(t, 20, w.last())
	res, body = w.ask(t, "GET", "/understudy/threads/search?text=Cat&limit=5&before="+gjson.Get(body, "next").String(), "")
	require.Equal(t, 200, res.StatusCode, body)
	require.Equal(t, 5, w.last())
	res, body = w.ask(t, "GET", "/understudy/threads/search?text=Cat&thread_id="+strings.ToUpper(someThread), "")
	require.Equal(t, 200, res.StatusCode, body)
	require.Equal(t, "4", gjson.Get(body, "next").String())
	for _, query := range []string{
		"", "text=", "text=%20", "text=!", "text=x&limit=0", "text=x&limit=101", "text=x&thread_id=x", "text=x&thread_id=", "text=x&before=", "text=x&before=x",
		"text=x&before=7", "text=x&before=-1.t", "text=x&before=4.t&thread_id=" + someThread, "text=x&before=99999999999999999999.t", "text=" + strings.Repeat("x", 1001),
	} {
		res, body := w.ask(t, "GET", "/understudy/threads/search?"+query, "")
		require.Equal(t, 422, res.StatusCode, "%s: %s", query, body)
		require.Contains(t, body, "Invalid")
	}
}

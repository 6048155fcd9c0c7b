package server

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/server/internal/web"
)

type fakeEvents struct{ *services }

func (f fakeEvents) Messages(_ context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	row := &eventstore.Event{Seq: 3, Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, Content: []byte(`{"type":"human"}`), CreatedAt: someTime}
	return &eventstore.Page{Rows: []*eventstore.Event{row}, More: true}, f.note("messages", q)
}

func (f fakeEvents) Events(_ context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	return &eventstore.Page{}, f.note("events", q)
}

func TestEventRoutes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const thread, ofRun = "/threads/" + someThread, "/threads/" + someThread + "/runs/" + someRun
	res, body := w.ask(t, "GET", thread+"/messages", "")
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, `{"data":[{"seq":3,"run_id":null,"event_type":"llm.human.input","category":"message","content":{"type":"human"},"metadata":{},`+
		`"created_at":"2026-01-02T03:04:05.678901+00:00"}],"has_more":true}`, body)
	_, body = w.ask(t, "GET", thread+"/events", "")
	require.Equal(t, `{"data":[],"has_more":false}`, body)

	for path, want := range map[string]eventstore.PageQuery{
		thread + "/messages?":                                 {Thread: someThread, Limit: 50},
		thread + "/messages?limit=1000&after_seq=7":           {Thread: someThread, Limit: 1000, After: 7},
		thread + "/messages?before_seq=9":                     {Thread: someThread, Limit: 50, Before: 9, Backward: true},
		thread + "/messages?before_seq=0":                     {Thread: someThread, Limit: 50, Before: 1, Backward: true},
		thread + "/events?after_seq=0&before_seq=9&limit=1":   {Thread: someThread, Limit: 1, Before: 9},
		thread + "/events?after_seq=9223372036854775807":      {Thread: someThread, Limit: 50, After: math.MaxInt64},
		thread + "/events?event_types=run.start,%20run.end,,": {Thread: someThread, Limit: 50, Types: []string{"run.start", "run.end"}},
		ofRun + "/events?event_types=a&event_types=a,b":       {Thread: someThread, Run: someRun, Limit: 50, Types: []string{"a", "b"}},
		ofRun + "/messages?event_types=a&limit=2":             {Thread: someThread, Run: someRun, Limit: 2},
	} {
		res, _ := w.ask(t, "GET", path, "")
		require.Equal(t, 200, res.StatusCode, path)
		want.Bytes = web.WholeBytes
		require.Equal(t, want, w.last(), path)
	}

	for _, path := range []string{thread + "/messages", thread + "/events", ofRun + "/messages", ofRun + "/events"} {
		for _, query := range []string{
			"limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=1.5", "limit=%2B5", "limit=1e2", "limit=%D9%A5", "after_seq=-1", "after_seq=x",
			"after_seq=", "before_seq=-1", "before_seq=1x", "after_seq=9223372036854775808", "before_seq=99999999999999999999999",
		} {
			res, body := w.ask(t, "GET", path+"?"+query, "")
			require.Equal(t, 422, res.StatusCode, query)
			var answer struct{ Detail string }
			require.NoError(t, json.Unmarshal([]byte(body), &answer), query)
			require.Contains(t, answer.Detail, "Invalid ", query)
		}
	}
	for path, status := range map[string]int{"/threads/x/messages": 422, "/threads/" + someThread + "/runs/x/events": 422} {
		res, _ := w.ask(t, "GET", path, "")
		require.Equal(t, status, res.StatusCode, path)
	}
}

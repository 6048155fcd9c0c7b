package compat

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
)

func TestAppendEvent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	const created = `"created_at":"2026-01-02T03:04:05.000006+00:00"}`
	tests := []struct {
		name  string
		event eventstore.Event
		want  string
	}{
		{
			"content as it is stored",
			eventstore.Event{Seq: 7, Run: "r", Type: "llm.ai.response", Category: "message", Content: []byte(`{"content":"<é>","n":1.0}`), Metadata: json.RawMessage(`{"step":1}`)},
			`{"seq":7,"run_id":"r","event_type":"llm.ai.response","category":"message","content":{"content":"<é>","n":1.0},"metadata":{"step":1},` + created,
		},
		{
			"a marker",
			eventstore.Event{
				Seq: 8, Type: eventstore.TypeSummarize, Category: "middleware", Content: []byte(`{"id":"m","replaced_count":2,"summary":"s","ids":["a","b"]}`),
				Metadata: json.RawMessage(`{"checkpoint_id":"c","step":3,"after_seq":2,"rolled_back":true}`),
			},
			`{"seq":8,"run_id":null,"event_type":"middleware:summarize","category":"middleware","content":{"replaced_count":2,"summary":"s","ids":["a","b"]},` +
				`"metadata":{"after_seq":2,"rolled_back":true},` + created,
		},
		{
			"an early row of what was removed",
			eventstore.Event{Seq: 9, Type: eventstore.TypeRemoved, Category: "removal", Content: []byte(`{"ids":["a"]}`)},
			`{"seq":9,"run_id":null,"event_type":"message_removed","category":"trace","content":{"ids":["a"]},"metadata":{},` + created,
		},
		{
			"nothing in it",
			eventstore.Event{Seq: 1, Type: "x", Category: "y"},
			`{"seq":1,"run_id":null,"event_type":"x","category":"y","content":null,"metadata":{},` + created,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.event.CreatedAt = at
			require.Equal(t, tt.want, string(AppendEvent(nil, &tt.event)))
		})
	}
}

// Any text of a client is refused or gives a query within limits.
func FuzzRowQuery(f *testing.F) {
	for _, q := range []string{"", "limit=1", "limit=1000&after_seq=3", "before_seq=0", "after_seq=-1", "event_types=a,b&event_types=,", "limit=9223372036854775808", "limit=+1", "limit=%00"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		q, err := RowQuery(func(name string) []string { return values[name] }, true)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, q.Limit >= 1 && q.Limit <= maxRows && q.After >= 0 && q.Before >= 0 && len(q.Types) <= maxTypes)
		require.True(t, !q.Backward || q.Before > 0)
	})
}

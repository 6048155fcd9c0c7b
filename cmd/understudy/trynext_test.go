package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dev suggests calls of the first graph, and of the first one that takes messages: that one can be talked to.
func TestTryNext(t *testing.T) {
	t.Parallel()
	schemas := map[string]string{
		"chat": `{"type":"object","properties":{"messages":{"type":"array"}}}`, "json": `{"type":"object","properties":{"n":{"type":"integer"}}}`, "nothing": "",
	}
	const ask = `{"messages": [{"role": "user", "content": "What is 6 times 7?"}]}`
	for _, tt := range []struct {
		graphs  []string
		talk    string
		streams [][2]string // graphs and their inputs
	}{
		{[]string{"chat", "json"}, "chat", [][2]string{{"chat", ask}}},
		{[]string{"json", "nothing", "chat"}, "chat", [][2]string{{"json", `{"n":1}`}, {"chat", ask}}},
		{[]string{"nothing"}, "nothing", [][2]string{{"nothing", "{}"}}},
		{[]string{"broken", "json"}, "broken", [][2]string{{"broken", "{}"}}},
	} {
		var out strings.Builder
		tryNext(t.Context(), &out, "http://x", tt.graphs, func(_ context.Context, name string) (json.RawMessage, error) {
			if schema, ok := schemas[name]; ok {
				return json.RawMessage(schema), nil
			}
			return nil, errors.New("it is broken")
		})
		got := out.String()
		require.Contains(t, got, "\nTalk to it:        understudy chat "+tt.talk+" --url http://x\nStream a run:\n")
		require.Equal(t, len(tt.streams), strings.Count(got, "Stream a run:"), got)
		for _, s := range tt.streams {
			require.Contains(t, got, "/runs/stream -H 'content-type: application/json' -d '{\"assistant_id\": \""+s[0]+"\",\n    \"input\": "+s[1]+", \"stream_mode\": [\"updates\"]}'")
		}
		require.Contains(t, got, `/runs/wait -H 'content-type: application/json' -d '{"assistant_id": "`+tt.talk+`"`)
	}
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
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
		tryNext(t.Context(), &out, "http://x", credentials{}, tt.graphs, func(_ context.Context, name string) (json.RawMessage, error) {
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

// On a server that authenticates, every suggested call has credentials, and the first line says where they come from.
func TestTryNextWithCredentials(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg                config.Config
		note, curl, python string
	}{
		"keys":                  {config.Config{Auth: config.Auth{Keys: true}, Storage: config.Storage{Data: "/p/.understudy"}}, "understudy keys create --name me)\n", `-H "x-api-key: $UNDERSTUDY_API_KEY"`, `, api_key=`},
		"keys in another place": {config.Config{Auth: config.Auth{Keys: true, JWT: &config.JWT{}}, Storage: config.Storage{Data: "/d e"}}, "--name me --data '/d e')\n", `-H "x-api-key: $UNDERSTUDY_API_KEY"`, `, api_key=`},
		"keys in Postgres":      {config.Config{Auth: config.Auth{Keys: true}, Storage: config.Storage{DatabaseURL: "postgres://u:secret@h/d"}}, "--database-url URL)\n", `-H "x-api-key: $UNDERSTUDY_API_KEY"`, `, api_key=`},
		"tokens":                {config.Config{Auth: config.Auth{JWT: &config.JWT{}}}, "export TOKEN=", `-H "Authorization: Bearer $TOKEN"`, `, headers=`},
		"ignored":               {config.Config{Auth: config.Auth{Keys: true}, Server: config.Server{IgnoreAuth: true}}, "", "", ""},
		"none":                  {config.Config{}, "", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			tryNext(t.Context(), &out, "http://x", credentialsFor(&tt.cfg), []string{"json", "chat"}, func(context.Context, string) (json.RawMessage, error) { return nil, nil })
			got := out.String()
			require.NotContains(t, got, "secret")
			require.Contains(t, got, tt.note)
			require.Contains(t, got, tt.python)
			calls := strings.Count(got, "curl ")
			require.GreaterOrEqual(t, calls, 3)
			require.Equal(t, calls, strings.Count(got, cmp.Or(tt.curl, "curl ")), got)
			if tt.note == "" {
				require.NotContains(t, got, "x-api-key")
				require.NotContains(t, got, "Bearer")
			}
		})
	}
}

package server

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/gate"
)

// auth.openapi adds schemes, requires them, and changes single operations, also behind an application with a description of its own.
func TestAuthInOpenAPI(t *testing.T) {
	t.Parallel()
	with := func(o *Options) {
		o.AuthOpenAPI = json.RawMessage(`{"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"X-Key"}},"security":[{"key":[]}],
			"paths":{"/threads":{"post":{"security":[]},"parameters":[{"name":"x"}]},"/new":{"get":{"summary":"new"}}}}`)
	}
	plain := setup(t).s.OpenAPI()
	check := func(text string) {
		require.Equal(t, "X-Key", gjson.Get(text, "components.securitySchemes.key.name").String())
		require.JSONEq(t, `[{"key":[]}]`, gjson.Get(text, "security").Raw)
		require.JSONEq(t, `[]`, gjson.Get(text, "paths./threads.post.security").Raw)
		require.JSONEq(t, `[{"name":"x"}]`, gjson.Get(text, "paths./threads.parameters").Raw)
		require.Equal(t, "new", gjson.Get(text, "paths./new.get.summary").String())
		require.Equal(t, gjson.GetBytes(plain, "paths./threads.post.summary").String(), gjson.Get(text, "paths./threads.post.summary").String())
		require.JSONEq(t, gjson.GetBytes(plain, "components.schemas").Raw, gjson.Get(text, "components.schemas").Raw)
	}
	_, text := setup(t, with).ask(t, "GET", "/openapi.json", "")
	check(text)
	_, text = setup(t, with, func(o *Options) {
		o.App = &playedApp{about: &gate.Application{OpenAPI: json.RawMessage(`{"openapi":"3.1.0","info":{"title":"mine"},"paths":{"/app/x":{}}}`)}}
	}).ask(t, "GET", "/openapi.json", "")
	check(text)
	require.Equal(t, "mine", gjson.Get(text, "info.title").String())
	require.Empty(t, gjson.GetBytes(plain, "security").Raw)
}

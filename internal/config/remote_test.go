package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Headers take variables of the env section, wherever it stands, and of the environment.
func TestRemote(t *testing.T) {
	t.Parallel()
	c := Default(Serve)
	c.File = "langgraph.json"
	_, mistakes := parseFile([]byte(`{
		"graphs": {
			"one": {"url": "https://me:pw@graphs.example.com/prefix/", "graph_id": "agent", "description": "Far away.",
				"headers": {"X-Api-Key": "${KEY}", "Authorization": "Bearer ${TOKEN}-${KEY}", "X-Plain": "$KEY"}},
			"two": {"url": "http://127.0.0.1:1"},
			"three": {"url": "https://gw/studio"}
		},
		"env": {"KEY": "k"}
	}`), c, func(name string) (string, bool) { return "of " + name, name == "TOKEN" })
	require.Empty(t, mistakes)
	require.Equal(t, []Graph{
		{ID: "one", Description: "Far away.", Remote: &Remote{
			URL: "https://me:pw@graphs.example.com/prefix", GraphID: "agent",
			Headers: map[string]string{"X-Api-Key": "k", "Authorization": "Bearer of TOKEN-k", "X-Plain": "$KEY"},
		}},
		{ID: "two", Remote: &Remote{URL: "http://127.0.0.1:1", GraphID: "two"}},
		{ID: "three", Remote: &Remote{URL: "https://gw/studio", GraphID: "three"}},
	}, c.Graphs)
}

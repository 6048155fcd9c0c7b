package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The document of an application next to the API describes both: paths, schemas and tags of each, the application's where both have one of a name.
func TestMergeOpenAPI(t *testing.T) {
	t.Parallel()
	api := `{"info":{"title":"API"},"paths":{"/a":{"get":1},"/b":{}},"tags":[{"name":"Threads"},{"name":"Store","description":"api"}],"components":{"schemas":{"A":1,"B":1}},"servers":[{"url":"/v1"}]}`
	app := `{"info":{"title":"Mine"},"paths":{"/b":{"get":2},"/c":{}},"tags":[{"name":"Store","description":"app"},{"name":"x"}],"components":{"schemas":{"B":2},"securitySchemes":{"k":1}}}`
	require.JSONEq(t, `{"info":{"title":"Mine"},"paths":{"/a":{"get":1},"/b":{"get":2},"/c":{}},"tags":[{"name":"Threads"},{"name":"Store","description":"app"},{"name":"x"}],
		"components":{"schemas":{"A":1,"B":2},"securitySchemes":{"k":1}},"servers":[{"url":"/v1"}]}`, string(mergeOpenAPI([]byte(app), []byte(api))))
}

//go:build nostudio

package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A program without the pages says so at their address, does not redirect browsers to it, and has the rest of the API.
func TestWithoutStudio(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/agents"} {
		w := setup(t, func(o *Options) { o.Studio, o.MountPrefix = true, prefix })
		for _, path := range []string{"/", "/t/some-thread", "/assets/index.js", "/licenses.txt"} {
			res, body := w.ask(t, "GET", prefix+"/studio"+path, "", "Accept", "text/html")
			require.Equal(t, 404, res.StatusCode, prefix+path+res.Header.Get("Location"))
			require.JSONEq(t, `{"detail":"this program has no studio: it was built with the tag nostudio"}`, body)
		}
		res, body := w.ask(t, "GET", "/", "", "Accept", "text/html")
		require.Equal(t, 200, res.StatusCode)
		require.JSONEq(t, `{"ok":true,"services":{}}`, body)
		res, _ = w.ask(t, "GET", prefix+"/understudy/runs?limit=1", "")
		require.Equal(t, 200, res.StatusCode)
	}
}

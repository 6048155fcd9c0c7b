package app

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// A run that is refused because its checkpoint is unknown leaves no thread behind.
func TestRunsFromUnknownCheckpoints(t *testing.T) {
	t.Parallel()
	w := serveLead(t, "", nil)
	count := func() int {
		status, answer := w.ask("POST", "/api/threads/search", `{}`)
		require.Equal(t, 200, status, answer)
		return len(gjson.Parse(answer).Array())
	}
	before := count()
	const unknown = "1f0b7b1e-0000-6000-8000-000000000000"
	body := `{"input":{"messages":[{"role":"user","content":"hi"}]},"checkpoint_id":"` + unknown + `"}`
	for _, path := range []string{
		"/api/runs/wait", "/api/runs/stream", "/api/threads/b6a4f3c2-1111-4222-8333-944445555666/runs/wait", "/api/threads/b6a4f3c2-1111-4222-8333-944445555666/runs",
		"/api/threads/" + w.thread + "/runs/wait", "/api/threads/" + w.thread + "/runs/stream",
	} {
		status, answer := w.ask("POST", path, body)
		require.Equal(t, 404, status, "%s: %s", path, answer)
		require.Equal(t, before, count(), path)
	}
}

package app

import (
	"net/http"
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

// Another method of a path is refused with the methods that it has, below either prefix.
func TestOtherMethodsOfTheGateway(t *testing.T) {
	t.Parallel()
	w := serveLead(t, "", nil)
	for _, prefix := range []string{"/api", "/api/langgraph"} {
		for path, allowed := range map[string]string{"/threads/" + w.thread + "/goal": "", "/user-profile": "GET, PUT"} {
			req, err := http.NewRequestWithContext(t.Context(), "TRACE", w.base+prefix+path, nil)
			require.NoError(t, err)
			res, err := w.client.Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, 405, res.StatusCode, prefix+path)
			if allowed != "" {
				require.Equal(t, allowed, res.Header.Get("Allow"), prefix+path)
			}
		}
		status, answer := w.ask("PUT", prefix+"/threads/"+w.thread, `{}`)
		require.Equal(t, 405, status, answer)
		status, answer = w.ask("PUT", prefix+"/nothing", `{}`)
		require.Equal(t, 404, status, answer)
	}
}

// The body of a search of assistants may be left out; one that is there has to be right.
func TestAssistantSearchWithoutBody(t *testing.T) {
	t.Parallel()
	w := serveLead(t, "", nil)
	for body, want := range map[string]int{"": 200, "null": 200, " null\n": 200, "{}": 200, `{"limit":1}`: 200, "nul": 422, " ": 422, "[]": 422, `{"limit":"x"}`: 422} {
		for _, prefix := range []string{"/api", "/api/langgraph"} {
			status, answer := w.ask("POST", prefix+"/assistants/search", body, "Content-Type", "application/json")
			require.Equal(t, want, status, "%q: %s", body, answer)
		}
	}
	status, answer := w.ask("POST", "/api/assistants/search", "null", "Content-Type", "text/plain")
	require.Equal(t, 422, status, answer)
}

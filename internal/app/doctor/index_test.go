package doctor

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStoreIndex(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[1,2,3]}]}`)
	}))
	defer s.Close()
	p := newPatient(t)
	set := func(dims int, env string) {
		p.write("langgraph.json", fmt.Sprintf(`{"graphs": {"e": {"agent": {"model": {"name": "scripted:", "script": [{"content": "hi"}]}}}},
			"env": {%s}, "store": {"index": {"embed": "openai:small", "dims": %d}}}`, env, dims))
	}
	set(3, "")
	require.Contains(t, p.examine(), "problem store: store.index: embedding openai:small: has no key; set OPENAI_API_KEY")
	key := `"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "` + s.URL + `"`
	set(3, key)
	require.Contains(t, p.examine(), "ok store: semantic search by openai:small (3 dimensions) →")
	p.models = true
	require.Regexp(t, `ok store: semantic search by openai:small \(3 dimensions\); answers in`, p.examine())
	set(4, key)
	require.Contains(t, p.examine(), "problem store: openai:small has 3 dimensions, and dims of store.index is 4 → set dims to 3")
	s.Close()
	require.Regexp(t, `problem store: openai:small does not answer`, p.examine())
}

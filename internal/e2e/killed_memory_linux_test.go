package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

const learnedFact = `{"newFacts":[{"content":"likes tea","category":"preference","confidence":0.9,"scope":"user","durability":"durable","authority":"descriptive"}]}`

// A server that is killed while its model reads a conversation for the memory: the next one learns from it, once, and a start after that has nothing to learn.
func TestKilledMemoryUpdate(t *testing.T) {
	t.Parallel()
	bin, err := build()
	require.NoError(t, err)
	reading := make(chan struct{}, 1)
	var asked atomic.Int32
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer := "Noted."
		if strings.Contains(string(body), "memory management system") {
			if asked.Add(1) == 1 {
				reading <- struct{}{}
				<-r.Context().Done() // the server is killed
				return
			}
			answer = learnedFact
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":%q},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", answer)
	}))
	t.Cleanup(model.Close)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(`
models: [{name: m, use: "langchain_openai:ChatOpenAI", model: m, api_key: k, base_url: "`+model.URL+`"}]
memory: {debounce_seconds: 0}
`), 0o600))
	env := append(os.Environ(), "DEER_FLOW_AUTH_DISABLED=1")
	url, kill := killable(t, dir, bin, env)
	thread := gjson.Get(post(t, url+"/threads", "{}"), "thread_id").String()
	post(t, url+"/threads/"+thread+"/runs/wait", `{"assistant_id":"lead_agent","input":{"messages":[{"type":"human","content":"I like tea."}]}}`)
	<-reading
	kill()

	url, kill = killable(t, dir, bin, env)
	eventually(t, "the conversation is learned from", func() bool {
		waiting := post(t, url+"/store/items/search", `{"namespace_prefix":["understudy:memory-queue","waiting"]}`)
		return gjson.Get(waiting, "items.#").Int() == 0
	})
	kill()

	url, _ = program(t, dir, bin, env, "serve", "--deerflow", "--port", "0")
	require.Equal(t, `["likes tea"]`, gjson.Get(get(t, url+"/api/memory"), "facts.#.content").Raw)
	require.Equal(t, "success", gjson.Get(get(t, url+"/threads/"+thread+"/runs"), "0.status").String())
	require.EqualValues(t, 2, asked.Load())
}

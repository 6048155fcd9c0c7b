package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
	"understudy/storage/postgres/migratedtest"
)

// A server that is asked to end sends the answers of stateless runs, which leave nothing for another request, as long as they end within the grace period. Streams of
// other runs are cut at once, so that their readers go to another server.
func TestAnswersOfStatelessRunsAtShutdown(t *testing.T) {
	t.Parallel()
	const each = 8
	wait := `{"assistant_id":"slow","input":{}}`
	requests := []struct{ path, body, end string }{
		{"/runs/wait", wait, `{"at":2}`},
		{"/runs/stream", wait, `{"at":2}`},
		{"/v1/chat/completions", `{"model":"slow","messages":[{"role":"user","content":"x"}]}`, "wrote no messages"}, // as this graph never does
		{"/v1/chat/completions", `{"model":"slow","stream":true,"messages":[{"role":"user","content":"x"}]}`, "wrote no messages"},
	}
	for name, flags := range map[string]map[string]string{"sqlite": {}, "postgres": {"database-url": migratedtest.Database(t), "database-connections": "4"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := slow{began: make(chan struct{}, 100), goOn: make(chan struct{})}
			all := map[string]string{"port": "0", "data": t.TempDir(), "grace": "2m", "concurrency": "100"}
			for key, value := range flags {
				all[key] = value
			}
			if name == "postgres" {
				delete(all, "data")
			}
			settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: all, Lookup: func(string) (string, bool) { return "", false }})
			require.NoError(t, err)
			srv, err := New(t.Context(), Config{Settings: settings})
			require.NoError(t, err)
			require.NoError(t, srv.Register("slow", "", g))
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- srv.Run(ctx) }()
			url := srv.url()

			thread, _ := call(t, http.MethodPost, url+"/threads", `{}`)["thread_id"].(string)
			var posts sync.WaitGroup
			answers := make([]string, each*len(requests))
			for i := range answers {
				posts.Go(func() { answers[i] = answerOf(url+requests[i%len(requests)].path, requests[i%len(requests)].body) })
			}
			cut := make(chan string, 1)
			go func() { cut <- answerOf(url+"/threads/"+thread+"/runs/stream", wait) }()
			for range len(answers) + 1 {
				<-g.began
			}
			stop()
			select {
			case text := <-cut:
				require.NotContains(t, text, `{"at":2}`)
				require.Contains(t, text, "unexpected EOF")
			case <-time.After(time.Minute):
				t.Fatal("the stream of a run on a thread was not cut")
			}
			close(g.goOn)
			posts.Wait()
			for i, text := range answers {
				require.Contains(t, text, requests[i%len(requests)].end, "%s", requests[i%len(requests)].path)
				require.NotContains(t, text, "EOF")
			}
			require.NoError(t, <-ended)
		})
	}
}

// answerOf returns an answer as far as it came, with the error that ended it.
func answerOf(url, body string) string {
	resp, err := http.Post(url, "application/json", strings.NewReader(body)) //nolint:gosec,noctx // of the test's server
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, resp.Body); err != nil {
		fmt.Fprintf(&text, " %v", err)
	}
	return text.String()
}

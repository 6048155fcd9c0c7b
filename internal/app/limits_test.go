package app

import (
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
	"understudy/storage/postgres/migratedtest"
)

// An identity has at most so many runs waiting and running, whichever server it asks and however many requests are on their way at once. Others are not
// held up, a run that displaces another takes its place, and runs of crons count but are not refused.
func TestConcurrentRunsOfAnIdentity(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string]map[string]string{
		"one server on SQLite":    {"data": t.TempDir()},
		"two servers on Postgres": {"data": t.TempDir(), "database-url": migratedtest.Database(t), "database-connections": "4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := counter{goOn: make(chan struct{})}
			start := func() string {
				all := maps.Clone(flags)
				all["port"] = "0"
				settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: all, Lookup: func(string) (string, bool) { return "", false }})
				require.NoError(t, err)
				settings.Limits.ConcurrentRuns = 3
				return runWith(t, Config{Settings: settings, Auth: owners{}, Log: slog.New(slog.DiscardHandler)}, "slow", g).url()
			}
			servers := []string{start()}
			if flags["database-url"] != "" {
				servers = append(servers, start())
			}
			ask := func(user string, server int, method, path, body string) (status int, answer []byte) {
				req, err := http.NewRequestWithContext(t.Context(), method, servers[server%len(servers)]+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return 0, nil
				}
				req.Header = http.Header{"Authorization": {"Bearer " + user}, "Content-Type": {"application/json"}}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return 0, nil
				}
				defer resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Error(err)
				}
				return resp.StatusCode, text
			}
			const body = `{"assistant_id":"slow","input":{}}`
			var thread struct {
				ID string `json:"thread_id"`
			}
			_, text := ask("ada", 0, "POST", "/threads", `{}`)
			require.NoError(t, json.Unmarshal(text, &thread))
			on := "/threads/" + thread.ID + "/runs"
			status, text := ask("ada", 0, "POST", on, body)
			require.Equal(t, 200, status, "%s", text)

			statuses := make([]int, 12)
			var group sync.WaitGroup
			for i := range statuses {
				group.Go(func() { statuses[i], _ = ask("ada", i, "POST", "/runs", body) })
			}
			group.Wait()
			slices.Sort(statuses)
			require.Equal(t, []int{200, 200, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429}, statuses)
			for i, path := range []string{"/runs/wait", "/runs/stream", on, on + "/wait", on + "/stream"} {
				status, text := ask("ada", i, "POST", path, body)
				require.Equal(t, 429, status, "%s: %s", path, text)
			}
			status, text = ask("bob", 0, "POST", "/runs/batch", `[`+body+`,`+body+`,`+body+`,`+body+`]`)
			require.Equal(t, 429, status, "%s", text)
			status, text = ask("bob", 1, "POST", "/runs/batch", `[`+body+`,`+body+`,`+body+`]`)
			require.Equal(t, 200, status, "none of the batch before was made: %s", text)
			status, text = ask("ada", 1, "POST", on, `{"assistant_id":"slow","input":{},"multitask_strategy":"interrupt"}`)
			require.Equal(t, 200, status, "in place of the one on the thread: %s", text)

			status, text = ask("ada", 0, "POST", on+"/crons", `{"assistant_id":"slow","input":{},"schedule":"* * * * * *"}`)
			require.Equal(t, 200, status, "%s", text)
			require.Eventually(t, func() bool {
				_, text := ask("ada", 0, "GET", on, "")
				return strings.Count(string(text), `"run_id"`) > 2
			}, time.Minute, 100*time.Millisecond, "the run of the cron is made")
			var cron struct {
				ID string `json:"cron_id"`
			}
			require.NoError(t, json.Unmarshal(text, &cron))
			status, _ = ask("ada", 0, "DELETE", "/runs/crons/"+cron.ID, "")
			require.Less(t, status, 300)
			close(g.goOn)
			require.Eventually(t, func() bool {
				status, _ := ask("ada", 1, "POST", "/runs/wait", body)
				return status == 200
			}, time.Minute, 50*time.Millisecond)
		})
	}
}

package app

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/auth"
	"understudy/graph"
	"understudy/internal/config"
	"understudy/internal/logtest"
	"understudy/run"
	"understudy/storage/postgres/migratedtest"
)

// ran is a graph that says as whom each run of it acts.
type ran struct {
	graph.Graph
	as chan string
}

func (g ran) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(func(graph.Event, error) bool) {
		select {
		case g.as <- access.IdentityOfRun(inv.Config.Config):
		case <-ctx.Done():
		}
	}
}

// A cron makes no run any more when no valid API key of its creator has the scopes with which it was created. Crons of others go on.
func TestCronsOfRevokedKeys(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string]map[string]string{
		"SQLite":   {"data": t.TempDir(), "port": "0"},
		"Postgres": {"data": t.TempDir(), "port": "0", "database-url": migratedtest.Database(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
			require.NoError(t, err)
			settings.Auth.Keys = true
			var log logtest.Buffer
			g := ran{as: make(chan string, 100)}
			srv := runWith(t, Config{Settings: settings, Log: slog.New(slog.NewTextHandler(&log, nil))}, "g", g)
			keys := map[string]string{} // IDs
			create := func(name, identity string, scopes ...string) string {
				k, text := auth.New(name, identity, scopes, time.Now(), time.Time{})
				require.NoError(t, srv.rows.InsertKey(t.Context(), k))
				keys[name] = k.ID
				return text
			}
			for identity, scope := range map[string]string{"ada": auth.Write, "bob": auth.Write, "cleo": auth.Admin} {
				req, err := http.NewRequestWithContext(t.Context(), "POST", srv.url()+"/runs/crons", strings.NewReader(`{"assistant_id":"g","input":{},"schedule":"* * * * * *"}`))
				require.NoError(t, err)
				req.Header = http.Header{"X-Api-Key": {create("first of "+identity, identity, scope)}, "Content-Type": {"application/json"}}
				resp, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, 200, resp.StatusCode, "%s", text)
				require.True(t, json.Valid(text))
			}
			// until waits for a run as each of some identities, and returns as whom else there were runs meanwhile.
			until := func(want ...string) map[string]bool {
				seen := map[string]bool{}
				for missing := len(want); missing > 0; {
					var as string
					select {
					case as = <-g.as:
					case <-time.After(time.Minute):
						require.FailNow(t, "there are no runs as each of these", "%v; there were runs as %v\n%s", want, seen, &log)
					}
					if !seen[as] {
						for _, w := range want {
							if w == as {
								missing--
							}
						}
					}
					seen[as] = true
				}
				return seen
			}
			until("ada", "bob", "cleo")
			create("second of bob", "bob", auth.Admin) // implies what the first one had
			create("second of cleo", "cleo", auth.Write)
			for _, name := range []string{"first of ada", "first of bob", "first of cleo"} {
				require.NoError(t, srv.rows.RevokeKey(t.Context(), keys[name], time.Now()))
			}
			require.Eventually(t, func() bool {
				return strings.Contains(log.String(), "no valid API key of ada: create") && strings.Contains(log.String(), "no valid API key of cleo has the scope "+auth.Admin)
			}, time.Minute, 50*time.Millisecond, "the log says why")
			for alone, tries := 0, 0; alone < 3; tries++ { // after runs that were made before
				require.Less(t, tries, 30)
				if alone++; len(until("bob")) > 1 {
					alone = 0
				}
			}
			create("third of ada", "ada", auth.Write)
			require.Equal(t, map[string]bool{"ada": true, "bob": true}, until("ada", "bob"))
		})
	}
}

// A cron makes no run any more when its creator came with what the server no longer accepts, whatever is accepted in its place.
func TestCronsOfSwitchedOffCredentials(t *testing.T) {
	t.Parallel()
	key := `{"configurable":{"langgraph_auth_user_id":"ada","langgraph_auth_user":{"identity":"ada","permissions":[]}}}`
	token := `{"configurable":{"langgraph_auth_user_id":"ada","langgraph_auth_user":{"identity":"ada","permissions":[],"claims":{"sub":"ada"}}}}`
	jwt := &config.JWT{Secret: []byte(strings.Repeat("s", 32))}
	for name, c := range map[string]struct {
		auth       config.Auth
		key, token string // of the refusals; "": accepted
	}{
		"tokens": {config.Auth{JWT: jwt}, "keys are not accepted any more", ""},
		"keys":   {config.Auth{Keys: true}, "no valid API key of ada", "neither is accepted any more"},
		"both":   {config.Auth{Keys: true, JWT: jwt}, "no valid API key of ada", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: map[string]string{"data": t.TempDir(), "port": "0"}, Lookup: func(string) (string, bool) { return "", false }})
			require.NoError(t, err)
			settings.Auth = c.auth
			srv := runWith(t, Config{Settings: settings, Log: slog.New(slog.DiscardHandler)}, "g", ran{as: make(chan string, 1)})
			resp, err := http.Get(srv.url() + "/readyz") //nolint:noctx // after the start
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			admit := srv.admitCron()
			for payload, want := range map[string]string{key: c.key, token: c.token} {
				err := admit(t.Context(), &run.Cron{Payload: json.RawMessage(`{"config":` + payload + `}`)}, &run.Request{})
				if want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			}
		})
	}
}

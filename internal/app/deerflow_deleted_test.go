package app

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/internal/logtest"
)

// Who was deleted from DeerFlow's accounts is signed out at once, and what they scheduled makes no more runs; the log says why. Crons of
// others still make runs, and those of a channel's users, who need no account.
func TestDeletedAccounts(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	g := ran{as: make(chan string, 1000)}
	srv, user := startDeerFlow(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }, func(s *Server) { require.NoError(t, s.Register("ran", "", g)) })
	ann, ben := user("ann@example.com"), user("ben@example.com")
	ids := map[string]string{}
	for name, u := range map[string]*gatewayUser{"ann": ann, "ben": ben} {
		ids[name] = u.must("GET", "/api/v1/auth/me", "", "id")
		u.must("POST", "/runs/crons", `{"assistant_id":"ran","input":{},"schedule":"* * * * * *"}`, "cron_id")
	}
	status, answer := user("").ask("POST", "/runs/crons", `{"assistant_id":"ran","input":{},"schedule":"* * * * * *"}`,
		"X-Deerflow-Internal-Token", "the token of channels", "X-Deerflow-Owner-User-Id", "feishu-1", "Cookie", "csrf_token=a", "X-Csrf-Token", "a")
	require.Equal(t, 200, status, answer)
	// until waits for a run of a user, and reports whether there was one of ann meanwhile.
	until := func(want string) (ann bool) {
		for {
			select {
			case as := <-g.as:
				if as == want {
					return ann
				}
				ann = ann || as == ids["ann"]
			case <-time.After(time.Minute):
				require.FailNow(t, "there is no run", "%s", &log)
			}
		}
	}
	until(ids["ann"])
	until(ids["ben"])
	until("feishu-1")

	db, err := sqlite.OpenConn(filepath.Join(srv.cfg.Storage.Data, "understudy.db"), sqlite.OpenReadWrite)
	require.NoError(t, err)
	require.NoError(t, sqlitex.ExecuteTransient(db, "DELETE FROM accounts WHERE account_id = ?", &sqlitex.ExecOptions{Args: []any{ids["ann"]}}))
	require.NoError(t, db.Close())

	for _, path := range []string{"/api/v1/auth/me", "/api/threads/00000000-0000-4000-8000-000000000000", "/threads/00000000-0000-4000-8000-000000000000"} {
		status, answer := ann.ask("GET", path, "")
		require.Equal(t, 401, status, "%s: %s", path, answer)
	}
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "the account of ann@example.com was deleted") }, time.Minute, 20*time.Millisecond, "the log says why")
	for alone, tries := 0, 0; alone < 3; tries++ { // after runs that were made before
		require.Less(t, tries, 30)
		if alone++; until(ids["ben"]) {
			alone = 0
		}
	}
	until("feishu-1")
}

package app

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/deerflow/memory"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/logtest"
	"understudy/run"
	"understudy/storage/postgres/migratedtest"
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

	deleteAccount(t, srv, ids["ann"])

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

// deleteAccount deletes an account as an operator does, with a client of the database.
func deleteAccount(t *testing.T, srv *Server, user string) {
	t.Helper()
	if at := srv.cfg.Storage.DatabaseURL; at != "" {
		conn, err := pgx.Connect(t.Context(), at)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "DELETE FROM accounts WHERE account_id = $1", user)
		require.NoError(t, errors.Join(err, conn.Close(t.Context())))
		return
	}
	db, err := sqlite.OpenConn(filepath.Join(srv.cfg.Storage.Data, "understudy.db"), sqlite.OpenReadWrite)
	require.NoError(t, err)
	require.NoError(t, sqlitex.ExecuteTransient(db, "DELETE FROM accounts WHERE account_id = ?", &sqlitex.ExecOptions{Args: []any{user}}))
	require.NoError(t, db.Close())
}

// Nothing acts for a deleted account: its runs that wait or run are cancelled, and what was remembered of it is deleted. Those of others go on.
func TestRunsOfDeletedAccounts(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{"SQLite": "", "Postgres": migratedtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, user := startDeerFlow(t, func(c *Config) {
				c.Settings.Storage.DatabaseURL = where
			})
			type owner struct {
				user                              *gatewayUser
				id, going, delayed, thread, later string
			}
			all := map[string]*owner{}
			for _, name := range []string{"ann", "ben"} {
				u := user(name + "@example.com")
				o := &owner{user: u}
				all[name] = o
				o.id = u.must("GET", "/api/v1/auth/me", "", "id")
				u.must("POST", "/api/memory/facts", `{"content":"Drinks tea"}`, "version")
				o.thread, o.later = u.must("POST", "/threads", `{}`, "thread_id"), u.must("POST", "/threads", `{}`, "thread_id")
				o.going = u.must("POST", "/threads/"+o.thread+"/runs", `{"assistant_id":"waits","input":{}}`, "run_id")
				o.delayed = u.must("POST", "/threads/"+o.later+"/runs", `{"assistant_id":"waits","input":{},"after_seconds":3600}`, "run_id")
				u.must("POST", "/threads/"+o.thread+"/runs", `{"assistant_id":"waits","input":{},"multitask_strategy":"enqueue"}`, "run_id")
				file := filepath.Join(home(srv.cfg), "users", o.id, "agents", "cook", "memory.json")
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(`{}`), 0o600))
			}
			deleteAccount(t, srv, all["ann"].id)
			active := func(o *owner) (n int) {
				for _, thread := range []string{o.thread, o.later} {
					list, err := srv.rows.Runs().ActiveRuns(t.Context(), id.Thread(thread))
					require.NoError(t, err)
					n += len(list)
				}
				return n
			}
			require.Eventually(t, func() bool { return active(all["ann"]) == 0 }, time.Minute, 20*time.Millisecond)
			for _, r := range []string{all["ann"].going, all["ann"].delayed} {
				x, err := srv.runs.Get(t.Context(), "", id.Run(r))
				require.NoError(t, err)
				require.Equal(t, run.Interrupted, x.Status)
			}
			require.Equal(t, 3, active(all["ben"]))
			remembered := func(o *owner) [2]bool { // in the store, and in a file
				item, failed := srv.items.Get(t.Context(), []string{o.id, "memory"}, "memory.json", nil)
				_, err := os.Stat(filepath.Join(home(srv.cfg), "users", o.id, "agents", "cook", "memory.json"))
				return [2]bool{item != nil || failed != nil, err == nil}
			}
			require.Eventually(t, func() bool { return remembered(all["ann"]) == [2]bool{} }, time.Minute, 20*time.Millisecond)
			require.Equal(t, [2]bool{true, true}, remembered(all["ben"]))
			for _, thread := range []string{all["ben"].thread, all["ben"].later} { // the server need not wait for their runs
				status, answer := all["ben"].user.ask("DELETE", "/threads/"+thread, "")
				require.Equal(t, 204, status, answer)
			}
		})
	}
}

// An account whose memory cannot be deleted keeps no account that was deleted after it waiting: runs of all end, and the memories of the others go.
func TestAnAccountThatFailsKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	srv, user := startDeerFlow(t, func(*Config) {})
	var ids, threads []string
	for n := range 3 {
		u := user(fmt.Sprintf("user%d@example.com", n))
		ids = append(ids, u.must("GET", "/api/v1/auth/me", "", "id"))
		u.must("POST", "/api/memory/facts", `{"content":"Drinks tea"}`, "version")
		threads = append(threads, u.must("POST", "/threads", `{}`, "thread_id"))
		u.must("POST", "/threads/"+threads[n]+"/runs", `{"assistant_id":"waits","input":{}}`, "run_id")
	}
	full := filepath.Join(home(srv.cfg), "users", ids[0], "memory.json", "full")
	require.NoError(t, os.MkdirAll(full, 0o755))
	for _, user := range ids {
		deleteAccount(t, srv, user)
	}
	require.Error(t, srv.endAccounts(t.Context()), "the folder is not empty")
	for n, user := range ids {
		item, err := srv.items.Get(t.Context(), []string{user, "memory"}, "memory.json", nil)
		require.NoError(t, err)
		require.Nil(t, item, n)
		require.Eventually(t, func() bool {
			list, err := srv.rows.Runs().ActiveRuns(t.Context(), id.Thread(threads[n]))
			require.NoError(t, err)
			return len(list) == 0
		}, time.Minute, 20*time.Millisecond, n)
	}
	require.DirExists(t, full)
}

// An agent goes with its memory, and with what waits to be learned for it: one that is made later under its name knows nothing. What another one or its user knows stays, and
// what a deletion has left is deleted by the next one.
func TestMemoryOfDeletedAgents(t *testing.T) {
	t.Parallel()
	srv, user := startDeerFlow(t, func(c *Config) {
		require.NoError(t, os.WriteFile(c.Settings.Server.DeerFlow, []byte("config_version: 34\nmodels: []\nagents_api: {enabled: true}\n"), 0o600))
	})
	ann := user("ann@example.com")
	me := ann.must("GET", "/api/v1/auth/me", "", "id")
	cook := memory.Subject(me, "cook")
	remember := func(subject string) {
		t.Helper()
		text := "Drinks tea"
		_, err := srv.deerflow.Memory.Add(t.Context(), subject, memory.Edit{Content: &text})
		require.NoError(t, err)
		require.NoError(t, srv.learner.Add(t.Context(), subject, "t", []memory.Turn{{User: true, Text: "hi"}}))
	}
	knows := func(subject string, facts int, waits int) {
		t.Helper()
		m, err := srv.deerflow.Memory.Read(t.Context(), subject)
		require.NoError(t, err)
		require.Len(t, m.Facts, facts)
		list, err := srv.waiting().List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, waits)
	}
	ann.must("POST", "/api/agents", `{"name":"cook"}`, "name")
	remember(me)
	remember(cook)
	status, answer := ann.ask("DELETE", "/api/agents/cook", "")
	require.Equal(t, 204, status, answer)
	ann.must("POST", "/api/agents", `{"name":"cook"}`, "name")
	knows(cook, 0, 1)
	knows(me, 1, 1)

	status, answer = ann.ask("DELETE", "/api/agents/cook", "")
	require.Equal(t, 204, status, answer)
	remember(cook)
	status, answer = ann.ask("DELETE", "/api/agents/cook", "")
	require.Equal(t, 404, status, answer)
	knows(cook, 0, 1)
}

func home(c *config.Config) string {
	dir, _ := c.Lookup("DEER_FLOW_HOME")
	return dir
}

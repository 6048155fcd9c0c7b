package moving

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/deerflow"
	"understudy/deerflow/account"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/internal/jsonplus"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/thread"
)

// deerFlowTables are those of DeerFlow of August 2026, as far as they are read, and of langgraph-checkpoint-sqlite.
const deerFlowTables = `
CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB,
	metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL,
	type TEXT, value BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
CREATE TABLE users (id VARCHAR(36) PRIMARY KEY, email VARCHAR(320) NOT NULL, password_hash VARCHAR(128), system_role VARCHAR(16) NOT NULL, created_at DATETIME NOT NULL,
	oauth_provider VARCHAR(32), oauth_id VARCHAR(128), needs_setup BOOLEAN NOT NULL, token_version INTEGER NOT NULL);
CREATE TABLE threads_meta (thread_id VARCHAR(64) PRIMARY KEY, assistant_id VARCHAR(128), user_id VARCHAR(64), display_name VARCHAR(256), status VARCHAR(20), metadata_json JSON,
	created_at DATETIME, updated_at DATETIME);
CREATE TABLE runs (run_id VARCHAR(64) PRIMARY KEY, thread_id VARCHAR(64) NOT NULL, user_id VARCHAR(64), status VARCHAR(20), metadata_json JSON, created_at DATETIME NOT NULL);
CREATE TABLE run_events (id INTEGER PRIMARY KEY, thread_id VARCHAR(64), run_id VARCHAR(64), user_id VARCHAR(64), event_type VARCHAR(32), category VARCHAR(16), content TEXT,
	event_metadata JSON, seq INTEGER, created_at DATETIME, UNIQUE (thread_id, seq));
CREATE TABLE feedback (feedback_id VARCHAR(64) PRIMARY KEY, run_id VARCHAR(64), thread_id VARCHAR(64), user_id VARCHAR(64), message_id VARCHAR(64), rating INTEGER, comment TEXT, created_at DATETIME);
`

const (
	anna  = "11111111-1111-4111-8111-111111111111"
	ben   = "22222222-2222-4222-8222-222222222222"
	first = "01a214cb-0000-7000-8000-000000000001"
	again = "01a214cb-0000-7000-8000-000000000002"
	sound = "01a214cb-0000-7000-8000-000000000003"
	tried = "01a214cb-0000-7000-8000-000000000004"
)

// deerFlowMessage is a message as JSON, of a person for even numbers.
func deerFlowMessage(n int) string {
	kind := []string{"human", "ai"}[n%2]
	return fmt.Sprintf(`{"type":"%s","id":"m%d","content":"text %d"}`, kind, n, n)
}

// emptyDeerFlow makes the folder of an installation, and returns what adds rows to its tables.
func emptyDeerFlow(t *testing.T) (home string, add func(table string, values ...any)) {
	t.Helper()
	home = t.TempDir()
	file := filepath.Join(home, ".deer-flow", "data", "deerflow.db")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	conn, err := sqlite.OpenConn(file, sqlite.OpenReadWrite|sqlite.OpenCreate)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	require.NoError(t, sqlitex.ExecuteScript(conn, deerFlowTables, nil))
	return home, func(table string, values ...any) {
		t.Helper()
		marks := strings.TrimSuffix(strings.Repeat("?,", len(values)), ",")
		require.NoError(t, sqlitex.Execute(conn, "INSERT INTO "+table+" VALUES ("+marks+")", &sqlitex.ExecOptions{Args: values}))
	}
}

// deerFlowCheckpoint is a checkpoint as its table has it.
func deerFlowCheckpoint(t *testing.T, id string, version int, messages ...string) []byte {
	t.Helper()
	list := msgp.AppendArrayHeader(nil, uint32(len(messages)))
	for _, m := range messages {
		var err error
		list, err = jsonplus.AppendMessage(list, json.RawMessage(m))
		require.NoError(t, err)
	}
	out := msgp.AppendMapHeader(nil, 6)
	for _, pair := range []struct {
		key   string
		value []byte
	}{
		{"v", msgp.AppendInt(nil, 4)},
		{"id", msgp.AppendString(nil, id)},
		{"ts", msgp.AppendString(nil, "2026-06-02T10:00:00.000000+00:00")},
		{"channel_values", append(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "messages"), list...)},
		{"channel_versions", msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "messages"), fmt.Sprintf("%032d.0.1", version))},
		{"versions_seen", msgp.AppendMapHeader(nil, 0)},
	} {
		out = append(msgp.AppendString(out, pair.key), pair.value...)
	}
	return out
}

// deerFlowHome makes the folder of an installation. Its thread "chat-1" has ten messages, of which the state has the last two.
func deerFlowHome(t *testing.T) string {
	t.Helper()
	home, add := emptyDeerFlow(t)
	add("users", ben, "Ben@example.com", "$dfv2$hash-of-ben", "user", "2026-05-02 03:04:05.000006", nil, nil, 0, 3)
	add("users", anna, "anna@example.com", nil, "admin", "2026-05-03 03:04:05.000006", "github", "g1", 1, 0)
	add("threads_meta", "chat-1", "lead_agent", ben, "A title", "idle", `{"deerflow_pinned":true,"user_id":"liar"}`, "2026-06-01 10:00:00.000001", "2026-06-02 10:00:00.000001")
	add("threads_meta", "empty", nil, nil, nil, "idle", `{}`, "2026-06-01 10:00:00.000001", "2026-06-01 10:00:00.000001")
	add("checkpoints", "chat-1", "", "1f051c2e-7a3b-6f2a-8002-1b2c3d4e5f60", "1f051c2e-7a3b-6f2a-8001-1b2c3d4e5f60", "msgpack",
		deerFlowCheckpoint(t, "1f051c2e-7a3b-6f2a-8002-1b2c3d4e5f60", 5, deerFlowMessage(8), deerFlowMessage(9)), `{"source":"loop","step":7,"run_id":"`+sound+`"}`)
	seq := 0
	event := func(run, category, caller, content string) {
		seq++
		add("run_events", seq, "chat-1", run, ben, "x", category, content, `{"caller":"`+caller+`"}`, seq, "2026-06-02 10:00:00")
	}
	for n := range 10 {
		event(sound, "message", "lead_agent", deerFlowMessage(n))
	}
	event(sound, "message", "middleware:summarize", `{"type":"ai","id":"s","content":"a summary"}`)
	event(sound, "message", "subagent:bash", `{"type":"ai","id":"b","content":"of a subagent"}`)
	event(first, "message", "lead_agent", `{"type":"ai","id":"old","content":"answered again"}`)
	event(tried, "message", "lead_agent", `{"type":"human","id":"edited","content":"an edit whose run failed"}`)
	event(sound, "trace", "lead_agent", `{"chain":"x"}`)
	event(sound, "message", "lead_agent", deerFlowMessage(10)) // its checkpoint was never saved
	for n, content := range []string{`{cut`, `[]`, `{"content":"no type"}`} {
		add("run_events", 200+n, "chat-1", sound, ben, "x", "message", content, `not JSON`, 200+n, "2026-06-02 10:00:00")
	}
	for n := range 2 {
		add("run_events", 100+n, "empty", sound, ben, "x", "message", deerFlowMessage(20+n), `{}`, 1+n, "2026-06-02 10:00:00")
	}
	add("runs", first, "chat-1", ben, "success", `{}`, "2026-05-01 10:00:00")
	add("runs", again, "chat-1", ben, "success", `{"regenerate_from_run_id":"`+first+`"}`, "2026-05-01 11:00:00")
	add("runs", tried, "chat-1", ben, "error", `{"regenerate_from_run_id":"`+sound+`","replay_kind":"edit"}`, "2026-06-03 10:00:00")
	for name, text := range map[string]string{
		"users/" + ben + "/memory.json":             `{"facts":[{"id":"f1","content":"Drinks tea","confidence":0.9}]}`,
		"users/" + ben + "/agents/cook/memory.json": `{"facts":[{"id":"f1","content":"Cooks"}]}`,
		"users/" + anna + "/memory.json":            `none`,
	} {
		at := filepath.Join(home, ".deer-flow", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
	}
	add("feedback", "f1", sound, "chat-1", ben, nil, -1, "bad", "2026-06-02 10:00:00.5")
	add("feedback", "f3", again, "chat-1", ben, nil, nil, "no opinion", "2026-06-02 10:00:00.5")
	add("feedback", "f4", first, "chat-1", ben, nil, 0, nil, "2026-06-02 10:00:00.5")
	add("feedback", "f2", sound, "gone", ben, nil, 1, nil, "2026-06-02 10:00:00.5")
	return home
}

// An installation moves with accounts, owners, whole conversations and feedback, once, into either database.
func TestImportFromDeerFlow(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]*config.Config{"sqlite": {Storage: config.Storage{Data: t.TempDir()}}, "postgres": {Storage: config.Storage{DatabaseURL: postgrestest.Database(t)}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, home := t.Context(), deerFlowHome(t)
			cfg.Graphs = []config.Graph{{ID: "other"}}
			result, err := Import{From: home}.Run(ctx, cfg, nil)
			require.NoError(t, err)
			require.Len(t, result.Problems, 1)
			require.Contains(t, result.Problems[0].String(), "memory of "+anna)
			require.Equal(t, []int{2, 1, 2, 3, 1, 2}, []int{result.Threads.New, result.Checkpoints.New, result.Users.New, result.Runs.New, result.Feedback.New, result.Memories.New})
			notes := strings.Join(result.Notes, "\n")
			require.Contains(t, notes, "1 threads had no owner and belong to "+anna)
			require.Contains(t, notes, "1 pieces of feedback are left out: their threads are gone")
			require.Contains(t, notes, "2 pieces of feedback are left out: they have no rating of +1 or -1")
			require.Contains(t, notes, "3 messages of run_events of 1 threads are left out, as they cannot be read")
			require.Contains(t, notes, "3 messages of 2 threads are left out, as no checkpoint leads to them; the first of these threads is chat-1")
			require.NotContains(t, notes, "no UUIDs")
			require.NotContains(t, notes, "not in langgraph.json")

			rows, err := openData(ctx, cfg, nil)
			require.NoError(t, err)
			checkDeerFlow(t, rows)
			b, err := rows.User(ctx, ben)
			require.NoError(t, err)
			was := b.Version
			b.Password, b.Version = "changed here", b.Version+1
			require.NoError(t, rows.UpdateUser(ctx, b, was))
			changed := "better"
			_, err = rows.PutFeedback(ctx, deerflow.Feedback{ID: "other", Run: sound, Thread: "chat-1", User: ben, Rating: 1, Comment: &changed, CreatedAt: time.Now()})
			require.NoError(t, err)
			require.NoError(t, rows.Close())

			// Again: nothing is moved twice, and what was changed here stays.
			result, err = Import{From: filepath.Join(home, ".deer-flow", "data", "deerflow.db")}.Run(ctx, cfg, nil)
			require.NoError(t, err)
			require.Len(t, result.Problems, 1)
			require.Equal(t, []int{0, 0, 0, 0, 2, 1, 3, 2}, []int{result.Threads.New, result.Checkpoints.New, result.Users.New, result.Feedback.New, result.Users.Known, result.Feedback.Known, result.Runs.Known, result.Memories.Known})
			rows, err = openData(ctx, cfg, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, rows.Close()) }()
			b, err = rows.User(ctx, ben)
			require.NoError(t, err)
			require.Equal(t, "changed here", b.Password)
			list, err := rows.FeedbackOf(ctx, ben, "chat-1")
			require.NoError(t, err)
			require.Equal(t, 1, list[0].Rating)
		})
	}
}

func checkDeerFlow(t *testing.T, rows backend.Database) {
	t.Helper()
	ctx := t.Context()
	b, err := rows.UserByEmail(ctx, "ben@example.com")
	require.NoError(t, err)
	require.Equal(t, []any{ben, "Ben@example.com", "$dfv2$hash-of-ben", account.Plain, 3, false}, []any{b.ID, b.Email, b.Password, b.Role, b.Version, b.Setup})
	a, err := rows.User(ctx, anna)
	require.NoError(t, err)
	require.Equal(t, []any{"", account.Admin, "github", true}, []any{a.Password, a.Role, a.Provider, a.Setup})

	owners := map[id.Thread]string{}
	list, err := rows.Threads().Threads(ctx, thread.Query{Limit: 10})
	require.NoError(t, err)
	for _, row := range list {
		owners[row.ID] = gjson.GetBytes(row.Metadata, "user_id").String()
		require.Equal(t, "lead_agent", gjson.GetBytes(row.Metadata, "graph_id").String())
		require.Equal(t, thread.Idle, row.Status)
	}
	require.Equal(t, map[id.Thread]string{"chat-1": ben, "empty": anna}, owners)

	events, err := rows.Events(ctx, "chat-1", 0, 0)
	require.NoError(t, err)
	var said []string
	for _, e := range events {
		if e.Category == eventstore.CategoryMessage {
			said = append(said, gjson.GetBytes(e.Content, "content").String())
		}
	}
	want := make([]string, 10)
	for n := range want {
		want[n] = fmt.Sprintf("text %d", n)
	}
	require.Equal(t, want, said)

	failed, err := rows.Runs().Run(ctx, "chat-1", tried)
	require.NoError(t, err)
	require.Equal(t, run.Error, failed.Status)
	require.Equal(t, "edit", gjson.GetBytes(failed.Metadata, "replay_kind").String())

	rated, err := rows.FeedbackOf(ctx, ben, "chat-1", sound)
	require.NoError(t, err)
	require.Len(t, rated, 1)
	require.Equal(t, []any{"f1", -1, "bad"}, []any{rated[0].ID, rated[0].Rating, *rated[0].Comment})
}

// An account here with the address of another one there is a problem, not a merge.
func TestImportOfTakenAddress(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
	rows, err := openData(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.NoError(t, rows.InsertUser(t.Context(), &account.User{ID: "other", Email: "ben@example.com", Role: account.Plain, CreatedAt: time.Now()}, false))
	require.NoError(t, rows.Close())
	result, err := Import{From: deerFlowHome(t)}.Run(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.Len(t, result.Problems, 2)
	require.Contains(t, result.Problems[0].String(), "account Ben@example.com: another account has this e-mail address here")
	require.Equal(t, 1, result.Users.New)
}

// An installation that never had accounts moves, and its threads belong to who everybody was.
func TestImportWithoutAccounts(t *testing.T) {
	t.Parallel()
	home := deerFlowHome(t)
	conn, err := sqlite.OpenConn(filepath.Join(home, ".deer-flow", "data", "deerflow.db"), sqlite.OpenReadWrite)
	require.NoError(t, err)
	require.NoError(t, sqlitex.ExecuteScript(conn, "DROP TABLE users; UPDATE threads_meta SET user_id = NULL", nil))
	require.NoError(t, conn.Close())
	cfg := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
	result, err := Import{From: home}.Run(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.Len(t, result.Problems, 1) // a memory
	require.Equal(t, []int{2, 0, 1}, []int{result.Threads.New, result.Users.New, result.Feedback.New})
	rows, err := backend.Open(t.Context(), cfg, backend.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for _, of := range []id.Thread{"chat-1", "empty"} {
		row, err := rows.Threads().Thread(t.Context(), of)
		require.NoError(t, err)
		require.Equal(t, "default", gjson.GetBytes(row.Metadata, "user_id").String())
	}
}

// Checkpoints of DeerFlow do not say which run wrote them. Imported messages have it all the same: feedback is shown at them, and turns can run again. What a client changed
// between runs belongs to none.
func TestImportFindsRuns(t *testing.T) {
	t.Parallel()
	home, add := emptyDeerFlow(t)
	start := time.Date(2026, 6, 2, 10, 0, 0, 0, time.UTC)
	add("users", ben, "ben@example.com", "", "user", "2026-05-02 03:04:05", nil, nil, 0, 0)
	add("threads_meta", "chat", "lead_agent", ben, "A title", "idle", `{}`, "2026-06-01 10:00:00", "2026-06-02 10:00:00")
	for run, after := range map[string]time.Duration{first: 0, again: time.Minute} {
		add("runs", run, "chat", ben, "success", `{}`, start.Add(after).Format("2006-01-02 15:04:05.000000"))
		add("feedback", "f-"+run, run, "chat", ben, nil, 1, nil, "2026-06-02 10:00:00")
	}
	messages := []string{deerFlowMessage(0), deerFlowMessage(1), deerFlowMessage(2), deerFlowMessage(3)}
	steps := []struct {
		after  time.Duration
		source string
		known  int // messages
		run    string
	}{
		{-time.Second, "input", 0, ""},
		{time.Second, "input", 0, first},
		{2 * time.Second, "loop", 1, first},
		{3 * time.Second, "loop", 2, first},
		{30 * time.Second, "update", 2, ""},
		{61 * time.Second, "input", 2, again},
		{62 * time.Second, "loop", 3, again},
		{63 * time.Second, "loop", 4, again},
	}
	parent := any(nil)
	var ids []id.Checkpoint
	for n, s := range steps {
		ticks := start.Add(s.after).UnixNano()/100 + 0x01b21dd213814000 // of 100 ns since 1582
		name := fmt.Sprintf("%08x-%04x-6%03x-8000-%012x", ticks>>28, ticks>>12&0xffff, ticks&0xfff, n)
		add("checkpoints", "chat", "", name, parent, "msgpack", deerFlowCheckpoint(t, name, s.known, messages[:s.known]...), fmt.Sprintf(`{"source":"%s","step":%d}`, s.source, n-1))
		parent = name
		ids = append(ids, id.Checkpoint(name))
	}
	cfg := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
	for range 2 { // the second time everything is there, and equal
		result, err := Import{From: home}.Run(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.Empty(t, result.Problems)
	}
	rows, err := openData(t.Context(), cfg, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for n, s := range steps {
		row, err := rows.RootCheckpoint(t.Context(), "chat", ids[n])
		require.NoError(t, err)
		require.Equal(t, []string{s.run, s.run}, []string{string(row.Run), gjson.GetBytes(row.Metadata, "run_id").String()}, n)
	}
	events, err := rows.Events(t.Context(), "chat", 0, 0)
	require.NoError(t, err)
	var runs []string
	for _, e := range events {
		if e.Category == eventstore.CategoryMessage {
			runs = append(runs, string(e.Run))
		}
	}
	require.Equal(t, []string{first, first, again, again}, runs)
}

// Runs move as they ended, with what they used; what another column says in older installations is left out, and what still went on is interrupted.
func TestImportOfRuns(t *testing.T) {
	t.Parallel()
	home, add := emptyDeerFlow(t)
	conn, err := sqlite.OpenConn(filepath.Join(home, ".deer-flow", "data", "deerflow.db"), sqlite.OpenReadWrite)
	require.NoError(t, err)
	require.NoError(t, sqlitex.ExecuteScript(conn, `ALTER TABLE runs ADD COLUMN kwargs_json JSON; ALTER TABLE runs ADD COLUMN updated_at DATETIME; ALTER TABLE runs ADD COLUMN operation_kind VARCHAR(32);
		ALTER TABLE runs ADD COLUMN total_input_tokens INTEGER; ALTER TABLE runs ADD COLUMN total_output_tokens INTEGER; ALTER TABLE runs ADD COLUMN total_tokens INTEGER;
		ALTER TABLE runs ADD COLUMN lead_agent_tokens INTEGER; ALTER TABLE runs ADD COLUMN subagent_tokens INTEGER; ALTER TABLE runs ADD COLUMN llm_call_count INTEGER;
		ALTER TABLE runs ADD COLUMN token_usage_by_model JSON; ALTER TABLE runs ADD COLUMN message_count INTEGER; ALTER TABLE runs ADD COLUMN last_ai_message TEXT; ALTER TABLE runs ADD COLUMN error TEXT`, nil))
	require.NoError(t, conn.Close())
	add("users", ben, "ben@example.com", "", "user", "2026-05-02 03:04:05", nil, nil, 0, 0)
	add("threads_meta", "chat", "lead_agent", ben, "A title", "idle", `{}`, "2026-06-01 10:00:00", "2026-06-02 10:00:00")
	row := func(run, thread, status, kind string) {
		add("runs", run, thread, ben, status, `{"model_name":"m"}`, "2026-06-01 10:00:00.5", `{"input":{"messages":[{"type":"human","content":"hi"}]},"config":{"recursion_limit":100}}`, "2026-06-01 10:00:07.5", kind,
			30, 12, 42, 40, 2, 3, `{"gpt":{"input_tokens":30,"output_tokens":12,"total_tokens":42}}`, 5, "done", "no luck")
	}
	row(first, "chat", "success", "run")
	row(again, "chat", "running", "run")
	row(tried, "chat", "error", "run")
	row(sound, "chat", "success", "artifact_write")
	row("01a214cb-0000-7000-8000-000000000005", "gone", "success", "run")
	row("old run", "chat", "success", "run")
	cfg := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
	result, err := Import{From: home}.Run(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.Empty(t, result.Problems)
	require.Equal(t, 3, result.Runs.New)
	require.Contains(t, strings.Join(result.Notes, "\n"), "1 runs are left out: their threads are gone")
	require.Contains(t, strings.Join(result.Notes, "\n"), "1 runs are left out: their ids are no UUIDs")
	rows, err := openData(t.Context(), cfg, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	list, err := rows.Runs().Runs(t.Context(), "chat", run.Query{Limit: 10})
	require.NoError(t, err)
	status := map[id.Run]run.Status{}
	for _, r := range list {
		status[r.ID] = r.Status
		require.Equal(t, 7*time.Second, r.EndedAt.Sub(r.CreatedAt))
		require.Equal(t, "hi", gjson.GetBytes(r.Kwargs.Input, "messages.0.content").String())
	}
	require.Equal(t, map[id.Run]run.Status{first: run.Success, again: run.Interrupted, tried: run.Error}, status)
	done, err := rows.Runs().Completions(t.Context(), first, tried)
	require.NoError(t, err)
	require.EqualValues(t, []int64{30, 12, 42, 3, 5}, []int64{*done[first].InputTokens, *done[first].OutputTokens, *done[first].TotalTokens, *done[first].LLMCalls, *done[first].Messages})
	require.EqualValues(t, []int64{40, 2, 42}, []int64{*done[first].ByCaller["lead"].Total, *done[first].ByCaller["subagent"].Total, *done[first].ByModel["gpt"].Total})
	require.Equal(t, []string{"done", "no luck"}, []string{*done[tried].LastAI, *done[tried].Error})
	due, err := rows.Runs().ActiveRuns(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, due)
}

// Runs and feedback follow their thread when its key becomes another id here. However many there are, each is moved once, and those of all threads.
func TestImportOfRunsOfManyThreads(t *testing.T) {
	t.Parallel()
	for name, storage := range map[string]config.Storage{"sqlite": {Data: t.TempDir()}, "postgres": {DatabaseURL: postgrestest.Database(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, add := emptyDeerFlow(t)
			add("users", ben, "ben@example.com", "", "user", "2026-05-02 03:04:05", nil, nil, 0, 0)
			keys := []string{"chat", "a chat: with spaces", "z"}
			for _, key := range keys {
				add("threads_meta", key, "lead_agent", ben, "A title", "idle", `{}`, "2026-06-01 10:00:00", "2026-06-02 10:00:00")
			}
			const each = runsAtOnce + 1
			for n := range len(keys) * each {
				x := fmt.Sprintf("01a214cb-0000-7000-8000-%012d", n)
				add("runs", x, keys[n%len(keys)], ben, "success", `{}`, fmt.Sprintf("2026-06-01 10:%02d:00", n%60))
				if n < len(keys) {
					add("feedback", "f"+x, x, keys[n], ben, nil, 1, nil, "2026-06-02 10:00:00")
				}
			}
			cfg := &config.Config{Storage: storage}
			for _, want := range [][]int{{3, len(keys) * each, 0, 3}, {0, 0, len(keys) * each, 0}} {
				result, err := Import{From: home}.Run(t.Context(), cfg, nil)
				require.NoError(t, err)
				require.Empty(t, result.Problems)
				require.NotContains(t, strings.Join(result.Notes, "\n"), "their threads are gone")
				require.Equal(t, want, []int{result.Threads.New, result.Runs.New, result.Runs.Known, result.Feedback.New})
			}
			rows, err := openData(t.Context(), cfg, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, rows.Close()) }()
			threads, err := rows.Threads().Threads(t.Context(), thread.Query{Limit: 10})
			require.NoError(t, err)
			require.Len(t, threads, len(keys))
			for _, row := range threads {
				list, err := rows.Runs().Runs(t.Context(), row.ID, run.Query{Limit: 100})
				require.NoError(t, err)
				require.Len(t, list, each, row.ID)
				rated, err := rows.FeedbackOf(t.Context(), ben, row.ID)
				require.NoError(t, err)
				require.Len(t, rated, 1, row.ID)
			}
		})
	}
}

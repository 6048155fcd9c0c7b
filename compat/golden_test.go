package compat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/store"
	"understudy/thread"
)

// exchange is one request of a recording, and what LangGraph Server answered.
type exchange struct {
	file         string
	method, path string
	body         []byte
	status       int
	header       http.Header
	answer       []byte // JSON answers are compact
	answersJSON  bool
}

var startLine = regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE|OPTIONS) (\S+)$`)

// recordings reads all .http files of the suite, with placeholders filled in.
func recordings(t testing.TB) []exchange {
	t.Helper()
	files, err := filepath.Glob("../conformance/wire/*.http")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []exchange
	for _, f := range files {
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		all = append(all, parseRecording(t, filepath.Base(f), fill(string(raw)))...)
	}
	return all
}

// fill puts fixed values where the recordings have placeholders.
func fill(s string) string {
	s = regexp.MustCompile(`<uuid-(\d+)>`).ReplaceAllStringFunc(s, func(m string) string {
		n, _ := strconv.Atoi(m[6 : len(m)-1])
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	})
	s = regexp.MustCompile(`<hash-(\d+)>`).ReplaceAllString(s, "0123456789abcdef0123456789abcde$1")
	return strings.NewReplacer("<time>", "2026-01-02T03:04:05.678901+00:00", "<ms>", "1", "<version>", "1.2.3").Replace(s)
}

func parseRecording(t testing.TB, file, text string) []exchange {
	var list []exchange
	lines := strings.Split(text, "\n")
	var block *[]string
	var req, res []string
	flush := func() {
		if len(req) > 0 {
			list = append(list, newExchange(t, file, req, res))
		}
		req, res = nil, nil
	}
	for _, l := range lines {
		switch {
		case startLine.MatchString(l):
			flush()
			req, block = []string{l}, &req
			continue
		case strings.HasPrefix(l, "HTTP "):
			res, block = []string{l}, &res
			continue
		case strings.HasPrefix(l, "# "):
			block = nil
		}
		if block != nil {
			*block = append(*block, l)
		}
	}
	flush()
	return list
}

func newExchange(t testing.TB, file string, req, res []string) exchange {
	m := startLine.FindStringSubmatch(req[0])
	e := exchange{file: file, method: m[1], path: m[2]}
	_, body := head(req[1:])
	e.body = []byte(body)
	if compacted, ok := compactJSON(body); ok {
		e.body = compacted
	}
	if len(res) > 0 {
		e.status, _ = strconv.Atoi(strings.TrimPrefix(res[0], "HTTP "))
		var answer string
		e.header, answer = head(res[1:])
		e.answer = []byte(answer)
		if strings.HasPrefix(e.header.Get("Content-Type"), "application/json") {
			e.answer, e.answersJSON = compactJSON(answer)
		}
	}
	return e
}

func head(lines []string) (http.Header, string) {
	h := http.Header{}
	for i, l := range lines {
		if l == "" {
			return h, strings.TrimSpace(strings.Join(lines[i:], "\n"))
		}
		k, v, _ := strings.Cut(l, ": ")
		h.Add(k, v)
	}
	return h, ""
}

func compactJSON(s string) ([]byte, bool) {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return []byte(s), false
	}
	return b.Bytes(), true
}

var (
	onThread = regexp.MustCompile(`^/threads/[0-9a-f-]{36}$`)
	onState  = regexp.MustCompile(`^/threads/[0-9a-f-]{36}/state(/[^/]+)?(\?.*)?$`)
	onHist   = regexp.MustCompile(`^/threads/[0-9a-f-]{36}/history(\?.*)?$`)
	onRuns   = regexp.MustCompile(`^/threads/([^/]+)/runs(/wait|/stream)?$`)
)

// decodeAs runs the decoder of the route on a recorded body.
func decodeAs(e exchange) (known bool, err error) {
	const t = id.Thread("00000000-0000-4000-8000-000000000001")
	path, _, _ := strings.Cut(e.path, "?")
	switch {
	case e.method == "POST" && path == "/assistants":
		_, err = NewAssistant(e.body)
	case e.method == "POST" && path == "/assistants/search":
		_, _, err = SearchAssistants(e.body)
	case e.method == "POST" && path == "/threads":
		_, err = NewThread(e.body)
	case e.method == "POST" && path == "/threads/search":
		_, _, err = SearchThreads(e.body)
	case e.method == "POST" && path == "/threads/prune":
		_, _, _, err = PruneThreads(e.body)
	case e.method == "PATCH" && onThread.MatchString(path):
		_, err = PatchThread(e.body)
	case e.method == "POST" && strings.HasSuffix(path, "/state") && onState.MatchString(path):
		_, _, err = UpdateState(t, e.body)
	case e.method == "POST" && onHist.MatchString(path):
		_, err = History(t, e.body)
	case e.method == "POST" && onRuns.MatchString(path):
		if _, err = RunThreadID(onRuns.FindStringSubmatch(path)[1]); err == nil {
			_, err = NewRun(e.body, RunForm{Followed: !strings.HasSuffix(path, "/runs")})
		}
	case e.method == "POST" && (path == "/runs" || path == "/runs/wait" || path == "/runs/stream"):
		_, err = NewRun(e.body, RunForm{Stateless: true, Followed: path != "/runs"})
	case e.method == "POST" && path == "/runs/batch":
		_, err = NewRuns(e.body)
	case e.method == "POST" && path == "/runs/cancel":
		_, err = CancelRuns(e.body)
	case e.method == "POST" && path == "/runs/crons":
		_, err = NewCron(e.body, "")
	case e.method == "PUT" && path == "/store/items":
		_, err = PutItem(e.body)
	case e.method == "DELETE" && path == "/store/items":
		_, _, err = DeleteItem(e.body)
	case e.method == "POST" && path == "/store/items/search":
		_, _, err = SearchItems(e.body)
	default:
		return false, nil
	}
	return true, err
}

// elsewhere are texts of refusals that only services can know.
var elsewhere = regexp.MustCompile(`Invalid assistant: |Invalid cron schedule|Invalid timezone|Invalid webhook|Namespace label`)

func TestRecordedRequestsAreJudgedAlike(t *testing.T) {
	t.Parallel()
	judged, refused := 0, 0
	for _, e := range recordings(t) {
		if strings.HasPrefix(e.file, "server_faults") {
			continue // what the recorded server fails on, ours should take
		}
		known, err := decodeAs(e)
		if !known {
			continue
		}
		judged++
		name := fmt.Sprintf("%s: %s %s %s", e.file, e.method, e.path, e.body)
		if e.status != 422 || elsewhere.Match(e.answer) {
			if err == nil || e.status == 400 {
				continue
			}
			t.Errorf("%s\nrefused: %v", name, err)
			continue
		}
		refused++
		if err == nil {
			t.Errorf("%s\nwas not refused", name)
			continue
		}
		if got := string(AppendDetail(nil, err.Error())); !strings.Contains(got, "other candidates") || e.file != "assistant_errors.http" {
			require.Equal(t, string(e.answer), got, name)
		}
	}
	require.Greater(t, judged, 100)
	require.Greater(t, refused, 15)
}

func TestServerFaultsOfTheOriginalAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, e := range recordings(t) {
		if e.file != "server_faults.http" || !onHist.MatchString(e.path) {
			continue
		}
		q, err := History("t", e.body)
		require.NoError(t, err)
		require.Equal(t, id.Checkpoint("00000000-0000-4000-8000-000000000002"), q.Before)
	}
}

// Recorded answers are read into domain types and written again: the bytes have to be the same, so keys, their order and all values are.
func TestRecordedAnswersAreWrittenAlike(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	for _, e := range recordings(t) {
		if e.status != 200 || !e.answersJSON || len(e.answer) == 0 {
			continue
		}
		list := []json.RawMessage{e.answer}
		if e.answer[0] == '[' {
			list = nil
			require.NoError(t, json.Unmarshal(e.answer, &list))
		}
		for _, v := range list {
			if v[0] != '{' {
				continue
			}
			kind, got := rewrite(t, e, v)
			if kind == "" {
				continue
			}
			counts[kind]++
			require.Equal(t, string(v), string(got), "%s: %s %s", e.file, e.method, e.path)
		}
	}
	for _, kind := range []string{"assistant", "version", "thread", "state", "run", "cron", "item", "updated"} {
		require.NotZero(t, counts[kind], kind)
	}
	t.Log(counts)
}

func when(t *testing.T, o object, key string) time.Time {
	at, ok := parseTime(o.text(key))
	require.True(t, ok, key)
	return at
}

func rewrite(t *testing.T, e exchange, v json.RawMessage) (kind string, got []byte) {
	o := members(v)
	switch {
	case o["kwargs"] != nil && o["run_started_at"] == nil:
		k := members(o["kwargs"])
		return "run", AppendRun(nil, &run.Run{
			ID: id.Run(o.text("run_id")), Thread: id.Thread(o.text("thread_id")), Assistant: id.Assistant(o.text("assistant_id")),
			Metadata: o["metadata"], Status: run.Status(o.text("status")), Strategy: run.Strategy(o.text("multitask_strategy")),
			CreatedAt: when(t, o, "created_at"), UpdatedAt: when(t, o, "updated_at"),
			Kwargs: run.Arguments{
				Arguments: graph.Arguments{
					Input: k.raw("input"), Command: k.raw("command"), Modes: k.texts("stream_mode"), Subgraphs: k.bool("subgraphs"), Temporary: k.bool("temporary"),
					InterruptBefore: k.raw("interrupt_before"), InterruptAfter: k.raw("interrupt_after"), Durability: k.text("durability"),
				},
				Config: k.raw("config"), Context: k.raw("context"), Webhook: k.text("webhook"), FeedbackKeys: k.raw("feedback_keys"), Resumable: k.bool("resumable"),
			},
		}, nil)
	case o["cron_id"] != nil:
		c := &run.Cron{
			ID: id.Cron(o.text("cron_id")), Assistant: id.Assistant(o.text("assistant_id")), Thread: id.Thread(o.text("thread_id")),
			Schedule: o.text("schedule"), Timezone: o.text("timezone"), Payload: o.raw("payload"), Metadata: o.raw("metadata"),
			OnRunCompleted: o.text("on_run_completed"), Enabled: o.bool("enabled"), CreatedAt: when(t, o, "created_at"), UpdatedAt: when(t, o, "updated_at"),
		}
		next := when(t, o, "next_run_date")
		c.Next = &next
		return "cron", AppendCron(nil, c, nil)
	case o["assistant_id"] != nil && o["version"] != nil:
		a := &assistant.Assistant{
			ID: id.Assistant(o.text("assistant_id")), GraphID: o.text("graph_id"), Name: o.text("name"), Description: o.textPtr("description"),
			Config: o.raw("config"), Context: o.raw("context"), Metadata: o.raw("metadata"), Version: o.integer("version", 0), CreatedAt: when(t, o, "created_at"),
		}
		if o["updated_at"] == nil {
			return "version", AppendVersion(nil, a)
		}
		a.UpdatedAt = when(t, o, "updated_at")
		return "assistant", AppendAssistant(nil, a, nil)
	case o["thread_id"] != nil && o["state_updated_at"] != nil:
		view := &thread.View{Thread: thread.Thread{
			ID: id.Thread(o.text("thread_id")), CreatedAt: when(t, o, "created_at"), UpdatedAt: when(t, o, "updated_at"),
			StateUpdatedAt: when(t, o, "state_updated_at"), Metadata: o.raw("metadata"), Config: o.raw("config"),
			Status: thread.Status(o.text("status")), Touched: o["interrupts"] != nil, Interrupts: o.raw("interrupts"), Error: o.raw("error"),
		}, Values: o.raw("values"), Extracted: o.raw("extracted")}
		return "thread", AppendThread(nil, view, nil, ThreadParts{NoValues: o["values"] == nil})
	case o["parent_checkpoint"] != nil && o["tasks"] != nil && o["next"] != nil:
		s := snapshot(o)
		at := checkpointer.Key{Thread: id.Thread(members(o["checkpoint"]).text("thread_id")), ID: id.Checkpoint(o.text("checkpoint_id"))}
		if o.raw("created_at") == nil {
			s = &checkpointer.Snapshot{}
		}
		noNS := o.raw("checkpoint") != nil && members(o["checkpoint"])["checkpoint_ns"] == nil
		return "state", AppendState(nil, s, StateParts{Asked: at, NoNS: noNS})
	case o["configurable"] != nil && o["checkpoint"] != nil && len(o) == 3:
		c := members(o["checkpoint"])
		return "updated", AppendUpdated(nil, thread.Place{Key: checkpointer.Key{Thread: id.Thread(c.text("thread_id")), NS: c.text("checkpoint_ns"), ID: id.Checkpoint(c.text("checkpoint_id"))}})
	case o["namespace"] != nil:
		return "item", AppendItem(nil, &store.Item{
			Namespace: o.texts("namespace"), Key: o.text("key"), Value: o.raw("value"), CreatedAt: when(t, o, "created_at"), UpdatedAt: when(t, o, "updated_at"),
		}, o["score"] != nil)
	}
	return "", nil
}

func snapshot(o object) *checkpointer.Snapshot {
	c, p := members(o.raw("checkpoint")), members(o.raw("parent_checkpoint"))
	s := &checkpointer.Snapshot{
		Key:    checkpointer.Key{Thread: id.Thread(c.text("thread_id")), NS: c.text("checkpoint_ns"), ID: id.Checkpoint(c.text("checkpoint_id"))},
		Parent: id.Checkpoint(o.text("parent_checkpoint_id")), Map: c.raw("checkpoint_map"), ParentMap: p.raw("checkpoint_map"),
		Values: o.raw("values"), Next: o.texts("next"), Metadata: o.raw("metadata"), CreatedAt: o.text("created_at"),
	}
	each(o.raw("tasks"), func(_ string, v []byte) {
		m := members(v)
		task := checkpointer.Task{
			ID: m.text("id"), Name: m.text("name"), Path: m.raw("path"), Error: m.textPtr("error"), Result: m.raw("result"),
			Subgraph: members(m.raw("checkpoint")).text("checkpoint_ns"),
		}
		each(m.raw("interrupts"), func(_ string, i []byte) { task.Interrupts = append(task.Interrupts, i) })
		if m.raw("state") != nil {
			task.State = snapshot(members(m.raw("state")))
		}
		s.Tasks = append(s.Tasks, task)
	})
	return s
}

package moving

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/config"
	"understudy/thread"
	"understudy/transfer"
)

const ada = id.Assistant("01a206fb-8dce-76de-9933-4f6ae92099b1")

const conversation = id.Thread("01a206fb-8dce-76de-9933-4f6ae92099a1")

// oldServer is a LangGraph Server with one thread. Its checkpoints are named by their times.
type oldServer struct {
	times []int
	crons string // the answer to their number; "" is 404

	graph, status string // "": none, idle
	asks          int    // this many tasks ask a question at the newest checkpoint
	updated       int    // seconds
}

// waits returns the interrupts of the thread, and the tasks of a checkpoint.
func (o *oldServer) waits(newest bool) (interrupts, tasks string) {
	var byTask, list []string
	for n := range o.asks {
		question := fmt.Sprintf(`[{"id": "%032d", "value": "question %[1]d"}]`, n)
		if o.status == "busy" {
			question = "[]" // not yet
		}
		byTask = append(byTask, fmt.Sprintf(`"task-%d": %s`, n, question))
		list = append(list, fmt.Sprintf(`{"id": "task-%d", "name": "ask%[1]d", "path": ["__pregel_pull", "ask%[1]d"], "interrupts": %s}`, n, question))
	}
	if !newest {
		list = nil
	}
	if o.status == "busy" {
		byTask = nil
	}
	return strings.Join(byTask, ","), strings.Join(list, ",")
}

func (o *oldServer) graphMetadata() string {
	if o.graph == "" {
		return ""
	}
	return fmt.Sprintf(`"graph_id": %q, "assistant_id": %q`, o.graph, id.DefaultAssistant(o.graph))
}

func (o *oldServer) checkpoint(at int) id.Checkpoint {
	return id.Checkpoint(fmt.Sprintf("1f0bd33e-8a23-6f9d-8001-%012d", at))
}

func (o *oldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.URL.Path == "/threads/search":
		interrupts, _ := o.waits(true)
		fmt.Fprintf(w, `[{"thread_id": %q, "created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-02T03:04:%02dZ", "metadata": {%s}, "status": %q, "interrupts": {%s}}]`,
			conversation, 5+o.updated, o.graphMetadata(), cmp.Or(o.status, "idle"), interrupts)
	case r.URL.Path == "/threads/count":
		fmt.Fprint(w, "1")
	case r.URL.Path == "/runs/crons/count" && o.crons == "":
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Path == "/runs/crons/count":
		fmt.Fprint(w, o.crons)
	case strings.HasSuffix(r.URL.Path, "/history"):
		rows := []string{}
		before := gjson.GetBytes(body, "before.configurable.checkpoint_id").String()
		for i, at := range slices.Backward(o.times) {
			if before != "" && string(o.checkpoint(at)) >= before || len(rows) == int(gjson.GetBytes(body, "limit").Int()) {
				continue
			}
			parent := "null"
			if i > 0 {
				parent = fmt.Sprintf(`{"checkpoint_id": %q}`, o.checkpoint(o.times[i-1]))
			}
			var messages []string
			for _, m := range o.times[:i+1] {
				messages = append(messages, fmt.Sprintf(`{"type": "human", "id": "m%d", "content": "said m%[1]d", "additional_kwargs": {}, "response_metadata": {}}`, m))
			}
			metadata := fmt.Sprintf(`{"step": %d, "source": "loop"}`, i)
			if o.graph != "" {
				metadata = strings.Replace(metadata, "}", ", "+o.graphMetadata()+"}", 1)
			}
			_, tasks := o.waits(i == len(o.times)-1)
			rows = append(rows, fmt.Sprintf(`{"values": {"messages": [%s]}, "next": [], "tasks": [%s], "metadata": %s, "created_at": "2026-01-02T03:04:05+00:00",
				"checkpoint": {"checkpoint_id": %q, "checkpoint_ns": ""}, "parent_checkpoint": %s}`, strings.Join(messages, ","), tasks, metadata, o.checkpoint(at), parent))
		}
		fmt.Fprintf(w, "[%s]", strings.Join(rows, ","))
	case strings.HasSuffix(r.URL.Path, "/namespaces"):
		fmt.Fprint(w, `{"namespaces": []}`)
	case strings.HasPrefix(r.URL.Path, "/store"):
		fmt.Fprint(w, `{"items": []}`)
	case r.URL.Path == "/assistants/search" && o.graph != "":
		fmt.Fprintf(w, `[{"assistant_id": %q, "graph_id": %q, "name": "system", "metadata": {"created_by": "system"}, "version": 1, "created_at": "2026-01-02T03:04:05Z"}, {"assistant_id": %q, "graph_id": %[2]q, "name": "Ada", "version": 2, "created_at": "2026-01-02T03:04:05Z"}]`,
			id.DefaultAssistant(o.graph), o.graph, ada)
	case strings.HasSuffix(r.URL.Path, "/versions") && o.graph != "":
		fmt.Fprintf(w, `[{"assistant_id": %q, "graph_id": %q, "name": "Ada", "version": 2, "created_at": "2026-01-02T03:04:05Z"}, {"assistant_id": %[1]q, "graph_id": %[2]q, "name": "Eve", "version": 1, "created_at": "2026-01-02T03:04:05Z"}]`, ada, o.graph)
	case r.URL.Path == "/assistants/search", strings.HasSuffix(r.URL.Path, "/versions"):
		fmt.Fprint(w, "[]")
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// A thread continues on the old server, here, in both places or in none, in any order of time: what is new there arrives, or the thread is named.
func TestImportOfContinuedThreads(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		random := rand.New(rand.NewPCG(seed, 1))
		old := &oldServer{}
		for at := range 1 + random.IntN(12) {
			old.times = append(old.times, at)
		}
		server := httptest.NewServer(old)
		t.Cleanup(server.Close)
		cfg := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
		result, err := Import{From: server.URL}.Run(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.Empty(t, result.Problems)
		require.Equal(t, len(old.times), result.Checkpoints.New)
		require.NotEmpty(t, result.Digest)

		rows := openAt(t, cfg)
		here, there := 0, 0
		f := newFamily(t, rows)
		for at, n := 100, random.IntN(5); n > 0; at, n = at+1, n-1 {
			if random.IntN(2) == 0 {
				there++
				old.times = append(old.times, at)
			} else {
				here++
				f.messages = at - 1
				f.talk(conversation, 1)
			}
		}
		require.NoError(t, rows.Close())

		result, err = Import{From: server.URL}.Run(t.Context(), cfg, nil)
		require.NoError(t, err)
		switch {
		case here > 0 && there > 0:
			require.Len(t, result.Problems, 1, "seed %d", seed)
			require.ErrorContains(t, result.Problems[0].Err, fmt.Sprintf("it continued in both places since the import (%d checkpoints only there, %d only here)", there, here))
			require.Zero(t, result.Checkpoints.New)
		case there > 0:
			require.Empty(t, result.Problems)
			require.Equal(t, there, result.Checkpoints.New, "seed %d", seed)
		default:
			require.Empty(t, result.Problems)
			require.Equal(t, 1, result.Unread, "seed %d", seed)
			require.Empty(t, result.Digest, "nothing was compared")
		}
	}
}

// An import that is interrupted behind the newest root checkpoint, and before the row of the thread, is completed by the next.
func TestInterruptedImportIsCompleted(t *testing.T) {
	t.Parallel()
	old := &oldServer{times: []int{1, 2}}
	server := httptest.NewServer(old)
	t.Cleanup(server.Close)
	cfg := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
	_, err := Import{From: server.URL}.Run(t.Context(), cfg, nil)
	require.NoError(t, err)
	old.times = append(old.times, 3)
	_, err = Import{From: server.URL}.Run(t.Context(), cfg, nil)
	require.NoError(t, err)
	rows := openAt(t, cfg)
	require.NoError(t, rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
		row, err := tx.Thread(conversation)
		if err != nil {
			return err
		}
		row.Head = old.checkpoint(2)
		return tx.UpdateThread(row)
	}))
	require.NoError(t, rows.Close())
	result, err := Import{From: server.URL}.Run(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.Zero(t, result.Unread)
	require.NotEmpty(t, result.Digest)
	rows = openAt(t, cfg)
	row, err := rows.Threads().Thread(t.Context(), conversation)
	require.NoError(t, err)
	require.Equal(t, old.checkpoint(3), row.Head)
	snap, err := newFamily(t, rows).service.State(t.Context(), checkpointer.Key{Thread: conversation}, false)
	require.NoError(t, err)
	var values struct{ Messages []json.RawMessage }
	require.NoError(t, json.Unmarshal(snap.Values, &values))
	require.Len(t, values.Messages, 3)
	require.NoError(t, rows.Close())
}

// Crons stay on a server; a note counts them.
func TestImportCountsCrons(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{"3": "3 crons are left out: create them again here", "0": "", "": "", "{": "crons are left out, and could not be counted: "} {
		server := httptest.NewServer(&oldServer{crons: answer})
		t.Cleanup(server.Close)
		result, err := Import{From: server.URL}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}}, nil)
		require.NoError(t, err)
		notes := strings.Join(result.Notes, "\n")
		require.Contains(t, notes, want)
		if want == "" {
			require.NotContains(t, notes, "crons")
		}
	}
}

// A thread that never ran has no graph yet, which no note complains of. An import that names a graph sets it on threads without one, also where nothing else is new.
func TestThreadsThatNeverRanNeedNoGraph(t *testing.T) {
	t.Parallel()
	for _, times := range [][]int{nil, {1}} {
		server := httptest.NewServer(&oldServer{times: times})
		t.Cleanup(server.Close)
		cfg := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
		for range 2 {
			result, err := Import{From: server.URL}.Run(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.Equal(t, 1, result.Threads.New+result.Threads.Known)
			require.Equal(t, len(times) > 0, strings.Contains(strings.Join(result.Notes, "\n"), "the graph of 1 threads is not known"), result.Notes)
		}
		for i, graph := range []string{"mine", "other"} {
			result, err := Import{From: server.URL, Graph: graph}.Run(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.Empty(t, result.Problems)
			require.Equal(t, transfer.Count{New: 1 - i, Known: i}, result.Threads)
			rows := openAt(t, cfg)
			row, err := rows.Threads().Thread(t.Context(), conversation)
			require.NoError(t, err)
			require.Equal(t, "mine", gjson.GetBytes(row.Metadata, "graph_id").String())
			require.NoError(t, rows.Close())
		}
	}
}

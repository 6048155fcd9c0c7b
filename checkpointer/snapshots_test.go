package checkpointer_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
)

const thread id.Thread = "t"

// recorded is a thread as testdata/gen.py found it.
type recorded struct {
	Name string `json:"name"`
	Rows []struct {
		NS       string          `json:"ns"`
		ID       id.Checkpoint   `json:"id"`
		Parent   id.Checkpoint   `json:"parent"`
		Data     json.RawMessage `json:"data"`
		Metadata json.RawMessage `json:"metadata"`
		Blobs    []struct {
			Channel, Version, Type string
			Data                   []byte
		} `json:"blobs"`
		Tasks  json.RawMessage `json:"tasks"`
		Shape  string          `json:"shape"`
		Writes []struct {
			Task    string
			Index   int
			Channel string
			Type    string
			Data    []byte
			Path    string
		} `json:"writes"`
	} `json:"rows"`
	Shapes     map[string]json.RawMessage `json:"shapes"`
	Answers    []answer                   `json:"answers"`
	Namespaces map[string]struct {
		Live        json.RawMessage   `json:"live"`
		Deep        json.RawMessage   `json:"deep"`
		History     []json.RawMessage `json:"history"`
		DeepRecords []json.RawMessage `json:"deep_records"`
	} `json:"namespaces"`
}

type answer struct {
	NS     string          `json:"ns"`
	ID     id.Checkpoint   `json:"id"`
	Live   bool            `json:"live"`
	Values json.RawMessage `json:"values"`
	Tasks  json.RawMessage `json:"tasks"`
	Shape  string          `json:"shape"`
}

func recordings(t testing.TB) []recorded {
	t.Helper()
	raw, err := os.ReadFile("testdata/snapshots.json")
	require.NoError(t, err)
	var all []recorded
	require.NoError(t, json.Unmarshal(raw, &all))
	return all
}

func recording(t testing.TB, name string) recorded {
	t.Helper()
	for _, r := range recordings(t) {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no recording %s", name)
	return recorded{}
}

// store puts the rows of a recording into memory.
func (r recorded) store(t testing.TB, described bool) *checkpointer.Memory {
	t.Helper()
	m := &checkpointer.Memory{}
	for _, row := range r.Rows {
		k := checkpointer.Key{Thread: thread, NS: row.NS, ID: row.ID}
		p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{Key: k, Parent: row.Parent, Data: row.Data, Metadata: row.Metadata}}
		if described {
			p.Tasks, p.Shape, p.ShapeJSON = row.Tasks, row.Shape, r.Shapes[row.Shape]
		}
		for _, b := range row.Blobs {
			p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: b.Channel, Version: b.Version, Type: b.Type, Data: b.Data})
		}
		require.NoError(t, m.PutCheckpoint(p))
		var writes []checkpointer.Write
		for _, w := range row.Writes {
			writes = append(writes, checkpointer.Write{TaskID: w.Task, Index: w.Index, Channel: w.Channel, Type: w.Type, Data: w.Data, Path: w.Path})
		}
		require.NoError(t, m.PutWrites(k, writes))
	}
	return m
}

// graph answers as LangGraph did when the thread was recorded, and counts.
type graph struct {
	r       recorded
	unknown bool // has never sent its shapes

	mu    sync.Mutex
	asked []checkpointer.Key
}

var errUnknown = errors.New("nothing is known of this checkpoint")

func (g *graph) Explain(_ context.Context, k checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	g.mu.Lock()
	g.asked = append(g.asked, k)
	g.mu.Unlock()
	for _, a := range g.r.Answers {
		if a.NS == k.NS && a.ID == k.ID && a.Live == live {
			e := checkpointer.Explanation{Values: a.Values, Tasks: a.Tasks, Shape: a.Shape}
			if g.unknown {
				e.ShapeJSON = g.r.Shapes[a.Shape]
			}
			return e, nil
		}
	}
	return checkpointer.Explanation{}, errUnknown
}

// shown is a snapshot in the form of the recordings.
func shown(s *checkpointer.Snapshot) map[string]any {
	address := func(i id.Checkpoint, m json.RawMessage) map[string]any {
		a := map[string]any{"checkpoint_ns": s.NS}
		if i != "" {
			a["checkpoint_id"] = i
		}
		if m != nil {
			a["checkpoint_map"] = m
		}
		return a
	}
	orNull := func(raw json.RawMessage) any {
		if raw == nil {
			return nil
		}
		return raw
	}
	out := map[string]any{
		"values": s.Values, "next": s.Next, "metadata": orNull(s.Metadata), "created_at": nil, "checkpoint": address(s.ID, s.Map), "parent_checkpoint": nil,
	}
	if s.CreatedAt != "" {
		out["created_at"] = s.CreatedAt
	}
	if s.Parent != "" {
		out["parent_checkpoint"] = address(s.Parent, s.ParentMap)
	}
	tasks, interrupts := []any{}, []json.RawMessage{}
	for _, t := range s.Tasks {
		one := map[string]any{
			"id": t.ID, "name": t.Name, "path": t.Path, "error": t.Error, "interrupts": append([]json.RawMessage{}, t.Interrupts...), "subgraph": nil, "state": nil, "result": orNull(t.Result),
		}
		interrupts = append(interrupts, t.Interrupts...)
		if t.State != nil {
			one["state"] = shown(t.State)
		} else if t.Subgraph != "" {
			one["subgraph"] = t.Subgraph
		}
		tasks = append(tasks, one)
	}
	out["tasks"], out["interrupts"] = tasks, interrupts
	return out
}

// same compares a snapshot with what LangGraph shows.
func same(t *testing.T, what string, want json.RawMessage, got *checkpointer.Snapshot) {
	t.Helper()
	raw, err := json.Marshal(shown(got))
	require.NoError(t, err, what)
	var w, g any
	require.NoError(t, json.Unmarshal(want, &w))
	require.NoError(t, json.Unmarshal(raw, &g))
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("%s: LangGraph -, ours +\n%s", what, diff)
	}
}

func TestSnapshotsAreWhatLangGraphShows(t *testing.T) {
	t.Parallel()
	for _, r := range recordings(t) {
		for _, described := range []bool{true, false} {
			name := r.Name + "/described"
			if !described {
				name = r.Name + "/asked"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				g := &graph{r: r, unknown: !described}
				compare(t, r, checkpointer.NewSnapshots(r.store(t, described), g))
				before := len(g.asked)
				if described {
					t.Logf("asked %d times about %d checkpoints", before, len(r.Rows))
				}
			})
		}
	}
}

func compare(t *testing.T, r recorded, s *checkpointer.Snapshots) {
	t.Helper()
	ctx := t.Context()
	for ns, want := range r.Namespaces {
		head := checkpointer.Key{Thread: thread, NS: ns}
		flat, err := s.State(ctx, head, false)
		require.NoError(t, err)
		same(t, "live state of "+ns, want.Live, flat)
		deep, err := s.State(ctx, head, true)
		require.NoError(t, err)
		same(t, "deep state of "+ns, want.Deep, deep)
		history, err := s.History(ctx, checkpointer.List{Thread: thread, NS: &ns})
		require.NoError(t, err)
		require.Len(t, history, len(want.History))
		for i, h := range history {
			same(t, "history of "+ns, want.History[i], h)
			at := checkpointer.Key{Thread: thread, NS: ns, ID: h.ID}
			record, err := s.State(ctx, at, false)
			require.NoError(t, err)
			same(t, "record in "+ns, want.History[i], record)
			values, err := s.Values(ctx, at)
			require.NoError(t, err)
			require.JSONEq(t, string(h.Values), string(values))
			deep, err := s.State(ctx, at, true)
			require.NoError(t, err)
			same(t, "deep record in "+ns, want.DeepRecords[i], deep)
		}
	}
	// The row of the thread.
	root := r.Namespaces[""].History[0]
	var want struct {
		Next       []string
		Checkpoint struct {
			ID id.Checkpoint `json:"checkpoint_id"`
		}
	}
	require.NoError(t, json.Unmarshal(root, &want))
	info, err := s.Head(ctx, thread)
	require.NoError(t, err)
	require.Equal(t, want.Checkpoint.ID, info.ID)
	require.Equal(t, want.Next, info.Next)
	var live struct {
		Tasks []struct {
			ID         string
			Interrupts []json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(r.Namespaces[""].Live, &live))
	waiting := map[string][]json.RawMessage{}
	for _, task := range live.Tasks {
		if len(task.Interrupts) > 0 {
			waiting[task.ID] = task.Interrupts
		}
	}
	raw, err := json.Marshal(waiting)
	require.NoError(t, err)
	require.JSONEq(t, string(raw), string(info.Interrupts))
}

func TestStateOfNothing(t *testing.T) {
	t.Parallel()
	r := recording(t, "echo_case/once")
	s := checkpointer.NewSnapshots(r.store(t, true), nil)
	for _, k := range []checkpointer.Key{{Thread: "other"}, {Thread: thread, ID: "xyz"}, {Thread: thread, NS: "leaf:1"}} {
		got, err := s.State(t.Context(), k, true)
		require.NoError(t, err)
		want := &checkpointer.Snapshot{Key: k, Values: json.RawMessage("{}"), Next: []string{}, Tasks: []checkpointer.Task{}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	values, err := s.Values(t.Context(), checkpointer.Key{Thread: "other"})
	require.NoError(t, err)
	require.Nil(t, values)
	info, err := s.Head(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, checkpointer.HeadInfo{Next: []string{}, Interrupts: json.RawMessage("{}")}, info)
}

// Most states need no graph at all, and a cached answer is not requested again.
func TestAsking(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		live, history int
	}{
		{"pipeline_case/done", 0, 0},
		{"pipeline_goto/went back", 0, 0}, // a goto changes no values
		{"nested_case/waiting", 0, 0},
		{"failing_case/failed", 0, 0},
		{"pipeline_command/resumed with an update", 0, 1},
		{"parallel_case/two waiting", 1, 0}, // the output of the task that has finished
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := recording(t, c.name)
			g := &graph{r: r}
			m := r.store(t, true)
			for range 2 {
				s := checkpointer.NewSnapshots(m, g)
				_, err := s.State(t.Context(), checkpointer.Key{Thread: thread}, false)
				require.NoError(t, err)
				require.Len(t, g.asked, c.live)
			}
			for range 2 {
				s := checkpointer.NewSnapshots(m, g)
				_, err := s.History(t.Context(), checkpointer.List{Thread: thread, NS: new(string)})
				require.NoError(t, err)
				require.Len(t, g.asked, c.live+c.history)
			}
		})
	}
}

// gate holds answers back until it is opened.
type gate struct {
	graph
	open chan struct{}
	seen chan struct{}
}

func (g *gate) Explain(ctx context.Context, k checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	g.seen <- struct{}{}
	select {
	case <-g.open:
	case <-ctx.Done():
		return checkpointer.Explanation{}, ctx.Err()
	}
	return g.graph.Explain(ctx, k, live)
}

func TestReadersShareAnAnswer(t *testing.T) {
	t.Parallel()
	r := recording(t, "parallel_case/two waiting")
	g := &gate{graph: graph{r: r}, open: make(chan struct{}), seen: make(chan struct{}, 100)}
	s := checkpointer.NewSnapshots(r.store(t, true), g)
	first, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.State(first, checkpointer.Key{Thread: thread}, false)
		done <- err
	}()
	<-g.seen
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := s.State(t.Context(), checkpointer.Key{Thread: thread}, false)
			if err != nil {
				t.Error(err)
				return
			}
			same(t, "live state", r.Namespaces[""].Live, got)
		})
	}
	leave() // the first caller's leaving does not lose the answer
	require.ErrorIs(t, <-done, context.Canceled)
	close(g.open)
	wg.Wait()
	require.Len(t, g.asked, 1)
}

// racer lets a write arrive while it is being asked.
type racer struct {
	graph
	arrive func()
}

func (g *racer) Explain(ctx context.Context, k checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	g.arrive()
	return g.graph.Explain(ctx, k, live)
}

// An answer that is younger than the rows is not put together with them, nor kept.
func TestHeadMovesWhileAsked(t *testing.T) {
	t.Parallel()
	r := recording(t, "parallel_case/two waiting")
	m := r.store(t, true)
	head := checkpointer.Key{Thread: thread}
	at, err := m.LoadCheckpoint(t.Context(), head)
	require.NoError(t, err)
	arrivals := 0
	g := &racer{graph: graph{r: r}, arrive: func() {
		if arrivals++; arrivals > 1 {
			return
		}
		for _, w := range at.Writes {
			if w.Channel == "__interrupt__" {
				w.Channel, w.Index = "__no_writes__", 7
				require.NoError(t, m.PutWrites(at.Key, []checkpointer.Write{w}))
				return
			}
		}
	}}
	got, err := checkpointer.NewSnapshots(m, g).State(t.Context(), head, false)
	require.NoError(t, err)
	require.Equal(t, 2, arrivals)
	require.Len(t, got.Next, 1) // the task that finished meanwhile is out
	_, err = checkpointer.NewSnapshots(m, g).State(t.Context(), head, false)
	require.NoError(t, err)
	require.Equal(t, 2, arrivals) // the second answer was kept

	always := 0
	busy := &racer{graph: graph{r: r}, arrive: func() {
		always++
		require.NoError(t, m.PutWrites(at.Key, []checkpointer.Write{{TaskID: at.Writes[0].TaskID, Index: 100 + always, Channel: "note", Type: "null"}}))
	}}
	require.NoError(t, m.PutWrites(at.Key, []checkpointer.Write{{TaskID: at.Writes[0].TaskID, Index: 99, Channel: "note", Type: "null"}}))
	_, err = checkpointer.NewSnapshots(m, busy).State(t.Context(), head, false)
	require.NoError(t, err)
	require.Equal(t, 3, always) // and a run that never rests is not waited for
}

// Without a graph, rows have values and times, and the tasks that have written: here the one that asks.
func TestNoGraphToAsk(t *testing.T) {
	t.Parallel()
	r := recording(t, "pipeline_case/waiting")
	for _, ask := range []checkpointer.Explainer{nil, &graph{}} {
		got, err := checkpointer.NewSnapshots(r.store(t, false), ask).State(t.Context(), checkpointer.Key{Thread: thread}, true)
		require.NoError(t, err)
		require.JSONEq(t, `{"topic":"a","items":["plan","a-0","a-1","a-2"]}`, string(got.Values))
		require.Equal(t, []string{"ask"}, got.Next)
		require.Len(t, got.Tasks, 1)
		require.Equal(t, "ask", got.Tasks[0].Name)
		require.JSONEq(t, `["__pregel_pull","ask"]`, string(got.Tasks[0].Path))
		require.Equal(t, "ok?", gjson.GetBytes(got.Tasks[0].Interrupts[0], "value.question").String())
		require.NotEmpty(t, got.CreatedAt)
		require.NotEmpty(t, got.Parent)
		head, err := checkpointer.NewSnapshots(r.store(t, false), ask).Head(t.Context(), thread)
		require.NoError(t, err)
		require.JSONEq(t, `{"`+got.Tasks[0].ID+`":[`+string(got.Tasks[0].Interrupts[0])+`]}`, string(head.Interrupts))
	}
}

// Pages of any size are together the history, each with at least one record, and the last one says so or is empty.
func TestPagesAreTheHistory(t *testing.T) {
	t.Parallel()
	r := recording(t, "fork_case/ran")
	s := checkpointer.NewSnapshots(r.store(t, true), nil)
	root := ""
	want, err := s.History(t.Context(), checkpointer.List{Thread: thread, NS: &root})
	require.NoError(t, err)
	for bytes := 1; bytes < 100_000; bytes *= 2 {
		var got []*checkpointer.Snapshot
		for q := (checkpointer.List{Thread: thread, NS: &root, Limit: 3, Bytes: bytes}); ; {
			page, err := s.Page(t.Context(), q)
			require.NoError(t, err)
			n := page.Len()
			if bytes == 1 && n > 1 {
				t.Fatalf("%d records in %d bytes", n, bytes)
			}
			for _, k := range page.Keys() {
				snap, err := page.Next(t.Context())
				require.NoError(t, err)
				require.Equal(t, k, snap.Key)
				got = append(got, snap)
			}
			if !page.More {
				break
			}
			if n == 0 {
				t.Fatal("an empty page has others after it")
			}
			q.Before = got[len(got)-1].ID
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("pages of %d bytes: %s", bytes, diff)
		}
	}
}

// A graph that cannot be loaded is not tried for every row of a history.
func TestHistoryWithoutAnswers(t *testing.T) {
	t.Parallel()
	r := recording(t, "fork_case/ran")
	g := &graph{}
	got, err := checkpointer.NewSnapshots(r.store(t, false), g).History(t.Context(), checkpointer.List{Thread: thread})
	require.NoError(t, err)
	require.Len(t, got, len(r.Rows))
	require.Less(t, len(g.asked), len(r.Rows))
	for _, h := range got {
		require.NotEmpty(t, h.CreatedAt)
	}
}

func TestAStatefulSubgraphIsFoundWithTaskIDs(t *testing.T) {
	t.Parallel()
	r := recording(t, "stateful_case/waiting")
	s := checkpointer.NewSnapshots(r.store(t, true), nil)
	root, err := s.State(t.Context(), checkpointer.Key{Thread: thread}, false)
	require.NoError(t, err)
	ns := root.Tasks[0].Subgraph
	require.True(t, strings.HasPrefix(ns, "sub:"))
	got, err := s.State(t.Context(), checkpointer.Key{Thread: thread, NS: ns}, false)
	require.NoError(t, err)
	same(t, "by the address of its task", r.Namespaces["sub"].Live, got)
	history, err := s.History(t.Context(), checkpointer.List{Thread: thread, NS: &ns})
	require.NoError(t, err)
	require.Len(t, history, len(r.Namespaces["sub"].History))
}

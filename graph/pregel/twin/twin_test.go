package twin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonplus"
)

// python is a process that runs twin.py.
type python struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

// shared is the process of all tests: importing langgraph takes longer than most of them.
var shared = sync.OnceValues(startPython)

// end ends that process, if it was started.
var end = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	end()
	os.Exit(code)
}

// twinOf returns the process that runs twin.py.
func twinOf(t testing.TB) *python {
	t.Helper()
	at := pythonPath()
	if err := exec.Command(at, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('langgraph') is None)").Run(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("no Python with langgraph (set UNDERSTUDY_TEST_PYTHON): %s: %v", at, err)
		}
		t.Skipf("SKIPPED: no Python with langgraph (set UNDERSTUDY_TEST_PYTHON): %s: %v", at, err)
	}
	p, err := shared()
	require.NoError(t, err)
	return p
}

// startPython starts twin.py with the interpreter of UNDERSTUDY_TEST_PYTHON.
func startPython() (*python, error) {
	cmd := exec.Command(pythonPath(), "twin.py")
	cmd.Env = append(os.Environ(), "LANGSMITH_TRACING=false", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	end = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	return &python{in: in, out: bufio.NewReaderSize(out, 1<<20)}, cmd.Start()
}

// answer runs a case in Python.
func (p *python) answer(t testing.TB, c testCase) map[string]any {
	t.Helper()
	line, err := json.Marshal(c)
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err = p.in.Write(append(line, '\n'))
	require.NoError(t, err)
	got, err := p.out.ReadBytes('\n')
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(got, &doc))
	if broken, ok := doc["broken"]; ok {
		t.Fatalf("twin.py: %v\n%s", broken, line)
	}
	return doc
}

// memory keeps checkpoints in memory.
type memory struct{ checkpointer.Memory }

func (m *memory) Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	return m.LoadCheckpoint(ctx, k)
}

func (m *memory) List(ctx context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error) {
	return m.ListCheckpoints(ctx, q)
}

func (m *memory) Save(_ context.Context, saves ...graph.Save) error {
	for _, sv := range saves {
		if sv.Put != nil {
			if err := m.PutCheckpoint(sv.Put); err != nil {
				return err
			}
		} else if err := m.PutWrites(sv.At, sv.Writes); err != nil {
			return err
		}
	}
	return nil
}

const thread = id.Thread("t")

// attempted reports whether the newest root checkpoint is one of the run.
func (m *memory) attempted(t testing.TB, run id.Run) bool {
	all := roots(t, m)
	return len(all) > 0 && all[len(all)-1].Run == run
}

// patience is how long a step may take.
func (c testCase) patience() time.Duration {
	if c.Patience > 0 {
		return time.Duration(c.Patience * float64(time.Second))
	}
	return 2 * time.Minute
}

// answerGo runs a case in Go, and returns the same document as twin.py. r delays nodes.
func answerGo(t testing.TB, c testCase, r race) map[string]any {
	t.Helper()
	in := newInterpreter()
	in.race = r
	g, err := in.build(c.Graph, false)
	if err != nil {
		return map[string]any{"compile": "ValueError"}
	}
	m := &memory{}
	keep := c.Saver == nil || *c.Saver
	out := map[string]any{"steps": []any{}, "drawings": []any{drawn(t, g, 0), drawn(t, g, -1)}}
	var run id.Run
	before := 0
	for i, s := range c.Steps {
		if s.Op == "crash" {
			last := id.Checkpoint("")
			if all := roots(t, m); before+s.Keep > 0 && len(all) > 0 {
				last = all[min(before+s.Keep, len(all))-1].ID
			}
			m.Lose(thread, last, s.Lose)
			out["steps"] = append(out["steps"].([]any), map[string]any{"events": []any{}, "error": nil})
			continue
		}
		if s.Again == "" {
			run, before = id.Run(fmt.Sprintf("run%d", i)), len(roots(t, m))
		}
		out["steps"] = append(out["steps"].([]any), performer{t, in, g, m, keep, c.patience()}.perform(s, run))
	}
	if keep {
		out["checkpoints"] = dump(t, m)
		out["states"] = states(t, g, m)
	}
	raw, err := json.Marshal(out)
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(raw, &doc))
	return doc
}

func drawn(t testing.TB, g *pregel.Graph, xray int) json.RawMessage {
	raw, err := g.Describe(context.Background(), graph.Config{}, graph.DescribeWhat{Kind: "graph", XRay: xray})
	require.NoError(t, err)
	return raw
}

func roots(t testing.TB, m *memory) []*checkpointer.Tuple {
	ns := ""
	found, err := m.List(context.Background(), checkpointer.List{Thread: thread, NS: &ns})
	require.NoError(t, err)
	slices.SortFunc(found, func(a, b *checkpointer.Tuple) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// performer does the steps of a case.
type performer struct {
	t        testing.TB
	in       *interpreter
	g        *pregel.Graph
	m        *memory
	keep     bool
	patience time.Duration
}

func (p performer) perform(s step, run id.Run) any {
	t, in, g, m := p.t, p.in, p.g, p.m
	ctx, cancel := context.WithTimeout(context.Background(), p.patience)
	defer cancel()
	in.forget()
	cfg := graph.Config{Thread: thread}
	if p.keep {
		cfg.Saver = m
	}
	limit := 25
	if s.Limit != nil {
		limit = *s.Limit
	}
	cfg.Config = raw(map[string]any{
		"configurable": map[string]any{"thread_id": "t"}, "metadata": map[string]any{"run_id": run}, "recursion_limit": limit,
	})
	at := checkpointer.Key{Thread: thread}
	if all := roots(t, m); s.At != nil && len(all) > 0 {
		at.ID = all[min(*s.At, len(all)-1)].ID
	}
	if s.NS != nil {
		all, err := m.List(ctx, checkpointer.List{Thread: thread})
		require.NoError(t, err)
		newest := id.Checkpoint("")
		for _, c := range all {
			if name, _, _ := strings.Cut(c.NS, ":"); name == *s.NS && !strings.Contains(c.NS, "|") && c.ID > newest {
				at.NS, newest = c.NS, c.ID
			}
		}
	}
	if s.Op == "update" {
		var steps [][]graph.StateUpdate
		for _, us := range s.Updates {
			var one []graph.StateUpdate
			for _, u := range us {
				one = append(one, graph.StateUpdate{Values: u.Values, AsNode: u.AsNode, Command: u.Command})
			}
			steps = append(steps, one)
		}
		_, err := g.Update(ctx, cfg, at, steps)
		return map[string]any{"events": []any{}, "error": shownError(err)}
	}
	command := s.Command
	if bytes.Contains(command, []byte("$ask")) {
		asked := asked(t, m)
		for k, i := range asked {
			command = bytes.ReplaceAll(command, raw("$ask "+i.node), raw(i.id))
			command = bytes.ReplaceAll(command, raw(fmt.Sprintf("$ask %d", k)), raw(i.id))
		}
	}
	given := s.Input
	if s.Again == "null" || s.Again == "input" && m.attempted(t, run) {
		given, command = nil, nil
	}
	inv := graph.Invocation{
		Config: cfg, Run: run, At: at,
		Arguments: graph.Arguments{Input: given, Command: command, Modes: s.Modes, Subgraphs: s.Subgraphs, Durability: s.Durability},
	}
	if s.InterruptBefore != nil {
		inv.InterruptBefore = raw(s.InterruptBefore)
	}
	if s.InterruptAfter != nil {
		inv.InterruptAfter = raw(s.InterruptAfter)
	}
	events := []any{}
	var failure error
	for e, err := range g.Stream(ctx, inv) {
		if err != nil {
			failure = err
			break
		}
		var data any
		require.NoError(t, json.Unmarshal(e.Data, &data), "%s", e.Data)
		events = append(events, []any{e.Name, e.NS, data})
		if nodes, ok := data.(map[string]any); ok && e.Name == "updates" {
			for node := range nodes {
				in.raise(node)
			}
		}
	}
	return map[string]any{"events": events, "error": shownError(failure)}
}

// question is an interrupt of a task of a node.
type question struct{ node, value, id string }

// asked are the questions on the newest root checkpoint, sorted: those of nested graphs have no order.
func asked(t testing.TB, m *memory) (out []question) {
	all := roots(t, m)
	if len(all) == 0 {
		return nil
	}
	for _, w := range all[len(all)-1].Writes {
		if w.Channel != "__interrupt__" {
			continue
		}
		for _, i := range gjson.ParseBytes(jsonOf(t, w.Type, w.Data)).Array() {
			out = append(out, question{w.Path[strings.LastIndex(w.Path, ", ")+2:], i.Get("value").Raw, i.Get("id").Str})
		}
	}
	slices.SortStableFunc(out, func(a, b question) int { return cmp.Compare(a.value, b.value) })
	return out
}

func shownError(err error) any {
	var f *graph.Failure
	var invalid *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return map[string]any{"error": f.Type, "message": f.Message}
	case errors.As(err, &invalid):
		name := "InvalidUpdateError"
		var named interface{ ErrorName() string }
		if errors.As(invalid.Cause, &named) {
			name = named.ErrorName()
		}
		return map[string]any{"error": name, "message": invalid.Message}
	}
	return map[string]any{"error": fmt.Sprintf("%T", err), "message": err.Error()}
}

func jsonOf(t testing.TB, typ string, data []byte) json.RawMessage {
	out, err := jsonplus.AppendJSON(nil, typ, data)
	require.NoError(t, err)
	return out
}

func dump(t testing.TB, m *memory) []any {
	all, err := m.List(context.Background(), checkpointer.List{Thread: thread})
	require.NoError(t, err)
	slices.SortFunc(all, func(a, b *checkpointer.Tuple) int { return cmp.Compare(a.ID, b.ID) })
	out := []any{}
	for _, c := range all {
		var doc struct {
			V        int                          `json:"v"`
			Values   map[string]json.RawMessage   `json:"channel_values"`
			Versions map[string]string            `json:"channel_versions"`
			Seen     map[string]map[string]string `json:"versions_seen"`
			Updated  []string                     `json:"updated_channels"`
		}
		require.NoError(t, json.Unmarshal(c.Data, &doc), "%s", c.Data)
		for _, b := range c.Blobs {
			doc.Values[b.Channel] = jsonOf(t, b.Type, b.Bytes())
		}
		var meta map[string]any
		require.NoError(t, json.Unmarshal(c.Metadata, &meta))
		writes := []any{}
		for _, w := range c.Writes {
			writes = append(writes, map[string]any{
				"task": w.TaskID, "index": w.Index, "channel": w.Channel, "path": w.Path, "value": jsonOf(t, w.Type, w.Data),
			})
		}
		var parent any
		if c.Parent != "" {
			parent = c.Parent
		}
		var updated any
		if doc.Updated != nil || strings.Contains(string(c.Data), `"updated_channels":[`) {
			updated = append([]string{}, doc.Updated...)
		}
		out = append(out, map[string]any{
			"ns": c.NS, "id": c.ID, "parent": parent, "values": doc.Values, "versions": doc.Versions, "seen": doc.Seen, "updated": updated, "v": doc.V,
			"metadata": map[string]any{"source": meta["source"], "step": meta["step"], "parents": meta["parents"]}, "writes": writes,
		})
	}
	return out
}

type explainer struct {
	g *pregel.Graph
	m *memory
}

func (e explainer) Explain(ctx context.Context, k checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	return e.g.Explain(ctx, graph.Config{Thread: thread, Saver: e.m}, k, live)
}

func states(t testing.TB, g *pregel.Graph, m *memory) any {
	s := checkpointer.NewSnapshots(m, explainer{g, m})
	live, err := s.State(context.Background(), checkpointer.Key{Thread: thread}, true)
	require.NoError(t, err)
	records := []any{}
	for _, c := range roots(t, m) {
		one, err := s.State(context.Background(), c.Key, false)
		require.NoError(t, err)
		records = append(records, shownState(one))
	}
	return map[string]any{"live": shownState(live), "records": records}
}

func shownState(s *checkpointer.Snapshot) any {
	tasks := []any{}
	for _, t := range s.Tasks {
		interrupts := []any{}
		for _, i := range t.Interrupts {
			interrupts = append(interrupts, i)
		}
		var state any
		if t.State != nil {
			state = shownState(t.State)
		}
		var result any
		if t.Result != nil {
			result = t.Result
		}
		tasks = append(tasks, map[string]any{
			"id": t.ID, "name": t.Name, "path": t.Path, "error": t.Error, "interrupts": interrupts, "result": result, "state": state,
		})
	}
	values := s.Values
	if values == nil {
		values = json.RawMessage("{}")
	}
	return map[string]any{"values": values, "next": append([]string{}, s.Next...), "tasks": tasks}
}

// Each hand-written case shows the same in LangGraph and here.
func TestCases(t *testing.T) {
	p := twinOf(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { compare(t, p, c) })
	}
}

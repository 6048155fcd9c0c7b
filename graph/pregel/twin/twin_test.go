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
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/checkpointer"
	"understudy/checkpointer/checkpointertest"
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

// startPython starts twin.py with the interpreter of UNDERSTUDY_TEST_PYTHON.
func startPython(t testing.TB) *python {
	t.Helper()
	at := pythonPath()
	if err := exec.Command(at, "-c", "import langgraph").Run(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("no Python with langgraph (set UNDERSTUDY_TEST_PYTHON): %s: %v", at, err)
		}
		t.Skipf("SKIPPED: no Python with langgraph (set UNDERSTUDY_TEST_PYTHON): %s: %v", at, err)
	}
	cmd := exec.Command(at, "twin.py")
	cmd.Env = append(os.Environ(), "LANGSMITH_TRACING=false", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &python{in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

// answer runs a case in Python.
func (p *python) answer(t testing.TB, c testCase) any {
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
		t.Fatalf("twin.py: %v", broken)
	}
	return doc
}

// memory keeps checkpoints in memory.
type memory struct{ checkpointertest.Memory }

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

// answerGo runs a case in Go, and gives the same document as twin.py.
func answerGo(t testing.TB, c testCase) any {
	t.Helper()
	in := newInterpreter()
	g, err := in.build(c.Graph, false)
	if err != nil {
		return map[string]any{"compile": "ValueError"}
	}
	m := &memory{}
	keep := c.Saver == nil || *c.Saver
	out := map[string]any{"steps": []any{}, "drawings": []any{drawn(t, g, 0), drawn(t, g, -1)}}
	for i, s := range c.Steps {
		out["steps"] = append(out["steps"].([]any), perform(t, in, g, m, keep, s, i))
	}
	if keep {
		out["checkpoints"] = dump(t, m)
		out["states"] = states(t, g, m)
	}
	raw, err := json.Marshal(out)
	require.NoError(t, err)
	var doc any
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

func perform(t testing.TB, in *interpreter, g *pregel.Graph, m *memory, keep bool, s step, i int) any {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run := fmt.Sprintf("run%d", i)
	in.forget()
	cfg := graph.Config{Thread: thread}
	if keep {
		cfg.Saver = m
	}
	limit := s.Limit
	if limit == 0 {
		limit = 25
	}
	cfg.Config = raw(map[string]any{
		"configurable": map[string]any{"thread_id": "t"}, "metadata": map[string]any{"run_id": run}, "recursion_limit": limit,
	})
	at := checkpointer.Key{Thread: thread}
	if s.At != nil {
		at.ID = roots(t, m)[*s.At].ID
	}
	if s.NS != nil {
		all, err := m.List(ctx, checkpointer.List{Thread: thread})
		require.NoError(t, err)
		for _, c := range all {
			if name, _, _ := strings.Cut(c.NS, ":"); name == *s.NS {
				at.NS = c.NS
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
		state, err := checkpointer.NewSnapshots(m, explainer{g, m}).State(ctx, checkpointer.Key{Thread: thread}, false)
		require.NoError(t, err)
		for _, task := range state.Tasks {
			for _, i := range task.Interrupts {
				command = bytes.ReplaceAll(command, []byte("$ask "+task.Name), []byte(gjson.GetBytes(i, "id").Str))
			}
		}
	}
	inv := graph.Invocation{
		Config: cfg, Run: id.Run(run), Input: s.Input, Command: command, At: at, Modes: s.Modes, Subgraphs: s.Subgraphs, Durability: s.Durability,
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

func shownError(err error) any {
	var f *graph.Failure
	var invalid *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return map[string]any{"error": f.Type, "message": f.Message}
	case errors.As(err, &invalid):
		return map[string]any{"error": "InvalidUpdateError", "message": invalid.Message}
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

func (e explainer) Explain(ctx context.Context, k checkpointer.Key, live bool) (checkpointer.Explained, error) {
	got, err := e.g.Explain(ctx, graph.Config{Thread: thread, Saver: e.m}, k, live)
	return checkpointer.Explained{Values: got.Values, Next: got.Next, Tasks: got.Tasks, Shape: got.Shape, ShapeJSON: got.ShapeJSON}, err
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

// --- making documents comparable -----------------------------------------------------------

var (
	uuids    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b`)
	versions = regexp.MustCompile(`"0*([0-9]+)\.[0-9.e-]+"`)
	times    = regexp.MustCompile(`"timestamp":"[^"]*"`)
)

func blind(doc any) string { return uuids.ReplaceAllString(string(raw(doc)), "U") }

// canonical puts in order what has none, and gives ids by number of appearance.
func canonical(doc any) any {
	if m, ok := doc.(map[string]any); ok {
		if s, ok := m["states"].(map[string]any); ok {
			if live, ok := s["live"].(map[string]any); ok && live["error"] != nil {
				s["live"] = "error"
			}
		}
		if steps, ok := m["steps"].([]any); ok {
			for _, s := range steps {
				one := s.(map[string]any)
				one["events"] = ordered(one["events"].([]any))
				for _, e := range one["events"].([]any) {
					withoutThread(e.([]any)[2])
				}
			}
		}
		if all, ok := m["checkpoints"].([]any); ok {
			for _, c := range all {
				one := c.(map[string]any)
				writes := one["writes"].([]any)
				for _, w := range writes { // LangGraph keeps edges in a set
					if x := w.(map[string]any); strings.HasPrefix(x["channel"].(string), "branch:to:") {
						x["path"], x["index"] = x["path"].(string)+" "+x["channel"].(string), 0.0
					}
				}
				slices.SortStableFunc(writes, func(a, b any) int {
					x, y := a.(map[string]any), b.(map[string]any)
					return cmp.Or(cmp.Compare(x["path"].(string), y["path"].(string)), cmp.Compare(x["index"].(float64), y["index"].(float64)), cmp.Compare(blind(a), blind(b)))
				})
			}
			slices.SortStableFunc(all, func(a, b any) int {
				x, y := a.(map[string]any), b.(map[string]any)
				return cmp.Or(cmp.Compare(blind(x["ns"]), blind(y["ns"])), cmp.Compare(x["id"].(string), y["id"].(string)))
			})
		}
	}
	text := string(raw(doc))
	text = versions.ReplaceAllString(text, "$1")
	text = times.ReplaceAllString(text, `"timestamp":"T"`)
	labels := map[string]string{}
	text = uuids.ReplaceAllStringFunc(text, func(u string) string {
		if labels[u] == "" {
			labels[u] = fmt.Sprintf("<%d>", len(labels)+1)
		}
		return labels[u]
	})
	var out any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(err)
	}
	return out
}

// savedBy are keys of a checkpoint's metadata that the server's saver keeps, and LangGraph's memory saver does not.
var savedBy = []string{
	"thread_id", "checkpoint_map", "checkpoint_ns", "langgraph_step", "langgraph_node", "langgraph_triggers", "langgraph_path", "langgraph_checkpoint_ns",
}

// withoutThread removes what depends on the saver from the metadata of a checkpoint.
func withoutThread(data any) {
	event, ok := data.(map[string]any)
	if !ok {
		return
	}
	if payload, ok := event["payload"]; ok {
		withoutThread(payload)
	}
	if metadata, ok := event["metadata"].(map[string]any); ok {
		if _, checkpoint := event["next"]; checkpoint {
			for _, key := range savedBy {
				delete(metadata, key)
			}
		}
	}
}

// ordered sorts the events of tasks that ran beside each other: those between two states.
func ordered(events []any) []any {
	out := make([]any, 0, len(events))
	start := 0
	// Tasks that look the same are told apart by the order in which they started.
	first := map[string]int{}
	for _, e := range events {
		for _, u := range uuids.FindAllString(string(raw(e)), -1) {
			if _, known := first[u]; !known {
				first[u] = len(first)
			}
		}
	}
	numbered := func(e any) string {
		return uuids.ReplaceAllStringFunc(string(raw(e)), func(u string) string { return fmt.Sprintf("%08d", first[u]) })
	}
	flush := func(end int) {
		part := slices.Clone(events[start:end])
		slices.SortStableFunc(part, func(a, b any) int {
			return cmp.Or(cmp.Compare(blind(a), blind(b)), cmp.Compare(numbered(a), numbered(b)))
		})
		out = append(out, part...)
	}
	for i, e := range events {
		name := e.([]any)[0].(string)
		if name != "values" && name != "checkpoints" && name != "debug" {
			continue
		}
		if data, ok := e.([]any)[2].(map[string]any); ok && (data["__interrupt__"] != nil || name == "debug" && data["type"] != "checkpoint") {
			continue
		}
		flush(i)
		out = append(out, e)
		start = i + 1
	}
	flush(len(events))
	return out
}

// differences tells where two documents differ, leaf by leaf.
func differences(path string, want, got any, out []string) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		all := maps.Clone(w)
		maps.Copy(all, g)
		for _, k := range slices.Sorted(maps.Keys(all)) {
			x, inWant := w[k]
			y, inGot := g[k]
			switch {
			case !inWant:
				out = append(out, fmt.Sprintf("%s/%s: LangGraph has none; pregel %s", path, k, raw(y)))
			case !inGot:
				out = append(out, fmt.Sprintf("%s/%s: LangGraph %s; pregel has none", path, k, raw(x)))
			default:
				out = differences(path+"/"+k, x, y, out)
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			out = differences(fmt.Sprintf("%s/%d", path, i), w[i], g[i], out)
		}
		return out
	}
	if a, b := string(raw(want)), string(raw(got)); a != b {
		out = append(out, fmt.Sprintf("%s:\n    LangGraph %s\n    pregel    %s", path, a, b))
	}
	return out
}

func compare(t *testing.T, p *python, c testCase) {
	t.Helper()
	inPython, inGo := p.answer(t, c), answerGo(t, c)
	diff := compared(c, inPython, inGo)
	if len(diff) > 0 {
		// A subgraph beside another task: only events of one namespace have an order.
		diff = compared(c, byNamespace(inPython), byNamespace(inGo))
	}
	if len(diff) > 0 {
		const shown = 12
		more := ""
		if len(diff) > shown {
			diff, more = diff[:shown], fmt.Sprintf("\nand %d more", len(diff)-shown)
		}
		t.Errorf("%s\n%s%s", raw(c), strings.Join(diff, "\n"), more)
	}
}

// byNamespace gives the events of each step by namespace.
func byNamespace(doc any) any {
	for _, s := range doc.(map[string]any)["steps"].([]any) {
		slices.SortStableFunc(s.(map[string]any)["events"].([]any), func(a, b any) int {
			return cmp.Compare(blind(a.([]any)[1]), blind(b.([]any)[1]))
		})
	}
	return doc
}

// compared tells where two answers differ.
func compared(c testCase, inPython, inGo any) []string {
	want, got := canonical(inPython), canonical(inGo)
	if slices.ContainsFunc(c.Graph.Nodes, func(n nodeDesc) bool { return n.Defer }) {
		// LangGraph draws edges to deferred nodes from whatever ran last.
		want.(map[string]any)["drawings"] = nil
		got.(map[string]any)["drawings"] = nil
	}
	// What of a state cannot be computed: LangGraph raises, here rows are shown.
	if s, ok := want.(map[string]any)["states"].(map[string]any); ok {
		mine := got.(map[string]any)["states"].(map[string]any)
		if s["live"] == "error" {
			mine["live"] = "error"
		}
		for i, r := range s["records"].([]any) {
			if r.(map[string]any)["error"] != nil && i < len(mine["records"].([]any)) {
				mine["records"].([]any)[i] = r
			}
		}
	}
	return differences("", want, got, nil)
}

// Each hand-written case shows the same in LangGraph and here.
func TestCases(t *testing.T) {
	p := startPython(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { compare(t, p, c) })
	}
}

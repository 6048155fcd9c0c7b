package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
)

// fake is a graph that does what a test says.
type fake struct {
	graph.Graph
	modes []string // that it was called with
	run   func(ctx context.Context, emit func(name, data string) bool) error
}

func (f *fake) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	f.modes = inv.Modes
	return func(yield func(graph.Event, error) bool) {
		left := false
		err := f.run(ctx, func(name, data string) bool {
			left = left || !yield(graph.Event{Name: name, Data: json.RawMessage(data)}, nil)
			return !left
		})
		if err != nil && !left {
			yield(graph.Event{}, err)
		}
	}
}

// journaled runs a graph whose thread has files in dir. It returns the events that the caller sees, the rows, and how the run ended.
func journaled(ctx context.Context, dir string, modes []string, f *fake) (events, rows []string, err error) {
	g := Of(f, func(string, string) string { return dir })
	inv := graph.Invocation{Config: graph.Config{Thread: "t", Config: json.RawMessage(`{}`)}, Run: "r", Arguments: graph.Arguments{Modes: modes}, Log: slog.New(slog.DiscardHandler)}
	inv.Noted = func(n graph.Note) { rows = append(rows, fmt.Sprintf("%s %s %s", n.Type, n.Category, n.Content)) }
	for e, failed := range g.Stream(ctx, inv) {
		if failed != nil {
			return events, rows, failed
		}
		events = append(events, e.Name)
	}
	return events, rows, nil
}

const nothing = `run.delivery outputs {"presented":0,"paths":[],"by_tool":{}}`

// The rows of subagents are those of DeerFlow, whichever modes the client asked for.
func TestSubagentsAreRecorded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxText+1)
	run := func(_ context.Context, emit func(name, data string) bool) error {
		for _, data := range []string{
			`{"type":"task_started","task_id":"c1","description":"look","model_name":"m"}`,
			`{"type":"task_running","task_id":"c1","message_index":1,"message":{"type":"ai","content":[{"type":"text","text":"a"},"b"],"tool_calls":[{"id":"x","name":"ls","args":{"path":"/"}}]}}`,
			`{"type":"task_running","task_id":"c1","message_index":2,"message":{"type":"tool","name":"ls","content":"` + long + `"}}`,
			`{"type":"task_running","task_id":"c1","message_index":-1,"message":{}}`,
			`{"type":"task_started"}`, `[]`, `"text"`, `{"type":"llm_retry","task_id":"c1"}`,
			`{"type":"task_completed","task_id":"c1","result":"found","model_name":" m ","usage":{"total_tokens":3}}`,
			`{"type":"task_started","task_id":"c2","description":null}`,
		} {
			emit("custom", data)
		}
		emit("updates", `{"model":{"messages":[]}}`)
		emit("values", `{}`)
		return nil
	}
	want := []string{
		`subagent.start subagent {"task_id":"c1","description":"look"}`,
		`subagent.step subagent {"task_id":"c1","message_index":1,"kind":"ai","text":"a\nb","truncated":false,"tool_calls":[{"name":"ls","args":{"path":"/"}}]}`,
		`subagent.step subagent {"task_id":"c1","message_index":2,"kind":"tool","text":"` + strings.Repeat("é", maxText) + `","truncated":true,"tool_name":"ls"}`,
		`subagent.end subagent {"task_id":"c1","status":"completed","model_name":"m","usage":{"total_tokens":3},"result":"found"}`,
		`subagent.start subagent {"task_id":"c2","description":null}`,
		`subagent.end subagent {"task_id":"c2","status":"cancelled"}`,
		nothing,
	}
	for _, modes := range [][]string{{"values"}, {"values", "custom"}, {"updates"}, {"values", "updates", "custom"}} {
		f := &fake{run: run}
		events, rows, err := journaled(t.Context(), t.TempDir(), modes, f)
		require.NoError(t, err)
		require.Equal(t, want, rows)
		require.ElementsMatch(t, union(modes, watched), f.modes)
		count := map[string]int{}
		for _, name := range events {
			count[name]++
		}
		require.Equal(t, map[bool]int{true: 10}[contains(modes, "custom")], count["custom"], modes)
		require.Equal(t, map[bool]int{true: 1}[contains(modes, "updates")], count["updates"], modes)
		require.Equal(t, 1, count["values"])
	}
}

func contains(list []string, s string) bool {
	return strings.Contains(" "+strings.Join(list, " ")+" ", " "+s+" ")
}

func union(a, b []string) []string {
	out := append([]string{}, a...)
	for _, s := range b {
		if !contains(a, s) {
			out = append(out, s)
		}
	}
	return out
}

// A run that produces files for the user must present one of them, by itself or with its folder; only a run that ends by itself is judged.
func TestDelivery(t *testing.T) {
	t.Parallel()
	const out = "/mnt/user-data/outputs/"
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		writes  []string
		updates []string
		fails   error
		leaves  bool
		stage   string
		failure bool
	}{
		"nothing":          {},
		"workspace only":   {writes: []string{"workspace/a.txt"}},
		"presented":        {writes: []string{"outputs/a.txt", "outputs/b.txt"}, updates: []string{`{"tools":{"artifacts":["` + out + `a.txt"]}}`}, stage: "presented"},
		"with its folder":  {writes: []string{"outputs/d/a.txt"}, updates: []string{`{"tools":[{"artifacts":["` + out + `d/"]},{"messages":[]}]}`}, stage: "presented"},
		"another one":      {writes: []string{"outputs/a.txt"}, updates: []string{`{"tools":{"artifacts":["` + out + `old.txt"]}}`}, stage: "mismatched", failure: true},
		"a longer name":    {writes: []string{"outputs/ab.txt"}, updates: []string{`{"tools":{"artifacts":["` + out + `ab"]}}`}, stage: "mismatched", failure: true},
		"none":             {writes: []string{"outputs/a.txt"}, stage: "not_started", failure: true},
		"results of tools": {writes: []string{"outputs/.tool-results/a.txt"}},
		"a question":       {writes: []string{"outputs/a.txt"}, updates: []string{`{"__interrupt__":[{"value":1}]}`}, stage: "not_started"},
		"failed":           {writes: []string{"outputs/a.txt"}, fails: boom, stage: "not_started"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, rows, err := journaled(t.Context(), dir, nil, &fake{run: func(_ context.Context, emit func(name, data string) bool) error {
				for _, file := range c.writes {
					at := filepath.Join(dir, "user-data", file)
					require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
					require.NoError(t, os.WriteFile(at, []byte("x\n"), 0o600))
				}
				for _, u := range c.updates {
					emit("updates", u)
				}
				return c.fails
			}})
			switch {
			case c.failure:
				var failure *graph.Failure
				require.ErrorAs(t, err, &failure)
				require.Equal(t, Undelivered, failure.Type)
				require.Contains(t, failure.Fix, "it left "+out+filepath.Base(c.writes[0]))
			default:
				require.Equal(t, c.fails, err)
			}
			last := rows[len(rows)-1]
			content, ok := strings.CutPrefix(last, "run.delivery outputs ")
			require.True(t, ok, last)
			require.Equal(t, c.stage, gjson.Get(content, "stage").String(), content)
			if len(c.writes) > 0 && !strings.Contains(c.writes[0], ".tool-results") {
				require.True(t, strings.HasPrefix(rows[0], "workspace_changes workspace "), rows)
			}
		})
	}
}

// What another attempt of the run continues, or what is not read any more, is not judged; a cancelled run is recorded.
func TestEndsOfAttempts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := `{"type":"task_started","task_id":"c1"}`
	for _, away := range []error{graph.ErrWorkerDied, graph.ErrReloading, graph.ErrElsewhere} {
		_, rows, err := journaled(t.Context(), dir, nil, &fake{run: func(_ context.Context, emit func(name, data string) bool) error {
			emit("custom", start)
			return away
		}})
		require.Equal(t, away, err)
		require.Len(t, rows, 1)
	}
	for _, cause := range []error{graph.ErrHandedOver, context.Canceled} {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, rows, err := journaled(ctx, dir, nil, &fake{run: func(ctx context.Context, emit func(name, data string) bool) error {
			emit("custom", start)
			cancel(cause)
			return context.Cause(ctx)
		}})
		require.Equal(t, cause, err)
		if errors.Is(cause, graph.ErrHandedOver) {
			require.Len(t, rows, 1)
		} else {
			require.Equal(t, []string{`subagent.start subagent {"task_id":"c1","description":null}`, `subagent.end subagent {"task_id":"c1","status":"cancelled"}`, nothing}, rows)
		}
	}
	// The reader leaves in the middle.
	var rows []string
	g := Of(&fake{run: func(_ context.Context, emit func(name, data string) bool) error {
		for emit("values", "{}") {
		}
		return errors.New("not seen")
	}}, func(string, string) string { return dir })
	for range g.Stream(t.Context(), graph.Invocation{Config: graph.Config{Thread: "t"}, Noted: func(n graph.Note) { rows = append(rows, n.Type) }}) {
		break
	}
	require.Equal(t, []string{"run.delivery"}, rows)
}

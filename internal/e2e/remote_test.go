package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRemote: a graph of another server. Killed in the middle, this server resumes following the run that continued there; state and history
// equal the upstream's, even when that server has ended.
func TestRemote(t *testing.T) {
	there := serve(t, t.TempDir())
	file, err := json.Marshal(map[string]any{"graphs": map[string]any{"far": map[string]any{"url": there.url, "graph_id": "ticker"}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	data := t.TempDir()
	here := serve(t, data, "--config", path)
	id := field(here.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	r := field(here.call("POST", "/threads/"+id+"/runs", map[string]any{
		"assistant_id": "far", "input": map[string]any{"steps": 20, "delay": 0.1, "tag": "t"},
	}, 200), "run_id").(string)
	here.eventually("the run is under way", func() bool {
		items, _ := field(here.call("GET", "/threads/"+id+"/state", nil, 200), "values", "items").([]any)
		return len(items) > 1
	})
	here.kill()
	here = serve(t, data, "--config", path)
	here.eventually("the run is over", func() bool {
		return field(here.call("GET", "/threads/"+id+"/runs/"+r, nil, 200), "status") == "success"
	})
	require.Len(t, there.call("GET", "/threads/"+id+"/runs", nil, 200), 1, "it was started once")
	type row struct{ Values, Tasks, Next, ID, Parent any }
	history := func(p *process) (rows []row) {
		for _, s := range p.call("POST", "/threads/"+id+"/history", map[string]any{"limit": 100}, 200).([]any) {
			rows = append(rows, row{field(s, "values"), field(s, "tasks"), field(s, "next"), field(s, "checkpoint", "checkpoint_id"), field(s, "parent_checkpoint", "checkpoint_id")})
		}
		return rows
	}
	want := history(there)
	require.Greater(t, len(want), 20)
	require.Equal(t, want, history(here))
	here.call("POST", "/threads/"+id+"/state", map[string]any{"values": map[string]any{"items": []string{"mine"}}, "as_node": "finish"}, 200)
	want = history(there)
	require.Equal(t, want, history(here))
	there.kill()
	require.Equal(t, want, history(here))
	out := here.call("POST", "/threads/"+id+"/runs/wait", map[string]any{"assistant_id": "far", "input": map[string]any{"steps": 1}}, 200)
	require.Equal(t, "UpstreamError", field(out, "__error__", "error"))
}

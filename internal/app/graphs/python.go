package graphs

import (
	"encoding/json"

	"understudy/graph/python"
	"understudy/internal/config"
)

// PythonOptions says what workers load.
func PythonOptions(cfg *config.Config) (python.Options, error) {
	specs := make(map[string]python.Spec, len(cfg.Graphs))
	for _, g := range cfg.Graphs {
		if !g.IsPython() {
			continue
		}
		file := g.Path
		if file == "" {
			file = g.Module
		}
		specs[g.ID] = python.Spec{Path: file + ":" + g.Attr}
	}
	serde, err := serdeJSON(cfg.Serde)
	return python.Options{
		Python: cfg.Workers.Python, FindPython: cfg.FindPython, PythonVersion: cfg.Workers.PythonVersion, Workers: cfg.Workers.Processes, Dir: cfg.Dir, Paths: cfg.Workers.PythonPath, Env: environment(cfg), Graphs: specs, Serde: serde,
		JobsPerWorker: max(1, cfg.Workers.JobsPerWorker), MemoryLimit: int64(cfg.Workers.Memory), MaxRuns: cfg.Workers.MaxRuns, LogBlocking: cfg.Mode == config.Dev,
	}, err
}

// serdeJSON spells checkpointer.serde as langgraph.json does.
func serdeJSON(c config.Serde) (json.RawMessage, error) {
	out := map[string]any{"pickle_fallback": c.PickleFallback}
	add := func(key string, m *config.Modules) {
		switch {
		case m == nil:
		case m.All:
			out[key] = true
		default:
			out[key] = m.List
		}
	}
	add("allowed_json_modules", c.AllowedJSONModules)
	add("allowed_msgpack_modules", c.AllowedMsgpackModules)
	return json.Marshal(out)
}

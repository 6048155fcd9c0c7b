package python

import (
	"encoding/json"
	"log/slog"
	"os"
	"runtime"
)

// Options say what workers are and what they load.
type Options struct {
	Python  string          // interpreter, with langgraph installed
	Workers int             // processes; < 1: number of cores
	Dir     string          // folder of the langgraph.json: working directory of the workers, first on their sys.path
	Paths   []string        // more folders for sys.path, such as local dependencies
	Env     []string        // complete environment of the workers; nil: this process's
	Graphs  map[string]Spec // by graph id
	Serde   json.RawMessage // checkpointer.serde of the langgraph.json; nil when there is none
	// JobsPerWorker is how many runs a worker is meant to do at once. It sizes the threads for synchronous nodes; it is no limit here:
	// whoever claims runs keeps it.
	JobsPerWorker int
	MemoryLimit   int64        // bytes of one worker; 0: none. Not enforced yet
	Logger        *slog.Logger // nil: slog.Default()
}

// Spec is one entry of `graphs` in a langgraph.json.
type Spec struct {
	Path string // "./graphs.py:graph" or "package.module:graph"
}

func (o Options) withDefaults() Options {
	if o.Workers < 1 {
		o.Workers = runtime.NumCPU()
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Python == "" {
		o.Python = "python3"
	}
	return o
}

// setup is what a worker reads from its environment when it starts.
type setup struct {
	Dir    string            `json:"dir"`
	Paths  []string          `json:"paths"`
	Graphs map[string]string `json:"graphs"`
	Serde  json.RawMessage   `json:"serde,omitempty"`
	Jobs   int               `json:"jobs"`
}

func (o Options) setup() string {
	s := setup{Dir: o.Dir, Paths: o.Paths, Graphs: make(map[string]string, len(o.Graphs)), Serde: o.Serde, Jobs: o.JobsPerWorker}
	if s.Paths == nil {
		s.Paths = []string{}
	}
	for id, spec := range o.Graphs {
		s.Graphs[id] = spec.Path
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic("python: setup of a worker: " + err.Error()) // Serde is not JSON: New has checked it
	}
	return string(text)
}

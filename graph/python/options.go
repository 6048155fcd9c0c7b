package python

import (
	"encoding/json"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/internal/child"
)

// Options configure the workers and what they load.
type Options struct {
	Python string // interpreter, with langgraph installed
	// FindPython looks for the interpreter again before a worker is started, as long as none has ever become ready. It must not block. An error leaves the
	// interpreter as it is. nil: Python stays.
	FindPython func() (string, error)
	// PythonVersion is the version that graphs ask for ("3.12"): another one is warned of once. "": any.
	PythonVersion string
	Workers       int             // processes; < 1: number of cores
	Dir           string          // folder of the langgraph.json: working directory of the workers, first on their sys.path
	Paths         []string        // more folders for sys.path, such as local dependencies
	Env           []string        // complete environment of the workers; nil: this process's
	Graphs        map[string]Spec // by graph id
	Serde         json.RawMessage // checkpointer.serde of the langgraph.json; nil when there is none
	// JobsPerWorker is how many runs a worker should execute at once. It sizes the threads for synchronous nodes; it is not a limit
	// here: the code that claims runs enforces it.
	JobsPerWorker int
	// MemoryLimit is how many bytes of memory (resident, without children) a worker may have; 0: any. A worker above it takes no new
	// runs and is stopped when its runs have ended, after a minute at most; at twice the limit it is stopped at once. Linux only.
	MemoryLimit int64
	// MaxRuns is how many runs a worker executes before it is replaced; 0: any number. It is reduced by up to a tenth, so that workers
	// are not replaced all at once.
	MaxRuns int
	Logger  *slog.Logger // nil: slog.Default()
	// LogBlocking logs code that blocks the event loop of a worker for more than a second as a warning with advice, else as a debug message.
	// Metrics count it either way.
	LogBlocking bool
	// Loaded is called once for each graph when the first worker has imported it, or failed to: err is then a *graph.Failure with the
	// traceback. It must not block. Reload does not call it. nil: no calls.
	Loaded func(name string, err error, took time.Duration)
	// Unstartable is called when the interpreter cannot run a worker at all. If it returns true the caller ends with the error of Never, and the failure is
	// not logged. It must not block. nil: it is logged.
	Unstartable func() bool
	// Elsewhere reports whether another server executes runs of a graph. Runs of graphs that cannot be used here then end with graph.ErrElsewhere instead of
	// the cause. It must not block. nil: there are no others.
	Elsewhere func(name string) bool
	// Registry registers metrics of the processes; nil: not exported.
	Registry prometheus.Registerer
}

// dirs returns the folders that Python looks into first for modules.
func (o *Options) dirs() []string { return append([]string{o.Dir}, o.Paths...) }

// Spec is one entry of `graphs` in a langgraph.json.
type Spec struct {
	Path string // "./graphs.py:graph" or "package.module:graph"
}

func (o Options) withDefaults() Options {
	if o.Workers < 1 {
		o.Workers = runtime.GOMAXPROCS(0)
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

// setup is the configuration that a worker reads from its environment at start.
type setup struct {
	Dir    string            `json:"dir"`
	Paths  []string          `json:"paths"`
	Graphs map[string]string `json:"graphs"`
	Skip   map[string]string `json:"skip,omitempty"` // graphs not to import, and why
	Serde  json.RawMessage   `json:"serde,omitempty"`
	Jobs   int               `json:"jobs"`
	Server *child.Address    `json:"server,omitempty"` // nil: on an inherited descriptor
}

func (o Options) setup() setup {
	s := setup{Dir: o.Dir, Paths: o.Paths, Graphs: make(map[string]string, len(o.Graphs)), Serde: o.Serde, Jobs: o.JobsPerWorker}
	if s.Paths == nil {
		s.Paths = []string{}
	}
	for id, spec := range o.Graphs {
		s.Graphs[id] = spec.Path
	}
	return s
}

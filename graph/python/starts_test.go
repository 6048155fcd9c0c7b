package python_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/graph/python"
)

// What keeps the worker's own code from starting ends its process, is logged once with the interpreter and what mends it, and ends runs with
// the last line of Python when starts have failed for Pool.patience.
func TestWorkersThatCannotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files     map[string]string // of packages that hide those of the interpreter
		why, mend string
		hangs     bool
	}{
		"no langgraph": {
			files: map[string]string{"langgraph.py": "raise ModuleNotFoundError(\"No module named 'langgraph'\")"},
			why:   "ModuleNotFoundError: No module named 'langgraph'", mend: "-m pip install langgraph",
		},
		"an old langgraph": {
			files: map[string]string{"langgraph/__init__.py": "", "langgraph/version.py": "__version__ = '0.2.76'"},
			why:   "graphs need langgraph " + python.MinLanggraph + " or later, and this is 0.2.76", mend: "-m pip install --upgrade langgraph",
		},
		"a broken langgraph": {
			files: map[string]string{"langgraph/__init__.py": "raise ZeroDivisionError('half installed')"},
			why:   "ZeroDivisionError: half installed", mend: "-m pip install --upgrade --force-reinstall langgraph",
		},
		"no ormsgpack": {
			files: map[string]string{"ormsgpack.py": "raise ModuleNotFoundError(\"No module named 'ormsgpack'\")"},
			why:   "No module named 'ormsgpack'", mend: "-m pip install langgraph",
		},
		"an exit": {
			files: map[string]string{"langgraph/__init__.py": "raise SystemExit('not today')"},
			why:   "SystemExit: not today", mend: "-m pip install",
		},
		"a thread that stays": {
			files: map[string]string{"langgraph/__init__.py": "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\nraise ImportError('with a thread')"},
			why:   "ImportError: with a thread", mend: "-m pip install",
		},
		"an import that hangs": {
			files: map[string]string{"langgraph/__init__.py": "import time\ntime.sleep(3600)"},
			why:   "it was not ready after", hangs: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range c.files {
				at := filepath.Join(dir, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
				require.NoError(t, os.WriteFile(at, []byte(text+"\n"), 0o600))
			}
			o := harmful(t)
			o.Env = append(o.Env, "PYTHONPATH="+dir)
			o.Workers = 2
			log := &lines{}
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
			const patience = 5 * time.Second
			began := time.Now()
			p := run(t, o, func(p *python.Pool) {
				p.SetPatience(patience)
				if c.hangs {
					p.SetStartWithin(patience)
				}
			})
			_, err := collect(t, p.Graph("echo"), invocation(newMemory(), `{}`, "updates"))
			var failure *graph.Failure
			require.ErrorAs(t, err, &failure)
			require.Equal(t, "WorkerStartError", failure.Type)
			require.Contains(t, failure.Message, c.why)
			require.GreaterOrEqual(t, time.Since(began), patience, "the cause might have passed")
			text := log.String()
			require.Equal(t, 1, strings.Count(text, "no worker starts"), text)
			require.Contains(t, text, o.Python)
			require.Contains(t, text, c.mend)
		})
	}
}

// What mends a virtual environment without pip begins with pip.
func TestFix(t *testing.T) {
	t.Parallel()
	venv := t.TempDir()
	interpreter := filepath.Join(venv, "bin", "python")
	require.NoError(t, os.WriteFile(filepath.Join(venv, "pyvenv.cfg"), nil, 0o600))
	install := interpreter + " -m pip install langgraph"
	require.Equal(t, interpreter+" -m ensurepip && "+install, python.Fix(interpreter, "No module named 'langgraph'"))
	require.NoError(t, os.MkdirAll(filepath.Join(venv, "lib", "python3.12", "site-packages", "pip"), 0o700))
	require.Equal(t, install, python.Fix(interpreter, "No module named 'langgraph'"))
	require.Equal(t, "/usr/bin/python3 -m pip install langgraph", python.Fix("/usr/bin/python3", "No module named 'langgraph'"))
}

// A message that the worker cannot handle ends it: it would be silent, hold its place, and its runs would wait.
func TestWorkerCodeThatFails(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"message", "write", "done"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			o := harmful(t)
			file := filepath.Join(t.TempDir(), "spoil.py")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, spoil, how), 0o600))
			o.Graphs["spoil"] = python.Spec{Path: file + ":graph"}
			log := &lines{}
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
			p := start(t, o)
			pid := p.Pids()[0]
			_, err := collect(t, p.Graph("spoil"), invocation(newMemory(), `{}`, "updates"))
			if how != "message" { // the next one may come when the run has ended
				require.ErrorIs(t, err, graph.ErrWorkerDied)
			}
			await(t, "the traceback", func() bool { return strings.Contains(log.String(), "ZeroDivisionError") })
			await(t, "the end of the worker", func() bool { return len(p.Pids()) == 0 || p.Pids()[0] != pid })
			well(t, p)
		})
	}
}

// spoil is a graph that breaks the worker's code while it runs.
const spoil = `
import types
import graphs
from understudy_worker import wire

def fail(*_):
    1 / 0

def graph(config):
    how = %q
    if how == "message":
        wire.ormsgpack = types.SimpleNamespace(unpackb=fail)
    elif how == "write":
        wire.Wire.flush = fail
    else:
        wire.Wire.send = fail
    return graphs.echo
`

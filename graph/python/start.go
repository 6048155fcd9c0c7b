package python

import (
	"path/filepath"
	"strings"
	"time"
)

// MinLanggraph is the oldest langgraph tested with workers. The worker refuses older ones (MINIMUM in __main__.py).
const MinLanggraph = "0.6"

// tellAgain is the interval for logging again why workers do not start, while the reason is the same.
const tellAgain = time.Minute

// tellFailure logs why a worker did not start, with advice. The caller holds p.mu.
func (p *Pool) tellFailure(w *worker, name string, late bool) {
	why := lastLine(w.startErr.Error())
	now := time.Now()
	if why == p.told && now.Sub(p.toldAt) < tellAgain {
		return
	}
	p.told, p.toldAt = why, now
	python := w.gen.opts.Python
	attrs := []any{"reason", why, "interpreter", python}
	switch {
	case name != "":
		attrs = append(attrs, "graph", name)
	case w.pid == 0:
		attrs = append(attrs, "fix", "name another interpreter with --python")
	case !late:
		attrs = append(attrs, "fix", Fix(python, why))
	}
	p.opts.Logger.Error("no worker starts: runs wait, and end with WorkerStartError when none has started for a minute; understudy doctor tells more", attrs...)
}

// Fix returns the command that most likely repairs an interpreter in which the worker fails with why before it imports a
// graph.
func Fix(python, why string) string {
	install := "install "
	switch {
	case strings.Contains(why, "No module named"):
	case strings.Contains(why, "or later, and this is"):
		install += "--upgrade "
	default: // it exists but is broken
		install += "--upgrade --force-reinstall "
	}
	fix := python + " -m pip " + install + "langgraph"
	venv := filepath.Dir(filepath.Dir(python))
	if inside, _ := filepath.Glob(filepath.Join(venv, "pyvenv.cfg")); len(inside) == 0 {
		return fix
	}
	if pip, _ := filepath.Glob(filepath.Join(venv, "lib*", "python*", "site-packages", "pip")); len(pip) == 0 {
		fix = python + " -m ensurepip && " + fix // a virtual environment may lack pip
	}
	return fix
}

package python

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// MinLanggraph is the oldest langgraph tested with workers. The worker refuses older ones (MINIMUM in __main__.py).
const MinLanggraph = "0.6"

// tellAgain is the interval for logging again why workers do not start, while the reason is the same.
const tellAgain = time.Minute

// StartError is why no worker starts, as an operator reads it.
type StartError struct {
	Reason      string // one line
	Interpreter string
	Graph       string // whose import ended the worker; "" none
	Fix         string // a command or a sentence; "" unknown
	// Hopeless: the interpreter cannot run a worker, so that it is of no use to wait.
	Hopeless bool
}

func (e *StartError) Error() string {
	text := "no worker starts\n  reason       " + e.Reason + "\n  interpreter  " + e.Interpreter
	if e.Graph != "" {
		text += "\n  graph        " + e.Graph
	}
	if e.Fix != "" {
		text += "\n  fix          " + e.Fix
	}
	return text
}

// otherPython is the advice for an interpreter that is none.
const otherPython = "name the interpreter that has the packages of the graphs with --python, such as .venv/bin/python"

// tellFailure logs why a worker did not start, with advice. The caller holds p.mu.
func (p *Pool) tellFailure(e *StartError) {
	now := time.Now()
	if e.Reason == p.told && now.Sub(p.toldAt) < tellAgain || e.Hopeless && p.opts.Unstartable != nil && p.opts.Unstartable() {
		return
	}
	p.told, p.toldAt = e.Reason, now
	attrs := []any{"reason", e.Reason, "interpreter", e.Interpreter}
	if e.Graph != "" {
		attrs = append(attrs, "graph", e.Graph)
	}
	if e.Fix != "" {
		attrs = append(attrs, "fix", e.Fix)
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

// probeTime is how long an interpreter may take to compute a sum.
const probeTime = 10 * time.Second

// notPython returns what shows that a program runs no Python; nil when it does, or nothing is known.
func notPython(ctx context.Context, opts *Options) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, opts.Python, args...)
		cmd.Dir, cmd.Env, cmd.WaitDelay = opts.Dir, opts.Env, time.Second
		out, err := cmd.Output()
		if err != nil && cmd.ProcessState == nil {
			return "", &exec.Error{Name: opts.Python, Err: err}
		}
		return string(out), err
	}
	out, err := run("-c", `print("understudy", 1 + 1)`)
	var unstarted *exec.Error
	switch {
	case strings.Contains(out, "understudy 2"), ctx.Err() != nil:
		return nil
	case errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EACCES):
		return errors.New("it cannot be executed")
	case errors.As(err, &unstarted):
		return nil // it may exist again
	case err == nil:
		return errors.New("it ignores the Python code that it is given")
	}
	// An interpreter that lacks something fails too, and may work later. What is none often says what it is.
	if version, _ := run("--version"); version != "" && ctx.Err() == nil && !strings.Contains(version, "Python") {
		return fmt.Errorf("its version is %q", lastLine(strings.SplitN(version, "\n", 2)[0]))
	}
	return nil
}

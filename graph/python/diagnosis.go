package python

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
)

// diagnosis is why a worker ended before it was ready.
type diagnosis struct {
	err   error       // for runs
	cause *StartError // for operators
	exit  error       // how its process ended
	wrote string      // the end of its stderr

	ended   bool // by this server
	late    bool // and that before it imported a graph, because it exceeded its time
	short   bool // the machine lacked something: memory, processes, files
	outside bool // another program killed it
}

// diagnose explains the death of a worker that was never ready, from what its process returned; nil when the worker is not to blame.
func (w *worker) diagnose(ctx context.Context, err error) *diagnosis {
	name, verdict, blameless := w.epitaph()
	if blameless {
		return nil
	}
	opts := &w.gen.opts
	d := &diagnosis{wrote: w.tail.String(), ended: verdict != ""}
	if d.wrote == "" {
		d.wrote = "it wrote nothing to stderr"
	}
	d.late = d.ended && name == ""
	d.outside = !d.ended && killedFromOutside(err)
	var lacks, remedy string
	if name == "" && !d.ended {
		lacks, remedy = shortage(err, d.wrote, opts.Env)
		d.short = lacks != ""
	}
	var hopeless error
	if !d.ended && !d.short && !w.hasSpoken() {
		hopeless = w.gen.probe(ctx)
	}
	switch d.exit = err; {
	case d.ended:
		d.exit = errors.New(verdict)
	case err == nil:
		d.exit = errors.New("it left")
	}
	var old *outdated
	switch {
	case errors.As(hopeless, &old):
		d.err = fmt.Errorf("%s: %w", opts.Python, old)
	case hopeless != nil:
		d.err = fmt.Errorf("%s is not a Python interpreter: %w", opts.Python, hopeless)
	case w.pid == 0 && !d.short:
		d.err = fmt.Errorf("no worker can be started: %w", d.exit)
	case d.short && w.pid == 0:
		d.err = fmt.Errorf("%w (%s)", d.exit, lacks)
	case d.short:
		d.err = fmt.Errorf("a worker died while it started (%w): %s (%s)", d.exit, lastLine(d.wrote), lacks)
	case d.late: // its last output may not be the cause
		d.err = fmt.Errorf("a worker had to be ended before it loaded a graph: %w (it wrote: %s)", d.exit, lastLine(d.wrote))
	default:
		d.err = fmt.Errorf("a worker died while it loaded the graphs (%w): %s", d.exit, d.wrote)
	}
	d.cause = &StartError{Reason: lastLine(d.err.Error()), Interpreter: opts.Python, Graph: name, Hopeless: hopeless != nil || strings.Contains(d.wrote, tooOld)}
	fatal, variables := "", ""
	if name == "" && !d.ended && !d.short {
		fatal, variables = unbegun(d.wrote, opts.Env)
	}
	shim := noVersion.FindString(d.wrote)
	switch {
	case shim != "" && !d.ended:
		d.cause.Reason, d.cause.Hopeless = shim, true
		d.cause.Fix = "select a version of Python that is installed, such as with pyenv local, or name the interpreter of the project with --python, such as .venv/bin/python"
	case fatal != "":
		d.cause.Reason, d.cause.Fix = fatal, variables
	case d.short:
		d.cause.Fix = remedy
	case old != nil:
		d.cause.Fix = NewerPython
	case w.pid == 0 && errors.Is(err, fs.ErrNotExist):
		d.cause.Fix = opts.Python + " is not there any more: create it again (python3 -m venv, then install the requirements), or name another interpreter with --python"
	case hopeless != nil || w.pid == 0:
		d.cause.Fix = otherPython
	case name != "" && !d.ended:
		d.cause.Fix = importAlone(opts, name)
	case name == "" && !d.late:
		d.cause.Fix = Fix(d.cause.Interpreter, d.wrote, opts.dirs()...)
	}
	return d
}

// noVersion is what pyenv and asdf say in place of Python when the version that is selected has no such program. More lines follow.
var noVersion = regexp.MustCompile(`(?m)^(?:pyenv: \S+: command not found|pyenv: version .* is not installed.*|No version is set for command .*)$`)

// killedFromOutside reports signals that an import does not send to itself by accident.
func killedFromOutside(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGTERM)
}

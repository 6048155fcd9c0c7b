package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"understudy/internal/filelimit"
	"understudy/internal/logctx"
	"understudy/internal/names"
	"understudy/internal/shell"
)

// MinLanggraph is the oldest langgraph tested with workers. The worker refuses older ones (MINIMUM in __main__.py).
const MinLanggraph = "0.6"

// logAgain is the interval for logging again why workers do not start, while the reason is the same.
const logAgain = time.Minute

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

// NewerPython is the advice for an interpreter that is too old.
const NewerPython = "create a virtual environment with Python 3.10 or later, or name one with --python"

// tooOld is how boot.py begins to say that an interpreter is too old.
const tooOld = "langgraph needs Python 3.10 or later"

// otherPython is the advice for an interpreter that is none.
const otherPython = "name the interpreter that has the packages of the graphs with --python, such as .venv/bin/python"

// logFailure logs why a worker did not start, with advice. The caller holds p.mu.
func (p *Pool) logFailure(e *StartError) {
	now := time.Now()
	if e.Reason == p.loggedReason && now.Sub(p.loggedAt) < logAgain || e.Hopeless && p.opts.Unstartable != nil && p.opts.Unstartable() {
		return
	}
	p.loggedReason, p.loggedAt = e.Reason, now
	attrs := []any{"reason", e.Reason, "interpreter", e.Interpreter}
	if e.Graph != "" {
		attrs = append(attrs, "graph", e.Graph)
	}
	if e.Fix != "" {
		attrs = append(attrs, "fix", e.Fix)
	}
	p.opts.Logger.Error("no worker starts: runs wait, and end with WorkerStartError when none has started for a minute; understudy doctor shows more", attrs...)
}

// findPython looks for the interpreter again when no worker has started with the one so far: the environment that the log advises may exist by now.
func (p *Pool) findPython() {
	p.mu.Lock()
	old, failing := p.gen, p.failures > 0 && !p.gen.imported
	p.mu.Unlock()
	if !failing || old.opts.FindPython == nil {
		return
	}
	found, err := old.opts.FindPython()
	if err != nil || found == old.opts.Python {
		return // an environment that is being created has no interpreter yet
	}
	opts := old.opts
	opts.Python = found
	next := newGeneration(opts)
	p.mu.Lock()
	changed := p.gen == old && !old.imported
	var others []*worker // that start with the interpreter before
	if changed {
		next.first, next.shown = old.first, old.shown
		p.gen, p.failures, p.loggedReason = next, 0, ""
		for w := range p.workers {
			if w.gen == old {
				others = append(others, w)
			}
		}
	}
	p.mu.Unlock()
	if !changed {
		return
	}
	p.opts.Logger.Info("another interpreter was found; workers are started with it", "interpreter", found, "before", old.opts.Python)
	for _, w := range others {
		w.dismiss(p.killGrace)
	}
}

// slowToStart logs once that an interpreter has not begun to run the worker's code.
func (p *Pool) slowToStart(w *worker, took time.Duration) {
	p.mu.Lock()
	again := w.gen.hung
	w.gen.hung = true
	p.mu.Unlock()
	if !again {
		p.opts.Logger.Warn("the interpreter has started, but does not run the worker's code yet; runs wait", "interpreter", w.gen.opts.Python, "pid", w.pid, logctx.Took(took),
			"killed_after", p.startWithin.String(), "fix", "if this persists, try the interpreter ("+shell.Quote(w.gen.opts.Python)+" -c 'print(1)'), or name another one with --python")
	}
}

// Fix returns what most likely repairs an interpreter in which the worker fails with why, the last of what it wrote, before it imports a graph, with the
// folders that it looks into first.
func Fix(python, why string, dirs ...string) string {
	install, what := "install ", "langgraph"
	if strings.Contains(why, tooOld) {
		return NewerPython
	}
	why = why[max(0, strings.LastIndex(why, "Traceback (most recent call last)")):] // exceptions before were handled
	if hidden := cmp.Or(hidesStandard(why, dirs), hides(python, lastException(why), dirs)); hidden != "" {
		return hidden
	}
	switch {
	case strings.Contains(why, "No module named"):
		what = requirements(dirs)
	case strings.Contains(why, "or later, and this is"):
		install += "--upgrade "
	case isDamaged(why):
		install += "--upgrade --force-reinstall "
	default:
		return "see the last lines that Python wrote (understudy doctor shows them); " + shell.Quote(python) + " -c 'import langgraph.graph' in the folder of langgraph.json may show the same"
	}
	if !isEnvironment(python) && strings.Contains(why, "No module named 'langgraph") {
		return inVenv(python) + " install " + what + " (where --python names another, name .venv/bin/python)" // it is no environment of graphs yet
	}
	return pip(python) + " " + install + what
}

// ofPackage finds installed packages, and those that workers import, in paths.
var ofPackage = regexp.MustCompile(`[/\\](?:(?:site|dist)-packages|langgraph|langchain\w*|ormsgpack|orjson)[/\\.]`)

// isDamaged reports whether the exception of a traceback comes from an installed package, which lacks something then. Without frames it is the exception of doctor's
// import of such a package.
func isDamaged(traceback string) bool {
	frames := fileOf.FindAllStringSubmatch(traceback, -1)
	if len(frames) == 0 {
		return strings.Contains(traceback, "ImportError: ")
	}
	return ofPackage.MatchString(frames[len(frames)-1][1])
}

// fatal is how Python says that it cannot begin, and fatalCause the exception that it names with that.
var (
	fatal      = regexp.MustCompile(`(?m)^Fatal Python error: (.+)$`)
	fatalCause = regexp.MustCompile(`(?m)^(?:\w+Error: .+)$`)
)

// unbegun returns why Python could not begin, by what it wrote, and what to do: a variable of its environment is wrong; "" when it wrote no such thing.
func unbegun(wrote string, env []string) (why, fix string) {
	m := fatal.FindStringSubmatch(wrote)
	if m == nil {
		return "", ""
	}
	why = m[0]
	if cause := fatalCause.FindString(wrote[strings.Index(wrote, m[0])+len(m[0]):]); cause != "" {
		why += ": " + cause
	}
	var set []string
	for _, pair := range env {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "PYTHON") && value != "" && !slices.Contains(harmless, name) {
			set = append(set, name)
		}
	}
	guess := ""
	switch {
	case strings.Contains(why, "sys_streams"):
		guess = "PYTHONIOENCODING"
	case strings.Contains(why, "fs_encoding"), strings.Contains(why, "encodings"), strings.Contains(why, "init_import"):
		guess = "PYTHONHOME"
	}
	for _, name := range set {
		if strings.Contains(why, name) || name == guess {
			set = []string{name}
			break
		}
	}
	if len(set) == 0 {
		return why, "the installation of Python is damaged: name another interpreter with --python, or create the virtual environment again"
	}
	slices.Sort(set)
	return why, "correct or remove " + names.Some(set, maxNodes) + " in the file that env of langgraph.json names, such as .env, or in the environment of the server"
}

// harmless are variables of Python that do not keep it from beginning.
var harmless = []string{"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "PYTHONWARNINGS", "PYTHONPYCACHEPREFIX", "PYTHONOPTIMIZE", "PYTHONBREAKPOINT", "PYTHONASYNCIODEBUG"}

// requirements returns what pip is to install for the project in one of dirs: what its file says, if that has langgraph.
func requirements(dirs []string) string {
	for _, dir := range dirs {
		name := filepath.Join(dir, "requirements.txt")
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "langgraph") {
			return "-r " + shell.Quote(name)
		}
	}
	return "langgraph"
}

// importAlone returns the command that imports the code of a graph whose import ends its process, with the place where a signal ends it.
func importAlone(o *Options, name string) string {
	module := o.Graphs[name].Path
	module = module[:max(0, strings.LastIndexByte(module, ':'))] // not the first, which may be that of a drive
	if !strings.HasSuffix(module, ".py") {
		module = "-c 'import " + module + "'"
	} else {
		module = shell.Quote(module)
	}
	return "look for os._exit, and import it alone to see where it ends: " + shell.Quote(o.Python) + " -X faulthandler " + module
}

// pip returns the command of pip for an interpreter, as a shell reads it. For an interpreter of the operating system, whose packages pip refuses to change, it
// creates a virtual environment first. A virtual environment may lack pip, as those of uv do.
func pip(python string) string {
	if managed, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", "python3*", "EXTERNALLY-MANAGED")); len(managed) > 0 {
		return inVenv(python)
	}
	if isFile(filepath.Join(filepath.Dir(filepath.Dir(python)), "pyvenv.cfg")) && !installed(python, "pip") {
		return shell.Quote(python) + " -m ensurepip && " + shell.Quote(python) + " -m pip"
	}
	return shell.Quote(python) + " -m pip"
}

// inVenv returns the command that creates a virtual environment, and the one of pip in it.
func inVenv(python string) string {
	return "next to langgraph.json: " + shell.Quote(python) + " -m venv .venv && .venv/bin/python -m pip"
}

// shortage returns what a worker lacked to start, and what to do about it; "" for other errors. A process that has started says it in the last line that it
// wrote.
func shortage(err error, wrote string, env []string) (why, fix string) {
	if why, fix := filelimit.Exhausted(err); why != "" {
		return why, fix
	}
	if errors.Is(err, syscall.E2BIG) {
		return tooLarge(env)
	}
	last := lastLine(wrote)
	has := func(signs ...string) bool {
		return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(last, sign) })
	}
	switch {
	case has("[Errno 23]", "[Errno 24]", "Too many open files", "object file: Error 23", "object file: Error 24"): // dlopen may lack the text
		return "the worker has as many open files as it may", filelimit.Fix
	case errors.Is(err, syscall.EAGAIN), has("can't start new thread"):
		return "there are as many processes and threads as there may be", "raise the limit on processes: ulimit -u, TasksMax= of a systemd unit, or the limit of the container (pids)"
	case errors.Is(err, syscall.ENOMEM), has("[Errno 12]", "Cannot allocate memory", "MemoryError"):
		return "there is too little memory for another process", "give the machine or container more memory, or start fewer workers (--workers)"
	}
	return "", ""
}

// tooLarge returns why the variables of a worker cannot be passed to it, and what to do.
func tooLarge(env []string) (why, fix string) {
	largest, all := "", 0
	for _, pair := range env {
		if all += len(pair) + 1; len(pair) > len(largest) {
			largest = pair
		}
	}
	name, value, _ := strings.Cut(largest, "=")
	return fmt.Sprintf("the %d variables of a worker have %d bytes, %s the most with %d; that is more than the system passes to a program", len(env), all, name, len(value)),
		"move large values out of env of langgraph.json and the environment, into files that the graphs read"
}

const (
	// probeTime is how long an interpreter may take to compute a sum, and maxProbe how much it may print.
	probeTime = 10 * time.Second
	maxProbe  = 64 << 10
)

// head keeps the first maxProbe bytes of what is written, and calls full when there are more.
type head struct {
	text []byte
	more bool
	full func()
}

func (h *head) Write(b []byte) (int, error) {
	kept := b[:min(len(b), maxProbe-len(h.text))]
	h.text = append(h.text, kept...)
	if len(kept) < len(b) {
		h.more = true
		h.full()
		return len(kept), errTooLong
	}
	return len(b), nil
}

var errTooLong = errors.New("it prints too much")

// ran finds the version that the probe of notPython prints.
var ran = regexp.MustCompile(`understudy (\d+)\.\d+`)

// outdated is the error of an interpreter that cannot read the worker's code, and so not say itself that it is too old.
type outdated struct{ probed string }

func (e *outdated) Error() string {
	return tooOld + ", and this is " + strings.TrimPrefix(e.probed, "understudy ")
}

// notPython returns what shows that a program runs no Python, or one that is too old for the worker's code; nil when it does, or nothing is known.
func notPython(ctx context.Context, opts *Options) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd := exec.CommandContext(ctx, opts.Python, args...)
		out := head{full: cancel}
		cmd.Dir, cmd.Env, cmd.WaitDelay, cmd.Stdout = opts.Dir, opts.Env, time.Second, &out
		err := cmd.Run()
		switch {
		case err != nil && cmd.ProcessState == nil:
			return "", &exec.Error{Name: opts.Python, Err: err}
		case out.more:
			err = errTooLong
		}
		return string(out.text), err
	}
	out, err := run("-c", `import sys; print("understudy %d.%d" % sys.version_info[:2])`) // Python 2 runs it too
	var unstarted *exec.Error
	version := ran.FindStringSubmatch(out)
	switch {
	case version != nil && version[1] == "2":
		return &outdated{version[0]}
	case version != nil, ctx.Err() != nil:
		return nil
	case errors.Is(err, errTooLong):
		return fmt.Errorf("it prints more than %d KiB when it is given a line of Python code", maxProbe>>10)
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

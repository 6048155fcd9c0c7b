package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/app/advice"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
	"understudy/internal/filelimit"
	"understudy/internal/finding"
	"understudy/internal/flock"
	"understudy/internal/loop"
	"understudy/internal/owner"
	"understudy/internal/shell"
	"understudy/storage/sqlite"
)

// Verdict says how a check ended.
type Verdict = finding.Verdict

// Finding is what one check found.
type Finding = finding.Finding

// Verdicts. Only a problem keeps the server from working.
const (
	Fine    = finding.Fine
	Warning = finding.Warning
	Problem = finding.Problem
)

// Examination says what Examine looks at.
type Examination struct {
	Source  config.Source
	Environ []string      // of the process; nil: os.Environ
	Import  time.Duration // what importing one graph may take; 0: a minute
	// Loaded returns the Python graphs of the server that asks, as Pool.Imports does. What would disturb it, or is its own, is then left out:
	// the port, the database in its data folder, and what is imported or bundled in processes of their own. nil: for a server that is to be started.
	Loaded func() map[string]error
	// Serves reports whether the server that asks has a graph of another kind. nil if Loaded is.
	Serves func(graph string) bool
	// DeerFlow loads a DeerFlow installation without changing it, and logs what it finds; nil: such an installation is not checked.
	DeerFlow  func(ctx context.Context, cfg *config.Config, log *slog.Logger)
	Models    bool          // call each model of the declared agents once, which costs what such a call costs
	ModelTime time.Duration // how long a model may take to answer; 0: two minutes
	Found     func(Finding) // called with each finding at once, because importing graphs takes long; may be nil
	Doing     func(string)  // called before each call of a model, and by other checks once they take long: with what is waited for, and how long at most; may be nil
	Still     func(string)  // called every three seconds after that, with what continues and for how long; may be nil
}

// doctor collects findings.
type doctor struct {
	Examination
	mu       sync.Mutex // guards findings, and orders calls of Found and Doing: graphs are reported while a check waits
	findings []Finding

	refused, begins bool // the database is encrypted otherwise than configured; or not yet
}

func (d *doctor) say(check string, v Verdict, text, fix string, details ...string) {
	f := Finding{Check: check, Verdict: v, Text: text, Fix: fix, Details: details}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.findings = append(d.findings, f)
	if d.Found != nil {
		d.Found(f)
	}
}

// Examine checks all that a server needs before it can work: configuration, environment, data folder or database, Redis, port, Python and graphs,
// what is quick first. It changes nothing, and may be used while a server runs. Configuration with mistakes ends it early: the rest depends on it.
func Examine(ctx context.Context, e Examination) []Finding {
	d := &doctor{Examination: e}
	if d.Environ == nil {
		d.Environ = os.Environ()
	}
	if d.Import == 0 {
		d.Import = time.Minute
	}
	d.environment()
	cfg := d.config()
	d.descriptors(cfg)
	if cfg == nil {
		return d.findings
	}
	d.data(ctx, cfg)
	d.redis(ctx, cfg)
	if d.Loaded == nil {
		d.port(cfg)
	}
	d.certificate(cfg)
	d.encryption(cfg)
	d.tokens(ctx, cfg)
	d.signIn(ctx, cfg)
	if ok := d.python(ctx, cfg); ok || cfg.Workers.Python == "" {
		d.graphs(ctx, cfg)
		if ok && d.Loaded == nil {
			d.parts(ctx, cfg)
		}
	}
	d.deerflow(ctx, cfg)
	d.index(ctx, cfg)
	if d.Loaded == nil {
		d.components(ctx, cfg)
	}
	if d.Models {
		d.models(ctx, cfg)
	}
	return d.findings
}

// How long a check may take without a word, and continue without another.
const (
	quietFor   = time.Second
	stillEvery = 3 * time.Second
)

// slow reports what a check does, and for how long at most, once it has taken long, and later that it still does. The function that it returns ends that.
func (d *doctor) slow(what string, most time.Duration) (done func()) {
	return d.slowly(what, most, func() string { return "" })
}

// slowly is slow of a check of several things; left returns those that are not done.
func (d *doctor) slowly(what string, most time.Duration, left func() string) (done func()) {
	began, again := time.Now(), false
	return loop.Repeat(quietFor, stillEvery, func() {
		if !again {
			again = true
			d.doing(what, most)
			return
		}
		d.still("still " + strings.TrimSuffix(what, ", each") + left() + ", for " + time.Since(began).Round(time.Second).String())
	})
}

// still reports what continues.
func (d *doctor) still(text string) {
	if d.Still == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Still(text)
}

// doing reports what takes long.
func (d *doctor) doing(what string, most time.Duration) {
	if d.Doing == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Doing(what + ", for at most " + most.String())
}

// environment looks for unknown variables.
func (d *doctor) environment() {
	names := make([]string, 0, len(d.Environ))
	for _, pair := range d.Environ {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	unknown, good := config.UnknownVariables(names)
	for _, u := range unknown {
		fix := "remove it; `understudy serve --help` lists the variables"
		if u.Instead != "" {
			fix = "write " + u.Instead
		}
		d.say("environment", Problem, "unknown variable "+u.Name, fix)
	}
	if good > 0 {
		d.say("environment", Fine, plural(good, "variable")+" of this program, each known", "")
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// config returns nil if the configuration has mistakes.
func (d *doctor) config() *config.Config {
	cfg, warnings, err := config.Load(d.Source)
	for _, w := range warnings {
		d.say("config", Warning, w.String(), "")
	}
	var mistakes config.Mistakes
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes {
			d.say("config", Problem, m.String(), "")
		}
		d.say("config", Warning, "graphs, data folder, database, Redis and port were not checked", "fix the configuration and run doctor again")
		return nil
	case err != nil:
		d.say("config", Problem, err.Error(), "")
		return nil
	}
	for _, w := range cfg.WarnOfVariables(nil) { // of the file's env
		d.say("config", Warning, w.String(), "")
	}
	if cfg.File != "" { // DeerFlow needs none
		d.say("config", Fine, fmt.Sprintf("%s names %s", cfg.File, plural(len(cfg.Graphs), "graph")), "")
	}
	return cfg
}

// bounded keeps the beginning of what a program writes, and breaks its pipe at more than any interpreter has to say.
type bounded struct{ text strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > 1<<20 {
		return 0, errors.New("it writes without end")
	}
	return b.text.Write(p)
}

// versions is what the interpreter says of itself.
type versions struct {
	Python   string            `json:"python"`
	Packages map[string]string `json:"packages"`
	Errors   map[string]string `json:"errors"`
}

// A shell, which would take import for one of its commands, stops at the first line. An interpreter that is too old, also Python 2, says its version alone.
const askVersions = `(lambda: None)()
import importlib, json, sys
out = {"python": "%d.%d.%d" % sys.version_info[:3], "packages": {}, "errors": {}}
for module, package in () if sys.version_info < (3, 10) else (("langgraph.graph", "langgraph"), ("langgraph.checkpoint.base", "langgraph-checkpoint"), ("langchain_core.messages", "langchain-core"), ("ormsgpack", "ormsgpack"), ("orjson", "orjson")):
    try:
        import importlib.metadata
        importlib.import_module(module)
        out["packages"][package] = importlib.metadata.version(package)
    except BaseException as e:
        out["errors"][package] = "%s: %s" % (type(e).__name__, e)
print("\n" + json.dumps(out))
`

// python reports whether graphs can be imported at all.
func (d *doctor) python(ctx context.Context, cfg *config.Config) bool {
	if cfg.Workers.Python == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d.Import)
	defer cancel()
	// On standard input the program is not repeated in the error of what is no interpreter.
	cmd := exec.CommandContext(ctx, cfg.Workers.Python, "-")
	cmd.Dir, cmd.WaitDelay = cfg.Dir, time.Second
	var stdout, stderr bounded
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(askVersions), &stdout, &stderr
	done := d.slow("importing langgraph into "+cfg.Workers.Python, d.Import)
	err := cmd.Run()
	done()
	lines := strings.Split(strings.TrimSpace(stdout.text.String()), "\n")
	var v versions
	if err == nil && json.Unmarshal([]byte(lines[len(lines)-1]), &v) != nil {
		err = errors.New("it ignores the Python code that it is given")
	}
	if err != nil && ctx.Err() != nil && stdout.text.Len() == 0 {
		d.say("python", Problem, fmt.Sprintf("%s did not import langgraph within %s", cfg.Workers.Python, d.Import),
			"run doctor again when the machine is less busy; if that is the same, see where "+shell.Quote(cfg.Workers.Python)+" -X importtime -c 'import langgraph.graph' waits")
		return false
	}
	if err != nil {
		details := python.Excerpt(stderr.text.String(), 5, nil)
		for i, line := range details {
			details[i] = line[:min(len(line), 200)]
		}
		d.say("python", Problem, fmt.Sprintf("%s does not run Python: %v", cfg.Workers.Python, err),
			"name another interpreter with "+cfg.Where("python")+", or recreate the virtual environment", details...)
		return false
	}
	ok := true
	var major, minor int
	if _, err := fmt.Sscanf(v.Python, "%d.%d", &major, &minor); err != nil || major != 3 || minor < 10 {
		d.say("python", Problem, fmt.Sprintf("%s is Python %s, and langgraph needs 3.10 or later", cfg.Workers.Python, v.Python), python.NewerPython)
		return false // what it lacks does not matter
	} else if want := cfg.Workers.PythonVersion; want != "" && !strings.HasPrefix(v.Python, want+".") {
		d.say("python", Warning, fmt.Sprintf("%s is Python %s, and python_version asks for %s", cfg.Workers.Python, v.Python, want), "use that version here too, or change python_version")
	}
	if names := slices.Sorted(maps.Keys(v.Errors)); len(names) > 0 {
		// One command fixes all, because langgraph depends on the others.
		first, details := "langgraph", []string(nil)
		if v.Errors[first] == "" {
			first = names[0]
			for _, name := range names[1:] {
				details = append(details, fmt.Sprintf("%s: %s", name, v.Errors[name]))
			}
		}
		d.say("python", Problem, fmt.Sprintf("%s cannot be imported: %s", first, v.Errors[first]), python.Fix(cfg.Workers.Python, v.Errors[first], cfg.CodeDirs()...), details...)
		ok = false
	}
	if have := v.Packages["langgraph"]; ok && !recent(have, python.MinLanggraph) {
		d.say("python", Problem, fmt.Sprintf("%s has langgraph %s, and graphs need %s or later", cfg.Workers.Python, have, python.MinLanggraph), python.Fix(cfg.Workers.Python, "or later, and this is "+have))
		ok = false
	}
	if ok {
		text := fmt.Sprintf("%s, Python %s", cfg.Workers.Python, v.Python)
		for _, name := range slices.Sorted(maps.Keys(v.Packages)) {
			text += ", " + name + " " + v.Packages[name]
		}
		d.say("python", Fine, text, "")
	}
	return ok
}

// recent reports whether a version is not below another, by their first two numbers. What is no version is taken for recent.
func recent(have, least string) bool {
	var a, b, c, d int
	if n, _ := fmt.Sscanf(have, "%d.%d", &a, &b); n != 2 {
		return true
	}
	_, _ = fmt.Sscanf(least, "%d.%d", &c, &d)
	return a > c || a == c && b >= d
}

// graphs imports the graphs as a server does, and builds each.
func (d *doctor) graphs(ctx context.Context, cfg *config.Config) {
	opts, err := graphs.PythonOptions(cfg)
	if err != nil {
		d.say("graph", Problem, err.Error(), "")
		return
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	for _, g := range cfg.Graphs {
		if d.Serves != nil && !g.IsPython() && !d.Serves(g.ID) {
			d.missing(cfg, g.ID)
			continue
		}
		if g.Remote != nil {
			if u, err := url.Parse(g.Remote.URL); err == nil { // as the configuration has checked
				d.say("graph", Fine, fmt.Sprintf("%s is served by %s (not checked)", g.ID, u.Redacted()), "")
			}
		}
		if g.Agent != nil {
			d.agent(cfg, g, opts.Logger)
		}
	}
	if len(opts.Graphs) == 0 {
		return
	}
	if d.Loaded != nil {
		d.loaded(cfg)
		return
	}
	waiting := &unfinished{}
	for _, g := range cfg.Graphs {
		if g.IsPython() {
			waiting.names = append(waiting.names, g.ID)
		}
	}
	slices.Sort(waiting.names) // the order in which the worker imports them
	done := d.slowly("importing the graphs, each", d.Import, waiting.text)
	reasons := map[string]string{}
	err = python.Check(ctx, opts, d.Import, python.Checked{
		Imported: func(name string, err error, took time.Duration) {
			waiting.remove(name)
			if err == nil {
				d.say("graph", Fine, fmt.Sprintf("%s imports, in %.1f s", name, took.Seconds()), "")
				return
			}
			d.unimportable(cfg, name, err, reasons)
		},
		Unused: func(name, what string) {
			d.say("graph", Warning, fmt.Sprintf("%s was compiled with a %s of its own, which is not used", name, what), python.FixUnused)
		},
		Built: func(name string, err error) {
			text, details, _ := explained(cfg, err)
			if fix, always := python.FixFactory(err); always {
				d.say("graph", Problem, fmt.Sprintf("%s makes no graph: %s", name, text), fix)
			} else {
				d.say("graph", Warning, fmt.Sprintf("%s cannot be built with an empty configuration: %s", name, text), fix, details...)
			}
		},
	})
	done()
	if err != nil && ctx.Err() == nil {
		d.say("graph", Problem, fmt.Sprintf("end the worker: %v", err), "")
	}
}

// unfinished are graphs that are not imported yet, or models that have not answered.
type unfinished struct {
	mu    sync.Mutex
	names []string
}

func (u *unfinished) add(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names = append(u.names, name)
}

func (u *unfinished) list() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.names)
}

func (u *unfinished) remove(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names = slices.DeleteFunc(u.names, func(n string) bool { return n == name })
}

// text names the next, and how many come after it.
func (u *unfinished) text() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch len(u.names) {
	case 0:
		return ""
	case 1:
		return ": " + u.names[0]
	}
	return fmt.Sprintf(": %s, and %d after it", u.names[0], len(u.names)-1)
}

// loaded reports whether the server that asks has imported the graphs that the configuration names now.
func (d *doctor) loaded(cfg *config.Config) {
	imports, reasons := d.Loaded(), map[string]string{}
	for _, g := range cfg.Graphs {
		if !g.IsPython() {
			continue
		}
		switch err, known := imports[g.ID]; {
		case !known:
			d.missing(cfg, g.ID)
		case errors.Is(err, python.ErrImporting):
			d.say("graph", Warning, g.ID+" is still being imported", "wait, and check again")
		case err != nil:
			d.unimportable(cfg, g.ID, err, reasons)
		default:
			d.say("graph", Fine, g.ID+" is imported", "")
		}
	}
}

// missing reports a graph that the configuration names now, and that the server which asks does not have.
func (d *doctor) missing(cfg *config.Config, name string) {
	d.say("graph", Problem, name+" is not loaded by this server; "+filepath.Base(cfg.File)+" has it since", "restart the server, or with --reload save the file again")
}

// unimportable reports a graph that does not import. reasons maps what was reported to the first graph that it was reported for: graphs of one
// module fail for one reason.
func (d *doctor) unimportable(cfg *config.Config, name string, err error, reasons map[string]string) {
	text, details, fix := explained(cfg, err)
	reason := strings.Join(append([]string{text}, details...), "\n")
	if first, again := reasons[reason]; again {
		d.say("graph", Problem, fmt.Sprintf("%s does not import, for the same reason as %s", name, first), "")
		return
	}
	reasons[reason] = name
	if fix == "" {
		fix = fixImport(cfg, err)
		if cfg.MissingEnv != "" {
			fix += "; if it misses a variable, create " + cfg.MissingEnv
		}
	}
	d.say("graph", Problem, fmt.Sprintf("%s does not import: %s", name, text), fix, details...)
}

// explained returns an error in one line, with the place in the user's code, the end of its traceback, and what to do if that is known.
func explained(cfg *config.Config, err error) (text string, details []string, fix string) {
	text = python.Plain(err)
	var f *graph.Failure
	if errors.As(err, &f) {
		if at := placeOf(cfg, f.Detail); at != "" {
			text += " at " + at
		}
		return text, python.Excerpt(f.Detail, 6, cfg.CodeDirs()), f.Fix
	}
	if head, tail, cut := strings.Cut(text, "\n"); cut {
		return head, python.Excerpt(tail, 6, cfg.CodeDirs()), ""
	}
	return text, nil, ""
}

// placeOf is "file:line" of the innermost line of a traceback that is the user's; "" when there is none.
func placeOf(cfg *config.Config, traceback string) string {
	return python.Place(traceback, cfg.CodeDirs())
}

// agent builds a declared agent. It sends no request to the model or the MCP servers.
func (d *doctor) agent(cfg *config.Config, g config.Graph, log *slog.Logger) {
	a, err := graphs.Declare(cfg, g, nil, log)
	if err != nil {
		fix := "fix it in " + filepath.Base(cfg.File)
		switch noKey := strings.Contains(err.Error(), "has no key"); {
		case noKey && cfg.MissingEnv != "":
			fix = "create " + cfg.MissingEnv + " with the variable, or set it in the environment"
		case noKey:
			fix = "set the variable in env of " + filepath.Base(cfg.File) + ", or in the environment"
		}
		d.say("graph", Problem, err.Error(), fix)
		return
	}
	_ = a.Close() // nothing was started
	d.say("graph", Fine, fmt.Sprintf("%s is an agent on %s", g.ID, g.Agent.Model.Name), "")
}

// fixImport returns what mostly helps.
func fixImport(cfg *config.Config, err error) string {
	if strings.Contains(err.Error(), "took longer than") {
		return "let the module only define things, and do what takes time inside nodes or a factory"
	}
	where := "see the traceback"
	var f *graph.Failure
	if errors.As(err, &f) {
		if at := placeOf(cfg, f.Detail); at != "" {
			where = "correct what " + at + " does"
		}
	}
	return where + "; until it imports serve is not ready, unless --allow-broken-graphs is set"
}

// port tries to listen.
func (d *doctor) port(cfg *config.Config) {
	l, err := net.Listen("tcp", net.JoinHostPort(cfg.Server.Host, strconv.Itoa(cfg.Server.Port)))
	switch {
	case err == nil:
		l.Close()
		if cfg.Server.Port == 0 {
			d.say("port", Fine, "a free port will be taken on "+cfg.Server.Host, "")
		} else {
			d.say("port", Fine, fmt.Sprintf("%d is free on %s", cfg.Server.Port, cfg.Server.Host), "")
		}
	default:
		if p := advice.Port(cfg, err); p != nil {
			d.say("port", Problem, p.Text, p.Fix)
			return
		}
		d.say("port", Problem, err.Error(), fmt.Sprintf("correct %s and %s", cfg.Where("host"), cfg.Where("port")))
	}
}

// descriptors looks at how many files the process may have open.
func (d *doctor) descriptors(cfg *config.Config) {
	if cfg != nil {
		if p := advice.FileLimit(cfg); p != nil {
			d.say("data", Problem, p.Text, p.Fix)
			return
		}
	}
	if limit := filelimit.Limit(); limit > 0 && limit < 4096 {
		d.say("data", Warning, fmt.Sprintf("%d files may be open at once; each client that is connected takes one", limit), filelimit.Fix)
	}
}

// data looks at what the database is kept in.
func (d *doctor) data(ctx context.Context, cfg *config.Config) {
	if cfg.History.JSONL != "" {
		d.folder("history.jsonl in "+filepath.Base(cfg.File), cfg.History.JSONL)
	}
	if cfg.Storage.DatabaseURL != "" {
		d.database(ctx, cfg)
		return
	}
	if cfg.Storage.Data == sqlite.InMemory {
		d.say("data", Warning, "all data is in memory and lost at exit", "leave out --data :memory: to keep it")
		return
	}
	setting := cfg.Where("data")
	if !d.folder(setting, cfg.Storage.Data) || d.Loaded != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	done := d.slow("checking the database in "+cfg.Storage.Data, time.Minute)
	in, err := sqlite.Inspect(ctx, cfg.Storage.Data, configured(cfg))
	done()
	if in.Holder != "" {
		d.say("data", Warning, fmt.Sprintf("a server is using the data folder (%s)", in.Holder), "stop it before you start another, or give the other one a folder of its own with "+setting)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		d.say("data", Warning, fmt.Sprintf("the check of the database (%s) did not finish within a minute", sqlite.Megabytes(in.Size)), "")
	case err != nil:
		if p := advice.Folder(setting, cfg.Storage.Data, err); p != nil {
			d.say("data", Problem, p.Text, p.Fix)
		} else {
			d.say("data", Problem, err.Error(), "name another folder with "+setting)
		}
	case in.Size == 0:
		d.say("data", Fine, "no database yet; the first start creates it", "")
	case len(in.Damage) > 0:
		d.say("data", Problem, "the database is damaged", "restore a backup, or one of what can be read: "+
			"understudy backup TARGET --damaged --data "+shell.Quote(cfg.Storage.Data)+" && understudy restore TARGET --replace --data "+shell.Quote(cfg.Storage.Data), in.Damage...)
	case in.Schema > in.Known:
		d.say("data", Problem, fmt.Sprintf("the database was written by a newer version of this program (schema %d; this one knows %d)", in.Schema, in.Known),
			"use that version, or a backup from before")
	default:
		d.locked(cfg, in.Locked)
		d.begins = in.Begins
		text := fmt.Sprintf("the database (%s, schema %d of %d) is intact", sqlite.Megabytes(in.Size), in.Schema, in.Known)
		if in.Schema < in.Known {
			text += "; the next start migrates it"
		}
		d.say("data", Fine, text, "")
	}
}

// Room on the disk that is too little, and that is a worry.
const (
	tooLittleRoom = 64 << 20
	littleRoom    = 1 << 30
)

// folder reports whether one can be worked in. setting is what names it.
func (d *doctor) folder(setting, dir string) bool {
	at, err := sqlite.Existing(dir), error(nil)
	if info, e := os.Stat(at); e == nil && at == dir {
		// The server takes the access of others away, which only the owner may do.
		if uid, known := owner.Of(info); known && uid != os.Getuid() && os.Getuid() != 0 {
			err = fmt.Errorf("it belongs to user %d: %w", uid, fs.ErrPermission)
		}
	}
	if err == nil {
		err = tryFolder(at)
	}
	switch p := advice.Folder(setting, dir, err); {
	case err == nil:
	case errors.Is(err, errNoLocks):
		d.say("data", Problem, fmt.Sprintf("%s: %s is not usable: %v", setting, at, err), "name a folder on a local disk, not on a network file system")
		return false
	case p != nil:
		d.say("data", Problem, p.Text, p.Fix)
		return false
	default:
		d.say("data", Problem, fmt.Sprintf("%s: %s is not usable: %v", setting, at, err), "name another folder with "+setting)
		return false
	}
	free, kind := diskOf(at)
	switch {
	case free >= 0 && free < tooLittleRoom:
		d.say("data", Problem, fmt.Sprintf("%s: %s free", setting, sqlite.Megabytes(free)), "free disk space")
	case free >= 0 && free < littleRoom:
		d.say("data", Warning, fmt.Sprintf("%s: %s free", setting, sqlite.Megabytes(free)), "free disk space soon; when the disk is full, runs wait")
	}
	if kind != "" {
		d.say("data", Warning, fmt.Sprintf("%s: %s is on a %s file system, where locks and syncs are unreliable", setting, dir, kind), "use a local disk")
	}
	made := ""
	if at != dir {
		made = ", and will be created"
	}
	room := ""
	if free >= 0 {
		room = "; " + sqlite.Megabytes(free) + " free"
	}
	d.say("data", Fine, fmt.Sprintf("%s: %s can be written%s%s", setting, dir, made, room), "")
	return true
}

var errNoLocks = errors.New("the file system granted two locks on one file")

// tryFolder writes, syncs and locks a file.
func tryFolder(dir string) (err error) {
	f, err := os.CreateTemp(dir, ".understudy-doctor-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := flock.Try(f, false); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	second, err := os.Open(f.Name())
	if err != nil {
		return err
	}
	defer second.Close()
	if err := flock.Try(second, false); !errors.Is(err, flock.ErrLocked) {
		return errNoLocks
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/app"
	"understudy/internal/config"
	"understudy/internal/logctx"
	"understudy/internal/names"
)

// settle is how long files have to be at rest before they are read: editors and checkouts change several in a row.
const settle = 300 * time.Millisecond

// reloader loads the graphs again when their files change: *.py below the folder of langgraph.json and its local dependencies,
// langgraph.json itself, what it names (config.Config.Files), and .env files next to it. It bundles components again when files that they may consist of change.
type reloader struct {
	log    *slog.Logger
	cfg    *config.Config // as it was at the start
	load   func() (*config.Config, []config.Warning, error)
	reload func(context.Context, *config.Config) error
	// bundle makes the components of graphs anew.
	bundle  func(context.Context, *config.Config)
	bundles bool // there were components the last time
	// problems returns the import errors by graph.
	problems func() map[string]error
	rested   time.Duration

	mu     sync.Mutex // guards what follows
	files  []string   // that langgraph.json names, as it is now
	failed bool       // the last time, so that what is created may be what was missing
}

// paths are files, each once.
type paths []string

func (p *paths) add(more ...string) {
	for _, path := range more {
		if !slices.Contains(*p, path) {
			*p = append(*p, path)
		}
	}
}

// changes are files that changed since the last reload.
type changes struct {
	graphs, components paths
	// other was created during a reload. It may be what is missing if that fails; it may also be of the graphs themselves, which write it when they are imported.
	other string
}

// running is a reload that has not ended.
type running struct {
	changes
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed at the end
}

// errNewer ends a reload when files change again: its result would be of no use, and a graph that hangs in its import holds up the one that is corrected.
var errNewer = errors.New("files changed again")

// begin loads what changed in a goroutine, whose end closes ended.
func (r *reloader) begin(ctx context.Context, w *fsnotify.Watcher, c changes) *running {
	ctx, cancel := context.WithCancelCause(ctx)
	now := &running{changes: c, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(now.ended)
		defer cancel(nil)
		if len(c.components) > 0 {
			r.bundleAgain(ctx)
		}
		if len(c.graphs) > 0 {
			r.again(ctx, w, c.graphs)
		}
	}()
	return now
}

// stop ends a reload, and returns what it was to load; nothing when it has ended.
func (now *running) stop() changes {
	select {
	case <-now.ended:
		return changes{}
	default:
	}
	now.cancel(errNewer)
	<-now.ended
	return now.changes
}

// Run watches until ctx ends. Where files cannot be watched it says so, and returns nil: the server works without.
func (r *reloader) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		r.log.Warn("graphs are not loaded again when their files change", "error", err)
		return nil
	}
	defer w.Close()
	for _, dir := range append([]string{r.cfg.Dir}, r.cfg.Workers.PythonPath...) {
		r.watch(w, dir)
	}
	r.watchFiles(w, r.cfg)
	r.bundles = len(r.cfg.Components) > 0
	rest := time.NewTimer(time.Hour)
	rest.Stop()
	var changed changes
	now := &running{ended: make(chan struct{})}
	close(now.ended) // none runs
	ended := now.ended
	defer func() { <-now.ended }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			ended = nil
			if changed.other != "" && r.hasFailed() {
				changed.graphs.add(changed.other)
				rest.Reset(r.rested)
			}
			changed.other = ""
		case err := <-w.Errors:
			if err != nil {
				r.log.Warn("watching the files of graphs", "error", err)
			}
		case e := <-w.Events:
			if r.note(w, e, &changed, ended != nil) {
				rest.Reset(r.rested)
			}
		case <-rest.C:
			all := now.stop()
			all.graphs.add(changed.graphs...)
			all.components.add(changed.components...)
			now, changed = r.begin(ctx, w, all), changes{}
			ended = now.ended
		}
	}
}

// note adds to what changed, and reports whether anything was added that is to be loaded. running: a reload runs.
func (r *reloader) note(w *fsnotify.Watcher, e fsnotify.Event, c *changes, running bool) (counts bool) {
	graph := func() { c.graphs.add(e.Name); counts = true }
	component := func() { c.components.add(e.Name); counts = true }
	leads := e.Has(fsnotify.Create) && r.leads(e.Name)
	if leads {
		r.watchFolders(w)
	}
	if e.Has(fsnotify.Create) && r.inside(e.Name) {
		r.watch(w, e.Name) // a folder may have come with files in it
		if info, err := os.Stat(e.Name); err == nil && info.IsDir() && !r.ignored(e.Name) {
			if holds(e.Name, func(name string) bool { return strings.HasSuffix(name, ".py") }) {
				graph()
			}
			if holds(e.Name, isComponent) {
				component()
			}
		}
	}
	if e.Op == fsnotify.Chmod {
		return counts
	}
	other := e.Has(fsnotify.Create) && r.inside(e.Name) && !strings.HasPrefix(filepath.Base(e.Name), ".")
	switch {
	case leads || r.matters(e.Name):
		graph()
	case other && running:
		c.other = e.Name
	case other && r.hasFailed():
		graph()
	}
	if e.Name == r.cfg.File || r.inside(e.Name) && isComponent(e.Name) {
		component()
	}
	return counts
}

// watch adds a folder and those below it. What is no folder, or cannot be watched, is passed over.
func (r *reloader) watch(w *fsnotify.Watcher, dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it went away meanwhile, or is not ours to read
		}
		if path != r.cfg.Dir && r.ignored(path) {
			return fs.SkipDir
		}
		return w.Add(path)
	})
	if err != nil {
		r.log.Warn("changes below a folder are not seen", "folder", dir, "error", err)
	}
}

// watchFiles watches the files that langgraph.json names, wherever they are, and reports whether they may have changed before they were watched.
func (r *reloader) watchFiles(w *fsnotify.Watcher, cfg *config.Config) (unseen bool) {
	r.mu.Lock()
	r.files = cfg.Files
	r.mu.Unlock()
	return r.watchFolders(w)
}

// watchFolders watches the folders of files, and of those that are missing the nearest one around them, in which the next one is created. It reports whether a folder is new.
func (r *reloader) watchFolders(w *fsnotify.Watcher) (added bool) {
	before := w.WatchList()
	var dirs []string
	for _, file := range r.named() {
		dir := filepath.Dir(file)
		for info, err := os.Stat(dir); (err != nil || !info.IsDir()) && dir != filepath.Dir(dir); info, err = os.Stat(dir) {
			dir = filepath.Dir(dir)
		}
		if slices.Contains(dirs, dir) {
			continue
		}
		dirs = append(dirs, dir)
		if err := w.Add(dir); err != nil {
			r.log.Warn("changes of a file are not seen", "file", file, "error", err)
		}
	}
	after := w.WatchList() // a folder that is watched by another name is not listed by this one
	return slices.ContainsFunc(dirs, func(dir string) bool { return !slices.Contains(before, dir) && slices.Contains(after, dir) })
}

// named returns the files that langgraph.json names.
func (r *reloader) named() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files
}

func (r *reloader) hasFailed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *reloader) setFailed(failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = failed
}

// leads reports whether a file that langgraph.json names is below a path.
func (r *reloader) leads(path string) bool {
	return slices.ContainsFunc(r.named(), func(file string) bool { return below(file, path) })
}

// inside reports whether a path is in a folder of which everything is watched. Of others, the named files count.
func (r *reloader) inside(path string) bool {
	return below(path, r.cfg.Dir) || slices.ContainsFunc(r.cfg.Workers.PythonPath, func(dir string) bool { return below(path, dir) })
}

// below reports whether a path is below a folder.
func below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// holds reports whether a folder has a file that counts.
func holds(dir string, counts func(name string) bool) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return counts(e.Name()) })
}

// ignored are folders in which no graph is written by hand.
func (r *reloader) ignored(path string) bool {
	switch name := filepath.Base(path); {
	case strings.HasPrefix(name, "."), name == "__pycache__", name == "node_modules", name == "venv", name == "site-packages", path == r.cfg.Storage.Data:
		return true
	}
	_, err := os.Stat(filepath.Join(path, "pyvenv.cfg"))
	return err == nil
}

func (r *reloader) matters(path string) bool {
	name := filepath.Base(path)
	beside := filepath.Dir(path) == r.cfg.Dir
	return path == r.cfg.File || slices.Contains(r.named(), path) || beside && (name == ".env" || strings.HasPrefix(name, ".env.")) ||
		r.inside(path) && strings.HasSuffix(name, ".py") && !strings.HasPrefix(name, ".")
}

// isComponent reports whether the components of a graph may consist of a file.
func isComponent(path string) bool {
	switch name := filepath.Base(path); filepath.Ext(name) {
	case ".tsx", ".jsx", ".ts", ".js", ".mjs", ".mts", ".cjs", ".cts", ".css", ".json", ".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".txt":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// bundleAgain bundles the components. It leaves mistakes in the configuration to again, which logs them.
func (r *reloader) bundleAgain(ctx context.Context) {
	cfg, _, err := r.load()
	if err != nil || r.bundle == nil || len(cfg.Components) == 0 && !r.bundles {
		return
	}
	r.bundles = len(cfg.Components) > 0
	r.bundle(ctx, cfg)
}

// mostChanged is how many files a line of the log names.
const mostChanged = 4

// again reads the configuration and loads the graphs.
func (r *reloader) again(ctx context.Context, w *fsnotify.Watcher, changed []string) {
	r.setFailed(true)
	short := make([]string, len(changed))
	for i, path := range changed {
		short[i] = r.short(path)
	}
	log := r.log.With("changed", names.Some(short, mostChanged))
	log.Info("reloading…")
	began := time.Now()
	took := func() slog.Attr { return logctx.Took(time.Since(began)) }
	cfg, warnings, err := r.load()
	for cfg != nil && r.watchFiles(w, cfg) {
		cfg, warnings, err = r.load() // again, for what changed before it was watched
	}
	var mistakes config.Mistakes
	if err != nil {
		if errors.As(err, &mistakes) {
			for _, m := range mistakes {
				log.Error("not reloaded; the graphs stay as they were", "mistake", m.String())
			}
			return
		}
		log.Error("not reloaded; the graphs stay as they were", "error", err)
		return
	}
	for _, warning := range warnings {
		log.Warn("configuration", "key", warning.Key, "problem", warning.Text)
	}
	if keys := r.cfg.NeedRestart(cfg); len(keys) > 0 {
		log.Warn("these settings take effect when understudy dev is started again", "keys", strings.Join(keys, ", "))
	}
	done := repeat(slowReload, slowReload, func() { log.Info("still reloading; the version before stays in service", took()) })
	err = r.reload(ctx, cfg)
	done()
	var refused *python.ReloadError
	switch {
	case err == nil:
		r.setFailed(false)
		log.Info("reloaded", took())
		r.logFailures(log, r.problems())
	case errors.Is(context.Cause(ctx), errNewer):
		log.Info("reload ended: files changed again", took())
	case ctx.Err() != nil:
	case errors.As(err, &refused) && refused.Err == nil:
		log.Error("not reloaded; the graphs stay as they were", took())
		r.logFailures(log, refused.Problems)
	case errors.Is(err, app.ErrCannotReload):
		log.Warn("not reloaded", "reason", err)
	case errors.As(err, &mistakes):
		for _, m := range mistakes {
			log.Error("not reloaded; the graphs stay as they were", "mistake", m.String())
		}
	case refused != nil && refused.Why != nil:
		attrs := []any{"error", err}
		if refused.Why.Graph != "" {
			attrs = append(attrs, "graph", refused.Why.Graph)
		}
		if refused.Why.Fix != "" {
			attrs = append(attrs, "fix", refused.Why.Fix)
		}
		log.Error("not reloaded; the graphs stay as they were", append(attrs, took())...)
	default:
		log.Error("not reloaded; the graphs stay as they were", "error", err, took())
	}
}

// slowReload is how often the log says that a reload still runs.
const slowReload = 3 * time.Second

// logFailures logs the import errors of graphs, with the place in their files. Graphs of one module fail for one reason, which is logged once.
func (r *reloader) logFailures(log *slog.Logger, problems map[string]error) {
	type failure struct{ at, text string }
	var failures []failure
	graphs := map[failure][]string{}
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		f := failure{at: r.placeOf(problems[name]), text: problems[name].Error()}
		if graphs[f] == nil {
			failures = append(failures, f)
		}
		graphs[f] = append(graphs[f], name)
	}
	for _, f := range failures {
		err := problems[graphs[f][0]]
		attrs := []any{"graph", strings.Join(graphs[f], ", "), "at", f.at, "error", err}
		if fix := fixOf(err); fix != "" {
			attrs = append(attrs, "fix", fix)
		}
		log.Error("a graph does not import", attrs...)
	}
}

// placeOf is place of the traceback in an error.
func (r *reloader) placeOf(err error) string {
	var f *graph.Failure
	if !errors.As(err, &f) {
		return ""
	}
	return r.place(f.Detail)
}

// place is "file:line" of the innermost line of a traceback that is the user's; "" when there is none.
func (r *reloader) place(traceback string) string {
	return placeIn(traceback, append([]string{r.cfg.Dir}, r.cfg.Workers.PythonPath...), r.short)
}

func placeIn(traceback string, dirs []string, short func(string) string) string {
	at := ""
	for line := range strings.SplitSeq(traceback, "\n") {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), `File "`)
		if !ok {
			continue
		}
		file, rest, ok := strings.Cut(rest, `", line `)
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, ",")
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(file, dir+string(filepath.Separator)) }) &&
			!strings.Contains(file, "site-packages") {
			at = fmt.Sprintf("%s:%s", short(file), number)
		}
	}
	return at
}

func (r *reloader) short(path string) string {
	if rel, err := filepath.Rel(r.cfg.Dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

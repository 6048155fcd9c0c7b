package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"understudy/graph/python"
	"understudy/internal/app"
	"understudy/internal/config"
	"understudy/internal/logctx"
	"understudy/internal/loop"
	"understudy/internal/names"
)

// firstPatience is how long the third reload in a row runs, each for files that changed during the one before, until the next one may begin. An import that
// hangs is seldom corrected sooner: the log names its line after two seconds.
const firstPatience = 5 * time.Second

// longestRest bounds the reloads in a row that count while none runs: 40 s between two, or as long as the last one took, are little work, and a new file that a person saves waits as long as those
// that graphs write. While one runs the time grows: else imports that are slow and write files would never end.
const longestRest = 5

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
	bundles atomic.Bool // there were components the last time, or there may have been: the configuration was not read
	// problems returns the import errors by graph.
	problems func() map[string]error
	loaded   func() bool // whether graphs have been loaded since the start; nil: they have
	onEnd    func(error) // is called when a reload has ended: with why it changed nothing, or nil. May be nil
	rested   time.Duration
	patience time.Duration // see apart
	// fences is a folder in which each reload creates a file when it ends. The watcher reports files in the order in which they change, so once it reports that
	// one, it has reported what the reload wrote; what it reports later, a person saved. "" when there is none. Run owns it.
	fences string
	// known are the files that there have been in watched folders, also those that are gone: editors remove files and create them when they save. Run owns it.
	known map[string]bool

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
	graphs paths
	// during: files of graphs changed during a reload, or while other workers import the same after it. Imports may have written them.
	during bool
	held   bool // that the next reload waits is in the log
	// other was created during a reload. It may be what is missing if that fails; it may also be of the graphs themselves, which write it when they are imported.
	other      string
	created    paths // of graphs, those that there had not been before
	others     paths // of graphs, those that count only because they were created, after a mistake. Editors create some for a moment
	components bool  // files that components may consist of changed
}

// gone removes files that were created and are not there any more.
func (c *changes) gone() {
	c.graphs = slices.DeleteFunc(c.graphs, func(path string) bool {
		_, err := os.Lstat(path)
		return err != nil && slices.Contains(c.others, path)
	})
}

// shares reports whether both have a file.
func (p paths) shares(other paths) bool {
	return slices.ContainsFunc(p, func(path string) bool { return slices.Contains(other, path) })
}

// running is a reload that has not ended.
type running struct {
	graphs   paths
	began    time.Time
	cancel   context.CancelCauseFunc
	ended    chan struct{} // closed at the end
	fence    string        // the file that it creates at the end
	reported chan struct{} // closed when the watcher has reported that file
}

// errNewer ends a reload when files change again: its result would be of no use, and a graph that hangs in its import holds up the one that is corrected.
var errNewer = errors.New("files changed again")

// begin loads the graphs in a goroutine, whose end closes ended.
func (r *reloader) begin(ctx context.Context, w *fsnotify.Watcher, graphs paths) *running {
	ctx, cancel := context.WithCancelCause(ctx)
	now := &running{graphs: graphs, began: time.Now(), cancel: cancel, ended: make(chan struct{}), reported: make(chan struct{})}
	if r.fences != "" {
		now.fence = filepath.Join(r.fences, strconv.FormatInt(now.began.UnixNano(), 36))
	}
	go func() {
		defer close(now.ended)
		defer cancel(nil)
		r.again(ctx, w, graphs)
		now.waitForReports(ctx)
	}()
	return now
}

// longestReport bounds how long the end of a reload waits for the watcher, in case its file cannot be created or is not reported.
const longestReport = time.Second

// waitForReports waits until the watcher has reported what the reload wrote.
func (now *running) waitForReports(ctx context.Context) {
	if now.fence == "" || os.WriteFile(now.fence, nil, 0o600) != nil {
		return
	}
	defer os.Remove(now.fence)
	select {
	case <-now.reported:
	case <-ctx.Done():
	case <-time.After(longestReport):
	}
}

// stop ends a reload, and returns what it was to load; nothing when it has ended.
func (now *running) stop() paths {
	select {
	case <-now.ended:
		return nil
	default:
	}
	now.cancel(errNewer)
	<-now.ended
	return now.graphs
}

// Run watches until ctx ends. Where files cannot be watched it says so, and returns nil: the server works without.
func (r *reloader) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		r.log.Warn("graphs are not loaded again when their files change", "error", err)
		return nil
	}
	defer w.Close()
	if fences, err := os.MkdirTemp("", "understudy-reload-"); err == nil {
		defer os.RemoveAll(fences)
		if w.Add(fences) == nil {
			r.fences = fences
		}
	}
	for _, dir := range r.cfg.CodeDirs() {
		r.watch(w, dir)
		r.knowAll(dir)
	}
	r.watchFiles(w, r.cfg)
	r.bundles.Store(len(r.cfg.Components) > 0)
	// Components have a timer and a goroutine of their own: what graphs write must not hold up their reload, nor an import that hangs the components.
	bundle := make(chan struct{}, 1)
	var bundling sync.WaitGroup
	bundling.Go(func() { r.bundleWhen(ctx, bundle) })
	defer bundling.Wait()
	s := &series{reloader: r, w: w, graphs: stopped(), components: stopped(), now: &running{ended: make(chan struct{})}, loaded: hashes{}}
	close(s.now.ended) // none runs
	defer func() { <-s.now.ended }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.runs:
			s.end()
		case err := <-w.Errors:
			if err != nil {
				r.log.Warn("watching the files of graphs", "error", err)
			}
		case e := <-w.Events:
			s.note(e)
		case <-s.components.C:
			select {
			case bundle <- struct{}{}:
			default: // it is to be done already
			}
		case <-s.graphs.C:
			s.next(ctx)
		}
	}
}

// series are the reloads one after the other, as Run sees them.
type series struct {
	*reloader
	w                  *fsnotify.Watcher
	graphs, components *time.Timer // until files that changed are read
	changed            changes
	now                *running      // the last one
	runs               chan struct{} // its ended while it runs, else nil
	row                int           // reloads in a row, each for files that changed during the one before
	// wrote are files that changed while the last reload ran, perhaps because graphs write them, and inRow those for which it was.
	wrote, inRow paths
	loaded       hashes
	late         time.Time // until then other workers import what a reload loaded
}

// end notes that a reload has ended.
func (s *series) end() {
	s.runs = nil
	s.late = time.Now().Add(time.Since(s.now.began))
	if s.changed.other != "" && s.hasFailed() {
		s.changed.graphs.add(s.changed.other)
		s.changed.others.add(s.changed.other)
		s.changed.during = true
		s.graphs.Reset(s.rested)
	}
	s.changed.other = ""
	if s.changed.held {
		s.graphs.Reset(s.rested) // see longestRest
	}
}

// note notes that a file changed.
func (s *series) note(e fsnotify.Event) {
	if e.Name == s.now.fence && e.Has(fsnotify.Create) {
		select {
		case <-s.now.reported: // some systems report a file twice
		default:
			close(s.now.reported)
		}
		return
	}
	running := s.runs != nil
	if s.counts(s.w, e, &s.changed, running) {
		if running {
			s.wrote.add(e.Name)
		}
		// Other workers write what the first one wrote. What else changes after a reload, a person saved.
		s.changed.during = running || time.Now().Before(s.late) && slices.Contains(s.wrote, e.Name)
		s.graphs.Reset(s.rested)
	}
	if s.changed.components {
		s.components.Reset(s.rested)
		s.changed.components = false
	}
}

// next begins the next reload, unless nothing changed or it has to wait.
func (s *series) next(ctx context.Context) {
	s.changed.gone()
	if s.changed.during {
		s.changed.graphs = slices.DeleteFunc(s.changed.graphs, s.loaded.has)
	}
	if len(s.changed.graphs) == 0 { // files were written again as they were
		s.changed.during, s.changed.held = false, false
		return
	}
	if wait := time.Until(s.mayBegin()); s.changed.during && wait > 0 {
		if !s.changed.held {
			s.log.Warn("files changed during each of the last reloads; the next one waits", "changed", s.some(s.changed.graphs), "wait", wait.Round(time.Millisecond),
				"fix", "nothing, if you saved them: they are loaded after the wait, at the latest 40 s after the last reload began if it has ended; a file that was there before waits 5 s at most; if graphs write them when they are imported, let them write only what differs")
		}
		s.changed.held = true
		s.graphs.Reset(wait)
		return
	}
	if s.row++; !s.changed.during {
		s.row = 0
	}
	s.inRow, s.wrote = slices.Clone(s.changed.graphs), nil
	all := s.now.stop()
	all.add(s.changed.graphs...)
	s.loaded.add(all)
	s.now, s.changed = s.begin(ctx, s.w, all), changes{}
	s.runs = s.now.ended
}

// mayBegin is when a reload may begin for files that changed during the last one. Graphs write the same files each time, or new ones: others may be what a
// person saved, so they wait for less.
func (s *series) mayBegin() time.Time {
	long := s.row
	if !s.changed.graphs.shares(s.inRow) && slices.ContainsFunc(s.changed.graphs, func(path string) bool { return !slices.Contains(s.changed.created, path) }) {
		long = min(s.row, 2)
	}
	if s.runs == nil {
		long = min(long, longestRest)
	}
	rest := s.now.began.Add(s.apart(long))
	if s.runs == nil && long == longestRest && s.late.After(rest) {
		return s.late
	}
	return rest
}

// stopped returns a timer that does not run.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// apart is how long after the begin of a reload the next one begins, for files that changed during it, after a number of such reloads in a row. It
// doubles: else graphs that write files when they are imported would never be loaded, or always.
func (r *reloader) apart(row int) time.Duration {
	if row < 2 {
		return 0
	}
	return r.patience << min(row-2, 8)
}

// hashes are of files that changed, as they were at the begin of the last reload for them.
type hashes map[string][sha256.Size]byte

func (h hashes) add(files paths) {
	for _, path := range files {
		delete(h, path)
		if data, err := os.ReadFile(path); err == nil {
			h[path] = sha256.Sum256(data)
		}
	}
}

// has reports whether a file is as it was.
func (h hashes) has(path string) bool {
	was, known := h[path]
	data, err := os.ReadFile(path)
	return known && err == nil && sha256.Sum256(data) == was
}

// counts adds to what changed, and reports whether graphs are to be loaded for it. running: a reload runs.
func (r *reloader) counts(w *fsnotify.Watcher, e fsnotify.Event, c *changes, running bool) (yes bool) {
	graph := func() { c.graphs.add(e.Name); yes = true }
	leads := e.Has(fsnotify.Create) && r.leads(e.Name)
	if leads {
		r.watchFolders(w)
	}
	if e.Has(fsnotify.Create) && r.inside(e.Name) {
		r.watch(w, e.Name) // a folder may have come with files in it
		if info, err := os.Stat(e.Name); err == nil && info.IsDir() && !r.ignored(e.Name) {
			if holds(e.Name, func(name string) bool { return strings.HasSuffix(name, ".py") }) {
				graph()
				c.created.add(e.Name)
			}
			c.components = c.components || r.bundles.Load() && holds(e.Name, isComponent)
		}
	}
	if e.Op == fsnotify.Chmod {
		return yes
	}
	other := e.Has(fsnotify.Create) && r.inside(e.Name) && !transient(filepath.Base(e.Name))
	switch {
	case leads || r.matters(e.Name):
		graph()
		if !r.known[e.Name] {
			c.created.add(e.Name)
			r.know(e.Name)
		}
	case other && running:
		c.other = e.Name
	case other && r.hasFailed():
		graph()
		c.others.add(e.Name)
	}
	c.components = c.components || e.Name == r.cfg.File || r.bundles.Load() && r.inside(e.Name) && isComponent(e.Name)
	return yes
}

// knowAll notes the files below a folder that graphs may consist of.
func (r *reloader) knowAll(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.IsDir() && path != r.cfg.Dir && r.ignored(path):
			return fs.SkipDir
		case !d.IsDir() && r.matters(path):
			r.know(path)
		}
		return nil
	})
}

// know notes that there is a file.
func (r *reloader) know(path string) {
	if r.known == nil {
		r.known = map[string]bool{}
	}
	r.known[path] = true
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

// bundleWhen bundles the components for each value of due, until ctx ends.
func (r *reloader) bundleWhen(ctx context.Context, due <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
			r.bundleAgain(ctx)
		}
	}
}

// bundleAgain bundles the components. It leaves mistakes in the configuration to again, which logs them.
func (r *reloader) bundleAgain(ctx context.Context) {
	cfg, _, err := r.load()
	had := r.bundles.Swap(err != nil || len(cfg.Components) > 0)
	if err != nil || r.bundle == nil || len(cfg.Components) == 0 && !had {
		return
	}
	r.bundle(ctx, cfg)
}

// mostChanged is how many files a line of the log names.
const mostChanged = 4

// some names changed files for the log.
func (r *reloader) some(changed paths) string {
	short := make([]string, len(changed))
	for i, path := range changed {
		short[i] = r.short(path)
	}
	return names.Some(short, mostChanged)
}

// again reads the configuration and loads the graphs.
func (r *reloader) again(ctx context.Context, w *fsnotify.Watcher, changed []string) {
	r.setFailed(true)
	log := r.log.With("changed", r.some(changed))
	log.Info("reloading…")
	began := time.Now()
	took := func() slog.Attr { return logctx.Took(time.Since(began)) }
	cfg, warnings, err := r.load()
	for cfg != nil && r.watchFiles(w, cfg) {
		cfg, warnings, err = r.load() // again, for what changed before it was watched
	}
	var mistakes config.Mistakes
	if err != nil {
		r.noted(err)
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
	broken := r.problems()
	done := loop.Repeat(slowReload, slowReload, func() { log.Info("still reloading; "+r.meanwhile(), took()) })
	err = r.reload(ctx, cfg)
	done()
	if ctx.Err() == nil {
		r.noted(err)
	}
	var refused *python.ReloadError
	switch {
	case err == nil:
		r.setFailed(false)
		problems := r.problems()
		log.Info("reloaded", append(repaired(cfg.Graphs, broken, problems), took())...)
		r.logFailures(log, problems)
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

// meanwhile says what serves runs during a reload.
func (r *reloader) meanwhile() string {
	if r.loaded != nil && !r.loaded() {
		return "no version has loaded yet, and runs wait until one has"
	}
	return "the version before stays in service"
}

func (r *reloader) noted(err error) {
	if r.onEnd != nil {
		r.onEnd(err)
	}
}

// repaired names, as a start does, the graphs that did not import before a reload and do now.
func repaired(graphs []config.Graph, before, now map[string]error) (attrs []any) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] != nil && now[name] == nil && slices.ContainsFunc(graphs, func(g config.Graph) bool { return g.ID == name }) {
			names = append(names, "✓ "+name)
		}
	}
	if names == nil {
		return nil
	}
	return []any{"imports_again", strings.Join(names, ", ")}
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

// placeOf returns "file:line" of the innermost line of the traceback in an error that is the user's; "" when there is none.
func (r *reloader) placeOf(err error) string {
	return app.PlaceOf(r.cfg, err)
}

func (r *reloader) short(path string) string { return names.From(r.cfg.Dir, path) }

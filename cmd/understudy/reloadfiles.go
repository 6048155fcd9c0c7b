package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"

	"understudy/internal/config"
)

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

// leads reports whether a file that langgraph.json names is below a path.
func (r *reloader) leads(path string) bool {
	return slices.ContainsFunc(r.named(), func(file string) bool { return below(file, path) })
}

// inside reports whether a path is in a folder of which everything is watched. Of others, the named files count.
func (r *reloader) inside(path string) bool {
	return slices.ContainsFunc(r.cfg.CodeDirs(), func(dir string) bool { return below(path, dir) })
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

// ofEditors are names of files that editors and tools create while they save another one.
var ofEditors = regexp.MustCompile(`^\.|^#.*#$|~$|^4913$|^sed\w{6}$|___jb_(tmp|old)___|\.(tmp|temp|swp|swx|swo|bak|orig|rej|part|crdownload)$|\.tmp\.\d+`)

// transient reports whether a file is only there while another one is saved, or is a copy of one.
func transient(name string) bool { return ofEditors.MatchString(name) }

// isComponent reports whether the components of a graph may consist of a file.
func isComponent(path string) bool {
	switch name := filepath.Base(path); filepath.Ext(name) {
	case ".tsx", ".jsx", ".ts", ".js", ".mjs", ".mts", ".cjs", ".cts", ".css", ".json", ".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".txt":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml"

	"understudy/internal/owner"
	"understudy/internal/shell"
)

// file reads langgraph.json into a Config. The zero value of src means that the file was empty.
type file struct {
	reader
	c *Config
	// lookup finds variables for templates of webhook headers, after those of the file.
	lookup func(string) (string, bool)
	// scripts are the digests of those that the agent names which is read.
	scripts map[string][sha256.Size]byte
	// later is done when the whole file was read.
	later []func()
}

// Mistake is one in File that only shows when what it describes is made. It stands at a key, such as "graphs.chat.agent.tools[0]", or where the nearest
// key around it is.
func (c *Config) Mistake(key, text string) Mistake {
	m := Mistake{File: filepath.Base(c.File)}
	for around := key; around != ""; around = around[:max(0, strings.LastIndexAny(around, ".["))] {
		if offset, known := c.offsets[around]; known {
			m = *at(c.src, offset, "")
			m.File = filepath.Base(c.File)
			break
		}
	}
	m.Text = key + ": " + text
	return m
}

// reloaded are the keys of File that a server in development reads again. Where it cannot, because there was nothing in Python, it says so itself.
var reloaded = []string{"graphs", "dependencies", "env", "python_version", "ui", "ui_config", "checkpointer.serde", "encryption", "auth.path", "http.app"}

// NeedRestart returns the keys of File that have another value in now and take effect at a start only: "auth.api_keys", "http.cors".
func (c *Config) NeedRestart(now *Config) []string {
	before, after := members(c.src), members(now.src)
	keys := slices.Collect(maps.Keys(before))
	for key := range after {
		if _, both := before[key]; !both {
			keys = append(keys, key)
		}
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		return slices.Contains(reloaded, key) || reflect.DeepEqual(before[key], after[key])
	})
	slices.Sort(keys)
	return keys
}

// members are the values of a file by key, of sections that servers read each for itself by the keys in them.
func members(src []byte) map[string]any {
	var all map[string]any
	if json.Unmarshal(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")), &all) != nil {
		return nil
	}
	for _, section := range []string{"auth", "http", "history", "checkpointer", "store"} {
		inner, isObject := all[section].(map[string]any)
		if !isObject {
			continue
		}
		delete(all, section)
		for key, v := range inner {
			all[join(section, key)] = v
		}
	}
	return all
}

// isDeerFlow reports whether a file has the models of a DeerFlow installation, as its config.yaml does.
func isDeerFlow(path string) bool {
	src, err := os.ReadFile(path)
	var settings struct {
		Models []struct {
			Use string `yaml:"use"`
		} `yaml:"models"`
	}
	return err == nil && yaml.Unmarshal(src, &settings) == nil && len(settings.Models) > 0 && settings.Models[0].Use != ""
}

// nearby returns the file of the same name in the nearest folder above, or in the only folder below that has one; "" when there is none.
func nearby(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	name := filepath.Base(path)
	for dir := filepath.Dir(filepath.Dir(path)); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return filepath.Join(dir, name)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	below, _ := filepath.Glob(filepath.Join(globbed.Replace(filepath.Dir(path)), "*", globbed.Replace(name))) // of a pattern that is wrong: none
	if len(below) == 1 {
		return below[0]
	}
	return ""
}

// globbed quotes what has a meaning in patterns.
var globbed = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`)

// readFile reads the graphs and server settings of a langgraph.json.
func readFile(path string, c *Config, lookup func(string) (string, bool)) ([]Warning, Mistakes) {
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if deerflow := filepath.Join(filepath.Dir(path), "config.yaml"); isDeerFlow(deerflow) {
			return nil, Mistakes{{Text: path + " does not exist; " + deerflow + " looks like that of DeerFlow, which is served with --deerflow (docs/deerflow.md)"}}
		}
		if other := nearby(path); other != "" {
			return nil, Mistakes{{Text: path + " does not exist; " + other + " does: start in its folder, or name it with --config " + shell.Quote(other)}}
		}
		return nil, Mistakes{{Text: path + " does not exist; name your file with --config, have `understudy init` write one, or write: " +
			`{"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}`}}
	}
	if err != nil {
		return nil, Mistakes{{Text: unread(path, err)}}
	}
	c.File, c.Dir = path, filepath.Dir(path)
	c.Workers.PythonPath = []string{c.Dir}
	return parseFile(src, c, lookup)
}

// unread says why the file at path, which exists, cannot be read, and what to do.
func unread(path string, err error) string {
	info, statErr := os.Stat(path)
	switch {
	case statErr == nil && info.IsDir():
		return path + " is a folder; name the file: --config " + shell.Quote(filepath.Join(path, "langgraph.json"))
	case statErr == nil && errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s cannot be read by user %d (mode %04o); run chmod a+r %s, or start as its owner", path, os.Geteuid(), info.Mode().Perm(), shell.Quote(path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s cannot be read by user %d: %v; let this user enter the folders above it, or name another file with --config", path, os.Geteuid(), err)
	}
	return err.Error() + "; name another file with --config"
}

func parseFile(src []byte, c *Config, lookup func(string) (string, bool)) ([]Warning, Mistakes) {
	f := &file{reader: reader{file: filepath.Base(c.File), src: src}, c: c, lookup: lookup}
	v, mistake := parseJSON(src)
	if mistake != nil {
		mistake.File = f.file
		return nil, Mistakes{*mistake}
	}
	f.root(v)
	c.src, c.offsets = src, map[string]int{}
	v.index("", c.offsets)
	return f.warnings, f.mistakes
}

func (f *file) root(v value) {
	var webhooks value
	quiet := func(value, string) {}
	later := func(text string) func(value, string) {
		return func(v value, key string) {
			if !v.empty() {
				f.warn(key, "%s", text)
			}
		}
	}
	fields := map[string]func(value, string){
		"graphs":         f.graphs,
		"dependencies":   f.dependencies,
		"env":            f.env,
		"python_version": f.pythonVersion,
		"http":           f.http,
		"webhooks":       func(v value, _ string) { webhooks = v },
		"checkpointer":   f.checkpointer,
		"store":          f.store,
		"history":        f.history,
		"auth":           f.auth,
		"limits":         f.limits,
		"encryption":     f.encryption,
		"ui":             f.components,
		"ui_config":      f.componentConfig,
		"priority":       later("not in this version; runs are taken in order of creation"),
		"node_version":   later("JavaScript graphs are not in this version; ignored"),
		// Of these only the builder of container images speaks.
		"$schema": quiet, "api_version": quiet, "base_image": quiet, "image_distro": quiet, "pip_config_file": quiet, "pip_installer": quiet,
		"source": quiet, "dockerfile_lines": quiet, "keep_pkg_tools": quiet,
	}
	if f.c.Mode == Proxy {
		// The rest is the upstream's, which knows best what is right for it.
		for key := range fields {
			if key != "history" {
				fields[key] = quiet
			}
		}
		fields["http"] = f.onlyCORS
		f.section(v, "", fields)
		return
	}
	f.section(v, "", fields)
	// Templates in webhook headers need env, wherever in the file it stands.
	f.webhooks(webhooks, "webhooks")
	for _, do := range f.later {
		do()
	}
	f.strangers()
	if len(f.mistakes) == 0 && len(f.c.Graphs) == 0 {
		f.wrong(v, "graphs", `names no graph; write "graphs": {"agent": "./agent.py:graph"}`)
	}
}

const graphExample = "./agent.py:graph"

func (f *file) graphs(v value, key string) {
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write an object: {"agent": %q}`, v.kind(), graphExample)
		return
	}
	for _, m := range members {
		if m.key == "" {
			f.wrong(m.value, key, "has a graph without a name")
			continue
		}
		if g, ok := f.graph(m.key, m.value, join(key, m.key)); ok {
			f.c.Graphs = append(f.c.Graphs, g)
		}
	}
}

// graph reads "path:attr", an object with path and description, one with the url of another
// server, or one that declares an agent.
func (f *file) graph(id string, v value, key string) (Graph, bool) {
	g := Graph{ID: id}
	spec := v
	if members, isObject := v.data.([]member); isObject {
		spec = value{at: v.at}
		for _, m := range members {
			switch m.key {
			case "url":
				return g, f.remote(&g, v, key)
			case "agent":
				return g, f.declared(&g, v, key)
			}
		}
		f.section(v, key, map[string]func(value, string){
			"path":        func(v value, _ string) { spec = v },
			"description": f.setText(&g.Description, "What the graph is for."),
			"concurrency": f.concurrency(id),
		})
		if spec.data == nil {
			f.wrong(v, key, `has no path; write {"path": %q}`, graphExample)
			return g, false
		}
	}
	text, ok := spec.data.(string)
	if !ok {
		f.wrong(spec, key, `is %s; write "file.py:name", such as %q`, spec.kind(), graphExample)
		return g, false
	}
	return f.import_(g, text, spec, key)
}

// concurrency reads how many runs of a graph a server executes at once.
func (f *file) concurrency(id string) func(value, string) {
	return func(v value, key string) { f.c.limitGraph(id, int(f.integer(v, key, 1, maxConcurrency))) }
}

// import_ splits "path:attr" or "module:attr". As LangGraph Server: a slash makes it a path, the
// last colon divides.
func (f *file) import_(g Graph, text string, v value, key string) (Graph, bool) {
	colon := strings.LastIndexByte(text, ':')
	if colon <= 0 || colon == len(text)-1 {
		f.wrong(v, key, `%q names no attribute; write "file.py:name", such as %q`, text, graphExample)
		return g, false
	}
	where := text[:colon]
	g.Attr = text[colon+1:]
	switch ext := filepath.Ext(where); ext {
	case ".js", ".ts", ".mjs", ".mts", ".cjs", ".cts", ".jsx", ".tsx":
		f.wrong(v, key, "%s is JavaScript, and this version serves Python graphs; keep serving it with LangGraph's own JavaScript server", where)
		return g, false
	}
	if !strings.Contains(where, "/") && !strings.HasSuffix(where, ".py") {
		g.Module = where
		return g, true
	}
	g.Path = f.abs(where)
	if _, err := os.Stat(g.Path); err != nil {
		f.warn(key, "there is no file %s, so runs of this graph will fail; %s", g.Path, likelyFile(g.Path))
	}
	return g, true
}

// likelyFile says which file may be meant by a path at which there is none.
func likelyFile(path string) string {
	best, least := "", 3
	near, _ := os.ReadDir(filepath.Dir(path)) // of a folder that is not there: none
	for _, other := range near {
		if d := levenshtein.ComputeDistance(filepath.Base(path), other.Name()); d < least {
			best, least = other.Name(), d
		}
	}
	if best != "" {
		return "perhaps " + best + " is meant"
	}
	return "create it, or correct the path"
}

// read reads a file that this one names.
func (f *file) read(path string) ([]byte, error) {
	f.c.Files = append(f.c.Files, path)
	text, err := os.ReadFile(path)
	if info, e := os.Stat(path); err != nil && e == nil && info.IsDir() {
		err = errors.New("it is a folder")
	}
	return text, err
}

func (f *file) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(f.c.Dir, path)
}

// dependencies reads the dependencies: folders are added to the path of the workers, the rest is
// for pip.
func (f *file) dependencies(v value, key string) {
	for _, dep := range f.texts(v, key, ".") {
		folder := f.abs(dep)
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			if folder != f.c.Dir {
				f.c.Workers.PythonPath = append(f.c.Workers.PythonPath, folder)
			}
		} else if strings.HasPrefix(dep, ".") || filepath.IsAbs(dep) {
			f.warn(key, "there is no folder %s", folder)
		}
	}
}

// env is the name of a dotenv file, or the variables themselves.
func (f *file) env(v value, key string) {
	switch data := v.data.(type) {
	case string:
		if data == "" {
			return
		}
		path := f.abs(data)
		text, err := f.read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.c.MissingEnv = path
			f.warn(key, "there is no file %s; create it, or remove env", path)
		case errors.Is(err, fs.ErrPermission):
			f.unreadable(v, key, path)
		case err != nil:
			f.wrong(v, key, "%s cannot be read: %v; name a file of NAME=value lines", data, err)
		default:
			var mistakes Mistakes
			f.c.Env, mistakes = parseEnv(text)
			for _, m := range mistakes {
				m.File = data
				f.mistakes = append(f.mistakes, m)
			}
		}
	case []member:
		f.c.Env = make(map[string]string, len(data))
		for _, m := range data {
			switch d := m.data.(type) {
			case string:
				f.c.Env[m.key] = d
			case json.Number:
				f.c.Env[m.key] = d.String()
			case bool:
				f.c.Env[m.key] = strconv.FormatBool(d)
			case nil: // unset
			default:
				f.wrong(m.value, join(key, m.key), "is %s; a variable holds text", m.kind())
			}
		}
	default:
		f.wrong(v, key, `is %s; write the name of a file, such as ".env", or an object: {"NAME": "value"}`, v.kind())
	}
}

// unreadable reports an env file that this process may not read. One of another user, such as a
// mounted file of mode 0600 in a container, is left out, because its variables may have come by
// the environment. Our own is a mistake.
func (f *file) unreadable(v value, key, path string) {
	info, err := os.Stat(path)
	if err != nil {
		f.wrong(v, key, "%s cannot be read: %v", path, err)
		return
	}
	uid, known := owner.Of(info)
	if !known || uid == os.Geteuid() {
		f.wrong(v, key, "%s cannot be read (mode %04o); run chmod 600 %s", path, info.Mode().Perm(), shell.Quote(path))
		return
	}
	f.warn(key, "%s cannot be read and is left out: it belongs to user %d (mode %04o), and this process runs as user %d. Pass its variables by the environment "+
		"(docker run --env-file, env_file in compose.yaml), run as its owner (docker run --user %d), or let others read it (chmod 644)",
		path, uid, info.Mode().Perm(), os.Geteuid(), uid)
}

var pythonVersion = regexp.MustCompile(`^3\.(\d+)$`)

func (f *file) pythonVersion(v value, key string) {
	if n, isNumber := v.data.(json.Number); isNumber {
		f.wrong(v, key, "is a number; write it in quotes: %q", n.String())
		return
	}
	text := f.text(v, key, "3.12")
	if _, isText := v.data.(string); !isText {
		return
	}
	// "3.12-bookworm" names a container image there.
	version, _, _ := strings.Cut(text, "-")
	if m := pythonVersion.FindStringSubmatch(version); m == nil {
		f.wrong(v, key, `%q is not a version of Python; write major and minor, such as "3.12"`, text)
		return
	} else if minor, _ := strconv.Atoi(m[1]); minor < 10 {
		f.wrong(v, key, "langgraph needs Python 3.10 or later, not %s", version)
		return
	}
	f.c.Workers.PythonVersion = version
}

func (f *file) checkpointer(v value, key string) {
	kept := func(v value, key string) {
		if s, _ := v.data.(string); s != "default" {
			f.warn(key, "ignored: this server stores checkpoints itself")
		}
	}
	f.section(v, key, map[string]func(value, string){
		"serde": f.serde,
		"ttl":   f.threadTTL,
		"path": f.refused("custom checkpointers are not supported: checkpoints, messages and events are written in one transaction, which no other storage can be part of. " +
			"Remove it; --data or --database-url say where checkpoints are, and understudy import brings those of LangGraph's savers over"),
		"backend": kept, "uri": kept,
	})
}

func (f *file) serde(v value, key string) {
	f.section(v, key, map[string]func(value, string){
		"allowed_json_modules":    func(v value, key string) { f.c.Serde.AllowedJSONModules = f.modules(v, key) },
		"allowed_msgpack_modules": func(v value, key string) { f.c.Serde.AllowedMsgpackModules = f.modules(v, key) },
		"pickle_fallback":         f.setBool(&f.c.Serde.PickleFallback),
	})
}

// modules is true, or a list such as [["my_agent", "types", "Item"]].
func (f *file) modules(v value, key string) *Modules {
	if all, isBool := v.data.(bool); isBool {
		return &Modules{All: all}
	}
	items, ok := v.data.([]value)
	if !ok {
		f.wrong(v, key, `is %s; write true, or a list such as [["my_agent", "types", "Item"]]`, v.kind())
		return nil
	}
	m := &Modules{List: [][]string{}}
	for _, item := range items {
		m.List = append(m.List, f.texts(item, key, "my_agent"))
	}
	return m
}

func (f *file) store(v value, key string) {
	f.section(v, key, map[string]func(value, string){
		"index": f.storeIndex,
		"ttl":   f.itemTTL,
		"path": f.refused("custom stores are not supported, and without yours graphs would miss what is in it. Remove it; this server keeps items itself, understudy import " +
			"brings those of LangGraph's stores over, and nodes may use a store of their own"),
	})
}

// refused is for keys that would be missed if they were ignored.
func (f *file) refused(text string) func(value, string) {
	return func(v value, key string) {
		if !v.empty() {
			f.wrong(v, key, "%s", text)
		}
	}
}

func (f *file) notYet(text string) func(value, string) {
	return func(v value, key string) {
		if !v.empty() {
			f.warn(key, "%s", text)
		}
	}
}

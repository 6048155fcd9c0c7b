package style

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the path of this module.
var module = modulePath()

// layers are the packages from top to bottom: one may import what stands below it, and its own layer only where peers are named.
// A package belongs to the longest prefix that is listed.
var layers = [][]string{
	{"cmd", "conformance", "bench", "docs/build", "examples", "deploy"},
	{""},             // the root package, which embedders import
	{"internal/app"}, // puts the parts together
	{"server"},
	{"internal/config"}, // it reads the options of what it configures
	{"run", "assistant", "thread", "store", "proxy", "transfer", "deerflow", "auth"},
	{"eventstore/overlay", "checkpointer/saver", "gate"}, // they know what graphs send and the event store; the gate, how an interpreter fails
	{"graph", "checkpointer", "eventstore", "bridge"},
	{"id", "access"},
	{"internal", "docs", "studio"},
}

// peers may import within their layer.
var peers = map[string][]string{
	"run":        {"assistant", "thread", "store"},
	"deerflow":   {"store"}, // memories are items
	"thread":     {"store"},
	"transfer":   {"assistant", "thread", "store"}, // it moves what they own, by the interfaces of their storage
	"proxy":      {"thread"},
	"graph":      {"checkpointer"},
	"eventstore": {"checkpointer"},
}

// sides are packages next to the layers. A side may import the domain, whose types it encodes or whose interfaces it satisfies;
// only its importers may import it.
var sides = map[string]struct{ importers []string }{
	"compat":  {importers: []string{"internal/app", "server", "proxy"}},
	"storage": {importers: []string{"internal/app"}},
}

// above is what a side must not know.
var above = []string{"cmd", "", "internal/app", "server"}

// testOnly are packages that only tests may link.
var testOnly = regexp.MustCompile(`^(github\.com/stretchr/testify|github\.com/google/go-cmp|go\.uber\.org/goleak)(/|$)|^` + regexp.QuoteMeta(module) + `/.*test$`)

type pkg struct {
	ImportPath, Dir, Name  string
	GoFiles, Imports, Deps []string
}

func modulePath() string {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		panic(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "module ")
}

// list returns the packages of this module that are built, tests left out.
func list(t *testing.T, patterns ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Name,GoFiles,Imports,Deps"}, patterns...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else {
			require.NoError(t, err)
		}
		all = append(all, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	return dir
}

// short is the path within the module, or false for foreign packages.
func short(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// place returns the layer of a package and the name it is listed under.
func place(path string) (layer int, name string) {
	layer, name = -1, ""
	for i, names := range layers {
		for _, n := range names {
			if within(path, n) && (layer < 0 || len(n) > len(name)) {
				layer, name = i, n
			}
		}
	}
	return layer, name
}

func within(path, folder string) bool {
	return path == folder || folder != "" && strings.HasPrefix(path, folder+"/")
}

func side(path string) (string, bool) {
	for name := range sides {
		if within(path, name) {
			return name, true
		}
	}
	return "", false
}

// allowed reports whether one package may import another, and if not, why.
func allowed(from, to string) (bool, string) {
	if toSide, ok := side(to); ok {
		if fromSide, ok := side(from); ok && fromSide == toSide {
			return true, ""
		}
		if slices.ContainsFunc(sides[toSide].importers, func(s string) bool { return from == s || s != "" && within(from, s) }) {
			return true, ""
		}
		return false, toSide + " is for " + strings.Join(sides[toSide].importers, ", ") + " alone"
	}
	if _, ok := side(from); ok {
		if slices.ContainsFunc(above, func(s string) bool { return to == s || s != "" && within(to, s) }) {
			return false, "it points up"
		}
		return true, ""
	}
	fromLayer, fromName := place(from)
	toLayer, toName := place(to)
	switch {
	case fromLayer < 0:
		return false, from + " has no place in the layers; give it one in internal/style"
	case toLayer < 0:
		return false, to + " has no place in the layers; give it one in internal/style"
	case toLayer > fromLayer || fromName == toName:
		return true, ""
	case toLayer == fromLayer && slices.Contains(peers[fromName], toName):
		return true, ""
	}
	return false, "it points up or sideways"
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "./...") {
		from, _ := short(p.ImportPath)
		for _, path := range p.Imports {
			to, ours := short(path)
			if !ours {
				continue
			}
			if ok, why := allowed(from, to); !ok {
				t.Errorf("%s imports %s: %s", p.ImportPath, path, why)
			}
		}
	}
}

// The rule is tested too: a test that lets everything pass looks like one that finds nothing.
func TestAllowed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		from, to string
		want     bool
	}{
		{"cmd/understudy", "internal/app/doctor", true},
		{"", "internal/app", true},
		{"internal/app", "", false},
		{"internal/app/doctor", "internal/app/backend", true},
		{"server", "internal/app", false},
		{"storage/sqlite", "internal/app/backend", false},
		{"", "cmd/understudy", false},
		{"server", "run", true},
		{"run", "server", false},
		{"run", "graph", true},
		{"graph/python", "run", false},
		{"graph/python", "graph", true},
		{"graph/python", "checkpointer", true},
		{"checkpointer", "graph", false},
		{"eventstore", "checkpointer", true},
		{"checkpointer", "eventstore", false},
		{"run", "compat", false},
		{"server", "compat", true},
		{"compat", "thread", true},
		{"compat", "server", false},
		{"storage/sqlite", "run", true},
		{"storage/sqlite", "server", false},
		{"run", "storage/sqlite", false},
		{"", "storage/sqlite", false},
		{"internal/app/backend", "storage/sqlite", true},
		{"id", "graph", false},
		{"thread", "run", false},
		{"nowhere", "id", false},
	}
	for _, tt := range tests {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			t.Parallel()
			if got, why := allowed(tt.from, tt.to); got != tt.want {
				t.Errorf("allowed = %v (%s), want %v", got, why, tt.want)
			}
		})
	}
}

func TestBinaryHasNoTestHelpers(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "./cmd/...") {
		for _, dep := range p.Deps {
			if testOnly.MatchString(dep) {
				t.Errorf("%s links %s", p.ImportPath, dep)
			}
		}
	}
	// Of testing itself only our own use is looked for: libraries have theirs.
	for _, p := range list(t, "./...") {
		if slices.Contains(p.Imports, "testing") && !strings.HasSuffix(p.ImportPath, "test") {
			t.Errorf("%s imports testing outside of its tests", p.ImportPath)
		}
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "./...") {
		if len(p.GoFiles) == 0 {
			continue
		}
		if !slices.ContainsFunc(p.GoFiles, func(file string) bool { return hasPackageComment(t, filepath.Join(p.Dir, file)) }) {
			t.Errorf("%s has no package comment; write it in doc.go", p.ImportPath)
		}
	}
}

func hasPackageComment(t *testing.T, path string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
	require.NoError(t, err)
	return f.Doc != nil
}

// unfinished finds what has no place in a committed file: paths of one machine, hosts of package registries, notes to oneself.
// The words are put together here, so that this file does not hold them.
var unfinished = regexp.MustCompile(strings.Join([]string{
	`/wor` + `k/(main|shared|\.)`, `/tmp/re` + `f\b`, `/ro` + `ot/`, `\bTO` + `DO\b`, `\bFIX` + `ME\b`, `\bXX` + `X\b`,
	`registry\.np` + `mjs`, `pypi\.(or` + `g|io)`, `proxy\.gola` + `ng`, `files\.pytho` + `nhosted`,
}, "|"))

// hints are texts of which every match of unfinished has one. They are found much faster.
var hints = []string{"/wor" + "k/", "/tmp/re" + "f", "/ro" + "ot/", "TO" + "DO", "FIX" + "ME", "XX" + "X", "registry", "pypi", "proxy.", "files."}

func TestFilesAreFinished(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	for _, name := range strings.Split(strings.Trim(string(out), "\x00"), "\x00") {
		text, err := readFile(filepath.Join(root(t), name))
		require.NoError(t, err)
		if !slices.ContainsFunc(hints, func(hint string) bool { return bytes.Contains(text, []byte(hint)) }) {
			continue
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if found := unfinished.Find(line); found != nil {
				t.Errorf("%s:%d: holds %q", name, i+1, found)
			}
		}
	}
}

// readFile returns nothing for binary files, links and what has just been deleted.
func readFile(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 {
		return nil, err
	}
	return text, nil
}

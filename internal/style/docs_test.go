package style

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// guides are the pages that lead through the code: what they name in backquotes has to exist.
var guides = []string{"docs/design.md", "docs/runs.md"}

// foreign are words in backquotes that are neither Go identifiers nor paths of this module: the field's words, events, statuses and settings.
var foreign = strings.Fields(`
	SummarizationMiddleware useStream langgraph-sdk langgraph.json values updates messages metadata runs update_queue compact
	pending running success error interrupted timeout subgraphs ServerDied`)

// declarations are the names that the Go files of the module declare, by package folder and by file: functions, methods (also as Type.Method),
// types, fields, methods of interfaces, variables and constants.
type declarations struct {
	all            map[string]bool
	byDir, byFile  map[string]map[string]bool
	byName         map[string][]string // folders of packages by package name
	interfaces     map[string]*ast.InterfaceType
	interfaceFiles *token.FileSet
}

func declared(t *testing.T) *declarations {
	t.Helper()
	d := &declarations{
		all: map[string]bool{}, byDir: map[string]map[string]bool{}, byFile: map[string]map[string]bool{},
		byName: map[string][]string{}, interfaces: map[string]*ast.InterfaceType{}, interfaceFiles: token.NewFileSet(),
	}
	for _, p := range list(t, "./...") {
		dir, ours := short(p.ImportPath)
		if !ours {
			continue
		}
		d.byName[p.Name] = append(d.byName[p.Name], dir)
		d.byDir[dir] = map[string]bool{}
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(d.interfaceFiles, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			name := path.Join(dir, file)
			d.byFile[name] = map[string]bool{}
			d.read(f, func(s string) { d.all[s], d.byDir[dir][s], d.byFile[name][s] = true, true, true })
		}
	}
	return d
}

func (d *declarations) read(f *ast.File, add func(string)) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			add(decl.Name.Name)
			if decl.Recv != nil {
				add(receiver(decl.Recv.List[0].Type) + "." + decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						add(n.Name)
					}
				case *ast.TypeSpec:
					add(spec.Name.Name)
					var members *ast.FieldList
					switch of := spec.Type.(type) {
					case *ast.StructType:
						members = of.Fields
					case *ast.InterfaceType:
						members = of.Methods
						d.interfaces[f.Name.Name+"."+spec.Name.Name] = of
					default:
						continue
					}
					for _, m := range members.List {
						for _, n := range m.Names {
							add(n.Name)
							add(spec.Name.Name + "." + n.Name)
						}
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

var (
	fence     = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	quoted    = regexp.MustCompile("`([^`]+)`")
	bareName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.json)?$`)
	qualified = regexp.MustCompile(`\b([a-z]+)\.([A-Za-z]\w*(?:\.[A-Za-z]\w*)?)\b`)
	pathLike  = regexp.MustCompile(`^[a-z][\w.-]*(/[\w.-]+)+$|^[\w-]+\.(go|md)$`)
	inFile    = regexp.MustCompile("((?:`[A-Za-z]\\w*`(?:, | and )?)+) in `([\\w/]+\\.go)`")
)

// missing returns what a page names and the tree does not have.
func missing(page, root string, d *declarations) []string {
	var out []string
	add := func(what, why string) { out = append(out, what+": "+why) }
	member := func(pkg, name string) bool {
		return slices.ContainsFunc(d.byName[pkg], func(dir string) bool { return d.byDir[dir][name] })
	}
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		if block[1] == "mermaid" {
			for _, m := range qualified.FindAllStringSubmatch(block[2], -1) {
				if d.byName[m[1]] != nil && !member(m[1], m[2]) {
					add(m[0], "not declared in package "+m[1])
				}
			}
		}
		if block[1] == "go" {
			out = append(out, d.differing(block[2])...)
		}
	}
	text := fence.ReplaceAllString(page, "")
	for _, m := range inFile.FindAllStringSubmatch(text, -1) {
		for _, n := range quoted.FindAllStringSubmatch(m[1], -1) {
			if !d.byFile[m[2]][n[1]] {
				add(n[1], "not declared in "+m[2])
			}
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if slices.Contains(foreign, name) {
			continue
		}
		if pathLike.MatchString(name) {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				add(name, "no such file or folder")
			}
			continue
		}
		if q := qualified.FindStringSubmatch(name); q != nil && q[0] == name && d.byName[q[1]] != nil {
			if !member(q[1], q[2]) {
				add(name, "not declared in package "+q[1])
			}
			continue
		}
		if bareName.MatchString(name) && !d.all[name] && d.byName[name] == nil {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				add(name, "not declared anywhere, and no package; if it is a word of LangGraph, add it to foreign")
			}
		}
	}
	return out
}

// differing compares the interfaces of a Go example with those of the tree.
func (d *declarations) differing(src string) (out []string) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "example.go", "package example\n"+src, parser.SkipObjectResolution)
	if err != nil {
		return []string{"example does not parse: " + err.Error()}
	}
	for _, decl := range f.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			of, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			shown, ok := of.Type.(*ast.InterfaceType)
			if !ok {
				continue
			}
			want := methods(fset, shown)
			found := false
			for name, i := range d.interfaces {
				found = found || strings.HasSuffix(name, "."+of.Name.Name) && slices.Equal(want, methods(d.interfaceFiles, i))
			}
			if !found {
				out = append(out, of.Name.Name+": no interface of this name has these methods")
			}
		}
	}
	return out
}

func methods(fset *token.FileSet, i *ast.InterfaceType) (out []string) {
	for _, m := range i.Methods.List {
		var b bytes.Buffer
		for _, n := range m.Names {
			b.WriteString(n.Name)
		}
		_ = printer.Fprint(&b, fset, m.Type)
		out = append(out, b.String())
	}
	return out
}

func TestGuidesNameWhatExists(t *testing.T) {
	t.Parallel()
	d := declared(t)
	for _, name := range guides {
		page, err := os.ReadFile(filepath.Join(root(t), name))
		require.NoError(t, err)
		for _, m := range missing(string(page), root(t), d) {
			t.Errorf("%s names %s", name, m)
		}
	}
}

// The check is tested too: a pattern that matches nothing finds nothing.
func TestMissing(t *testing.T) {
	t.Parallel()
	d := declared(t)
	tests := []struct {
		page string
		want int
	}{
		{"`service.Service.Begin`, `graph/python`, `internal/style`, `server`, `values`", 0},
		{"`service.Service.Bygone`", 1},
		{"`run.Bygone`", 1},
		{"`run/bygone.go`", 1},
		{"`bygoneFunction`", 1},
		{"`claimDue` in `run/queue/queue.go`", 0},
		{"`execute` and `claimDue` in `run/execute/executor.go`", 1},
		{"```mermaid\nA --> B[\"service.Service: Begin\"]\n```", 0},
		{"```mermaid\nA --> B[\"service.bygone\"]\n```", 1},
		{"```go\ntype Graph interface{ Bygone() }\n```", 1},
		{"`POST /threads/{id}/runs`, `[\"a\"]`, `--flag`", 0},
	}
	for _, tt := range tests {
		require.Len(t, missing(tt.page, root(t), d), tt.want, tt.page)
	}
}

var (
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	inline   = regexp.MustCompile("`[^`\n]*`")
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are those that GitHub derives from the headings of a page.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		out[strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// Links between pages lead to files and headings that exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	require.NoError(t, err)
	top, err := filepath.Glob(filepath.Join(root(t), "*.md"))
	require.NoError(t, err)
	links := 0
	for _, name := range append(pages, top...) {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		text := inline.ReplaceAllString(fence.ReplaceAllString(string(page), ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(name), file)
			if file == "" {
				target = name
			}
			to, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s links to %s, which does not exist", filepath.Base(name), m[1])
			} else if anchor != "" && !anchors(string(to))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", filepath.Base(name), m[1])
			}
		}
	}
	require.Greater(t, links, 50)
}

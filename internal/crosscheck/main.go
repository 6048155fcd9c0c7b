// Command crosscheck checks the types of packages and of their tests for other systems, from their sources: what is missing there, or has another type or
// size. It takes seconds, where a compiler without a cache needs minutes for each system, most of them for SQLite. What only a compiler or linker
// finds, such as an assembler file that is missing, "make cross" does.
//
//	go run ./internal/crosscheck windows/amd64,linux/arm64 ./...
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: crosscheck system/architecture,… package…")
		os.Exit(2)
	}
	failed := false
	for target := range strings.SplitSeq(os.Args[1], ",") {
		if err := check(".", target, os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "for %s:\n%v\n", target, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// listed is a package as go list describes it. The test variant of a package has another ImportPath, and ImportMap leads its importers to it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	DepOnly         bool
	Error           *struct{ Err string }

	files []*ast.File
	err   error
}

// check returns what is wrong with the packages of the module in dir on a target such as windows/amd64.
func check(dir, target string, packages []string) error {
	system, arch, ok := strings.Cut(target, "/")
	sizes := types.SizesFor("gc", arch)
	if !ok || sizes == nil {
		return fmt.Errorf("a target is a system and an architecture, such as windows/amd64, not %q", target)
	}
	all, err := list(dir, system, arch, packages)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	parse(fset, all)
	done := map[string]*types.Package{"unsafe": types.Unsafe}
	var problems []error
	for _, p := range all { // each after those that it imports
		if p.ImportPath == "unsafe" {
			continue
		}
		if !p.DepOnly {
			problems = append(problems, p.err)
			if p.Error != nil {
				problems = append(problems, errors.New(p.ImportPath+": "+p.Error.Err))
			}
		}
		conf := types.Config{
			Importer: importer(func(path string) (*types.Package, error) {
				if to, ok := p.ImportMap[path]; ok {
					path = to
				}
				if found := done[path]; found != nil {
					return found, nil
				}
				return nil, fmt.Errorf("%s is not among the packages", path)
			}),
			Sizes: sizes, IgnoreFuncBodies: p.DepOnly,
			Error: func(err error) {
				if !p.DepOnly {
					problems = append(problems, err)
				}
			},
		}
		path, _, _ := strings.Cut(p.ImportPath, " ") // "a [a.test]" is a with its tests
		done[p.ImportPath], _ = conf.Check(path, fset, p.files, nil)
	}
	return errors.Join(problems...)
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }

func list(dir, system, arch string, packages []string) ([]*listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,DepOnly,Error"}, packages...)...) //nolint:gosec // its arguments are the developer's
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, said.Bytes())
	}
	var all []*listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(p.ImportPath, ".test") { // the program that go test makes
			all = append(all, p)
		}
	}
}

// parse reads the files of all packages.
func parse(fset *token.FileSet, all []*listed) {
	todo := make(chan *listed)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p := range todo {
				for _, name := range p.GoFiles {
					if !filepath.IsAbs(name) {
						name = filepath.Join(p.Dir, name)
					}
					file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
					p.err = errors.Join(p.err, err)
					if file != nil {
						p.files = append(p.files, file)
					}
				}
			}
		})
	}
	for _, p := range all {
		todo <- p
	}
	close(todo)
	workers.Wait()
}

package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"understudy/internal/shell"
)

//go:embed templates
var templates embed.FS

// projects are the templates of init. Each runs without a key.
var projects = []struct {
	name, what string
	next       string // commands after cd
}{
	{"agent", "an agent that langgraph.json declares, without code and Python", "understudy dev"},
	{"python", "a graph in Python", pythonNext},
	{"react-agent", "an agent with a tool in Python", pythonNext},
	{"approval", "a graph in Python that asks a person before it acts", pythonNext},
	{"go", "a Go program with graphs and the server inside", goNext() + "\ngo run . -addr 127.0.0.1:2024"},
	{"frontend", "an agent and a React page on useStream", "understudy dev\nnpm install && npm start        (in another terminal)"},
	{"deerflow", "DeerFlow's agent in Go, with files, commands and skills", "DEER_FLOW_AUTH_DISABLED=1 understudy serve --deerflow --studio"},
}

const pythonNext = "python3 -m venv .venv && .venv/bin/python -m pip install -r requirements.txt\nunderstudy dev"

// goNext gets this module: by its path when it has a public one, else from a checkout, that of the program if it is in one.
func goNext() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		if host, _, _ := strings.Cut(info.Main.Path, "/"); strings.Contains(host, ".") {
			return "go mod tidy"
		}
	}
	return "go work init . " + checkout()
}

// checkout is the folder of the sources that the program is built in, as make build does.
func checkout() string {
	if program, err := os.Executable(); err == nil {
		if program, err = filepath.EvalSymlinks(program); err == nil {
			dir := filepath.Dir(filepath.Dir(program))
			if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(text), "module understudy\n") {
				return dir
			}
		}
	}
	return "PATH-TO-UNDERSTUDY"
}

func newInit() *cobra.Command {
	names := make([]string, len(projects))
	list := ""
	for i, p := range projects {
		names[i] = p.name
		list += fmt.Sprintf("  %-12s %s\n", p.name, p.what)
	}
	template := projects[0].name
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a first project that runs without keys",
		Long: `Writes a first project into DIR (here when left out). Each template runs at once, without a key; the README.md of the project
says how to continue, such as with a real model. Files that are there are never overwritten: if one is, nothing is written.

Templates:
` + list,
		Example: `  understudy init my-agent && cd my-agent && understudy dev
  understudy init my-graph --template react-agent`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misused(cmd, "takes one folder, but got %q", args)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&template, "template", "t", template, "`NAME` of the template: "+strings.Join(names, ", "))
	complete(cmd, "template", names)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := "."
		if len(args) == 1 {
			dir = args[0]
		}
		for _, p := range projects {
			if p.name == template {
				return writeProject(p.name, p.what, p.next, dir, cmd.OutOrStdout())
			}
		}
		return usageError{fmt.Errorf("there is no template %q; write one of %s", template, strings.Join(names, ", "))}
	}
	return cmd
}

// projectFiles returns the files of a template by their names in a project. Names that would not be embedded, or be taken for files of ours, are others there.
func projectFiles(template string) (map[string][]byte, error) {
	files := map[string][]byte{}
	root := path.Join("templates", template)
	err := fs.WalkDir(templates, root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := templates.ReadFile(at)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(at, root+"/"), ".tmpl")
		switch name {
		case "gitignore":
			name = ".gitignore"
		case "env.example":
			name = ".env.example"
			files[".env"] = text
		}
		files[name] = text
		return nil
	})
	return files, err
}

// writeProject writes all files, or none.
func writeProject(template, what, next, dir string, out io.Writer) error {
	files, err := projectFiles(template)
	if err != nil {
		return err
	}
	made, err := makeFolders(dir)
	if err != nil {
		removeAll(made)
		return fmt.Errorf("%w; %s", err, adviceOn(err, files))
	}
	var there []string
	for _, name := range sortedKeys(files) {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			there = append(there, name)
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("%s has %s already; nothing was written: name another folder", dir, strings.Join(there, ", "))
	}
	names := sortedKeys(files)
	for i, name := range names {
		at := filepath.Join(dir, name)
		mode := fs.FileMode(0o644)
		if name == ".env" {
			mode = 0o600 // keys
		}
		folders, err := makeFolders(filepath.Dir(at))
		made = append(made, folders...)
		if err == nil {
			err = writeNew(at, files[name], mode)
		}
		if err != nil {
			if !errors.Is(err, fs.ErrExist) { // it was written by another program
				i++
			}
			for _, written := range names[:i] {
				_ = os.Remove(filepath.Join(dir, written)) // as far as it is there
			}
			removeAll(made)
			return fmt.Errorf("%w; nothing was written: %s", err, adviceOn(err, files))
		}
	}
	steps, talk := strings.Split(next, "\n"), ""
	if template == "go" {
		talk = " chat" // it has two graphs
	}
	if filepath.Clean(dir) != "." {
		if len(steps) == 1 {
			steps[0] = "cd " + shell.Quote(dir) + " && " + steps[0]
		} else {
			steps = append([]string{"cd " + shell.Quote(dir)}, steps...)
		}
	}
	fmt.Fprintf(out, "wrote %s into %s; serve it:\n\n    %s\n\nand talk to it from another terminal: understudy chat%s\n", what, dir, strings.Join(steps, "\n    "), talk)
	return nil
}

// makeFolders creates a folder and those above it, and returns the ones that it created, the outermost first.
func makeFolders(dir string) (made []string, err error) {
	var missing []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		missing = append(missing, at)
	}
	for _, at := range slices.Backward(missing) {
		if err := os.Mkdir(at, 0o755); err == nil {
			made = append(made, at)
		} else if !errors.Is(err, fs.ErrExist) { // else another program made it
			return made, err
		}
	}
	return made, os.MkdirAll(dir, 0o755) // an error when it is a file
}

// removeAll removes created folders, the innermost first. Those into which another program has written stay.
func removeAll(made []string) {
	for _, at := range slices.Backward(made) {
		_ = os.Remove(at)
	}
}

// adviceOn returns what to do when files could not be written.
func adviceOn(err error, files map[string][]byte) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Sprintf("make room for %d KiB, or name another folder", sizeOf(files)>>10+1)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "name a folder in which this user may write"
	}
	return "name another folder"
}

func sizeOf(files map[string][]byte) (size int) {
	for _, text := range files {
		size += len(text)
	}
	return size
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// writeNew writes a file that must not be there.
func writeNew(path string, text []byte, mode fs.FileMode) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.Write(text)
	return err
}

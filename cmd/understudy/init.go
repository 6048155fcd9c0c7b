package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed starter
var starter embed.FS

// starterFiles are the files of a starter and their names there: those with a dot in front would not be embedded, or be taken for ours.
var starterFiles = [][2]string{
	{"langgraph.json", "langgraph.json"}, {"script.json", "script.json"}, {"README.md", "README.md"}, {"env.example", ".env.example"},
	{"env.example", ".env"}, {"gitignore", ".gitignore"},
}

func newInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a starter: an agent that works without keys and Python",
		Long: `Writes a langgraph.json that declares an agent, and what belongs to it, into DIR (here when
left out). The agent's model is scripted, so it works at once; README.md there says how to
give it a real one. Files that are there are never overwritten: if one is, nothing is written.`,
		Example: `  understudy init my-agent && cd my-agent && understudy dev`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("init takes one folder, but got %q; see understudy init --help", args)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return writeStarter(dir, cmd.OutOrStdout())
		},
	}
}

// writeStarter writes all files, or none.
func writeStarter(dir string, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var there []string
	for _, f := range starterFiles {
		if _, err := os.Lstat(filepath.Join(dir, f[1])); !errors.Is(err, fs.ErrNotExist) {
			there = append(there, f[1])
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("%s has %s already; nothing was written: name another folder", dir, strings.Join(there, ", "))
	}
	for _, f := range starterFiles {
		text, err := starter.ReadFile("starter/" + f[0])
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if f[1] == ".env" {
			mode = 0o600 // keys
		}
		if err := writeNew(filepath.Join(dir, f[1]), text, mode); err != nil {
			return err
		}
	}
	next := "understudy dev"
	if filepath.Clean(dir) != "." {
		next = "cd " + dir + " && " + next
	}
	fmt.Fprintf(out, "wrote an agent into %s; serve it:\n\n    %s\n", dir, next)
	return nil
}

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

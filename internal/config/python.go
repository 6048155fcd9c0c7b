package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"understudy/internal/shell"
)

// FindPython chooses the interpreter of the workers: the configured one, else .venv next to
// langgraph.json, else the active virtual environment, else python3 on the path. An environment
// that exists without its interpreter is an error: another one has other packages. It does not
// check whether langgraph is installed there: a worker reports that at its start.
func FindPython(asked, dir string, lookup func(string) (string, bool)) (string, error) {
	if asked != "" {
		path, err := exec.LookPath(asked)
		if errors.Is(err, fs.ErrPermission) {
			return "", fmt.Errorf("%q: cannot be started (%w): let this user read and execute it, and search the folders above it and above what it links to "+
				"(an interpreter in the home folder of another user is out of reach), or name another one, such as /usr/bin/python3", asked, err)
		}
		if err != nil {
			return "", fmt.Errorf("%q: cannot be started (%w): write the path of an interpreter, such as .venv/bin/python", asked, err)
		}
		return filepath.Abs(path)
	}
	venv := filepath.Join(dir, ".venv")
	python, err := interpreter(venv)
	if errors.Is(err, errOutOfReach) {
		return "", fmt.Errorf("%w; delete %s and create it again with the packages of your graphs and an interpreter that every user can read, such as /usr/bin/python3 "+
			"(/usr/bin/python3 -m venv %[3]s, or uv venv --python /usr/bin/python3 %[3]s): another run of python3, pyenv or uv may link to the same place", err, venv, shell.Quote(venv))
	}
	if err != nil {
		return "", fmt.Errorf("%w; delete %s and create it again (python3 -m venv %s) with the packages of your graphs, or name another interpreter with --python", err, venv, shell.Quote(venv))
	}
	if active, ok := lookup("VIRTUAL_ENV"); python == "" && ok && active != "" {
		if python, err = interpreter(active); err == nil && python == "" {
			err = fmt.Errorf("%s is no virtual environment", active)
		}
		if err != nil {
			return "", fmt.Errorf("VIRTUAL_ENV: %w; activate an environment that exists or unset VIRTUAL_ENV, or name an interpreter with --python", err)
		}
	}
	if python != "" {
		return filepath.Abs(python)
	}
	for _, name := range []string{"python3", "python"} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("no interpreter found; create one for your graphs:\n"+
		"  python3 -m venv %[1]s && %[2]s install langgraph\n"+
		"or name one with --python", shell.Quote(venv), shell.Quote(filepath.Join(venv, "bin", "pip")))
}

// interpreter returns the interpreter of a virtual environment; "" when there is no such folder.
func interpreter(venv string) (string, error) {
	// Symlinks are not resolved: Python finds its packages by the link's own location.
	python := filepath.Join(venv, "bin", "python")
	if runtime.GOOS == "windows" {
		python = filepath.Join(venv, "Scripts", "python.exe")
	}
	info, err := os.Stat(python)
	switch {
	case err == nil && !info.IsDir():
		return python, nil
	case errors.Is(err, fs.ErrPermission):
		for _, path := range []string{venv, python} {
			if end, err := follow(path); errors.Is(err, fs.ErrPermission) && end != path {
				return "", fmt.Errorf("%s links to %s, %w (%v); interpreters in home folders are also out of reach of a service with ProtectHome=yes", path, end, errOutOfReach, err) //nolint:errorlint // one is enough
			}
		}
		return "", fmt.Errorf("%s cannot be read (%w): an environment has to be readable by the user of the server, with the interpreter that it links to", python, err)
	}
	for _, path := range []string{venv, python} {
		if end, err := follow(path); errors.Is(err, fs.ErrNotExist) && end != path || errors.Is(err, errCycle) {
			return "", fmt.Errorf("%s links to %s, which does not exist", path, end)
		}
	}
	if info, err := os.Stat(venv); err == nil && info.IsDir() {
		return "", fmt.Errorf("%s has no interpreter %s", venv, python)
	}
	return "", nil
}

// errOutOfReach: the interpreter of an environment is where the user of the server may not look.
var errOutOfReach = errors.New("which the user of the server cannot reach")

var errCycle = errors.New("a cycle of links")

// follow follows a link to what is not one. The error says why that cannot be looked at: it does not exist, or is out of reach.
func follow(path string) (end string, err error) {
	for range maxLinks {
		target, err := os.Readlink(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return path, err
		case err != nil:
			return path, nil
		case !filepath.IsAbs(target):
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return path, errCycle
}

// maxLinks is how many links Linux follows.
const maxLinks = 40

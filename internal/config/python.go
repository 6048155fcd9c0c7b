package config

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// FindPython chooses the interpreter of the workers: the configured one, else .venv next to
// langgraph.json, else the active virtual environment, else python3 on the path. It does not check
// whether langgraph is installed there: a worker reports that at its start.
func FindPython(asked, dir string, lookup func(string) (string, bool)) (string, error) {
	if asked != "" {
		path, err := exec.LookPath(asked)
		if err != nil {
			return "", fmt.Errorf("%q: cannot be started (%w): write the path of an interpreter, such as .venv/bin/python", asked, err)
		}
		return filepath.Abs(path)
	}
	venvs := []string{filepath.Join(dir, ".venv")}
	if active, ok := lookup("VIRTUAL_ENV"); ok && active != "" {
		venvs = append(venvs, active)
	}
	for _, venv := range venvs {
		// Symlinks are not resolved: Python finds its packages by the link's own location.
		python := filepath.Join(venv, "bin", "python")
		if runtime.GOOS == "windows" {
			python = filepath.Join(venv, "Scripts", "python.exe")
		}
		if info, err := os.Stat(python); err == nil && !info.IsDir() {
			return filepath.Abs(python)
		}
	}
	for _, name := range []string{"python3", "python"} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("no interpreter found; create one for your graphs:\n"+
		"  python3 -m venv %[1]s && %[1]s/bin/pip install langgraph\n"+
		"or name one with --python", filepath.Join(dir, ".venv"))
}

package python

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed worker/understudy_worker/*.py
var workerFiles embed.FS

// unpack writes the Python half to a new folder and gives the folder.
func unpack() (string, error) {
	dir, err := os.MkdirTemp("", "understudy-worker-")
	if err != nil {
		return "", fmt.Errorf("folder for the worker's code: %w", err)
	}
	sub, err := fs.Sub(workerFiles, "worker")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, sub); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("unpack the worker's code to %s: %w", dir, err)
	}
	return dir, nil
}

// command is what the interpreter runs. The folder leaves sys.path again, so that graphs import nothing from it.
func command(dir string) string {
	return fmt.Sprintf("import sys; sys.path.insert(0, %q); import understudy_worker; sys.path.remove(%q); "+
		"from understudy_worker.__main__ import main; main()", filepath.ToSlash(dir), filepath.ToSlash(dir))
}

package main

import (
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"understudy/internal/config"
)

// newLog writes what cfg asks for: JSON objects, or short lines for a person.
func newLog(cfg *config.Config, w io.Writer) *slog.Logger {
	if cfg.LogJSON {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.LogLevel}))
	}
	c := newConsole(w, cfg.LogLevel)
	dirs := append([]string{cfg.Dir}, cfg.PythonPath...)
	c.out.own = func(file string) bool {
		return !strings.Contains(file, "site-packages") && slices.ContainsFunc(dirs, func(dir string) bool {
			return dir != "" && strings.HasPrefix(file, dir+string(filepath.Separator))
		})
	}
	c.out.short = func(file string) string {
		if rel, err := filepath.Rel(cfg.Dir, file); err == nil && filepath.IsLocal(rel) {
			return rel
		}
		return file
	}
	return slog.New(c)
}

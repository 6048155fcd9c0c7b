package main

import (
	"io"
	"log/slog"

	"understudy/graph/python"
	"understudy/internal/config"
	"understudy/internal/names"
)

// newLog writes what cfg asks for: JSON objects, or short lines for a person.
func newLog(cfg *config.Config, w io.Writer) *slog.Logger {
	if cfg.Logging.JSON {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.Logging.Level, ReplaceAttr: withUnit}))
	}
	c := newConsole(w, cfg.Logging.Level)
	dirs := cfg.CodeDirs()
	c.out.own = func(file string) bool { return python.IsOwn(file, dirs) }
	c.out.short = func(file string) string { return names.From(cfg.Dir, file) }
	return slog.New(c)
}

// withUnit writes times as 1m30s: JSON has no type for them, and slog writes nanoseconds.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"understudy/internal/config"
)

// deerflow lets an installation of DeerFlow be loaded as a server does it, and reports what the loader logs.
func (d *doctor) deerflow(ctx context.Context, cfg *config.Config) {
	switch {
	case cfg.Server.DeerFlow == "":
		return
	case d.DeerFlow == nil && d.Loaded != nil:
		d.say("deerflow", Warning, "the DeerFlow installation is not checked while the server serves", "run understudy doctor --deerflow on its machine")
		return
	case d.DeerFlow == nil:
		return
	}
	home, _ := cfg.Lookup("DEER_FLOW_HOME")
	if home == "" {
		home = filepath.Join(filepath.Dir(cfg.Server.DeerFlow), ".deer-flow")
	}
	d.folder("DEER_FLOW_HOME", home)
	ctx, cancel := context.WithTimeout(ctx, d.Import)
	defer cancel()
	done := d.slow("loading DeerFlow's agent and its tools in Python", d.Import)
	defer done()
	d.DeerFlow(ctx, cfg, slog.New(logFindings{d, nil}))
}

// logFindings makes findings of what a loader logs: its warnings and errors are ours.
type logFindings struct {
	d     *doctor
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (l logFindings) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

// Handle implements slog.Handler.
func (l logFindings) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	var fix string
	var details []string
	add := func(a slog.Attr) bool {
		value := strings.TrimSpace(a.Value.Resolve().String())
		first, rest, more := strings.Cut(value, "\n")
		switch {
		case a.Key == "fix":
			fix = value
			return true
		case more:
			details = append(details, strings.Split(rest, "\n")...)
		}
		fmt.Fprintf(&b, "; %s: %s", strings.ReplaceAll(a.Key, "_", " "), first)
		return true
	}
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	verdict := Fine
	switch {
	case r.Level >= slog.LevelError:
		verdict = Problem
	case r.Level >= slog.LevelWarn:
		verdict = Warning
	}
	l.d.say("deerflow", verdict, b.String(), fix, details...)
	return nil
}

// WithAttrs implements slog.Handler.
func (l logFindings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logFindings{l.d, append(l.attrs[:len(l.attrs):len(l.attrs)], attrs...)}
}

// WithGroup implements slog.Handler. No loader has groups.
func (l logFindings) WithGroup(string) slog.Handler { return l }

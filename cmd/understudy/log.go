package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"understudy/internal/config"
)

// newLog writes what cfg asks for: JSON objects, or short lines for a person.
func newLog(cfg *config.Config, w io.Writer) *slog.Logger {
	if cfg.LogJSON {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.LogLevel}))
	}
	return slog.New(newConsole(w, cfg.LogLevel))
}

// console writes "15:04:05 INFO  message key=value". The attributes are a text handler's; the front is ours.
type console struct {
	slog.Handler // writes the attributes to out.buf
	out          *consoleOut
}

// consoleOut is shared by all handlers made from one console.
type consoleOut struct {
	mu  sync.Mutex // guards all below
	w   io.Writer
	buf bytes.Buffer
}

func newConsole(w io.Writer, level slog.Leveler) console {
	out := &consoleOut{w: w}
	attrs := slog.NewTextHandler(&out.buf, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}})
	return console{attrs, out}
}

func (c console) Handle(ctx context.Context, r slog.Record) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	b := &c.out.buf
	b.Reset()
	if err := c.Handler.Handle(ctx, r); err != nil {
		return err
	}
	line := make([]byte, 0, b.Len()+len(r.Message)+16)
	line = r.Time.AppendFormat(line, "15:04:05 ")
	line = append(line, (r.Level.String() + "     ")[:max(6, len(r.Level.String())+1)]...)
	line = append(line, r.Message...)
	if fix := block(r); fix != "" {
		line = append(append(line, '\n'), fix...)
	} else if attrs := b.Bytes(); len(attrs) > 1 {
		line = append(append(line, ' '), attrs...)
	} else {
		line = append(line, '\n')
	}
	_, err := c.out.w.Write(line)
	return err
}

// block shows the attributes of a record that says how to fix what is wrong, one on each line; "" for others.
func block(r slog.Record) string {
	text, fix := "", false
	r.Attrs(func(a slog.Attr) bool {
		fix = fix || a.Key == "fix"
		text += fmt.Sprintf("    %-12s %s\n", a.Key, strings.ReplaceAll(a.Value.String(), "\n", "\n"+strings.Repeat(" ", 17)))
		return true
	})
	if !fix {
		return ""
	}
	return text
}

func (c console) WithAttrs(attrs []slog.Attr) slog.Handler {
	return console{c.Handler.WithAttrs(attrs), c.out}
}

func (c console) WithGroup(name string) slog.Handler {
	return console{c.Handler.WithGroup(name), c.out}
}

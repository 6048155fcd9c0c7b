package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/internal/config"
	"understudy/internal/logtest"
)

// Files that langgraph.json names are watched wherever they are: a script, prompts in other folders, variables of any name. What was missing is loaded once it is
// there.
func TestReloadOfNamedFiles(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	settings := func(prompt string) string {
		return fmt.Sprintf(`{"graphs": {"a": {"agent": {"model": "scripted:script.json", "prompt": {"file": %q}}}}, "env": "vars"}`, prompt)
	}
	write("vars", "")
	write("script.json", "[]")
	write("one.md", "one")
	write("langgraph.json", settings("one.md"))
	load := func() (*config.Config, []config.Warning, error) {
		return config.Load(config.Source{File: filepath.Join(dir, "langgraph.json"), Lookup: func(string) (string, bool) { return "", false }})
	}
	cfg, _, err := load()
	require.NoError(t, err)
	reloaded := make(chan *config.Config, 1000)
	var log logtest.Buffer
	r := &reloader{
		log: slog.New(slog.NewTextHandler(&log, nil)), cfg: cfg, load: load, rested: 10 * time.Millisecond,
		reload:   func(_ context.Context, c *config.Config) error { reloaded <- c; return nil },
		problems: func() map[string]error { return nil },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	// until writes a file until the configuration was loaded with it.
	until := func(name, text string, loaded func(a *config.Agent, c *config.Config) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			write(name, text)
			select {
			case c := <-reloaded:
				return loaded(c.Graphs[0].Agent, c)
			case <-time.After(time.Second):
				return false
			}
		}, time.Minute, time.Millisecond, "%s: %s", name, &log)
	}
	prompt := func(want string) func(a *config.Agent, _ *config.Config) bool {
		return func(a *config.Agent, _ *config.Config) bool { return a.Prompt == want }
	}
	until("script.json", "[1]", func(a *config.Agent, _ *config.Config) bool {
		return a.Scripts["script.json"] == sha256.Sum256([]byte("[1]"))
	})
	until("vars", "A=1", func(_ *config.Agent, c *config.Config) bool { return c.Env["A"] == "1" })
	until("one.md", "two", prompt("two"))
	until("langgraph.json", strings.Replace(settings("one.md"), "{", `{"auth": {"api_keys": true}, `, 1), func(_ *config.Agent, c *config.Config) bool { return c.Authenticates() })
	require.Contains(t, log.String(), "keys=auth.api_keys")
	// Missing files: in a folder that is watched or is missing too, next to langgraph.json or elsewhere, hidden or not. Each is written once: nothing is missed.
	missing := func(place string) {
		t.Helper()
		write("langgraph.json", settings(place))
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "there is no file "+place) }, time.Minute, time.Millisecond)
	}
	for _, place := range []string{
		filepath.Join(dir, "texts/late.md"), filepath.Join(dir, ".late/p.md"), filepath.Join(elsewhere, "late.md"), filepath.Join(elsewhere, "late/deeper/p.md"),
		filepath.Join(elsewhere, ".late/.p.md"), filepath.Join(t.TempDir(), "a/b/c/p.md"),
	} {
		missing(place)
		write(place, place)
		require.Eventually(t, func() bool {
			select {
			case c := <-reloaded:
				return c.Graphs[0].Agent.Prompt == place
			case <-time.After(time.Second):
				return false
			}
		}, time.Minute, time.Millisecond, "%s: %s", place, &log)
		until(place, "three", prompt("three"))
	}
	for i, place := range []string{filepath.Join(dir, ".hidden/p.md"), filepath.Join(elsewhere, "p.md")} {
		write(place, "here")
		until("langgraph.json", settings(place), prompt("here"))
		until(place, fmt.Sprint(i), prompt(fmt.Sprint(i)))
	}
}

// A failed import has its fix in the log of a reload as at the start, and graphs of one module are one line.
func TestReloadSaysTheFix(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	r := &reloader{cfg: &config.Config{Dir: "/app"}}
	missing := &graph.Failure{Type: "ModuleNotFoundError", Message: "No module named 'x'", Detail: "  File \"/app/a.py\", line 6, in <module>\n", Fix: "pip install x"}
	r.logFailures(slog.New(slog.NewTextHandler(&log, nil)), map[string]error{"a": missing, "b": missing, "c": errors.New("other")})
	require.Equal(t, 1, strings.Count(log.String(), `graph="a, b" at=a.py:6`), log.String())
	require.Equal(t, 1, strings.Count(log.String(), `fix="pip install x"`), log.String())
	require.Equal(t, 2, strings.Count(log.String(), "a graph does not import"))
}

// A reload that hangs ends as soon as files change again, and what it was to load is loaded with the next one: each file is named, also those of components.
func TestNewerChangeEndsAReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600)) }
	var log logtest.Buffer
	cfg := &config.Config{Dir: dir, File: filepath.Join(dir, "langgraph.json"), Components: []config.Components{{}}}
	begun := make(chan struct{}, 100)
	var ended, bundled atomic.Int32 // reloads that hung, and bundles that were made
	r := &reloader{
		log: slog.New(slog.NewTextHandler(&log, nil)), cfg: cfg, rested: time.Millisecond,
		load: func() (*config.Config, []config.Warning, error) { return cfg, nil, nil },
		reload: func(ctx context.Context, _ *config.Config) error {
			begun <- struct{}{}
			if _, err := os.Stat(filepath.Join(dir, "corrected.py")); err == nil {
				return nil
			}
			<-ctx.Done()
			ended.Add(1)
			return context.Cause(ctx)
		},
		bundle:   func(context.Context, *config.Config) { bundled.Add(1) },
		problems: func() map[string]error { return nil },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	has := func(text string) func() bool { return func() bool { return strings.Contains(log.String(), text) } }
	require.Eventually(t, func() bool { write("hangs.py"); return len(begun) > 0 }, time.Minute, 100*time.Millisecond) // watched from some time on
	write("other.py")
	require.Eventually(t, has(`reloading… changed="hangs.py, other.py"`), time.Minute, time.Millisecond, &log)
	before := bundled.Load()
	write("part.tsx") // alone it loads no graph, but ends what loads them
	require.Eventually(t, func() bool {
		return bundled.Load() > before && strings.Count(log.String(), `reloading… changed="hangs.py, other.py"`) > 1
	}, time.Minute, time.Millisecond, &log)
	before = ended.Load()
	write("written.txt") // as by the import of a graph
	write("corrected.py")
	require.Eventually(t, has("msg=reloaded"), time.Minute, time.Millisecond, &log)
	require.Contains(t, log.String(), `msg=reloaded changed="hangs.py, other.py, corrected.py"`, "the files of reloads that did not end count")
	require.Equal(t, before+1, ended.Load(), "what graphs write does not end their reload")
	require.EqualValues(t, ended.Load(), strings.Count(log.String(), "reload ended: files changed again"))
	write("later.py")
	require.Eventually(t, has(`msg=reloaded changed=later.py`), time.Minute, time.Millisecond, &log)
}

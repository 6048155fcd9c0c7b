package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// A reload that hangs ends as soon as files change again, and what it was to load is loaded with the next one: each file is named.
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
	before, ends := bundled.Load(), ended.Load()
	write("part.tsx") // is bundled although a reload hangs, and does not end it
	require.Eventually(t, func() bool { return bundled.Load() > before }, time.Minute, time.Millisecond, &log)
	require.Equal(t, ends, ended.Load())
	write("written.txt") // as by the import of a graph
	write("corrected.py")
	require.Eventually(t, has("msg=reloaded"), time.Minute, time.Millisecond, &log)
	require.Contains(t, log.String(), `msg=reloaded changed="hangs.py, other.py, corrected.py"`, "the files of reloads that did not end count")
	require.Equal(t, ends+1, ended.Load(), "what graphs write does not end their reload")
	require.EqualValues(t, ended.Load(), strings.Count(log.String(), "reload ended: files changed again"))
	write("later.py")
	require.Eventually(t, has(`msg=reloaded changed=later.py`), time.Minute, time.Millisecond, &log)
}

// importing runs a reloader whose graphs do something when they are imported, and returns the folder, which is watched, and the log. bundled counts bundles.
func importing(t *testing.T, cfg config.Config, patience time.Duration, imports func(ctx context.Context, dir string, log *logtest.Buffer), bundled *atomic.Int32) (dir string, log *logtest.Buffer) {
	t.Helper()
	dir, log = t.TempDir(), &logtest.Buffer{}
	cfg.Dir, cfg.File = dir, filepath.Join(dir, "langgraph.json")
	r := &reloader{
		log: slog.New(slog.NewTextHandler(log, nil)), cfg: &cfg, rested: time.Millisecond, patience: patience,
		load: func() (*config.Config, []config.Warning, error) { return &cfg, nil, nil },
		reload: func(ctx context.Context, _ *config.Config) error {
			imports(ctx, dir, log)
			return context.Cause(ctx)
		},
		bundle:   func(context.Context, *config.Config) { bundled.Add(1) },
		problems: func() map[string]error { return nil },
	}
	bundles := len(cfg.Components) > 0 // what Run sets when it watches
	r.bundles.Store(!bundles)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	require.Eventually(t, func() bool { return r.bundles.Load() == bundles }, time.Minute, time.Millisecond)
	return dir, log
}

// Pictures and data that an import or a running agent writes do not end a reload, nor hold it up; they are bundled only where there are components.
func TestWrittenDataEndsNoReload(t *testing.T) {
	t.Parallel()
	for name, components := range map[string][]config.Components{"no components": nil, "components": {{}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bundled, written atomic.Int32
			write := func(dir string) {
				for _, name := range []string{"graph.png", "state.json", "notes.txt", "style.css"} {
					assert.NoError(t, os.WriteFile(filepath.Join(dir, name), fmt.Append(nil, written.Add(1)), 0o600))
				}
			}
			dir, log := importing(t, config.Config{Components: components}, time.Hour, func(ctx context.Context, dir string, _ *logtest.Buffer) {
				write(dir)
				for began, before := time.Now(), bundled.Load(); ctx.Err() == nil && time.Since(began) < time.Minute; {
					if components != nil && bundled.Load() > before || components == nil && time.Since(began) > 300*time.Millisecond {
						return
					}
					runtime.Gosched()
				}
			}, &bundled)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a.py"), nil, 0o600))
			require.Eventually(t, func() bool { return strings.Contains(log.String(), "msg=reloaded") }, 20*time.Second, time.Millisecond, log)
			require.NotContains(t, log.String(), "reload ended")
			if components == nil {
				require.Zero(t, bundled.Load())
			}
			// An agent that writes all the time.
			ctx, cancel := context.WithCancel(t.Context())
			var agent sync.WaitGroup
			agent.Go(func() {
				for ctx.Err() == nil {
					write(dir)
				}
			})
			require.NoError(t, os.WriteFile(filepath.Join(dir, "b.py"), nil, 0o600))
			seen := assert.Eventually(t, func() bool { return strings.Contains(log.String(), "msg=reloaded changed=b.py") }, 20*time.Second, 10*time.Millisecond, log)
			cancel()
			agent.Wait()
			require.True(t, seen)
		})
	}
}

// Code that an import writes as it was does not cause another reload: there is one for each file that a person saves.
func TestImportThatWritesTheSameCode(t *testing.T) {
	t.Parallel()
	var bundled, imported atomic.Int32
	dir, log := importing(t, config.Config{Components: []config.Components{{}}}, 0, func(ctx context.Context, dir string, _ *logtest.Buffer) {
		// Without truncating it: who reads the file finds it whole.
		f, err := os.OpenFile(filepath.Join(dir, "generated.py"), os.O_WRONLY, 0)
		if !assert.NoError(t, err) {
			return
		}
		_, err = f.WriteString("x = 1")
		assert.NoError(t, errors.Join(err, f.Close()))
		// The reloader sees changes in their order: once there is a bundle, it has seen the code while this import runs.
		before := bundled.Load()
		assert.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("part%d.tsx", imported.Add(1))), nil, 0o600))
		for ctx.Err() == nil && bundled.Load() == before {
			runtime.Gosched()
		}
	}, &bundled)
	reloads := func() int { return strings.Count(log.String(), "reloading…") }
	whole := filepath.Join(t.TempDir(), "whole")
	require.NoError(t, os.WriteFile(whole, []byte("x = 1"), 0o600))
	require.NoError(t, os.Rename(whole, filepath.Join(dir, "generated.py")))
	for n := range 6 {
		if n > 0 {
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("user%d.py", n)), nil, 0o600))
		}
		require.Eventually(t, func() bool { return strings.Count(log.String(), "msg=reloaded") > n }, time.Minute, time.Millisecond, log)
		require.Equal(t, n+1, reloads(), log)
	}
}

// An import that writes other code each time is loaded: the third reload in a row is not ended at once, and what is changed after it does not wait.
func TestImportThatWritesOtherCode(t *testing.T) {
	t.Parallel()
	var bundled, imported atomic.Int32
	dir, log := importing(t, config.Config{}, time.Hour, func(ctx context.Context, dir string, log *logtest.Buffer) {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "generated.py"), fmt.Append(nil, imported.Add(1)), 0o600))
		for ctx.Err() == nil && !strings.Contains(log.String(), "the next one waits") {
			time.Sleep(time.Millisecond)
		}
	}, &bundled)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.py"), nil, 0o600))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "msg=reloaded") }, 20*time.Second, time.Millisecond, log)
	require.EqualValues(t, 3, imported.Load(), log)
	require.Equal(t, 1, strings.Count(log.String(), "the next one waits"), log)
	require.Eventually(t, func() bool { // other workers may import for some time
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "corrected.py"), fmt.Append(nil, time.Now()), 0o600))
		return strings.Contains(log.String(), `reloading… changed="generated.py, corrected.py"`)
	}, 20*time.Second, 100*time.Millisecond, log)
}

// An import that writes a new file each time is loaded less and less often, but never so seldom that a person who saves one would not wait for it.
func TestImportThatWritesNewFiles(t *testing.T) {
	t.Parallel()
	var bundled, imported atomic.Int32
	dir, log := importing(t, config.Config{}, 20*time.Millisecond, func(_ context.Context, dir string, _ *logtest.Buffer) {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("generated%d.py", imported.Add(1))), nil, 0o600))
	}, &bundled)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.py"), nil, 0o600))
	waits := regexp.MustCompile(`wait=(\S+)`)
	require.Eventually(t, func() bool {
		found, longest := waits.FindAllStringSubmatch(log.String(), -1), time.Duration(0)
		for _, f := range found {
			wait, err := time.ParseDuration(f[1])
			longest = max(longest, wait)
			assert.NoError(t, err)
		}
		return longest > 100*time.Millisecond && len(found) >= 20 // were each twice as long as the one before, it would take a minute
	}, 40*time.Second, 10*time.Millisecond, log)
}

// However often files change during reloads, the time that each has grows, and is bounded.
func TestApart(t *testing.T) {
	t.Parallel()
	r := &reloader{patience: time.Second}
	require.Zero(t, r.apart(1))
	require.Equal(t, time.Second, r.apart(2))
	require.Equal(t, 8*time.Second, r.apart(5))
	require.Equal(t, r.apart(100), r.apart(1000))
}

// Files that editors create while they save another one are no reason to load graphs, also after a mistake.
func TestFilesOfEditors(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sedrNVoCn", "4913", "agent.py~", "#agent.py#", ".agent.py.swp", "agent.py___jb_tmp___", "agent.py.tmp", "agent.py.tmp.4711.1", "agent.py.bak"} {
		require.True(t, transient(name), name)
	}
	for _, name := range []string{"agent.py", "prompt.md", "sedate.txt", "data", "tmp.py", "4913.json"} {
		require.False(t, transient(name), name)
	}
	dir := t.TempDir()
	kept, gone, removed := filepath.Join(dir, "kept"), filepath.Join(dir, "gone"), filepath.Join(dir, "removed.py")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	c := changes{graphs: paths{kept, gone, removed}, others: paths{kept, gone}}
	c.gone()
	require.Equal(t, paths{kept, removed}, c.graphs, "a file of a graph that is removed counts, one that was there for a moment does not")
}

// What a person saves after a reload is loaded at once, however long the reload took: only what changed during it may be what graphs write.
func TestSavesAfterReloads(t *testing.T) {
	t.Parallel()
	var bundled atomic.Int32
	dir, log := importing(t, config.Config{}, time.Hour, func(context.Context, string, *logtest.Buffer) { <-time.After(100 * time.Millisecond) }, &bundled)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a0.py"), nil, 0o600))
	for n := int32(1); n < 6; n++ { // each soon after the end of the one before
		require.Eventually(t, func() bool { return int32(strings.Count(log.String(), "msg=reloaded")) >= n }, time.Minute, time.Millisecond, log)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.py"), []byte(fmt.Sprint("x = ", n)), 0o600))
	}
	require.Eventually(t, func() bool { return strings.Count(log.String(), "msg=reloaded") >= 6 }, time.Minute, time.Millisecond, log)
	require.NotContains(t, log.String(), "the next one waits")
}

// A graph that was corrected is named by the reload that has it, and no other is.
func TestRepaired(t *testing.T) {
	t.Parallel()
	wrong, graphs := errors.New("no"), []config.Graph{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	require.Equal(t, []any{"imports_again", "✓ a, ✓ c"}, repaired(graphs, map[string]error{"a": wrong, "b": wrong, "c": wrong, "gone": wrong}, map[string]error{"b": wrong, "new": wrong}))
	require.Empty(t, repaired(graphs, nil, map[string]error{"b": wrong}))
}

// What a reload that takes long says of the version before is true: there may be none.
func TestReloadSaysWhatServesMeanwhile(t *testing.T) {
	t.Parallel()
	loaded := false
	r := &reloader{loaded: func() bool { return loaded }}
	require.Equal(t, "no version has loaded yet, and runs wait until one has", r.meanwhile())
	loaded = true
	require.Equal(t, "the version before stays in service", r.meanwhile())
}

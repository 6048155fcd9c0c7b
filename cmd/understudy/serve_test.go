package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/internal/config"
)

// The log begins with what is used, and with what was likely meant otherwise: a misspelt variable would make a data folder in silence.
func TestStartSaysWhatIsUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"url": "http://127.0.0.1:1"}}, "env": {"UNDERSTUDY_LEASEE": "1m"}}`), 0o600))
	t.Setenv("UNDERSTUDY_DATABASE_UR", "postgres://us:s3cret@db/us")
	for _, command := range []string{"dev", "serve", "worker"} {
		args := []string{
			command, "--config", file, "--log-json", "--database-url", "postgres://us:s3cret@127.0.0.1:1/name?connect_timeout=1",
			"--redis-url", "redis://:s3cret@cache:6380/2", "--redis-prefix", "mine",
		}
		if command != "worker" {
			args = append(args, "--port", "0", "--data", "/some/where")
		}
		var out, errs bytes.Buffer
		root := newRoot(&out, &errs)
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		require.ErrorContains(t, err, "name on 127.0.0.1:1", command)
		log := errs.String()
		require.NotContains(t, err.Error()+log, "s3cret")
		require.Contains(t, log, `"key":"UNDERSTUDY_DATABASE_UR","problem":"unknown variable; write UNDERSTUDY_DATABASE_URL"`)
		require.Contains(t, log, `"key":"UNDERSTUDY_LEASEE","problem":"unknown variable in env of the file; write UNDERSTUDY_LEASE"`)
		require.Equal(t, command != "worker", strings.Contains(log, `"key":"--data","problem":"/some/where is not used: all data is in the database of --database-url"`), log)
		var started map[string]any
		for line := range strings.Lines(log) {
			if strings.Contains(line, `"msg":"starting"`) {
				require.Nil(t, started, "one line")
				require.NoError(t, json.Unmarshal([]byte(line), &started))
			}
		}
		for key, want := range map[string]string{
			"level": "INFO", "version": version(), "config": file, "database": "name on 127.0.0.1:1", "redis": "cache:6380", "redis_prefix": "mine",
		} {
			require.Equal(t, want, started[key], key)
		}
	}
	// Errors caused by a misspelt variable are reported together with it.
	var out, errs bytes.Buffer
	root := newRoot(&out, &errs)
	root.SetArgs([]string{"worker", "--config", file})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), "--database-url: missing")
	require.Contains(t, errs.String(), `"key":"UNDERSTUDY_DATABASE_UR","problem":"unknown variable`)
}

// A program that reads the log reads JSON to its last line, also that of a start that fails.
func TestFailedStartEndsTheLogInJSON(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"url": "http://127.0.0.1:1"}}}`), 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"port":    {[]string{"--port", port}, "is taken"},
		"data":    {[]string{"--port", "0", "--data", file}, "is not a folder"},
		"setting": {[]string{"--port", "many"}, "whole number"},
		"two":     {[]string{"--port", "many", "--lease", "long"}, "with its unit"},
		"level":   {[]string{"--log-level", "loud"}, "loud"},
	} {
		for _, json := range []bool{true, false} {
			var out, errs bytes.Buffer
			root := newRoot(&out, &errs)
			root.SetArgs(append([]string{"serve", "--config", file, "--log-json=" + strconv.FormatBool(json), "--data", filepath.Join(dir, name)}, c.args...))
			err := root.ExecuteContext(t.Context())
			require.Error(t, err, name)
			require.Equal(t, json, errors.As(err, new(loggedError)), "main writes it once more: %s", name)
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			last := lines[len(lines)-1]
			require.Equal(t, json, gjson.Valid(last) && gjson.Get(last, "level").Str == "ERROR" && strings.Contains(last, c.want), "%s: %s", name, errs.String())
		}
	}
}

// A start that works logs when its graphs can be used, and which: clients connect before.
func TestServerThatIsReadyLogsIt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"url": "http://127.0.0.1:1"}, "b": {"url": "http://127.0.0.1:1"}}}`), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, said := newListener(`"msg":"ready","graphs":"a, b","duration_ms":`)
	root := newRoot(io.Discard, log)
	root.SetArgs([]string{"serve", "--config", file, "--log-json", "--port", "0", "--data", ":memory:"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	select {
	case <-said:
		cancel()
		require.NoError(t, <-ended)
	case err := <-ended:
		require.FailNow(t, "it ended", "%v: %s", err, log.String())
	}
}

// Graphs of one module fail for one reason: it is said once.
func TestOneReasonIsSaidOnce(t *testing.T) {
	t.Parallel()
	because := func(text string) error {
		return &graph.Failure{Type: "ModuleNotFoundError", Message: text, Detail: "  File \"/project/graphs.py\", line 3, in <module>", Fix: "install " + text}
	}
	cfg := &config.Config{Mode: config.Dev, Dir: "/project", Workers: config.Workers{Reload: true}, Graphs: []config.Graph{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}}}
	var out strings.Builder
	l := newLister(cfg, slog.New(slog.DiscardHandler), &out)
	for _, name := range []string{"a", "b", "d"} {
		l.loaded(name, because("x"), 0)
	}
	l.loaded("c", because("y"), 0)
	require.Equal(t, `
  ✗ a: ModuleNotFoundError: x
      at graphs.py:3
      fix: install x
      it is loaded again when you save a file
  ✗ b: the same as a
  ✗ d: the same as a
  ✗ c: ModuleNotFoundError: y
      at graphs.py:3
      fix: install y
      it is loaded again when you save a file
`, "\n"+out.String())
	var log strings.Builder
	l.r.logFailures(slog.New(slog.NewTextHandler(&log, nil)), map[string]error{"a": because("x"), "c": because("y"), "b": because("x")})
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), `graph="a, b" at=graphs.py:3 error="ModuleNotFoundError: x"`)
}

// A factory that fails with an empty configuration is no graph that is simply ready: serve logs it, as dev shows it.
func TestFactoriesThatFail(t *testing.T) {
	t.Parallel()
	fails := func(_ context.Context, name string) error {
		if name == "fine" {
			return nil
		}
		return &graph.Failure{Type: "KeyError", Message: "'tenant'", Detail: "  File \"/project/graphs.py\", line 3, in make"}
	}
	for mode, of := range map[config.Mode]int{config.Serve: 1, config.Dev: 0} {
		cfg := &config.Config{Mode: mode, Dir: "/project", Graphs: []config.Graph{{ID: "a", Path: "/project/graphs.py", Attr: "make"}, {ID: "fine", Path: "/project/graphs.py", Attr: "graph"}}}
		var out, log strings.Builder
		l := newLister(cfg, slog.New(slog.NewTextHandler(&log, nil)), &out)
		l.tryFactories(t.Context(), []string{"a", "fine"}, fails)
		require.Equal(t, of, strings.Count(log.String(), `msg="graph cannot be built with an empty configuration: requests without one fail" graph=a at=graphs.py:3 error="KeyError: 'tenant'" fix=`), log.String())
		require.Equal(t, 1-of, strings.Count(out.String(), "! a: it cannot be built with an empty configuration: KeyError: 'tenant'"), out.String())
		require.NotContains(t, log.String()+out.String(), "fine")
	}
}

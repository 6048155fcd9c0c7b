package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"understudy/internal/app"
	"understudy/internal/config"
	"understudy/internal/sockerr"
)

func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRoot(&out, &errs)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHelpNamesEveryVariable(t *testing.T) {
	t.Parallel()
	for command, mode := range map[string]config.Mode{"dev": config.Dev, "serve": config.Serve, "worker": config.Worker, "proxy": config.Proxy} {
		out, err := execute(t, command, "--help")
		require.NoError(t, err)
		for _, s := range config.Settings() {
			if !s.Of(mode) {
				require.NotContains(t, out, "$"+s.Env+"]")
				continue
			}
			require.Contains(t, out, "--"+s.Flag)
			require.Contains(t, out, "$"+s.Env)
		}
		require.Contains(t, out, "Examples:")
		require.Contains(t, out, "$UNDERSTUDY_CONFIG")
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	out, err := execute(t, "version")
	require.NoError(t, err)
	require.Regexp(t, `^understudy \S+\n$`, out)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"dev", "--prot", "1"}, {"dev", "graph.py"}, {"serve", "--port"}, {"start"}, {"nonsense", "--port", "1"}} {
		_, err := execute(t, args...)
		require.ErrorAs(t, err, new(usageError), args)
		require.ErrorContains(t, err, "--help", args)
	}
	_, err := execute(t, "start")
	require.ErrorContains(t, err, `unknown command "start", perhaps dev or state is meant; see understudy --help`)
	_, err = execute(t, "serv")
	require.ErrorContains(t, err, "serve is meant; see understudy --help")
	_, err = execute(t, "nonsense", "--port", "1")
	require.ErrorContains(t, err, `unknown command "nonsense"`)
	out, err := execute(t)
	require.NoError(t, err)
	require.Contains(t, out, "understudy [command]")

	// Only what is near is suggested.
	for typed, meant := range map[string]string{"bogus": "", "xyzzy": "", "serev": "serve", "bakcup": "backup", "proxi": "proxy", "ogs": "logs", "up": "dev", "lag": "", "import-all": ""} {
		_, err := execute(t, typed)
		require.ErrorContains(t, err, "unknown command")
		if meant == "" {
			require.NotContains(t, err.Error(), "perhaps", typed)
		} else {
			require.ErrorContains(t, err, meant+" is meant", typed)
		}
	}
}

// Wrong arguments are answered with the usage of the command, whichever it is.
func TestArguments(t *testing.T) {
	t.Parallel()
	tried := 0
	every(func(cmd *cobra.Command) {
		if !cmd.Runnable() || !cmd.HasParent() || cmd.Parent().HasParent() || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		args := []string{cmd.Name(), "1", "2", "3", "4"}
		_, err := execute(t, args...)
		require.ErrorAs(t, err, new(usageError), args)
		require.ErrorContains(t, err, "; usage: "+strings.TrimSuffix(cmd.UseLine(), " [flags]")+", see understudy "+cmd.Name()+" --help", args)
		tried++
	})
	require.Greater(t, tried, 15)
	for _, args := range [][]string{{"restore"}, {"runs"}, {"state"}, {"import"}, {"export"}} {
		_, err := execute(t, args...)
		require.ErrorContains(t, err, "; usage: understudy "+args[0]+" ", args)
	}
	_, err := execute(t, "backup", "--data", t.TempDir())
	require.ErrorContains(t, err, "understudy backup [TARGET] --data DIR")
}

func TestMistakesAreToldTogether(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": 1}}`), 0o600))
	_, err := execute(t, "dev", "--config", file, "--port", "x", "--log-json=perhaps")
	var mistakes config.Mistakes
	require.ErrorAs(t, err, &mistakes)
	require.Len(t, mistakes, 3)
}

// Addresses are read with all the rest, before anything is opened.
func TestAddressesAreMistakes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"agent": {"model": "fake:hello"}}}}`), 0o600))
	for _, command := range []string{"dev", "serve", "worker"} {
		_, err := execute(t, command, "--config", file, "--database-url", "postgres://us:p@ss/w#rd@127.0.0.1:6543/us", "--redis-url", "bar")
		var mistakes config.Mistakes
		require.ErrorAs(t, err, &mistakes)
		require.Len(t, mistakes, 2)
		require.ErrorContains(t, err, "--database-url: it has an @ in the wrong place: percent-encode the password")
		require.ErrorContains(t, err, "--redis-url: an address looks like")
		require.NotContains(t, err.Error(), "w#rd")
	}
}

// A proxy needs no langgraph.json, and says what it does need.
func TestProxyWithoutUpstream(t *testing.T) {
	t.Parallel()
	_, err := execute(t, "proxy")
	require.ErrorContains(t, err, "--upstream http://127.0.0.1:2024")
	require.ErrorAs(t, err, new(config.Mistakes))
	out, err := execute(t, "proxy", "--help")
	require.NoError(t, err)
	require.Contains(t, out, "--offline-reads is for upstreams that demand no credentials")
}

// A worker works for others: it says what it shares with them.
func TestWorkerWithoutDatabase(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"agent": {"model": "fake:hello"}}}}`), 0o600))
	_, err := execute(t, "worker", "--config", file)
	require.ErrorAs(t, err, new(config.Mistakes))
	require.ErrorContains(t, err, "--database-url: missing")
	_, err = execute(t, "worker", "--config", file, "--database-url", "postgres://nobody@127.0.0.1:1/x", "--concurrency", "0")
	require.ErrorContains(t, err, `--concurrency: "0"`)
	_, err = execute(t, "serve", "--config", file, "--concurrency", "0")
	require.ErrorContains(t, err, "understudy worker")
	out, err := execute(t, "worker", "--help")
	require.NoError(t, err)
	require.NotContains(t, out, "--port")
}

func TestMissingConfig(t *testing.T) {
	t.Parallel()
	_, err := execute(t, "dev", "--config", filepath.Join(t.TempDir(), "langgraph.json"))
	require.ErrorContains(t, err, `"graphs": {"agent": "./agent.py:graph"}`)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	cfg := config.Default(config.Dev)
	require.NoError(t, explain(nil, cfg))
	taken := explain(fmt.Errorf("open: %w", &net.OpError{Op: "listen", Err: sockerr.InUse}), cfg)
	require.ErrorContains(t, taken, "port 2024 on 127.0.0.1 is taken")
	require.ErrorContains(t, taken, "--port (0 takes a free one)")
	other := errors.New("other")
	require.Equal(t, other, explain(other, cfg))
}

func TestBaseURL(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"127.0.0.1:80": "http://127.0.0.1:80", "0.0.0.0:1": "http://127.0.0.1:1", "[::]:1": "http://127.0.0.1:1", "[::1]:1": "http://[::1]:1",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		require.Equal(t, want, baseURL(&config.Config{}, tcp))
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(newConsole(&out, slog.LevelInfo)).With("run_id", "r1")
	log.Debug("hidden")
	log.Info("run ended", "status", "success", slog.Group("g", "time", 1))
	log.Warn("alone")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	require.Regexp(t, `^\d\d:\d\d:\d\d run ended run_id=r1 status=success g.time=1$`, lines[0])
	require.Regexp(t, `^\d\d:\d\d:\d\d WARN  alone run_id=r1$`, lines[1])
}

// Every command is in the table of docs/configuration.md.
func TestCommandsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "## Commands\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, cmd := range newRoot(io.Discard, io.Discard).Commands() {
		if name := cmd.Name(); name != "help" {
			require.Regexp(t, "(?m)^\\|[^|]*`(understudy )?"+name+"\\b", table, "understudy %s", name)
		}
	}
}

// No mistake has the exit code of a program that Go ends, with which a service is started again; each code is in the table of docs/configuration.md.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("anything"), 1},
		{app.ErrNoGraphs, 3},
		{config.Mistakes{{}}, 78},
		{usageError{errors.New("a flag")}, 78},
		{loggedError{config.Mistakes{{}}}, 78},
		{errStopped, 130},
	} {
		const crashed = 2
		require.Equal(t, c.want, exitCode(c.err), c.err)
		require.NotEqual(t, crashed, exitCode(c.err), c.err)
		if c.want < 128 {
			require.Contains(t, string(page), fmt.Sprintf("\n| %d | ", c.want))
		}
	}
}

package understudy

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/pregel"
	"understudy/internal/config"
	"understudy/internal/sockerr"
)

// full is a Config of which every field that is a setting differs from its default.
func full() Config {
	return Config{
		Addr: "0.0.0.0:8123",
		Storage: Storage{
			Dir: "/d", Postgres: "postgres://u@h/d", Keys: [][]byte{[]byte("0123456789abcdef")}, Connections: 7, StatementTimeout: time.Minute, SearchTimeout: 1500 * time.Millisecond, AuditRetention: 24 * time.Hour, FastCommit: true,
		},
		Redis:   Redis{URL: "rediss://h", CA: "/ca.pem", Prefix: "p"},
		HTTP:    HTTP{Cert: "c.pem", Key: "k.pem", ClientCA: "a.pem", Prefix: "/p", MaxBody: 1 << 20, MaxBodies: 1 << 30, DeerFlow: "conformance/deerflow/kit/config.yaml", IgnoreAuth: true, NoAuth: true, Studio: true, TrustedProxies: "10.0.0.0/8"},
		Runs:    Runs{Concurrency: 3, ByGraph: map[string]int{"a": 1, "b": 0}, Timeout: time.Hour, Grace: time.Second, Drain: time.Second, Lease: time.Minute, Traces: "content"},
		Streams: Streams{TTL: time.Minute, Records: 500, Bytes: 2 << 20, Memory: 3 << 20},
		Python:  Python{Interpreter: "/p", Workers: 2, RunsPerWorker: 4, MaxMemory: 1 << 30, MaxRuns: 9, GateTimeout: 7 * time.Second, AllowBroken: true},
	}
}

// Every setting of `understudy serve` has a field, and every field reaches its setting.
func TestConfigHasEverySetting(t *testing.T) {
	t.Parallel()
	var want []string
	for _, s := range config.Settings() {
		if s.Of(config.Serve) && s.Flag != "log-level" && s.Flag != "log-json" { // Config.Log
			want = append(want, s.Flag)
		}
	}
	given, err := full().flags()
	require.NoError(t, err)
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(given)))
	for flag := range given {
		require.Contains(t, fields, flag)
	}
	for _, group := range []any{full().Storage, full().Redis, full().HTTP, full().Runs, full().Streams, full().Python} {
		v := reflect.ValueOf(group)
		for i := range v.NumField() {
			require.False(t, v.Field(i).IsZero(), "%s.%s is not tested", v.Type().Name(), v.Type().Field(i).Name)
		}
	}

	got, _, err := full().load()
	require.NoError(t, err)
	before := config.Default(config.Serve)
	require.Equal(t, map[string]int{"a": 1, "b": 0}, got.Workers.GraphConcurrency)
	require.Equal(t, []any{"0.0.0.0", 8123, 1500 * time.Millisecond, config.ByteSize(1 << 20), config.Normal}, []any{got.Server.Host, got.Server.Port, got.Storage.SearchTimeout, got.Server.MaxBody, got.Storage.Synchronous})
	// What has no field: of langgraph.json, of dev, or of its own place.
	without := []string{
		"Server.AllowedHosts", "Storage.Keys", "Storage.UnindexedKeys", "Workers.PythonPath", "Workers.PythonVersion", "Workers.Reload", "Traces.Bytes", "Traces.Age",
	}
	if before.Workers.Processes == 2 { // the number of cores
		without = append(without, "Workers.Processes")
	}
	for _, group := range []string{"Server", "Storage", "Workers", "Streams", "Traces"} {
		was, is := reflect.ValueOf(*before).FieldByName(group), reflect.ValueOf(*got).FieldByName(group)
		for i := range was.NumField() {
			if name := group + "." + was.Type().Field(i).Name; !slices.Contains(without, name) {
				require.NotEqual(t, was.Field(i).Interface(), is.Field(i).Interface(), name)
			}
		}
	}
}

func TestZeroConfigIsTheDefault(t *testing.T) {
	t.Parallel()
	given, err := Config{}.flags()
	require.NoError(t, err)
	require.Empty(t, given)
	// 0 is the default, so none is negative.
	none, _, err := Config{Storage: Storage{Postgres: "postgres://u@h/d"}, Runs: Runs{Concurrency: -1, Timeout: -1, Grace: -1}}.load()
	require.NoError(t, err)
	require.Equal(t, []any{0, time.Duration(0), time.Duration(0)}, []any{none.Runs(), none.Workers.RunTimeout, none.Server.Grace})
}

func TestVariablesAreReadWhenGiven(t *testing.T) {
	t.Setenv("UNDERSTUDY_PORT", "1")
	got, _, err := Config{}.load()
	require.NoError(t, err)
	require.Equal(t, 2024, got.Server.Port)
	got, _, err = Config{Environ: []string{"UNDERSTUDY_PORT=8", "UNDERSTUDY_HOST=0.0.0.0", "UNDERSTUDY_NO_AUTH=true"}, Addr: ":9"}.load()
	require.NoError(t, err)
	require.Equal(t, []any{"0.0.0.0", 9}, []any{got.Server.Host, got.Server.Port}, "what the program says wins")
}

func TestConfigNamesAllMistakes(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Addr: "here"})
	require.ErrorContains(t, err, "Config.Addr: address here: missing port in address; write HOST:PORT")
	_, err = New(Config{Addr: "here", Streams: Streams{Records: 1}})
	require.ErrorContains(t, err, "Config.Addr")
	require.ErrorContains(t, err, `Config.Streams.Records: "1": write 100 or more`, "the others too")
	_, err = New(Config{Runs: Runs{Lease: time.Millisecond}, Streams: Streams{Records: 1}})
	require.ErrorContains(t, err, `Config.Runs.Lease: "1ms": write 1s to 1h`)
	require.ErrorContains(t, err, `Config.Streams.Records: "1": write 100 or more`)
}

// What goes wrong around the life of a Server names the next step.
func TestServerMisused(t *testing.T) {
	t.Parallel()
	first, err := New(Config{Addr: "127.0.0.1:0", Storage: Storage{Dir: ":memory:"}})
	require.NoError(t, err)
	_, err = New(Config{Addr: first.Addr().String(), Storage: Storage{Dir: ":memory:"}})
	require.ErrorIs(t, err, sockerr.InUse)
	require.ErrorContains(t, err, "set Config.Addr to another")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- first.Run(ctx) }()
	require.Eventually(t, func() bool {
		res, err := http.Get("http://" + first.Addr().String() + "/ok")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	}, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.ErrorContains(t, first.Run(ctx), "make another one with New")

	var log bytes.Buffer
	unused, err := New(Config{
		Addr: "127.0.0.1:0", Storage: Storage{Dir: ":memory:"}, Version: "1.2", Log: slog.New(slog.NewJSONHandler(&log, nil)),
	})
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "%s", log.String())
	require.Contains(t, log.String(), `"level":"INFO","msg":"starting","version":"1.2","config":"none","data":":memory:"}`)
	require.NoError(t, unused.Close())
	log.Reset()
	unused, err = New(Config{Addr: "127.0.0.1:0", Storage: Storage{Dir: ":memory:"}, Log: slog.New(slog.NewJSONHandler(&log, nil))})
	require.NoError(t, err)
	require.NotContains(t, log.String(), "version", "none was given")
	require.NoError(t, unused.Close())
	log.Reset()
	for range 2 {
		require.EqualError(t, unused.Run(t.Context()), "Close was called before Run: make another server with New")
	}
	require.Empty(t, log.String())
}

// Mistakes name fields of Config: a program has no flags.
func TestMistakesNameFields(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for text, c := range map[string]Config{
		`Config.Addr: "http": write a whole number`:            {Addr: "127.0.0.1:http"},
		"Config.Addr: \"10.1.2.3\": nothing authenticates":     {Addr: "10.1.2.3:0"},
		"or start with Config.HTTP.NoAuth":                     {Addr: "10.1.2.3:0"},
		"name another folder with Config.Storage.Dir":          {Addr: "127.0.0.1:0", Storage: Storage{Dir: file}},
		"Config.Storage.Postgres: it must begin with":          {Addr: "127.0.0.1:0", Storage: Storage{Postgres: "mysql://h/d"}},
		"correct the address in Config.Storage.Postgres":       {Addr: "127.0.0.1:0", Storage: Storage{Postgres: "postgres://127.0.0.1:1/d"}},
		"no.json does not exist; name your file with Config.F": {Addr: "127.0.0.1:0", File: "no.json"},
		"Config.Streams.Records: ":                             {Addr: "127.0.0.1:0", Streams: Streams{Records: -1}},
		"Config.Python.Workers: ":                              {Addr: "127.0.0.1:0", Python: Python{Workers: -1}},
	} {
		_, err := New(c)
		require.ErrorContains(t, err, text)
		require.NotRegexp(t, "--[a-z]", err.Error())
	}
	_, err := New(Config{Addr: "127.0.0.1:0", File: "no.json"})
	require.ErrorAs(t, err, new(config.Mistakes), "the chain is kept")
}

// A graph that is nil, and one that comes too late, are refused: a server would list the first, and never the second. A server without graphs says so.
func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s, err := New(Config{Addr: "127.0.0.1:0", Storage: Storage{Dir: t.TempDir()}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	var g *pregel.Graph
	var a *agent.Agent
	for _, one := range []graph.Graph{nil, g, a} {
		require.EqualError(t, s.Register("x", "", one), `graph "x" is nil; check the error of the function that makes it`)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Run(ctx), context.Canceled, "it ended before it began")
	require.Contains(t, log.String(), "there are no graphs")
	require.ErrorContains(t, s.Register("x", "", &agent.Agent{}), "call Register before Run")
}

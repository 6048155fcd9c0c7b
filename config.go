package understudy

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"understudy/graph/agent"
	"understudy/internal/config"
)

// Config says how a Server works. The zero value of each field is its default, and the zero Config is a server on 127.0.0.1:2024 with its data
// in the folder .understudy. docs/configuration.md explains each setting under the flag that it has in `understudy serve`.
type Config struct {
	// Addr is the host and port to listen on; "" is 127.0.0.1:2024. Port 0 takes a free one. Requests need no credentials unless File has auth.
	Addr string
	// File is a langgraph.json, relative to the working directory. Its graphs are served next to registered ones, and its sections (http, store,
	// checkpointer, webhooks, history) apply. "": none.
	File string
	// Environ are variables as os.Environ returns them. They set what this Config leaves at zero, by the names that `understudy serve` reads
	// (UNDERSTUDY_DATABASE_URL, DATABASE_URI, …). nil: none is read.
	Environ []string

	Storage Storage
	Redis   Redis
	HTTP    HTTP
	Runs    Runs
	Streams Streams
	Python  Python

	// Log gets one line per request and per run, at level info. nil: nothing is logged.
	Log *slog.Logger
	// Tracing makes spans of requests, runs and saves; nil: none. The caller shuts it down after Run.
	Tracing trace.TracerProvider
	// Version of the program, for GET /info.
	Version string
	// Tools that agents declared in File may name, besides the built-in ones.
	Tools []agent.Tool
	// GraphLoaded is called once for each graph when it can be used, or, with an error, when it does not import. Errors of Python graphs are
	// *graph.Failure with the traceback in Detail; an earlier other error means that no worker process starts yet. It must not block. nil: no calls.
	GraphLoaded func(name string, err error, took time.Duration)
}

// Storage says where everything is kept: in a data folder, which has one server, or in a Postgres database, which may have several.
type Storage struct {
	// Dir is the data folder, made when missing; "" is .understudy, ":memory:" keeps nothing. Not used with Postgres.
	Dir string
	// Postgres is the URL of a database, such as postgres://user:password@host:5432/name; "" none.
	Postgres string
	// Keys encrypt the content of the database: the first one what is written, all what is read. Each has 16, 24 or 32 bytes; nil: LANGGRAPH_AES_KEY of Environ.
	Keys [][]byte
	// Connections to Postgres at most; 0: 16, or pool_max_conns of the URL.
	Connections int
	// StatementTimeout ends statements of Postgres; 0: 30 s, or statement_timeout of the URL.
	StatementTimeout time.Duration
	// SearchTimeout ends searches and counts that no index answers, with status 422; 0: 10 s.
	SearchTimeout time.Duration
	// AuditRetention is how long entries of the audit log are kept, at least 1 h; 0: 90 days.
	AuditRetention time.Duration
	// FastCommit reports commits before they are on disk: a power cut may lose the last ones, a crash of the process none.
	FastCommit bool
}

// Redis carries live streams between servers on one Postgres database. Without it, streams show what their own server executes.
type Redis struct {
	URL    string // redis://… or rediss://…; "" none
	CA     string // file with the certificates (PEM) that a rediss:// server is checked against; "" those of the system
	Prefix string // of all keys; servers on one database have the same; "" is "understudy"
}

// HTTP says how the API is served. CORS, disabled routes and forwarded headers are sections of File.
type HTTP struct {
	// Cert and Key are files (PEM) of a certificate and its key for TLS, ClientCA of the certificates that sign those of clients, which then need one.
	// They are read again when they change. "": without.
	Cert, Key, ClientCA string
	// Prefix is put before every route, such as "/my-api"; "": none, or http.mount_prefix of File.
	Prefix string
	// MaxBody is the largest request body in bytes; a larger one is refused with 413. 0: 300 MiB.
	MaxBody int64
	// MaxBodies is the memory in bytes of all request bodies in flight, each three times its size; above that requests get 503.
	// 0: 1 GiB, or half of GOMEMLIMIT.
	MaxBodies int64
	// DeerFlow is the config.yaml of a DeerFlow installation whose Gateway API is served in addition; "": none.
	DeerFlow string
	// IgnoreAuth serves without the auth and encryption that File asks for. Loopback addresses only.
	IgnoreAuth bool
	// Studio serves pages to talk to graphs and look into threads at /studio/.
	Studio bool
	// TrustedProxies are addresses and networks of reverse proxies, separated by commas, whose X-Forwarded-For, -Proto and -Host count.
	TrustedProxies string
	// NoAuth lets everyone who reaches Addr do everything. Without it, or authentication in File, only loopback addresses are listened on.
	NoAuth bool
}

// Runs says how runs are executed.
type Runs struct {
	// Concurrency is how many runs this server executes at once. 0: Python.Workers times Python.RunsPerWorker; negative: none, they are left to
	// other servers on the database.
	Concurrency int
	// ByGraph limits the runs of single graphs, by name; 0 leaves them to other servers.
	ByGraph map[string]int
	// Timeout ends a run with status timeout. 0: 24 h; negative: never.
	Timeout time.Duration
	// Grace is what running runs get when the server is stopped. 0: 180 s; negative: nothing.
	Grace time.Duration
	// Drain is how long requests are still taken when the server is stopped, while /readyz reports that it is not ready. 0: no time.
	Drain time.Duration
	// Traces is what is recorded of nodes, model calls and tools: timings, content (also inputs and outputs) or off; "": timings, or history.traces of File.
	Traces string
	// Lease is the time after which other servers take over the runs of one that is gone, 1 s to 1 h; 0: 20 s.
	Lease time.Duration
}

// Streams bounds what is kept of resumable streams for replay.
type Streams struct {
	// TTL is how long, after the last run of a thread; 0: 1 h.
	TTL time.Duration
	// Records and Bytes are how much per thread, the tokens leaving first; 0: 10,000 and 64 MiB.
	Records int
	Bytes   int64
	// Memory is how many bytes of all threads together; 0: 64 MiB, at most an eighth of Go's memory limit. The database has what does not fit.
	Memory int64
}

// Python says how Python graphs of File are executed: in worker processes.
type Python struct {
	// Interpreter is the one that has langgraph; "": .venv next to File, $VIRTUAL_ENV of Environ, python3.
	Interpreter string
	// Workers is the number of processes; 0: one per core. RunsPerWorker is how many runs one executes at once; 0: 10.
	Workers, RunsPerWorker int
	// MaxMemory of a process in bytes, above which it takes no new runs and is replaced; 0: any.
	MaxMemory int64
	// MaxRuns after which a process is replaced; 0: any number.
	MaxRuns int
	// GateTimeout is how long a handler of auth may take; then the request is refused with 503. 0: 30 s.
	GateTimeout time.Duration
	// AllowBroken keeps the server up, and ready, although graphs do not import.
	AllowBroken bool
}

// load reads the configuration as `understudy serve` does, with the fields that are set as its flags: so that there is one place for defaults
// and checks.
func (c Config) load() (*config.Config, []config.Warning, error) {
	flags, mistake := c.flags()
	environ := make(map[string]string, len(c.Environ))
	for _, pair := range c.Environ {
		name, value, _ := strings.Cut(pair, "=")
		environ[name] = value
	}
	cfg, warnings, err := config.Load(config.Source{
		Mode: config.Serve, File: c.File, Flags: flags,
		Lookup: func(name string) (string, bool) { value, ok := environ[name]; return value, ok },
	})
	if err = errors.Join(mistake, err); err == nil && len(c.Storage.Keys) > 0 {
		cfg.Storage.Keys = c.Storage.Keys
	}
	return cfg, warnings, err
}

// flags returns the fields that are set, by the names of the flags; mistake is what cannot be a flag.
func (c Config) flags() (given map[string]string, mistake error) {
	f := flags{}
	if c.Addr != "" {
		host, port, err := net.SplitHostPort(c.Addr)
		if err != nil {
			mistake = fmt.Errorf("Config.Addr: %w; write HOST:PORT, such as 127.0.0.1:2024", err)
		}
		f.text("host", host)
		f.text("port", port)
	}
	f.text("data", c.Storage.Dir)
	f.text("database-url", c.Storage.Postgres)
	f.number("database-connections", int64(c.Storage.Connections))
	f.duration("database-timeout", c.Storage.StatementTimeout)
	f.duration("search-timeout", c.Storage.SearchTimeout)
	if c.Storage.FastCommit {
		f["synchronous"] = string(config.Normal)
	}
	f.text("redis-url", c.Redis.URL)
	f.text("redis-ca", c.Redis.CA)
	f.text("redis-prefix", c.Redis.Prefix)
	f.text("tls-cert", c.HTTP.Cert)
	f.text("tls-key", c.HTTP.Key)
	f.text("tls-client-ca", c.HTTP.ClientCA)
	f.text("mount-prefix", c.HTTP.Prefix)
	f.number("max-body", c.HTTP.MaxBody)
	f.number("max-bodies", c.HTTP.MaxBodies)
	f.text("deerflow", c.HTTP.DeerFlow)
	f.on("ignore-auth", c.HTTP.IgnoreAuth)
	f.on("studio", c.HTTP.Studio)
	f.text("traces", c.Runs.Traces)
	f.text("trusted-proxies", c.HTTP.TrustedProxies)
	f.on("no-auth", c.HTTP.NoAuth)
	f.number("concurrency", max(int64(c.Runs.Concurrency), 0))
	if c.Runs.Concurrency < 0 {
		f["concurrency"] = "0"
	}
	limits := make([]string, 0, len(c.Runs.ByGraph))
	for _, name := range slices.Sorted(maps.Keys(c.Runs.ByGraph)) {
		limits = append(limits, name+"="+strconv.Itoa(c.Runs.ByGraph[name]))
	}
	f.text("graph-concurrency", strings.Join(limits, ","))
	f.orNone("run-timeout", c.Runs.Timeout)
	f.orNone("grace", c.Runs.Grace)
	f.duration("drain", c.Runs.Drain)
	f.duration("lease", c.Runs.Lease)
	f.duration("resumable-ttl", c.Streams.TTL)
	f.number("stream-records", int64(c.Streams.Records))
	f.number("stream-bytes", c.Streams.Bytes)
	f.number("stream-memory", c.Streams.Memory)
	f.text("python", c.Python.Interpreter)
	f.number("workers", int64(c.Python.Workers))
	f.number("jobs-per-worker", int64(c.Python.RunsPerWorker))
	f.number("worker-memory", c.Python.MaxMemory)
	f.number("worker-max-runs", int64(c.Python.MaxRuns))
	f.duration("gate-timeout", c.Python.GateTimeout)
	f.duration("audit-retention", c.Storage.AuditRetention)
	f.on("allow-broken-graphs", c.Python.AllowBroken)
	return f, mistake
}

// fields are the fields of Config by the flags of `understudy serve`.
var fields = map[string]string{
	"config": "File", "host": "Addr", "port": "Addr", "data": "Storage.Dir", "database-url": "Storage.Postgres", "database-connections": "Storage.Connections",
	"database-timeout": "Storage.StatementTimeout", "search-timeout": "Storage.SearchTimeout", "synchronous": "Storage.FastCommit", "audit-retention": "Storage.AuditRetention",
	"redis-url": "Redis.URL", "redis-ca": "Redis.CA", "redis-prefix": "Redis.Prefix", "tls-cert": "HTTP.Cert", "tls-key": "HTTP.Key", "tls-client-ca": "HTTP.ClientCA",
	"mount-prefix": "HTTP.Prefix", "max-body": "HTTP.MaxBody", "max-bodies": "HTTP.MaxBodies", "deerflow": "HTTP.DeerFlow", "ignore-auth": "HTTP.IgnoreAuth", "studio": "HTTP.Studio",
	"trusted-proxies": "HTTP.TrustedProxies", "no-auth": "HTTP.NoAuth", "traces": "Runs.Traces", "concurrency": "Runs.Concurrency", "graph-concurrency": "Runs.ByGraph",
	"run-timeout": "Runs.Timeout", "grace": "Runs.Grace", "drain": "Runs.Drain", "lease": "Runs.Lease", "resumable-ttl": "Streams.TTL", "stream-records": "Streams.Records",
	"stream-bytes": "Streams.Bytes", "stream-memory": "Streams.Memory", "python": "Python.Interpreter", "workers": "Python.Workers", "jobs-per-worker": "Python.RunsPerWorker",
	"worker-memory": "Python.MaxMemory", "worker-max-runs": "Python.MaxRuns", "gate-timeout": "Python.GateTimeout", "allow-broken-graphs": "Python.AllowBroken",
	"log-level": "Log", "log-json": "Log",
}

// flagNames finds flags in text.
var flagNames = regexp.MustCompile(`--[a-z][a-z-]*[a-z]`)

// fieldNames puts the fields of Config in the place of flags: a program has no others.
func fieldNames(text string) string {
	return flagNames.ReplaceAllStringFunc(text, func(flag string) string {
		if field := fields[flag[2:]]; field != "" {
			return "Config." + field
		}
		return flag
	})
}

// inFields returns an error that names fields of Config where err names flags, and keeps its chain.
func inFields(err error) error {
	text := fieldNames(err.Error())
	if text == err.Error() {
		return err
	}
	return &fieldError{text, err}
}

type fieldError struct {
	text string
	err  error
}

func (e *fieldError) Error() string { return e.text }
func (e *fieldError) Unwrap() error { return e.err }

// flags are values by the names of flags. Zero values are left out.
type flags map[string]string

func (f flags) text(name, value string) {
	if value != "" {
		f[name] = value
	}
}

func (f flags) number(name string, n int64) {
	if n != 0 {
		f[name] = strconv.FormatInt(n, 10)
	}
}

func (f flags) duration(name string, d time.Duration) {
	if d != 0 {
		f[name] = d.String()
	}
}

// orNone takes a negative duration for 0 on the command line.
func (f flags) orNone(name string, d time.Duration) {
	f.duration(name, d)
	if d < 0 {
		f[name] = "0"
	}
}

func (f flags) on(name string, on bool) {
	if on {
		f[name] = "true"
	}
}

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/internal/serverurl"
	"understudy/run/spans"
)

// Setting is a flag, its environment variable and its words in --help: one row, three places.
type Setting struct {
	// Flag without dashes, and Env, the variable that does the same.
	Flag, Env string
	// Also are variables of LangGraph Server with the same meaning, asked after Env.
	Also []string
	// OwnOfServer: what stands in front of a LangGraph Server does not ask the Also variables, for
	// they mean that server's own.
	OwnOfServer bool
	// Short is the flag of one letter; "": none.
	Short string
	// Switch: the flag takes no value.
	Switch bool
	// Alone is the value of the flag when it is given without one; "": it needs one.
	Alone string
	// Value names the value in --help.
	Value string
	// Values are all that it takes, for completion; nil: others. set refuses the rest.
	Values []string
	// Default in words, and ByMode where a command has another.
	Default string
	ByMode  map[Mode]string
	Help    string
	// In are the commands that have it; nil: those that know graphs, dev, serve and worker.
	In []Mode

	// set reads a value. Its error says what to write, without naming the setting.
	set func(c *Config, s string) error
	// also reads the value of an Also variable if its unit differs.
	also func(c *Config, s string) error
}

// Of reports whether a command has the setting.
func (s Setting) Of(m Mode) bool {
	if s.In == nil {
		return m != Proxy
	}
	return slices.Contains(s.In, m)
}

// AlsoIn returns the variables of LangGraph Server that a command asks.
func (s Setting) AlsoIn(m Mode) []string {
	if m == Proxy && s.OwnOfServer {
		return nil
	}
	return s.Also
}

// Groups are the headings of settings in --help, in order.
func Groups() []string { return []string{"Server", "Storage", "Workers", "Streams", "Logging"} }

// Group returns the heading under which --help shows the setting: one of Groups.
func (s Setting) Group() string {
	switch s.Flag {
	case "data", "database-url", "database-connections", "database-timeout", "lease", "search-timeout", "synchronous", "audit-retention":
		return "Storage"
	case "python", "workers", "jobs-per-worker", "concurrency", "graph-concurrency", "worker-memory", "worker-max-runs", "reload", "allow-broken-graphs", "run-timeout", "gate-timeout":
		return "Workers"
	case "redis-url", "redis-ca", "redis-prefix", "resumable-ttl", "stream-records", "stream-bytes", "stream-memory":
		return "Streams"
	case "log-level", "log-json":
		return "Logging"
	}
	return "Server"
}

// DefaultIn is the default of a command, in words.
func (s Setting) DefaultIn(m Mode) string {
	if words, ok := s.ByMode[m]; ok {
		return words
	}
	return s.Default
}

// Settings are all of them, in the order of --help. config is not among them: it says where to
// read the rest.
func Settings() []Setting {
	all, proxy := []Mode{Dev, Serve, Worker, Proxy}, []Mode{Proxy}
	serving, api := []Mode{Dev, Serve, Proxy}, []Mode{Dev, Serve}
	return []Setting{
		{
			Flag: "upstream", Env: "UNDERSTUDY_UPSTREAM", Value: "URL", Default: "none; needed", In: proxy,
			Help: "URL of the upstream LangGraph Server, such as http://127.0.0.1:2024", set: setUpstream,
		},
		{
			Flag: "name", Env: "UNDERSTUDY_NAME", Value: "NAME", Default: "the address", In: proxy,
			Help: "name under which conversations of the upstream are stored; set it before the address of the upstream changes",
			set:  text(func(c *Config) *string { return &c.Upstream.Name }),
		},
		{
			Flag: "host", Env: "UNDERSTUDY_HOST", In: all, Value: "ADDRESS", Default: "127.0.0.1",
			Help: "address to listen on; 0.0.0.0 accepts other machines", set: text(func(c *Config) *string { return &c.Server.Host }),
		},
		{
			Flag: "port", Short: "p", Env: "UNDERSTUDY_PORT", In: serving, Value: "N", Default: "2024", ByMode: map[Mode]string{Proxy: "2025"}, Help: "port to listen on; 0 takes a free one",
			set: integer(func(c *Config) *int { return &c.Server.Port }),
		},
		{
			Flag: "health-port", Env: "UNDERSTUDY_HEALTH_PORT", In: []Mode{Worker}, Value: "N", Default: "none",
			Help: "port for /livez, /readyz and /metrics; 0 takes a free one", set: integer(func(c *Config) *int { return &c.Server.Port }),
		},
		{
			Flag: "tls-cert", Env: "UNDERSTUDY_TLS_CERT", In: all, Value: "FILE", Default: "none",
			Help: "certificate (PEM, with its chain) for TLS on the port; it is read again when it changes", set: text(func(c *Config) *string { return &c.Server.TLSCert }),
		},
		{
			Flag: "tls-key", Env: "UNDERSTUDY_TLS_KEY", In: all, Value: "FILE", Default: "none",
			Help: "key (PEM) of the certificate", set: text(func(c *Config) *string { return &c.Server.TLSKey }),
		},
		{
			Flag: "tls-client-ca", Env: "UNDERSTUDY_TLS_CLIENT_CA", In: all, Value: "FILE", Default: "none",
			Help: "certificates (PEM) that sign those of clients; clients without one are refused", set: text(func(c *Config) *string { return &c.Server.TLSClientCA }),
		},
		{
			Flag: "data", Env: "UNDERSTUDY_DATA", In: serving, Value: "DIR", Default: ".understudy", Help: "folder of the database, created if missing; :memory: keeps nothing",
			set: text(func(c *Config) *string { return &c.Storage.Data }),
		},
		{
			Flag: "database-url", Env: "UNDERSTUDY_DATABASE_URL", In: all, Also: []string{"DATABASE_URI", "POSTGRES_URI"}, OwnOfServer: true, Value: "URL", Default: "none",
			Help: "Postgres database, such as postgres://user:password@host:5432/name, in place of the data folder; several servers may share it, with --redis-url for live streams",
			set:  text(func(c *Config) *string { return &c.Storage.DatabaseURL }),
		},
		{
			Flag: "database-connections", Env: "UNDERSTUDY_DATABASE_CONNECTIONS", In: all, Also: []string{"LANGGRAPH_POSTGRES_POOL_MAX_SIZE"}, OwnOfServer: true, Value: "N",
			Default: "16, or pool_max_conns of the URL",
			Help:    "maximum connections to Postgres; a server has one more that listens", set: integer(func(c *Config) *int { return &c.Storage.Connections }),
		},
		{
			Flag: "database-timeout", Env: "UNDERSTUDY_DATABASE_TIMEOUT", In: all, Value: "DURATION", Default: "30s, or statement_timeout of the URL",
			Help: "time after which Postgres ends a statement", set: duration(func(c *Config) *time.Duration { return &c.Storage.StatementTimeout }),
		},
		{
			Flag: "lease", Env: "UNDERSTUDY_LEASE", Value: "DURATION", Default: "20s",
			Help: "how long a claimed run stays with its server without a heartbeat; four heartbeats fit into it", set: duration(func(c *Config) *time.Duration { return &c.Storage.Lease }),
		},
		{
			Flag: "redis-url", Env: "UNDERSTUDY_REDIS_URL", Also: []string{"REDIS_URI"}, Value: "URL", Default: "none",
			Help: "Redis, such as redis://host:6379/0, that carries live streams between servers on one database; without it streams show only what the server executes itself", set: text(func(c *Config) *string { return &c.Streams.RedisURL }),
		},
		{
			Flag: "redis-ca", Env: "UNDERSTUDY_REDIS_CA", Value: "FILE", Default: "those of the system",
			Help: "CA certificates (PEM) for rediss://", set: text(func(c *Config) *string { return &c.Streams.RedisCA }),
		},
		{
			Flag: "redis-prefix", Env: "UNDERSTUDY_REDIS_PREFIX", Also: []string{"REDIS_KEY_PREFIX"}, Value: "NAME", Default: "understudy",
			Help: "prefix of all keys in Redis; the same for servers on one database, different for each database", set: text(func(c *Config) *string { return &c.Streams.RedisPrefix }),
		},
		{
			Flag: "python", Env: "UNDERSTUDY_PYTHON", Value: "PATH", Default: ".venv next to the config, $VIRTUAL_ENV, python3",
			Help: "Python interpreter for the graphs; langgraph must be installed for it", set: text(func(c *Config) *string { return &c.Workers.Python }),
		},
		{
			Flag: "workers", Env: "UNDERSTUDY_WORKERS", Value: "N", Default: "one per core", Help: "Python processes",
			set: integer(func(c *Config) *int { return &c.Workers.Processes }),
		},
		{
			Flag: "jobs-per-worker", Env: "UNDERSTUDY_JOBS_PER_WORKER", Also: []string{"N_JOBS_PER_WORKER"}, Value: "N", Default: "10",
			Help: "runs that one Python process executes at once; 0 means --concurrency 0", set: integer(func(c *Config) *int { return &c.Workers.JobsPerWorker }),
		},
		{
			Flag: "concurrency", Env: "UNDERSTUDY_CONCURRENCY", Value: "N", Default: "workers times jobs-per-worker",
			Help: "runs that this server executes at once; 0 leaves them to other servers on the database", set: setConcurrency,
		},
		{
			Flag: "graph-concurrency", Env: "UNDERSTUDY_GRAPH_CONCURRENCY", Value: "GRAPH=N,…", Default: "what langgraph.json says",
			Help: "runs of single graphs that this server executes at once, such as researcher=2,chat=20; 0 leaves them to other servers", set: setGraphConcurrency,
		},
		{
			Flag: "worker-memory", Env: "UNDERSTUDY_WORKER_MEMORY", Value: "SIZE", Default: "none",
			Help: "resident memory of one Python process above which it takes no new runs and is replaced; 0: no limit", set: size(func(c *Config) *ByteSize { return &c.Workers.Memory }),
		},
		{
			Flag: "worker-max-runs", Env: "UNDERSTUDY_WORKER_MAX_RUNS", Value: "N", Default: "none",
			Help: "runs after which a Python process is replaced; 0: never", set: integer(func(c *Config) *int { return &c.Workers.MaxRuns }),
		},
		{
			Flag: "reload", Env: "UNDERSTUDY_RELOAD", In: []Mode{Dev}, Switch: true, Default: "true",
			Help: "load graphs again when their files change; running runs finish on the old code", set: boolean(func(c *Config) *bool { return &c.Workers.Reload }),
		},
		{
			Flag: "allow-broken-graphs", Env: "UNDERSTUDY_ALLOW_BROKEN_GRAPHS", Switch: true, Default: "false", ByMode: map[Mode]string{Dev: "true"},
			Help: "be ready although a Python graph fails to import, and keep running when none imports", set: boolean(func(c *Config) *bool { return &c.Workers.AllowBrokenGraphs }),
		},
		{
			Flag: "run-timeout", Env: "UNDERSTUDY_RUN_TIMEOUT", Also: []string{"BG_JOB_TIMEOUT_SECS"}, Value: "DURATION", Default: "24h",
			Help: "time after which a run ends with status timeout; 0 for never",
			set:  duration(func(c *Config) *time.Duration { return &c.Workers.RunTimeout }), also: seconds(func(c *Config) *time.Duration { return &c.Workers.RunTimeout }),
		},
		{
			Flag: "gate-timeout", Env: "UNDERSTUDY_GATE_TIMEOUT", Value: "DURATION", Default: "30s",
			Help: "how long a Python handler of auth may take; then the request is refused with 503",
			set:  duration(func(c *Config) *time.Duration { return &c.Workers.GateTimeout }),
		},
		{
			Flag: "audit-retention", Env: "UNDERSTUDY_AUDIT_RETENTION", In: api, Value: "DURATION", Default: "2160h",
			Help: "how long entries of the audit log are kept",
			set:  duration(func(c *Config) *time.Duration { return &c.Storage.AuditRetention }),
		},
		{
			Flag: "grace", Env: "UNDERSTUDY_GRACE", Also: []string{"BG_JOB_SHUTDOWN_GRACE_PERIOD_SECS"}, Value: "DURATION", Default: "180s", ByMode: map[Mode]string{Dev: "10s"},
			Help: "time for running runs to end when the server stops",
			set:  duration(func(c *Config) *time.Duration { return &c.Server.Grace }), also: seconds(func(c *Config) *time.Duration { return &c.Server.Grace }),
		},
		{
			Flag: "drain", Env: "UNDERSTUDY_DRAIN", In: api, Value: "DURATION", Default: "0",
			Help: "how long a stopping server keeps serving while /readyz returns 503, so that load balancers route elsewhere",
			set:  duration(func(c *Config) *time.Duration { return &c.Server.Drain }),
		},
		{
			Flag: "search-timeout", Env: "UNDERSTUDY_SEARCH_TIMEOUT", In: api, Value: "DURATION", Default: "10s",
			Help: "time limit of a search or count without an index; then 422",
			set:  duration(func(c *Config) *time.Duration { return &c.Storage.SearchTimeout }),
		},
		{
			Flag: "resumable-ttl", Env: "UNDERSTUDY_RESUMABLE_TTL", Also: []string{"RESUMABLE_STREAM_TTL_SECONDS"}, Value: "DURATION", Default: "1h",
			Help: "how long a resumable stream can be replayed after the last run of its thread",
			set:  duration(func(c *Config) *time.Duration { return &c.Streams.ResumableTTL }), also: seconds(func(c *Config) *time.Duration { return &c.Streams.ResumableTTL }),
		},
		{
			Flag: "stream-records", Env: "UNDERSTUDY_STREAM_RECORDS", Value: "N", Default: "10000",
			Help: "maximum events kept per thread for replay; when exceeded, tokens are evicted first", set: integer(func(c *Config) *int { return &c.Streams.Records }),
		},
		{
			Flag: "stream-bytes", Env: "UNDERSTUDY_STREAM_BYTES", Value: "SIZE", Default: "64MiB",
			Help: "maximum bytes kept per thread for replay", set: size(func(c *Config) *ByteSize { return &c.Streams.Bytes }),
		},
		{
			Flag: "stream-memory", Env: "UNDERSTUDY_STREAM_MEMORY", Value: "SIZE", Default: "64MiB, at most an eighth of GOMEMLIMIT",
			Help: "memory for the replay of all threads, without Redis; what does not fit is read from the database", set: size(func(c *Config) *ByteSize { return &c.Streams.Memory }),
		},
		{
			Flag: "max-body", In: api, Env: "UNDERSTUDY_MAX_BODY", Also: []string{"HTTP_MAX_REQUEST_BODY_BYTES"}, Value: "SIZE", Default: "300MiB",
			Help: "largest request body; larger ones get 413", set: size(func(c *Config) *ByteSize { return &c.Server.MaxBody }),
		},
		{
			Flag: "max-bodies", In: api, Env: "UNDERSTUDY_MAX_BODIES", Value: "SIZE", Default: "1GiB, or half of GOMEMLIMIT",
			Help: "memory of all request bodies in flight, each counted three times; beyond it 503", set: size(func(c *Config) *ByteSize { return &c.Server.MaxBodies }),
		},
		{
			Flag: "mount-prefix", In: api, Env: "UNDERSTUDY_MOUNT_PREFIX", Also: []string{"MOUNT_PREFIX", "LANGGRAPH_MOUNT_PREFIX"}, Value: "PATH", Default: "none, or http.mount_prefix",
			Help: "URL path prefix for all routes, such as /my-api", set: setMountPrefix,
		},
		{
			Flag: "synchronous", Env: "UNDERSTUDY_SYNCHRONOUS", In: all, Value: strings.Join(synchronous, "|"), Values: synchronous, Default: "full",
			Help: "full: a commit is on disk before it is acknowledged; normal: a power failure may lose the last ones",
			set:  oneOf(synchronous, func(c *Config, s string) { c.Storage.Synchronous = Synchronous(s) }),
		},
		{
			Flag: "offline-reads", Env: "UNDERSTUDY_OFFLINE_READS", In: proxy, Switch: true, Default: "false",
			Help: "while the upstream is down, return recorded messages and events to callers without credentials; for upstreams that need none",
			set:  boolean(func(c *Config) *bool { return &c.Upstream.OfflineReads }),
		},
		{
			Flag: "upstream-host", Env: "UNDERSTUDY_UPSTREAM_HOST", In: proxy, Value: strings.Join(upstreamHosts, "|"), Values: upstreamHosts, Default: "client for http, upstream for https",
			Help: "the Host header that the upstream sees: the client's or its own",
			set:  oneOf(upstreamHosts, func(c *Config, s string) { c.Upstream.Host = s }),
		},
		{
			Flag: "max-rewrite", Env: "UNDERSTUDY_MAX_REWRITE", In: proxy, Value: "SIZE", Default: "64MiB",
			Help: "largest body or event that is rewritten; larger ones pass unchanged", set: size(func(c *Config) *ByteSize { return &c.Upstream.MaxRewrite }),
		},
		{
			Flag: "log-level", Env: "UNDERSTUDY_LOG_LEVEL", In: all, Also: []string{"LOG_LEVEL"}, Value: "LEVEL", Values: logLevels, Default: "info",
			Help: orList(logLevels), set: setLogLevel,
		},
		{
			Flag: "log-json", Env: "UNDERSTUDY_LOG_JSON", In: all, Also: []string{"LOG_JSON"}, Switch: true, Default: "true", ByMode: map[Mode]string{Dev: "false"},
			Help: "log one JSON object per line", set: boolean(func(c *Config) *bool { return &c.Logging.JSON }),
		},
		{
			Flag: "deerflow", Env: "UNDERSTUDY_DEERFLOW", In: api, Alone: auto, Value: "FILE", Default: "off; without a value DEER_FLOW_CONFIG_PATH, config.yaml or backend/config.yaml",
			Help: "serve DeerFlow's Gateway API for its web UI and channels too, with the settings of this config.yaml (--deerflow=FILE)", set: setDeerFlow,
		},
		{
			Flag: "ignore-auth", Env: "UNDERSTUDY_IGNORE_AUTH", Switch: true, Default: "false",
			Help: "serve without the auth and encryption of langgraph.json; loopback only", set: boolean(func(c *Config) *bool { return &c.Server.IgnoreAuth }),
		},
		{
			Flag: "studio", Env: "UNDERSTUDY_STUDIO", In: serving, Switch: true, Default: "false", ByMode: map[Mode]string{Dev: "true"},
			Help: "serve pages to talk to graphs and look into threads at /studio/", set: boolean(func(c *Config) *bool { return &c.Server.Studio }),
		},
		{
			Flag: "allowed-hosts", Env: "UNDERSTUDY_ALLOWED_HOSTS", In: []Mode{Dev}, Value: "NAMES", Default: "none",
			Help: "names in addition to localhost that requests may have in their Host header, separated by commas; * for all", set: setAllowedHosts,
		},
		{
			Flag: "trusted-proxies", Env: "UNDERSTUDY_TRUSTED_PROXIES", In: api, Value: "NETWORKS", Default: "none",
			Help: "reverse proxies whose X-Forwarded-For, -Proto and -Host count: addresses and networks, separated by commas", set: setTrustedProxies,
		},
		{
			Flag: "traces", Env: "UNDERSTUDY_TRACES", Value: strings.Join(traceLevels, "|"), Values: traceLevels, Default: "timings, or history.traces", ByMode: map[Mode]string{Dev: "content, or history.traces"},
			Help: "what is recorded of nodes, model calls and tools of runs: their times, also inputs and outputs, or nothing",
			set:  oneOf(traceLevels, func(c *Config, s string) { c.Traces.Level = spans.Level(s) }),
		},
		{
			Flag: "no-auth", Env: "UNDERSTUDY_NO_AUTH", In: []Mode{Serve}, Switch: true, Default: "false",
			Help: "listen on an address that other machines reach, without authentication", set: boolean(func(c *Config) *bool { return &c.Server.NoAuth }),
		},
	}
}

// What settings take that name a choice.
var (
	synchronous   = []string{string(Full), string(Normal)}
	upstreamHosts = []string{"client", "upstream"}
	logLevels     = []string{"debug", "info", "warning", "error"}
)

// oneOf returns the set of a setting that takes one of values, in any case of letters.
func oneOf(values []string, set func(c *Config, s string)) func(*Config, string) error {
	return func(c *Config, s string) error {
		if s = strings.ToLower(s); !slices.Contains(values, s) {
			return errors.New("write " + orList(values))
		}
		set(c, s)
		return nil
	}
}

// orList names at least two choices: "a, b or c".
func orList(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// auto is the value of a setting that is looked for.
const auto = "auto"

// setDeerFlow sets the path of DeerFlow's config.yaml; load looks for it if it is not named.
func setDeerFlow(c *Config, s string) error {
	c.Server.DeerFlow = s
	return nil
}

// apply sets s on c, and says which name had the mistake.
func (s Setting) apply(c *Config, name, text string, set func(*Config, string) error) *Mistake {
	if err := set(c, strings.TrimSpace(text)); err != nil {
		if s.Flag == "upstream" { // the error repeats the address, unless it may hold a password
			return &Mistake{Text: fmt.Sprintf("%s: %v", name, err)}
		}
		return &Mistake{Text: fmt.Sprintf("%s: %q: %v", name, text, err)}
	}
	return nil
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, s string) error { *field(c) = s; return nil }
}

func integer(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, s string) error {
		n, err := strconv.Atoi(s)
		if err != nil {
			return errors.New("write a whole number")
		}
		*field(c) = n
		return nil
	}
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, s string) error {
		switch strings.ToLower(s) {
		case "true", "1", "yes", "on":
			*field(c) = true
		case "false", "0", "no", "off", "":
			*field(c) = false
		default:
			return errors.New("write true or false")
		}
		return nil
	}
}

// maxDuration keeps sums of times within range.
const maxDuration = 10 * 365 * 24 * time.Hour

func duration(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 || d > maxDuration {
			return errors.New("write a duration with its unit, such as 90s, 15m or 24h")
		}
		*field(c) = d
		return nil
	}
}

// seconds reads what LangGraph Server's variables hold: a number, fractions allowed.
func seconds(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= maxDuration.Seconds()) {
			return errors.New("write a number of seconds, such as 3600")
		}
		*field(c) = time.Duration(f * float64(time.Second))
		return nil
	}
}

func size(field func(*Config) *ByteSize) func(*Config, string) error {
	return func(c *Config, s string) error {
		n, err := parseSize(s)
		if err == nil {
			*field(c) = n
		}
		return err
	}
}

func parseSize(s string) (ByteSize, error) {
	digits := strings.TrimRight(s, "KMGiBkb ")
	unit := map[string]ByteSize{"": 1, "b": 1, "k": KiB, "kb": KiB, "kib": KiB, "m": MiB, "mb": MiB, "mib": MiB, "g": GiB, "gb": GiB, "gib": GiB}[strings.ToLower(strings.TrimSpace(s[len(digits):]))]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || unit == 0 || n < 0 || n > int64((1<<62)/unit) {
		return 0, errors.New("write a number of bytes, or one with a unit such as 300MiB")
	}
	return ByteSize(n) * unit, nil
}

func setConcurrency(c *Config, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("write how many runs this server may execute at once, or 0 to execute none")
	}
	c.Workers.Concurrency = n
	return nil
}

// setGraphConcurrency adds to what langgraph.json says, and wins over it.
func setGraphConcurrency(c *Config, s string) error {
	for _, part := range split(s) {
		graph, number, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if graph = strings.TrimSpace(graph); graph == "" || err != nil || n < 0 || n > maxConcurrency {
			return fmt.Errorf("write a graph and how many of its runs are executed at once, from 0 to %d, such as researcher=2", maxConcurrency)
		}
		c.limitGraph(graph, n)
	}
	return nil
}

// maxConcurrency is above what a server can do, and keeps mistakes from being taken for a wish.
const maxConcurrency = 100_000

func (c *Config) limitGraph(graph string, runs int) {
	if c.Workers.GraphConcurrency == nil {
		c.Workers.GraphConcurrency = map[string]int{}
	}
	c.Workers.GraphConcurrency[graph] = runs
}

func setMountPrefix(c *Config, s string) error {
	prefix, problem := mountPrefix(s)
	if problem != "" {
		return errors.New(problem)
	}
	c.HTTP.MountPrefix = prefix
	return nil
}

func setUpstream(c *Config, s string) error {
	u, err := serverurl.ParseBase(s)
	if err != nil {
		return err
	}
	if u.User != nil {
		return errors.New("remove the credentials; every client sends its own")
	}
	c.Upstream.URL = u
	return nil
}

// setLogLevel takes Python's names too.
func setLogLevel(c *Config, s string) error {
	level, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError, "critical": slog.LevelError,
	}[strings.ToLower(s)]
	if !ok {
		return errors.New("write " + orList(logLevels))
	}
	c.Logging.Level = level
	return nil
}

// absolute resolves the folders that flags name, from the current one.
func (c *Config) absolute() error {
	if c.Storage.Data == "" || c.Storage.Data == ":memory:" {
		return nil
	}
	data, err := filepath.Abs(c.Storage.Data)
	c.Storage.Data = data
	return err
}

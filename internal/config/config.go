package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"understudy/access/audit"
	"understudy/internal/header"
	"understudy/internal/scan"
	"understudy/run/spans"
)

// Mode is how the program was started. It decides some defaults.
type Mode int

const (
	Dev    Mode = iota // development: text logs, short grace
	Serve              // production: JSON logs, long grace
	Worker             // as Serve, without the API
	Proxy              // in front of a LangGraph Server: JSON logs; reads some sections of langgraph.json only
)

// Synchronous is when SQLite acknowledges a commit.
type Synchronous string

const (
	Full   Synchronous = "full"   // when it is on disk
	Normal Synchronous = "normal" // when it survives a crash of the process; a power failure may lose the last commits
)

// ByteSize is a number of bytes.
type ByteSize int64

// Units of ByteSize.
const (
	KiB ByteSize = 1 << 10
	MiB ByteSize = 1 << 20
	GiB ByteSize = 1 << 30
)

// Config is the complete configuration of the server. Create one with Load, or with Default and
// Validate.
type Config struct {
	Mode Mode

	// File is the langgraph.json, absolute; "" if none was read.
	File string
	// AllowBrokenGraphs lets the server be ready although a Python graph fails to import, and keeps
	// it running when none imports.
	AllowBrokenGraphs bool
	// Dir is the folder of File. Relative paths in the file start here, and workers run here.
	Dir string
	// Files are those that File names and that were read with it, absolute: variables, prompts and scripts. They need not exist.
	Files []string

	Host string
	// Port to listen on; 0 takes a free one. A Worker uses it for health and metrics only; -1:
	// none.
	Port int
	// Data is the data folder, absolute. It is created if missing. ":memory:" keeps nothing.
	Data string
	// DatabaseURL is a Postgres database in place of Data; "" for none. It may contain a password:
	// log DatabasePlace instead.
	DatabaseURL string
	// DatabaseConnections is the maximum number of connections, unless the URL sets it.
	// DatabaseTimeout ends longer statements.
	DatabaseConnections int
	DatabaseTimeout     time.Duration
	// Lease is how long a claimed run stays with its server without a heartbeat.
	Lease time.Duration
	// RedisURL is the Redis for live streams between servers; "" keeps them in memory. It may
	// contain a password: log RedisPlace instead.
	RedisURL string
	// RedisCA is a file of CA certificates in PEM; "" for those of the system. RedisPrefix is the
	// prefix of all keys.
	RedisCA, RedisPrefix string
	// Python is the interpreter of the workers, absolute; "" if no graph needs one.
	Python string
	// Keys encrypt the content of the database, the current one first; nil: it is not encrypted. UnindexedKeys are keys of metadata that are kept
	// out of the index.
	Keys          [][]byte
	UnindexedKeys []string
	// TLSCert and TLSKey are files of the certificate that the port serves and of its key, TLSClientCA of the certificates that sign those of
	// clients; "": without.
	TLSCert, TLSKey, TLSClientCA string
	// Workers is the number of worker processes, at least 1.
	Workers int
	// JobsPerWorker is how many runs one worker process executes at once; 0 executes none.
	JobsPerWorker int
	// Concurrency is how many runs this server executes at once; 0 executes none, -1 means Workers
	// times JobsPerWorker. See Runs.
	Concurrency int
	// GraphConcurrency is how many runs of a graph this server executes at once. Other graphs share
	// Runs.
	GraphConcurrency map[string]int
	// GraphConfigs are the configurations of default assistants, JSON objects by graph.
	GraphConfigs map[string]json.RawMessage
	// WorkerMemory is the memory of a worker process above which it is replaced; 0 for no limit.
	WorkerMemory ByteSize
	// WorkerMaxRuns is how many runs a worker process executes before it is replaced; 0 for no
	// limit.
	WorkerMaxRuns int
	// Reload loads graphs again when their files change. Dev only.
	Reload bool

	LogLevel slog.Level
	LogJSON  bool

	Synchronous Synchronous
	// Grace is how long running runs may continue after SIGTERM before they return to the queue.
	Grace time.Duration
	// Drain is how long requests are served after SIGTERM while the server is not ready.
	Drain time.Duration
	// GateTimeout is how long a Python handler of auth may take.
	GateTimeout time.Duration
	// RunTimeout ends a run with status timeout; 0 for never.
	RunTimeout time.Duration
	// ResumableTTL is how long records of a resumable run can be replayed after the last run of its
	// thread.
	ResumableTTL time.Duration
	// SearchTimeout bounds a search that no index answers.
	SearchTimeout time.Duration
	// StreamRecords and StreamBytes bound what is kept of a thread for replay.
	StreamRecords int
	StreamBytes   ByteSize
	// StreamMemory bounds what is kept of all threads in memory; 0: 64 MiB, at most an eighth of Go's memory limit.
	StreamMemory ByteSize
	// MaxBody bounds one request body, MaxBodies what all bodies in flight take together; 0: half
	// of Go's memory limit, at most 1 GiB.
	MaxBody, MaxBodies ByteSize

	// DeerFlow is the config.yaml of the DeerFlow installation whose Gateway API is served in addition; "": none.
	DeerFlow string
	// Lookup finds environment variables, for what reads its own.
	Lookup func(name string) (string, bool)

	// AuditRetention is how long entries of the audit log are kept.
	AuditRetention time.Duration
	// ConcurrentRuns is how many runs an identity may have waiting and running on all servers; 0: any number.
	ConcurrentRuns int
	// RunsPerMinute is how many runs an identity may create on a server in a minute; 0: any number.
	RunsPerMinute int
	// IgnoreAuth starts without the auth and encryption of langgraph.json. Only valid on a loopback
	// address.
	IgnoreAuth bool
	// Studio serves the pages at /studio/.
	Studio bool
	// AllowedHosts are names that requests may have in their Host header although they are not names of this machine: in lower case, *.example.com for
	// subdomains, * for all. Dev only, see ChecksHost.
	AllowedHosts []string
	// TrustedProxies are reverse proxies whose X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host count.
	TrustedProxies []netip.Prefix
	// Traces is what is recorded of the spans of runs, TraceBytes how much of an input or output, and TraceAge for how long; 0: as long as the run.
	Traces     spans.Level
	TraceBytes ByteSize
	TraceAge   time.Duration
	// NoAuth lets everyone who reaches the address do everything. Without it, or authentication, serve listens on loopback addresses only.
	NoAuth bool

	// Upstream is the server behind a proxy: http or https, without credentials or a final slash.
	Upstream *url.URL
	// Name is the key of what a proxy records, in place of the upstream's address; "" uses the
	// address.
	Name string
	// OfflineReads lets the proxy return recorded messages while the upstream is down.
	OfflineReads bool
	// UpstreamHost is the Host header for the upstream: client, upstream, or "" for the default of
	// its scheme.
	UpstreamHost string
	// MaxRewrite bounds the bodies and events that the proxy rewrites.
	MaxRewrite ByteSize

	// Graphs in the order of the file, with unique IDs.
	Graphs []Graph
	// PythonPath are folders that workers add to sys.path, absolute: Dir, then local dependencies.
	PythonPath []string
	// PythonVersion is python_version of the file ("3.12"), or "".
	PythonVersion string
	// Env are variables that workers get over those of the server.
	Env map[string]string
	// MissingEnv is the file that env names when it does not exist, absolute: a variable that is
	// missed was probably meant to be there. "" otherwise.
	MissingEnv string

	// Components are in the order of the file; SharedPackages are those that its clients provide (ui_config.shared).
	Components     []Components
	SharedPackages []string

	HTTP     HTTP
	Auth     Auth
	Webhooks Webhooks
	Serde    Serde
	History  History
	// ThreadTTL is checkpointer.ttl, ItemTTL store.ttl.
	ThreadTTL ThreadTTL
	ItemTTL   ItemTTL
	// StoreIndex is store.index; nil: there is none.
	StoreIndex *StoreIndex
	// Encryption are handlers in Python that encrypt the keys of the database's content, in place of Keys.
	Encryption Object

	// places maps a setting's flag to where it was set: "--port", "UNDERSTUDY_PORT",
	// "UNDERSTUDY_PORT in env of langgraph.json".
	places map[string]string
	// dataOnly: what only requests need is not asked for.
	dataOnly bool
	// src is the content of File, and offsets where each of its keys stands in it.
	src     []byte
	offsets map[string]int
}

// Graph is one entry of the graphs section.
type Graph struct {
	ID string
	// Path is the file, absolute, or Module is dotted; one is empty, both for a remote or declared
	// graph.
	Path, Module string
	// Attr is the name of the graph in the file or module.
	Attr        string
	Description string
	Remote      *Remote // nil: the graph runs here
	Agent       *Agent  // nil: the graph is not declared
}

// IsPython reports whether a Python worker runs the graph.
func (g Graph) IsPython() bool { return g.Remote == nil && g.Agent == nil }

// Remote is where a graph of another server is.
type Remote struct {
	URL     string // http or https; may hold user and password
	GraphID string // of the graph there
	Headers map[string]string
}

// Components are the React components of one graph (ui).
type Components struct {
	Graph string
	File  string // absolute path of the module that exports them
}

// HTTP is the http section.
type HTTP struct {
	// MountPrefix is the URL path prefix of every route: "" or "/prefix", without a final slash.
	MountPrefix string
	CORS        CORS
	Disable     Disable
	// ConfigurableHeaders selects request headers that are passed to config.configurable of a run.
	ConfigurableHeaders header.Filter
	// LoggingHeaders selects request headers that are logged with each request.
	LoggingHeaders header.Filter
	// App is the Starlette or FastAPI application of http.app.
	App Object
	// AuthFirst authenticates requests before they reach the middleware of App (http.middleware_order).
	AuthFirst bool
	// GuardRoutes makes the routes of App need credentials too (http.enable_custom_route_auth).
	GuardRoutes bool
}

// CORS is http.cors.
type CORS struct {
	// AllowOrigins are origins, or "*" for all.
	AllowOrigins []string
	// AllowOriginRegex matches whole origins, in addition to AllowOrigins; "" for none. It
	// compiles.
	AllowOriginRegex string
	// Given: langgraph.json has this section.
	Given bool
	// AllowMethods and AllowHeaders may be "*". Headers of simple requests are always allowed.
	AllowMethods, AllowHeaders []string
	ExposeHeaders              []string
	AllowCredentials           bool
	// MaxAge is how long a browser caches a preflight.
	MaxAge time.Duration
}

// Disable is http.disable_*: groups of routes that return 404, and webhooks that are not sent.
type Disable struct {
	Assistants, Threads, Runs, EventStreaming, Store, Meta, MCP, A2A, OpenAI, UI, Webhooks bool
}

// Webhooks is the webhooks section.
type Webhooks struct {
	URL URLPolicy
	// Headers are sent with every webhook; templates are already replaced.
	Headers map[string]string
	// AllowedFields are the fields that are sent; nil for all.
	AllowedFields []string
}

// URLPolicy is webhooks.url: the allowed targets of webhooks.
type URLPolicy struct {
	RequireHTTPS bool
	// AllowedDomains are hosts, or "*.domain" for subdomains; empty allows any.
	AllowedDomains []string
	// AllowedPorts are the allowed ports; empty allows any.
	AllowedPorts []int
	// MaxURLLength in characters.
	MaxURLLength      int
	DisableLoopback   bool
	DisablePrivateIPs bool
}

// ThreadTTL is checkpointer.ttl: retention of unused threads.
type ThreadTTL struct {
	Strategy string         // delete or keep_latest
	Default  *time.Duration // for threads without a ttl of their own; nil keeps them
	Every    time.Duration  // between sweeps; 0 for the default
	Limit    int            // threads per sweep; 0 for the default
}

// ItemTTL is store.ttl: retention of store items.
type ItemTTL struct {
	Default time.Duration // for items without a ttl of their own; 0 keeps them
	Unread  bool          // reading does not extend the expiry
	Every   time.Duration // between sweeps; 0 for the default
}

// Serde is checkpointer.serde: what a worker may load from stored checkpoints. The lists contain
// module and names, outermost first.
type Serde struct {
	// AllowedJSONModules and AllowedMsgpackModules are passed to the worker's serializer; nil for
	// its default.
	AllowedJSONModules, AllowedMsgpackModules *Modules
	// PickleFallback lets the worker store values as pickle that no other form can hold.
	PickleFallback bool
}

// Modules is a list of importable names, or all.
type Modules struct {
	All  bool
	List [][]string
}

// Runs returns how many runs the server executes at once; 0 if it only serves.
func (c *Config) Runs() int {
	if c.Concurrency >= 0 {
		return c.Concurrency
	}
	return c.Workers * c.JobsPerWorker
}

// Default returns the configuration without any settings or graphs.
func Default(mode Mode) *Config {
	c := &Config{
		Mode: mode, Host: "127.0.0.1", Port: 2024, Data: ".understudy", DatabaseConnections: 16, DatabaseTimeout: 30 * time.Second, Lease: 20 * time.Second,
		Workers: runtime.GOMAXPROCS(0), JobsPerWorker: 10, Concurrency: -1, Reload: mode == Dev, AllowBrokenGraphs: mode == Dev, Studio: mode == Dev, Traces: spans.Timings, TraceBytes: spans.DefaultBytes,
		LogLevel: slog.LevelInfo, LogJSON: mode != Dev,
		Synchronous: Full, SearchTimeout: scan.DefaultBudget, Grace: 10 * time.Second, RunTimeout: 24 * time.Hour, GateTimeout: 30 * time.Second, AuditRetention: audit.Retention, ResumableTTL: time.Hour, StreamRecords: 10_000, StreamBytes: 64 * MiB, RedisPrefix: "understudy",
		MaxBody: 300 * MiB, MaxRewrite: 64 * MiB,
		HTTP:     HTTP{CORS: defaultCORS()},
		Webhooks: Webhooks{URL: URLPolicy{MaxURLLength: 4096, DisableLoopback: true}},
		Serde:    Serde{PickleFallback: true},
		History:  defaultHistory(),
	}
	switch mode {
	case Dev:
		c.Traces = spans.Content
	case Serve:
		c.Grace = 180 * time.Second
	case Worker:
		c.Grace = 180 * time.Second
		c.Port = -1
	case Proxy:
		c.Port = 2025 // the upstream has the usual port
	}
	return c
}

// defaultCORS is LangGraph Server's behavior without a cors section.
func defaultCORS() CORS {
	return CORS{
		AllowOrigins: []string{"*"}, AllowMethods: []string{"*"}, AllowHeaders: []string{"*"},
		ExposeHeaders: []string{"x-pagination-total", "x-pagination-next", "content-location"},
		MaxAge:        600 * time.Second,
	}
}

// Validate returns all mistakes at once, as Mistakes, or nil.
func (c *Config) Validate() error { return c.validate().orNil() }

func (c *Config) validate() Mistakes {
	var m Mistakes
	// As mistakes of single settings are written: its name, its value, and what to write.
	wrong := func(flag string, value any, write string, args ...any) {
		m = append(m, Mistake{Text: fmt.Sprintf("%s: %q: %s", c.Where(flag), fmt.Sprint(value), fmt.Sprintf(write, args...))})
	}
	missing := func(flag, write string) { m = append(m, Mistake{Text: c.Where(flag) + ": missing: " + write}) }
	port := "port"
	if c.Mode == Worker {
		port = "health-port"
	}
	if none := c.Mode == Worker && c.Port == -1; !none && (c.Port < 0 || c.Port > 65535) {
		wrong(port, c.Port, "write a port from 1 to 65535, or 0 for a free one")
	}
	if c.Host == "" {
		missing("host", "write 127.0.0.1, or 0.0.0.0 to be reached from other machines")
	}
	if c.Data == "" {
		missing("data", "name a folder, such as .understudy")
	}
	if c.DatabaseConnections < 2 {
		wrong("database-connections", c.DatabaseConnections, "at least two are needed")
	}
	if c.DatabaseTimeout < time.Second {
		wrong("database-timeout", c.DatabaseTimeout, "write at least 1s")
	}
	if c.Lease < time.Second || c.Lease > time.Hour {
		wrong("lease", c.Lease, "write 1s to 1h: how long the runs of a dead server wait before another takes them over")
	}
	if c.Workers < 1 {
		wrong("workers", c.Workers, "at least one worker process is needed")
	}
	if c.JobsPerWorker < 0 {
		wrong("jobs-per-worker", c.JobsPerWorker, "write how many runs a Python process may execute at once, or 0 to execute none")
	}
	if c.Concurrency < -1 {
		wrong("concurrency", c.Concurrency, "write how many runs this server may execute at once, or 0 to execute none")
	}
	none := "concurrency"
	if c.Concurrency < 0 {
		none = "jobs-per-worker"
	}
	switch {
	case c.Mode == Worker && c.DatabaseURL == "":
		missing("database-url", "a worker shares a Postgres database with servers, and a data folder is for one server")
	case c.Mode == Worker && c.Runs() == 0:
		wrong(none, 0, "a worker must execute at least one run")
	case c.Mode != Proxy && c.Runs() == 0 && c.DatabaseURL == "":
		wrong(none, 0, "a data folder has no other server that would execute the runs; share a Postgres database (--database-url) "+
			"with understudy worker, or leave it out")
	}
	if c.WorkerMaxRuns < 0 {
		wrong("worker-max-runs", c.WorkerMaxRuns, "write 0 for no limit")
	}
	if c.WorkerMemory != 0 && c.WorkerMemory < 64*MiB {
		wrong("worker-memory", c.WorkerMemory, "Python with langgraph needs more: write 1GiB or so, or 0 for no limit")
	}
	for _, d := range []struct {
		flag string
		time time.Duration
	}{{"grace", c.Grace}, {"drain", c.Drain}, {"run-timeout", c.RunTimeout}, {"gate-timeout", c.GateTimeout}, {"resumable-ttl", c.ResumableTTL}} {
		if d.time < 0 {
			wrong(d.flag, d.time, "write a duration that is not negative")
		}
	}
	if c.AuditRetention < time.Hour {
		wrong("audit-retention", c.AuditRetention, "write 1h or more")
	}
	if c.SearchTimeout <= 0 {
		wrong("search-timeout", c.SearchTimeout, "write a duration above 0")
	}
	if c.StreamRecords < 100 {
		wrong("stream-records", c.StreamRecords, "write 100 or more: a short run already emits that many records")
	}
	if c.StreamBytes < MiB {
		wrong("stream-bytes", c.StreamBytes, "write 1MiB or more")
	}
	if c.StreamMemory != 0 && c.StreamMemory < MiB {
		wrong("stream-memory", c.StreamMemory, "write 1MiB or more")
	}
	if c.RedisPrefix == "" || strings.ContainsAny(c.RedisPrefix, "{}") {
		wrong("redis-prefix", c.RedisPrefix, "write a name without braces")
	}
	if c.RedisCA != "" && !strings.HasPrefix(c.RedisURL, "rediss://") {
		wrong("redis-ca", c.RedisCA, "it needs a Redis address that begins with rediss://")
	}
	switch {
	case c.TLSCert != "" && c.TLSKey == "":
		wrong("tls-cert", c.TLSCert, "it needs its key, in --tls-key")
	case c.TLSKey != "" && c.TLSCert == "":
		wrong("tls-key", c.TLSKey, "it needs its certificate, in --tls-cert")
	case c.TLSClientCA != "" && c.TLSCert == "":
		wrong("tls-client-ca", c.TLSClientCA, "it needs a certificate of the server, in --tls-cert with --tls-key")
	case c.TLSCert != "" && c.Port < 0:
		wrong("tls-cert", c.TLSCert, "a worker without --health-port has no port")
	}
	if c.MaxBody < 1 {
		wrong("max-body", c.MaxBody, "write 1 or more; no request would be accepted")
	}
	if c.MaxBodies > 0 && c.MaxBodies < c.MaxBody {
		wrong("max-bodies", c.MaxBodies, "write at least %s, the limit of one body (%s)", c.MaxBody, c.Where("max-body"))
	}
	if c.Mode == Proxy {
		if c.Upstream == nil {
			missing("upstream", "name your LangGraph Server, such as --upstream http://127.0.0.1:2024")
		}
		if len(c.Name) > 200 {
			wrong("name", c.Name, "use at most 200 characters")
		}
		if c.MaxRewrite < 1 {
			wrong("max-rewrite", c.MaxRewrite, "write 1 or more; no response would be rewritten")
		}
	}
	if c.Synchronous != Full && c.Synchronous != Normal {
		wrong("synchronous", string(c.Synchronous), "write full or normal")
	}
	m = append(m, c.checkAddresses()...)
	m = append(m, c.refuseAuth()...)
	slices.SortStableFunc(m, func(a, b Mistake) int { return a.At - b.At })
	return m
}

// Authenticates reports whether requests need credentials: of langgraph.json, of DeerFlow, or a certificate of the client.
func (c *Config) Authenticates() bool {
	return (c.Auth.Native() || c.Auth.Python.IsSet()) && !c.IgnoreAuth || c.DeerFlow != "" || c.TLSClientCA != ""
}

// refuseAuth prevents a server that should protect its data from starting without that.
func (c *Config) refuseAuth() Mistakes {
	switch {
	case c.Mode == Serve && c.Host != "" && !IsLoopback(c.Host) && !c.Authenticates() && !c.NoAuth:
		return Mistakes{{Text: fmt.Sprintf("%s: %q: nothing authenticates requests, so all who reach the port could read and change everything. Write {\"auth\": {\"api_keys\": true}} or an "+
			"auth.path in langgraph.json (docs/auth.md), or start with --no-auth (UNDERSTUDY_NO_AUTH=true) where a firewall or another server protects the port", c.Where("host"), c.Host)}}
	case c.IgnoreAuth && (c.Auth.Native() || c.Auth.Python.IsSet() || c.Encryption.IsSet()) && !IsLoopback(c.Host):
		return Mistakes{{Text: fmt.Sprintf("%s: for a loopback address only, and %s is %q: write 127.0.0.1 there", c.Where("ignore-auth"), c.Where("host"), c.Host)}}
	}
	return nil
}

// Where names what sets a setting, for messages: "--port", "UNDERSTUDY_PORT", "UNDERSTUDY_PORT in env of langgraph.json". One that nothing
// sets is named by its flag.
func (c *Config) Where(flag string) string { return or(c.places[flag], "--"+flag) }

// ChecksHost reports whether requests must name this machine in their Host header. Only a server of a developer, which nothing else protects, needs that:
// others are reached by names that a reverse proxy passes on.
func (c *Config) ChecksHost() bool {
	return c.Mode == Dev && IsLoopback(c.Host) && !c.Authenticates()
}

// IsLoopback reports whether only this machine can reach host.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// String writes a size with the largest unit that divides it.
func (b ByteSize) String() string {
	for _, u := range []struct {
		size ByteSize
		name string
	}{{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.size && b%u.size == 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d", int64(b))
}

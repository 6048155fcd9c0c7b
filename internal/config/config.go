package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"understudy/internal/header"
	"understudy/internal/scan"
)

// Mode is how the server was started. It decides a few defaults.
type Mode int

const (
	Dev    Mode = iota // a developer's machine: text logs, short grace
	Serve              // production: JSON logs, long grace
	Worker             // executes runs of a database that others serve: as Serve, without the API
	Proxy              // in front of a LangGraph Server: JSON logs; of langgraph.json it reads what it needs
)

// Synchronous says when SQLite calls a commit durable.
type Synchronous string

const (
	Full   Synchronous = "full"   // on disk before the commit is reported
	Normal Synchronous = "normal" // survives a crash of the process; a power cut may take the last commits
)

// ByteSize is a number of bytes.
type ByteSize int64

// Units of ByteSize.
const (
	KiB ByteSize = 1 << 10
	MiB ByteSize = 1 << 20
	GiB ByteSize = 1 << 30
)

// Config is the complete configuration of the server. Create one with Load, or with Default and Validate.
type Config struct {
	Mode Mode

	// File is the langgraph.json, absolute. Empty: none was read.
	File string
	// AllowBrokenGraphs: the server is ready although a Python graph does not import, and stays up when none does.
	AllowBrokenGraphs bool
	// Dir is its folder. Relative paths in the file start here, and workers run here.
	Dir string

	Host string
	// Port to listen on; 0 takes a free one. That of a Worker is for health and metrics alone; -1: none.
	Port int
	// Data is the folder of the database, absolute. It is made when missing. ":memory:": nothing is kept.
	Data string
	// DatabaseURL is that of a Postgres database, in place of Data; "" none. It may hold a password.
	DatabaseURL string
	// DatabaseConnections is how many connections there are to it at most, unless its address says. DatabaseTimeout ends statements.
	DatabaseConnections int
	DatabaseTimeout     time.Duration
	// Lease is how long a run is its server's without a heartbeat.
	Lease time.Duration
	// RedisURL is that of a Redis that carries live streams between instances; "" they stay in memory. It may hold a password.
	RedisURL string
	// RedisCA is a file with the certificates that vouch for that Redis, in PEM; "" those of the system. RedisPrefix begins the names of all keys.
	RedisCA, RedisPrefix string
	// Python is the interpreter of the workers, absolute. Empty if no graph needs one.
	Python string
	// Workers is the number of worker processes, at least 1.
	Workers int
	// JobsPerWorker is how many runs one worker process executes at once. 0: none, they are for other servers on the database.
	JobsPerWorker int
	// Concurrency is how many runs this server executes at once; 0 leaves them to others, -1 is Workers times JobsPerWorker. See Runs.
	Concurrency int
	// GraphConcurrency is how many runs of a graph this server executes at once. Graphs that are not named share Runs alone.
	GraphConcurrency map[string]int
	// GraphConfigs are what the default assistants of graphs are configured with, JSON objects by name of the graph.
	GraphConfigs map[string]json.RawMessage
	// WorkerMemory is the memory of one worker process above which it is replaced. 0: any.
	WorkerMemory ByteSize
	// WorkerMaxRuns is how many runs a worker process is given before it is replaced. 0: any number.
	WorkerMaxRuns int
	// Reload loads the graphs again when their files change. Dev only.
	Reload bool

	LogLevel slog.Level
	LogJSON  bool

	Synchronous Synchronous
	// Grace is how long running runs may continue after SIGTERM before they are handed back.
	Grace time.Duration
	// Drain is how long requests are taken after SIGTERM, while the server says that it is not ready.
	Drain time.Duration
	// RunTimeout ends a run with status timeout. 0: never.
	RunTimeout time.Duration
	// ResumableTTL is how long the records of a resumable run stay for replay after its thread's last run ended.
	ResumableTTL time.Duration
	// SearchTimeout is how long a search may take that no index answers.
	SearchTimeout time.Duration
	// StreamRecords and StreamBytes bound what stays of a thread for that.
	StreamRecords int
	StreamBytes   ByteSize
	// MaxBody bounds one request body, MaxBodies what all bodies in flight take together; 0: half of Go's memory limit, at most 1 GiB.
	MaxBody, MaxBodies ByteSize

	// IgnoreAuth starts without the auth and encryption that langgraph.json asks for. Only on a loopback address.
	IgnoreAuth bool

	// Upstream is the server that a proxy stands in front of: http or https, without credentials, its path without a slash at the end.
	Upstream *url.URL
	// Name stands for the upstream's address as the key of what is recorded. Empty: the address does.
	Name string
	// OfflineReads lets the proxy show recorded messages while the upstream is down.
	OfflineReads bool
	// UpstreamHost is the Host that the upstream sees: client, upstream, or empty for the one that fits its address.
	UpstreamHost string
	// MaxRewrite bounds the bodies and events that the proxy looks into.
	MaxRewrite ByteSize

	// Graphs in the order of the file. Ids are unique.
	Graphs []Graph
	// PythonPath are folders that workers add to sys.path, absolute: Dir, then local dependencies.
	PythonPath []string
	// PythonVersion as the file asks for it ("3.12"), or empty.
	PythonVersion string
	// Env are variables that workers get over those of the server.
	Env map[string]string

	HTTP     HTTP
	Webhooks Webhooks
	Serde    Serde
	History  History
	// ThreadTTL is checkpointer.ttl, ItemTTL store.ttl.
	ThreadTTL ThreadTTL
	ItemTTL   ItemTTL

	// places says where settings stand that were given, by their flags: "--port", "UNDERSTUDY_PORT", "UNDERSTUDY_PORT in env of langgraph.json".
	places map[string]string
	// asksAuth and asksEncryption: the file has that section, and it is not empty.
	asksAuth, asksEncryption bool
}

// Graph is one entry of the graphs section.
type Graph struct {
	ID string
	// Path of the file, absolute; or Module, dotted. One of them is empty; both are when the graph is a remote or a declared one.
	Path, Module string
	// Attr is the name of the graph in the file or module.
	Attr        string
	Description string
	Remote      *Remote // nil: the graph runs here
	Agent       *Agent  // nil: the graph is not declared
}

// IsPython reports whether a Python worker runs the graph.
func (g Graph) IsPython() bool { return g.Remote == nil && g.Agent == nil }

// Remote says where a graph of another server is.
type Remote struct {
	URL     string // http or https; may hold user and password
	GraphID string // of the graph there
	Headers map[string]string
}

// HTTP is the http section.
type HTTP struct {
	// MountPrefix is put before every route: "" or "/prefix", without a slash at the end.
	MountPrefix string
	CORS        CORS
	Disable     Disable
	// ConfigurableHeaders says which request headers reach config.configurable of a run.
	ConfigurableHeaders header.Filter
	// LoggingHeaders says which request headers are logged with each request.
	LoggingHeaders header.Filter
}

// CORS is http.cors.
type CORS struct {
	// AllowOrigins are origins, or "*" for all.
	AllowOrigins []string
	// AllowOriginRegex is matched against the whole origin, besides AllowOrigins. Empty: not used. It compiles.
	AllowOriginRegex string
	// AllowMethods and AllowHeaders may be "*".
	AllowMethods, AllowHeaders []string
	ExposeHeaders              []string
	AllowCredentials           bool
	// MaxAge is how long a browser keeps a preflight.
	MaxAge time.Duration
}

// Disable holds http.disable_*: groups of routes that answer 404, and webhooks that are not sent.
type Disable struct {
	Assistants, Threads, Runs, Store, Meta, MCP, A2A, UI, Webhooks bool
}

// Webhooks is the webhooks section.
type Webhooks struct {
	URL URLPolicy
	// Headers go with every webhook; templates are already filled in.
	Headers map[string]string
	// AllowedFields are the fields that are sent. Nil: all.
	AllowedFields []string
}

// URLPolicy is webhooks.url: where a webhook may go.
type URLPolicy struct {
	RequireHTTPS bool
	// AllowedDomains are hosts, or "*.domain" for what is below one. Empty: any.
	AllowedDomains []string
	// AllowedPorts: empty allows any.
	AllowedPorts []int
	// MaxURLLength in characters.
	MaxURLLength      int
	DisableLoopback   bool
	DisablePrivateIPs bool
}

// ThreadTTL is checkpointer.ttl: how long unused threads are kept.
type ThreadTTL struct {
	Strategy string         // delete or keep_latest
	Default  *time.Duration // of threads that come without a ttl of their own; nil: they are kept
	Every    time.Duration  // between sweeps; 0: not said
	Limit    int            // threads that one sweep takes up; 0: not said
}

// ItemTTL is store.ttl: how long items of the store are kept.
type ItemTTL struct {
	Default time.Duration // of items that come without a ttl of their own; 0: they are kept
	Unread  bool          // reading does not postpone the expiry
	Every   time.Duration // between sweeps; 0: not said
}

// Serde is checkpointer.serde: what a worker may load from stored checkpoints. Lists of module and names, outermost first.
type Serde struct {
	// AllowedJSONModules and AllowedMsgpackModules are what the worker's serializer is given. Nil: its own default.
	AllowedJSONModules, AllowedMsgpackModules *Modules
	// PickleFallback lets the worker store values as pickle that nothing else can hold.
	PickleFallback bool
}

// Modules is a list of importable names, or all of them.
type Modules struct {
	All  bool
	List [][]string
}

// Runs is how many runs the server executes at once. 0: none, it only serves.
func (c *Config) Runs() int {
	if c.Concurrency >= 0 {
		return c.Concurrency
	}
	return c.Workers * c.JobsPerWorker
}

// Default returns the configuration of a server without any settings. It has no graphs.
func Default(mode Mode) *Config {
	c := &Config{
		Mode: mode, Host: "127.0.0.1", Port: 2024, Data: ".understudy", DatabaseConnections: 16, DatabaseTimeout: 30 * time.Second, Lease: 20 * time.Second,
		Workers: runtime.GOMAXPROCS(0), JobsPerWorker: 10, Concurrency: -1, Reload: mode == Dev, AllowBrokenGraphs: mode == Dev,
		LogLevel: slog.LevelInfo, LogJSON: mode != Dev,
		Synchronous: Full, SearchTimeout: scan.DefaultBudget, Grace: 10 * time.Second, RunTimeout: 24 * time.Hour, ResumableTTL: time.Hour, StreamRecords: 10_000, StreamBytes: 64 * MiB, RedisPrefix: "understudy",
		MaxBody: 300 * MiB, MaxRewrite: 64 * MiB,
		HTTP:     HTTP{CORS: defaultCORS()},
		Webhooks: Webhooks{URL: URLPolicy{MaxURLLength: 4096, DisableLoopback: true}},
		Serde:    Serde{PickleFallback: true},
		History:  defaultHistory(),
	}
	switch mode {
	case Serve:
		c.Grace = 180 * time.Second
	case Worker:
		c.Grace = 180 * time.Second
		c.Port = -1
	case Proxy:
		c.Port = 2025 // the upstream has the usual one
	}
	return c
}

// defaultCORS is what LangGraph Server does without a cors section.
func defaultCORS() CORS {
	return CORS{
		AllowOrigins: []string{"*"}, AllowMethods: []string{"*"}, AllowHeaders: []string{"*"},
		ExposeHeaders: []string{"x-pagination-total", "x-pagination-next", "content-location"},
		MaxAge:        600 * time.Second,
	}
}

// Validate reports all mistakes at once, as Mistakes, or nil.
func (c *Config) Validate() error { return c.validate().orNil() }

func (c *Config) validate() Mistakes {
	var m Mistakes
	wrong := func(format string, args ...any) { m = append(m, Mistake{Text: fmt.Sprintf(format, args...)}) }
	if none := c.Mode == Worker && c.Port == -1; !none && (c.Port < 0 || c.Port > 65535) {
		wrong("port is %d; write one from 1 to 65535, or 0 for a free one", c.Port)
	}
	if c.Host == "" {
		wrong("host is empty; write 127.0.0.1, or 0.0.0.0 to be reached from other machines")
	}
	if c.Data == "" {
		wrong("data is empty; name a folder, such as .understudy")
	}
	if c.DatabaseConnections < 2 {
		wrong("database-connections is %d; at least two are needed", c.DatabaseConnections)
	}
	if c.DatabaseTimeout < time.Second {
		wrong("database-timeout is %s; write at least 1s", c.DatabaseTimeout)
	}
	if c.Lease < time.Second || c.Lease > time.Hour {
		wrong("lease is %s; write 1s to 1h: how long the runs of a dead server wait before another takes them over", c.Lease)
	}
	if c.Workers < 1 {
		wrong("workers is %d; at least one worker process is needed", c.Workers)
	}
	if c.JobsPerWorker < 0 {
		wrong("jobs-per-worker is %d; write how many runs a Python process may execute at once, or 0 to execute none", c.JobsPerWorker)
	}
	if c.Concurrency < -1 {
		wrong("concurrency is %d; write how many runs this server may execute at once, or 0 to execute none", c.Concurrency)
	}
	switch {
	case c.Mode == Worker && c.DatabaseURL == "":
		wrong("database-url is missing; a worker shares a Postgres database with servers, and a data folder is for one server")
	case c.Mode == Worker && c.Runs() == 0:
		wrong("concurrency is 0; a worker must execute at least one run")
	case c.Mode != Proxy && c.Runs() == 0 && c.DatabaseURL == "":
		wrong("concurrency is 0, and a data folder has no other server that would execute the runs; share a Postgres database (--database-url) " +
			"with understudy worker, or leave it out")
	}
	if c.WorkerMaxRuns < 0 {
		wrong("worker-max-runs is %d; write 0 for no limit", c.WorkerMaxRuns)
	}
	if c.WorkerMemory != 0 && c.WorkerMemory < 64*MiB {
		wrong("worker-memory is %s; Python with langgraph needs more: write 1GiB or so, or 0 for no limit", c.WorkerMemory)
	}
	for name, d := range map[string]time.Duration{"grace": c.Grace, "run-timeout": c.RunTimeout, "resumable-ttl": c.ResumableTTL} {
		if d < 0 {
			wrong("%s is %s; it cannot be negative", name, d)
		}
	}
	if c.SearchTimeout <= 0 {
		wrong("search-timeout is %s; it must be positive", c.SearchTimeout)
	}
	if c.StreamRecords < 100 {
		wrong("stream-records is %d, which is too low: a short run already emits about 100 records", c.StreamRecords)
	}
	if c.StreamBytes < MiB {
		wrong("stream-bytes is %s; write 1MiB or more", c.StreamBytes)
	}
	if c.RedisPrefix == "" || strings.ContainsAny(c.RedisPrefix, "{}") {
		wrong("redis-prefix is %q; write a name without braces", c.RedisPrefix)
	}
	if c.RedisCA != "" && !strings.HasPrefix(c.RedisURL, "rediss://") {
		wrong("redis-ca requires a Redis address that begins with rediss://")
	}
	if c.MaxBody < 1 {
		wrong("max-body is %d bytes; no request would be accepted", c.MaxBody)
	}
	if c.MaxBodies > 0 && c.MaxBodies < c.MaxBody {
		wrong("max-bodies (%s) is below max-body (%s); one request must fit", c.MaxBodies, c.MaxBody)
	}
	if c.Mode == Proxy {
		if c.Upstream == nil {
			wrong("upstream is missing; name your LangGraph Server, such as --upstream http://127.0.0.1:2024")
		}
		if len(c.Name) > 200 {
			wrong("name has %d characters; use at most 200", len(c.Name))
		}
		if c.MaxRewrite < 1 {
			wrong("max-rewrite is %d bytes; no response would be rewritten", c.MaxRewrite)
		}
	}
	if c.Synchronous != Full && c.Synchronous != Normal {
		wrong("synchronous is %q; write full or normal", c.Synchronous)
	}
	m = append(m, c.checkAddresses()...)
	m = append(m, c.refuseAuth()...)
	slices.SortStableFunc(m, func(a, b Mistake) int { return a.At - b.At })
	return m
}

// refuseAuth keeps a server that was meant to be closed from being open.
func (c *Config) refuseAuth() Mistakes {
	var sections []string
	if c.asksAuth {
		sections = append(sections, "auth")
	}
	if c.asksEncryption {
		sections = append(sections, "encryption")
	}
	switch {
	case len(sections) == 0:
		return nil
	case !c.IgnoreAuth:
		return Mistakes{{File: filepath.Base(c.File), Text: fmt.Sprintf("%s: not supported by this version, and a server that ignored it would be open to "+
			"anyone; remove the section, or start with --ignore-auth to try your graphs on this machine alone", strings.Join(sections, ", "))}}
	case !IsLoopback(c.Host):
		return Mistakes{{Text: fmt.Sprintf("ignore-auth is for a loopback address only, and host is %s; use --host 127.0.0.1", c.Host)}}
	}
	return nil
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

package config

import (
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"understudy/run/spans"
)

// Server is how requests are accepted and answered.
type Server struct {
	Host string
	// Port to listen on; 0 takes a free one. A Worker uses it for health and metrics only; -1: none.
	Port int
	// TLSCert and TLSKey are files of the certificate that the port serves and of its key, TLSClientCA of the certificates that sign those of
	// clients; "": without.
	TLSCert, TLSKey, TLSClientCA string
	// AllowedHosts are names that requests may have in their Host header although they are not names of this machine: in lower case, *.example.com for
	// subdomains, * for all. Dev only, see ChecksHost.
	AllowedHosts []string
	// TrustedProxies are reverse proxies whose X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host count.
	TrustedProxies []netip.Prefix
	// NoAuth lets everyone who reaches the address do everything. Without it, or authentication, serve listens on loopback addresses only.
	NoAuth bool
	// IgnoreAuth starts without the auth and encryption of langgraph.json. Only valid on a loopback address.
	IgnoreAuth bool

	// MaxBody bounds one request body, MaxBodies what all bodies in flight take together; 0: half of Go's memory limit, at most 1 GiB.
	MaxBody, MaxBodies ByteSize
	// Grace is how long running runs may continue after SIGTERM before they return to the queue.
	Grace time.Duration
	// Drain is how long requests are served after SIGTERM while the server is not ready.
	Drain time.Duration

	// Studio serves the pages at /studio/.
	Studio bool
	// DeerFlow is the config.yaml of the DeerFlow installation whose Gateway API is served in addition; "": none.
	DeerFlow string
}

// Storage is where data is kept.
type Storage struct {
	// Data is the data folder, absolute. It is created if missing. ":memory:" keeps nothing.
	Data string
	// Synchronous is when SQLite acknowledges a commit.
	Synchronous Synchronous

	// DatabaseURL is a Postgres database in place of Data; "" for none. It may contain a password: log Config.DatabasePlace instead.
	DatabaseURL string
	// Connections is the maximum number of connections to it, unless the URL sets it.
	Connections int
	// StatementTimeout ends longer statements.
	StatementTimeout time.Duration
	// Lease is how long a claimed run stays with its server without a heartbeat.
	Lease time.Duration

	// SearchTimeout bounds a search that no index answers.
	SearchTimeout time.Duration
	// AuditRetention is how long entries of the audit log are kept.
	AuditRetention time.Duration

	// Keys encrypt the content of the database, the current one first; nil: it is not encrypted. UnindexedKeys are keys of metadata that are kept
	// out of the index.
	Keys          [][]byte
	UnindexedKeys []string
}

// Synchronous is when SQLite acknowledges a commit.
type Synchronous string

const (
	Full   Synchronous = "full"   // when it is on disk
	Normal Synchronous = "normal" // when it survives a crash of the process; a power failure may lose the last commits
)

// Workers is how runs are executed: how many, and the Python processes that execute them.
type Workers struct {
	// Python is the interpreter of the workers, absolute; "" if no graph needs one.
	Python string
	// PythonPath are folders that workers add to sys.path, absolute: Config.Dir, then local dependencies.
	PythonPath []string
	// PythonVersion is python_version of the file ("3.12"), or "".
	PythonVersion string

	// Processes is the number of Python processes, at least 1.
	Processes int
	// JobsPerWorker is how many runs one of them executes at once; 0 executes none.
	JobsPerWorker int
	// Memory is that of a process above which it is replaced; 0 for no limit.
	Memory ByteSize
	// MaxRuns is how many runs a process executes before it is replaced; 0 for no limit.
	MaxRuns int
	// Reload loads graphs again when their files change. Dev only.
	Reload bool
	// AllowBrokenGraphs lets the server be ready although a Python graph fails to import, and keeps it running when none imports.
	AllowBrokenGraphs bool
	// GateTimeout is how long a Python handler of auth may take.
	GateTimeout time.Duration

	// Concurrency is how many runs this server executes at once; 0 executes none, -1 means Processes times JobsPerWorker. See Config.Runs.
	Concurrency int
	// GraphConcurrency is how many runs of a graph this server executes at once. Other graphs share Config.Runs.
	GraphConcurrency map[string]int
	// RunTimeout ends a run with status timeout; 0 for never.
	RunTimeout time.Duration
}

// Streams is what is kept of live streams, and how servers share it.
type Streams struct {
	// RedisURL is the Redis for live streams between servers; "" keeps them in memory. It may contain a password: log Config.RedisPlace instead.
	RedisURL string
	// RedisCA is a file of CA certificates in PEM; "" for those of the system. RedisPrefix is the prefix of all keys.
	RedisCA, RedisPrefix string

	// ResumableTTL is how long records of a resumable run can be replayed after the last run of its thread.
	ResumableTTL time.Duration
	// Records and Bytes bound what is kept of a thread for replay.
	Records int
	Bytes   ByteSize
	// Memory bounds what is kept of all threads in memory; 0: 64 MiB, at most an eighth of Go's memory limit.
	Memory ByteSize
}

// Logging is how the program logs.
type Logging struct {
	Level slog.Level
	JSON  bool // one object per line
}

// Traces is what is recorded of the spans of runs.
type Traces struct {
	Level spans.Level
	Bytes ByteSize      // of an input or output
	Age   time.Duration // for which they are kept; 0: as long as the run
}

// Upstream is the server behind a proxy.
type Upstream struct {
	// URL is http or https, without credentials or a final slash.
	URL *url.URL
	// Name is the key of what a proxy records, in place of the upstream's address; "" uses the address.
	Name string
	// Host is the Host header for the upstream: client, upstream, or "" for the default of its scheme.
	Host string
	// OfflineReads lets the proxy return recorded messages while the upstream is down.
	OfflineReads bool
	// MaxRewrite bounds the bodies and events that the proxy rewrites.
	MaxRewrite ByteSize
}

// Limits is the limits section: what one identity may do.
type Limits struct {
	// ConcurrentRuns is how many runs an identity may have waiting and running on all servers; 0: any number.
	ConcurrentRuns int
	// RunsPerMinute is how many runs an identity may create on a server in a minute; 0: any number.
	RunsPerMinute int
}

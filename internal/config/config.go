package config

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Mode is how the server was started. It decides a few defaults.
type Mode int

const (
	Dev   Mode = iota // a developer's machine: text logs, short grace
	Serve             // production: JSON logs, long grace
)

// Synchronous says when SQLite calls a commit durable.
type Synchronous string

const (
	Full   Synchronous = "full"   // on disk before anyone is told
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

// Config is all that the server is told at its start. Make one with Load, or with Default and Validate.
type Config struct {
	Mode Mode

	// File is the langgraph.json, absolute. Empty: none was read.
	File string
	// Dir is its folder. Relative paths in the file start here, and workers run here.
	Dir string

	Host string
	// Port to listen on; 0 takes a free one.
	Port int
	// Data is the folder of the database, absolute. It is made when missing. ":memory:": nothing is kept.
	Data string
	// Python is the interpreter of the workers, absolute. Empty if no graph needs one.
	Python string
	// Workers is the number of worker processes, at least 1.
	Workers int
	// JobsPerWorker is how many runs one worker process executes at once, at least 1.
	JobsPerWorker int

	LogLevel slog.Level
	LogJSON  bool

	Synchronous Synchronous
	// Grace is how long running runs may go on after SIGTERM before they are handed back.
	Grace time.Duration
	// RunTimeout ends a run with status timeout. 0: never.
	RunTimeout time.Duration
	// ResumableTTL is how long the records of a resumable run stay for replay after its thread's last run ended.
	ResumableTTL time.Duration
	// MaxBody bounds one request body, MaxBodies all bodies in flight together.
	MaxBody, MaxBodies ByteSize

	// IgnoreAuth starts without the auth and encryption that langgraph.json asks for. Only on a loopback address.
	IgnoreAuth bool

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

	// asksAuth and asksEncryption: the file has that section, and it is not empty.
	asksAuth, asksEncryption bool
}

// Graph is one entry of the graphs section.
type Graph struct {
	ID string
	// Path of the file, absolute; or Module, dotted. One of them is empty.
	Path, Module string
	// Attr is the name of the graph in the file or module.
	Attr        string
	Description string
}

// HTTP is the http section.
type HTTP struct {
	// MountPrefix is put before every route: "" or "/prefix", without a slash at the end.
	MountPrefix string
	CORS        CORS
	Disable     Disable
	// ConfigurableHeaders says which request headers reach config.configurable of a run.
	ConfigurableHeaders HeaderFilter
	// LoggingHeaders says which request headers may stand in the log.
	LoggingHeaders HeaderFilter
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

// HeaderFilter selects request headers by lower-case name; patterns may hold "*". The zero value selects none.
type HeaderFilter struct {
	Includes, Excludes []string
}

// never are headers that no filter lets through: they are credentials.
var never = []string{"authorization", "x-api-key", "x-service-key", "x-tenant-id"}

// Selects reports whether the header passes: not excluded, and included. Credentials never pass.
func (f HeaderFilter) Selects(name string) bool {
	name = strings.ToLower(name)
	if slices.Contains(never, name) || matchesAny(f.Excludes, name) {
		return false
	}
	return matchesAny(f.Includes, name)
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// matches reports whether name is pattern, where "*" stands for any text.
func matches(pattern, name string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	for i := len(head); i <= len(name); i++ {
		if matches(rest, name[i:]) {
			return true
		}
	}
	return false
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

// Default is the configuration of a server that was told nothing. It has no graphs.
func Default(mode Mode) *Config {
	c := &Config{
		Mode: mode, Host: "127.0.0.1", Port: 2024, Data: ".understudy",
		Workers: runtime.NumCPU(), JobsPerWorker: 10,
		LogLevel: slog.LevelInfo, LogJSON: mode == Serve,
		Synchronous: Full, Grace: 10 * time.Second, RunTimeout: 24 * time.Hour, ResumableTTL: time.Hour,
		MaxBody: 300 * MiB, MaxBodies: GiB,
		HTTP:     HTTP{CORS: defaultCORS()},
		Webhooks: Webhooks{URL: URLPolicy{MaxURLLength: 4096, DisableLoopback: true}},
		Serde:    Serde{PickleFallback: true},
		History:  defaultHistory(),
	}
	if mode == Serve {
		c.Grace = 180 * time.Second
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
	if c.Port < 0 || c.Port > 65535 {
		wrong("port is %d; write one from 1 to 65535, or 0 for a free one", c.Port)
	}
	if c.Host == "" {
		wrong("host is empty; write 127.0.0.1, or 0.0.0.0 to be reached from other machines")
	}
	if c.Data == "" {
		wrong("data is empty; name a folder, such as .understudy")
	}
	if c.Workers < 1 {
		wrong("workers is %d; at least one worker process is needed", c.Workers)
	}
	if c.JobsPerWorker < 1 {
		wrong("jobs-per-worker is %d; a worker needs room for at least one run", c.JobsPerWorker)
	}
	for name, d := range map[string]time.Duration{"grace": c.Grace, "run-timeout": c.RunTimeout, "resumable-ttl": c.ResumableTTL} {
		if d < 0 {
			wrong("%s is %s; it cannot be negative", name, d)
		}
	}
	if c.MaxBody < 1 {
		wrong("max-body is %d bytes; no request would be accepted", c.MaxBody)
	}
	if c.MaxBodies < c.MaxBody {
		wrong("max-bodies (%s) is below max-body (%s); one request must fit", c.MaxBodies, c.MaxBody)
	}
	if c.Synchronous != Full && c.Synchronous != Normal {
		wrong("synchronous is %q; write full or normal", c.Synchronous)
	}
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

package config

import (
	"encoding/json"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"time"

	"understudy/access/audit"
	"understudy/internal/scanlimit"
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

// Config is the complete configuration of the server. Create one with Load, or with Default and
// Validate.
type Config struct {
	Mode Mode

	// File is the langgraph.json, absolute; "" if none was read.
	File string
	// Dir is the folder of File. Relative paths in the file start here, and workers run here.
	Dir string
	// Files are those that File names and that were read with it, absolute: variables, prompts and scripts. They need not exist.
	Files []string

	// What flags and variables set, under the headings of --help.
	Server   Server
	Storage  Storage
	Workers  Workers
	Streams  Streams
	Logging  Logging
	Traces   Traces
	Upstream Upstream // of a proxy

	// Graphs in the order of the file, with unique IDs.
	Graphs []Graph
	// GraphConfigs are the configurations of default assistants, JSON objects by graph.
	GraphConfigs map[string]json.RawMessage
	// Env are variables that workers get over those of the server.
	Env map[string]string
	// MissingEnv is the file that env names when it does not exist, absolute: a variable that is missed was probably meant to be there. "" otherwise.
	MissingEnv string
	// Lookup finds environment variables, for what reads its own.
	Lookup func(name string) (string, bool)
	// FindPython looks for the interpreter of Workers again, as Load did; nil if nothing needs one.
	FindPython func() (string, error)

	// Components are in the order of the file; SharedPackages are those that its clients provide (ui_config.shared).
	Components     []Components
	SharedPackages []string

	// Sections of langgraph.json.
	HTTP       HTTP
	Auth       Auth
	Limits     Limits
	Webhooks   Webhooks
	Serde      Serde
	History    History
	ThreadTTL  ThreadTTL   // checkpointer.ttl
	ItemTTL    ItemTTL     // store.ttl
	StoreIndex *StoreIndex // store.index; nil: there is none
	// Encryption are handlers in Python that encrypt the keys of the database's content, in place of Storage.Keys.
	Encryption Object

	// places maps a setting's flag to where it was set: "--port", "UNDERSTUDY_PORT", "UNDERSTUDY_PORT in env of langgraph.json".
	places map[string]string
	// envFiles maps variables of Env that langgraph.json does not set to the file that does.
	envFiles map[string]string
	// dataOnly: what only requests need is not asked for.
	dataOnly bool
	// src is the content of File, and offsets where each of its keys stands in it.
	src     []byte
	offsets map[string]int
}

// CodeDirs are the folders in which the user's Python code is, that of the file first.
func (c *Config) CodeDirs() []string { return append([]string{c.Dir}, c.Workers.PythonPath...) }

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

// Runs returns how many runs the server executes at once; 0 if it only serves.
func (c *Config) Runs() int {
	if c.Workers.Concurrency >= 0 {
		return c.Workers.Concurrency
	}
	return c.Workers.Processes * c.Workers.JobsPerWorker
}

// Default returns the configuration without any settings or graphs.
func Default(mode Mode) *Config {
	c := &Config{
		Mode:   mode,
		Server: Server{Host: "127.0.0.1", Port: 2024, Studio: mode == Dev, Grace: 10 * time.Second, MaxBody: 300 * MiB},
		Storage: Storage{
			Data: ".understudy", Connections: 16, StatementTimeout: 30 * time.Second, Lease: 20 * time.Second, Synchronous: Full,
			SearchTimeout: scanlimit.DefaultBudget, AuditRetention: audit.Retention,
		},
		Workers: Workers{
			Processes: runtime.GOMAXPROCS(0), JobsPerWorker: 10, Concurrency: -1, Reload: mode == Dev, AllowBrokenGraphs: mode == Dev,
			RunTimeout: 24 * time.Hour, GateTimeout: 30 * time.Second,
		},
		Streams:  Streams{RedisPrefix: "understudy", ResumableTTL: time.Hour, Records: 10_000, Bytes: 64 * MiB},
		Logging:  Logging{Level: slog.LevelInfo, JSON: mode != Dev},
		Traces:   Traces{Level: spans.Timings, Bytes: spans.DefaultBytes},
		Upstream: Upstream{MaxRewrite: 64 * MiB},
		HTTP:     HTTP{CORS: defaultCORS()},
		Webhooks: Webhooks{URL: URLPolicy{MaxURLLength: 4096, DisableLoopback: true}},
		Serde:    Serde{PickleFallback: true},
		History:  defaultHistory(),
	}
	switch mode {
	case Dev:
		c.Traces.Level = spans.Content
	case Serve:
		c.Server.Grace = 180 * time.Second
	case Worker:
		c.Server.Grace = 180 * time.Second
		c.Server.Port = -1
	case Proxy:
		c.Server.Port = 2025 // the upstream has the usual port
	}
	return c
}

// Authenticates reports whether requests need credentials: of langgraph.json, of DeerFlow, or a certificate of the client.
func (c *Config) Authenticates() bool {
	open, _ := c.DeerFlowIsOpen()
	return (c.Auth.Native() || c.Auth.Python.IsSet()) && !c.Server.IgnoreAuth || c.Server.DeerFlow != "" && !open || c.Server.TLSClientCA != ""
}

// Where names what sets a setting, for messages: "--port", "UNDERSTUDY_PORT", "UNDERSTUDY_PORT in env of langgraph.json". One that nothing
// sets is named by its flag.
func (c *Config) Where(flag string) string { return or(c.places[flag], "--"+flag) }

// ChecksHost reports whether requests must name this machine in their Host header. Only a server of a developer, which nothing else protects, needs that:
// others are reached by names that a reverse proxy passes on.
func (c *Config) ChecksHost() bool {
	return c.Mode == Dev && IsLoopback(c.Server.Host) && !c.Authenticates()
}

// IsLoopback reports whether only this machine can reach host.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Validate returns all mistakes at once, as Mistakes, or nil.
func (c *Config) Validate() error { return c.validate().orNil() }

func (c *Config) validate() Mistakes {
	v := validation{where: c.Where}
	c.Server.validate(&v, c.Mode)
	c.Storage.validate(&v)
	c.Workers.validate(&v)
	c.refuseNoRuns(&v)
	c.Streams.validate(&v)
	if c.Mode == Proxy {
		c.Upstream.validate(&v)
	}
	m := append(v.found, c.checkAddresses()...)
	m = append(m, c.refuseAuth()...)
	slices.SortStableFunc(m, func(a, b Mistake) int { return a.At - b.At })
	return m
}

// validation collects the mistakes of settings.
type validation struct {
	where func(flag string) string
	found Mistakes
}

// wrong adds a mistake as those of single settings are written: its name, its value, and what to write.
func (v *validation) wrong(flag string, value any, write string, args ...any) {
	v.found = append(v.found, Mistake{Text: fmt.Sprintf("%s: %q: %s", v.where(flag), fmt.Sprint(value), fmt.Sprintf(write, args...))})
}

func (v *validation) missing(flag, write string) {
	v.found = append(v.found, Mistake{Text: v.where(flag) + ": missing: " + write})
}

func (v *validation) notNegative(flag string, d time.Duration) {
	if d < 0 {
		v.wrong(flag, d, "write a duration that is not negative")
	}
}

func (s *Server) validate(v *validation, mode Mode) {
	port := "port"
	if mode == Worker {
		port = "health-port"
	}
	if none := mode == Worker && s.Port == -1; !none && (s.Port < 0 || s.Port > 65535) {
		v.wrong(port, s.Port, "write a port from 1 to 65535, or 0 for a free one")
	}
	if s.Host == "" {
		v.missing("host", "write 127.0.0.1, or 0.0.0.0 to be reached from other machines")
	}
	switch {
	case s.TLSCert != "" && s.TLSKey == "":
		v.wrong("tls-cert", s.TLSCert, "it needs its key, in --tls-key")
	case s.TLSKey != "" && s.TLSCert == "":
		v.wrong("tls-key", s.TLSKey, "it needs its certificate, in --tls-cert")
	case s.TLSClientCA != "" && s.TLSCert == "":
		v.wrong("tls-client-ca", s.TLSClientCA, "it needs a certificate of the server, in --tls-cert with --tls-key")
	case s.TLSCert != "" && s.Port < 0:
		v.wrong("tls-cert", s.TLSCert, "a worker without --health-port has no port")
	}
	if s.MaxBody < 1 {
		v.wrong("max-body", s.MaxBody, "write 1 or more; no request would be accepted")
	}
	if s.MaxBodies > 0 && s.MaxBodies < s.MaxBody {
		v.wrong("max-bodies", s.MaxBodies, "write at least %s, the limit of one body (%s)", s.MaxBody, v.where("max-body"))
	}
	v.notNegative("grace", s.Grace)
	v.notNegative("drain", s.Drain)
}

func (s *Storage) validate(v *validation) {
	if s.Data == "" {
		v.missing("data", "name a folder, such as .understudy")
	}
	if s.Connections < 2 {
		v.wrong("database-connections", s.Connections, "at least two are needed")
	}
	if s.StatementTimeout < time.Second {
		v.wrong("database-timeout", s.StatementTimeout, "write at least 1s")
	}
	if s.Lease < time.Second || s.Lease > time.Hour {
		v.wrong("lease", s.Lease, "write 1s to 1h: how long the runs of a dead server wait before another takes them over")
	}
	if s.AuditRetention < time.Hour {
		v.wrong("audit-retention", s.AuditRetention, "write 1h or more")
	}
	if s.SearchTimeout <= 0 {
		v.wrong("search-timeout", s.SearchTimeout, "write a duration above 0")
	}
	if s.Synchronous != Full && s.Synchronous != Normal {
		v.wrong("synchronous", string(s.Synchronous), "write full or normal")
	}
}

func (w *Workers) validate(v *validation) {
	if w.Processes < 1 {
		v.wrong("workers", w.Processes, "at least one worker process is needed")
	}
	if w.JobsPerWorker < 0 {
		v.wrong("jobs-per-worker", w.JobsPerWorker, "write how many runs a Python process may execute at once, or 0 to execute none")
	}
	if w.Concurrency < -1 {
		v.wrong("concurrency", w.Concurrency, "write how many runs this server may execute at once, or 0 to execute none")
	}
	if w.MaxRuns < 0 {
		v.wrong("worker-max-runs", w.MaxRuns, "write 0 for no limit")
	}
	if w.Memory != 0 && w.Memory < 64*MiB {
		v.wrong("worker-memory", w.Memory, "Python with langgraph needs more: write 1GiB or so, or 0 for no limit")
	}
	v.notNegative("run-timeout", w.RunTimeout)
	v.notNegative("gate-timeout", w.GateTimeout)
}

func (s *Streams) validate(v *validation) {
	v.notNegative("resumable-ttl", s.ResumableTTL)
	if s.Records < 100 {
		v.wrong("stream-records", s.Records, "write 100 or more: a short run already emits that many records")
	}
	if s.Bytes < MiB {
		v.wrong("stream-bytes", s.Bytes, "write 1MiB or more")
	}
	if s.Memory != 0 && s.Memory < MiB {
		v.wrong("stream-memory", s.Memory, "write 1MiB or more")
	}
	if s.RedisPrefix == "" || strings.ContainsAny(s.RedisPrefix, "{}") {
		v.wrong("redis-prefix", s.RedisPrefix, "write a name without braces")
	}
	if s.RedisCA != "" && !strings.HasPrefix(s.RedisURL, "rediss://") {
		v.wrong("redis-ca", s.RedisCA, "it needs a Redis address that begins with rediss://")
	}
}

func (u *Upstream) validate(v *validation) {
	if u.URL == nil {
		v.missing("upstream", "name your LangGraph Server, such as --upstream http://127.0.0.1:2024")
	}
	if len(u.Name) > 200 {
		v.wrong("name", u.Name, "use at most 200 characters")
	}
	if u.MaxRewrite < 1 {
		v.wrong("max-rewrite", u.MaxRewrite, "write 1 or more; no response would be rewritten")
	}
}

// refuseNoRuns refuses what executes no runs and leaves them to no other server.
func (c *Config) refuseNoRuns(v *validation) {
	none := "concurrency"
	if c.Workers.Concurrency < 0 {
		none = "jobs-per-worker"
	}
	switch {
	case c.Mode == Worker && c.Storage.DatabaseURL == "":
		v.missing("database-url", "a worker shares a Postgres database with servers, and a data folder is for one server; write --database-url postgres://USER:PASSWORD@HOST/DATABASE, the one of the servers")
	case c.Mode == Worker && c.Runs() == 0:
		v.wrong(none, 0, "a worker must execute at least one run")
	case c.Mode != Proxy && c.Runs() == 0 && c.Storage.DatabaseURL == "":
		v.wrong(none, 0, "a data folder has no other server that would execute the runs; share a Postgres database (--database-url) "+
			"with understudy worker, or leave it out")
	}
}

// refuseAuth prevents a server that should protect its data from starting without that.
func (c *Config) refuseAuth() Mistakes {
	open, _ := c.DeerFlowIsOpen()
	switch {
	case open && c.Mode == Serve && c.Server.Host != "" && !IsLoopback(c.Server.Host) && c.Server.TLSClientCA == "" && !c.Server.NoAuth:
		return Mistakes{{Text: fmt.Sprintf("%s: %q: DEER_FLOW_AUTH_DISABLED makes all who reach the port the administrator. Unset it, or start with --no-auth "+
			"(UNDERSTUDY_NO_AUTH=true) where a firewall or another server protects the port", c.Where("host"), c.Server.Host)}}
	case c.Mode == Serve && c.Server.Host != "" && !IsLoopback(c.Server.Host) && !c.Authenticates() && !c.Server.NoAuth:
		return Mistakes{{Text: fmt.Sprintf("%s: %q: nothing authenticates requests, so all who reach the port could read and change everything. Write {\"auth\": {\"api_keys\": true}} or an "+
			"auth.path in langgraph.json (docs/auth.md), or start with --no-auth (UNDERSTUDY_NO_AUTH=true) where a firewall or another server protects the port", c.Where("host"), c.Server.Host)}}
	case c.Server.IgnoreAuth && (c.Auth.Native() || c.Auth.Python.IsSet() || c.Encryption.IsSet()) && !IsLoopback(c.Server.Host):
		return Mistakes{{Text: fmt.Sprintf("%s: for a loopback address only, and %s is %q: write 127.0.0.1 there", c.Where("ignore-auth"), c.Where("host"), c.Server.Host)}}
	}
	return nil
}

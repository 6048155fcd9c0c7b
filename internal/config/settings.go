package config

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Setting is a flag, its environment variable and its words in --help: one row, three places.
type Setting struct {
	// Flag without dashes, and Env, the variable that does the same.
	Flag, Env string
	// Also are variables of LangGraph Server with the same meaning, asked after Env.
	Also []string
	// Switch: the flag takes no value.
	Switch bool
	// Value names the value in --help.
	Value string
	// Default in words, for dev and serve.
	Default string
	Help    string

	// set reads a value. Its error says what to write, without naming the setting.
	set func(c *Config, s string) error
	// also reads the value of an Also variable if its unit differs.
	also func(c *Config, s string) error
}

// Settings are all of them, in the order of --help. config is not among them: it says where to read the rest.
func Settings() []Setting {
	return []Setting{
		{
			Flag: "host", Env: "UNDERSTUDY_HOST", Value: "ADDRESS", Default: "127.0.0.1",
			Help: "address to listen on; 0.0.0.0 lets other machines in", set: text(func(c *Config) *string { return &c.Host }),
		},
		{
			Flag: "port", Env: "UNDERSTUDY_PORT", Value: "N", Default: "2024", Help: "port to listen on; 0 takes a free one",
			set: integer(func(c *Config) *int { return &c.Port }),
		},
		{
			Flag: "data", Env: "UNDERSTUDY_DATA", Value: "DIR", Default: ".understudy", Help: "folder of the database, made when missing; :memory: keeps nothing",
			set: text(func(c *Config) *string { return &c.Data }),
		},
		{
			Flag: "python", Env: "UNDERSTUDY_PYTHON", Value: "PATH", Default: ".venv beside the config, $VIRTUAL_ENV, python3",
			Help: "Python interpreter for the graphs; langgraph must be installed for it", set: text(func(c *Config) *string { return &c.Python }),
		},
		{
			Flag: "workers", Env: "UNDERSTUDY_WORKERS", Value: "N", Default: "one per core", Help: "Python processes",
			set: integer(func(c *Config) *int { return &c.Workers }),
		},
		{
			Flag: "jobs-per-worker", Env: "UNDERSTUDY_JOBS_PER_WORKER", Also: []string{"N_JOBS_PER_WORKER"}, Value: "N", Default: "10",
			Help: "runs that one Python process executes at once", set: integer(func(c *Config) *int { return &c.JobsPerWorker }),
		},
		{
			Flag: "run-timeout", Env: "UNDERSTUDY_RUN_TIMEOUT", Also: []string{"BG_JOB_TIMEOUT_SECS"}, Value: "DURATION", Default: "24h",
			Help: "time after which a run ends with status timeout; 0 for never",
			set:  duration(func(c *Config) *time.Duration { return &c.RunTimeout }), also: seconds(func(c *Config) *time.Duration { return &c.RunTimeout }),
		},
		{
			Flag: "grace", Env: "UNDERSTUDY_GRACE", Also: []string{"BG_JOB_SHUTDOWN_GRACE_PERIOD_SECS"}, Value: "DURATION", Default: "10s (dev), 180s (serve)",
			Help: "time that running runs get when the server is told to stop",
			set:  duration(func(c *Config) *time.Duration { return &c.Grace }), also: seconds(func(c *Config) *time.Duration { return &c.Grace }),
		},
		{
			Flag: "resumable-ttl", Env: "UNDERSTUDY_RESUMABLE_TTL", Also: []string{"RESUMABLE_STREAM_TTL_SECONDS"}, Value: "DURATION", Default: "1h",
			Help: "how long a resumable stream can be replayed after the last run of its thread",
			set:  duration(func(c *Config) *time.Duration { return &c.ResumableTTL }), also: seconds(func(c *Config) *time.Duration { return &c.ResumableTTL }),
		},
		{
			Flag: "max-body", Env: "UNDERSTUDY_MAX_BODY", Also: []string{"HTTP_MAX_REQUEST_BODY_BYTES"}, Value: "SIZE", Default: "300MiB",
			Help: "largest request body; a larger one is refused with 413", set: size(func(c *Config) *ByteSize { return &c.MaxBody }),
		},
		{
			Flag: "max-bodies", Env: "UNDERSTUDY_MAX_BODIES", Value: "SIZE", Default: "1GiB",
			Help: "all request bodies in flight together; above that, 503", set: size(func(c *Config) *ByteSize { return &c.MaxBodies }),
		},
		{
			Flag: "mount-prefix", Env: "UNDERSTUDY_MOUNT_PREFIX", Also: []string{"MOUNT_PREFIX", "LANGGRAPH_MOUNT_PREFIX"}, Value: "PATH", Default: "none, or http.mount_prefix",
			Help: "path that every route is put under, such as /my-api", set: setMountPrefix,
		},
		{
			Flag: "synchronous", Env: "UNDERSTUDY_SYNCHRONOUS", Value: "full|normal", Default: "full",
			Help: "when a commit counts as safe: full, on disk; normal, a power cut may take the last ones", set: setSynchronous,
		},
		{
			Flag: "log-level", Env: "UNDERSTUDY_LOG_LEVEL", Also: []string{"LOG_LEVEL"}, Value: "LEVEL", Default: "info",
			Help: "debug, info, warning or error", set: setLogLevel,
		},
		{
			Flag: "log-json", Env: "UNDERSTUDY_LOG_JSON", Also: []string{"LOG_JSON"}, Switch: true, Default: "false (dev), true (serve)",
			Help: "log one JSON object per line", set: boolean(func(c *Config) *bool { return &c.LogJSON }),
		},
		{
			Flag: "ignore-auth", Env: "UNDERSTUDY_IGNORE_AUTH", Switch: true, Default: "false",
			Help: "serve without the auth and encryption that langgraph.json asks for; loopback only", set: boolean(func(c *Config) *bool { return &c.IgnoreAuth }),
		},
	}
}

// apply sets s on c, and says which name had the mistake.
func (s Setting) apply(c *Config, name, text string, set func(*Config, string) error) *Mistake {
	if err := set(c, strings.TrimSpace(text)); err != nil {
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
			return errors.New("write a time with its unit, such as 90s, 15m or 24h")
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
		digits := strings.TrimRight(s, "KMGiBkb ")
		unit := map[string]ByteSize{"": 1, "b": 1, "k": KiB, "kb": KiB, "kib": KiB, "m": MiB, "mb": MiB, "mib": MiB, "g": GiB, "gb": GiB, "gib": GiB}[strings.ToLower(strings.TrimSpace(s[len(digits):]))]
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || unit == 0 || n < 0 || n > int64((1<<62)/unit) {
			return errors.New("write a number of bytes, or one with a unit such as 300MiB")
		}
		*field(c) = ByteSize(n) * unit
		return nil
	}
}

func setMountPrefix(c *Config, s string) error {
	prefix, problem := mountPrefix(s)
	if problem != "" {
		return errors.New(problem)
	}
	c.HTTP.MountPrefix = prefix
	return nil
}

func setSynchronous(c *Config, s string) error {
	c.Synchronous = Synchronous(strings.ToLower(s))
	if c.Synchronous != Full && c.Synchronous != Normal {
		c.Synchronous = Full
		return errors.New("write full or normal")
	}
	return nil
}

// setLogLevel takes Python's names too.
func setLogLevel(c *Config, s string) error {
	level, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError, "critical": slog.LevelError,
	}[strings.ToLower(s)]
	if !ok {
		return errors.New("write debug, info, warning or error")
	}
	c.LogLevel = level
	return nil
}

// absolute resolves the folders that flags name, from the current one.
func (c *Config) absolute() error {
	if c.Data == "" || c.Data == ":memory:" {
		return nil
	}
	data, err := filepath.Abs(c.Data)
	c.Data = data
	return err
}

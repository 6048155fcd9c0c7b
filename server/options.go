package server

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"understudy/internal/header"
	"understudy/internal/memlimit"
)

// Options are what a Server is made of. The services are needed unless their group is disabled; everything else has a default that works.
type Options struct {
	Assistants Assistants
	Threads    Threads
	Events     Events // nil: no routes for them
	Runs       Runs
	Crons      Crons
	Items      Items

	// CheckDB reports whether the storage answers, for GET /ok?check_db=1. nil: it does.
	CheckDB Check
	// Checks are what GET /readyz asks, by name. They must not wait for what is not there.
	Checks map[string]Check
	// CheckWebhook judges the address of a webhook before a run is made; its error should be a fault. nil: any will do.
	CheckWebhook func(address string) error
	// Truncate deletes threads, crons and assistants, for POST /internal/truncate. nil: there is no such route.
	Truncate Check
	// Bind gives the context that services see, with who acts in it. Its error ends the request. nil: as it is.
	Bind func(ctx context.Context, header func(name string) string) (context.Context, error)

	Logger           *slog.Logger         // nil: none
	Registry         *prometheus.Registry // where metrics go and what /metrics shows; nil makes one
	Tracer           trace.Tracer         // makes spans of requests; nil: there are none
	Version          string               // of this server
	LangGraphVersion string               // that it stands for, in /info

	CORS         CORS
	Disable      Disable
	MountPrefix  string        // a path under which the API is served too
	Configurable header.Filter // headers that runs see in their configuration, as http.configurable_headers in langgraph.json
	Logged       header.Filter // headers that are logged with each request, as http.logging_headers

	MaxBody      int64         // bytes of one body; default 300 MiB. More is 413
	MaxBodies    int64         // memory of all bodies being read or served, see bodyCopies; default 1 GiB or half of Go's memory limit. More is 503
	MaxStreams   int           // open streams, waits included; default 10,000. More is 503
	Heartbeat    time.Duration // between signs of life in open responses; default 5 s
	BodyTimeout  time.Duration // without a byte of an upload; default 30 s
	WriteTimeout time.Duration // how long a client of a stream may read nothing before it is dropped; default 1 min
	// Drain is how long Serve goes on when it is to end, not ready any more: whoever distributes requests looks elsewhere meanwhile. Default 0.
	Drain           time.Duration
	ShutdownTimeout time.Duration // for requests that are being served when Serve ends; default 10 s
}

// Disable switches off groups of routes, as the keys disable_… of `http` in langgraph.json.
type Disable struct {
	Assistants, Threads, Runs, Store, Meta, MCP, A2A, UI, Webhooks bool
}

// CORS is the key `cors` of `http` in langgraph.json. The zero value lets every origin in, without credentials.
type CORS struct {
	AllowOrigins     []string // default *, unless there is a regex
	AllowOriginRegex *regexp.Regexp
	AllowMethods     []string      // default all
	AllowHeaders     []string      // default all: those asked for
	AllowCredentials bool          // never with any origin: then the origin is named
	ExposeHeaders    []string      // besides those that clients of the API read
	MaxAge           time.Duration // of preflights; default 600 s
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	orSize(&o.MaxBody, 300<<20)
	orSize(&o.MaxBodies, memlimit.Share(2, 1<<30))
	o.MaxBody = min(o.MaxBody, o.MaxBodies/bodyCopies) // a larger one could never be let in
	orSize(&o.MaxStreams, 10_000)
	orSize(&o.Heartbeat, 5*time.Second)
	orSize(&o.BodyTimeout, 30*time.Second)
	orSize(&o.WriteTimeout, time.Minute)
	orSize(&o.ShutdownTimeout, 10*time.Second)
	orSize(&o.CORS.MaxAge, 600*time.Second)
	if re := o.CORS.AllowOriginRegex; re != nil {
		// The whole origin has to match, as in Starlette: a prefix would let https://good.example.evil.example in.
		o.CORS.AllowOriginRegex = regexp.MustCompile(`^(?:` + re.String() + `)$`)
	}
	if o.Version == "" {
		o.Version = "0.0.0"
	}
	if o.MountPrefix = strings.Trim(o.MountPrefix, "/"); o.MountPrefix != "" {
		o.MountPrefix = "/" + o.MountPrefix
	}
	return o
}

func orSize[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

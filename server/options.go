package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"understudy/access"
	"understudy/access/audit"
	"understudy/internal/cursor"
	"understudy/internal/header"
	"understudy/internal/memlimit"
	"understudy/server/deerflow/gateway"
	"understudy/server/internal/web"
)

// Options configure a Server. The services are required unless their group is disabled; all other fields have working defaults.
type Options struct {
	Assistants Assistants
	Threads    Threads
	Events     Events // nil: no routes
	Runs       Runs
	Crons      Crons
	Tasks      gateway.Tasks // nil: DeerFlow has to be nil, too
	Items      Items
	Changes    Changes    // nil: no route
	Search     Search     // nil: no route
	Usage      Usage      // nil: no route
	ReadModels ReadModels // nil: no routes
	Fleet      Fleet      // nil: no routes
	Doctor     Doctor     // nil: no route
	Components Components // nil: graphs have none

	// Authenticator finds out who sends requests; nil: no credentials are requested, and the services are not guarded (package guard).
	Authenticator access.Authenticator
	// Foresee says, by method and path of routes as in Routes without a prefix, what requests are going to ask a Gatekeeper; of other routes that is not known.
	Foresee map[string]Foresight
	// Cursors seals where lists of several callers continue; nil: they say it as it is.
	Cursors *cursor.Sealer
	// Ratings are what users think of runs; nil: no routes, and feedback keys get no addresses.
	Ratings *Ratings
	// Encryption says in which context the content of requests is encrypted; nil: in none.
	Encryption Encryption
	// SignIn is how people may authenticate in a browser; nil: no routes.
	SignIn *SignIn
	// Audit gets sign-ins that fail, and requests for what belongs to others; nil: none.
	Audit *audit.Log
	// Inside are the credentials of graphs that call the server that runs them; nil: none.
	Inside *access.Inside

	// App is an application next to the API (http.app); nil: there is none.
	App Application
	// AuthFirst authenticates requests before they reach the middleware of App; GuardRoutes: its routes need credentials too.
	AuthFirst, GuardRoutes bool
	DeerFlow               *gateway.Installation // whose Gateway's API is served in addition; nil: none

	// Loaded waits until what requests may need is loaded, such as App and the handlers of Authenticator; they wait for it, and its error refuses them. Probes do
	// not wait. nil: nothing is to be loaded.
	Loaded func(ctx context.Context) error

	// CheckDB checks the database for GET /ok?check_db=1. nil: it is assumed to work.
	CheckDB Check
	// Checks are the checks of GET /readyz, by name. One that does not return in time has failed.
	Checks map[string]Check
	// CheckWebhook validates the address of a webhook before a run is created; its error should be a fault. nil: all are
	// allowed.
	CheckWebhook func(address string) error
	// Truncate deletes threads, crons and assistants, for POST /internal/truncate. nil: the route does not exist.
	Truncate Check
	// Bind returns the context for services, with the user in it. Its error ends the request. nil: the context is
	// unchanged.
	Bind func(ctx context.Context, header func(name string) string) (context.Context, error)

	Logger *slog.Logger // nil: none
	// LogReasons logs why a request was refused. The reason may quote the body, so it is for development.
	LogReasons       bool
	Registry         *prometheus.Registry // registry of the metrics and of /metrics; nil creates one
	Tracer           trace.Tracer         // creates spans of requests; nil: none
	Version          string               // of this server
	APIVersion       string               // of LangGraph Server whose API this is: the version in /info, for clients that compare it
	LangGraphVersion func() string        // of LangGraph, whose graphs run; "": not known yet. nil: not known

	// ExampleGraph returns the graph that example requests in the description of the API name; nil, or "": "chat".
	ExampleGraph func() string

	Studio  bool // the pages at /studio/ are served
	CORS    CORS
	Disable Disable
	// CheckHost refuses requests whose Host header is neither an IP address, a name of localhost, the host of an origin that CORS lists, nor one of
	// AllowedHosts, in which * stands for all and *.example.com for subdomains.
	CheckHost    bool
	AllowedHosts []string
	// TrustedProxies are reverse proxies whose X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host say who the client is, and how it addressed them.
	TrustedProxies []netip.Prefix
	TLS            bool // connections are encrypted: URLs begin with https
	// AuthOpenAPI is auth.openapi of langgraph.json, merged into the description of the API; nil for none.
	AuthOpenAPI  json.RawMessage
	MountPrefix  string        // additional path prefix of the API
	Configurable header.Filter // headers that runs see in their configuration, as http.configurable_headers in langgraph.json
	Logged       header.Filter // headers that are logged with each request, as http.logging_headers

	MaxBody      int64         // bytes of one body; default 300 MiB. More is 413
	MaxBodies    int64         // memory of all bodies being read or served, see web.BodyCopies; default 1 GiB or half of Go's memory limit. More is 503
	MaxReads     int64         // memory of all answers above 1 MiB that are sent while they are made; default 256 MiB or a quarter of Go's memory limit. More is 503
	MaxStreams   int           // open streams, waits included; default 10,000. More is 503
	Heartbeat    time.Duration // between heartbeats in open responses; default 5 s
	BodyTimeout  time.Duration // without any byte of an upload; default 30 s
	BodyRest     time.Duration // for the rest of a small body that no handler reads, before its connection is closed; default 50 ms
	WriteTimeout time.Duration // time without any read of a stream's client before it is dropped; default 1 min
	// Drain is how long Serve continues after its end was requested, reporting that it is not ready, so that load balancers stop sending
	// requests. Default 0.
	Drain time.Duration
	// Grace is how long running runs continue after the end of Serve was requested. Answers of temporary runs are sent until then. Default 0.
	Grace           time.Duration
	ShutdownTimeout time.Duration // time for running requests when Serve ends; default 10 s
}

// Disable disables groups of routes, as the keys disable_… of `http` in langgraph.json do.
type Disable struct {
	Assistants, Threads, Runs, EventStreaming, Store, Meta, MCP, A2A, OpenAI, UI, Webhooks bool
}

// CORS is the key `cors` of `http` in langgraph.json. The zero value allows every origin, without credentials.
type CORS struct {
	NoOrigins        bool     // no origin but the server's own is allowed; what follows does not count
	AllowOrigins     []string // default *, unless there is a regex
	AllowOriginRegex *regexp.Regexp
	AllowMethods     []string      // default all
	AllowHeaders     []string      // default all requested headers; those of simple requests always
	AllowCredentials bool          // with AllowOrigins *, the origin is echoed
	ExposeHeaders    []string      // in addition to those that clients of the API read
	MaxAge           time.Duration // of preflights; default 600 s
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.LangGraphVersion == nil {
		o.LangGraphVersion = func() string { return "" }
	}
	orSize(&o.MaxBody, 300<<20)
	orSize(&o.MaxBodies, memlimit.Share(2, 1<<30))
	o.MaxBody = min(o.MaxBody, o.MaxBodies/web.BodyCopies) // a larger body could never be admitted
	orSize(&o.MaxReads, memlimit.Share(4, 256<<20))
	orSize(&o.MaxStreams, 10_000)
	orSize(&o.Heartbeat, 5*time.Second)
	orSize(&o.BodyTimeout, 30*time.Second)
	orSize(&o.BodyRest, 50*time.Millisecond)
	orSize(&o.WriteTimeout, time.Minute)
	orSize(&o.ShutdownTimeout, 10*time.Second)
	orSize(&o.CORS.MaxAge, 600*time.Second)
	if re := o.CORS.AllowOriginRegex; re != nil {
		// The whole origin must match, as in Starlette: a prefix match would allow https://good.example.evil.example.
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

package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/diskspace"
	"understudy/internal/docsite"
	"understudy/internal/framing"
	"understudy/internal/logctx"
	"understudy/server/a2a/tasks"
	"understudy/server/internal/connection"
	"understudy/server/internal/web"
)

// ErrShutdown is the cause of streams and requests that end because Serve does.
var ErrShutdown = web.ErrShutdown

// Server serves the API. Create it with New and call Serve once.
type Server struct {
	*web.Transport
	*web.Completer
	opts    Options
	app     *fiber.App
	openapi func() []byte                // made by the first request for it: graphs may be registered until then
	pages   func() (docsite.Site, error) // of the documentation

	patterns []pattern  // of all routes
	doors    *doors     // for requests from inside
	fronts   frontCache // what is known of the application
	tools    toolWatch

	selections sync.Pool // of *selected

	draining atomic.Bool
	checks   checks
	refusals refusals // of preflights
}

// routePrefixes are the paths of the API in addition to the mount prefix. LangGraph Platform uses the second.
var routePrefixes = []string{"", "/api/langgraph"}

// New returns a Server without opening anything.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{Transport: web.New(web.Config{
		Logger: o.Logger, LogReasons: o.LogReasons, Registry: o.Registry, Tracer: o.Tracer, Audit: o.Audit,
		MaxBody: o.MaxBody, MaxBodies: o.MaxBodies, MaxReads: o.MaxReads, MaxStreams: o.MaxStreams,
		Heartbeat: o.Heartbeat, BodyTimeout: o.BodyTimeout, BodyRest: o.BodyRest, WriteTimeout: o.WriteTimeout,
	}), Completer: web.NewCompleter(o.Logger, o.Configurable, !o.Disable.Webhooks, o.CheckWebhook), opts: o, doors: newDoors(), checks: checks{began: time.Now(), last: map[string]health{}}}
	s.Follow = s.follow
	s.app = fiber.New(fiber.Config{
		DisableStartupMessage:        true,
		DisablePreParseMultipartForm: true,
		StreamRequestBody:            true,
		// body.go limits bodies where they are read. This limits what is read before a handler runs.
		BodyLimit:     64 << 10,
		Immutable:     true,
		StrictRouting: true,
		CaseSensitive: true,
		UnescapePath:  false,
		ReadTimeout:   30 * time.Second, // for the head; bodies have their own deadline
		IdleTimeout:   75 * time.Second,
		// Covers answers that are not streams; streams set a deadline with each write.
		WriteTimeout:   5 * time.Minute,
		ReadBufferSize: 16 << 10, // maximum size of the head
		ErrorHandler:   s.fail,
		// Fiber would believe X-Forwarded-Proto and -Host of any peer. With the check, and no proxies here, it believes no peer: addressed and client do, as
		// --trusted-proxies says.
		EnableTrustedProxyCheck: true,
	})
	f := s.app.Server()
	f.NoDefaultContentType = true
	f.CloseOnShutdown = true
	f.KeepHijackedConns = true // who takes one closes it
	f.HeaderReceived = s.Received
	f.Logger = quiet{s.Log}
	s.app.Use(s.enter)
	s.routes()
	s.openapi = sync.OnceValue(func() []byte { return withAuth(s.describe(), o.AuthOpenAPI) })
	s.pages = s.buildDocs()
	return s
}

// quiet logs fasthttp's messages about broken connections at a low level.
type quiet struct{ log *slog.Logger }

func (q quiet) Printf(format string, args ...any) { q.log.Debug("connection ended", "format", format) }

// Serve answers requests on ln until ctx ends. Then it drains, stops accepting, ends open streams so that their readers reconnect, and waits for
// the rest, at most ShutdownTimeout; for answers of temporary runs until Grace is over. It returns when everything has ended; nil after an orderly end. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	connections := connection.NewEnding(withDoors(framing.RefuseTLS(connection.NewPatient(ln, s.Log), s.Log), s.doors))
	ln = connections
	defer s.Lingering.Close()
	defer s.Failures.Flush()
	done := make(chan error, 1)
	go func() { done <- s.app.Listener(ln) }()
	select {
	case err := <-done:
		s.EndStreams(ErrShutdown)
		s.EndRequest(ErrShutdown)
		s.EndTemporary(ErrShutdown)
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	if s.opts.Drain > 0 {
		s.Log.Info("draining", "for", s.opts.Drain.String())
		select {
		case err := <-done:
			done <- err // found below
		case <-time.After(s.opts.Drain):
		}
	}
	s.EndStreams(ErrShutdown)
	s.Outlets.Hurry()
	connections.Hurry(connection.HurryTime, false)
	// After half of the time requests are canceled too, also those that have not arrived completely, which leaves them the other half to end.
	timer := time.AfterFunc(s.opts.ShutdownTimeout/2, func() {
		s.EndRequest(ErrShutdown)
		connections.Hurry(0, true)
	})
	grace := max(0, s.opts.Grace-s.opts.Drain)
	last := time.AfterFunc(grace, func() { s.EndTemporary(ErrShutdown) })
	err := s.app.ShutdownWithTimeout(max(s.opts.ShutdownTimeout, grace+s.opts.ShutdownTimeout/2))
	timer.Stop()
	last.Stop()
	s.EndRequest(ErrShutdown)
	s.EndTemporary(ErrShutdown)
	_ = ln.Close() // a shutdown before fasthttp has the listener does not close it
	if e := <-done; e != nil && !errors.Is(e, net.ErrClosed) && err == nil {
		err = e
	}
	return err
}

// prefixes are the paths of the API in addition to the mount prefix. DeerFlow's Gateway has taken the second.
func (s *Server) prefixes() []string {
	if s.opts.DeerFlow != nil {
		return routePrefixes[:1]
	}
	return routePrefixes
}

// register is route, for handlers that know nothing else of the Server.
type register func(method, path string, h fiber.Handler)

// route registers a handler under all prefixes. Parameters are written as in OpenAPI: /threads/{thread_id}.
func (s *Server) route(method, path string, h fiber.Handler) {
	prefixes := s.prefixes()
	if s.opts.MountPrefix != "" {
		prefixes = []string{s.opts.MountPrefix}
	}
	s.routeUnder(prefixes, method, path, h)
}

// Routes returns the routes of the server as method and path, such as "GET /threads/{thread_id}", with all prefixes.
func (s *Server) Routes() []string {
	out := make([]string, len(s.patterns))
	for i, p := range s.patterns {
		out[i] = p.method + " " + strings.Join(p.segments, "/")
	}
	return out
}

// routeUnder registers a handler under the given prefixes.
func (s *Server) routeUnder(prefixes []string, method, path string, h fiber.Handler) {
	deletes := method == fiber.MethodDelete || path == "/threads/prune"
	handler := func(c *fiber.Ctx) error {
		r := web.Of(c)
		r.Route = path
		if r.Thread, r.Run = web.PathID(c, "thread_id"), web.PathID(c, "run_id"); r.Thread != "" {
			about := []slog.Attr{slog.String("thread_id", r.Thread)}
			if r.Run != "" {
				about = append(about, slog.String("run_id", r.Run))
			}
			c.SetUserContext(logctx.With(c.UserContext(), about...))
		}
		if err := chooseOverlay(c); err != nil {
			return err
		}
		if deletes {
			c.SetUserContext(diskspace.WithReserve(c.UserContext()))
		}
		return h(c)
	}
	fiberPattern := strings.NewReplacer("{", ":", "}", "").Replace(path)
	for _, p := range prefixes {
		if method == fiber.MethodGet {
			s.app.Get(p+fiberPattern, handler) // HEAD too
		} else {
			s.app.Add(method, p+fiberPattern, handler)
		}
		s.patterns = append(s.patterns, patternOf(method, p+path, s.opts.Foresee[method+" "+path]))
	}
}

// pattern is a route: its method, and its path by segment.
type pattern struct {
	method   string
	segments []string
	foresee  Foresight // nil: what a request is going to ask is not known
}

func patternOf(method, path string, foresee Foresight) pattern {
	return pattern{method, strings.Split(path, "/"), foresee}
}

func (p *pattern) matches(segments []string) bool { return web.MatchesPath(p.segments, segments) }

// known reports whether a route matches the path.
func (s *Server) known(path string) bool {
	segments := strings.Split(path, "/")
	return slices.ContainsFunc(s.patterns, func(p pattern) bool { return p.matches(segments) })
}

func (s *Server) routes() {
	d := s.opts.Disable
	s.systemRoutes(!d.Meta)
	if s.opts.Truncate != nil {
		s.route("POST", "/internal/truncate", s.truncate)
	}
	if !d.Assistants {
		(&assistantHandlers{s.Transport, s.opts.Assistants, s.tools.change}).routes(s.route)
	}
	if !d.Threads {
		(&threadHandlers{s.Transport, s.opts.Threads, s.opts.Runs, s.opts.Authenticator != nil}).routes(s.route)
		(&eventHandlers{s.Transport, s.opts.Events, !d.Runs}).routes(s.route)
	}
	if !d.Runs {
		(&cronHandlers{s.Transport, s.Completer, s.opts.Crons}).routes(s.route)
		(&runHandlers{s.Transport, s.Completer, s.opts.Runs, s.opts.Authenticator != nil, s.opts.Cursors, s.opts.Ratings, s.addressed, s.opts.DeerFlow != nil}).routes(s.route)
		(&spanHandlers{s.opts.Runs}).routes(s.route)
	}
	if s.opts.Ratings != nil && !d.Runs {
		(&ratingHandlers{s.Transport, s.opts.Ratings, s.opts.Runs}).routes(s.route)
	}
	if !d.Threads && !d.Runs && s.opts.Events != nil {
		(&commandHandlers{s.Transport, s.Completer, s.opts.Threads, s.opts.Runs, s.opts.Assistants}).routes(s.route)
	}
	if !d.Threads && !d.Runs && !d.EventStreaming {
		(&protocolHandlers{s.Transport, s.Completer, s.opts.Runs, s.opts.Threads, s.opts.Assistants, s.allows}).routes(s.route)
	}
	if s.opts.Changes != nil && !d.Threads && !d.Runs {
		(&changeHandlers{s.Transport, s.opts.Changes}).routes(s.route)
	}
	if s.opts.Search != nil && !d.Threads {
		(&searchHandlers{s.Transport, s.opts.Search, s.opts.Cursors}).routes(s.route)
	}
	if s.opts.ReadModels != nil && !d.Threads {
		(&readModelHandlers{s.opts.ReadModels, s.opts.Cursors}).routes(s.route)
	}
	if s.opts.Usage != nil && !d.Runs {
		(&usageHandlers{s.opts.Usage}).routes(s.route)
	}
	if s.opts.Fleet != nil {
		(&fleetHandlers{s.Transport, s.opts.Fleet}).routes(s.route)
	}
	if s.opts.Doctor != nil {
		(&doctorHandlers{s.opts.Doctor}).routes(s.route)
	}
	if s.opts.Studio && !d.UI {
		s.studioRoutes()
	}
	if s.opts.SignIn != nil {
		s.signInRoutes()
	}
	if !d.Store {
		(&itemHandlers{s.Transport, s.opts.Items}).routes(s.route)
	}
	if !d.UI {
		s.uiRoutes()
	}
	if !d.MCP {
		(&mcpHandlers{
			Transport: s.Transport, Completer: s.Completer, assistants: s.opts.Assistants, runs: s.opts.Runs, threads: s.opts.Threads,
			tools: &s.tools, version: s.opts.APIVersion, fail: s.fail, claimed: s.claimed,
		}).routes(s.route)
	}
	if !d.OpenAI {
		(&openaiHandlers{s.Transport, s.Completer, s.opts.Assistants, s.opts.Runs, s.opts.Threads, s.opts.Events}).routes(s.route)
	}
	if !d.A2A && s.opts.Events != nil {
		(&a2aHandlers{
			Transport: s.Transport, Completer: s.Completer, assistants: s.opts.Assistants, runs: s.opts.Runs, threads: s.opts.Threads,
			tasks: tasks.Reader{Runs: s.opts.Runs, Threads: s.opts.Threads, Events: s.opts.Events}, version: s.opts.APIVersion, addressed: s.addressed,
		}).routes(s.route)
	}
	if s.opts.DeerFlow != nil {
		s.gatewayRoutes()
	}
}

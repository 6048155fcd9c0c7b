// Package understudy is a server that speaks the LangGraph Server API: assistants, threads, runs, state, history and streams, kept in an
// embedded database or in Postgres, for Python graphs of a langgraph.json and graphs written in Go.
//
// A program that embeds it makes a Server, registers its graphs and runs it:
//
//	srv, err := understudy.New(understudy.Config{Addr: "127.0.0.1:8123", Log: slog.Default()})
//	…
//	err = srv.Register("echo", "Repeats what it is given.", myGraph)
//	…
//	err = srv.Run(ctx)
//
// Graphs are made with graph/pregel, agents with graph/agent; anything that implements graph.Graph will do.
package understudy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"understudy/deerflow/client"
	"understudy/eventstore/follow"
	"understudy/graph"
	"understudy/internal/app"
	"understudy/internal/sockerr"
)

// APIVersion is the version of LangGraph Server whose API is served.
const APIVersion = app.APIVersion

// ErrNoGraphs is returned by Run when no graph of the server can be used: all are Python graphs, and none imports, or no worker starts.
// Python.AllowBroken prevents it.
var ErrNoGraphs = app.ErrNoGraphs

// Server is a whole server. It listens from New on, and works while Run does. Its methods may be called from any goroutine.
type Server struct{ app *app.Server }

// New opens the port and the data folder or database. After a nil error the caller calls Run or Close.
//
// An error names all mistakes of the configuration at once, one per line; a port that is taken is a syscall.EADDRINUSE. What is suspicious,
// but no mistake, is logged.
func New(c Config) (*Server, error) {
	settings, warnings, err := c.load()
	if err != nil {
		return nil, inFields(err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, w := range warnings {
		c.Log.Warn("configuration", "key", fieldNames(w.Key), "problem", fieldNames(w.Text))
	}
	c.Log.Info("starting", settings.Used(c.Version)...)
	s, err := app.New(context.Background(), app.Config{
		Settings: settings, Log: c.Log, Tracing: c.Tracing, Version: c.Version, Tools: c.Tools, GraphLoaded: c.GraphLoaded,
	})
	if errors.Is(err, sockerr.InUse) {
		return nil, fmt.Errorf("%w: stop the program that has this port, perhaps another server of yours, or set Config.Addr to another (port 0 takes a free one)", err)
	}
	if err != nil {
		return nil, inFields(err)
	}
	return &Server{s}, nil
}

// Register adds a graph under a name, which is the graph_id of the API, with a description for GET /assistants. Call it before Run. The error
// says that the name is taken, that there is no graph, or that the server runs already. The caller still closes a graph that needs closing, such as an agent with MCP servers, after Run.
func (s *Server) Register(name, description string, g graph.Graph) error {
	return s.app.Register(name, description, g)
}

// Observation is something that happened on a thread; its Kind is one of those below.
type Observation = follow.Observation

// Kinds of observations.
const (
	Started     = follow.Started     // a run began
	Completed   = follow.Completed   // a run succeeded
	Interrupted = follow.Interrupted // a run succeeded, and its thread waits for an answer
	Failed      = follow.Failed      // a run failed, or took too long
	Cancelled   = follow.Cancelled   // a run that had begun was cancelled, or rolled back
	Changed     = follow.Changed     // the messages of a thread changed, or it was forked
	Deleted     = follow.Deleted     // a thread was deleted
)

// Observe calls fn with what happens on threads, behind the commits of runs, which it cannot delay. Each observation arrives at least once, those of a
// thread in order; Key names repeats. The database keeps under the name how far fn came, also while no server runs; a new name begins with the oldest events.
// After an error or a panic fn gets the observation again, after a second and then at longer intervals up to a minute. Observers of one name on several
// servers share the work. Call Observe before Run; fn runs on one goroutine, and its context ends when the server stops.
func (s *Server) Observe(name string, fn func(ctx context.Context, o Observation) error) error {
	return s.app.Observe(name, fn)
}

// DeerFlow returns a client of the DeerFlow installation that Config.HTTP.DeerFlow names, which works while Run does: it chats, and manages threads, files, skills, memory and
// MCP servers. It acts for a user, by the ID of an account or any other text, with the rights of an administrator; "" is the user default. The error says why there is none.
func (s *Server) DeerFlow(user string) (*client.Client, error) { return s.app.DeerFlowClient(user) }

// Addr returns the address that the server listens on, with the port that was taken when Config.Addr asked for a free one.
func (s *Server) Addr() net.Addr { return s.app.Addr() }

// Run serves until ctx ends. Then streams end with an id to resume from, no more runs are claimed, running ones get Runs.Grace, and those that
// are left are handed back to be resumed at the next start. It closes the Server, and returns nil after an orderly stop. Call it once.
func (s *Server) Run(ctx context.Context) error { return s.app.Run(ctx) }

// Close releases the port and the data folder of a Server that was not run; Run then returns an error. Run does it too. It may be called twice.
func (s *Server) Close() error { return s.app.Close() }

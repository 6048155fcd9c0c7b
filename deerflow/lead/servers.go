package lead

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"understudy/graph/agent"
	"understudy/graph/agent/mcp"
	"understudy/graph/message"
)

// Server is an MCP server whose tools the agent has.
type Server struct {
	Name string
	// Config is compared with the one before: while it is equal the server stays as it is.
	Config any
	// Open makes its source.
	Open func() (*mcp.Source, error)
}

// Times of servers that fail: how long the tools of one are waited for, and how long it is left out then, at first and at most.
const (
	serverTime = 30 * time.Second
	serverRest = 30 * time.Second
	maxRest    = 10 * time.Minute
)

// servers are the MCP servers as they are configured now. Each is started when its tools are needed first.
type servers struct {
	list func() ([]Server, error)
	log  *slog.Logger
	now  func() time.Time

	mu     sync.Mutex
	last   []Server // as they could be read last
	broken string   // why they cannot be read now; "": they can
	open   map[string]*openServer
	closed bool
	ending sync.WaitGroup // of servers that are not configured any more, and of tries of those that failed
}

type openServer struct {
	config any
	source *mcp.Source // nil: it cannot be opened
	rests  time.Time   // until then it is left out
	failed int         // in a row
	trying bool        // it has failed, and is asked again; answers do not wait for it
}

// tools returns the tools of all servers that answer, those of the first server first. One that fails is left out, and tried again after a while: then answers do not wait
// for it, but have its tools from the next one on.
func (s *servers) tools(ctx context.Context) ([]agent.Tool, error) {
	wanted, sources := s.update(ctx)
	found := make([][]agent.Tool, len(sources))
	var all sync.WaitGroup
	for i, one := range sources {
		if one == nil {
			continue
		}
		all.Go(func() { found[i] = s.ask(ctx, wanted[i].Name, one) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []agent.Tool
	for _, tools := range found {
		out = append(out, tools...)
	}
	return out, nil
}

// ask returns the tools of a server; nil when it fails, and rests from now on.
func (s *servers) ask(ctx context.Context, name string, one *openServer) []agent.Tool {
	limited, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	tools, err := one.source.Tools(limited)
	s.mu.Lock()
	defer s.mu.Unlock()
	one.trying = false
	if err == nil {
		one.failed = 0
		return tools
	}
	if ctx.Err() != nil || errors.Is(err, mcp.ErrClosed) { // the run was cancelled, or the server is not configured any more: no fault of it
		return nil
	}
	rest := min(serverRest<<min(one.failed, 10), maxRest)
	one.rests, one.failed = s.now().Add(rest), one.failed+1
	s.log.WarnContext(ctx, "an MCP server does not answer; the agent works without its tools", "mcp_server", name, "error", err, "again_in", rest.String(),
		"fix", "correct or switch it off in extensions_config.json")
	return nil
}

// configured returns the servers as they are configured: while that cannot be read, as they were.
func (s *servers) configured(ctx context.Context) []Server {
	list, err := s.list()
	if err == nil {
		s.last, s.broken = list, ""
	} else if text := err.Error(); text != s.broken {
		s.broken = text
		s.log.WarnContext(ctx, "the configuration of MCP servers cannot be read; those from before are used", "error", err, "fix", "correct extensions_config.json")
	}
	return s.last
}

// update opens servers that are new or have changed, and ends those that are gone. It returns those that are configured, and for each its source: nil for one that is
// left out now. The configuration is read within the lock: an older one must not undo a newer one.
func (s *servers) update(ctx context.Context) ([]Server, []*openServer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	wanted := s.configured(ctx)
	out := make([]*openServer, len(wanted))
	if s.open == nil {
		s.open = map[string]*openServer{}
	}
	kept := map[string]bool{}
	for i, w := range wanted {
		kept[w.Name] = true
		have := s.open[w.Name]
		if have == nil || !reflect.DeepEqual(have.config, w.Config) {
			s.end(have)
			have = &openServer{config: w.Config}
			var err error
			if have.source, err = w.Open(); err != nil {
				s.log.WarnContext(ctx, "an MCP server cannot be used; the agent works without its tools", "mcp_server", w.Name, "error", err)
			}
			s.open[w.Name] = have
		}
		switch {
		case have.source == nil || have.trying || s.now().Before(have.rests):
		case have.failed > 0:
			have.trying = true
			s.ending.Go(func() { s.ask(context.WithoutCancel(ctx), w.Name, have) }) // until it is closed, or for serverTime
		default:
			out[i] = have
		}
	}
	for name, have := range s.open {
		if !kept[name] {
			s.end(have)
			delete(s.open, name)
		}
	}
	return wanted, out
}

// end ends a server, which may take seconds.
func (s *servers) end(o *openServer) {
	if o == nil || o.source == nil {
		return
	}
	s.ending.Go(func() {
		if err := o.source.Close(); err != nil {
			s.log.Debug("closing an MCP server failed", "error", err)
		}
	})
}

// close ends all servers and waits for their ends.
func (s *servers) close() {
	s.mu.Lock()
	s.closed = true
	for _, o := range s.open {
		s.end(o)
	}
	s.open = nil
	s.mu.Unlock()
	s.ending.Wait()
}

// source are the tools of servers for an agent that has others: the first of a name wins.
type source struct {
	*servers
	taken map[string]bool
}

// Tools implements agent.Source.
func (s source) Tools(ctx context.Context) ([]agent.Tool, error) {
	all, err := s.tools(ctx)
	if err != nil {
		return nil, err
	}
	seen, out := map[string]bool{}, make([]agent.Tool, 0, len(all))
	for _, t := range all {
		if !s.taken[t.Name] && !seen[t.Name] {
			seen[t.Name] = true
			t.Run = failing(t.Run)
			out = append(out, t)
		}
	}
	return out, nil
}

// toolException is a result by which a server says that a call failed.
type toolException string

func (r toolException) Error() string { return string(r) }

// ErrorName is the name that DeerFlow's clients know.
func (r toolException) ErrorName() string { return "ToolException" }

// failing makes errors of results that say so, for ToolErrorHandlingMiddleware, from which the model knows what to do next.
func failing(run func(context.Context, message.ToolCall) (any, error)) func(context.Context, message.ToolCall) (any, error) {
	return func(ctx context.Context, call message.ToolCall) (any, error) {
		out, err := run(ctx, call)
		if m, ok := out.(message.Message); ok && err == nil && m.Status == message.StatusError {
			return nil, toolException(m.Text())
		}
		return out, err
	}
}

// sourceFor returns the tools of servers in addition to those of middleware; Options.Sources when there are no servers.
func (g *Graph) sourceFor(chain []agent.Middleware, tools []agent.Tool) []agent.Source {
	if g.servers == nil {
		return g.o.Sources
	}
	taken := map[string]bool{}
	for _, t := range tools {
		taken[t.Name] = true
	}
	for _, m := range chain {
		for _, t := range m.Tools {
			taken[t.Name] = true
		}
	}
	return []agent.Source{source{g.servers, taken}}
}

package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/pregel"
	"understudy/graph/python"
	"understudy/graph/remote"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
	"understudy/internal/fault"
	"understudy/internal/logctx"
	"understudy/internal/names"
	"understudy/server"
)

// langGraphVersion returns the version of langgraph in the workers, or that whose semantics graphs in Go have.
func (s *Server) langGraphVersion() string {
	if s.pool != nil {
		if v, _ := s.pool.Versions(); v != "" {
			return v
		}
	}
	return pregel.Semantics
}

// addPython makes the workers of the graphs that langgraph.json names.
func (s *Server) addPython() error {
	opts, err := graphs.PythonOptions(s.cfg)
	if err != nil || len(opts.Graphs) == 0 {
		return err
	}
	opts.Logger, opts.Registry, opts.Loaded, opts.Unstartable = s.log, s.registry, s.loaded, s.needsPython
	opts.Elsewhere = func(name string) bool { return s.fleet.Elsewhere(name) }
	s.pool = python.New(opts)
	for _, g := range s.cfg.Graphs {
		if !g.IsPython() {
			continue
		}
		if err := s.graphs.Add(g.ID, g.Description, s.pool.Graph(g.ID)); err != nil {
			return err
		}
	}
	return nil
}

// addRemote adds the graphs that langgraph.json names by the URL of their server.
func (s *Server) addRemote() error {
	for _, g := range s.cfg.Graphs {
		if g.Remote == nil {
			continue
		}
		upstream, err := remote.New(remote.Options{ID: g.ID, URL: g.Remote.URL, GraphID: g.Remote.GraphID, Headers: g.Remote.Headers, Logger: s.log})
		if err != nil {
			return err
		}
		if err := s.graphs.Add(g.ID, g.Description, upstream); err != nil {
			return err
		}
	}
	return nil
}

// addDeclared builds the agents that langgraph.json declares. They are closed with the server.
func (s *Server) addDeclared(tools []agent.Tool) error {
	s.declared.Tools = tools
	built, err := s.declared.Rebuild(s.cfg, s.log)
	if err != nil {
		return err
	}
	for _, name := range built.Names() {
		if _, taken := s.graphs.Graph(name); taken {
			return errors.Join(fmt.Errorf("graph id %q is taken", name), built.Discard())
		}
	}
	s.declared.Replace(built, s.graphs, 0, s.log)
	return nil
}

// checks are what makes the server ready.
func (s *Server) checks() map[string]server.Check {
	all := map[string]server.Check{"database": s.rows.Ping}
	if s.pool != nil {
		all["workers"] = func(context.Context) error {
			if err := unready("no worker has loaded the graphs; see the log", s.pool.Up()); err != nil {
				return err
			}
			return heldUp(s.pool.HeldUp(), s.cfg.Authenticates())
		}
		if !s.cfg.Workers.AllowBrokenGraphs {
			all["graphs"] = func(context.Context) error {
				problems := s.pool.Problems()
				return unready(notImported(problems)+"; see the log", broken(problems))
			}
		}
	}
	if s.gate != nil {
		all["gate"] = func(context.Context) error { return s.gate.Up() }
	}
	if s.encryption != nil {
		all["encryption"] = func(context.Context) error { return s.encryption.Up() }
	}
	return all
}

// heldUp returns what anyone who asks may know of workers that do not answer, who are not to learn names of graphs and nodes when requests need credentials; nil for "".
func heldUp(what string, authenticates bool) error {
	switch {
	case what == "":
		return nil
	case authenticates:
		what = "a worker does not answer"
	}
	return server.Remark(what + "; see the log")
}

// unready is the error of a check with what anyone who asks may know of it; nil for nil.
func unready(text string, err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(fault.Unavailable, text, err)
}

// mostBroken is how many graphs that do not import the answer of a check names.
const mostBroken = 10

// notImported names graphs that do not import, without the reasons.
func notImported(problems map[string]error) string {
	all := slices.Sorted(maps.Keys(problems))
	if len(all) == 1 {
		return "graph " + all[0] + " does not import"
	}
	return "graphs " + names.Some(all, mostBroken) + " do not import"
}

// broken names graphs that do not import; nil when there are none.
func broken(problems map[string]error) error {
	if len(problems) == 0 {
		return nil
	}
	text := "graphs do not import:"
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		text += fmt.Sprintf(" %s (%v)", name, problems[name])
	}
	return errors.New(text)
}

// fixes returns the commands that most likely repair graphs, each once and on a line of its own.
func fixes(problems map[string]error) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		var f *graph.Failure
		if !errors.As(problems[name], &f) {
			continue
		}
		fix := f.Fix
		if fix == "" {
			fix = "correct " + name + "; understudy doctor shows more"
		}
		if line := "\n  fix  " + fix; !strings.Contains(text+"\n", line+"\n") {
			text += line
		}
	}
	return text
}

// ErrNoGraphs ends a server of which no graph loads, unless Settings.AllowBrokenGraphs.
var ErrNoGraphs = errors.New("no graph loads")

// hopeless is how long workers must have failed to start before the server ends.
const hopeless = 10 * time.Second

// needsPython reports whether the server ends when none of its Python graphs can be used: there are no others.
func (s *Server) needsPython() bool {
	if s.pool == nil || s.cfg.Workers.AllowBrokenGraphs {
		return false
	}
	for _, name := range s.graphs.Names() {
		if !slices.ContainsFunc(s.cfg.Graphs, func(g config.Graph) bool { return g.ID == name && g.IsPython() }) {
			return false
		}
	}
	return true
}

// watchGraphs returns an ErrNoGraphs when no graph of the server can be used: the only ones are Python graphs, and none of them imports, or no
// worker has ever started.
func (s *Server) watchGraphs(ctx context.Context) error {
	if !s.needsPython() {
		return nil
	}
	noted := false
	for tick := time.NewTicker(time.Second / 4); ; {
		if err := s.pool.Never(hopeless); err != nil {
			return fmt.Errorf("%w: %w", ErrNoGraphs, err)
		}
		if !noted && s.pool.Never(0) != nil {
			noted = true
			s.log.Warn("no graph can be used: the server ends unless a worker starts; --allow-broken-graphs keeps it up", "within", hopeless.String())
		}
		if langgraph, _ := s.pool.Versions(); langgraph != "" {
			tick.Stop()
			if problems := s.pool.Problems(); len(problems) == len(s.graphs.Names()) {
				return fmt.Errorf("%w: %w%s", ErrNoGraphs, broken(problems), fixes(problems))
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return nil
		}
	}
}

// Times of watchStart: without a word, between words, and between those of a start that takes longer than a minute, unless a developer looks at it. That does not
// end by itself: an import may take as long as it wants to.
const (
	quietStart  = 2 * time.Second
	repeatStart = 11 * time.Second / 4 // and a look
	longStart   = time.Minute
	rareStart   = 30 * time.Second
)

// watchStart reports what keeps Python graphs from being loaded: that no worker starts, or that the imports take their time. It ends when one or the
// other is known.
func (s *Server) watchStart(ctx context.Context) error {
	if s.pool == nil {
		return nil
	}
	tick := time.NewTicker(time.Second / 4)
	defer tick.Stop()
	began, next := time.Now(), quietStart
	for {
		if langgraph, _ := s.pool.Versions(); langgraph != "" {
			return nil
		}
		if err := s.pool.Never(0); err != nil {
			if s.needsPython() { // the error of Run says it
				return nil
			}
			for _, g := range s.cfg.Graphs {
				if g.IsPython() {
					s.loaded(g.ID, err, 0)
				}
			}
			return nil
		}
		if took := time.Since(began); took >= next {
			attrs := []any{"interpreter", s.cfg.Workers.Python, logctx.Took(took)}
			pause := repeatStart
			if took >= longStart {
				attrs = append(attrs, "fix", "an import that waits for another program, a lock or an input does not end, and the server waits for it as long: understudy doctor ends it after a minute, and shows where it waits")
				if s.cfg.Mode != config.Dev {
					pause = rareStart
				}
			}
			s.log.Info("the first worker is still loading the Python graphs; understudy doctor shows how long each takes", attrs...)
			next = took + pause
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Loaded reports whether Python graphs have been loaded since the start, broken ones too, or there are none.
func (s *Server) Loaded() bool {
	if s.pool == nil {
		return true
	}
	langgraph, _ := s.pool.Versions()
	return langgraph != ""
}

// loading reports whether a check fails.
func loading(ctx context.Context, checks map[string]server.Check) bool {
	for _, check := range checks {
		if err := check(ctx); err != nil && !server.IsRemark(err) {
			return true
		}
	}
	return false
}

// announce logs once that the server is ready: that the Python parts it waits for are loaded. dev shows its list of graphs instead.
func (s *Server) announce(ctx context.Context, began time.Time) error {
	if s.cfg.Mode == config.Dev {
		return nil
	}
	checks := s.checks()
	database := checks["database"]
	delete(checks, "database") // prepare has used it; a disk that is full stays so
	tick := time.NewTicker(time.Second / 4)
	defer tick.Stop()
	for loading(ctx, checks) {
		if checks["graphs"] != nil && len(s.GraphProblems()) > 0 {
			s.log.ErrorContext(ctx, "not ready: "+notImported(s.GraphProblems()), "serves", cmp.Or(strings.Join(s.working(), ", "), "none"),
				"fix", "do what the lines above say and start the server again, or let it be ready without them: --allow-broken-graphs")
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	for said := false; ; said = true {
		err := database(ctx)
		if err == nil {
			break
		}
		if !said && ctx.Err() == nil {
			s.log.WarnContext(ctx, "started, but not ready: /readyz is 503 until the database can be written", "error", err, "graphs", strings.Join(s.working(), ", "), logctx.Took(time.Since(began)),
				"fix", "do what the lines above say; the server needs no new start")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	s.log.InfoContext(ctx, "ready", "graphs", strings.Join(s.working(), ", "), logctx.Took(time.Since(began)))
	return nil
}

// working returns the graphs without those that do not import.
func (s *Server) working() []string {
	broken := s.GraphProblems()
	return slices.DeleteFunc(s.graphs.Names(), func(name string) bool { return broken[name] != nil })
}

// ErrCannotReload: what changed needs a new start.
var ErrCannotReload = errors.New("this change needs a restart")

// Reload replaces declared agents, Python graphs, their environment and sys.path by those of newly
// read settings, while Run continues.
// Declared agents that have changed are built first: an error, config.Mistakes, leaves all as it is. New workers import the Python graphs, and only when that worked do they take the runs that come. Those that run end where they began, or are handed back after
// Grace and continue in the new workers. Everything else in the settings stays as it was. An error leaves all as it is; a
// *python.ReloadError says which graphs do not import. Call it from one goroutine at a time.
func (s *Server) Reload(ctx context.Context, settings *config.Config) error {
	opts, err := graphs.PythonOptions(settings)
	if err != nil {
		return err
	}
	if s.pool == nil && len(opts.Graphs) > 0 {
		return fmt.Errorf("%w: there were no Python graphs", ErrCannotReload)
	}
	agents, err := s.declared.Rebuild(settings, s.log)
	if err != nil {
		return err
	}
	opts.Logger = s.log
	if err := s.reloadGate(ctx, settings); err != nil {
		return errors.Join(err, agents.Discard())
	}
	if s.pool != nil {
		if err := s.pool.Reload(ctx, opts, s.cfg.Server.Grace); err != nil {
			return errors.Join(err, agents.Discard())
		}
	}
	for _, g := range s.cfg.Graphs {
		stays := slices.ContainsFunc(settings.Graphs, func(other config.Graph) bool { return other.ID == g.ID })
		if g.Remote == nil && !stays {
			s.graphs.Remove(g.ID)
		}
	}
	s.declared.Replace(agents, s.graphs, s.cfg.Server.Grace, s.log)
	for _, g := range settings.Graphs {
		if g.IsPython() {
			s.graphs.Put(g.ID, g.Description, s.pool.Graph(g.ID))
		}
	}
	// Remote graphs stay as they are.
	all := slices.DeleteFunc(slices.Clone(settings.Graphs), func(g config.Graph) bool { return g.Remote != nil })
	for _, g := range s.cfg.Graphs {
		if g.Remote != nil {
			all = append(all, g)
		}
	}
	s.cfg.Graphs, s.cfg.GraphConfigs = all, settings.GraphConfigs
	return s.assistants.EnsureDefaults(ctx, s.cfg.GraphConfigs)
}

// InputSchema returns the JSON schema of what a graph takes, or of its state if that is unknown; nil if both are. It waits until the graph can be used.
func (s *Server) InputSchema(ctx context.Context, name string) (json.RawMessage, error) {
	g, ok := s.graphs.Graph(name)
	if !ok {
		return nil, fmt.Errorf("graph %s is not served", name)
	}
	schemas, err := g.Describe(ctx, graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
	if err != nil {
		return nil, err
	}
	for _, schema := range gjson.GetManyBytes(schemas, "input_schema", "state_schema") {
		if schema.IsObject() {
			return json.RawMessage(schema.Raw), nil
		}
	}
	return nil, nil
}

// BuildGraph builds a graph with an empty configuration. The error is that of a factory that fails, or makes no graph.
func (s *Server) BuildGraph(ctx context.Context, name string) error {
	g, ok := s.graphs.Graph(name)
	if !ok {
		return fmt.Errorf("graph %s is not served", name)
	}
	return python.Build(ctx, g)
}

// GraphProblems returns the Python graphs that fail to import, with the causes; empty before they
// have been loaded.
func (s *Server) GraphProblems() map[string]error {
	if s.pool == nil {
		return nil
	}
	return s.pool.Problems()
}

// imports returns the Python graphs that this server has, as Pool.Imports does.
func (s *Server) imports() map[string]error {
	if s.pool == nil {
		return nil
	}
	return s.pool.Imports()
}

// serves reports whether the server has a graph.
func (s *Server) serves(name string) bool {
	_, has := s.graphs.Graph(name)
	return has
}

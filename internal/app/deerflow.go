package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tmc/langchaingo/llms"

	"understudy/deerflow"
	embedded "understudy/deerflow/client"
	"understudy/deerflow/journal"
	"understudy/deerflow/lead"
	"understudy/deerflow/markdown"
	"understudy/deerflow/settings"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/provider"
	"understudy/id"
	"understudy/internal/address"
	"understudy/internal/config"
	"understudy/internal/tracing"
	"understudy/run"
	"understudy/run/cron"
	"understudy/run/spans"
	"understudy/server/deerflow/gateway"
)

// openDeerFlow opens the DeerFlow installation whose Gateway API is served; nil when there is none.
//
// program converts documents, as understudy does; "": they are not converted.
func (s *Server) openDeerFlow(ctx context.Context, program string) (*gateway.Installation, error) {
	cfg := s.cfg
	if cfg.Server.DeerFlow == "" || cfg.Mode == config.Worker {
		return nil, nil
	}
	env := func(name string) string { v, _ := cfg.Lookup(name); return v }
	o := s.deerFlowOptions()
	o.Accounts, o.Feedback, o.Forget = s.rows, s.rows, s.forget
	own, named := s.graphs.Graph(lead.Name)                                                                       // langgraph.json names DeerFlow's own
	if !slices.ContainsFunc(cfg.Graphs, func(g config.Graph) bool { return g.ID == lead.Name && g.IsPython() }) { // which keeps memories in files
		o.Memories = s.memories()
	}
	if program != "" {
		o.Convert = markdown.Converter(program)
	}
	d, err := deerflow.Open(o)
	if err != nil {
		return nil, fmt.Errorf("deerflow: %w", err)
	}
	s.lead = s.leadGraph(d)
	if named {
		s.graphs.Put(lead.Name, s.graphs.Description(lead.Name), journal.Of(own, d.Home.ThreadDir))
	} else {
		s.graphs.Put(lead.Name, "DeerFlow's agent", journal.Of(s.lead, d.Home.ThreadDir))
		d.WarnOfMiddlewares()
		if err := s.lead.Prepare(ctx); err != nil { // what is wrong with its tools is in the log before the first run needs them
			return nil, err
		}
	}
	out := &gateway.Installation{DeerFlow: d, Condense: s.condense(s.lead), Closed: !cfg.HTTP.CORS.Given, HideDocs: switchedOff(env("GATEWAY_ENABLE_DOCS")), Embedder: rand.Text()}
	if out.Trusted, err = address.Networks(env("AUTH_TRUSTED_PROXIES")); err != nil {
		return nil, fmt.Errorf("deerflow: AUTH_TRUSTED_PROXIES: %w", err)
	}
	switch open, ignored := cfg.DeerFlowIsOpen(); {
	case ignored:
		s.log.Warn("DEER_FLOW_AUTH_DISABLED is ignored in production")
	case open:
		s.log.Warn("authentication is off: everybody who reaches this address is the administrator; unset DEER_FLOW_AUTH_DISABLED", "owner", gateway.InternalUser, "note", "accounts do not see what is made meanwhile")
		out.Open = true
	}
	return out, nil
}

// switchedOff reports whether a variable of DeerFlow that is on by default is switched off.
func switchedOff(value string) bool {
	return slices.Contains([]string{"false", "0", "no", "off"}, strings.ToLower(strings.TrimSpace(value)))
}

// langfuse returns how traces are named for Langfuse; nil: it gets none.
func (s *Server) langfuse() *spans.Langfuse {
	env := func(name string) string { v, _ := s.cfg.Lookup(name); return v }
	if s.cfg.Server.DeerFlow == "" || !tracing.ToLangfuse(env) {
		return nil
	}
	return &spans.Langfuse{Environment: cmp.Or(env("DEER_FLOW_ENV"), env("ENVIRONMENT"))}
}

// deerFlowOptions say where DeerFlow's files are.
func (s *Server) deerFlowOptions() deerflow.Options {
	env := func(name string) string { v, _ := s.cfg.Lookup(name); return v }
	return deerflow.Options{
		Config: s.cfg.Server.DeerFlow, Home: env("DEER_FLOW_HOME"), Extensions: env("DEER_FLOW_EXTENSIONS_CONFIG_PATH"), Lookup: s.cfg.Lookup, Ask: s.ask, Log: s.log, Now: s.now,
	}
}

// leadGraph returns DeerFlow's agent of an installation, and opens the sandbox that it has.
func (s *Server) leadGraph(d *deerflow.DeerFlow) *lead.Graph {
	return lead.New(lead.Options{
		Settings: d.Settings, Open: s.openModel, Tools: s.leadTools(d), Agent: leadAgent(d), Skills: d.EnabledSkills, Agents: d.Agents, Library: d.Skills, Servers: s.leadServers(d),
		ForeignServers: s.foreignServers(d), Memory: s.leadMemory(d), Log: s.log,
	})
}

// taskRules returns how scheduled tasks are run; nil without an installation. A change of config.yaml counts at once.
func (s *Server) taskRules() func() cron.TaskRules {
	if s.deerflow == nil {
		return nil
	}
	rules := rulesOf(s.deerflow.LastSettings)
	rules() // config.yaml was valid a moment ago
	return rules
}

// describeTask adds to the run of a scheduled task what the Gateway adds to other runs, by the settings of now.
func (s *Server) describeTask(c *run.Cron, req *run.Request) error {
	if c.Account == "" || s.deerflow == nil {
		return nil
	}
	set, err := s.deerflow.LastSettings()
	if err != nil {
		return err
	}
	return s.deerflow.Describe(set, c.Account, req)
}

// rulesOf returns a function that returns the rules of the settings that read returns, which are those that could be read last.
func rulesOf(read func() (*settings.Settings, error)) func() cron.TaskRules {
	return func() cron.TaskRules {
		set, err := read()
		if err != nil { // none could be read yet
			return cron.TaskRules{MaxRuns: 1, MinDelay: time.Minute}
		}
		c := set.Scheduler
		return cron.TaskRules{Scheduled: c.Enabled, MaxRuns: c.MaxRuns, MinDelay: time.Duration(c.MinDelay) * time.Second}
	}
}

// condense condenses conversations with the model and the amounts of config.yaml, also those of DeerFlow's own agent in Python.
func (s *Server) condense(by *lead.Graph) func(context.Context, id.Thread, deerflow.Condensing) (deerflow.Condensed, error) {
	return func(ctx context.Context, t id.Thread, how deerflow.Condensing) (out deerflow.Condensed, err error) {
		at, err := s.threads.Revise(ctx, t, func(ctx context.Context, values json.RawMessage) (*graph.StateUpdate, error) {
			c, err := by.Condense(ctx, values, lead.Condensing(how))
			if err != nil || c == nil {
				return nil, err
			}
			update, err := json.Marshal(map[string]any{"messages": c.Update, "summary_text": c.Summary})
			if err != nil {
				return nil, fmt.Errorf("encode a condensed conversation: %w", err)
			}
			out = deerflow.Condensed{Removed: c.Removed, Kept: c.Kept, Tokens: c.Tokens}
			return &graph.StateUpdate{Values: update}, nil
		})
		out.Checkpoint = at.ID
		return out, err
	}
}

// openModel makes the client of a model of config.yaml. retries are its further tries; nil: the client's own number. body goes with each request.
func (s *Server) openModel(m *settings.Model, retries *int, body map[string]json.RawMessage) (agent.Model, error) {
	spec := provider.Spec{
		BaseURL: m.BaseURL, Key: m.APIKey, Temperature: m.Temperature, MaxTokens: m.MaxTokens, MaxInputTokens: m.ContextWindow, Images: m.Vision, Log: s.log, Place: "models." + m.Name, Dir: filepath.Dir(s.cfg.Server.DeerFlow),
		Retries: retries, ExtraBody: body, Responses: m.Responses(),
		Getenv: func(name string) string { v, _ := s.cfg.Lookup(name); return v },
	}
	if spec.BaseURL == "" {
		spec.BaseURL = m.APIBase
	}
	if m.ReturnsReasoning() {
		yes := true
		spec.ReturnReasoning = &yes
	}
	if m.TextCalls() { // an answer with tools begins when it is complete
		spec.TextCalls, spec.Timeout = true, 15*time.Minute
		if m.ReadTimeout > 0 {
			spec.Timeout = time.Duration(m.ReadTimeout * float64(time.Second))
		}
	}
	name, err := m.Provider()
	if err != nil {
		return agent.Model{}, err
	}
	spec.Name = name + ":" + m.Model
	model, err := provider.Open(spec)
	if note := m.SignIn(); err != nil && spec.Key == "" && note != "" {
		err = fmt.Errorf("%w (%s)", err, note)
	}
	return model, err
}

// ask sends a prompt to a model of config.yaml and returns its answer.
func (s *Server) ask(ctx context.Context, m *settings.Model, system, prompt string) (string, error) {
	body, err := m.Options(false, "")
	if err != nil {
		return "", err
	}
	model, err := s.openModel(m, nil, body)
	if err != nil {
		return "", err
	}
	return lead.Ask(ctx, model, m.Name, system, prompt, llms.WithModel(m.Model))
}

// DeerFlowClient returns a client of the installation that acts for a user, while the server runs. The error says why there is none.
func (s *Server) DeerFlowClient(user string) (*embedded.Client, error) {
	switch {
	case s.deerflow == nil:
		return nil, errors.New("no DeerFlow installation is served: set HTTP.DeerFlow to its config.yaml")
	case s.deerflow.Open && user != "" && user != gateway.InternalUser:
		return nil, fmt.Errorf("DEER_FLOW_AUTH_DISABLED makes everyone the user %s: unset it for a client that acts for %q", gateway.InternalUser, user)
	case strings.HasPrefix(s.url(), "https:"):
		return nil, errors.New("the embedded client speaks no TLS: end TLS in a proxy, or use the Gateway's API")
	}
	at, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.New("the server has no port")
	}
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	base := "http://" + net.JoinHostPort(host, strconv.Itoa(at.Port))
	return embedded.New(base, s.deerflow.Embedder, user, &http.Client{Transport: s.clients}), nil
}

package app

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"understudy/deerflow"
	"understudy/deerflow/acp"
	custom "understudy/deerflow/agent"
	"understudy/deerflow/files"
	"understudy/deerflow/lead"
	"understudy/deerflow/memory"
	"understudy/deerflow/sandbox"
	"understudy/deerflow/settings"
	"understudy/graph/agent/mcp"
	"understudy/internal/fault"
)

// leadTools opens the sandbox of DeerFlow's agent, and says where its tools find things. Close ends what runs in it.
func (s *Server) leadTools(d *deerflow.DeerFlow) lead.Tools {
	set := d.Sandbox()
	o := sandbox.Options{Confine: sandbox.Confinement(set.Confine), Readable: set.Readable, Refuse: d.RefuseCommands, Log: s.log}
	if o.Confine == "auto" {
		o.Confine = sandbox.ConfineAuto
	}
	if set.Place() == settings.Containers {
		o.Container = &sandbox.ContainerOptions{
			Image: set.Image, Home: d.Home.Dir, Lookup: s.cfg.Lookup, Idle: time.Duration(set.IdleTimeout * float64(time.Second)), Most: set.Replicas,
			Network: set.Network, Memory: set.Memory, CPUs: set.CPUs,
		}
	}
	s.sandbox = sandbox.NewLocal(o)
	s.python = &pythonTools{s: s}
	return lead.Tools{
		Sandbox: s.sandbox,
		Dir:     d.Home.ThreadDir,
		Skills: func(user string) (shared, own string, err error) {
			shared, err = d.Skills.Root()
			return shared, d.Skills.User(user), err
		},
		Python:  s.python.load,
		Lookup:  s.cfg.Lookup,
		Resolve: func(path string) string { return resolved(filepath.Dir(s.cfg.Server.DeerFlow), path) },
	}
}

// leadAgent returns what makes a user's agent different.
func leadAgent(d *deerflow.DeerFlow) func(user, name string) (lead.Character, error) {
	return func(user, name string) (c lead.Character, err error) {
		if name, err = custom.Name(name); err != nil {
			return c, fault.Wrap(fault.NotFound, "there is no such agent", err)
		}
		a, err := d.Agents.Get(user, name)
		if err != nil {
			return c, err
		}
		c = lead.Character{Soul: a.Soul, Skills: a.Skills, Groups: a.ToolGroups, Thinking: a.Thinking}
		if a.Model != nil {
			c.Model = *a.Model
		}
		if a.ReasoningEffort != nil {
			c.Effort = *a.ReasoningEffort
		}
		return c, nil
	}
}

// leadServers are the MCP servers of extensions_config.json.
func (s *Server) leadServers(d *deerflow.DeerFlow) func() ([]lead.Server, error) {
	var mu sync.Mutex
	warned := map[string]string{}
	return func() ([]lead.Server, error) {
		list, bad, err := d.Extensions.Enabled(s.cfg.Lookup)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		for name, problem := range bad {
			if warned[name] != problem.Error() {
				warned[name] = problem.Error()
				s.log.Warn("an MCP server in extensions_config.json cannot be used; the agent works without its tools", "mcp_server", name, "error", problem)
			}
		}
		mu.Unlock()
		out := make([]lead.Server, len(list))
		for i, server := range list {
			out[i] = lead.Server{Name: server.Name, Config: server, Open: func() (*mcp.Source, error) {
				o := mcp.Options{Name: server.Name, Prefix: true, Command: server.Command, Args: server.Args, Env: server.Env, Log: s.log}
				if server.Type != "stdio" {
					o.Command, o.URL, o.SSE, o.Headers, o.Transport = "", server.URL, server.Type == "sse", server.Headers, server.Transport()
				}
				return mcp.New(o)
			}}
		}
		return out, nil
	}
}

// foreignServers are the MCP servers of extensions_config.json for ACP agents.
func (s *Server) foreignServers(d *deerflow.DeerFlow) func() ([]acp.Server, error) {
	return func() ([]acp.Server, error) {
		list, _, err := d.Extensions.Enabled(s.cfg.Lookup)
		out := make([]acp.Server, len(list))
		for i, one := range list {
			out[i] = acp.Server{Type: one.Type, Name: one.Name, Command: one.Command, Args: one.Args, Env: one.Env, URL: one.URL, Headers: one.Headers}
		}
		return out, err
	}
}

// leadMemory lets the lead agent know its users, and learn of them while the server runs.
func (s *Server) leadMemory(d *deerflow.DeerFlow) lead.Memory {
	s.learner = &memory.Learner{
		Book: d.Memory, Queue: s.memoryQueue(d), Log: s.log,
		Ask: func(ctx context.Context, prompt string) (string, error) {
			set, err := d.Settings()
			if err != nil {
				return "", err
			}
			m, err := deerflow.Model(set, "")
			if err != nil {
				return "", err
			}
			return s.ask(ctx, m, "", prompt)
		},
		Limits: func() memory.Limits {
			set, err := d.Settings()
			if err != nil { // until the file is corrected nothing is learned that might not be wanted
				return memory.Limits{Wait: time.Minute, Confidence: 2}
			}
			return memory.Limits{Wait: time.Duration(set.Memory.Debounce) * time.Second, Confidence: set.Memory.Confidence, MaxFacts: set.Memory.MaxFacts}
		},
	}
	return lead.Memory{
		Book: d.Memory,
		Read: func(ctx context.Context, user, agent string) (*memory.Memory, error) {
			return d.Memory.Read(ctx, memory.Subject(user, agent))
		},
		Learn: func(ctx context.Context, user, agent, thread string, turns []memory.Turn) error {
			return s.learner.Add(ctx, memory.Subject(user, agent), thread, turns)
		},
	}
}

// memories are those of the store.
func (s *Server) memories() *memory.Items {
	return &memory.Items{Store: s.items, User: files.User}
}

// waiting is what waits to be learned.
func (s *Server) waiting() *memory.ItemQueue {
	return &memory.ItemQueue{Store: s.items, User: files.User, Now: s.now, Log: s.log}
}

// forget deletes the memory of a subject; of a user those of all agents. What waits goes first: nothing is learned of what does not wait any more.
func (s *Server) forget(ctx context.Context, subject string) error {
	if err := s.waiting().Forget(ctx, subject); err != nil {
		return err
	}
	return s.memories().Forget(ctx, subject)
}

// memoryQueue is what waits to be learned, which all servers of the database share, with what an earlier release left in the home folder.
func (s *Server) memoryQueue(d *deerflow.DeerFlow) *memory.ItemQueue {
	q := s.waiting()
	q.Before = &memory.Folder{Dir: filepath.Join(d.Home.Dir, "memory-queue")}
	if s.cfg.Storage.DatabaseURL == "" { // of which no other server has the folder
		q.Holder = "server"
	}
	return q
}

// resolved returns a path of config.yaml as an absolute one.
func resolved(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

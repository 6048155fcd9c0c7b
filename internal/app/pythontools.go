package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"understudy/deerflow/lead"
	"understudy/gate"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/internal/app/graphs"
	"understudy/internal/jsonobj"
)

// pythonTools are the tools of config.yaml that are in Python. Their process is started when config.yaml names the first, and replaced when it names others.
type pythonTools struct {
	s *Server

	mu    sync.Mutex
	tools *gate.Tools // nil: none are loaded
	uses  []string    // that are loaded
	fails bool        // one of them could not be loaded
}

// load returns the tools. It waits until their modules are imported.
func (p *pythonTools) load(ctx context.Context, uses []string) map[string]lead.PythonTool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]lead.PythonTool{}
	same := p.tools != nil && slices.Equal(uses, p.uses)
	var err error
	if !same || p.fails {
		err = p.start(ctx, uses)
	}
	if err != nil && same {
		p.s.log.WarnContext(ctx, "tools in Python that are missing could not be loaded again; the others stay", "error", err)
	} else if err != nil {
		problem := lead.PythonTool{Problem: err.Error()}
		var why *gate.StartError
		if errors.As(err, &why) {
			problem.Problem, problem.Fix = why.Reason, why.Fix
		}
		for _, use := range uses {
			out[use] = problem
		}
		return out
	}
	p.fails = false
	for _, t := range p.tools.List(ctx) {
		if why := t.Problem; why != nil {
			p.fails = true
			problem := why.Reason
			if why.Place != "" {
				problem += " (" + why.Place + ")"
			}
			out[t.Spec] = lead.PythonTool{Problem: problem, Fix: why.Fix}
			continue
		}
		out[t.Spec] = lead.PythonTool{Tool: agent.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema, Direct: t.Direct, Run: runPython(p.tools, t.Spec)}}
	}
	for _, use := range uses {
		if _, ok := out[use]; !ok {
			out[use] = lead.PythonTool{Problem: "the process of Python tools died", Fix: "look for the cause in the log; runs try again to load it"}
		}
	}
	return out
}

// start starts the process with tools, or replaces the one that there is. The caller holds mu.
func (p *pythonTools) start(ctx context.Context, uses []string) error {
	o, err := graphs.ToolOptions(p.s.cfg, filepath.Dir(p.s.cfg.Server.DeerFlow), uses)
	if err != nil {
		return err
	}
	o.Logger = p.s.log
	if p.tools == nil {
		tools, err := gate.StartTools(ctx, o)
		if err != nil {
			return err
		}
		p.tools = tools
	} else if err := p.tools.Reload(ctx, o); err != nil {
		return err
	}
	p.uses = slices.Clone(uses)
	return nil
}

// close ends the process. load is not called any more.
func (p *pythonTools) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tools == nil {
		return nil
	}
	return p.tools.Close()
}

// runPython calls a tool. Functions with a parameter RunnableConfig see whose run and thread it is.
func runPython(tools *gate.Tools, spec string) func(context.Context, message.ToolCall) (any, error) {
	return func(ctx context.Context, call message.ToolCall) (any, error) {
		r, err := tools.Call(ctx, gate.ToolCall{Spec: spec, ID: call.ID, Args: call.Args, Configurable: lead.RunOf(ctx)})
		if err != nil {
			return nil, err
		}
		m, err := message.Parse(fmt.Appendf(nil, `{"type":"tool","content":%s,"tool_call_id":%s,"name":%s}`, r.Content, jsonobj.Quote(call.ID), jsonobj.Quote(call.Name)))
		if err != nil {
			return nil, fmt.Errorf("read the result of %s: %w", spec, err)
		}
		if m.Artifact = r.Artifact; r.Failed {
			m.Status = message.StatusError
		}
		return m, nil
	}
}

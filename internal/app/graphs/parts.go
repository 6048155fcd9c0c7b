package graphs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"understudy/deerflow/files"
	"understudy/deerflow/lead"
	"understudy/deerflow/sandbox"
	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/internal/config"
)

// parts are the parts of DeerFlow's agent that a declared one has.
type parts struct {
	*lead.Parts
	d    *declaration
	id   string // of the graph
	used bool
}

// middleware of an agent is made in the order of what it needs, and has that of the file: the sandbox first, subagents last, which have the tools of all others.
func (d *declaration) addMiddleware(id string, o *agent.Options) error {
	p := &parts{Parts: lead.NewParts(o.Model, d.log), d: d, id: id}
	made := make([][]agent.Middleware, len(d.Middleware))
	build := func(wanted func(m config.AgentMiddleware) bool, with func(m config.AgentMiddleware) ([]agent.Middleware, error)) error {
		for i, m := range d.Middleware {
			if !wanted(m) {
				continue
			}
			var err error
			if made[i], err = with(m); err != nil {
				return d.wrong("middleware."+m.Kind, err)
			}
		}
		return nil
	}
	plain := func(m config.AgentMiddleware) ([]agent.Middleware, error) { return d.middleware(m, o.Model, p) }
	err := build(func(m config.AgentMiddleware) bool { return m.Sandbox != nil }, plain)
	if err == nil {
		err = build(func(m config.AgentMiddleware) bool { return m.Sandbox == nil && m.Subagents == nil }, plain)
	}
	if err == nil {
		err = build(func(m config.AgentMiddleware) bool { return m.Subagents != nil }, func(m config.AgentMiddleware) ([]agent.Middleware, error) {
			return p.subagents(*m.Subagents, *o, made)
		})
	}
	if err != nil {
		return err
	}
	for _, list := range made {
		o.Middleware = append(o.Middleware, list...)
	}
	if p.used {
		o.Closers = append(o.Closers, p)
	}
	return nil
}

func (p *parts) has(kind string) bool {
	return slices.ContainsFunc(p.d.Middleware, func(m config.AgentMiddleware) bool { return m.Kind == kind })
}

// home returns the folder that the file names, else that of the agent in the data folder.
func (p *parts) home(named string) (string, error) {
	switch {
	case named != "":
		return named, nil
	case p.d.cfg.Storage.Data == "" || p.d.cfg.Storage.Data == ":memory:":
		return "", errors.New(`has no folder: the server keeps its data in memory; write "folder": "files"`)
	}
	return filepath.Join(p.d.cfg.Storage.Data, "agents", files.User(p.id)), nil
}

// middleware makes one part; known is false for middleware that is none.
func (p *parts) middleware(m config.AgentMiddleware, model agent.Model) (made []agent.Middleware, known bool, err error) {
	home := ""
	switch {
	case m.Sandbox != nil:
		if home, err = p.home(m.Sandbox.Folder); err == nil {
			confine := sandbox.Confinement(m.Sandbox.Confine)
			if confine == "auto" {
				confine = sandbox.ConfineAuto
			}
			made = []agent.Middleware{p.Sandbox(lead.SandboxPart{
				Options: sandbox.Options{Confine: confine, Readable: m.Sandbox.Readable},
				Home:    home, Names: m.Sandbox.Tools, Bash: m.Sandbox.Bash, Timeout: m.Sandbox.Timeout,
			})}
		}
	case m.Memory != nil:
		if home, err = p.home(m.Memory.Folder); err == nil {
			made = p.Memory(lead.MemoryPart{
				Home: home, Model: model, Wait: m.Memory.Wait, MaxFacts: m.Memory.MaxFacts, Confidence: m.Memory.Confidence, MaxTokens: m.Memory.MaxTokens,
			})
		}
	case m.Skills != "":
		made = []agent.Middleware{p.Skills(m.Skills)}
	case m.Kind == "uploads":
		made, err = one(p.Uploads())
	case m.Kind == "view_image":
		made, err = one(p.ViewImage())
	case m.Kind == "read_before_write":
		made, err = one(p.ReadBeforeWrite())
	case m.Kind == "date" && p.has("memory"): // in which the date is too
	default:
		return nil, false, nil
	}
	p.used = true
	return made, true, err
}

// output keeps whole results in files where there is a sandbox. The tool that reads these is not shortened: it has its own limit.
func (p *parts) output(o middleware.ToolOutputOptions) middleware.ToolOutputOptions {
	if o.Save = p.Keep(); o.Save != nil && !slices.Contains(o.Exempt, "read_file") {
		o.Exempt = append(slices.Clone(o.Exempt), "read_file")
	}
	return o
}

// shared is middleware that protects subagents as it does their agent.
var shared = []string{"model_errors", "guardrails", "tool_output", "tool_errors", "loop_detection", "tool_result_sanitization", "read_before_write", "tool_progress", "model_length", "safety_finish_reason"}

// subagents makes the subagents of an agent whose other middleware is made. They have its tools, except those that a person has to approve, whom a subagent cannot ask.
func (p *parts) subagents(c config.AgentSubagents, o agent.Options, made [][]agent.Middleware) ([]agent.Middleware, error) {
	p.used = true
	out := lead.SubagentPart{Types: map[string]settings.Subagent{}, Models: map[string]agent.Model{}, Total: c.Total, Tools: slices.Clone(o.Tools)}
	var held []string
	for i, m := range p.d.Middleware {
		for name := range m.Approvals {
			held = append(held, name)
		}
		for _, one := range made[i] {
			out.Tools = append(out.Tools, one.Tools...)
		}
		if slices.Contains(shared, m.Kind) {
			out.Guards = append(out.Guards, made[i]...)
		}
	}
	out.Tools = slices.DeleteFunc(out.Tools, func(t agent.Tool) bool { return slices.Contains(held, t.Name) })
	for _, s := range o.Sources {
		out.More = append(out.More, without{s, held})
	}
	for _, kind := range c.Types {
		if err := unknownTool(kind, out.Tools, held, len(o.Sources) > 0); err != nil {
			return nil, err
		}
		t := settings.Subagent{Description: kind.Description, Prompt: kind.Prompt, Tools: kind.Tools, Turns: kind.Turns, Timeout: kind.Timeout.Seconds()}
		if kind.Model != nil {
			m, err := p.d.model(*kind.Model)
			if err != nil {
				return nil, atKey("types."+kind.Name+".model", err)
			}
			t.Model = "subagent " + kind.Name
			out.Models[t.Model] = m
		}
		out.Types[kind.Name] = t
	}
	return p.Subagents(out)
}

// unknownTool reports a tool of a subagent that it cannot have. With sources, tools may come that are not known yet.
func unknownTool(kind config.AgentSubagent, have []agent.Tool, held []string, more bool) error {
	for i, name := range kind.Tools {
		key := fmt.Sprintf("types.%s.tools[%d]", kind.Name, i)
		known := slices.ContainsFunc(have, func(t agent.Tool) bool { return t.Name == name })
		switch {
		case slices.Contains(held, name):
			return atKey(key, fmt.Errorf("%q needs the approval of a person, whom a subagent cannot ask; leave it out here, or of human_in_the_loop", name))
		case !known && !more:
			names := make([]string, len(have))
			for i, t := range have {
				names[i] = t.Name
			}
			return atKey(key, fmt.Errorf("the agent has no tool %q; it has %s", name, strings.Join(names, ", ")))
		}
	}
	return nil
}

// without is a source without some of its tools. It does not own it.
type without struct {
	from  agent.Source
	names []string
}

// Tools implements agent.Source.
func (w without) Tools(ctx context.Context) ([]agent.Tool, error) {
	all, err := w.from.Tools(ctx)
	return slices.DeleteFunc(slices.Clone(all), func(t agent.Tool) bool { return slices.Contains(w.names, t.Name) }), err
}

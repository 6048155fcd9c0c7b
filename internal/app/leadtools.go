package app

import (
	"path/filepath"

	"understudy/deerflow"
	custom "understudy/deerflow/agent"
	"understudy/deerflow/lead"
	"understudy/deerflow/sandbox"
	"understudy/internal/fault"
)

// leadTools opens the sandbox of DeerFlow's agent, and says where its tools find things. Close ends what runs in it.
func (s *Server) leadTools(d *deerflow.DeerFlow) lead.Tools {
	o := sandbox.Options{Log: s.log}
	if set, err := d.Settings(); err == nil { // at the start they can be read
		o.Confine, o.Readable = sandbox.Confinement(set.Sandbox.Confine), set.Sandbox.Readable
		if o.Confine == "auto" {
			o.Confine = sandbox.ConfineAuto
		}
	}
	s.sandbox = sandbox.NewLocal(o)
	return lead.Tools{
		Sandbox: s.sandbox,
		Dir:     d.Home.ThreadDir,
		Skills: func(user string) (shared, own string, err error) {
			shared, err = d.Skills.Root()
			return shared, d.Skills.User(user), err
		},
		Groups: func(user, name string) ([]string, error) {
			name, err := custom.Name(name)
			if err != nil {
				return nil, err
			}
			a, err := d.Agents.Get(user, name)
			if err != nil {
				return nil, err
			}
			return a.ToolGroups, nil
		},
		Lookup:  s.cfg.Lookup,
		Resolve: func(path string) string { return resolved(filepath.Dir(s.cfg.DeerFlow), path) },
	}
}

// leadAgent returns the model and the soul of a user's agent.
func leadAgent(d *deerflow.DeerFlow) func(user, name string) (model, soul string, err error) {
	return func(user, name string) (model, soul string, err error) {
		if name, err = custom.Name(name); err != nil {
			return "", "", fault.Wrap(fault.NotFound, "there is no such agent", err)
		}
		a, err := d.Agents.Get(user, name)
		if err != nil {
			return "", "", err
		}
		if a.Model != nil {
			model = *a.Model
		}
		return model, a.Soul, nil
	}
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

package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"understudy/deerflow"
	"understudy/deerflow/extensions"
	"understudy/deerflow/lead"
	"understudy/deerflow/settings"
	"understudy/internal/address"
	"understudy/internal/config"
)

// CheckDeerFlow loads a DeerFlow installation and its agent as a server does, and logs what is wrong with them, and what they have. It writes nothing, and starts no MCP server.
func CheckDeerFlow(ctx context.Context, cfg *config.Config, log *slog.Logger) {
	s := &Server{cfg: cfg, log: log}
	d, err := deerflow.Read(s.deerFlowOptions())
	if err != nil {
		log.Error("the settings cannot be read", "error", err, "fix", "do what the error says, or correct config.yaml")
		return
	}
	if proxies, _ := cfg.Lookup("AUTH_TRUSTED_PROXIES"); proxies != "" {
		if _, err := address.Networks(proxies); err != nil {
			log.Error("AUTH_TRUSTED_PROXIES cannot be read", "error", err)
		}
	}
	if set, err := d.Settings(); err == nil {
		s.checkModels(set)
		s.checkPrograms(d, set)
		s.checkSkills(d, set)
	}
	if slices.ContainsFunc(cfg.Graphs, func(g config.Graph) bool { return g.ID == lead.Name }) {
		return // it is in Python, and checked with the other graphs
	}
	d.WarnOfMiddlewares()
	g := s.leadGraph(d)
	err = g.Build(ctx)
	if err = errors.Join(err, g.Close(), s.python.close()); err != nil {
		log.Error("the agent cannot be built; its runs fail", "error", err, "fix", "correct config.yaml")
	} else {
		log.Info("the agent can be built", "graph", lead.Name)
	}
	s.sandbox.Close()
}

// checkModels opens each model, which needs its key.
func (s *Server) checkModels(set *settings.Settings) {
	if len(set.Models) == 0 {
		s.log.Error("no model is configured, and all runs fail", "fix", "add one to models of config.yaml")
	}
	for i := range set.Models {
		m := &set.Models[i]
		if _, err := s.openModel(m, nil, nil); err != nil {
			s.log.Error("a model cannot be used", "model", m.Name, "error", err, "fix", "correct models of config.yaml, or set its variable")
		}
	}
	if name := set.Title.Model; name != "" && set.Model(name) == nil {
		s.log.Error("title.model_name is no model of config.yaml", "model", name)
	}
}

// checkPrograms looks for the programs that MCP servers and ACP agents are.
func (s *Server) checkPrograms(d *deerflow.DeerFlow, set *settings.Settings) {
	list, bad, err := d.Extensions.Enabled(s.cfg.Lookup)
	if err != nil {
		s.log.Error("the configuration of MCP servers cannot be read", "error", err, "fix", "correct extensions_config.json")
	}
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		s.log.Error("an MCP server in extensions_config.json cannot be used", "mcp_server", name, "error", bad[name])
	}
	for _, server := range list {
		if server.Type != "stdio" {
			s.log.Info("an MCP server is at an address, and not asked", "mcp_server", server.Name, "host", hostOf(server.URL))
		} else if err := findProgram(server); err != nil {
			s.log.Error("the program of an MCP server is missing", "mcp_server", server.Name, "error", err, "fix", "install it, or switch the server off in extensions_config.json")
		} else {
			s.log.Info("the program of an MCP server is there", "mcp_server", server.Name, "command", server.Command)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set.ACP)) {
		if _, err := exec.LookPath(set.ACP[name].Command); err != nil {
			s.log.Error("the program of an ACP agent is missing", "agent", name, "error", err, "fix", "install it, or remove it from acp_agents of config.yaml")
		}
	}
}

// hostOf returns the scheme, host and port of a URL: what else it has may be secret.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "no valid URL"
	}
	return u.Scheme + "://" + u.Host
}

// findProgram looks for the program of a server in its own PATH, if it has one.
func findProgram(server extensions.Server) error {
	path := server.Env["PATH"]
	if path == "" || filepath.Base(server.Command) != server.Command {
		_, err := exec.LookPath(server.Command)
		return err
	}
	for _, dir := range filepath.SplitList(path) {
		if _, err := exec.LookPath(filepath.Join(dir, server.Command)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%q is not in its PATH, %s", server.Command, path)
}

// checkSkills reads the skills that all users have.
func (s *Server) checkSkills(d *deerflow.DeerFlow, set *settings.Settings) {
	all, err := d.Skills.List("default")
	if err != nil {
		s.log.Error("skills cannot be read", "error", err)
		return
	}
	root, err := d.Skills.Root()
	if err != nil {
		return // said above
	}
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) && set.Skills.Path != "" {
		s.log.Warn("the folder of skills does not exist", "path", root, "fix", "correct skills.path of config.yaml")
		return
	}
	s.log.Info("skills", "path", root, "skills", len(all))
}

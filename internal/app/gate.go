package app

import (
	"context"
	"fmt"
	"net/http"

	"understudy/gate"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
)

// addGate makes the process of the Python parts that are not graphs.
func (s *Server) addGate() {
	opts := graphs.GateOptions(s.cfg)
	if s.cfg.Mode == config.Worker { // it serves no clients, but its crons ask the handlers of auth
		opts.App = ""
	}
	if opts.None() {
		return
	}
	opts.Logger, opts.Registry = s.log, s.registry
	if opts.App != "" {
		opts.API = func(r *http.Request, as gate.Passage) (*http.Response, error) { return s.http.Inside(r, as) }
	}
	s.gate = gate.New(opts)
	if opts.Studio && opts.Auth != "" {
		s.log.Warn("requests of LangGraph Studio from this machine pass without credentials, as StudioUser; handlers of auth are asked all the same",
			"fix", `"disable_studio_auth": true in auth of langgraph.json makes it authenticate`)
	}
}

// reloadGate replaces the Python parts that are not graphs by those of newly read settings.
func (s *Server) reloadGate(ctx context.Context, settings *config.Config) error {
	switch {
	case (s.encryption != nil) != settings.Encrypts():
		return fmt.Errorf("%w: encryption.path came or went", ErrCannotReload)
	case s.encryption != nil:
		if err := s.encryption.Reload(ctx, graphs.EncryptionOptions(settings)); err != nil {
			return err
		}
	}
	opts := graphs.GateOptions(settings)
	switch {
	case s.gate == nil && opts.None():
		return nil
	case s.gate == nil:
		return fmt.Errorf("%w: there were no auth, routes or embeddings in Python", ErrCannotReload)
	case opts.Auth == "" && s.cfg.Auth.Python.IsSet() && !s.cfg.Server.IgnoreAuth:
		return fmt.Errorf("%w: auth.path is gone", ErrCannotReload)
	}
	return s.gate.Reload(ctx, opts)
}

// ownRoutes answers webhooks to paths of the application; nil when there is none.
func (s *Server) ownRoutes() http.RoundTripper {
	if s.gate == nil || !s.cfg.HTTP.App.IsSet() || s.cfg.Mode == config.Worker {
		return nil
	}
	return s.gate
}

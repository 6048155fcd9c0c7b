package app

import (
	"context"

	"understudy/internal/app/graphs"
	"understudy/internal/components"
	"understudy/internal/config"
)

// addComponents makes what serves the components of graphs. One that develops may add the first ones later.
func (s *Server) addComponents() {
	if s.cfg.Mode == config.Worker || s.cfg.HTTP.Disable.UI || len(s.cfg.Components) == 0 && s.cfg.Mode != config.Dev {
		return
	}
	s.components = components.NewSet(graphs.ComponentProject(s.cfg), s.log)
}

// ReloadComponents bundles the components of newly read settings, and leaves the graphs alone. What fails is logged, and stays as it was.
func (s *Server) ReloadComponents(ctx context.Context, settings *config.Config) {
	if s.components != nil {
		s.components.Rebuild(ctx, graphs.ComponentProject(settings))
	}
}

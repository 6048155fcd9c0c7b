package graphs

import (
	"path/filepath"

	"understudy/internal/components"
	"understudy/internal/config"
)

// ComponentProject is what the components of a configuration are bundled from. In production they are minified.
func ComponentProject(cfg *config.Config) components.Project {
	p := components.Project{Dir: absolute(cfg.Dir), Shared: cfg.SharedPackages, Minify: cfg.Mode != config.Dev}
	for _, c := range cfg.Components {
		p.Sources = append(p.Sources, components.Source{Graph: c.Graph, File: absolute(c.File)})
	}
	return p
}

// absolute leaves a path as it is when the working directory is gone: the bundle will say so.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

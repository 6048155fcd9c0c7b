package graphs

import (
	"os"

	"understudy/gate"
	"understudy/internal/config"
)

// GateOptions says what the process of auth, routes and embeddings loads.
func GateOptions(cfg *config.Config) gate.Options {
	o := gate.Options{
		Python: cfg.Python, Dir: cfg.Dir, Paths: cfg.PythonPath, Env: environment(cfg),
		Auth: cfg.Auth.Python.Spec(), App: cfg.HTTP.App.Spec(), Prefix: cfg.HTTP.MountPrefix, GuardRoutes: cfg.HTTP.GuardRoutes,
		Studio: cfg.Mode == config.Dev && !cfg.Auth.DisableStudio, Timeout: cfg.GateTimeout,
	}
	if c := cfg.Auth.Cache; c != nil {
		o.Remember = gate.Remembering{Headers: c.Keys, TTL: c.TTL, Max: c.Size}
	}
	if cfg.IgnoreAuth {
		o.Auth = ""
	}
	if i := cfg.StoreIndex; i != nil && i.IsPython() {
		o.Embed = config.Object{Path: i.Path, Module: i.Module, Attr: i.Attr}.Spec()
	}
	return o
}

// environment is the complete environment of Python processes.
func environment(cfg *config.Config) []string {
	env := os.Environ()
	for k, v := range cfg.Env {
		env = append(env, k+"="+v)
	}
	return env
}

package graphs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"understudy/gate"
	"understudy/internal/config"
)

// GateOptions says what the process of auth, routes and embeddings loads.
func GateOptions(cfg *config.Config) gate.Options {
	o := gate.Options{
		Python: cfg.Workers.Python, Dir: cfg.Dir, Paths: cfg.Workers.PythonPath, Env: environment(cfg),
		Auth: cfg.Auth.Python.Spec(), App: cfg.HTTP.App.Spec(), Prefix: cfg.HTTP.MountPrefix, GuardRoutes: cfg.HTTP.GuardRoutes,
		Studio: cfg.Mode == config.Dev && !cfg.Auth.DisableStudio, Timeout: cfg.Workers.GateTimeout,
	}
	if c := cfg.Auth.Cache; c != nil {
		o.Remember = gate.Remembering{Headers: c.Keys, TTL: c.TTL, Max: c.Size}
	}
	if cfg.Server.IgnoreAuth {
		o.Auth = ""
	}
	if i := cfg.StoreIndex; i != nil && i.IsPython() {
		o.Embed = config.Object{Path: i.Path, Module: i.Module, Attr: i.Attr}.Spec()
	}
	return o
}

// StartEncryption starts the handlers of encryption.path; nil without them. The error is a *gate.StartError when they cannot be loaded. Call Close after use.
func StartEncryption(ctx context.Context, cfg *config.Config, log *slog.Logger) (*gate.Encryption, error) {
	if !cfg.Encrypts() {
		return nil, nil
	}
	o := EncryptionOptions(cfg)
	o.Logger = log
	return gate.StartEncryption(ctx, o)
}

// EncryptionOptions says what the process of encryption.path loads.
func EncryptionOptions(cfg *config.Config) gate.Options {
	return gate.Options{Python: cfg.Workers.Python, Dir: cfg.Dir, Paths: cfg.Workers.PythonPath, Env: environment(cfg), Encryption: cfg.Encryption.Spec(), Timeout: cfg.Workers.GateTimeout}
}

// environment is the complete environment of Python processes.
func environment(cfg *config.Config) []string {
	env := os.Environ()
	for k, v := range cfg.Env {
		env = append(env, k+"="+v)
	}
	return env
}

// ToolOptions says what the process of tools for agents in Go loads. dir is the folder of the config.yaml that names them; in DeerFlow's repository the environment is that of backend.
func ToolOptions(cfg *config.Config, dir string, tools []string) (gate.Options, error) {
	backend, at := filepath.Join(dir, "backend"), dir
	if _, err := os.Stat(filepath.Join(dir, ".venv")); err != nil {
		if _, err := os.Stat(filepath.Join(backend, ".venv")); err == nil {
			at = backend
		}
	}
	python, err := config.FindPython(cfg.Workers.Python, at, cfg.Lookup)
	if err != nil {
		return gate.Options{}, fmt.Errorf("find Python for tools: %w", err)
	}
	return gate.Options{Python: python, Dir: dir, Paths: append([]string{backend}, cfg.Workers.PythonPath...), Env: environment(cfg), Tools: tools}, nil
}

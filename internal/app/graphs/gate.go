package graphs

import (
	"context"
	"log/slog"
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
	return gate.Options{Python: cfg.Python, Dir: cfg.Dir, Paths: cfg.PythonPath, Env: environment(cfg), Encryption: cfg.Encryption.Spec(), Timeout: cfg.GateTimeout}
}

// environment is the complete environment of Python processes.
func environment(cfg *config.Config) []string {
	env := os.Environ()
	for k, v := range cfg.Env {
		env = append(env, k+"="+v)
	}
	return env
}

package moving

import (
	"context"
	"errors"
	"log/slog"

	"understudy/internal/app/advice"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/storage/postgres"
	"understudy/storage/sqlite"
)

// Encrypt encrypts the data folder or database of cfg by the handlers of encryption.path, or without them by the first of its keys, and returns the number of changed values. A folder must have no
// server; a database may.
func Encrypt(ctx context.Context, cfg *config.Config, log *slog.Logger) (changed int, err error) {
	var handlers encryption.Handlers // closed by the storage
	if cfg.Encrypts() {
		if handlers, err = graphs.StartEncryption(ctx, cfg, log); err != nil {
			return 0, err
		}
	} else if len(cfg.Storage.Keys) == 0 {
		return 0, errors.New("there is no key; set LANGGRAPH_AES_KEY, such as to the output of: openssl rand -hex 16")
	}
	if cfg.Storage.DatabaseURL != "" {
		changed, err = postgres.Encrypt(ctx, postgres.Options{URL: cfg.Storage.DatabaseURL, Connections: 2, Handlers: handlers, Keys: cfg.Storage.Keys, Unindexed: cfg.Storage.UnindexedKeys, Logger: log})
		return changed, unreachable(cfg.Where("database-url"), cfg.Storage.DatabaseURL, err)
	}
	changed, err = sqlite.Encrypt(ctx, sqlite.Options{Dir: cfg.Storage.Data, Handlers: handlers, Keys: cfg.Storage.Keys, Unindexed: cfg.Storage.UnindexedKeys, Logger: log})
	if advice.Full(err) && fault.Is(err, fault.Unavailable) { // it says itself what it needs
		return changed, err
	}
	return changed, unusable(cfg.Where("data"), cfg.Storage.Data, err)
}

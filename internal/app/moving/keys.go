package moving

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"understudy/access/audit"
	"understudy/auth"
	"understudy/internal/config"
	"understudy/storage/sqlite"
)

// Keys are the API keys of a server's data, and its audit log.
type Keys interface {
	auth.KeyStore
	audit.Store
	io.Closer
}

// OpenKeys opens the API keys of the data folder or database of cfg, also while a server works on it. Without create it is an error that there is none.
func OpenKeys(ctx context.Context, cfg *config.Config, create bool, log *slog.Logger) (Keys, error) {
	if !create {
		if err := IsThere(ctx, cfg); err != nil {
			return nil, err
		}
	}
	if cfg.Storage.DatabaseURL == "" {
		if cfg.Storage.Data == sqlite.InMemory {
			return nil, ErrNotFolder
		}
		keys, err := sqlite.OpenKeys(ctx, cfg.Storage.Data)
		if !errors.Is(err, sqlite.ErrNoFolder) && !errors.Is(err, sqlite.ErrOlder) {
			return keys, err
		}
	}
	return openData(ctx, cfg, log) // which makes the database, or brings it to the schema of this program
}

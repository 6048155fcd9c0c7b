package moving

import (
	"context"
	"errors"
	"log/slog"

	"understudy/eventstore/readmodel"
	"understudy/internal/config"
)

// Rebuild runs r on the data folder or database of cfg. A folder must have no server; a database may.
func Rebuild(ctx context.Context, cfg *config.Config, r *readmodel.Rebuilding, log *slog.Logger) (result *readmodel.Rebuilt, err error) {
	rows, err := openData(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	r.Store = rows
	return r.Run(ctx)
}

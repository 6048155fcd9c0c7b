package moving

import (
	"context"
	"errors"
	"log/slog"

	"understudy/eventstore/readmodel"
	"understudy/internal/config"
	"understudy/run/usage"
)

// Rebuild runs logs and used, if they are not nil, on the data folder or database of cfg. A folder must have no server; a database may.
func Rebuild(ctx context.Context, cfg *config.Config, logs *readmodel.Rebuilding, used *usage.Rebuilding, log *slog.Logger) (ofLogs *readmodel.Rebuilt, ofUsage *usage.Rebuilt, err error) {
	if err := IsThere(ctx, cfg); err != nil {
		return nil, nil, err
	}
	rows, err := openData(ctx, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = filled(cfg, errors.Join(err, rows.Close())) }()
	if logs != nil {
		logs.Store = rows
		if ofLogs, err = logs.Run(ctx); err != nil {
			return ofLogs, nil, err
		}
	}
	if used != nil {
		used.Store = rows
		ofUsage, err = used.Run(ctx)
	}
	return ofLogs, ofUsage, err
}

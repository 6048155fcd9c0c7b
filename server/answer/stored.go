package answer

import (
	"context"
	"errors"
	"io"

	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/thread"
)

// Threads has the histories of threads.
type Threads interface {
	ReadHistory(ctx context.Context, q thread.HistoryQuery) (thread.Entries, error)
}

// LastCheckpoint returns the last checkpoint of a run; "" when there is none, as the run has not saved one, or it was pruned.
func LastCheckpoint(ctx context.Context, threads Threads, t id.Thread, r id.Run) (id.Checkpoint, error) {
	of := &jsonobj.Object{}
	of.SetText("run_id", string(r))
	entries, err := threads.ReadHistory(ctx, thread.HistoryQuery{Thread: t, Metadata: of.JSON(), Limit: 1})
	if err != nil {
		return "", err
	}
	defer entries.Close()
	last, err := entries.Next(ctx)
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return last.ID, nil
}

package thread

import (
	"context"

	"understudy/id"
)

// Usage is the size of a thread's checkpoints in the database: the bytes of the stored values, without indexes and pages.
type Usage struct {
	Checkpoints Amount            // checkpoints with their metadata
	Channels    map[string]Amount // stored versions of each channel
	Writes      Amount            // writes of tasks on checkpoints
}

// Amount is a number of rows and their bytes.
type Amount struct {
	Rows  int
	Bytes int64
}

// Add adds another amount.
func (a *Amount) Add(b Amount) {
	a.Rows += b.Rows
	a.Bytes += b.Bytes
}

// Usage returns the size of a thread's checkpoints.
func (s *Service) Usage(ctx context.Context, t id.Thread) (Usage, error) {
	if _, err := s.row(ctx, t); err != nil {
		return Usage{}, err
	}
	return s.Store.Usage(ctx, t)
}

package thread

import (
	"context"

	"understudy/id"
)

// Step is a checkpoint of a thread without what it holds: one node of the tree that the checkpoints of a thread are.
type Step struct {
	ID     id.Checkpoint
	Parent id.Checkpoint // "" at a beginning, or when the parent was pruned
	Run    id.Run        // whose run saved it; "" when none did
	Source string        // input, loop, update or fork
	Number int           // step as the graph counts; -1 for the first input
}

// Tree returns the newest limit root checkpoints of a thread that are older than before ("": all), newest first. The error for an unknown thread is
// fault.NotFound.
func (s *Service) Tree(ctx context.Context, t id.Thread, before id.Checkpoint, limit int) ([]Step, error) {
	if _, err := s.row(ctx, t); err != nil {
		return nil, err
	}
	return s.Store.Tree(ctx, t, before, limit)
}

package relational

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/id"
	"understudy/thread"
)

var (
	NewestSteps = same("SELECT checkpoint_id, parent_checkpoint_id, metadata FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' " +
		"ORDER BY checkpoint_id DESC LIMIT $2")
	StepsBefore = same("SELECT checkpoint_id, parent_checkpoint_id, metadata FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' AND checkpoint_id < $3 " +
		"ORDER BY checkpoint_id DESC LIMIT $2")
)

// Tree implements thread.Store.
func (s threadStore) Tree(ctx context.Context, t id.Thread, before id.Checkpoint, limit int) ([]thread.Step, error) {
	steps, err := fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) ([]thread.Step, error) {
		if before == "" {
			return all(q, NewestSteps, scanStep, t, limit)
		}
		return all(q, StepsBefore, scanStep, t, limit, before)
	})
	if err != nil {
		return nil, fmt.Errorf("tree of thread %s: %w", t, err)
	}
	return steps, nil
}

func scanStep(r Row) thread.Step {
	metadata := gjson.GetManyBytes(r.Bytes(2), "run_id", "source", "step")
	return thread.Step{
		ID: id.Checkpoint(r.Text(0)), Parent: id.Checkpoint(r.Text(1)),
		Run: id.Run(metadata[0].String()), Source: metadata[1].String(), Number: int(metadata[2].Int()),
	}
}

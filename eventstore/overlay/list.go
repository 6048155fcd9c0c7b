package overlay

import (
	"context"

	"understudy/id"
)

// List returns the ids of the recorded messages of a root checkpoint: summaries are included, the messages they replaced are not. nil when
// nothing was recorded.
func (r *Reading) List(ctx context.Context, at id.Checkpoint) ([]string, error) {
	entries, err := r.list(ctx, at)
	if entries == nil || err != nil {
		return nil, err
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.id
	}
	return ids, nil
}

// list returns the messages that a root checkpoint holds.
func (r *Reading) list(ctx context.Context, at id.Checkpoint) ([]*entry, error) {
	tr, err := r.transcript(ctx, at)
	if err != nil || tr == nil {
		return nil, err
	}
	lists, err := r.contents.get(ctx, r.o.events, r.thread, tr.List)
	if err != nil {
		return nil, err
	}
	return lists[0], nil
}

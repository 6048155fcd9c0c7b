package thread

import (
	"context"
	"fmt"

	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/internal/jsonobj"
)

// overlaySnapshots puts transcripts into snapshots of a thread.
func (s *Service) overlaySnapshots(ctx context.Context, row *Thread, p overlay.Place, live bool, list ...*checkpointer.Snapshot) error {
	look := s.Overlay.Look(ctx, jsonobj.Of(row.Metadata).Text("graph_id"), p)
	if !look.On {
		return nil
	}
	r := s.Overlay.Read(row.ID, look)
	defer r.Done()
	for _, snap := range list {
		if err := r.Snapshot(ctx, snap, live); err != nil {
			return fmt.Errorf("checkpoint %s of thread %s: %w", snap.ID, row.ID, err)
		}
	}
	return nil
}

// overlayView puts the transcript of its head into the values of a thread.
func (s *Service) overlayView(ctx context.Context, v *View, p overlay.Place) error {
	if v.Values == nil {
		return nil
	}
	look := s.Overlay.Look(ctx, jsonobj.Of(v.Metadata).Text("graph_id"), p)
	if !look.On {
		return nil
	}
	r := s.Overlay.Read(v.ID, look)
	defer r.Done()
	values, err := r.Values(ctx, v.Head, v.Values, overlay.RecordView)
	if err != nil {
		return fmt.Errorf("values of thread %s: %w", v.ID, err)
	}
	v.Values = values
	return nil
}

// cleanUpdates removes from state updates messages that only the overlay has added, and returns which condensed messages they delete. The
// states of later steps do not exist yet; messages condensed before the first step are condensed for all. A head that it reads is noted in
// d.
func (s *Service) cleanUpdates(ctx context.Context, graphID string, at checkpointer.Key, steps [][]graph.StateUpdate, d *draft) (updates [][]graph.StateUpdate, deleted []string, err error) {
	updates = make([][]graph.StateUpdate, len(steps))
	base := at.ID
	for i, step := range steps {
		for _, u := range step {
			if s.Overlay != nil && at.NS == "" && (overlay.MayEcho(u.Values) || overlay.MayEcho(u.Command)) {
				if base == "" {
					head, err := s.Snapshots.Head(ctx, at.Thread)
					if err != nil {
						return nil, nil, fmt.Errorf("head of thread %s: %w", at.Thread, err)
					}
					base = head.ID
					d.note(checkpointer.Key{Thread: at.Thread}, base)
				}
				values, err := s.Overlay.Clean(ctx, graphID, at.Thread, base, u.Values)
				if err != nil {
					return nil, nil, err
				}
				command, err := s.Overlay.CleanCommand(ctx, graphID, at.Thread, base, u.Command)
				if err != nil {
					return nil, nil, err
				}
				u.Values, u.Command = values.JSON, command.JSON
				deleted = append(append(deleted, values.Deleted...), command.Deleted...)
			}
			updates[i] = append(updates[i], u)
		}
	}
	return updates, deleted, nil
}

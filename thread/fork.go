package thread

import (
	"context"
	"encoding/json"
	"slices"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
)

// Fork says where a fork leaves its source.
type Fork struct {
	// Seq is the last event that the fork has of its source.
	Seq eventstore.Seq
	// Without are channels whose values belong to the source alone: the fork begins without them.
	Without []string
}

// Mark is what ForkPoint needs of an event.
type Mark struct {
	Seq        eventstore.Seq
	Run        id.Run        // "" for events of no run
	Checkpoint id.Checkpoint // with which it was recorded; "" for events of no checkpoint
	Partial    bool          // an answer that was streamed and not saved
	Undone     bool          // its run was rolled back or deleted
}

// ForkPoint returns the root checkpoint from which a fork at an event continues: the newest of the step, or of the run, that the event belongs to and that
// adds nothing behind it. "": the conversation has not begun. marks are all events and steps all root checkpoints of the thread, both ascending.
func ForkPoint(at eventstore.Seq, marks []Mark, steps []Step) (id.Checkpoint, error) {
	n, found := slices.BinarySearchFunc(marks, at, func(m Mark, at eventstore.Seq) int { return int(m.Seq - at) })
	if !found {
		last := eventstore.Seq(0)
		if len(marks) > 0 {
			last = marks[len(marks)-1].Seq
		}
		return "", fault.Newf(fault.Unprocessable, "event_number %d is not in the thread; its events have the numbers 1 to %d", at, last)
	}
	if marks[n].Undone {
		return "", fault.Newf(fault.Conflict, "Event %d is of a run that was rolled back or deleted; fork at an earlier event", at)
	}
	begin, err := beginOf(marks, n, steps)
	if err != nil || begin < 0 {
		return "", err
	}
	later := map[id.Checkpoint]eventstore.Seq{} // the last event of a checkpoint that is behind the fork
	for _, m := range marks[n+1:] {
		if m.Checkpoint != "" && !m.Partial && !m.Undone {
			later[m.Checkpoint] = m.Seq
		}
	}
	end := steps[begin]
	if last := later[end.ID]; last != 0 {
		return "", fault.Newf(fault.Unprocessable, "Event %d is in the middle of a step of the graph; fork at event %d, which is the last of the step", at, last)
	}
	for _, s := range steps[begin+1:] {
		if s.Parent == end.ID && (s.Run == steps[begin].Run || s.Run == "") && later[s.ID] == 0 {
			end = s
		}
	}
	return end.ID, nil
}

// beginOf returns the step that the newest event up to n names: with its checkpoint, or as the last one of its run. -1: none does.
func beginOf(marks []Mark, n int, steps []Step) (int, error) {
	index, lastOf := make(map[id.Checkpoint]int, len(steps)), map[id.Run]int{}
	for i, s := range steps {
		index[s.ID] = i
		lastOf[s.Run] = i
	}
	continues := map[id.Run]bool{}
	for _, m := range marks[n+1:] {
		continues[m.Run] = true
	}
	for i := n; i >= 0; i-- {
		m := marks[i]
		if m.Undone {
			continue
		}
		if last, known := lastOf[m.Run]; known && m.Run != "" && !continues[m.Run] {
			return last, nil
		}
		continues[m.Run] = true
		if m.Checkpoint == "" {
			continue
		}
		begin, known := index[m.Checkpoint]
		if !known {
			return 0, fault.Newf(fault.Conflict, "The checkpoint of event %d was deleted; fork at a later event", m.Seq)
		}
		return begin, nil
	}
	return -1, nil
}

// ForkAt makes a thread that begins with the conversation of another one up to an event, and continues from the checkpoint of that time. Errors:
// fault.NotFound for an unknown source; fault.Unprocessable and fault.Conflict for an event at which it cannot be forked.
func (s *Service) ForkAt(ctx context.Context, from id.Thread, at Fork) (*View, error) {
	return s.fork(ctx, from, &at)
}

// Copy makes a new thread with the same checkpoints.
func (s *Service) Copy(ctx context.Context, from id.Thread) (*View, error) {
	return s.fork(ctx, from, nil)
}

// fork copies a thread up to an event; nil: all of it.
func (s *Service) fork(ctx context.Context, from id.Thread, at *Fork) (*View, error) {
	if err := s.backfill(ctx, from); err != nil {
		return nil, err
	}
	to := id.NewThread()
	err := s.Store.CopyThread(ctx, from, to, at, func(tx Tx, row *Thread) error {
		now := s.Now()
		// Its runs stay with the original, and so do their results on the row: the copy's own runs and updates set these again.
		row.ID, row.CreatedAt, row.UpdatedAt, row.StateUpdatedAt = to, now, now, now
		row.Status, row.Touched, row.Config, row.Error, row.Interrupts = Idle, false, empty, nil, nil
		// During a run the row of the original does not name the run's checkpoints, which are copied too.
		head, err := tx.Head(to)
		if err != nil {
			return err
		}
		row.Head = idOf(head)
		if err := tx.InsertThread(row); err != nil {
			return err
		}
		return recordFork(tx, row, from, at)
	})
	if fault.Is(err, fault.NotFound) {
		return nil, notFound(from)
	}
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, to)
}

// recordFork appends the lineage of a fork to its log, behind the events of its source, and ends its transcript with them.
func recordFork(tx Tx, row *Thread, from id.Thread, at *Fork) (err error) {
	lineage := eventstore.Lineage{Source: from, Checkpoint: row.Head}
	if at == nil {
		if lineage.Seq, err = tx.LastSeq(row.ID); err != nil {
			return err
		}
	} else {
		lineage.Seq = at.Seq
		if err := eventstore.Trim(tx, row.ID, row.Head, at.Seq); err != nil {
			return err
		}
	}
	content, err := json.Marshal(lineage)
	if err != nil {
		return err
	}
	return tx.AppendEvents(row.ID, []*eventstore.Event{{
		Type: eventstore.TypeFork, Category: eventstore.CategoryTrace, Content: content, Metadata: empty, CreatedAt: row.CreatedAt,
	}})
}

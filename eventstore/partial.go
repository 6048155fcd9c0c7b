package eventstore

import (
	"encoding/json"
	"fmt"
	"time"

	"understudy/id"
)

// Partial is an answer that a run streamed but did not save.
type Partial struct {
	ID        string
	Message   []byte // JSON
	Step      int    // of its task; negative when it is not known
	Truncated bool   // the stream had more than is kept
}

// RecordPartial appends answers that a run streamed but did not save to the log, and adds them to the end of the transcript of the last
// checkpoint that the run saved. The checkpoint's list does not change, so the model does not see them. A message with the same id in a
// later checkpoint replaces the answer in place. RecordPartial reports whether any were recorded: ids in the transcript are left out, and
// for a checkpoint without a transcript nothing is recorded.
func RecordPartial(tx Tx, t id.Thread, c id.Checkpoint, r id.Run, at time.Time, answers []Partial) (recorded bool, err error) {
	if len(answers) == 0 {
		return false, nil
	}
	row, old, err := stateAt(tx, t, c)
	if old == nil || err != nil {
		return false, err
	}
	if old.index == nil {
		old.buildIndex()
	}
	next := &state{list: old.list, anonymous: old.anonymous, ids: old.ids, index: old.index}
	next.shown = append(make([]*item, 0, len(old.shown)+len(answers)), old.shown...)
	old.index, old.ids = nil, nil
	var events []*Event
	var items []*item
	for _, p := range answers {
		if p.ID == "" || next.index[p.ID] != nil {
			continue
		}
		metadata := fmt.Appendf(nil, `{"checkpoint_id":%q,"step":%d,"partial":true}`, string(c), p.Step)
		if p.Truncated {
			metadata = append(metadata[:len(metadata)-1], `,"truncated":true}`...)
		}
		events = append(events, &Event{
			Run: r, Type: TypeAI, Category: CategoryMessage, MessageID: p.ID, Content: p.Message, Metadata: json.RawMessage(metadata), CreatedAt: at,
		})
		it := &item{id: p.ID}
		items = append(items, it)
		next.index[p.ID] = it
		next.shown = append(next.shown, it)
	}
	if len(events) == 0 {
		old.index, old.ids = next.index, next.ids
		giveBack(tx, t, old)
		return false, nil
	}
	if err := tx.AppendEvents(t, events); err != nil {
		return false, fmt.Errorf("record partial answers: %w", err)
	}
	for i, it := range items {
		it.Seq = events[i].Seq
	}
	return true, replaceState(tx, row, old, next)
}

// DropPartial removes partial answers from the transcript of a checkpoint, if they are in it. Their events stay in the log.
func DropPartial(tx Tx, t id.Thread, c id.Checkpoint, answers map[Seq]bool) error {
	row, old, err := stateAt(tx, t, c)
	if old == nil || err != nil {
		return err
	}
	next := &state{list: old.list, anonymous: old.anonymous}
	for _, it := range old.shown {
		if !answers[it.Seq] {
			next.shown = append(next.shown, it)
		}
	}
	if len(next.shown) == len(old.shown) {
		giveBack(tx, t, old)
		return nil
	}
	return replaceState(tx, row, old, next)
}

// stateAt returns what was recorded for a checkpoint. The state is nil when nothing was, or when its channel does not hold
// messages.
func stateAt(tx Tx, t id.Thread, c id.Checkpoint) (*Row, *state, error) {
	row, err := tx.TranscriptRow(t, c)
	if err != nil || row == nil || row.Opaque {
		return nil, nil, err
	}
	if row.Node == 0 {
		return row, &state{}, nil
	}
	s := tx.Cache().take(t, row)
	if s == nil {
		if s, err = loadState(tx, t, row); err != nil {
			return nil, nil, fmt.Errorf("transcript of checkpoint %s: %w", c, err)
		}
	}
	return row, s, nil
}

// giveBack returns an unchanged state to the cache.
func giveBack(tx Tx, t id.Thread, s *state) {
	if s.node.ID != 0 {
		tx.Cache().put(t, s)
	}
}

// replaceState replaces the recorded state of a checkpoint by next.
func replaceState(tx Tx, row *Row, old, next *state) error {
	if err := putNode(tx, row.Thread, old, next); err != nil {
		return err
	}
	row.Node, row.Stamp = next.node.ID, next.node.Stamp
	tx.Cache().put(row.Thread, next)
	return tx.PutTranscriptRow(row)
}

// unsaved reports whether the item is a partial answer. It has no digest, because no graph has stored it.
func (it *item) unsaved() bool { return !it.Summary && it.digest == [16]byte{} }

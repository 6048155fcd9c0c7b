package run

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/eventstore"
	"understudy/id"
	"understudy/thread/partial"
)

// tokens returns what collects the answers that an execution of a run streams; nil when they are not kept.
func (s *Service) tokens(r *Run) *partial.Tokens {
	if r.Kwargs.Temporary || !s.Overlay.KeepsPartial(r.Graph) {
		return nil
	}
	return partial.NewTokens()
}

// keepPartial records the answers that a run streamed and did not save, in the transaction that ends it, and reports whether there were any.
// said is what its last attempt streamed in this process; when that is nothing, they are read from the records of a resumable run. They are
// shown with the last checkpoint that the run saved. A run that saved none shows them where it began. An answer whose question was not saved
// is not kept.
func (s *Service) keepPartial(tx Tx, r *Run, said *partial.Tokens, now time.Time) (kept bool, err error) {
	if r.Kwargs.Temporary || r.Status == Success || r.StartedAt.IsZero() || !s.Overlay.KeepsPartial(r.Graph) {
		return false, nil
	}
	if said.Empty() {
		if !r.Kwargs.Resumable {
			return false, nil
		}
		if said, err = streamed(tx, r); err != nil || said.Empty() {
			return false, err
		}
	}
	head, err := tx.Head(r.Thread)
	if err != nil || head == nil {
		return false, err
	}
	began := r.Kwargs.CheckpointID == "" || r.Kwargs.CheckpointNS != "" || r.Kwargs.CheckpointID == head.ID
	if head.Run != r.ID && (hasInput(r) || !began) {
		return false, nil
	}
	step := int(gjson.GetBytes(head.Metadata, "step").Int())
	// The input is in the list of messages one step after the checkpoint that holds it. That step may not be saved when later ones stream.
	questioned := head.Run != r.ID || gjson.GetBytes(head.Metadata, "source").Str != "input"
	var answers []eventstore.Partial
	for _, m := range said.Unsaved(step, questioned) {
		answers = append(answers, eventstore.Partial{ID: m.ID, Message: m.JSON, Step: m.Step, Truncated: m.Truncated})
	}
	if kept, err = eventstore.RecordPartial(tx, r.Thread, head.ID, r.ID, now, answers); err != nil {
		return false, fmt.Errorf("keep what run %s streamed: %w", r.ID, err)
	}
	return kept, nil
}

func hasInput(r *Run) bool { return len(r.Kwargs.Input) > 0 && string(r.Kwargs.Input) != "null" }

// streamed reads what the last attempt that streamed something of a resumable run said from its records.
func streamed(tx Tx, r *Run) (*partial.Tokens, error) {
	said, began := partial.NewTokens(), false
	err := tx.RunRecords(r.Thread, r.ID, func(rec *bridge.Record) error {
		switch {
		case rec.Event == "metadata":
			began = true // of another attempt
		case partial.Wants(rec.Event) && !rec.Summarizer:
			if began {
				said.Reset()
				began = false
			}
			said.Add(rec.Event, rec.Data)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("what run %s streamed: %w", r.ID, err)
	}
	return said, nil
}

// dropPartial takes the partial answers of a run that is rolled back out of transcripts of checkpoints that stay: the one it began at, and
// the head.
func dropPartial(tx Tx, r *Run) error {
	answers := map[eventstore.Seq]bool{}
	at := map[id.Checkpoint]bool{}
	err := tx.RunMessages(r.Thread, r.ID, func(e *eventstore.Event) error {
		if metadata := gjson.ParseBytes(e.Metadata); metadata.Get("partial").Bool() {
			answers[e.Seq] = true
			at[id.Checkpoint(strings.Clone(metadata.Get("checkpoint_id").String()))] = true
		}
		return nil
	})
	if err != nil || len(answers) == 0 {
		return err
	}
	head, err := tx.Head(r.Thread)
	if err != nil {
		return err
	}
	if head != nil {
		at[head.ID] = true
	}
	for c := range at {
		if err := eventstore.DropPartial(tx, r.Thread, c, answers); err != nil {
			return fmt.Errorf("drop what run %s streamed: %w", r.ID, err)
		}
	}
	return nil
}

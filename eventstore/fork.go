package eventstore

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"understudy/id"
)

// Lineage is where a thread comes from, the content of TypeFork.
type Lineage struct {
	Source     id.Thread     `json:"source_thread_id"`
	Seq        Seq           `json:"event_number"` // the last event that it has of the source; 0: the source had none
	Checkpoint id.Checkpoint `json:"checkpoint_id,omitempty"`
}

// Trim ends the transcript of a checkpoint with an event; later ones need not exist. It leaves out answers that were streamed behind it and not saved. Other
// entries must not follow it.
func Trim(tx Tx, t id.Thread, c id.Checkpoint, last Seq) error {
	if c == "" {
		return nil
	}
	row, err := tx.TranscriptRow(t, c)
	if err != nil || row == nil || row.Node == 0 {
		return err
	}
	nodes, err := tx.Nodes(t, row.Node)
	if err != nil {
		return err
	}
	// Not as a state: that needs the events.
	l, err := decodeNodes(nodes)
	if err != nil {
		return fmt.Errorf("transcript of checkpoint %s: %w", c, err)
	}
	behind := func(e Entry) bool { return e.Seq > last }
	if slices.ContainsFunc(l.list, behind) {
		return fmt.Errorf("transcript of checkpoint %s: its messages continue behind event %d", c, last)
	}
	n := len(l.transcript)
	if l.transcript = slices.DeleteFunc(l.transcript, behind); len(l.transcript) == n {
		return nil
	}
	whole := Node{Stamp: rand.Int64(), Data: encodeNode(lists{}, l)}
	whole.Whole = len(whole.Data)
	if err := tx.PutNode(t, &whole); err != nil {
		return err
	}
	row.Node, row.Stamp = whole.ID, whole.Stamp
	return tx.PutTranscriptRow(row)
}

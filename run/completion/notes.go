package completion

import (
	"fmt"
	"log/slog"
	"sync"

	"understudy/eventstore"
	"understudy/graph"
	"understudy/run"
)

// Bounds of the rows that the graph of an attempt adds to the log.
const (
	maxNotes     = 20_000
	maxNoteBytes = 16 << 20
)

// Notes holds the rows that the graph of an attempt adds to the log until the transaction that ends the attempt: what is written earlier could be written
// twice, for a commit whose connection died may have happened. It is safe for concurrent use.
type Notes struct {
	log *slog.Logger

	mu    sync.Mutex
	list  []graph.Note
	bytes int
	full  bool
}

// NewNotes holds none yet. It warns in log.
func NewNotes(log *slog.Logger) *Notes { return &Notes{log: log} }

// Add holds a row. It does not block.
func (n *Notes) Add(one graph.Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	size := len(one.Content) + len(one.Metadata)
	if len(n.list) >= maxNotes || n.bytes+size > maxNoteBytes {
		if !n.full {
			n.full = true
			n.log.Warn("events of a run are not recorded: there are too many", "type", one.Type, "limit", maxNotes, "limit_bytes", maxNoteBytes)
		}
		return
	}
	n.list, n.bytes = append(n.list, one), n.bytes+size
}

// Record writes the rows to the log.
func (n *Notes) Record(tx Tx, r *run.Run) error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	list := n.list[:len(n.list):len(n.list)]
	n.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	events := make([]*eventstore.Event, len(list))
	for i, one := range list {
		events[i] = &eventstore.Event{Run: r.ID, Type: one.Type, Category: one.Category, Content: one.Content, Metadata: one.Metadata, CreatedAt: one.At}
	}
	if err := tx.AppendEvents(r.Thread, events); err != nil {
		return fmt.Errorf("record events of run %s: %w", r.ID, err)
	}
	return nil
}

package relational

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
)

// hasTranscript is a condition on a checkpoint. LangGraph's tables have the collation of the
// database and ours have "C"; Postgres needs the collation named where both are compared.
func hasTranscript(collation string) string {
	return "EXISTS (SELECT 1 FROM transcripts r WHERE r.thread_id = c.thread_id" + collation + " AND r.checkpoint_id = c.checkpoint_id" + collation + ")"
}

// ofRoots fills the condition into a statement, for each database.
func ofRoots(format string) Statement {
	return differing(fmt.Sprintf(format, hasTranscript(` COLLATE "C"`)), fmt.Sprintf(format, hasTranscript("")))
}

var (
	// Unrecorded reads two indexes in parallel, up to the first checkpoint without a row.
	Unrecorded = ofRoots("SELECT 1 FROM checkpoints c WHERE c.thread_id = $1 AND c.checkpoint_ns = '' AND NOT %s LIMIT 1")
	Lineage    = ofRoots("SELECT c.checkpoint_id, c.parent_checkpoint_id, %s FROM checkpoints c WHERE c.thread_id = $1 AND c.checkpoint_ns = '' ORDER BY c.checkpoint_id")

	dropTranscripts = differing("DELETE FROM transcripts WHERE thread_id = $1 AND checkpoint_id = ANY($2)",
		"DELETE FROM transcripts WHERE thread_id = $1 AND checkpoint_id IN (SELECT value FROM json_each($2))")
)

// Unrecorded implements eventstore.Archive.
func (s eventStore) Unrecorded(ctx context.Context, t id.Thread) (bool, error) {
	found, err := from(ctx, s.db.Read, func(q Querier) (bool, error) { return has(q, Unrecorded, t) })
	if err != nil {
		return false, fmt.Errorf("unrecorded checkpoints of thread %s: %w", t, err)
	}
	return found, nil
}

// Lineage implements eventstore.Archive.
func (s eventStore) Lineage(ctx context.Context, t id.Thread) ([]eventstore.Link, error) {
	links, err := from(ctx, s.db.Read, func(q Querier) ([]eventstore.Link, error) {
		return all(q, Lineage, func(r Row) eventstore.Link {
			return eventstore.Link{ID: id.Checkpoint(r.Text(0)), Parent: id.Checkpoint(r.Text(1)), Recorded: r.Bool(2)}
		}, t)
	})
	if err != nil {
		return nil, fmt.Errorf("lineage of thread %s: %w", t, err)
	}
	return links, nil
}

// DropTranscripts implements eventstore.BackfillTx.
func (tx *Tx) DropTranscripts(t id.Thread, checkpoints []id.Checkpoint) error {
	tx.Lock(t)
	err := tx.Exec(dropTranscripts, t, checkpoints)
	if err == nil {
		gone := make(map[string]bool, len(checkpoints))
		for _, c := range checkpoints {
			gone[string(c)] = true
		}
		err = tx.markEvents(allMetadata, func(metadata []byte) bool { return gone[gjson.GetBytes(metadata, "checkpoint_id").String()] }, t)
	}
	if err != nil {
		return fmt.Errorf("drop transcripts of thread %s: %w", t, err)
	}
	return nil
}

package sqlite

import (
	"bytes"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/contain"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// updateThread takes the parameters of relational.ThreadColumns, and ?14 for expires_at.
var updateThread = "UPDATE threads SET " + setters(relational.ThreadColumns, "thread_id", "status", "created_at", "updated_at", "state_updated_at")

// UpdateThread implements thread.Tx and run.Tx. It keeps the index of metadata in step, and names
// only indexed columns that changed (see setters).
func (tx *Tx) UpdateThread(t *thread.Thread) error {
	was, err := tx.Thread(t.ID)
	if err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	text, args := updateThread, relational.ThreadArgs(t)
	if rows.Rearms(was, t) {
		text, args = text+", expires_at = ?14", append(args, rows.Expiry(t))
	}
	if t.Status != was.Status {
		text += ", status = ?7"
	}
	for _, c := range []struct {
		set     string
		was, is time.Time
	}{
		{", created_at = ?2", was.CreatedAt, t.CreatedAt},
		{", updated_at = ?3", was.UpdatedAt, t.UpdatedAt},
		{", state_updated_at = ?4", was.StateUpdatedAt, t.StateUpdatedAt},
	} {
		if c.was.UnixMicro() != c.is.UnixMicro() {
			text += c.set
		}
	}
	updated := was.UpdatedAt.UnixMicro()
	reindex := updated != t.UpdatedAt.UnixMicro() || !bytes.Equal(was.Metadata, t.Metadata)
	if reindex {
		text += ", listed = ?3"
	}
	if err := tx.exec(text+" WHERE thread_id = ?1", args...); err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	tx.Touch(t.ID, "")
	if !reindex {
		return nil
	}
	if err := tx.unindex(t.ID, contain.Terms(was.Metadata), updated); err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	return tx.IndexThread(t.ID, contain.Terms(t.Metadata), t.UpdatedAt.UnixMicro())
}

// IndexThread implements relational.Writer.
func (tx *Tx) IndexThread(t id.Thread, terms []contain.Term, updated int64) error {
	terms, err := tx.keys.Index(terms)
	if err != nil {
		tx.undecided = err
		return err
	}
	for _, term := range terms {
		if err := tx.exec("INSERT OR IGNORE INTO thread_metadata (key, value, updated_at, thread_id) VALUES (?, ?, ?, ?)",
			term.Key, term.Value, updated, t); err != nil {
			return fmt.Errorf("index metadata of thread %s: %w", t, err)
		}
	}
	return nil
}

// unindex deletes index rows by their full key. The old metadata has to be known, because no index
// leads from a thread to its terms.
func (tx *Tx) unindex(t id.Thread, terms []contain.Term, updated int64) error {
	for _, term := range terms {
		if err := tx.exec("DELETE FROM thread_metadata WHERE key = ? AND value = ? AND updated_at = ? AND thread_id = ?",
			term.Key, term.Value, updated, t); err != nil {
			return err
		}
	}
	return nil
}

// DeleteThread implements thread.Tx, run.Tx and assistant.Tx. A thread with many rows is only
// removed (RemoveThread); sweeps delete the rest.
func (tx *Tx) DeleteThread(t id.Thread) error {
	if many, err := tx.one(relational.HasMany.SQLite, nil, t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	} else if many {
		return tx.RemoveThread(t)
	}
	if err := tx.deleteRow(t); err != nil {
		return err
	}
	// Runs are deleted one by one: for several at once SQLite would first build a temporary table,
	// and most deleted threads have one run.
	var runs []string
	if err := tx.query("SELECT run_id FROM runs WHERE thread_id = ?", func(s *sqlite.Stmt) error {
		runs = append(runs, s.ColumnText(0))
		return nil
	}, t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	for _, r := range runs {
		for _, text := range []string{"DELETE FROM run_kwargs WHERE run_id = ?", "DELETE FROM runs WHERE run_id = ?"} {
			if err := tx.exec(text, r); err != nil {
				return fmt.Errorf("delete run %s of thread %s: %w", r, t, err)
			}
		}
	}
	// Threads of stateless runs have none of these, and one query is cheaper than a dozen deletes
	// of nothing.
	var checkpoints, events, rest bool
	if _, err := tx.one(whatThreadHas, func(s *sqlite.Stmt) error {
		checkpoints, events, rest = s.ColumnBool(0), s.ColumnBool(1), s.ColumnBool(2)
		return nil
	}, t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	if rest {
		for _, text := range append([]string{"DELETE FROM stream_records WHERE thread_id = ?", "DELETE FROM stream_runs WHERE thread_id = ?"}, deletesOfRare...) {
			if err := tx.exec(text, t); err != nil {
				return fmt.Errorf("delete thread %s: %w", t, err)
			}
		}
	}
	if checkpoints {
		if err := tx.deleteCheckpoints(t); err != nil {
			return fmt.Errorf("delete checkpoints of thread %s: %w", t, err)
		}
	}
	if events {
		if err := tx.DeleteEvents(t); err != nil {
			return fmt.Errorf("delete events of thread %s: %w", t, err)
		}
	}
	return nil
}

// deleteRow deletes the row of a thread and its index of metadata.
func (tx *Tx) deleteRow(t id.Thread) error {
	was, err := tx.Thread(t)
	if err != nil {
		return err
	}
	if err := tx.ListEnds(t, ""); err != nil {
		return err
	}
	if err := tx.unindex(t, contain.Terms(was.Metadata), was.UpdatedAt.UnixMicro()); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	if err := tx.exec("DELETE FROM threads WHERE thread_id = ?", t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	tx.Touch(t, "")
	return nil
}

// whatThreadHas returns whether a thread has rows of checkpoints, of the log, and of the rare
// tables.
const whatThreadHas = "SELECT EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM checkpoint_writes WHERE thread_id = ?1) " +
	"OR EXISTS (SELECT 1 FROM checkpoint_blobs WHERE thread_id = ?1), " +
	"EXISTS (SELECT 1 FROM events WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM transcripts WHERE thread_id = ?1) " +
	"OR EXISTS (SELECT 1 FROM event_lineage WHERE thread_id = ?1), " +
	"EXISTS (SELECT 1 FROM run_heads WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM crons WHERE thread_id = ?1) " +
	"OR EXISTS (SELECT 1 FROM cron_occurrences WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM feedback WHERE thread_id = ?1) " +
	"OR EXISTS (SELECT 1 FROM stream_records WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM stream_runs WHERE thread_id = ?1)"

// deletesOfRare delete what is kept of few threads, at once with the row of a thread.
var deletesOfRare = []string{
	"DELETE FROM run_heads WHERE thread_id = ?",
	"DELETE FROM cron_occurrences WHERE thread_id = ?",
	"DELETE FROM cron_occurrences WHERE cron_id IN (SELECT cron_id FROM crons WHERE thread_id = ?)",
	"DELETE FROM crons WHERE thread_id = ?",
	"DELETE FROM feedback WHERE thread_id = ?",
}

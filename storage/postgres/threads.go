package postgres

import (
	"bytes"
	"fmt"
	"slices"

	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// Thread implements thread.Tx and run.Tx. It locks the thread and returns a copy of the cached
// row.
func (tx *Tx) Thread(t id.Thread) (*thread.Thread, error) {
	known, seen := tx.threads[t]
	if !seen {
		tx.lock(t)
		found, asked, err := take(tx, tx.ahead.threads, t)
		if !asked {
			found, err = relational.LoadThread(tx, t)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		known = found
		tx.threads[t] = known
	}
	if known == nil || !tx.InReach(known) {
		return nil, relational.ErrNoThread
	}
	out := *known
	return &out, nil
}

// know caches the current row of a locked thread.
func (tx *Tx) know(t *thread.Thread) {
	own := *t
	tx.threads[t.ID] = &own
}

// InsertThread implements thread.Tx and run.Tx.
func (tx *Tx) InsertThread(t *thread.Thread) error {
	if err := tx.Tx.InsertThread(t); err != nil {
		return err
	}
	tx.know(t)
	return nil
}

// UpdateThread implements thread.Tx and run.Tx. It keeps the index of metadata in step.
func (tx *Tx) UpdateThread(t *thread.Thread) error {
	was, err := tx.Thread(t.ID)
	if err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	updated, same := was.UpdatedAt.UnixMicro(), bytes.Equal(was.Metadata, t.Metadata)
	text, reindex := relational.UpdateThread, updated != t.UpdatedAt.UnixMicro() || !same
	if reindex {
		text = relational.ReindexThread
	}
	if err := tx.Exec(text, relational.ThreadArgs(t)...); err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	if rows.Rearms(was, t) {
		if err := tx.Exec(relational.SetExpiry, rows.Expiry(t), t.ID); err != nil {
			return fmt.Errorf("update thread %s: %w", t.ID, err)
		}
	}
	tx.know(t)
	tx.Touch(t.ID, "")
	if !reindex {
		return nil
	}
	terms := contain.Terms(t.Metadata)
	if same && !slices.ContainsFunc(terms, contain.Term.OfList) { // the thread may not be listed, and then there is nothing to move
		return tx.terms(moveThread, t.ID, terms, updated, t.UpdatedAt.UnixMicro())
	}
	if err := tx.unindex(t.ID, contain.Terms(was.Metadata), updated); err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	return tx.IndexThread(t.ID, terms, t.UpdatedAt.UnixMicro())
}

const (
	indexThread = "INSERT INTO thread_metadata (key, value, updated_at, thread_id) SELECT key, value, $3, $4 FROM unnest($1::text[], $2::text[]) AS term (key, value) " +
		"ON CONFLICT DO NOTHING"
	unindexThread = "DELETE FROM thread_metadata m USING unnest($1::text[], $2::text[]) AS term (key, value) " +
		`WHERE m.key = term.key COLLATE "C" AND m.value = term.value COLLATE "C" AND m.updated_at = $3 AND m.thread_id = $4`
	moveThread = "UPDATE thread_metadata m SET updated_at = $5 FROM unnest($1::text[], $2::text[]) AS term (key, value) " +
		`WHERE m.key = term.key COLLATE "C" AND m.value = term.value COLLATE "C" AND m.updated_at = $3 AND m.thread_id = $4`
)

// IndexThread implements relational.Writer.
func (tx *Tx) IndexThread(t id.Thread, terms []contain.Term, updated int64) error {
	terms, err := tx.store.keys.Index(terms)
	if err != nil {
		tx.undecided = err
		return err
	}
	return tx.terms(indexThread, t, terms, updated)
}

// unindex deletes index rows by their full key.
func (tx *Tx) unindex(t id.Thread, terms []contain.Term, updated int64) error {
	return tx.terms(unindexThread, t, terms, updated)
}

// terms runs a statement for all terms at once.
func (tx *Tx) terms(text string, t id.Thread, terms []contain.Term, updated ...any) error {
	if len(terms) == 0 {
		return nil
	}
	keys, values := make([]string, len(terms)), make([]string, len(terms))
	for i, term := range terms {
		keys[i], values[i] = term.Key, term.Value
	}
	args := append([]any{keys, values, updated[0], t}, updated[1:]...)
	if err := tx.exec(text, args...); err != nil {
		return fmt.Errorf("index metadata of thread %s: %w", t, err)
	}
	return nil
}

// deletesOfRow delete the row of a thread and its place in the queue, deletesOfThread what else is
// kept of it next to its checkpoints and events. Its id is their only argument.
var (
	deletesOfRow = []string{
		"DELETE FROM threads WHERE thread_id = $1",
		"DELETE FROM run_heads WHERE thread_id = $1",
		"DELETE FROM cron_occurrences WHERE thread_id = $1",
		"DELETE FROM cron_occurrences WHERE cron_id IN (SELECT cron_id FROM crons WHERE thread_id = $1)",
		"DELETE FROM crons WHERE thread_id = $1",
		"DELETE FROM feedback WHERE thread_id = $1",
	}
	deletesOfThread = append([]string{
		"DELETE FROM run_completions WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = $1)",
		"DELETE FROM model_calls WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = $1)",
		"DELETE FROM run_kwargs WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = $1)",
		"DELETE FROM runs WHERE thread_id = $1",
		"DELETE FROM stream_runs WHERE thread_id = $1",
		"DELETE FROM stream_records WHERE thread_id = $1",
	}, deletesOfRow...)
)

// DeleteThread implements thread.Tx, run.Tx and assistant.Tx. All deletes are one batch. A thread
// with many rows is only removed (RemoveThread).
func (tx *Tx) DeleteThread(t id.Thread) error {
	if _, err := tx.Thread(t); err != nil {
		return err
	}
	if many, err := one(tx, relational.HasMany.Postgres, nil, t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	} else if many {
		return tx.RemoveThread(t)
	}
	if err := tx.deleteRows(t, deletesOfThread); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	if err := tx.deleteCheckpoints(t); err != nil {
		return fmt.Errorf("delete checkpoints of thread %s: %w", t, err)
	}
	if err := tx.DeleteEvents(t); err != nil {
		return fmt.Errorf("delete events of thread %s: %w", t, err)
	}
	tx.forget(t)
	tx.threads[t] = nil
	return nil
}

// deleteRows runs statements for the thread and deletes its index of metadata.
func (tx *Tx) deleteRows(t id.Thread, texts []string) error {
	was, err := tx.Thread(t)
	if err != nil {
		return err
	}
	if err := tx.ListEnds(t, ""); err != nil {
		return err
	}
	if err := tx.unindex(t, contain.Terms(was.Metadata), was.UpdatedAt.UnixMicro()); err != nil {
		return err
	}
	for _, text := range texts {
		if err := tx.exec(text, t); err != nil {
			return err
		}
	}
	tx.Touch(t, "")
	return nil
}

// hasOthers is relational.HasActive without one run.
const hasOthers = "SELECT 1 FROM (SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'running' AND run_id <> $2 " +
	"UNION ALL SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'pending' AND run_id <> $2) AS active LIMIT 1"

// HasActiveRuns implements thread.Tx.
func (tx *Tx) HasActiveRuns(t id.Thread) (bool, error) {
	tx.lock(t)
	// Ending a run has asked whether there are others.
	if known := tx.runs[tx.ending]; known != nil && known.run.Thread == t && known.run.Status.Over() {
		found, asked, err := take(tx, tx.ahead.others, tx.ending)
		if !asked {
			found, err = one(tx, hasOthers, nil, t, tx.ending)
		}
		if err == nil && !found {
			delete(tx.heads, t) // a thread with an active run had no head, and gets none now
		}
		return found, err
	}
	found, asked, err := take(tx, tx.ahead.active, t)
	if !asked {
		found, err = tx.Tx.HasActiveRuns(t)
	}
	if err == nil {
		tx.idle[t] = !found
	}
	return found, err
}

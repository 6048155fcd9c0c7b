package postgres

import (
	"bytes"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/run"
	"understudy/storage/internal/relational"
	"understudy/thread"
)

// Each query of a transaction is a round trip during which other writers wait for the thread's
// lock. What a step of a run will read is known when it begins, so it is read in one batch and
// kept until the step queries it.

// answer holds the rows that were read ahead by one statement.
type answer struct {
	text string
	args []any // as bound, for comparison with the query's
	here bool  // it was sent, and rows has the result
	rows []row
}

// ahead sends a query together with the next statement. The next equal query gets its rows. In
// between the transaction must not write what the query reads, or must call forgo.
func (tx *Tx) ahead(text string, args ...any) {
	a := &answer{text: text, args: bind(args)}
	tx.answers = append(tx.answers, a)
	tx.batch.Queue(text, a.args...).Query(func(rows pgx.Rows) error {
		a.here = true
		return each(rows, func(r *row) error {
			own := row{fields: slices.Clone(r.fields), values: make([][]byte, len(r.values))}
			for i, v := range r.values {
				own.values[i] = bytes.Clone(v)
			}
			a.rows = append(a.rows, own)
			return nil
		})
	})
}

// taken returns the rows read ahead for a query, once; nil if there are none.
func (tx *Tx) taken(text string, bound []any) *answer {
	for i, a := range tx.answers {
		if a.text == text && reflect.DeepEqual(a.args, bound) {
			tx.answers = slices.Delete(tx.answers, i, i+1)
			return a
		}
	}
	return nil
}

// forgo drops what some statements read ahead, because the transaction has changed it.
func (tx *Tx) forgo(texts ...string) {
	tx.answers = slices.DeleteFunc(tx.answers, func(a *answer) bool { return slices.Contains(texts, a.text) })
}

// expects reports whether a query was read ahead.
func (tx *Tx) expects(text string, args ...any) bool {
	bound := bind(args)
	return slices.ContainsFunc(tx.answers, func(a *answer) bool { return a.text == text && reflect.DeepEqual(a.args, bound) })
}

var _ run.Expecting = (*Tx)(nil)

// ExpectNew implements run.Expecting. A new thread has no rows that could be locked or read.
func (tx *Tx) ExpectNew(t id.Thread) {
	tx.passGate()
	tx.locked[t], tx.threads[t], tx.idle[t] = true, nil, true
}

// ExpectCreate implements run.Expecting: what creating a run reads.
func (tx *Tx) ExpectCreate(t id.Thread) {
	tx.lock(t)
	tx.ahead(relational.SelectThread.Postgres, t)
	tx.ahead(relational.HasActive.Postgres, t)
	tx.ahead(relational.LastSeq.Postgres, t)
}

// ExpectEnd implements run.Expecting: what ending a run reads.
func (tx *Tx) ExpectEnd(r *run.Run) {
	t := r.Thread
	tx.lock(t)
	tx.ahead(relational.RunOfThread.Postgres, r.ID, t)
	tx.ahead(relational.SelectThread.Postgres, t)
	if r.Kwargs.Temporary { // it is deleted together with its thread
		return
	}
	tx.ending = r.ID
	tx.ahead(hasOthers, t, r.ID)
	tx.ahead(relational.LatestCheckpoint.Postgres, t, "")
	tx.ahead(latestWrites, t)
	tx.ahead(relational.MessagesOfRun.Postgres, t, r.ID)
	tx.ahead(relational.CallsOfRun.Postgres, r.ID)
	tx.ahead(relational.LastSeq.Postgres, t)
}

var _ thread.Expecting = (*Tx)(nil)

// ExpectUpdate implements thread.Expecting: what committing a state update reads.
func (tx *Tx) ExpectUpdate(t id.Thread) {
	tx.lock(t)
	tx.ahead(relational.SelectThread.Postgres, t)
	tx.ahead(relational.HasActive.Postgres, t)
	tx.ahead(relational.FindLatest.Postgres, t, "")
	tx.ahead(relational.LastSeq.Postgres, t)
}

// ExpectSave implements run.Expecting: the fence of a save.
func (tx *Tx) ExpectSave(r *run.Run) {
	tx.lock(r.Thread)
	tx.ahead(relational.Fence.Postgres, r.ID)
}

var _ checkpointer.Expecting = (*Tx)(nil)

// ExpectPuts implements checkpointer.Expecting: which values exist, and the transcripts of the
// checkpoints and their parents. A parent that is put by the same transaction has none yet.
func (tx *Tx) ExpectPuts(puts ...*checkpointer.Put) {
	here := map[id.Checkpoint]bool{}
	for _, p := range puts {
		tx.lock(p.Thread)
		if text, args := tx.blobsThere(p); args != nil {
			tx.ahead(text, args...)
		}
		if p.NS != "" {
			continue
		}
		tx.ahead(relational.RowOf.Postgres, p.Thread, p.ID)
		if p.Parent != "" && !here[p.Parent] {
			tx.ahead(relational.RowOf.Postgres, p.Thread, p.Parent)
		}
		here[p.ID] = true
	}
}

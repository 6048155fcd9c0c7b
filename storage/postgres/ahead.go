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

// Reading ahead. Who asks the database one thing after the other waits for it each time, and so do those who wait for the thread. What a step of
// a run is going to ask is known when it begins: it is asked in one piece, and kept until it is asked for.

// answer is what was read ahead by a statement.
type answer struct {
	text string
	args []any // as bound
	here bool  // it was sent, and rows are what came
	rows []row
}

// ahead has a query sent with the statement that is sent next. Its rows are given to the next query that is the same. In between nothing may be
// written that it would see.
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

// taken gives what was read ahead for a query, once; nil when nothing was.
func (tx *Tx) taken(text string, bound []any) *answer {
	for i, a := range tx.answers {
		if a.text == text && reflect.DeepEqual(a.args, bound) {
			tx.answers = slices.Delete(tx.answers, i, i+1)
			return a
		}
	}
	return nil
}

// forgo forgets what was read ahead by some statements: what they would see has changed since.
func (tx *Tx) forgo(texts ...string) {
	tx.answers = slices.DeleteFunc(tx.answers, func(a *answer) bool { return slices.Contains(texts, a.text) })
}

// expects reports whether a query was asked ahead.
func (tx *Tx) expects(text string, args ...any) bool {
	bound := bind(args)
	return slices.ContainsFunc(tx.answers, func(a *answer) bool { return a.text == text && reflect.DeepEqual(a.args, bound) })
}

var _ run.Expecting = (*Tx)(nil)

// ExpectNew is run.Expecting.ExpectNew.
func (tx *Tx) ExpectNew(t id.Thread) {
	tx.passGate()
	tx.locked[t], tx.threads[t], tx.idle[t] = true, nil, true
}

// ExpectCreate is run.Expecting.ExpectCreate.
func (tx *Tx) ExpectCreate(t id.Thread) {
	tx.lock(t)
	tx.ahead(relational.SelectThread.Postgres, t)
	tx.ahead(relational.HasActive.Postgres, t)
	tx.ahead(relational.LastSeq.Postgres, t)
}

// ExpectEnd is run.Expecting.ExpectEnd.
func (tx *Tx) ExpectEnd(r *run.Run) {
	t := r.Thread
	tx.lock(t)
	tx.ahead(relational.RunOfThread.Postgres, r.ID, t)
	tx.ahead(relational.SelectThread.Postgres, t)
	if r.Kwargs.Temporary { // it goes with its thread
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

// ExpectUpdate is thread.Expecting.ExpectUpdate.
func (tx *Tx) ExpectUpdate(t id.Thread) {
	tx.lock(t)
	tx.ahead(relational.SelectThread.Postgres, t)
	tx.ahead(relational.HasActive.Postgres, t)
	tx.ahead(relational.FindLatest.Postgres, t, "")
	tx.ahead(relational.LastSeq.Postgres, t)
}

// ExpectSave is run.Expecting.ExpectSave.
func (tx *Tx) ExpectSave(r *run.Run) {
	tx.lock(r.Thread)
	tx.ahead(relational.Fence.Postgres, r.ID)
}

var _ checkpointer.Expecting = (*Tx)(nil)

// ExpectPuts is checkpointer.Expecting.ExpectPuts.
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

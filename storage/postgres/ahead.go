package postgres

import (
	"github.com/jackc/pgx/v5"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// Each query of a transaction is a round trip during which other writers wait for the thread's
// lock. What a step of a run will read is known when it begins, so the Expect methods ask for all
// of it in one batch, which is sent with the first statement that needs an answer. The methods that
// read take what was read for them, and query what was not.

// ahead has what was requested, by what it is of. A method takes each answer once. What the
// transaction writes in between must not change it, or must delete it here
// (TestExpectingChangesNothing).
type ahead struct {
	threads  answers[id.Thread, *thread.Thread]
	runs     answers[id.Run, *runRow]
	active   answers[id.Thread, bool] // whether it has active runs
	others   answers[id.Run, bool]    // whether its thread has other active runs
	fences   answers[id.Run, *relational.Fenced]
	seqs     answers[id.Thread, eventstore.Seq] // of the last event
	heads    answers[id.Thread, *checkpointer.Tuple]
	latest   answers[id.Thread, id.Checkpoint] // the newest root checkpoint
	rows     answers[rowKey, *eventstore.Row]
	messages answers[id.Run, []eventstore.Event]
	calls    answers[id.Run, []graph.ModelCall]
	values   answers[*checkpointer.Put, map[rows.ChannelVersion]bool] // those that are stored already
}

// answers are those of one method.
type answers[K comparable, V any] map[K]*answer[V]

type answer[V any] struct {
	batch *pgx.Batch // that asks
	value V          // the zero value, too, if there is no row
}

// expect adds an answer to the batch that is sent next. Queue its query at once.
func expect[K comparable, V any](tx *Tx, a *answers[K, V], of K) *V {
	if *a == nil {
		*a = answers[K, V]{}
	}
	(*a)[of] = &answer[V]{batch: tx.batch}
	return &(*a)[of].value
}

// take returns an answer that was requested, sending the batch first if necessary.
func take[K comparable, V any](tx *Tx, a answers[K, V], of K) (value V, asked bool, err error) {
	found := a[of]
	if found == nil {
		return value, false, nil
	}
	delete(a, of)
	if found.batch == tx.batch {
		if err := tx.send(); err != nil {
			return value, true, err
		}
	}
	return found.value, true, tx.err
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
	tx.expectThread(t)
	tx.expectActive(t)
	tx.expectSeq(t)
}

// ExpectEnd implements run.Expecting: what ending a run reads.
func (tx *Tx) ExpectEnd(r *run.Run) {
	t := r.Thread
	tx.lock(t)
	own := expect(tx, &tx.ahead.runs, r.ID)
	tx.ask(relational.RunOfThread.Postgres, func(row *row) error {
		found, err := scanRun(row)
		*own = found
		return err
	}, r.ID, t)
	tx.expectThread(t)
	if r.Kwargs.Temporary { // it is deleted together with its thread
		return
	}
	tx.ending = r.ID
	others := expect(tx, &tx.ahead.others, r.ID)
	tx.ask(hasOthers, func(*row) error { *others = true; return nil }, t, r.ID)
	tx.expectHead(t)
	messages := expect(tx, &tx.ahead.messages, r.ID)
	tx.ask(relational.MessagesOfRun.Postgres, func(row *row) error {
		*messages = append(*messages, relational.ScanMessage(t, r.ID, row, nil))
		return nil
	}, t, r.ID)
	calls := expect(tx, &tx.ahead.calls, r.ID)
	tx.ask(relational.CallsOfRun.Postgres, func(row *row) error {
		*calls = append(*calls, relational.ScanCall(row))
		return nil
	}, r.ID)
	tx.expectSeq(t)
}

var _ thread.Expecting = (*Tx)(nil)

// ExpectUpdate implements thread.Expecting: what committing a state update reads.
func (tx *Tx) ExpectUpdate(t id.Thread) {
	tx.lock(t)
	tx.expectThread(t)
	tx.expectActive(t)
	latest := expect(tx, &tx.ahead.latest, t)
	tx.ask(relational.FindLatest.Postgres, func(r *row) error { *latest = id.Checkpoint(r.Text(0)); return nil }, t, "")
	tx.expectSeq(t)
}

// ExpectSave implements run.Expecting: the fence of a save.
func (tx *Tx) ExpectSave(r *run.Run) {
	tx.lock(r.Thread)
	fence := expect(tx, &tx.ahead.fences, r.ID)
	tx.ask(relational.Fence.Postgres, func(r *row) error {
		found := relational.ScanFence(r)
		*fence = &found
		return nil
	}, r.ID)
}

var _ checkpointer.Expecting = (*Tx)(nil)

// ExpectPuts implements checkpointer.Expecting: which values exist, and the transcripts of the
// checkpoints and their parents. A parent that is put by the same transaction has none yet.
func (tx *Tx) ExpectPuts(puts ...*checkpointer.Put) {
	here := map[id.Checkpoint]bool{}
	for _, p := range puts {
		tx.lock(p.Thread)
		if text, args := tx.valuesThere(p); args != nil {
			there := map[rows.ChannelVersion]bool{}
			*expect(tx, &tx.ahead.values, p) = there
			tx.ask(text, scanValues(there), args...)
		}
		if p.NS != "" {
			continue
		}
		tx.expectRow(p.Thread, p.ID)
		if p.Parent != "" && !here[p.Parent] {
			tx.expectRow(p.Thread, p.Parent)
		}
		here[p.ID] = true
	}
}

func (tx *Tx) expectThread(t id.Thread) {
	found := expect(tx, &tx.ahead.threads, t)
	tx.ask(relational.SelectThread.Postgres, func(r *row) error { *found = relational.ScanThread(r); return nil }, t)
}

func (tx *Tx) expectActive(t id.Thread) {
	active := expect(tx, &tx.ahead.active, t)
	tx.ask(relational.HasActive.Postgres, func(*row) error { *active = true; return nil }, t)
}

func (tx *Tx) expectSeq(t id.Thread) {
	last := expect(tx, &tx.ahead.seqs, t)
	tx.ask(relational.LastSeq.Postgres, func(r *row) error { *last = eventstore.Seq(r.Int(0)); return nil }, t)
}

// expectHead asks for the newest root checkpoint with its writes.
func (tx *Tx) expectHead(t id.Thread) {
	head, scan := expect(tx, &tx.ahead.heads, t), relational.ScanCheckpoint(t)
	tx.ask(relational.LatestCheckpoint.Postgres, func(r *row) error { *head = scan(r); return nil }, t, "")
	tx.ask(latestWrites, func(r *row) error {
		if *head != nil {
			(*head).Writes = append((*head).Writes, scanWrite(r))
		}
		return nil
	}, t)
}

func (tx *Tx) expectRow(t id.Thread, c id.Checkpoint) {
	found, scan := expect(tx, &tx.ahead.rows, rowKey{t, c}), relational.ScanRow(t)
	tx.ask(relational.RowOf.Postgres, func(r *row) error { *found = scan(r); return nil }, t, c)
}

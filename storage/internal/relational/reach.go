package relational

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"understudy/access"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// Where the context of a call narrows the threads that exist (access.Narrow), each read decides in its own snapshot, and each write in its own transaction,
// whether its thread does. Without access control nothing is read or compared.

// hidden is read in place of a thread that the context does not reach. No thread has this id.
const hidden = id.Thread("hidden")

var threadMetadata = same("SELECT metadata FROM threads WHERE thread_id = $1")

// fromThread is from for rows of one thread: fn reads t, or a thread that does not exist if the context does not reach it. read is a method of DB.
func fromThread[T any](ctx context.Context, s *Store, t id.Thread, read func(context.Context, func(Querier) error) error, fn func(Querier, id.Thread) (T, error)) (T, error) {
	reach := access.Reach(ctx, access.Threads)
	if reach == nil {
		return from(ctx, read, func(q Querier) (T, error) { return fn(q, t) })
	}
	return from(ctx, s.db.Snapshot, func(q Querier) (v T, err error) {
		if t, err = reached(q, reach, t); err != nil {
			return v, err
		}
		return fn(q, t)
	})
}

// reached returns t if the filter selects it, else hidden.
func reached(q Querier, reach *access.Filter, t id.Thread) (id.Thread, error) {
	metadata, found, err := first(q, threadMetadata, bytesOf, t)
	if err != nil || found && reach.Match(metadata) {
		return t, err
	}
	return hidden, nil
}

// ThreadInReach is LoadThread of a thread that the context reaches.
func ThreadInReach(ctx context.Context, q Querier, t id.Thread) (*thread.Thread, error) {
	row, err := LoadThread(q, t)
	if err == nil && !access.Reach(ctx, access.Threads).Match(row.Metadata) {
		return nil, ErrNoThread
	}
	return row, err
}

// InReach returns t if the context reaches it, else the id of a thread that does not exist. q is a snapshot.
func InReach(ctx context.Context, q Querier, t id.Thread) (id.Thread, error) {
	if reach := access.Reach(ctx, access.Threads); reach != nil {
		return reached(q, reach, t)
	}
	return t, nil
}

// Reaches reports whether a thread exists for the transaction.
func (tx *Tx) Reaches(t id.Thread) (bool, error) {
	if tx.Reach.Threads == nil {
		return true, nil
	}
	_, err := tx.Writer.Thread(t)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// InReach reports whether a thread that is there exists for the transaction. One that it has inserted does.
func (tx *Tx) InReach(t *thread.Thread) bool {
	return tx.Reach.Threads == nil || slices.Contains(tx.inserted, t.ID) || tx.Reach.Threads.Match(t.Metadata)
}

// MustReach returns ErrNoRun for runs of a thread that does not exist for the transaction.
func (tx *Tx) MustReach(t id.Thread) error {
	ok, err := tx.Reaches(t)
	if err == nil && !ok {
		err = ErrNoRun
	}
	return err
}

// Reach is what exists for a transaction; nil filters: everything.
type Reach struct {
	Threads, Assistants, Crons *access.Filter
}

// ReachOf returns what exists in a context.
func ReachOf(ctx context.Context) Reach {
	return Reach{access.Reach(ctx, access.Threads), access.Reach(ctx, access.Assistants), access.Reach(ctx, access.Crons)}
}

// Anywhere calls fn while everything exists for the transaction: an id is taken, whatever actor has it.
func (tx *Tx) Anywhere(fn func() error) error {
	was := tx.Reach
	tx.Reach = Reach{}
	defer func() { tx.Reach = was }()
	return fn()
}

// threadsOfAny walks the threads that have one of some terms, in order of updated_at. A thread with several of them is returned as often, in a row.
var threadsOfAny = func() (list [2][maxAny + 1]Statement) {
	for i, direction := range []string{" DESC", ""} {
		order := " ORDER BY updated_at" + direction + ", thread_id" + direction
		for n := 2; n <= maxAny; n++ {
			text := ""
			for j := range n {
				if j > 0 {
					text += " UNION ALL "
				}
				text += fmt.Sprintf("(SELECT updated_at, thread_id FROM thread_metadata WHERE key = $%d AND value = $%d%s)", 2*j+1, 2*j+2, order)
			}
			list[i][n] = Statement{Postgres: "SELECT t." + strings.ReplaceAll(ThreadColumns, ", ", ", t.") + " FROM (" + text + ") m JOIN threads t ON t.thread_id = m.thread_id" +
				" ORDER BY m.updated_at" + direction + ", m.thread_id" + direction}
		}
	}
	return list
}()

// sortedOfAny reads the threads that have one of some terms, each once, and sorts them.
var sortedOfAny = func() (list [maxAny + 1]orders) {
	for n := 2; n <= maxAny; n++ {
		text := "SELECT t." + strings.ReplaceAll(ThreadColumns, ", ", ", t.") + " FROM ("
		for j := range n {
			if j > 0 {
				text += " UNION "
			}
			text += fmt.Sprintf("SELECT thread_id FROM thread_metadata WHERE key = $%d AND value = $%d", 2*j+1, 2*j+2)
		}
		text += ") m %sJOIN threads t ON t.thread_id = m.thread_id"
		list[n] = inOrder(differing(fmt.Sprintf(text, ""), fmt.Sprintf(text, "CROSS ")), "t.thread_id", "t.thread_id", "t.status", "t.created_at", "t.state_updated_at")
	}
	return list
}()

// maxAny bounds the alternatives that use the index.
const maxAny = 8

// eachWithAny calls visit for the threads that have one of some terms, in order: of each term the next place is known, and the first of them all is next. It
// makes one query after the other, so it is for databases without round trips.
func eachWithAny(q Querier, terms []contain.Term, ascending bool, visit func(Row) error) error {
	start, texts, before := place{math.MaxInt64, rows.LastText}, Seeks[0], func(a, b place) bool { return b.less(a) }
	if ascending {
		start, texts, before = place{math.MinInt64, ""}, Seeks[1], func(a, b place) bool { return a.less(b) }
	}
	type cursor struct {
		at   place
		left bool
	}
	cursors := make([]cursor, len(terms))
	seek := func(i int, text Statement, from place) error {
		cursors[i].left = false
		return q.Query(text, func(r Row) error {
			cursors[i] = cursor{place{r.Int(0), r.Text(1)}, true}
			return ErrStop
		}, terms[i].Key, terms[i].Value, from.updated, from.thread)
	}
	for i := range terms {
		if err := seek(i, texts[1], start); err != nil {
			return err
		}
	}
	for stopped := false; !stopped; {
		next := -1
		for i, c := range cursors {
			if c.left && (next < 0 || before(c.at, cursors[next].at)) {
				next = i
			}
		}
		if next < 0 {
			return nil
		}
		at := cursors[next].at
		if err := q.Query(SelectThread, func(r Row) error {
			err := visit(r)
			stopped = errors.Is(err, ErrStop)
			return err
		}, at.thread); err != nil {
			return err
		}
		for i, c := range cursors {
			if c.left && c.at == at && !stopped {
				if err := seek(i, texts[1], at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p place) less(o place) bool {
	return p.updated < o.updated || p.updated == o.updated && p.thread < o.thread
}

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// copied describes how the rows of a table are copied to another thread.
type copied struct {
	table, read, insert string
	// change adapts the values of a row, the first of which is the thread; nil copies them.
	change func(c *copier, values []any)
	kind   copiedKind
}

// copiedKind names the tables whose rows refer to others.
type copiedKind int

const (
	copiedRow   copiedKind = iota
	copiedPart             // its key contains the owner of the thread's parts
	copiedEvent            // its body is shared with the original
)

// copiedTables are the tables of checkpoints and events, in the order of their references.
// Explanations are not copied: they contain the thread's ID, and a worker can compute them again.
// Runs stay with the original.
var copiedTables = func() []copied {
	of := func(table, columns string) copied {
		return copied{
			table:  table,
			read:   "SELECT thread_id, " + columns + " FROM " + table + " WHERE thread_id = ?",
			insert: "INSERT INTO " + table + " (thread_id, " + columns + ") VALUES (?" + strings.Repeat(", ?", strings.Count(columns, ",")+1) + ")",
		}
	}
	checkpoints := of("checkpoints", "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata, run_id, shape, tasks")
	// The ID of the thread is also inside the stored metadata.
	checkpoints.change = func(c *copier, values []any) {
		if metadata, ok := values[6].([]byte); ok {
			if changed := rows.WithThread(metadata, c.to); changed != nil {
				values[6] = changed
			}
		}
	}
	events := of("events", "seq, run_id, type, category, message_id, digest, anonymous, body, metadata, created_at, first_seq")
	events.kind = copiedEvent
	return []copied{
		{
			table: "list_parts",
			read: "SELECT p.part - (o.owner << 28), p.digest, p.data FROM list_owners o CROSS JOIN list_parts p ON p.part BETWEEN o.owner << 28 AND ((o.owner + 1) << 28) - 1 " +
				"WHERE o.thread_id = ?",
			insert: "INSERT INTO list_parts (part, digest, data) VALUES (?, ?, ?)",
			kind:   copiedPart,
		},
		of("checkpoint_blobs", "checkpoint_ns, channel, version, type, blob"),
		of("checkpoint_writes", "checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path"),
		checkpoints,
		events,
		of("transcript_nodes", "node, base, stamp, whole, since, data"),
		of("transcripts", "checkpoint_id, node, stamp, version, summary, source, run_id, opaque"),
	}
}()

// colBody is the column of an event's row that refers to its body.
const colBody = 8

const (
	// A copy is in thread_copies until its last transaction inserts the thread's row.
	copyGoesOn = "SELECT 1 FROM thread_copies WHERE thread_id = ?"
	sharesBody = "UPDATE event_bodies SET refs = refs + 1 WHERE body = ?"
	putLineage = "INSERT INTO event_lineage (thread_id, source_thread_id, seq) SELECT ?2, ?1, max(seq) FROM events WHERE thread_id = ?2 HAVING count(*) > 0"
)

// copier copies a thread in small transactions. It reads one snapshot of the original on its own
// connection, so the copy is consistent however long it takes.
type copier struct {
	store    *Store
	from, to id.Thread
	at       *thread.Fork // nil: all is copied
	row      *thread.Thread

	batch []copiedValues
	bytes int
	begun bool  // a part of the copy is committed
	owner int64 // of the copied parts, once committed; else 0
}

// copiedValues is a row on its way, with the table it belongs to.
type copiedValues struct {
	of     *copied
	values []any
}

// CopyThread implements thread.Store. finish runs in the last transaction and inserts the row of
// the copy, which makes the copy visible.
//
// At most copiesAtOnce run at a time: each holds a snapshot, which keeps SQLite's log from being
// emptied.
func (s *Store) CopyThread(ctx context.Context, from, to id.Thread, at *thread.Fork, finish func(tx thread.Tx, row *thread.Thread) error) (err error) {
	select {
	case s.copies <- struct{}{}:
		defer func() { <-s.copies }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	conn, err := connect(s.path, false, "")
	if err != nil {
		return fmt.Errorf("copy thread %s: %w", from, classify(err))
	}
	conn.SetInterrupt(ctx.Done())
	c := &copier{store: s, from: from, to: to, at: at}
	err = c.read(ctx, conn)
	if ctx.Err() != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultInterrupt {
		err = context.Cause(ctx)
	}
	conn.SetInterrupt(nil)
	err = errors.Join(err, conn.Close()) // ends the snapshot before the last write
	if err == nil {
		err = s.write(ctx, func(tx *Tx) error {
			if _, err := c.put(tx); err != nil {
				return err
			}
			if err := tx.exec("DELETE FROM thread_copies WHERE thread_id = ?", to); err != nil {
				return err
			}
			if err := tx.exec(putLineage, from, to); err != nil {
				return err
			}
			tx.LogChanged(to)
			row := *c.row
			return finish(tx, &row)
		})
	}
	if err == nil {
		return nil
	}
	if c.begun {
		// The rows written so far are deleted in the background. If even this write fails, the next
		// start does it.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if e := s.write(limited, func(tx *Tx) error { return tx.abandonCopies(to) }); e != nil {
			s.log.WarnContext(ctx, "incomplete copy of a thread remains until the next start", "thread_id", to, "error", e)
		}
	}
	return fmt.Errorf("copy thread %s: %w", from, err)
}

// read reads the original and writes all batches of the copy but the last, which CopyThread writes
// together with the row.
func (c *copier) read(ctx context.Context, conn *sqlite.Conn) (err error) {
	if err := exec(conn, "BEGIN"); err != nil {
		return err
	}
	if c.row, err = relational.ThreadInReach(ctx, querier{conn}, c.from); err != nil {
		return err
	}
	takes, err := relational.PlanFork(database{c.store}, querier{conn}, c.from, c.at)
	if err != nil {
		return err
	}
	for i := range copiedTables {
		of := &copiedTables[i]
		first := 1
		if of.kind == copiedPart {
			first = 0
		}
		if err := query(conn, of.read, func(s *sqlite.Stmt) error {
			if !takes.Takes(of.table, row{s}, first) {
				return nil
			}
			values := make([]any, s.ColumnCount())
			for col := range values {
				switch s.ColumnType(col) {
				case sqlite.TypeInteger:
					values[col] = s.ColumnInt64(col)
				case sqlite.TypeText:
					values[col] = s.ColumnText(col)
					c.bytes += s.ColumnLen(col)
				case sqlite.TypeBlob:
					values[col] = columnBytes(s, col)
					c.bytes += s.ColumnLen(col)
				}
			}
			if of.kind != copiedPart {
				values[0] = c.to
			}
			if of.change != nil {
				of.change(c, values)
			}
			c.batch = append(c.batch, copiedValues{of, values})
			if len(c.batch) < c.store.copyRows && c.bytes < rows.CopyBytes {
				return nil
			}
			return c.flush(ctx)
		}, c.from); err != nil {
			return err
		}
	}
	return nil
}

// flush writes a batch in a transaction of its own. The first one registers the copy, so that a
// crash leaves no rows without a record of them.
func (c *copier) flush(ctx context.Context) error {
	var owner int64
	err := c.store.write(ctx, func(tx *Tx) (err error) {
		if !c.begun {
			if err := tx.exec("INSERT INTO thread_copies (thread_id) VALUES (?)", c.to); err != nil {
				return err
			}
		}
		owner, err = c.put(tx)
		return err
	})
	if err != nil {
		return err
	}
	c.begun, c.owner, c.bytes = true, owner, 0
	clear(c.batch)
	c.batch = c.batch[:0]
	return nil
}

// put inserts the batch and returns the owner of the copied parts. It does not change c, because
// the writer may roll it back and run it again.
//
// Bodies of events are shared with the original. Each batch checks that the original still exists,
// because its deletion would free the bodies.
func (c *copier) put(tx *Tx) (owner int64, err error) {
	now, err := tx.Thread(c.from)
	if err != nil {
		return 0, err
	}
	if !now.CreatedAt.Equal(c.row.CreatedAt) { // deleted and created again
		return 0, relational.ErrNoThread
	}
	if c.begun {
		if found, err := tx.one(copyGoesOn, nil, c.to); err != nil || !found {
			return 0, errors.Join(err, relational.ErrNoThread)
		}
	}
	owner = c.owner
	for _, r := range c.batch {
		values := r.values
		switch r.of.kind {
		case copiedPart:
			if owner == 0 {
				if err := tx.exec("INSERT INTO list_owners (thread_id) VALUES (?)", c.to); err != nil {
					return 0, err
				}
				owner = tx.conn.LastInsertRowID()
			}
			values = append([]any{partKey(owner, uint32(values[0].(int64)))}, values[1:]...)
		case copiedEvent:
			if err := tx.exec(sharesBody, values[colBody]); err != nil {
				return 0, err
			}
			if tx.conn.Changes() != 1 {
				return 0, fmt.Errorf("content %v of thread %s is missing", values[colBody], c.from)
			}
		}
		if err := tx.exec(r.of.insert, values...); err != nil {
			return 0, err
		}
	}
	return owner, nil
}

// abandonCopies turns unfinished copies into remains, which a sweep deletes; to "" means all.
func (tx *Tx) abandonCopies(to id.Thread) error {
	for _, text := range []string{
		"INSERT INTO thread_remains (thread_id) SELECT thread_id FROM thread_copies WHERE ?1 = '' OR thread_id = ?1 ON CONFLICT DO NOTHING",
		"DELETE FROM thread_copies WHERE ?1 = '' OR thread_id = ?1",
	} {
		if err := tx.exec(text, to); err != nil {
			return fmt.Errorf("abandon copies: %w", err)
		}
	}
	return nil
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/seal"
	"understudy/thread"
)

// copied describes how the rows of a table are copied to another thread.
type copied struct {
	table, read, insert string
	types               []string // types of the columns that are read
	kind                copiedKind
}

// copiedKind names the tables whose rows refer to others.
type copiedKind int

const (
	copiedRow        copiedKind = iota
	copiedPart                  // its key contains the owner of the thread's parts
	copiedEvent                 // its body is shared with the original
	copiedCheckpoint            // its JSON is encrypted in parts
)

// copiedTables are the tables of checkpoints and events, in the order of their references.
// Explanations are not copied: they contain the thread's ID, and a worker can compute them again.
// Runs stay with the original.
var copiedTables = func() []copied {
	// columns are names with types, "ns text, blob bytea".
	of := func(table, columns string) copied {
		var names, reads, casts, types []string
		for i, column := range strings.Split(columns, ", ") {
			name, typ, _ := strings.Cut(column, " ")
			read, cast := name, fmt.Sprintf("$%d::%s[]", i+2, typ)
			if typ == "jsonb" { // copied as text
				read, cast = name+"::text", fmt.Sprintf("$%d::text[]::jsonb[]", i+2)
			}
			names, reads, casts, types = append(names, name), append(reads, read), append(casts, cast), append(types, typ)
		}
		list := strings.Join(names, ", ")
		return copied{
			table:  table,
			read:   "SELECT " + strings.Join(reads, ", ") + " FROM " + table + " WHERE thread_id = $1",
			insert: "INSERT INTO " + table + " (thread_id, " + list + ") SELECT $1, u.* FROM unnest(" + strings.Join(casts, ", ") + ") AS u (" + list + ")",
			types:  types,
		}
	}
	parts := copied{
		table:  "list_parts",
		read:   "SELECT p.part - (o.owner << 28), p.digest, p.data FROM list_owners o JOIN list_parts p ON p.part > o.owner << 28 AND p.part < (o.owner + 1) << 28 WHERE o.thread_id = $1",
		insert: "INSERT INTO list_parts (part, digest, data) SELECT (o.owner << 28) + u.part, u.digest, u.data FROM list_owners o, unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS u (part, digest, data) WHERE o.thread_id = $1",
		types:  []string{"bigint", "bytea", "bytea"},
		kind:   copiedPart,
	}
	checkpoints := of("checkpoints", "checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, type text, checkpoint jsonb, metadata jsonb")
	checkpoints.insert = "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata) " +
		"SELECT $1, u.ns, u.id, u.parent, u.type, u.checkpoint, CASE WHEN u.metadata ? 'thread_id' THEN jsonb_set(u.metadata, '{thread_id}', to_jsonb($1::text)) ELSE u.metadata END " +
		"FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[]::jsonb[], $7::text[]::jsonb[]) AS u (ns, id, parent, type, checkpoint, metadata)"
	checkpoints.kind = copiedCheckpoint
	events := of("events", "seq bigint, run_id text, type text, category text, message_id text, digest bytea, anonymous boolean, body bigint, metadata bytea, created_at bigint, first_seq bigint")
	events.kind = copiedEvent
	return []copied{
		parts,
		of("checkpoint_blobs", "checkpoint_ns text, channel text, version text, type text, blob bytea"),
		of("checkpoint_writes", "checkpoint_ns text, checkpoint_id text, task_id text, idx bigint, channel text, type text, blob bytea, task_path text"),
		checkpoints,
		of("snapshots", "checkpoint_ns text, checkpoint_id text, run_id text, shape text, tasks bytea"),
		events,
		of("transcript_nodes", "node bigint, base bigint, stamp bigint, whole bigint, since bigint, data bytea"),
		of("transcripts", "checkpoint_id text, node bigint, stamp bigint, version text, summary text, source text, run_id text, opaque boolean"),
	}
}()

const (
	// colBody is the column of an event's row that refers to its body.
	colBody = 7
	// Columns of a checkpoint's row with JSON.
	colCheckpoint = 4
	colMetadata   = 5
)

const (
	// A copy without progress for a minute counts as abandoned: its server may have died.
	beginCopy   = "INSERT INTO thread_copies (thread_id, lapses_at) VALUES ($1, clock_timestamp() + interval '1 minute')"
	renewCopy   = "UPDATE thread_copies SET lapses_at = clock_timestamp() + interval '1 minute' WHERE thread_id = $1"
	endCopy     = "DELETE FROM thread_copies WHERE thread_id = $1"
	abandonCopy = `WITH gone AS (DELETE FROM thread_copies WHERE thread_id = $1 RETURNING thread_id)
		INSERT INTO thread_remains (thread_id) SELECT thread_id FROM gone ON CONFLICT DO NOTHING`
	lapsedCopies = `WITH gone AS (DELETE FROM thread_copies WHERE lapses_at < clock_timestamp() RETURNING thread_id)
		INSERT INTO thread_remains (thread_id) SELECT thread_id FROM gone ON CONFLICT DO NOTHING`
	copyOwner  = "INSERT INTO list_owners (thread_id) VALUES ($1) ON CONFLICT DO NOTHING"
	putLineage = "INSERT INTO event_lineage (thread_id, source_thread_id, seq) SELECT $2, $1, max(seq) FROM events WHERE thread_id = $2 HAVING count(*) > 0"
	// Bodies are shared by threads that this transaction has not locked, so they are locked in the
	// same order everywhere to avoid deadlocks.
	shareBodies = "UPDATE event_bodies b SET refs = refs + 1 FROM (SELECT body FROM event_bodies WHERE body = ANY ($1::bigint[]) ORDER BY body FOR UPDATE) AS ours WHERE b.body = ours.body"
)

// copier copies a thread in small transactions. It reads one snapshot of the original on its own
// connection, so the copy is consistent however long it takes.
type copier struct {
	store    *Store
	from, to id.Thread
	at       *thread.Fork // nil: all is copied
	row      *thread.Thread

	batch []copiedRows
	rows  int
	bytes int
	begun bool // a part of the copy is committed
}

// copiedRows are rows of one table, by columns, as unnest needs them.
type copiedRows struct {
	of      *copied
	columns []any
}

// CopyThread implements thread.Store. finish runs in the last transaction and inserts the row of
// the copy, which makes the copy visible.
func (s *Store) CopyThread(ctx context.Context, from, to id.Thread, at *thread.Fork, finish func(tx thread.Tx, row *thread.Thread) error) (err error) {
	select {
	case s.copies <- struct{}{}:
		defer func() { <-s.copies }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c := &copier{store: s, from: from, to: to, at: at}
	err = s.snapshot(ctx, func(q *reader) error {
		if c.row != nil { // a second snapshot may show another state of the thread
			return fault.New(fault.Unavailable, "the connection to the database was lost")
		}
		return c.read(ctx, q)
	})
	if err == nil {
		err = s.write(ctx, func(tx *Tx) error {
			if err := c.put(tx); err != nil {
				return err
			}
			if c.begun {
				if err := tx.exec(endCopy, to); err != nil {
					return err
				}
			}
			if err := tx.exec(putLineage, from, to); err != nil {
				return err
			}
			tx.changes(to)
			row := *c.row
			return finish(tx, &row)
		})
	}
	if err == nil {
		return nil
	}
	if c.begun {
		// The rows written so far are deleted in the background. If even this write fails, the copy
		// expires.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if e := s.write(limited, func(tx *Tx) error { return tx.exec(abandonCopy, to) }); e != nil {
			s.log.WarnContext(ctx, "incomplete copy of a thread remains until it expires", "thread_id", to, "error", e)
		}
	}
	return fmt.Errorf("copy thread %s: %w", from, err)
}

// read reads the original and writes all batches of the copy but the last, which CopyThread writes
// together with the row.
func (c *copier) read(ctx context.Context, q *reader) error {
	original, err := relational.ThreadInReach(ctx, q, c.from)
	if err != nil {
		return err
	}
	c.row = original
	takes, err := relational.PlanFork(database{c.store}, q, c.from, c.at)
	if err != nil {
		return err
	}
	for i := range copiedTables {
		of := &copiedTables[i]
		if err := q.walk(rows.CopyRows, of.read, func(r *row) error {
			if !takes.Takes(of.table, r, 0) {
				return nil
			}
			c.add(of, r)
			if c.rows < c.store.copyRows && c.bytes < rows.CopyBytes {
				return nil
			}
			return c.flush(ctx)
		}, c.from); err != nil {
			return err
		}
	}
	return nil
}

// add adds a row to the batch.
func (c *copier) add(of *copied, r *row) {
	if n := len(c.batch); n == 0 || c.batch[n-1].of != of {
		fresh := copiedRows{of, make([]any, len(of.types))}
		for i, typ := range of.types {
			switch typ {
			case "bigint":
				fresh.columns[i] = []*int64(nil)
			case "boolean":
				fresh.columns[i] = []bool(nil)
			case "bytea":
				fresh.columns[i] = [][]byte(nil)
			default:
				fresh.columns[i] = []*string(nil)
			}
		}
		c.batch = append(c.batch, fresh)
	}
	b := c.batch[len(c.batch)-1]
	columns := b.columns
	for i, column := range columns {
		c.bytes += len(r.values[i])
		switch list := column.(type) {
		case []*int64:
			var v *int64
			if !r.Null(i) {
				n := r.Int(i)
				v = &n
			}
			columns[i] = append(list, v)
		case []bool:
			columns[i] = append(list, r.Bool(i))
		case [][]byte:
			columns[i] = append(list, r.Bytes(i))
		case []*string:
			var v *string
			if !r.Null(i) {
				text := r.Text(i)
				if b.of.types[i] == "jsonb" {
					text = string(r.opened([]byte(text), seal.OpenJSON))
				}
				v = &text
			}
			columns[i] = append(list, v)
		}
	}
	c.rows++
}

// flush writes a batch in a transaction of its own. The first one registers the copy, so that a
// crash leaves no rows without a record of them.
func (c *copier) flush(ctx context.Context) error {
	if err := c.store.write(ctx, func(tx *Tx) error {
		if !c.begun {
			if err := tx.exec(beginCopy, c.to); err != nil {
				return err
			}
		}
		return c.put(tx)
	}); err != nil {
		return err
	}
	c.begun, c.batch, c.rows, c.bytes = true, nil, 0, 0
	return nil
}

// put inserts the batch. Bodies of events are shared with the original; each batch checks that it
// still exists, because its deletion would free them.
func (c *copier) put(tx *Tx) error {
	now, err := tx.Thread(c.from)
	if err != nil {
		return err
	}
	if !now.CreatedAt.Equal(c.row.CreatedAt) { // deleted and created again
		return relational.ErrNoThread
	}
	if c.begun {
		if n, err := tx.affected(renewCopy, c.to); err != nil || n != 1 {
			return errors.Join(err, relational.ErrNoThread)
		}
	}
	for _, b := range c.batch {
		switch b.of.kind {
		case copiedPart:
			if err := tx.exec(copyOwner, c.to); err != nil {
				return err
			}
		case copiedEvent:
			bodies := b.columns[colBody].([]*int64)
			if n, err := tx.affected(shareBodies, bodies); err != nil {
				return err
			} else if n != int64(len(bodies)) {
				return fmt.Errorf("%d of %d contents of thread %s are missing", int64(len(bodies))-n, len(bodies), c.from)
			}
		case copiedCheckpoint:
			if tx.ring == nil {
				break
			}
			// With the key of now, like all bytes: the original may have been read before it was encrypted with that.
			b.columns = slices.Clone(b.columns)
			b.columns[colCheckpoint] = encoded(b.columns[colCheckpoint].([]*string), tx.checkpointJSON)
			b.columns[colMetadata] = encoded(b.columns[colMetadata].([]*string), tx.metadataJSON)
		}
		if err := tx.exec(b.of.insert, append([]any{c.to}, b.columns...)...); err != nil {
			return err
		}
	}
	return nil
}

// encoded returns texts as encode makes them; NULL stays.
func encoded(list []*string, encode func([]byte) string) []*string {
	out := make([]*string, len(list))
	for i, text := range list {
		if text != nil {
			made := encode([]byte(*text))
			out[i] = &made
		}
	}
	return out
}

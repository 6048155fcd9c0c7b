package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

const (
	// latestWrites reads the writes on the newest root checkpoint.
	latestWrites = "SELECT " + writeColumns + " FROM checkpoint_writes w WHERE w.thread_id = $1 AND w.checkpoint_ns = '' AND w.checkpoint_id = " +
		"(SELECT checkpoint_id FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1) ORDER BY w.task_id, w.idx"
)

var (
	checkpointsOfNS  = relational.SelectCheckpoints("WHERE c.thread_id = $1 AND c.checkpoint_ns = $2 ORDER BY c.checkpoint_id DESC")
	checkpointsOfAll = relational.SelectCheckpoints("WHERE c.thread_id = $1 ORDER BY c.checkpoint_id DESC, c.checkpoint_ns")
	checkpointsOfID  = relational.SelectCheckpoints("WHERE c.thread_id = $1 AND c.checkpoint_id = $2 ORDER BY c.checkpoint_ns")
	olderOfNS        = relational.SelectCheckpoints("WHERE c.thread_id = $1 AND c.checkpoint_ns = $2 AND c.checkpoint_id < $3 ORDER BY c.checkpoint_id DESC")
	olderOfAll       = relational.SelectCheckpoints("WHERE c.thread_id = $1 AND c.checkpoint_id < $2 ORDER BY c.checkpoint_id DESC, c.checkpoint_ns")
)

// fillSize is how many checkpoints are filled with one batch of queries: more save round trips and
// hold more memory.
const fillSize = 32

// ListCheckpoints implements checkpointer.Reader. Checkpoints with the same ID, of different
// namespaces, come in order of their namespaces.
func (s *Store) ListCheckpoints(ctx context.Context, q checkpointer.List) (out []*checkpointer.Tuple, err error) {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	text, args := checkpointsOfAll, []any{nil} // the thread
	switch {
	case q.ID != "":
		text, args = checkpointsOfID, append(args, q.ID)
	case q.NS != nil && q.Before != "":
		text, args = olderOfNS, append(args, *q.NS, q.Before)
	case q.NS != nil:
		text, args = checkpointsOfNS, append(args, *q.NS)
	case q.Before != "":
		text, args = olderOfAll, append(args, q.Before)
	}
	first := 64
	if q.Limit > 0 {
		first = q.Limit
	}
	err = s.snapshot(ctx, func(c *reader) (err error) {
		if q.Thread, err = relational.InReach(ctx, c, q.Thread); err != nil {
			return err
		}
		args[0] = q.Thread
		scan := relational.ScanCheckpoint(q.Thread)
		// Rows are read until there are enough.
		size := 0
		// Rows are read in pieces until the page is full, because a filter on metadata may skip any
		// number of them.
		if err := c.Walk(first, text, func(r relational.Row) error {
			t := scan(r)
			if q.ID != "" && (q.Before != "" && t.ID >= q.Before || q.NS != nil && t.NS != *q.NS) || !match.Everything() && !match.Match(t.Metadata) {
				return nil
			}
			if q.Keys {
				t = &checkpointer.Tuple{Checkpoint: checkpointer.Checkpoint{Key: t.Key}}
			}
			out = append(out, t)
			if size += len(t.Data) + len(t.Metadata) + len(t.Tasks); q.Bytes > 0 && len(out) > 1 && size > q.Bytes {
				checkpointer.Leave(t)
				return errStop
			}
			if q.Limit > 0 && len(out) >= q.Limit {
				return errStop
			}
			return nil
		}, args...); err != nil {
			return err
		}
		if q.Keys {
			return nil
		}
		if err := newLoader(c, q.Thread).fill(q.Bytes, out); err != nil {
			return err
		}
		out = out[:min(len(out), len(present(out))+1)]
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of thread %s: %w", q.Thread, err)
	}
	return out, nil
}

// PutCheckpoint implements checkpointer.Tx.
func (tx *Tx) PutCheckpoint(p *checkpointer.Put) error {
	if err := tx.putCheckpoint(p); err != nil {
		return fmt.Errorf("put checkpoint %s of thread %s: %w", p.ID, p.Thread, err)
	}
	return nil
}

const (
	// hasBlobs returns which of some values exist.
	hasBlobs = "SELECT b.channel, b.version FROM unnest($3::text[], $4::text[]) AS w (channel, version) " +
		"JOIN checkpoint_blobs b ON b.thread_id = $1 AND b.checkpoint_ns = $2 AND b.channel = w.channel AND b.version = w.version"
	// putCheckpoint writes a checkpoint and its description in one statement, and deletes
	// explanations of a previous version.
	putCheckpoint = `WITH checkpoint AS (
			INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
			DO UPDATE SET (parent_checkpoint_id, checkpoint, metadata) = (excluded.parent_checkpoint_id, excluded.checkpoint, excluded.metadata)
		), outdated AS (
			DELETE FROM answers WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = $3
		)
		INSERT INTO snapshots (thread_id, checkpoint_ns, checkpoint_id, run_id, shape, tasks) VALUES ($1, $2, $3, $7, $8, $9)
		ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE SET (run_id, shape, tasks) = (excluded.run_id, excluded.shape, excluded.tasks)`
)

// valuesThere returns the query for values of a checkpoint that exist already, among those that may
// be stored by parts; no arguments if there are none. Parts of an existing value must not be added
// again. For other values the insert itself skips existing rows.
func (tx *Tx) valuesThere(p *checkpointer.Put) (text string, args []any) {
	var channels, versions []string
	for i := range p.Blobs {
		if b := &p.Blobs[i]; tx.mayCut(b) {
			channels, versions = append(channels, b.Channel), append(versions, b.Version)
		}
	}
	if channels == nil {
		return "", nil
	}
	return hasBlobs, []any{p.Thread, p.NS, channels, versions}
}

// scanValues reads the result of valuesThere.
func scanValues(there map[rows.ChannelVersion]bool) func(*row) error {
	return func(r *row) error {
		there[rows.ChannelVersion{Channel: r.Text(0), Version: r.Text(1)}] = true
		return nil
	}
}

// putCheckpoint stores a checkpoint with the values that are new.
func (tx *Tx) putCheckpoint(p *checkpointer.Put) error {
	metadata := p.Metadata
	if metadata == nil {
		metadata = json.RawMessage("{}")
	}
	tx.lock(p.Thread)
	delete(tx.tips, p.Thread)
	delete(tx.ahead.heads, p.Thread)
	delete(tx.ahead.latest, p.Thread)
	has, asked, err := take(tx, tx.ahead.values, p)
	if !asked {
		has = map[rows.ChannelVersion]bool{}
		if text, args := tx.valuesThere(p); args != nil {
			err = tx.query(text, scanValues(has), args...)
		}
	}
	if err != nil {
		return err
	}
	if err := tx.exec(putCheckpoint, p.Thread, p.NS, p.ID, orNull(p.Parent), tx.checkpointJSON(p.Data), tx.metadataJSON(metadata), p.Run, p.Shape, p.Tasks); err != nil {
		return err
	}
	for _, b := range p.Blobs {
		if k := (rows.ChannelVersion{Channel: clean(b.Channel), Version: clean(b.Version)}); has[k] {
			continue
		} else {
			has[k] = true
		}
		if err := tx.putBlob(p.Thread, p.NS, &b); err != nil {
			return fmt.Errorf("channel %s: %w", b.Channel, err)
		}
	}
	if p.ShapeJSON == nil {
		return nil
	}
	return tx.Exec(relational.PutShape, p.Shape, p.ShapeJSON)
}

// Find implements thread.Tx.
func (tx *Tx) Find(k checkpointer.Key) (id.Checkpoint, error) {
	if k.NS == "" && k.ID == "" {
		if latest, asked, err := take(tx, tx.ahead.latest, k.Thread); asked {
			return latest, err
		}
	}
	return tx.Tx.Find(k)
}

// Head implements checkpointer.Tx. It reads row and writes in one batch, and keeps them for the
// end of the run.
func (tx *Tx) Head(t id.Thread) (*checkpointer.Tuple, error) {
	tx.lock(t)
	if tx.ahead.heads[t] == nil {
		tx.expectHead(t)
	}
	head, _, err := take(tx, tx.ahead.heads, t)
	if err != nil {
		return nil, fmt.Errorf("head of thread %s: %w", t, err)
	}
	tx.tips[t] = head
	return head, nil
}

// deleteCheckpoints deletes everything stored for the checkpoints of a thread.
func (tx *Tx) deleteCheckpoints(t id.Thread) error {
	delete(tx.tips, t)
	tx.ahead = ahead{}
	for _, table := range []string{"checkpoint_blobs", "checkpoint_writes", "checkpoints", "snapshots", "answers"} {
		if err := tx.exec("DELETE FROM "+table+" WHERE thread_id = $1", t); err != nil {
			return err
		}
	}
	return tx.deleteLists(t)
}

// DeleteRunCheckpoints implements checkpointer.Tx. Values that no other checkpoint names are
// deleted too, unless keepValues. Unlike on SQLite this reads inside the transaction: only writers
// of the same thread wait.
func (tx *Tx) DeleteRunCheckpoints(t id.Thread, r id.Run, keepValues bool) error {
	tx.lock(t)
	var keys []checkpointer.Key
	err := tx.query("SELECT checkpoint_ns, checkpoint_id FROM snapshots WHERE thread_id = $1 AND run_id = $2", func(row *row) error {
		keys = append(keys, checkpointer.Key{Thread: t, NS: row.Text(0), ID: id.Checkpoint(row.Text(1))})
		return nil
	}, t, r)
	if err == nil && len(keys) > 0 {
		err = tx.dropCheckpoints(t, keys, keepValues)
	}
	if err != nil {
		return fmt.Errorf("delete checkpoints of run %s: %w", r, err)
	}
	return nil
}

const (
	ofKeys = " k.thread_id = $1 AND (k.checkpoint_ns, k.checkpoint_id) IN (SELECT * FROM unnest($2::text[], $3::text[]))"
	// versionsIn returns the channel versions of all checkpoints in some namespaces. The second
	// column says whether the checkpoint is deleted.
	versionsIn = "SELECT k.checkpoint_ns, (k.checkpoint_ns, k.checkpoint_id) IN (SELECT * FROM unnest($2::text[], $3::text[])), jsonb_build_object('channel_versions', k.checkpoint -> 'channel_versions') " +
		"FROM checkpoints k WHERE k.thread_id = $1 AND k.checkpoint_ns = ANY($2)"
	dropBlobs = "DELETE FROM checkpoint_blobs b USING unnest($2::text[], $3::text[], $4::text[]) AS w (ns, channel, version) " +
		"WHERE b.thread_id = $1 AND b.checkpoint_ns = w.ns AND b.channel = w.channel AND b.version = w.version RETURNING b.type, CASE WHEN b.type = 'list' THEN b.blob END"
)

// dropCheckpoints deletes checkpoints with everything that only they use. With keepValues it
// leaves channel values alone.
func (tx *Tx) dropCheckpoints(t id.Thread, keys []checkpointer.Key, keepValues bool) error {
	spaces, ids := texts(keys)
	freed, stay := map[blobKey]bool{}, map[blobKey]bool{}
	if err := tx.query(versionsIn, func(r *row) error {
		list, err := rows.ChannelVersions(r.Bytes(2))
		for _, v := range list {
			if r.Bool(1) {
				freed[blobKey{r.Text(0), v}] = true
			} else {
				stay[blobKey{r.Text(0), v}] = true
			}
		}
		return err
	}, t, spaces, ids); err != nil {
		return err
	}
	if err := tx.deleteKeys(t, keys); err != nil {
		return err
	}
	if keepValues {
		return nil
	}
	var blobSpaces, channels, versions []string
	for k := range freed {
		if !stay[k] {
			blobSpaces, channels, versions = append(blobSpaces, k.ns), append(channels, k.Channel), append(versions, k.Version)
		}
	}
	if blobSpaces == nil {
		return nil
	}
	var lists [][]byte
	if err := tx.query(dropBlobs, func(r *row) error {
		if r.Text(0) == typeList {
			lists = append(lists, r.Bytes(1))
		}
		return nil
	}, t, blobSpaces, channels, versions); err != nil || lists == nil {
		return err
	}
	var gone compact.Set
	if err := newLoader(tx, t).named(lists, &gone); err != nil {
		return err
	}
	return tx.sweep(t, gone)
}

// deleteKeys deletes the rows under checkpoints' keys.
func (tx *Tx) deleteKeys(t id.Thread, keys []checkpointer.Key) error {
	delete(tx.tips, t)
	clear(tx.rows)
	tx.ahead = ahead{}
	spaces, ids := texts(keys)
	for _, table := range []string{"checkpoints", "checkpoint_writes", "snapshots", "answers"} {
		if err := tx.exec("DELETE FROM "+table+" k WHERE"+ofKeys, t, spaces, ids); err != nil {
			return err
		}
	}
	var roots []string
	for _, k := range keys {
		if k.NS == "" {
			roots = append(roots, string(k.ID))
		}
	}
	if roots == nil {
		return nil
	}
	return tx.exec("DELETE FROM transcripts WHERE thread_id = $1 AND checkpoint_id = ANY($2)", t, roots)
}

// texts returns the namespaces and IDs of keys, for unnest.
func texts(keys []checkpointer.Key) (spaces, ids []string) {
	spaces, ids = make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		spaces[i], ids[i] = k.NS, string(k.ID)
	}
	return spaces, ids
}

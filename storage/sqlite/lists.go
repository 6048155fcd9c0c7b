package sqlite

import (
	"bytes"
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/internal/jsonplus"
	"understudy/storage/internal/relational"
)

// typeList is the type of a row of checkpoint_blobs that stores a list by its parts. The value it
// represents is msgpack.
const typeList = "list"

const (
	// Values of layout in meta.
	layoutCompact   = "compact"
	layoutLangGraph = "langgraph"
)

// decideLayout returns the layout of a database; wanted if it has none yet. The first start
// decides, so that old values stay readable by their first reader.
func decideLayout(conn *sqlite.Conn, wanted string) (layout string, err error) {
	if err := exec(conn, "INSERT INTO meta (key, value) VALUES ('layout', ?) ON CONFLICT DO NOTHING", wanted); err != nil {
		return "", fmt.Errorf("layout: %w", err)
	}
	if _, err := one(conn, "SELECT value FROM meta WHERE key = 'layout'", func(s *sqlite.Stmt) error {
		layout = s.ColumnText(0)
		return nil
	}); err != nil {
		return "", fmt.Errorf("layout: %w", err)
	}
	if layout != layoutCompact && layout != layoutLangGraph {
		return "", fmt.Errorf("the database has layout %q, which this version does not know", layout)
	}
	return layout, nil
}

// partBits is the number of low bits of list_parts.part that hold the number within the thread;
// the owner is above them.
const partBits = 28

// partKey returns the key of a part; number 0 is below the first part of an owner.
func partKey(owner int64, number uint32) int64 { return owner<<partBits | int64(number) }

const (
	ownerOf      = "SELECT owner FROM list_owners WHERE thread_id = ?"
	digestsOf    = "SELECT part, digest FROM list_parts WHERE part BETWEEN ? AND ? ORDER BY part"
	selectParts  = "SELECT part, data FROM list_parts WHERE part BETWEEN ? AND ?"
	deleteParts  = "DELETE FROM list_parts WHERE part BETWEEN ? AND ?"
	listOfOne    = selectBlob + " AND type = 'list'"
	deleteOwners = "DELETE FROM list_owners WHERE thread_id = ?"
)

const (
	// Limits of what is kept in memory to recognize known parts: digests, at about 40 bytes each,
	// and bytes of the last values.
	partLimit  = 1 << 19
	valueLimit = 32 << 20
)

// lists caches the parts of the threads written last, so that a step does not read back what its
// thread holds. Only the writer's goroutine uses it. When it is full it is emptied: refilling
// costs one index scan per thread.
type lists struct {
	plain bool // layout langgraph: new values are stored as they are
	of    map[id.Thread]*threadParts
	size  int // digests
	bytes int // of last values
	// touched are the threads whose parts the current write changed. If it fails they are
	// forgotten.
	touched []id.Thread
	marks   *marks
}

// threadParts are the known parts of one thread.
type threadParts struct {
	owner int64
	last  uint32 // the highest number in use
	known map[compact.Digest]uint32
	value compact.Last
}

func newLists(plain bool) *lists {
	return &lists{plain: plain, of: map[id.Thread]*threadParts{}, marks: newMarks()}
}

// forget drops what is cached of a thread; it is read again when needed.
func (l *lists) forget(t id.Thread) {
	if p := l.of[t]; p != nil {
		l.size -= len(p.known)
		l.bytes -= p.value.Size()
		delete(l.of, t)
	}
}

// done ends a write. A failed one was rolled back, so the cache no longer matches the tables.
func (l *lists) done(failed bool) {
	if failed {
		for _, t := range l.touched {
			l.forget(t)
		}
	}
	l.touched = l.touched[:0]
}

// clear empties the cache after a rollback of several writes.
func (l *lists) clear() {
	clear(l.of)
	l.size, l.bytes, l.touched = 0, 0, l.touched[:0]
}

// parts returns the cached parts of a thread, reading their digests if needed.
func (tx *Tx) parts(t id.Thread) (*threadParts, error) {
	l := tx.lists
	if p := l.of[t]; p != nil {
		return p, nil
	}
	if l.size > partLimit || l.bytes > valueLimit {
		l.clear()
	}
	p := &threadParts{known: map[compact.Digest]uint32{}}
	found, err := tx.one(ownerOf, func(s *sqlite.Stmt) error {
		p.owner = s.ColumnInt64(0)
		return nil
	}, t)
	if err != nil {
		return nil, err
	}
	if !found {
		if err := tx.exec("INSERT INTO list_owners (thread_id) VALUES (?)", t); err != nil {
			return nil, err
		}
		p.owner = tx.conn.LastInsertRowID()
	} else if err := tx.query(digestsOf, func(s *sqlite.Stmt) error {
		p.last = uint32(s.ColumnInt64(0) & (1<<partBits - 1))
		var d compact.Digest
		copy(d[:], columnBytes(s, 1))
		p.known[d] = p.last
		return nil
	}, partKey(p.owner, 0), partKey(p.owner+1, 0)-1); err != nil {
		return nil, err
	}
	l.of[t] = p
	l.size += len(p.known)
	return p, nil
}

// keeper implements compact.Keeper on the parts of a thread.
type keeper struct {
	tx    *Tx
	parts *threadParts
	added []compact.Digest
}

// Keep returns the number of the part with a digest, inserting it if it is new.
func (k *keeper) Keep(d compact.Digest, data []byte) (uint32, error) {
	p := k.parts
	if n, ok := p.known[d]; ok {
		return n, nil
	}
	if p.last+1 == 1<<partBits {
		return 0, fmt.Errorf("the thread has reached the limit of %d list items", p.last)
	}
	digest := bytes.Clone(d[:]) // so that d, which is mostly known, does not escape to the heap
	if err := k.tx.exec("INSERT INTO list_parts (part, digest, data) VALUES (?, ?, ?)", partKey(p.owner, p.last+1), digest, data); err != nil {
		return 0, err
	}
	p.last++
	p.known[d] = p.last
	k.tx.lists.size++
	k.added = append(k.added, d)
	return p.last, nil
}

// putBlob stores the value of a channel, unless that version exists.
func (tx *Tx) putBlob(t id.Thread, ns string, b *checkpointer.Blob) error {
	typ, data := b.Type, b.Bytes()
	var k *keeper
	if !tx.lists.plain && typ == jsonplus.TypeMsgpack && len(data) >= compact.LeastSize {
		value, kept, err := tx.compact(t, data)
		if err != nil {
			return err
		}
		if kept != nil {
			k, typ, data = kept, typeList, value
		}
	}
	if err := tx.exec(`INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, t, ns, b.Channel, b.Version, typ, data); err != nil {
		return err
	}
	if k == nil || len(k.added) == 0 || tx.conn.Changes() > 0 {
		return nil
	}
	// The version exists and stays, so no value names the parts that were just added.
	p := k.parts
	from := p.last + 1 - uint32(len(k.added))
	if err := tx.exec(deleteParts, partKey(p.owner, from), partKey(p.owner, p.last)); err != nil {
		return err
	}
	tx.lists.forget(t)
	return nil
}

// compact stores the parts of a list and returns the value that names them. It returns no keeper
// if the value is to be stored as it is.
func (tx *Tx) compact(t id.Thread, data []byte) ([]byte, *keeper, error) {
	if data[0] < 0x90 || data[0] > 0x9f && data[0] != 0xdc && data[0] != 0xdd { // no array: nothing to look up
		return nil, nil, nil
	}
	p, err := tx.parts(t)
	if err != nil {
		return nil, nil, fmt.Errorf("parts of thread %s: %w", t, err)
	}
	tx.lists.touched = append(tx.lists.touched, t)
	k := &keeper{tx: tx, parts: p}
	before := p.value.Size()
	value, ok, err := compact.Encode(data, k, &p.value)
	tx.lists.bytes += p.value.Size() - before
	if err != nil || !ok {
		return nil, nil, err
	}
	return value, k, nil
}

// deleteLists deletes all parts of a thread: one range of keys.
func (tx *Tx) deleteLists(t id.Thread) error {
	tx.lists.forget(t)
	owner, found, err := findOwner(tx.conn, t)
	if err != nil || !found {
		return err
	}
	if err := tx.exec(deleteParts, partKey(owner, 0), partKey(owner+1, 0)-1); err != nil {
		return err
	}
	return tx.exec(deleteOwners, t)
}

// sweep deletes parts of deleted lists that no remaining list of the thread names. It reads the
// rows of lists, which are ranges, and chunks, but no parts.
func (tx *Tx) sweep(t id.Thread, gone compact.Set) error {
	if len(gone) == 0 {
		return nil
	}
	l := newLoader(tx.conn, t)
	var used compact.Set
	if err := tx.query(relational.ListsOf.SQLite, func(s *sqlite.Stmt) error {
		return l.named(columnBytes(s, 3), &used)
	}, t); err != nil {
		return fmt.Errorf("lists of thread %s: %w", t, err)
	}
	gone.Remove(used)
	owner, _, err := findOwner(tx.conn, t)
	if err != nil {
		return err
	}
	for _, r := range gone.Runs() {
		if err := tx.exec(deleteParts, partKey(owner, r.First), partKey(owner, r.First+r.Count-1)); err != nil {
			return fmt.Errorf("lists of thread %s: %w", t, err)
		}
	}
	tx.lists.forget(t)
	return nil
}

// findOwner returns the owner number of a thread's parts.
func findOwner(c *sqlite.Conn, t id.Thread) (owner int64, found bool, err error) {
	found, err = one(c, ownerOf, func(s *sqlite.Stmt) error {
		owner = s.ColumnInt64(0)
		return nil
	}, t)
	if err != nil {
		err = fmt.Errorf("owner of lists of thread %s: %w", t, err)
	}
	return owner, found, err
}

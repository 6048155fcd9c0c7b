package postgres

import (
	"bytes"
	"fmt"
	"sync"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/internal/jsonplus"
	"understudy/storage/internal/relational"
)

// typeList is the type of a row of checkpoint_blobs that stores a list by its parts. The value it
// represents is msgpack.
const typeList = "list"

// Values of layout in meta.
const (
	layoutCompact   = "compact"
	layoutLangGraph = "langgraph"
)

// partBits is the number of low bits of list_parts.part that hold the number within the thread;
// the owner is above them.
const partBits = 28

// partKey returns the key of a part; number 0 is below the first part of an owner.
func partKey(owner int64, number uint32) int64 { return owner<<partBits | int64(number) }

const (
	// ownerOf returns the owner of a thread's parts, its epoch, and its last part.
	ownerOf = "SELECT o.owner, o.epoch, coalesce((SELECT p.part FROM list_parts p WHERE p.part > o.owner << 28 AND p.part < (o.owner + 1) << 28 ORDER BY p.part DESC LIMIT 1), 0) " +
		"FROM list_owners o WHERE o.thread_id = $1"
	digestsOf   = "SELECT part, digest FROM list_parts WHERE part BETWEEN $1 AND $2 ORDER BY part"
	selectParts = "SELECT part, data FROM list_parts WHERE part = ANY($1)"
	insertParts = "INSERT INTO list_parts (part, digest, data) SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])"
	deleteParts = "DELETE FROM list_parts WHERE part BETWEEN $1 AND $2"
	newOwner    = "INSERT INTO list_owners (thread_id) VALUES ($1) RETURNING owner"
	newEpoch    = "UPDATE list_owners SET epoch = epoch + 1 WHERE owner = $1"
)

// Limits of what is kept in memory to recognize known parts: digests, at about 40 bytes each, and
// bytes of the last values.
const (
	partLimit  = 1 << 19
	valueLimit = 32 << 20
)

// lists caches the parts of the threads written last, so that a step does not read back what its
// thread holds.
//
// Other servers write too. A cached entry is valid while the owner's epoch is the same, up to the
// last part that it knows; deleting parts raises the epoch. A transaction takes an entry out and
// returns it after its commit, so only one transaction uses it, and a rollback drops it. A full
// cache is emptied: refilling costs one index scan per thread.
type lists struct {
	plain bool // layout langgraph: new values are stored as they are

	mu    sync.Mutex // guards the fields below
	of    map[id.Thread]*threadParts
	size  int // digests
	bytes int // of last values
}

// threadParts are the known parts of one thread.
type threadParts struct {
	owner, epoch int64
	last         uint32 // the highest number in use
	known        map[compact.Digest]uint32
	value        compact.Last
}

// newLists returns an empty cache; plain for layout langgraph.
func newLists(plain bool) *lists { return &lists{plain: plain, of: map[id.Thread]*threadParts{}} }

// take removes and returns the entry of a thread; nil if there is none. The caller owns it.
func (l *lists) take(t id.Thread) *threadParts {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.of[t]
	if p != nil {
		l.size -= len(p.known)
		l.bytes -= p.value.Size()
		delete(l.of, t)
	}
	return p
}

// give returns the entries of a committed transaction to the cache. A nil entry says that nothing
// is known of the thread.
func (l *lists) give(all map[id.Thread]*threadParts) {
	if len(all) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for t, p := range all {
		if p == nil {
			continue
		}
		if was := l.of[t]; was != nil { // of another transaction; the next use compares the last part
			l.size -= len(was.known)
			l.bytes -= was.value.Size()
		}
		if l.size > partLimit || l.bytes > valueLimit {
			clear(l.of)
			l.size, l.bytes = 0, 0
		}
		l.of[t] = p
		l.size += len(p.known)
		l.bytes += p.value.Size()
	}
}

// parts returns the known parts of a thread, reading digests that other servers have added. The
// thread is locked.
func (tx *Tx) parts(t id.Thread) (*threadParts, error) {
	if p := tx.lists[t]; p != nil {
		return p, nil
	}
	p := tx.store.lists.take(t)
	var owner, epoch int64
	var last uint32
	found, err := one(tx, ownerOf, func(r *row) error {
		owner, epoch, last = r.Int(0), r.Int(1), uint32(r.Int(2)&(1<<partBits-1))
		return nil
	}, t)
	if err != nil {
		return nil, err
	}
	if !found {
		if _, err := one(tx, newOwner, func(r *row) error {
			owner = r.Int(0)
			return nil
		}, t); err != nil {
			return nil, err
		}
	}
	if p == nil || p.owner != owner || p.epoch != epoch || p.last > last {
		p = &threadParts{owner: owner, epoch: epoch, known: map[compact.Digest]uint32{}}
	}
	if p.last < last {
		if err := tx.query(digestsOf, func(r *row) error {
			var d compact.Digest
			copy(d[:], r.Bytes(1))
			if r.fields[1].Format == 0 { // text
				copy(d[:], r.Bytes(1))
			}
			p.last = uint32(r.Int(0) & (1<<partBits - 1))
			p.known[d] = p.last
			return nil
		}, partKey(owner, p.last+1), partKey(owner, last)); err != nil {
			return nil, err
		}
	}
	tx.lists[t] = p
	return p, nil
}

// keeper implements compact.Keeper on the parts of a thread. It collects new parts for one insert.
type keeper struct {
	parts   *threadParts
	numbers []int64
	digests [][]byte
	data    [][]byte
}

// Keep returns the number of the part with a digest, adding it if it is new.
func (k *keeper) Keep(d compact.Digest, data []byte) (uint32, error) {
	p := k.parts
	if n, ok := p.known[d]; ok {
		return n, nil
	}
	if p.last+1 == 1<<partBits {
		return 0, fmt.Errorf("the thread has reached the limit of %d list items", p.last)
	}
	p.last++
	p.known[d] = p.last
	k.numbers, k.digests, k.data = append(k.numbers, partKey(p.owner, p.last)), append(k.digests, bytes.Clone(d[:])), append(k.data, data)
	return p.last, nil
}

const insertBlob = `INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`

// mayCut reports whether a value may be stored by parts, without parsing it.
func (tx *Tx) mayCut(b *checkpointer.Blob) bool {
	if tx.store.lists.plain {
		return false
	}
	return b.Items != nil || b.Type == jsonplus.TypeMsgpack && len(b.Data) >= compact.LeastSize && isArray(b.Data[0])
}

// putBlob stores the value of a channel at a version that the thread does not have.
func (tx *Tx) putBlob(t id.Thread, ns string, b *checkpointer.Blob) error {
	typ, data := b.Type, b.Bytes()
	if !tx.store.lists.plain && typ == jsonplus.TypeMsgpack && len(data) >= compact.LeastSize && isArray(data[0]) {
		p, err := tx.parts(t)
		if err != nil {
			return fmt.Errorf("parts of thread %s: %w", t, err)
		}
		k := &keeper{parts: p}
		value, ok, err := compact.Encode(data, k, &p.value)
		if err != nil {
			return err
		}
		if len(k.numbers) > 0 {
			if err := tx.exec(insertParts, k.numbers, k.digests, k.data); err != nil {
				return err
			}
		}
		if ok {
			typ, data = typeList, value
		}
	}
	return tx.exec(insertBlob, t, ns, b.Channel, b.Version, typ, data)
}

// isArray reports whether msgpack that begins with c is an array.
func isArray(c byte) bool { return c >= 0x90 && c <= 0x9f || c == 0xdc || c == 0xdd }

// deleteLists deletes all parts of a thread: one range of keys.
func (tx *Tx) deleteLists(t id.Thread) error {
	tx.store.lists.take(t)
	delete(tx.lists, t)
	if err := tx.exec("DELETE FROM list_parts p USING list_owners o WHERE o.thread_id = $1 AND p.part > o.owner << 28 AND p.part < (o.owner + 1) << 28", t); err != nil {
		return err
	}
	return tx.exec("DELETE FROM list_owners WHERE thread_id = $1", t)
}

// sweep deletes parts of deleted lists that no remaining list of the thread names. It reads the
// rows of lists, which are ranges, and chunks, but no parts.
func (tx *Tx) sweep(t id.Thread, gone compact.Set) error {
	if len(gone) == 0 {
		return nil
	}
	var values [][]byte
	if err := tx.query(relational.ListsOf.Postgres, func(r *row) error {
		values = append(values, r.Bytes(3))
		return nil
	}, t); err != nil {
		return fmt.Errorf("lists of thread %s: %w", t, err)
	}
	l := newLoader(tx, t)
	var used compact.Set
	if err := l.named(values, &used); err != nil {
		return fmt.Errorf("lists of thread %s: %w", t, err)
	}
	gone.Remove(used)
	owner, found, err := findOwner(tx, t)
	if err != nil || !found {
		return err
	}
	for _, r := range gone.Runs() {
		if err := tx.exec(deleteParts, partKey(owner, r.First), partKey(owner, r.First+r.Count-1)); err != nil {
			return fmt.Errorf("lists of thread %s: %w", t, err)
		}
	}
	tx.store.lists.take(t)
	delete(tx.lists, t)
	return tx.exec(newEpoch, owner)
}

// findOwner returns the owner number of a thread's parts.
func findOwner(q querier, t id.Thread) (owner int64, found bool, err error) {
	found, err = one(q, "SELECT owner FROM list_owners WHERE thread_id = $1", func(r *row) error {
		owner = r.Int(0)
		return nil
	}, t)
	if err != nil {
		err = fmt.Errorf("owner of lists of thread %s: %w", t, err)
	}
	return owner, found, err
}

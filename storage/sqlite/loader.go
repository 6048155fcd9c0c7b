package sqlite

import (
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/internal/jsonplus"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/seal"
)

// loader adds values and writes to tuples of one thread. Values, and parts of lists, that several
// checkpoints share are loaded once.
type loader struct {
	conn   *sqlite.Conn
	thread id.Thread
	blobs  map[blobKey]*checkpointer.Blob // a nil entry: no such row

	owner int64             // of the thread's parts; 0: not read yet
	parts map[uint32][]byte // by number
	arena []byte            // memory for the next parts

	bounded, begun bool // begun: the first tuple was filled
	room           int  // bytes that tuples after the first may still add, if bounded
}

// blobKey identifies a channel value of the thread.
type blobKey struct {
	ns string
	rows.ChannelVersion
}

func newLoader(c *sqlite.Conn, t id.Thread) *loader {
	return &loader{conn: c, thread: t, blobs: map[blobKey]*checkpointer.Blob{}}
}

// bound bounds what tuples after the first add: see checkpointer.List.Bytes. <= 0: no bound.
func (l *loader) bound(bytes int) { l.bounded, l.room = bytes > 0, bytes }

// errBound: a value does not fit into the bound.
var errBound = errors.New("the bound is reached")

// take counts bytes that are about to be loaded.
func (l *loader) take(n int) error {
	if !l.bounded || !l.begun {
		return nil
	}
	if l.room -= n; l.room < 0 {
		return errBound
	}
	return nil
}

// fill loads the values and writes of a checkpoint.
func (l *loader) fill(t *checkpointer.Tuple) error {
	err := l.take(len(t.Data) + len(t.Metadata) + len(t.Tasks))
	if err == nil {
		err = l.load(t)
	}
	if l.begun = true; errors.Is(err, errBound) {
		checkpointer.Leave(t)
		return nil
	}
	return err
}

func (l *loader) load(t *checkpointer.Tuple) error {
	versions, err := rows.ChannelVersions(t.Data)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", t.ID, err)
	}
	t.Blobs = make([]checkpointer.Blob, 0, len(versions))
	for _, v := range versions {
		b, err := l.blob(blobKey{t.NS, v})
		if err != nil {
			return fmt.Errorf("checkpoint %s: channel %s: %w", t.ID, v.Channel, err)
		}
		if b != nil {
			t.Blobs = append(t.Blobs, *b)
		}
	}
	return l.fillWrites(t)
}

// fillParts loads the picked values, and the writes of a checkpoint.
func (l *loader) fillParts(t *checkpointer.Tuple, picks []checkpointer.Pick) error {
	versions, err := rows.ChannelVersions(t.Data)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", t.ID, err)
	}
	for _, v := range versions {
		whole, items := checkpointer.Picked(picks, v.Channel)
		if !whole && items == nil {
			continue
		}
		b, err := l.partOf(blobKey{t.NS, v}, whole, items)
		if err != nil {
			return fmt.Errorf("checkpoint %s: channel %s: %w", t.ID, v.Channel, err)
		}
		if b != nil {
			t.Blobs = append(t.Blobs, *b)
		}
	}
	return l.fillWrites(t)
}

// partOf is blob, or of a list that is stored by its parts only the picked items.
func (l *loader) partOf(k blobKey, whole bool, picks []checkpointer.Pick) (*checkpointer.Blob, error) {
	b, err := l.stored(k)
	if b == nil || err != nil || b.Type != typeList {
		return b, err
	}
	if whole {
		return b, l.restore(b)
	}
	v, err := compact.Parse(b.Data)
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", k.Version, relational.Lost(err))
	}
	runs, err := l.runs(&v)
	if err == nil {
		b.Some, err = v.Pick(runs, relational.Positions(picks, v.Items), func(runs []compact.Run) error { return l.fetch(runs, 0) }, func(n uint32) []byte { return l.parts[n] })
	}
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", k.Version, relational.Lost(err))
	}
	b.Type, b.Data, b.Length = jsonplus.TypeMsgpack, nil, v.Items
	return b, nil
}

// fillWrites adds the writes on a checkpoint.
func (l *loader) fillWrites(t *checkpointer.Tuple) error {
	return query(l.conn, selectWrites, func(s *sqlite.Stmt) error {
		if err := l.take(s.ColumnLen(4)); err != nil {
			return err
		}
		t.Writes = append(t.Writes, checkpointer.Write{
			TaskID:  s.ColumnText(0),
			Index:   s.ColumnInt(1),
			Channel: s.ColumnText(2),
			Type:    s.ColumnText(3),
			Data:    columnBytes(s, 4),
			Path:    s.ColumnText(5),
		})
		return nil
	}, t.Thread, t.NS, t.ID)
}

// blob returns a channel value, or nil if there is none. Lists are returned by item.
func (l *loader) blob(k blobKey) (*checkpointer.Blob, error) {
	if b, ok := l.blobs[k]; ok {
		return b, nil
	}
	b, err := l.stored(k)
	if err == nil && b != nil && b.Type == typeList {
		err = l.restore(b)
	}
	if err != nil {
		return nil, err
	}
	l.blobs[k] = b
	return b, nil
}

// stored returns the row of a channel value, or nil if there is none.
func (l *loader) stored(k blobKey) (b *checkpointer.Blob, err error) {
	_, err = one(l.conn, selectBlob, func(s *sqlite.Stmt) error {
		if err := l.take(s.ColumnLen(1)); err != nil {
			return err
		}
		b = &checkpointer.Blob{Channel: k.Channel, Version: k.Version, Type: s.ColumnText(0), Data: columnBytes(s, 1)}
		return nil
	}, l.thread, k.ns, k.Channel, k.Version)
	return b, err
}

// restore sets the items of a list that is stored by its parts.
func (l *loader) restore(b *checkpointer.Blob) (err error) {
	if b.Items, err = l.list(b.Data); err != nil {
		return fmt.Errorf("version %s: %w", b.Version, relational.Lost(err))
	}
	b.Type, b.Data = jsonplus.TypeMsgpack, nil
	return nil
}

// list returns the items of a list that is stored by its parts.
func (l *loader) list(value []byte) ([][]byte, error) {
	v, err := compact.Parse(value)
	if err != nil {
		return nil, err
	}
	runs, err := l.runs(&v)
	if err != nil {
		return nil, err
	}
	if l.bounded && l.begun {
		if err := l.take(l.missing(&v, runs)); err != nil {
			return nil, err
		}
	}
	if err := l.fetch(runs, v.Size); err != nil {
		return nil, err
	}
	return v.Restore(runs, func(n uint32) []byte { return l.parts[n] })
}

// missing returns the bytes of those parts of a list that were not loaded before.
func (l *loader) missing(v *compact.Value, runs []compact.Run) int {
	n := v.Size - len(v.Tail)
	for _, r := range runs {
		for i := range r.Count {
			n -= len(l.parts[r.First+i])
		}
	}
	return max(0, n)
}

// runs returns the parts of a list in order, those named by its chunks included.
func (l *loader) runs(v *compact.Value) ([]compact.Run, error) {
	if len(v.Chunks) == 0 {
		return v.Parts, nil
	}
	if err := l.fetch(v.Chunks, 0); err != nil {
		return nil, err
	}
	var runs []compact.Run
	for _, r := range v.Chunks {
		for n := r.First; n-r.First < r.Count; n++ {
			chunk, ok := l.parts[n]
			if !ok {
				return nil, fmt.Errorf("%w: chunk %d is missing", compact.ErrMissing, n)
			}
			more, err := compact.ParseChunk(chunk)
			if err != nil {
				return nil, fmt.Errorf("chunk %d: %w", n, err)
			}
			runs = append(runs, more...)
		}
	}
	return append(runs, v.Parts...), nil
}

// named adds all parts of a list to set, its chunks included.
func (l *loader) named(value []byte, set *compact.Set) error {
	v, err := compact.Parse(value)
	if err != nil {
		return err
	}
	runs, err := l.runs(&v)
	set.Add(v.Chunks)
	set.Add(runs)
	return err
}

// nearby is the largest gap between parts that are read together: skipping a row costs less than
// another lookup.
const nearby = 16

// fetch loads the parts that are not loaded yet, in few ranges. size is about the number of their
// bytes.
func (l *loader) fetch(runs []compact.Run, size int) error {
	if l.parts == nil {
		l.parts = map[uint32][]byte{}
	}
	var wanted compact.Set
	var first, last uint32 // of what is to be read next; 0: nothing
	flush := func() (err error) {
		if first != 0 {
			err = l.read(first, last, size)
		}
		first = 0
		return err
	}
	for _, r := range runs {
		for n := r.First; n-r.First < r.Count; n++ {
			if _, ok := l.parts[n]; ok {
				continue
			}
			wanted.Add([]compact.Run{{First: n, Count: 1}})
		}
	}
	for _, r := range wanted.Runs() {
		if first != 0 && r.First-last <= nearby {
			last = r.First + r.Count - 1
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		first, last = r.First, r.First+r.Count-1
	}
	return flush()
}

// read loads the parts of a range.
func (l *loader) read(first, last uint32, size int) error {
	if l.owner == 0 {
		owner, found, err := findOwner(l.conn, l.thread)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%w: the thread has no parts of lists", compact.ErrMissing)
		}
		l.owner = owner
	}
	// Many parts share one piece of memory. A list keeps the whole piece alive, so pieces are no
	// larger than a usual list.
	const least, most = 4 << 10, 1 << 20
	return query(l.conn, selectParts, func(s *sqlite.Stmt) error {
		n := s.ColumnLen(1)
		if cap(l.arena)-len(l.arena) < n {
			l.arena = make([]byte, 0, max(n, least, min(size, most)))
		}
		at := len(l.arena)
		l.arena = l.arena[:at+n]
		data := l.arena[at : at+n : at+n]
		s.ColumnBytes(1, data)
		l.parts[uint32(s.ColumnInt64(0)&(1<<partBits-1))] = seal.Open(data)
		return nil
	}, partKey(l.owner, first), partKey(l.owner, last))
}

package postgres

import (
	"errors"
	"fmt"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/internal/jsonplus"
	"understudy/storage/internal/rows"
)

// loader fills tuples with what belongs to them. What did not change between checkpoints is loaded once and shared: values,
// and of lists their parts. It asks for what many tuples need at once.
type loader struct {
	q      querier
	thread id.Thread
	blobs  map[blobKey]*checkpointer.Blob // nil: there is no such row

	owner int64             // of the thread's parts; 0: not looked up
	parts map[uint32][]byte // by number
}

type blobKey struct {
	ns string
	rows.ChannelVersion
}

func newLoader(q querier, t id.Thread) *loader {
	return &loader{q: q, thread: t, blobs: map[blobKey]*checkpointer.Blob{}, parts: map[uint32][]byte{}}
}

const (
	selectBlobs = "SELECT b.checkpoint_ns, b.channel, b.version, b.type, b.blob FROM unnest($2::text[], $3::text[], $4::text[]) AS w (ns, channel, version) " +
		"JOIN checkpoint_blobs b ON b.thread_id = $1 AND b.checkpoint_ns = w.ns AND b.channel = w.channel AND b.version = w.version"
	writeColumns = "w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.channel, coalesce(w.type, ''), w.blob, w.task_path"
	selectWrites = "SELECT " + writeColumns + " " +
		"FROM unnest($2::text[], $3::text[]) AS k (ns, id) JOIN checkpoint_writes w ON w.thread_id = $1 AND w.checkpoint_ns = k.ns AND w.checkpoint_id = k.id " +
		"ORDER BY w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx"
)

// fill adds values and writes to tuples of the thread.
func (l *loader) fill(tuples ...*checkpointer.Tuple) error {
	keys := make([][]blobKey, len(tuples))
	var wanted []blobKey
	for i, t := range tuples {
		versions, err := rows.ChannelVersions(t.Data)
		if err != nil {
			return fmt.Errorf("checkpoint %s: %w", t.ID, err)
		}
		for _, v := range versions {
			keys[i] = append(keys[i], blobKey{t.NS, v})
		}
		wanted = append(wanted, keys[i]...)
	}
	askWrites(l.q, l.thread, tuples)
	if err := l.load(wanted); err != nil {
		return err
	}
	for i, t := range tuples {
		t.Blobs = make([]checkpointer.Blob, 0, len(keys[i]))
		for _, k := range keys[i] {
			if b := l.blobs[k]; b != nil {
				t.Blobs = append(t.Blobs, *b)
			}
		}
	}
	return nil
}

// askWrites asks for the writes on checkpoints of a thread, with the query that is sent next.
func askWrites(q querier, thread id.Thread, tuples []*checkpointer.Tuple) {
	type key struct{ ns, id string }
	of := map[key]*checkpointer.Tuple{}
	var spaces, ids []string
	for _, t := range tuples {
		of[key{t.NS, string(t.ID)}] = t
		spaces, ids = append(spaces, t.NS), append(ids, string(t.ID))
	}
	q.ask(selectWrites, func(r *row) error {
		if t := of[key{r.Text(0), r.Text(1)}]; t != nil {
			t.Writes = append(t.Writes, scanWrite(r))
		}
		return nil
	}, thread, spaces, ids)
}

func scanWrite(r *row) checkpointer.Write {
	return checkpointer.Write{TaskID: r.Text(2), Index: int(r.Int(3)), Channel: r.Text(4), Type: r.Text(5), Data: r.Bytes(6), Path: r.Text(7)}
}

func (l *loader) blob(k blobKey) (*checkpointer.Blob, error) {
	if err := l.load([]blobKey{k}); err != nil {
		return nil, err
	}
	return l.blobs[k], nil
}

// load makes blobs known. It sends what was asked before.
func (l *loader) load(wanted []blobKey) error {
	var spaces, channels, versions []string
	for _, k := range wanted {
		if _, known := l.blobs[k]; !known {
			l.blobs[k] = nil
			spaces, channels, versions = append(spaces, k.ns), append(channels, k.Channel), append(versions, k.Version)
		}
	}
	type list struct {
		blob  *checkpointer.Blob
		value compact.Value
		runs  []compact.Run
	}
	var lists []list
	if spaces != nil {
		l.q.ask(selectBlobs, func(r *row) error {
			b := &checkpointer.Blob{Channel: r.Text(1), Version: r.Text(2), Type: r.Text(3), Data: r.Bytes(4)}
			l.blobs[blobKey{r.Text(0), rows.ChannelVersion{Channel: b.Channel, Version: b.Version}}] = b
			if b.Type != typeList {
				return nil
			}
			value, err := compact.Parse(b.Data)
			lists = append(lists, list{blob: b, value: value})
			return err
		}, l.thread, spaces, channels, versions)
	}
	if err := l.q.send(); err != nil || lists == nil {
		return err
	}
	var chunks, parts []compact.Run
	for _, v := range lists {
		chunks = append(chunks, v.value.Chunks...)
	}
	if err := l.fetch(chunks); err != nil {
		return err
	}
	for i := range lists {
		v := &lists[i]
		var err error
		if v.runs, err = l.runs(&v.value); err != nil {
			return fmt.Errorf("channel %s: version %s: %w", v.blob.Channel, v.blob.Version, err)
		}
		parts = append(parts, v.runs...)
	}
	if err := l.fetch(parts); err != nil {
		return err
	}
	for _, v := range lists {
		items, err := v.value.Restore(v.runs, func(n uint32) []byte { return l.parts[n] })
		if err != nil {
			return fmt.Errorf("channel %s: version %s: %w", v.blob.Channel, v.blob.Version, err)
		}
		v.blob.Type, v.blob.Data, v.blob.Items = jsonplus.TypeMsgpack, nil, items
	}
	return nil
}

// runs gives the parts of a list in its order, those that its chunks name included. The chunks are loaded.
func (l *loader) runs(v *compact.Value) ([]compact.Run, error) {
	var runs []compact.Run
	for _, r := range v.Chunks {
		for n := r.First; n-r.First < r.Count; n++ {
			chunk, ok := l.parts[n]
			if !ok {
				return nil, fmt.Errorf("chunk %d is missing", n)
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

// named adds to a set all parts that lists are made of, chunks included.
func (l *loader) named(values [][]byte, set *compact.Set) error {
	parsed := make([]compact.Value, len(values))
	var chunks []compact.Run
	for i, value := range values {
		v, err := compact.Parse(value)
		if err != nil {
			return err
		}
		parsed[i] = v
		chunks = append(chunks, v.Chunks...)
	}
	if err := l.fetch(chunks); err != nil {
		return err
	}
	for i := range parsed {
		runs, err := l.runs(&parsed[i])
		if err != nil {
			return err
		}
		set.Add(parsed[i].Chunks)
		set.Add(runs)
	}
	return nil
}

// fetchSize bounds how many parts are asked for at once.
const fetchSize = 8192

// fetch loads parts that were not loaded before.
func (l *loader) fetch(runs []compact.Run) error {
	var wanted []int64
	asked := map[uint32]bool{}
	for _, r := range runs {
		for n := r.First; n-r.First < r.Count; n++ {
			if _, ok := l.parts[n]; !ok && !asked[n] {
				asked[n] = true
				wanted = append(wanted, int64(n))
			}
		}
	}
	if wanted == nil {
		return nil
	}
	if l.owner == 0 {
		owner, found, err := findOwner(l.q, l.thread)
		if err != nil {
			return err
		}
		if !found {
			return errors.New("the thread has no parts of lists")
		}
		l.owner = owner
	}
	for i := range wanted {
		wanted[i] = partKey(l.owner, uint32(wanted[i]))
	}
	for len(wanted) > 0 {
		n := min(len(wanted), fetchSize)
		l.q.ask(selectParts, func(r *row) error {
			l.parts[uint32(r.Int(0)&(1<<partBits-1))] = r.Bytes(1)
			return nil
		}, wanted[:n:n])
		wanted = wanted[n:]
	}
	return l.q.send()
}

package checkpointer

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"understudy/id"
)

// Memory holds checkpoints in memory, for programs that run graphs without a server, and for tests. It is a graph.Saver, a Reader and a Tx: every call is
// a transaction. The zero value is ready to use. It is safe for concurrent use; rows that it returns must not be modified.
type Memory struct {
	mu      sync.RWMutex
	rows    map[id.Thread]map[Key]*Tuple // without blobs
	heads   map[Key]id.Checkpoint        // the newest of each namespace; keys without an ID
	blobs   map[blobKey]Blob
	shapes  map[string]Shape
	answers map[answerAt]json.RawMessage
}

type (
	blobKey struct {
		thread               id.Thread
		ns, channel, version string
	}
	answerAt struct {
		Key
		about string
	}
)

var (
	_ Reader     = (*Memory)(nil)
	_ HeadReader = (*Memory)(nil)
	_ Tx         = (*Memory)(nil)
)

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{} }

// Save is one save of a graph: a checkpoint, or writes of tasks on one.
type Save struct {
	Put    *Put // nil: Writes on At
	At     Key
	Writes []Write
	// Words is the text of a summary that the graph reported since the previous save; "" when none. A graph that condenses its messages
	// may report it by a root `custom` event {"type": "summarization", "summary": "…", "replaced_count": n}; this text takes precedence
	// over that of the checkpoints.
	Words string
}

// Load implements graph.Saver.
func (m *Memory) Load(ctx context.Context, k Key) (*Tuple, error) { return m.LoadCheckpoint(ctx, k) }

// List implements graph.Saver.
func (m *Memory) List(ctx context.Context, q List) ([]*Tuple, error) {
	return m.ListCheckpoints(ctx, q)
}

// Save implements graph.Saver.
func (m *Memory) Save(_ context.Context, saves ...Save) error {
	for _, s := range saves {
		var err error
		if s.Put != nil {
			err = m.PutCheckpoint(s.Put)
		} else {
			err = m.PutWrites(s.At, s.Writes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// set stores a row. The caller holds m.mu.
func (m *Memory) set(t *Tuple) {
	of := m.rows[t.Thread]
	if of == nil {
		of = map[Key]*Tuple{}
		m.rows[t.Thread] = of
	}
	of[t.Key] = t
	space := Key{Thread: t.Thread, NS: t.NS}
	m.heads[space] = max(m.heads[space], t.ID)
}

// remove deletes rows of a thread. The caller holds m.mu.
func (m *Memory) remove(t id.Thread, unwanted func(*Tuple) bool) {
	for k, row := range m.rows[t] {
		if unwanted(row) {
			delete(m.rows[t], k)
			delete(m.heads, Key{Thread: t, NS: k.NS})
		}
	}
	for k := range m.rows[t] {
		space := Key{Thread: t, NS: k.NS}
		m.heads[space] = max(m.heads[space], k.ID)
	}
}

// PutCheckpoint implements Tx.
func (m *Memory) PutCheckpoint(p *Put) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rows == nil {
		m.rows, m.heads, m.blobs = map[id.Thread]map[Key]*Tuple{}, map[Key]id.Checkpoint{}, map[blobKey]Blob{}
		m.shapes, m.answers = map[string]Shape{}, map[answerAt]json.RawMessage{}
	}
	t := &Tuple{Checkpoint: p.Checkpoint}
	if old := m.rows[p.Thread][p.Key]; old != nil {
		t.Writes = old.Writes
	}
	m.set(t)
	for _, b := range p.Blobs {
		k := blobKey{p.Thread, p.NS, b.Channel, b.Version}
		if _, ok := m.blobs[k]; !ok {
			m.blobs[k] = b
		}
	}
	if p.ShapeJSON != nil {
		m.shapes[p.Shape] = p.ShapeJSON
	}
	return nil
}

// PutWrites implements Tx. Writes on an unknown checkpoint are dropped.
func (m *Memory) PutWrites(k Key, writes []Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.rows[k.Thread][k]
	if old == nil {
		return nil
	}
	t := *old
	t.Writes = slices.Clone(old.Writes)
	for _, w := range writes {
		at := slices.IndexFunc(t.Writes, func(o Write) bool { return o.TaskID == w.TaskID && o.Index == w.Index })
		switch {
		case at < 0:
			t.Writes = append(t.Writes, w)
		case w.Index < 0:
			t.Writes[at] = w
		}
	}
	slices.SortStableFunc(t.Writes, func(a, b Write) int {
		return cmp.Or(strings.Compare(a.TaskID, b.TaskID), cmp.Compare(a.Index, b.Index))
	})
	m.set(&t)
	return nil
}

// DeleteRunCheckpoints implements Tx.
func (m *Memory) DeleteRunCheckpoints(t id.Thread, r id.Run, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(t, func(row *Tuple) bool { return row.Run == r })
	return nil
}

// Lose removes the checkpoints of a thread that are newer than last, like a crash before their commit, and if writes is set also the
// writes on the root checkpoint last.
func (m *Memory) Lose(t id.Thread, last id.Checkpoint, writes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(t, func(row *Tuple) bool { return row.ID > last })
	used := map[blobKey]bool{}
	for k, row := range m.rows[t] {
		if writes && k.ID == last && k.NS == "" {
			kept := *row
			kept.Writes = nil
			m.set(&kept)
		}
		for _, b := range m.whole(row).Blobs {
			used[blobKey{k.Thread, k.NS, b.Channel, b.Version}] = true
		}
	}
	for k := range m.blobs {
		if k.thread == t && !used[k] {
			delete(m.blobs, k)
		}
	}
}

// Head implements Tx.
func (m *Memory) Head(t id.Thread) (*Tuple, error) {
	return m.LoadHead(context.Background(), Key{Thread: t})
}

// find returns a row: the newest of its namespace when k.ID is empty.
func (m *Memory) find(k Key) *Tuple {
	if k.ID == "" {
		k.ID = m.heads[Key{Thread: k.Thread, NS: k.NS}]
	}
	return m.rows[k.Thread][Key{Thread: k.Thread, NS: k.NS, ID: k.ID}]
}

// whole returns a row with its blobs.
func (m *Memory) whole(row *Tuple) *Tuple {
	t := *row
	var data struct {
		Versions map[string]json.RawMessage `json:"channel_versions"`
	}
	if json.Unmarshal(t.Data, &data) != nil {
		return &t
	}
	for channel, raw := range data.Versions {
		version := string(raw)
		var text string
		if json.Unmarshal(raw, &text) == nil {
			version = text
		}
		if b, ok := m.blobs[blobKey{t.Thread, t.NS, channel, version}]; ok {
			t.Blobs = append(t.Blobs, b)
		}
	}
	return &t
}

// LoadCheckpoint implements Reader.
func (m *Memory) LoadCheckpoint(_ context.Context, k Key) (*Tuple, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if row := m.find(k); row != nil {
		return m.whole(row), nil
	}
	return nil, nil
}

// LoadHead implements HeadReader.
func (m *Memory) LoadHead(_ context.Context, k Key) (*Tuple, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.find(k), nil
}

// ListCheckpoints implements Reader.
func (m *Memory) ListCheckpoints(_ context.Context, q List) ([]*Tuple, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []*Tuple
	for k, row := range m.rows[q.Thread] {
		if (q.NS == nil || k.NS == *q.NS) && (q.Before == "" || k.ID < q.Before) && (q.ID == "" || k.ID == q.ID) && contains(row.Metadata, q.Metadata) {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b *Tuple) int {
		return cmp.Or(strings.Compare(string(b.ID), string(a.ID)), strings.Compare(a.NS, b.NS))
	})
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	var load Load
	room := q.Bytes
	for i, row := range out {
		if q.Keys {
			out[i] = &Tuple{Checkpoint: Checkpoint{Key: row.Key}}
			continue
		}
		out[i] = m.whole(row)
		if adds := load.Add(out[i]); q.Bytes > 0 && i > 0 {
			if room -= adds; room < 0 {
				Leave(out[i])
				return out[:i+1], nil
			}
		}
	}
	return out, nil
}

// contains reports whether an object has all fields of another, recursively.
func contains(object, fields json.RawMessage) bool {
	if len(fields) == 0 {
		return true
	}
	var o, f any
	return json.Unmarshal(object, &o) == nil && json.Unmarshal(fields, &f) == nil && holds(o, f)
}

func holds(value, want any) bool {
	w, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(value, want)
	}
	v, ok := value.(map[string]any)
	for k := range w {
		if !ok || !holds(v[k], w[k]) {
			return false
		}
	}
	return ok
}

// LoadShape implements Reader.
func (m *Memory) LoadShape(_ context.Context, digest string) (Shape, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.shapes[digest], nil
}

// LoadAnswer implements Reader.
func (m *Memory) LoadAnswer(_ context.Context, k Key, key string) (json.RawMessage, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.answers[answerAt{k, key}], nil
}

// KeepAnswer implements Reader. An answer about an unknown checkpoint is dropped.
func (m *Memory) KeepAnswer(_ context.Context, k Key, key string, answer json.RawMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rows[k.Thread][k] != nil {
		m.answers[answerAt{k, key}] = answer
	}
	return nil
}

// Package checkpointertest has checkpoints in memory, for tests that read or write them.
package checkpointertest

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"understudy/checkpointer"
	"understudy/id"
)

// Memory holds checkpoints in memory. It is both a checkpointer.Reader and a checkpointer.Tx: every call is a transaction.
// The zero value is ready to use. It is safe for concurrent use; rows that it returns must not be modified.
type Memory struct {
	mu      sync.RWMutex
	rows    map[checkpointer.Key]*checkpointer.Tuple // without blobs
	blobs   map[blobKey]checkpointer.Blob
	shapes  map[string]checkpointer.Shape
	answers map[answerKey]json.RawMessage
}

type (
	blobKey struct {
		thread               id.Thread
		ns, channel, version string
	}
	answerKey struct {
		checkpointer.Key
		about string
	}
)

var (
	_ checkpointer.Reader     = (*Memory)(nil)
	_ checkpointer.HeadReader = (*Memory)(nil)
	_ checkpointer.Tx         = (*Memory)(nil)
)

// PutCheckpoint implements checkpointer.Tx.
func (m *Memory) PutCheckpoint(p *checkpointer.Put) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rows == nil {
		m.rows, m.blobs = map[checkpointer.Key]*checkpointer.Tuple{}, map[blobKey]checkpointer.Blob{}
		m.shapes, m.answers = map[string]checkpointer.Shape{}, map[answerKey]json.RawMessage{}
	}
	t := &checkpointer.Tuple{Checkpoint: p.Checkpoint}
	if old := m.rows[p.Key]; old != nil {
		t.Writes = old.Writes
	}
	m.rows[p.Key] = t
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

// PutWrites implements checkpointer.Tx. Writes on an unknown checkpoint are dropped.
func (m *Memory) PutWrites(k checkpointer.Key, writes []checkpointer.Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.rows[k]
	if old == nil {
		return nil
	}
	t := *old
	t.Writes = slices.Clone(old.Writes)
	for _, w := range writes {
		at := slices.IndexFunc(t.Writes, func(o checkpointer.Write) bool { return o.TaskID == w.TaskID && o.Index == w.Index })
		switch {
		case at < 0:
			t.Writes = append(t.Writes, w)
		case w.Index < 0:
			t.Writes[at] = w
		}
	}
	slices.SortStableFunc(t.Writes, func(a, b checkpointer.Write) int {
		return cmp.Or(strings.Compare(a.TaskID, b.TaskID), cmp.Compare(a.Index, b.Index))
	})
	m.rows[k] = &t
	return nil
}

// DeleteRunCheckpoints implements checkpointer.Tx.
func (m *Memory) DeleteRunCheckpoints(t id.Thread, r id.Run, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, row := range m.rows {
		if k.Thread == t && row.Run == r {
			delete(m.rows, k)
		}
	}
	return nil
}

// Lose removes the checkpoints of a thread that are newer than last, like a crash before their commit, and if writes is set also the
// writes on the root checkpoint last.
func (m *Memory) Lose(t id.Thread, last id.Checkpoint, writes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := map[blobKey]bool{}
	for k, row := range m.rows {
		switch {
		case k.Thread != t:
		case k.ID > last:
			delete(m.rows, k)
			continue
		case writes && k.ID == last && k.NS == "":
			kept := *row
			kept.Writes = nil
			m.rows[k] = &kept
		}
		for _, b := range m.whole(row).Blobs {
			used[blobKey{k.Thread, k.NS, b.Channel, b.Version}] = true
		}
	}
	for k := range m.blobs {
		if !used[k] {
			delete(m.blobs, k)
		}
	}
}

// CopyCheckpoints implements checkpointer.Tx.
func (m *Memory) CopyCheckpoints(from, to id.Thread) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, row := range m.rows {
		if k.Thread != from {
			continue
		}
		t := *row
		t.Thread = to
		var meta map[string]any
		if json.Unmarshal(row.Metadata, &meta) == nil && meta["thread_id"] != nil {
			meta["thread_id"] = to
			t.Metadata, _ = json.Marshal(meta)
		}
		m.rows[t.Key] = &t
	}
	for k, b := range m.blobs {
		if k.thread == from {
			k.thread = to
			m.blobs[k] = b
		}
	}
	return nil
}

// Head implements checkpointer.Tx.
func (m *Memory) Head(t id.Thread) (*checkpointer.Tuple, error) {
	return m.LoadHead(context.Background(), checkpointer.Key{Thread: t})
}

// find returns a row: the newest of its namespace when k.ID is empty.
func (m *Memory) find(k checkpointer.Key) *checkpointer.Tuple {
	if k.ID != "" {
		return m.rows[k]
	}
	var head *checkpointer.Tuple
	for at, row := range m.rows {
		if at.Thread == k.Thread && at.NS == k.NS && (head == nil || at.ID > head.ID) {
			head = row
		}
	}
	return head
}

// whole returns a row with its blobs.
func (m *Memory) whole(row *checkpointer.Tuple) *checkpointer.Tuple {
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

// LoadCheckpoint implements checkpointer.Reader.
func (m *Memory) LoadCheckpoint(_ context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if row := m.find(k); row != nil {
		return m.whole(row), nil
	}
	return nil, nil
}

// LoadHead implements checkpointer.HeadReader.
func (m *Memory) LoadHead(_ context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.find(k), nil
}

// ListCheckpoints implements checkpointer.Reader.
func (m *Memory) ListCheckpoints(_ context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []*checkpointer.Tuple
	for k, row := range m.rows {
		if k.Thread == q.Thread && (q.NS == nil || k.NS == *q.NS) && (q.Before == "" || k.ID < q.Before) && (q.ID == "" || k.ID == q.ID) && contains(row.Metadata, q.Metadata) {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b *checkpointer.Tuple) int {
		return cmp.Or(strings.Compare(string(b.ID), string(a.ID)), strings.Compare(a.NS, b.NS))
	})
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	var load checkpointer.Load
	room := q.Bytes
	for i, row := range out {
		if q.Keys {
			out[i] = &checkpointer.Tuple{Checkpoint: checkpointer.Checkpoint{Key: row.Key}}
			continue
		}
		out[i] = m.whole(row)
		if adds := load.Add(out[i]); q.Bytes > 0 && i > 0 {
			if room -= adds; room < 0 {
				checkpointer.Leave(out[i])
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

// LoadShape implements checkpointer.Reader.
func (m *Memory) LoadShape(_ context.Context, digest string) (checkpointer.Shape, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.shapes[digest], nil
}

// LoadAnswer implements checkpointer.Reader.
func (m *Memory) LoadAnswer(_ context.Context, k checkpointer.Key, key string) (json.RawMessage, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.answers[answerKey{k, key}], nil
}

// KeepAnswer implements checkpointer.Reader. An answer about an unknown checkpoint is dropped.
func (m *Memory) KeepAnswer(_ context.Context, k checkpointer.Key, key string, answer json.RawMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rows[k] != nil {
		m.answers[answerKey{k, key}] = answer
	}
	return nil
}

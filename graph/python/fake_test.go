package python_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
)

// memory is a graph.Saver and graph.Store that keeps rows as a database would.
type memory struct {
	mu     sync.Mutex
	rows   map[checkpointer.Key]*checkpointer.Put
	order  []checkpointer.Key
	blobs  map[string]checkpointer.Blob // thread, ns, channel, version
	writes map[checkpointer.Key]map[string]checkpointer.Write
	items  map[string]*graph.StoreItem

	beforePut func(*checkpointer.Put) error // called outside the lock
	onSave    func([]graph.Save)            // the same
	calls     int
	saves     []int // how many there were in each call of Save
}

// shapes is shared, because a worker sends each shape once, even if it serves several memories.
var shapes sync.Map

func newMemory() *memory {
	return &memory{
		rows: map[checkpointer.Key]*checkpointer.Put{}, blobs: map[string]checkpointer.Blob{},
		writes: map[checkpointer.Key]map[string]checkpointer.Write{}, items: map[string]*graph.StoreItem{},
	}
}

func blobKey(t id.Thread, ns, channel, version string) string {
	return strings.Join([]string{string(t), ns, channel, version}, "\x00")
}

// Save is not undone by its failure, as that of a database would be.
func (m *memory) Save(_ context.Context, saves ...graph.Save) error {
	m.mu.Lock()
	m.saves = append(m.saves, len(saves))
	m.mu.Unlock()
	if m.onSave != nil {
		m.onSave(saves)
	}
	for _, sv := range saves {
		if sv.Put == nil {
			m.putWrites(sv.At, sv.Writes)
		} else if err := m.put(sv.Put); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) put(p *checkpointer.Put) error {
	if m.beforePut != nil {
		if err := m.beforePut(p); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if _, ok := m.rows[p.Key]; !ok {
		m.order = append(m.order, p.Key)
	}
	m.rows[p.Key] = p
	for _, b := range p.Blobs {
		k := blobKey(p.Thread, p.NS, b.Channel, b.Version)
		if _, ok := m.blobs[k]; !ok {
			m.blobs[k] = b
		}
	}
	if p.ShapeJSON != nil {
		shapes.Store(p.Shape, p.ShapeJSON)
	}
	if _, ok := shapes.Load(p.Shape); !ok && p.Shape != "" {
		return fmt.Errorf("shape %s was never spelled out", p.Shape)
	}
	return nil
}

func (m *memory) putWrites(k checkpointer.Key, writes []checkpointer.Write) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	held := m.writes[k]
	if held == nil {
		held = map[string]checkpointer.Write{}
		m.writes[k] = held
	}
	for _, w := range writes {
		at := fmt.Sprintf("%s %d", w.TaskID, w.Index)
		if _, ok := held[at]; !ok || w.Index < 0 {
			held[at] = w
		}
	}
}

func (m *memory) Load(_ context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.ID == "" {
		for _, at := range m.order {
			if at.Thread == k.Thread && at.NS == k.NS && at.ID > k.ID {
				k.ID = at.ID
			}
		}
	}
	return m.tuple(k), nil
}

func (m *memory) tuple(k checkpointer.Key) *checkpointer.Tuple {
	p, ok := m.rows[k]
	if !ok {
		return nil
	}
	t := &checkpointer.Tuple{Checkpoint: p.Checkpoint}
	var data struct {
		Versions map[string]any `json:"channel_versions"`
	}
	if err := json.Unmarshal(p.Data, &data); err != nil {
		panic(err)
	}
	for channel, version := range data.Versions {
		if b, ok := m.blobs[blobKey(k.Thread, k.NS, channel, fmt.Sprint(version))]; ok {
			t.Blobs = append(t.Blobs, b)
		}
	}
	for _, w := range m.writes[k] {
		t.Writes = append(t.Writes, w)
	}
	slices.SortFunc(t.Writes, func(a, b checkpointer.Write) int {
		if c := strings.Compare(a.TaskID, b.TaskID); c != 0 {
			return c
		}
		return a.Index - b.Index
	})
	return t
}

func (m *memory) List(_ context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []checkpointer.Key
	for _, k := range m.order {
		switch {
		case q.Thread != "" && k.Thread != q.Thread, q.NS != nil && k.NS != *q.NS, q.Before != "" && k.ID >= q.Before, q.ID != "" && k.ID != q.ID:
		case q.Metadata != nil && !contains(m.rows[k].Metadata, q.Metadata):
		default:
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b checkpointer.Key) int { return strings.Compare(string(b.ID), string(a.ID)) })
	if q.Limit > 0 && len(keys) > q.Limit {
		keys = keys[:q.Limit]
	}
	var out []*checkpointer.Tuple
	for _, k := range keys {
		out = append(out, m.tuple(k))
	}
	return out, nil
}

func contains(have, want json.RawMessage) bool {
	var h, w map[string]json.RawMessage
	if json.Unmarshal(have, &h) != nil || json.Unmarshal(want, &w) != nil {
		return false
	}
	for k, v := range w {
		if !bytes.Equal(h[k], v) {
			return false
		}
	}
	return true
}

// DeleteThread makes memory a python.Deleter.
func (m *memory) DeleteThread(_ context.Context, t id.Thread) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.order = slices.DeleteFunc(m.order, func(k checkpointer.Key) bool { return k.Thread == t })
	for k := range m.rows {
		if k.Thread == t {
			delete(m.rows, k)
			delete(m.writes, k)
		}
	}
	return nil
}

// CopyThread makes memory a python.Copier.
func (m *memory) CopyThread(_ context.Context, from, to id.Thread) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.Clone(m.order) {
		if k.Thread != from {
			continue
		}
		p := *m.rows[k]
		p.Thread = to
		m.rows[p.Key] = &p
		m.order = append(m.order, p.Key)
		m.writes[p.Key] = m.writes[k]
	}
	for k, b := range m.blobs {
		if rest, ok := strings.CutPrefix(k, string(from)+"\x00"); ok {
			m.blobs[string(to)+"\x00"+rest] = b
		}
	}
	return nil
}

func (m *memory) puts(ns string) []*checkpointer.Put {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*checkpointer.Put
	for _, k := range m.order {
		if k.NS == ns {
			out = append(out, m.rows[k])
		}
	}
	return out
}

// Batch knows just enough of a store.
func (m *memory) Batch(_ context.Context, ops []graph.StoreOp) ([]graph.StoreResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]graph.StoreResult, len(ops))
	for i, op := range ops {
		switch {
		case op.Put != nil:
			at := strings.Join(op.Put.Namespace, ".") + "/" + op.Put.Key
			if op.Put.Value == nil {
				delete(m.items, at)
				break
			}
			now := time.Now()
			m.items[at] = &graph.StoreItem{Namespace: op.Put.Namespace, Key: op.Put.Key, Value: op.Put.Value, CreatedAt: now, UpdatedAt: now}
		case op.Get != nil:
			if it, ok := m.items[strings.Join(op.Get.Namespace, ".")+"/"+op.Get.Key]; ok {
				out[i].Item = it
			}
		case op.Search != nil:
			for _, at := range slices.Sorted(mapKeys(m.items)) {
				if strings.HasPrefix(at, strings.Join(op.Search.Prefix, ".")) {
					out[i].Items = append(out[i].Items, m.items[at])
				}
			}
		case op.List != nil:
			seen := map[string]bool{}
			for _, it := range m.items {
				if at := strings.Join(it.Namespace, "."); !seen[at] {
					seen[at] = true
					out[i].Namespaces = append(out[i].Namespaces, it.Namespace)
				}
			}
		}
	}
	return out, nil
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

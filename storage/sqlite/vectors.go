package sqlite

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"zombiezen.com/go/sqlite"

	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/vectors"
	"understudy/store"
)

// nearest holds the vectors of items in memory, for searches. The first search loads them; after that each commit adds its own, before its
// writers are notified. If they need too much memory, searches read them from the database each time.
type nearest struct {
	log   *slog.Logger
	limit int64 // of memory, in bytes

	mu      sync.Mutex
	model   string
	dims    int
	set     *vectors.Set     // nil: not loaded
	loading chan struct{}    // closed when a search has loaded them, or failed to; nil while none loads
	written []vectors.Change // while a search loads them
	again   bool             // what it loads may lack a commit
	over    bool             // they need too much memory
}

// vectorMemory returns how much memory vectors may use: a gigabyte, or a quarter of what Go may.
func vectorMemory() int64 { return min(1<<30, debug.SetMemoryLimit(-1)/4) }

// wrote adds the vectors of a commit. If its outcome is unknown, the next search loads all again. Only the writer calls it.
func (n *nearest) wrote(changes []vectors.Change, outcome error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.model == "" || n.over:
	case n.loading != nil && outcome != nil:
		n.again = true
	case n.loading != nil:
		n.written = append(n.written, changes...)
	case n.set != nil && outcome != nil:
		n.set = nil
	case n.set != nil:
		n.set.Apply(changes)
		n.bound(n.set)
	}
}

// bound drops vectors that need too much memory. It is called with the lock.
func (n *nearest) bound(set *vectors.Set) {
	if n.over = set.Bytes() > n.limit; n.over {
		n.set = nil
		n.log.Warn("the vectors of the store exceed the memory for them, and searches read them from the disk, which is slow; "+
			"use Postgres with pgvector, or raise the memory limit", "limit_bytes", n.limit)
	}
}

// loaded returns the vectors, loading them if needed; nil if they need too much memory.
func (n *nearest) loaded(ctx context.Context, s *Store) (*vectors.Set, error) {
	for {
		n.mu.Lock()
		if n.set != nil || n.over {
			defer n.mu.Unlock()
			return n.set, nil
		}
		wait := n.loading
		if wait == nil {
			n.loading = make(chan struct{})
			model, dims := n.model, n.dims
			n.mu.Unlock()
			if err := n.load(ctx, s, model, dims); err != nil {
				return nil, fmt.Errorf("load vectors: %w", err)
			}
			continue
		}
		n.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// load reads all vectors. What is committed meanwhile is applied afterwards; some of it may have been read already.
func (n *nearest) load(ctx context.Context, s *Store, model string, dims int) error {
	set := vectors.NewSet(model, dims)
	var batch []vectors.Change
	err := s.snapshot(context.WithoutCancel(ctx), func(conn *sqlite.Conn) error { // others wait for it
		return query(conn, relational.VectorsOfAll.SQLite, func(st *sqlite.Stmt) error {
			v := make([]float32, dims)
			if !vectors.Decode(v, columnBytes(st, 3)) {
				return fmt.Errorf("item %q has a vector with other dimensions than its model", st.ColumnText(1))
			}
			c := vectors.Change{Namespace: st.ColumnText(0), Key: st.ColumnText(1), Updated: st.ColumnInt64(2), Model: model, Vectors: [][]float32{v}}
			if last := len(batch) - 1; last >= 0 && batch[last].Key == c.Key && batch[last].Namespace == c.Namespace {
				batch[last].Vectors = append(batch[last].Vectors, v)
				return nil
			}
			if len(batch) >= 1000 {
				set.Apply(batch)
				batch = batch[:0]
				if set.Bytes() > n.limit {
					return errStop
				}
			}
			batch = append(batch, c)
			return nil
		}, model)
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.loading)
	n.loading = nil
	if err == nil && !n.again && n.model == model {
		set.Apply(append(batch, n.written...))
		n.set = set
		n.bound(set)
	}
	n.written, n.again = nil, false
	return err
}

// UseVectors implements store.Backend.
func (i items) UseVectors(_ context.Context, model string, dims int) error {
	n := i.nearest
	n.mu.Lock()
	defer n.mu.Unlock()
	n.model, n.dims, n.set, n.over = model, dims, nil, false
	return nil
}

// IndexVectors loads the vectors, so that the first search need not wait for it.
func (i items) IndexVectors(ctx context.Context) error {
	_, err := i.nearest.loaded(ctx, i.Store)
	return err
}

// Rank implements relational.DB.
func (d database) Rank(ctx context.Context, near *store.Near, prefix string) (*vectors.Ranking, error) {
	set, err := d.s.nearest.loaded(ctx, d.s)
	if set == nil || err != nil {
		return nil, err
	}
	return set.Rank(ctx, prefix, near.Vector)
}

// Sorted implements relational.DB: SQLite cannot compare vectors.
func (database) Sorted(*store.Near, int) relational.Statement { return relational.Statement{} }

// Vector implements relational.DB.
func (database) Vector(v []float32, r relational.Row, col int) bool {
	return vectors.Decode(v, r.Bytes(col))
}

// PutVectors implements relational.Writer.
func (tx *Tx) PutVectors(namespace string, i *store.Item) error {
	for n, v := range i.Embedding.Vectors {
		if err := tx.exec("INSERT INTO store_vectors (namespace, key, number, model, vector) VALUES (?, ?, ?, ?, ?)",
			namespace, i.Key, n, i.Embedding.Model, vectors.AppendBytes(nil, v)); err != nil {
			return err
		}
	}
	// As the tables have it: text of clients may hold what they replace.
	tx.vectors = append(tx.vectors, vectors.Change{
		Namespace: rows.Text(namespace), Key: rows.Text(i.Key), Updated: i.UpdatedAt.UnixMicro(), Model: i.Embedding.Model, Vectors: i.Embedding.Vectors,
	})
	return nil
}

// VectorsGone implements relational.Writer.
func (tx *Tx) VectorsGone(namespace, key string) {
	tx.vectors = append(tx.vectors, vectors.Change{Namespace: rows.Text(namespace), Key: rows.Text(key)})
}

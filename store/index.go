package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/sweep"
)

// Index makes items searchable by meaning.
type Index struct {
	// Embedder computes the vectors of items and queries.
	Embedder Embedder
	// Name is that of the embedding, such as openai:text-embedding-3-small. When it or Dims changes, all items are embedded again.
	Name string
	// Dims is the number of dimensions of the vectors.
	Dims int
	// Fields are the paths of the texts of an item that has no paths of its own. none: the whole value.
	Fields []string
	// Every is how often items are looked for that have no embedding, such as imported ones; 0: a minute.
	Every time.Duration
	// Ready waits until Embedder can be called, before items are looked for the first time. nil: it can at once.
	Ready func(ctx context.Context) error
}

// index is an Index in use.
type index struct {
	Index
	batcher              *batcher
	model, configuration string
}

// UseIndex makes items searchable by meaning. It must precede all other calls.
func (s *Service) UseIndex(ctx context.Context, i Index) error {
	if len(i.Fields) == 0 {
		i.Fields = []string{"$"}
	}
	if i.Every <= 0 {
		i.Every = time.Minute
	}
	x := &index{Index: i, batcher: newBatcher(i.Embedder)}
	x.model = digest(i.Name, fmt.Sprint(i.Dims))
	x.configuration = digest(append([]string{x.model}, i.Fields...)...)
	if err := s.backend.UseVectors(ctx, x.model, i.Dims); err != nil {
		return fmt.Errorf("store.index: %w", err)
	}
	s.index = x
	return nil
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// paths returns what of an item is embedded.
func (x *index) paths(own json.RawMessage) []string {
	if len(own) == 0 {
		return x.Fields
	}
	var list []string
	if json.Unmarshal(own, &list) != nil { // false
		return nil
	}
	return list
}

// vectors embeds texts. Errors are of kind Internal: their cause is for the log.
func (x *index) vectors(ctx context.Context, texts []string) ([][]float32, error) {
	vectors, err := x.batcher.Embed(ctx, texts)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "the embedding of store.index ("+x.Name+") failed", err)
	}
	out := make([][]float32, len(vectors))
	for i, v := range vectors {
		if out[i], err = x.unit(v); err != nil {
			return nil, fault.Wrap(fault.Internal, "the embedding of store.index ("+x.Name+") is not usable", err)
		}
	}
	return out, nil
}

// unit returns a vector with length one, or all zeros if it has none.
func (x *index) unit(v []float32) ([]float32, error) {
	if len(v) != x.Dims {
		return nil, fmt.Errorf("it returned %d dimensions, and dims is %d; set dims to %d", len(v), x.Dims, len(v))
	}
	sum := 0.0
	for _, n := range v {
		sum += float64(n) * float64(n)
	}
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return nil, fmt.Errorf("it returned a vector with NaN or infinity")
	}
	out := make([]float32, len(v))
	if sum > 0 {
		length := math.Sqrt(sum)
		for i, n := range v {
			out[i] = float32(float64(n) / length)
		}
	}
	return out, nil
}

// embed sets the embeddings of items. Without an index it does nothing.
func (s *Service) embed(ctx context.Context, items []*Item) error {
	x := s.index
	if x == nil {
		return nil
	}
	var all []string
	counts := make([]int, len(items))
	for n, i := range items {
		if i.Value == nil { // it is deleted
			continue
		}
		list, err := texts(i.Value, x.paths(i.Index))
		if err != nil {
			return err
		}
		counts[n], all = len(list), append(all, list...)
	}
	vectors, err := x.vectors(ctx, all)
	if err != nil {
		return err
	}
	for n, i := range items {
		if i.Value != nil {
			i.Embedding = &graph.StoreEmbedding{Configuration: x.configuration, Model: x.model, Vectors: vectors[:counts[n]]}
			vectors = vectors[counts[n]:]
		}
	}
	return nil
}

// near embeds the queries of searches, and sets their Near.
func (s *Service) near(ctx context.Context, searches ...*Search) error {
	var queries []string
	for _, q := range searches {
		if q.Query != "" && s.index != nil {
			queries = append(queries, q.Query)
		}
	}
	if len(queries) == 0 {
		return nil
	}
	vectors, err := s.index.vectors(ctx, queries)
	if err != nil {
		return err
	}
	for _, q := range searches {
		if q.Query != "" {
			q.Near, vectors = &Near{Model: s.index.model, Vector: vectors[0]}, vectors[1:]
		}
	}
	return nil
}

// Embed embeds items that have no embedding, or one that the configuration has made obsolete, until ctx ends: at the start, and now and then,
// on one server at a time. Without an index it returns at once.
func (s *Service) Embed(ctx context.Context) error {
	if s.index == nil {
		return nil
	}
	if err := s.backend.IndexVectors(ctx); err != nil && ctx.Err() == nil { // searches work without
		s.Log.WarnContext(ctx, "index of vectors not created; semantic searches are slow until the next start", "error", err)
	}
	if s.index.Ready != nil { // else the first turn fails, and the next one is a minute later
		if err := s.index.Ready(ctx); err != nil {
			return nil //nolint:nilerr // what runs the function reports why it cannot, and ends the server
		}
	}
	// By configuration: a new one does not wait for the turn that a server with the old one took.
	loop := sweep.Loop{Turns: s.backend, Name: "embeddings " + s.index.configuration, Every: s.index.Every, Log: s.Log, Now: s.now, Do: s.embedMissing}
	return loop.Run(ctx)
}

const (
	// embedItems and embedBytes bound the items that are embedded at once.
	embedItems, embedBytes = 64, 1 << 20
	// shown is how many failures of a turn are logged.
	shown = 5
)

func (s *Service) embedMissing(ctx context.Context, until time.Time) error {
	var last *Item
	done, failed, started := 0, 0, s.now()
	for s.now().Before(until) {
		items, err := s.backend.Unembedded(ctx, s.index.configuration, last, embedItems, embedBytes)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			break
		}
		if last == nil {
			s.Log.InfoContext(ctx, "embedding items of the store", "embedding", s.index.Name)
		}
		last = &Item{Namespace: items[len(items)-1].Namespace, Key: items[len(items)-1].Key, Embedding: items[len(items)-1].Embedding}
		made, err := s.embedSome(ctx, items)
		if err != nil {
			return err
		}
		for _, i := range items {
			if slices.Contains(made, i) {
				continue
			}
			if failed++; failed <= shown {
				s.Log.WarnContext(ctx, "item not embedded; searches do not find it", "namespace", strings.Join(i.Namespace, "."), "key", i.Key)
			}
		}
		if done += len(made); done == 0 && failed >= embedItems {
			return fmt.Errorf("the embedding of store.index (%s) fails for all items; searches do not find them", s.index.Name)
		}
	}
	if done+failed > 0 {
		s.Log.InfoContext(ctx, "items of the store embedded", "embedding", s.index.Name, "items", done, "failed", failed, "took", s.now().Sub(started).String())
	}
	return nil
}

// embedSome embeds items, one by one if that fails for all at once, and returns those that succeeded.
func (s *Service) embedSome(ctx context.Context, items []*Item) (made []*Item, err error) {
	if err := s.embed(ctx, items); err != nil {
		for n := range items {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err := s.embed(ctx, items[n:n+1]); err != nil {
				s.Log.DebugContext(ctx, "item not embedded", "key", items[n].Key, "error", err)
				if n == 0 && len(items) > 1 {
					s.Log.WarnContext(ctx, "embedding failed", "error", err)
				}
				continue
			}
			made = append(made, items[n])
		}
	} else {
		made = items
	}
	if len(made) == 0 {
		return nil, nil
	}
	return made, s.backend.Embed(ctx, made)
}
